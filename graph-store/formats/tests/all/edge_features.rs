//! Features of the edges of edge lists: against a slow reading of the rows, and out to arrays and back.

use std::path::Path;

use crate::support::{edges, open, refusal, write};
use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{EdgeSplit, LinkFiles, NodeFiles, Options, Silent, UnknownNodes, export_numpy, manifest};
use morphgl_graph_store::{Dataset, Dtype, FeatureView};
use proptest::prelude::*;
use tempfile::TempDir;

/// An edge list whose features are in these columns: names, ranges and patterns, or numbers.
fn format(features: &str) -> EdgeListOptions {
    let column = |text: &str| match text.parse() {
        Ok(number) => Column::Number(number),
        Err(_) => Column::Name(text.into()),
    };
    let features = features.split(',').map(column).collect();
    EdgeListOptions { columns: Columns { features, ..Columns::default() }, ..Default::default() }
}

fn import(dir: &TempDir, text: &str, format: &EdgeListOptions, options: &Options) -> Dataset {
    let source = write(dir, "edges.csv", text.as_bytes());
    open(|target| edge_list::import(&source, target, format, options, &Silent))
}

/// The features of an edge, by its place among all.
fn features(dataset: &Dataset, edge: usize) -> Vec<f32> {
    let topology = &dataset.topology;
    let of = topology.edge_types().map_or(0, |types| usize::from(types[edge]));
    let matrix = dataset.edge_features[of].as_ref().expect("features of edges");
    let row = topology.edge_ids().expect("rows of edges")[edge] as usize;
    let mut values = vec![0.0; matrix.dim()];
    matrix.view().part(row * matrix.dim(), matrix.dim()).to_f32(&mut values);
    values
}

/// Source, target and features of the edges, row after row.
fn all(dataset: &Dataset) -> Vec<(u32, u32, Vec<f32>)> {
    edges(dataset).into_iter().enumerate().map(|(edge, (u, v, _))| (u, v, features(dataset, edge))).collect()
}

fn provenance(dataset: &Dataset, key: &str) -> String {
    dataset.path.meta().unwrap().provenance.get(key).map(ToString::to_string).unwrap_or_default()
}

/// What the rows become, one after another.
fn slowly(rows: &[(u32, u32)], options: &Options, number: impl Fn(u32) -> u32) -> Vec<(u32, u32, Vec<f32>)> {
    let mut edges = Vec::new();
    for (row, &(u, v)) in rows.iter().enumerate() {
        let (u, v) = if options.reverse { (v, u) } else { (u, v) };
        if u == v && options.drop_self_loops {
            continue;
        }
        let [u, v] = [u, v].map(&number);
        edges.push((v, u, row));
        if options.symmetrise && u != v {
            edges.push((u, v, row));
        }
    }
    edges.sort_by_key(|&(v, u, _)| (v, u));
    if options.symmetrise || options.drop_duplicates {
        edges.dedup_by_key(|&mut (v, u, _)| (v, u));
    }
    edges.into_iter().map(|(v, u, row)| (u, v, values(row))).collect()
}

/// The features of a row.
fn values(row: usize) -> Vec<f32> {
    vec![row as f32, 0.5 - row as f32]
}

/// Ids by kind, of nodes below ten.
fn id(ids: Ids, node: u32) -> String {
    match ids {
        Ids::Keep => node.to_string(),
        Ids::Compact => (u64::from(node) * 1_000_000_007).to_string(),
        Ids::Strings => format!("n{node}"),
    }
}

fn table(rows: &[(u32, u32)], ids: Ids) -> String {
    let row = |(row, &(u, v)): (usize, &(u32, u32))| {
        let [a, b] = values(row)[..] else { unreachable!("two values") };
        format!("{a},{},{b},{}\n", id(ids, u), id(ids, v))
    };
    "f0,src,f1,dst\n".to_string() + &rows.iter().enumerate().map(row).collect::<String>()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn features_are_those_of_a_slow_reading(
        rows in prop::collection::vec((0u32..8, 0u32..8), 1..40),
        (symmetrise, reverse, drop_self_loops, drop_duplicates) in any::<(bool, bool, bool, bool)>(),
        ids in prop::sample::select(vec![Ids::Keep, Ids::Compact, Ids::Strings]),
        listed in prop::option::of(1u32..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        // Nodes below a number are listed, and edges of others left out.
        let nodes = listed.map(|count| {
            let rows: String = (0..count).map(|node| format!("{},{}\n", id(ids, node), node % 2)).collect();
            write(&dir, "nodes.csv", format!("id,label\n{rows}").as_bytes())
        });
        let unknown_nodes = nodes.is_some().then_some(UnknownNodes::Drop);
        let nodes = NodeFiles { table: nodes, unknown_nodes, ..NodeFiles::default() };
        let options = Options { symmetrise, reverse, drop_self_loops, drop_duplicates, nodes, ..Options::default() };
        let text = table(&rows, ids);
        let num_nodes = (ids == Ids::Keep).then_some(8);
        let format = EdgeListOptions { ids, num_nodes, ..format("f*") };
        let dataset = import(&dir, &text, &format, &options);
        let is_kept = |&(u, v): &(u32, u32)| listed.is_none_or(|count| u < count && v < count);
        let mut present: Vec<u32> = rows.iter().filter(|row| is_kept(row)).flat_map(|&(u, v)| [u, v]).collect();
        present.extend(0..listed.unwrap_or(0));
        present.sort_unstable();
        present.dedup();
        let number = |node: u32| match ids {
            Ids::Keep => node,
            _ => present.binary_search(&node).expect("it is there") as u32,
        };
        // The features of a row are those of its number in the file.
        let expected: Vec<_> = slowly(&rows, &options, |node| if listed.is_none_or(|count| node < count) {
            number(node)
        } else {
            u32::MAX
        });
        let expected: Vec<_> = expected.into_iter().filter(|&(u, v, _)| u != u32::MAX && v != u32::MAX).collect();
        prop_assert_eq!(all(&dataset), expected);

        // Out to arrays and back, a row per edge.
        let arrays = export_numpy(&dataset, &dir.path().join("arrays")).unwrap();
        let back = open(|target| numpy::import(&arrays, target, NumpyOptions::default(), &Options::default(), &Silent));
        prop_assert_eq!(all(&back), all(&dataset));
    }
}

#[test]
fn columns_are_found_by_names_numbers_ranges_and_patterns() {
    let dir = tempfile::tempdir().unwrap();
    let expected = [(1, 0, vec![3.0, 4.0]), (0, 1, vec![1.0, 2.0])];
    for (text, features) in [
        ("src,dst,amount,fee\n0,1,1,2\n1,0,3,4\n", "amount,fee"),
        ("src,dst,amount,fee\n0,1,1,2\n1,0,3,4\n", "*"),
        ("fee,dst,src,amount\n2,1,0,1\n4,0,1,3\n", "Amount,FEE"),
        ("src\tdst\tamount\tfee\n0\t1\t1\t2\n1\t0\t3\t4\n", "3-4"),
        ("# a comment\n0 1 1 2\n1 0 3 4\n", "3,4"),
        ("0,1,1,2\n1,0,3,4\n", "3-4"),
        ("src,dst,label,fee\n0,1,1,2\n1,0,3,4\n", "label,f*"),
    ] {
        let dataset = import(&dir, text, &format(features), &Options::default());
        assert_eq!(all(&dataset), expected, "{features} of {text}");
        assert!(dataset.topology.weights().is_none(), "{features} of {text}");
        let names = if text.starts_with(['#', '0']) { "" } else { "[" };
        assert!(provenance(&dataset, "edge_feature_names").starts_with(names), "{text}");
    }
    let named = EdgeListOptions {
        columns: Columns { names: Some(["dst", "src", "x", "y"].map(String::from).into()), ..format("y,x").columns },
        ..Default::default()
    };
    let dataset = import(&dir, "1,0,2,1\n0,1,4,3\n", &named, &Options::default());
    assert_eq!(all(&dataset), expected);
    assert_eq!(provenance(&dataset, "edge_feature_names"), r#"["y","x"]"#);
    assert!(
        provenance(&dataset, "notes").contains("features of edges: 2 columns, 4, 3"),
        "{}",
        provenance(&dataset, "notes")
    );
}

#[test]
fn weights_and_labels_stand_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    // A column that is a feature is no weight, unless it is said to be one.
    let text = "src,dst,weight,x,kind\n0,1,5,1,a\n1,2,6,2,b\n2,0,7,3,a\n";
    let source_and = |features: &str| {
        let columns = format(features).columns;
        let [src, dst] = ["src", "dst"].map(|name| Some(Column::Name(name.into())));
        Columns { src, dst, ..columns }
    };
    let of = |columns: Columns| EdgeListOptions { columns, ..Default::default() };
    let both = import(&dir, text, &of(source_and("x")), &Options::default());
    assert_eq!(edges(&both), [(2, 0, 7.0), (0, 1, 5.0), (1, 2, 6.0)]);
    assert_eq!(all(&both)[0], (2, 0, vec![3.0]));
    let feature = import(&dir, text, &of(source_and("weight,x")), &Options::default());
    assert!(feature.topology.weights().is_none());
    assert_eq!(all(&feature)[0], (2, 0, vec![7.0, 3.0]));
    // What is to be predicted, by the file's own rows and those of a file of pairs without the features.
    let columns = Columns { label: Some(Column::Name("kind".into())), ..source_and("x") };
    let links = LinkFiles { valid: Some(write(&dir, "valid.csv", b"src,dst,kind\n0,2,b\n")), ..Default::default() };
    let dataset = import(&dir, text, &of(columns), &Options { links, ..Options::default() });
    assert_eq!(
        dataset.edges.targets.each_ref().map(|of| of.labels.as_deref().map(<[i32]>::len)),
        [Some(3), Some(1), None]
    );
    assert_eq!(all(&dataset)[0], (2, 0, vec![3.0]));
    // KONECT's header names the first columns; the time is a feature.
    let konect = "% asym positive\n% 3 3 3\n1 2 1 100\n2 3 1 200\n3 1 1 300\n";
    let dataset = import(&dir, konect, &format("4"), &Options::default());
    assert_eq!(all(&dataset), [(2, 0, vec![300.0]), (0, 1, vec![100.0]), (1, 2, vec![200.0])]);
    let bipartite = "% bip unweighted\n% 2 3 4\n1 1 10\n2 2 20\n";
    let dataset = import(&dir, bipartite, &format("3"), &Options { bipartite: Some(true), ..Options::default() });
    assert_eq!((dataset.num_nodes(), all(&dataset)), (7, vec![(0, 3, vec![10.0]), (1, 4, vec![20.0])]));
}

#[test]
fn edges_of_two_kinds_of_nodes_have_types_that_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let text = "user,item,stars\n1,1,5\n2,1,4\n1,2,3\n";
    let [src, dst] = ["user", "item"].map(|name| Some(Column::Name(name.into())));
    let columns = Columns { src, dst, ..format("stars").columns };
    for ids in [Ids::Compact, Ids::Strings] {
        let options = Options { bipartite: Some(true), symmetrise: true, ..Options::default() };
        let format = EdgeListOptions { columns: columns.clone(), ids, ..Default::default() };
        let dataset = import(&dir, text, &format, &options);
        assert_eq!(dataset.edge_features.len(), 2, "{ids:?}");
        let [user, item] = if ids == Ids::Compact { [0, 2] } else { [2, 0] };
        let mut expected = [(user, item, 5.0), (user + 1, item, 4.0), (user, item + 1, 3.0)]
            .into_iter()
            .flat_map(|(u, v, stars)| [(u, v, vec![stars]), (v, u, vec![stars])])
            .collect::<Vec<_>>();
        expected.sort_by_key(|&(u, v, _)| (v, u));
        assert_eq!(all(&dataset), expected, "{ids:?}");
        let files = dataset.path.meta().unwrap();
        let of = |number| &files.arrays[&format!("edge_features.{number}")].file;
        assert_eq!(of(0), of(1));
        let error = export_numpy(&dataset, &dir.path().join("arrays")).expect_err("an array per edge type");
        assert!(error.to_string().contains("features of edges by edge type, which are not exported"), "{error}");
    }
}

#[test]
fn a_split_of_edges_leaves_the_others_their_features() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<(u32, u32)> = (0..200).map(|i| (i % 17, i * 7 % 23)).collect();
    let edge_split = Some(EdgeSplit { train: 0.7, valid: 0.2, test: 0.1, seed: 3 });
    let options = Options { edge_split, symmetrise: true, ..Options::default() };
    let dataset = import(&dir, &table(&rows, Ids::Keep), &format("f*"), &options);
    let whole = slowly(&rows, &options, |node| node);
    let left = all(&dataset);
    assert!(left.len() < whole.len() && left.iter().all(|edge| whole.contains(edge)));
}

#[test]
fn types_of_elements_are_kept_through_export() {
    let dir = tempfile::tempdir().unwrap();
    let text = "src,dst,x\n0,1,1\n1,2,2\n2,0,250\n";
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8] {
        let options = Options { feature_dtype: Some(dtype), ..Options::default() };
        let dataset = import(&dir, text, &format("x"), &options);
        let of = |dataset: &Dataset| dataset.edge_features[0].as_ref().map(|features| features.dtype());
        assert_eq!(of(&dataset), Some(dtype));
        let arrays = export_numpy(&dataset, &dir.path().join(format!("arrays-{dtype}"))).unwrap();
        let back = open(|target| numpy::import(&arrays, target, NumpyOptions::default(), &Options::default(), &Silent));
        // numpy has no bf16.
        assert_eq!(of(&back), Some(if dtype == Dtype::Bf16 { Dtype::F32 } else { dtype }));
        assert_eq!(all(&back), all(&dataset));
    }
}

#[test]
fn faults_name_the_line_and_the_column() {
    let refused = |text: &str, format: &EdgeListOptions, options: &Options| {
        refusal("edges.csv", text.as_bytes(), |source: &Path, target: &Path| {
            edge_list::import(source, target, format, options, &Silent)
        })
    };
    let options = Options::default();
    for (text, features, expected) in [
        (
            "src,dst,x\n0,1,1\n1,2,\n",
            "x",
            "edges.csv, line 3: the feature \"x\" is missing; give every edge a number, or leave the column out of the features",
        ),
        (
            "src,dst,x\n0,1,red\n",
            "x",
            "edges.csv, line 2: the feature \"x\" is \"red\", no number; give every edge a number",
        ),
        ("0 1 2\n1 2 inf\n", "3", "edges.csv, element 1: the feature of edge 1, column 0 is inf, not a finite number"),
        ("src,dst,x\n0,1,1\n", "y", "edges.csv: there is no column \"y\": there are 3, named \"src\", \"dst\", \"x\""),
        (
            "src,dst,x\n0,1,1\n",
            "x,dst",
            "edges.csv: the column \"dst\" is read as ids, weights or to be predicted; leave it out",
        ),
        (
            "src,dst,x,y\n0,1,1,2\n",
            "x",
            "edges.csv: the columns are named \"src\", \"dst\", \"x\", \"y\", of which not all are known",
        ),
        ("src,dst,x\n0,1,1\n1,2\n", "x", "edges.csv, line 3: 2 fields, the first row has 3"),
        ("0 1 {'x': 2}\n", "3,4", "edges.csv, line 1: the feature in column 3 is \"{'x':\", no number"),
    ] {
        let error = refused(text, &format(features), &options);
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    }
    let text = "src,dst,x\n0,1,300\n";
    let error = refused(text, &format("x"), &Options { feature_dtype: Some(Dtype::U8), ..Options::default() });
    assert!(error.contains("column 0 is 300, which u8 cannot hold"), "{error}");
    let error = refused(text, &format("x"), &Options { add_self_loops: true, ..Options::default() });
    assert!(error.contains("self-loops that are added would have none; leave out --add-self-loops"), "{error}");
    let any = EdgeListOptions { ignore_columns: true, ..format("x") };
    let error = refused(text, &any, &options);
    assert!(error.contains("--ignore-columns: features of edges are read from lines"), "{error}");
}

#[test]
fn a_manifest_takes_a_table_of_features_alone() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = "[nodes.a]\ncount = 3\n[[edges]]\ntype = \"e\"\nfile = \"e.csv\"\nsource = \"a\"\ntarget = \"a\"\n\
                    features = \"f.csv\"\nreverse = true\n";
    write(&dir, "graph.toml", manifest.as_bytes());
    write(&dir, "e.csv", b"0,1\n2,0\n1,1\n");
    write(&dir, "f.csv", b"x,y\n1,2\n3,4\n5,6\n");
    let source = dir.path().join("graph.toml");
    let dataset = open(|target| manifest::import(&source, target, &Options::default(), &Silent));
    let [first, second, third] = [vec![1.0, 2.0], vec![3.0, 4.0], vec![5.0, 6.0]];
    let expected = [
        (2, 0, second.clone()),
        (1, 0, first.clone()),
        (0, 1, first),
        (1, 1, third.clone()),
        (1, 1, third),
        (0, 2, second),
    ];
    assert_eq!(all(&dataset), expected);
    for (text, expected) in [
        ("x,y\n1,2\n3,4\n", "f.csv: 2 rows for 3 edges; give every edge its row"),
        ("x\n1\n\n3\n", "f.csv: 2 rows for 3 edges; give every edge its row"),
        ("x\n1\nred\n3\n", "f.csv, line 3: the feature \"x\" is \"red\", no number; give every edge a number"),
        ("x\n1\ninf\n3\n", "f.csv, element 1: the feature of edge 1, column 0 is inf, not a finite number"),
    ] {
        write(&dir, "f.csv", text.as_bytes());
        let error = manifest::import(&source, &dir.path().join("out"), &Options::default(), &Silent).expect_err(text);
        assert!(error.to_string().replace(&format!("{}/", dir.path().display()), "").starts_with(expected), "{error}");
    }
}

#[test]
fn which_row_stays_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let text = "src,dst,x\n0,1,1\n1,0,2\n0,1,3\n2,2,4\n";
    let options = Options { symmetrise: true, drop_self_loops: true, ..Options::default() };
    let dataset = import(&dir, text, &format("x"), &options);
    assert_eq!(all(&dataset), [(1, 0, vec![1.0]), (0, 1, vec![1.0])]);
    let notes = provenance(&dataset, "notes");
    assert!(
        notes.contains("4 duplicate edges were dropped, both directions counted: the first keeps its features"),
        "{notes}"
    );
    assert!(notes.contains("1 self-loop was dropped"), "{notes}");
    let FeatureView::F32(rows) = dataset.edge_features[0].as_ref().expect("features").view() else { panic!("f32") };
    assert_eq!(rows, [1.0, 2.0, 3.0, 4.0], "a row per row of the file");
}
