//! Which columns of a table are features, and what is said of them.

use morphgl_formats::edge_list::Ids;
use morphgl_formats::{Column, NodeFiles};
use morphgl_graph_store::{Dataset, FeatureMatrix};
use proptest::prelude::*;

use super::{Case, nodes, notes};

pub(super) fn selected(text: &str) -> Option<Vec<Column>> {
    let column = |t: &str| t.parse().map_or_else(|_| Column::Name(t.to_string()), Column::Number);
    Some(text.split(',').map(column).collect())
}

/// A name of a known word and a number is no feature; the message names the column, and its cure leaves it out.
#[test]
fn numbered_columns_of_known_words_are_no_features() {
    for name in [
        "label_2",
        "Label2",
        "labels0",
        "id2",
        "ID_3",
        "fold_1",
        "split1",
        "set_2",
        "node_3",
        "nodeLabel1",
        "nodeid7",
        "train_mask_0",
        "valMask1",
        "val3",
        "test_1",
        "weight_1",
        "edge weight 2",
        "time2",
        "timestamp0",
        "date1",
        "class1",
        "superclass_1",
        "class_prob_0",
        "target_3",
        "y0",
        "y_true_1",
        "true_label_1",
        "uid7",
        "index0",
    ] {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.table = case.file("n.csv", &format!("node_id,{name},f0\n0,5,1\n1,6,2\n"));
        let error = case.import("0 1\n").unwrap_err();
        let lower = name.to_lowercase();
        let listed = if name.contains(' ') { format!("{lower:?}") } else { lower };
        assert!(error.contains(&format!("not all are known: {listed};")), "{name}: {error}");
        let cure = error.split("--feature-columns ").nth(2).and_then(|cure| cure.split(' ').next());
        case.options.nodes.columns.features = selected(cure.unwrap_or_else(|| panic!("{error}")));
        let path = case.import("0 1\n").unwrap();
        assert_eq!(nodes(&path), ["0: 1 / - / -", "1: 2 / - / -"], "{name}");
        assert!(notes(&path).replace('\\', "").contains(&format!("left out: {listed}")), "{}", notes(&path));
    }
    for name in ["f0", "feat_12", "x3", "17", "node_feature_2", "Word 9", "dim-4", "grid_0", "acid1", "name_length_2"] {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.table = case.file("n.csv", &format!("node_id,{name},f0\n0,5,1\n1,6,2\n"));
        assert_eq!(nodes(&case.import("0 1\n").unwrap()), ["0: 5 1 / - / -", "1: 6 2 / - / -"], "{name}");
    }
}

#[test]
fn families_of_features_are_listed() {
    let mut case = Case::new(Ids::Keep);
    let names: Vec<String> = (0..64).map(|i| format!("f{i}")).collect();
    let row = |id: u32| format!("{id}{}\n", ",1.5".repeat(67));
    let table = format!("id,{},age,w1,w2\n{}{}", names.join(","), row(0), row(1));
    case.options.nodes.table = case.file("n.csv", &table);
    case.options.nodes.columns.features = selected("f*,age");
    let path = case.import("0 1\n").unwrap();
    assert!(notes(&path).contains("f0…f63, age: 65 features; left out: w1, w2"), "{}", notes(&path));
    let names = Dataset::open(&path, Default::default()).unwrap().feature_dim();
    assert_eq!(names, 65);
}

/// `w0, w1, …` is a vector; one or two such columns are weights or times.
#[test]
fn vectors_named_by_a_letter_are_features() {
    for (names, count) in
        [("w0,w1,w2,w3", 4), ("w_1,w_2,w_3,w_7", 4), ("T.0,T.1,T.2,f0", 4), ("w0,w1,f0,f1", 2), ("n1,t1,w1,f9", 1)]
    {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.table = case.file("n.csv", &format!("id,{names}\n0,2,3,4,5\n1,6,7,8,9\n"));
        case.options.nodes.columns.id = Some(Column::Name("id".into()));
        let path = case.import("0 1\n").unwrap();
        let dataset = Dataset::open(&path, Default::default()).unwrap();
        assert_eq!(dataset.feature_dim(), count, "{names}: {}", notes(&path));
        assert_eq!(notes(&path).contains("left out: "), count < 4, "{}", notes(&path));
        assert!(notes(&path).contains(&format!(": {count} feature")), "{}", notes(&path));
        // Where no option names a column, those that are not read are refused by name.
        case.options.nodes.columns.id = None;
        let refused = case.import("0 1\n");
        assert_eq!(refused.is_err(), count < 4, "{refused:?}");
        if let Err(message) = refused {
            assert!(message.contains("--feature-columns which ones are read"), "{message}");
        }
    }
}

/// A column of ids in an array or in a table is named, and so is how to leave it out.
#[test]
fn columns_of_ids_are_remarked() {
    let edges = "0 1\n1 2\n2 3\n3 4\n";
    for (ids, first) in
        [([0f32, 1., 2., 3., 4.], 0), ([1., 2., 3., 4., 5.], 0), ([0.; 5], 0), ([0., 1., 2., 4., 3.], 0)]
    {
        let mut case = Case::new(Ids::Keep);
        case.format.first_id = Some(first);
        let values: Vec<f32> =
            ids.iter().enumerate().flat_map(|(node, id)| [(node * 7 % 5) as f32, *id, 0.5]).collect();
        case.options.nodes.features = case.array("x.npy", &values, Some(3));
        let found = notes(&case.import(edges).unwrap());
        let said = "the feature 1 (counted from 0) is the number or id of each node, and tells nodes apart: leave it out, in numpy by numpy.delete(x, COLUMN, axis=1)";
        assert_eq!(found.contains(said), ids[1] == ids[0] + 1.0 && ids[4] > ids[3], "{found}");
        assert_eq!(found.contains("of each node"), found.contains(said), "{found}");
    }
    // Ids with gaps, in a table in which they are not in the first column.
    let mut case = Case::new(Ids::Compact);
    case.options.nodes.features = case.file("x.csv", "f0,paper\n5,30\n1,70\n4,90\n9,95\n");
    let found = notes(&case.import("30 70\n70 90\n95 30\n").unwrap());
    assert!(
        found.contains(
            "the feature paper is the number or id of each node, and tells nodes apart: read it by --id-column"
        ),
        "{found}"
    );
}

/// LINQS' tables of 1,433 words without a header: short messages, and ranges of columns.
#[test]
fn wide_tables_have_short_messages_and_ranges() {
    let mut case = Case::new(Ids::Compact);
    let row = |id: u32, class: &str| format!("{id}\t{}{class}\n", "0\t1\t".repeat(716));
    let table = row(31, "Theory") + &row(12, "Rules") + &row(40, "Theory");
    case.options.nodes.table = case.file("n.content", &table);
    let error = case.import("12 31\n31 40\n").unwrap_err();
    let cure = "say by their numbers which ones are read, for example --id-column 1 --feature-columns 2-1433 --label-column 1434";
    assert_eq!(error, format!("n.content: the first line has no names of its columns, which are 1434; {cure}"));
    let columns = &mut case.options.nodes.columns;
    (columns.id, columns.label) = (Some(Column::Number(1)), Some(Column::Number(1434)));
    columns.features = selected("2-1433");
    let path = case.import("12 31\n31 40\n").unwrap();
    let dataset = Dataset::open(&path, Default::default()).unwrap();
    assert_eq!((dataset.feature_dim(), dataset.labels.as_deref()), (1432, Some(&[0, 1, 1][..])));
    assert!(
        notes(&path).contains("columns without names, ids 1, labels 1434, 2-1433: 1432 features"),
        "{}",
        notes(&path)
    );
    case.options.nodes.columns.features = selected("2-1435");
    let error = case.import("12 31\n31 40\n").unwrap_err();
    assert!(error.starts_with("n.content: there is no column \"2-1435\": there are 1434, without names"), "{error}");
    case.options.nodes.columns.features = selected("1-1433");
    let error = case.import("12 31\n31 40\n").unwrap_err();
    assert!(
        error.starts_with("n.content: the column 1 is read as ids, labels, a split or targets; leave it out"),
        "{error}"
    );
    // Of many names as well.
    let names: Vec<String> = (0..1433).map(|i| format!("word{}x", i * 31)).collect();
    case.options.nodes =
        NodeFiles { table: case.file("n.csv", &format!("id,{}\n", names.join(","))), ..NodeFiles::default() };
    let error = case.import("12 31\n").unwrap_err();
    assert!(error.len() < 500, "{} characters: {error}", error.len());
}

/// A copy of the labels, or a code of them, in a table of these columns.
#[derive(Debug, Clone)]
struct Leak {
    /// Name of the column; `None`: no column has a name.
    name: Option<String>,
    /// The labels, and the number that each is coded by.
    labels: Vec<usize>,
    codes: Vec<i32>,
    /// Codes of every class: of more than one, nodes alternate.
    per_class: usize,
    /// Whether the options name the column as a feature.
    is_selected: bool,
    /// As a file of features, beside one of labels.
    is_separate: bool,
}

fn leaks() -> impl Strategy<Value = Leak> {
    let known = prop::sample::select(vec!["label", "id", "fold", "f", "x", "class_", "y.", "", "time ", "is", "märz"]);
    let word = prop_oneof![known.prop_map(String::from), "[a-zA-Z]{1,9}[_ .-]?"];
    let name =
        (word, prop::option::of(0u32..300)).prop_map(|(word, n)| word + &n.map_or(String::new(), |n| n.to_string()));
    let codes = Just((-3..9).collect::<Vec<i32>>()).prop_shuffle();
    let labels = prop_oneof![prop::collection::vec(0usize..4, 4..16), prop::collection::vec(0usize..4, 80..120)];
    let shape = (1usize..4, any::<bool>(), any::<bool>());
    (prop::option::weighted(0.9, name), labels, codes, shape).prop_map(
        |(name, labels, codes, (per_class, is_selected, is_separate))| Leak {
            name,
            labels,
            codes,
            per_class,
            is_selected,
            is_separate,
        },
    )
}

impl Leak {
    fn import(&self) -> Result<std::path::PathBuf, String> {
        let mut case = Case::new(Ids::Keep);
        let mut table = match &self.name {
            Some(name) => format!("node,\"{name}\",f7,f8\n"),
            None => String::new(),
        };
        let mut labels = "id,label\n".to_string();
        for (node, &label) in self.labels.iter().enumerate() {
            let code = self.codes[label * self.per_class + node % self.per_class];
            table += &format!("{node},{code},{},{}\n", node % 3, node * 7 % 5);
            labels += &format!("{node},{label}\n");
        }
        case.options.nodes.labels = case.file("labels.csv", &labels);
        let columns = &mut case.options.nodes.columns;
        columns.features = self.is_selected.then(|| vec![Column::Number(2), Column::Name("3-4".into())]);
        if self.name.is_none() {
            columns.id = None;
        }
        let table = case.file("n.csv", &table);
        if self.is_separate || self.name.is_none() {
            case.options.nodes.features = table;
        } else {
            case.options.nodes.table = table;
        }
        let edges: String = (1..self.labels.len()).map(|node| format!("0 {node}\n")).collect();
        let path = case.import(&edges)?;
        // The directory lives as long as the case.
        let kept = case.dir.keep();
        assert!(path.starts_with(&kept));
        Ok(path)
    }
}

/// Whether a feature has one value per class, and not the same for all.
fn is_leaked(features: &[f32], dim: usize, labels: &[i32]) -> bool {
    (0..dim).any(|column| {
        let value = |node: usize| features[node * dim + column];
        let nodes = || 0..labels.len();
        let one = nodes().all(|a| nodes().all(|b| labels[a] != labels[b] || value(a) == value(b)));
        one && nodes().any(|node| value(node) != value(0))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the columns are called, a copy or a one-to-one image of the labels never becomes a feature without a remark.
    #[test]
    fn labels_are_no_features_without_a_remark(leak in leaks()) {
        let Ok(path) = leak.import() else { return Ok(()) };
        let dataset = Dataset::open(&path, Default::default()).unwrap();
        let labels = dataset.labels.as_deref().expect("labels");
        let said = notes(&path);
        // Of many nodes, each value of a finer code is of one class by no chance; of few, it may be by chance.
        // A column without a name is left out.
        let is_feature = dataset.features.is_some() && leak.name.as_deref() != Some("");
        if leak.per_class > 1 && leak.labels.len() >= 80 && is_feature {
            prop_assert!(said.contains("values, each of nodes of one class alone"), "{said}");
        }
        let remark = said.contains("one value per class");
        match &dataset.features {
            Some(FeatureMatrix::F32 { data, dim }) => prop_assert_eq!(remark, is_leaked(data, *dim, labels), "{}", notes(&path)),
            Some(other) => panic!("{other:?}"),
            None => prop_assert!(!remark),
        }
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}

/// Feature columns with one value per class are noted by name, of tables and of arrays.
#[test]
fn leaked_labels_are_named() {
    let mut case = Case::new(Ids::Keep);
    let onehot = "id,label,a,b,c,f0\n0,0,1,0,0,5\n1,1,0,1,0,6\n2,2,0,0,1,5\n3,0,1,0,0,7\n4,1,0,1,0,7\n5,2,0,0,1,9\n";
    case.options.nodes.table = case.file("n.csv", onehot);
    case.options.nodes.columns.features = selected("a,b,c,f0");
    let notes_of = |case: &Case| notes(&case.import("0 1\n2 3\n4 5\n").unwrap()).replace('\\', "");
    let found = notes_of(&case);
    let said = "3 features have one value per class: they are copies or codes of the labels: a, b, c; leave";
    assert!(found.contains(said), "{found}");
    case.options.nodes.columns.features = selected("f0");
    assert!(!notes_of(&case).contains("per class"));
    let labels = case.array("y.npy", &[0i32, 1, 0, 1, -1, -1], None);
    let features = case.array("x.npy", &[9u8, 4, 8, 5, 7, 4, 6, 5, 5, 9, 4, 9], Some(2));
    case.options.nodes = NodeFiles { labels, features, ..NodeFiles::default() };
    let found = notes_of(&case);
    assert!(found.contains("the feature 1 (counted from 0) has one value per class"), "{found}");
    let rows = (0..6).map(|node| format!("{node}.5,{}\n", node % 2)).collect::<String>();
    case.options.nodes.features = case.file("x.csv", &rows);
    case.options.nodes.columns.features = None;
    let found = notes_of(&case);
    assert!(found.contains("the feature in column 2 of the table has one value per class"), "{found}");
}
