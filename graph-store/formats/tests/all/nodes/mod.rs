//! Features, labels, splits and ids beside a graph, in files of their own.

mod classes;
mod columns;
mod gephi;
mod masks;
mod standardise;
mod targets;
mod unknown;

use std::path::{Path, PathBuf};

use crate::support::write;
use morphgl_formats::edge_list::{self, EdgeListOptions, Ids};
use morphgl_formats::{Column, NodeFiles, Options, RandomLabels, RandomSplit, Silent, metis, mtx, numpy};
use morphgl_graph_store::{Dataset, FeatureMatrix, Meta, NodeNames, NpyWriter};
use tempfile::TempDir;

/// The nodes of a dataset in order: `id: features / label / split`.
fn nodes(path: &Path) -> Vec<String> {
    let dataset = Dataset::open(path, Default::default()).expect("a dataset");
    let names = NodeNames::read(path).expect("a dataset");
    let features: Vec<f32> = match &dataset.features {
        Some(FeatureMatrix::F32 { data, .. }) => data.to_vec(),
        Some(FeatureMatrix::U8 { data, .. }) => data.iter().map(|&v| f32::from(v)).collect(),
        Some(other) => panic!("{other:?}"),
        None => vec![],
    };
    let dim = dataset.feature_dim();
    let node = |v: usize| {
        let name = match (&names, &dataset.node_ids) {
            (Some(names), _) => String::from_utf8_lossy(names.get(v as u32)).into_owned(),
            (None, Some(ids)) => ids[v].to_string(),
            (None, None) => v.to_string(),
        };
        let features: Vec<String> = features[v * dim..(v + 1) * dim].iter().map(f32::to_string).collect();
        let label = dataset.labels.as_ref().map_or("-".into(), |labels| labels[v].to_string());
        let splits =
            [("train", &dataset.splits.train), ("valid", &dataset.splits.valid), ("test", &dataset.splits.test)];
        let split = splits.iter().find(|(_, nodes)| nodes.contains(&(v as u32))).map_or("-", |(name, _)| name);
        format!("{name}: {} / {label} / {split}", features.join(" "))
    };
    (0..dataset.num_nodes()).map(node).collect()
}

fn notes(path: &Path) -> String {
    let meta = Meta::read(path).expect("a dataset");
    meta.provenance.get("notes").map_or(String::new(), |notes| notes.to_string())
}

struct Case {
    dir: TempDir,
    format: EdgeListOptions,
    options: Options,
}

impl Case {
    fn new(ids: Ids) -> Self {
        let (format, options) = (EdgeListOptions { ids, ..Default::default() }, Options::default());
        Self { dir: tempfile::tempdir().expect("a directory"), format, options }
    }

    fn file(&self, name: &str, text: &str) -> Option<PathBuf> {
        Some(write(&self.dir, name, text.as_bytes()))
    }

    fn array<T: morphgl_graph_store::Element>(&self, name: &str, values: &[T], dim: Option<usize>) -> Option<PathBuf> {
        let path = self.dir.path().join(name);
        let mut writer = NpyWriter::create(&path).expect("a file");
        writer.write(values).and_then(|()| writer.finish(dim)).expect("written");
        Some(path)
    }

    fn import(&self, edges: &str) -> Result<PathBuf, String> {
        let (source, target) = (write(&self.dir, "e.txt", edges.as_bytes()), self.dir.path().join("dataset"));
        let options = Options { replace: true, ..self.options.clone() };
        let imported = edge_list::import(&source, &target, &self.format, &options, &Silent);
        imported.map_err(|e| e.to_string().replace(&format!("{}/", self.dir.path().display()), ""))
    }
}

const TABLE: &str = "id,label,split,f0,f1\n3,1,train,0.5,1\n0,0,valid,2,3\n1,,,4,5\n2,1,test,6,7\n";
const NODES: [&str; 4] = ["0: 2 3 / 0 / valid", "1: 4 5 / -1 / -", "2: 6 7 / 1 / test", "3: 0.5 1 / 1 / train"];

#[test]
fn a_table_gives_nodes_their_rows_by_their_ids() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.table = case.file("n.csv", TABLE);
    let path = case.import("0 1\n1 2\n2 3\n").unwrap();
    assert_eq!(nodes(&path), NODES);
    let notes = notes(&path);
    assert!(
        notes.contains("n.csv: ids \\\"id\\\", labels \\\"label\\\", splits \\\"split\\\", f0, f1: 2 features"),
        "{notes}"
    );
    assert!(notes.contains("1 of 4 nodes have no label"), "{notes}");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 8, "nothing else is left in the dataset");
}

/// Numbers among names keep their spelling in the file, leading zeros included.
#[test]
fn labels_that_are_names_keep_their_spelling() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.labels = case.file("l.csv", "label\n007\n7\n3.0\nabc\n0\n08\n");
    let path = case.import("0 1\n1 5\n").unwrap();
    assert!(notes(&path).contains("in their order: 0 = 0, 007 = 1, 08 = 2, 3.0 = 3, …"), "{}", notes(&path));
    let numbers = case.file("l.csv", "label\n007\n0\n");
    case.options.nodes.labels = numbers;
    assert_eq!(nodes(&case.import("0 1\n").unwrap()), ["0:  / 7 / -", "1:  / 0 / -"]);
}

/// Nodes are those of the table, with an edge or without.
#[test]
fn a_table_has_nodes_without_edges() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.table = case.file("n.csv", TABLE);
    assert_eq!(nodes(&case.import("0 1\n").unwrap()), NODES);
    case.format.ids = Ids::Compact;
    case.options.nodes.table = case.file("n.csv", "node\tf_0\ttarget\n900\t1\t0\n7\t2\t1\n30\t3\t0\n");
    assert_eq!(nodes(&case.import("7 900\n").unwrap()), ["7: 2 / 1 / -", "30: 3 / 0 / -", "900: 1 / 0 / -"]);
    case.format.ids = Ids::Strings;
    case.options.nodes.table = case.file("n.csv", "name,y,f0\nzoe,b,1\nann,a,2\n\"x, y\",b,3\n");
    let path = case.import("src,dst\nann,zoe\n").unwrap();
    assert_eq!(nodes(&path), ["ann: 2 / 0 / -", "x, y: 3 / 1 / -", "zoe: 1 / 1 / -"]);
    assert!(notes(&path).contains("the labels are names, numbered in their order: a = 0, b = 1"), "{}", notes(&path));
    let edges = crate::support::edges(&Dataset::open(&path, Default::default()).unwrap());
    assert_eq!(edges.iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(0, 2)]);
}

#[test]
fn arrays_and_lists_give_what_the_table_gives() {
    let mut case = Case::new(Ids::Keep);
    let features = case.array("x.npy", &[2f32, 3., 4., 5., 6., 7., 0.5, 1.], Some(2));
    let labels = case.array("y.npy", &[0i32, -1, 1, 1], None);
    let splits =
        [case.file("train.txt", "3\n"), case.array("valid.npy", &[0i32], None), case.file("test.csv", "id\n2\n")];
    case.options.nodes = NodeFiles { features, labels, splits, ..NodeFiles::default() };
    assert_eq!(nodes(&case.import("0 1\n1 2\n2 3\n").unwrap()), NODES);
    // Features and labels as text: without ids in order, with them in any.
    case.options.nodes.features = case.file("x.csv", "2,3\n4,5\n6,7\n0.5,1\n");
    case.options.nodes.labels = case.file("y.csv", "id;label\n3;1\n2;1\n0;0\n");
    assert_eq!(nodes(&case.import("0 1\n1 2\n2 3\n").unwrap()), NODES);
    // Rows of an array are those of the ids, or in the order of the ids, where these have gaps.
    case.format.ids = Ids::Compact;
    case.options.nodes = NodeFiles { features: case.array("x.npy", &[9u8, 1, 9, 3], Some(1)), ..NodeFiles::default() };
    let path = case.import("1 3\n").unwrap();
    assert_eq!(nodes(&path), ["1: 1 / - / -", "3: 3 / - / -"]);
    assert!(notes(&path).contains("row i is the node of id i; 2 rows of ids without an edge were left out"));
    case.options.nodes.features = case.array("x.npy", &[1f32, 3.], Some(1));
    let path = case.import("1 3\n").unwrap();
    assert_eq!(nodes(&path), ["1: 1 / - / -", "3: 3 / - / -"]);
    assert!(notes(&path).contains("row i is the node of the i-th lowest id"));
}

#[test]
fn ids_that_count_from_one_are_those_of_the_table() {
    let mut case = Case::new(Ids::Keep);
    case.format.first_id = Some(1);
    case.options.nodes.labels = case.file("y.csv", "id,label\n1,0\n2,1\n3,1\n");
    assert_eq!(nodes(&case.import("1 2\n").unwrap()), ["1:  / 0 / -", "2:  / 1 / -", "3:  / 1 / -"]);
}

#[test]
fn masks_are_columns_or_arrays() {
    let mut case = Case::new(Ids::Keep);
    let masks = "id,train_mask,val_mask,test_mask,f0\n0,True,False,False,1\n1,0,0,1,2\n2,0,1,0,3\n3,,,,4\n";
    case.options.nodes.table = case.file("n.csv", masks);
    let expected = ["0: 1 / - / train", "1: 2 / - / test", "2: 3 / - / valid", "3: 4 / - / -"];
    assert_eq!(nodes(&case.import("0 1\n").unwrap()), expected);
    case.options.nodes.table = case.file("n.csv", "id,train_mask,test_mask\n0,1,1\n");
    let error = case.import("0 1\n").unwrap_err();
    assert!(error.starts_with("n.csv, line 2: a node of two splits"), "{error}");
}

/// One of several masks or labels is chosen by its number.
#[test]
fn a_column_of_an_array_is_chosen() {
    let mut case = Case::new(Ids::Keep);
    let labels = case.array("y.npy", &[0i32, 5, 1, 6, 2, 7], Some(2));
    case.options.nodes = NodeFiles { labels, ..NodeFiles::default() };
    let error = case.import("0 1\n1 2\n").unwrap_err();
    let said = "y.npy: an array of shape [3, 2], where one value per node is expected; read one of its columns by --label-column 1 to 2";
    assert!(error.starts_with(said), "{error}");
    case.options.nodes.columns.label = Some(Column::Number(2));
    assert_eq!(nodes(&case.import("0 1\n1 2\n").unwrap()), ["0:  / 5 / -", "1:  / 6 / -", "2:  / 7 / -"]);
}

/// The same files with every other format of edges.
#[test]
fn every_format_takes_them() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.table = case.file("n.csv", TABLE);
    let options = Options { replace: true, ..case.options.clone() };
    let target = case.dir.path().join("other");
    let file = |name: &str, text: &str| write(&case.dir, name, text.as_bytes());
    let matrix = file("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n4 4 1\n1 2\n");
    mtx::import(&matrix, &target, &options, &Silent).unwrap();
    assert_eq!(nodes(&target), NODES);
    metis::import(&file("m.graph", "4 1\n2\n1\n\n\n"), &target, &options, &Silent).unwrap();
    assert_eq!(nodes(&target), NODES);
    let arrays = case.dir.path().join("arrays");
    std::fs::create_dir(&arrays).unwrap();
    for (name, value) in [("src", 0i32), ("dst", 1)] {
        std::fs::rename(case.array("a.npy", &[value], None).unwrap(), arrays.join(format!("{name}.npy"))).unwrap();
    }
    numpy::import(&arrays, &target, numpy::NumpyOptions::default(), &options, &Silent).unwrap();
    assert_eq!(nodes(&target), NODES);
    std::fs::rename(case.array("a.npy", &[0i32, 1, 1, 0], None).unwrap(), arrays.join("labels.npy")).unwrap();
    let error = numpy::import(&arrays, &target, numpy::NumpyOptions::default(), &options, &Silent).unwrap_err();
    assert!(error.to_string().contains("n.csv: labels are given by"), "{error}");
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let long = "give every node its row, or add a column of ids";
    for (name, table, expected) in [
        ("n.csv", "id,label\n0,0\n0,1\n", "n.csv, element 1: the node 0 stands there twice; remove one of the rows"),
        (
            "n.csv",
            "id,label\nx,0\n",
            "n.csv, line 2: \"x\" is no node id; correct it; nodes that are known by names are imported with --ids strings",
        ),
        (
            "n.csv",
            "id,label,age\n0,0,4\n",
            "n.csv: the columns are id, label, age, of which not all are known: age; say by --id-column",
        ),
        (
            "n.csv",
            "id,split\n0,dev\n1,later\n",
            "n.csv, line 3: \"later\" is no split; write train, valid, test or nothing",
        ),
        ("n.csv", "id,f0\n0,1\n1,a\n", "n.csv, line 3: the feature \"a\" is no number"),
        ("n.csv", "id,f0\n0,1\n", "n.csv: 1 of 2 nodes have no features: 1; give every node its row, or import"),
        ("n.csv", "id,f0\n0,1\n1,\n", "n.csv, element 1: the feature of node 1, column 0 is NaN, not a finite number"),
        ("n.csv", "f0\n1\n", &format!("n.csv: 1 rows, but the graph has 2 nodes; {long}")),
        ("n.csv", "", "n.csv: the table is empty"),
    ] {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.table = case.file(name, table);
        let error = case.import("0 1\n").unwrap_err();
        assert!(error.starts_with(expected), "{table:?}\n gives    {error}\n expected {expected}");
    }
}

/// A split is drawn over labelled nodes alone, and over random labels where there are no others.
#[test]
fn random_labels_and_splits_over_labelled_nodes() {
    let mut case = Case::new(Ids::Keep);
    let shares = RandomSplit { train: 0.5, valid: 0.25, test: 0.25, seed: 1 };
    case.options.split = Some(shares);
    case.options.nodes.labels = case.file("y.csv", "id,label\n0,0\n1,1\n2,0\n5,1\n");
    let split = nodes(&case.import("0 1\n7 2\n").unwrap());
    let of = |rows: &[String], part: &str| rows.iter().filter(|row| row.ends_with(part)).count();
    assert_eq!([of(&split, "train"), of(&split, "valid"), of(&split, "test")], [2, 1, 1]);
    assert!(split.iter().all(|row| row.contains("/ -1 /") == row.ends_with("/ -")), "{split:?}");
    case.options.random_labels = Some(RandomLabels { num_classes: 3, seed: 5 });
    let kept = case.import("0 1\n7 2\n").unwrap();
    assert_eq!(nodes(&kept), split);
    assert!(notes(&kept).contains("the graph has labels of its own: --random-labels was left out"));
    case.options.nodes = NodeFiles::default();
    case.options.random_labels = Some(RandomLabels { num_classes: 3, seed: 5 });
    let path = case.import("0 1\n7 2\n").unwrap();
    let dataset = Dataset::open(&path, Default::default()).unwrap();
    assert_eq!((dataset.num_classes, dataset.splits.train.len()), (3, 4));
    assert!(dataset.labels.as_ref().unwrap().iter().all(|l| (0..3).contains(l)));
}
