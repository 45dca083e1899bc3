//! Typed graphs: manifests, Neo4j's csv files and triples, against hand-written arrays.

mod faults;
mod folders;
mod neo4j;
mod ogb;
mod random;
mod task;
mod triples;

use std::path::{Path, PathBuf};

use crate::support::write;
use morphgl_formats::{Options, Silent, manifest};
use morphgl_graph_store::{Dataset, FeatureMatrix, Meta, NodeNames, Result};
use tempfile::TempDir;

/// An imported graph, and the names of its nodes where these are text.
struct Typed {
    dataset: Dataset,
    names: Option<NodeNames>,
}

impl std::ops::Deref for Typed {
    type Target = Dataset;

    fn deref(&self) -> &Dataset {
        &self.dataset
    }
}

/// The graph that `import` writes.
#[track_caller]
fn open(import: impl FnOnce(&Path) -> Result<PathBuf>) -> Typed {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = import(&dir.path().join("dataset")).expect("it is imported");
    let names = NodeNames::read(&path).expect("sound names");
    Typed { dataset: Dataset::open(path, Default::default()).expect("a sound dataset"), names }
}

/// Files of a directory.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        if let Some(parent) = Path::new(name).parent() {
            std::fs::create_dir_all(dir.path().join(parent)).expect("a folder");
        }
        write(&dir, name, text.as_bytes());
    }
    dir
}

/// The dataset of a manifest `graph.toml` among these files.
fn import(files: &[(&str, &str)], options: &Options) -> Typed {
    let dir = folder(files);
    open(|target| manifest::import(&dir.path().join("graph.toml"), target, options, &Silent))
}

fn meta(dataset: &Typed) -> &Meta {
    dataset.path.meta().expect("a dataset on disk")
}

fn notes(dataset: &Typed) -> String {
    meta(dataset).provenance.get("notes").map(ToString::to_string).unwrap_or_default()
}

/// The edges, `source -type-> target [weight w] [at t]`, with nodes by their ids; rows in order.
fn edges(dataset: &Typed) -> Vec<String> {
    let topology = &dataset.topology;
    let types = topology.types().expect("types");
    let id = |v: u32| match (&dataset.names, &dataset.node_ids) {
        (Some(names), _) => String::from_utf8_lossy(names.get(v)).into_owned(),
        (None, Some(ids)) => format!("{}:{}", types.node_types()[types.node_type(v)].name, ids[v as usize]),
        (None, None) => panic!("typed graphs have ids"),
    };
    let edge = |v: u32, e: usize| {
        let of = &types.edge_types()[usize::from(topology.edge_types().expect("types")[e])];
        let weight = topology.weights().map(|weights| format!(" weight {}", weights[e])).unwrap_or_default();
        let time = topology.edge_times().filter(|times| times[e] > i64::MIN).map(|times| format!(" at {}", times[e]));
        format!("{} -{}-> {}{weight}{}", id(topology.indices()[e]), of.name, id(v), time.unwrap_or_default())
    };
    let row = |v: u32| topology.edge_range(v).map(move |e| (v, e));
    (0..dataset.num_nodes() as u32).flat_map(row).map(|(v, e)| edge(v, e)).collect()
}

/// Names and numbers of the node types.
fn node_types(dataset: &Typed) -> Vec<(&str, u64)> {
    let types = dataset.topology.types().expect("types");
    types.node_types().iter().map(|of| (&*of.name, of.count)).collect()
}

fn edge_types(dataset: &Typed) -> Vec<String> {
    dataset.topology.types().expect("types").edge_types().iter().map(ToString::to_string).collect()
}

/// The features of a type as f32.
fn features(dataset: &Typed, of: usize) -> (Vec<f32>, usize) {
    match dataset.features_by_type.get(of) {
        Some(Some(FeatureMatrix::F32 { data, dim })) => (data.to_vec(), *dim),
        Some(Some(FeatureMatrix::F16 { data, dim })) => (data.iter().map(|v| v.to_f32()).collect(), *dim),
        Some(Some(FeatureMatrix::U8 { data, dim })) => (data.iter().map(|&v| f32::from(v)).collect(), *dim),
        Some(Some(other)) => panic!("{other:?}"),
        Some(None) | None => (vec![], 0),
    }
}

const SHOP: &str = r#"
name = "shop"

[nodes.product]
file = "products.csv"
id = "sku"
features = ["price", "size"]

[nodes.customer]
file = "customers.csv"
id = "customer_id"
features = ["age"]
time = "signed_up"
label = "churn"
split = "fold"

[nodes.city]

[[edges]]
type = "buys"
file = "orders.csv"
source = { type = "customer", column = "customer" }
target = { type = "product", column = "product" }
time = "day"
weight = "amount"
reverse = true

[[edges]]
type = "in"
file = "cities.tsv"
source = "customer"
target = "city"
"#;
const PRODUCTS: &str = "sku,price,size,name\nb7,2.5,1,\"Soap, blue\"\na1,10,3,Towel\n";
const CUSTOMERS: &str =
    "customer_id,age,signed_up,churn,fold\n30,41,100,no,train\n10,35,120,yes,train\n20,29,90,,valid\n";
const ORDERS: &str = "customer,product,day,amount\n10,a1,130,2\n30,b7,101,1.5\n10,b7,125,1\n10,a1,126,4\n";
const CITIES: &str = "30\tRome\n10\tOslo\n20\tRome\n";

fn shop() -> [(&'static str, &'static str); 5] {
    [
        ("graph.toml", SHOP),
        ("products.csv", PRODUCTS),
        ("customers.csv", CUSTOMERS),
        ("orders.csv", ORDERS),
        ("cities.tsv", CITIES),
    ]
}

#[test]
fn a_manifest_becomes_the_arrays_that_it_describes() {
    let dataset = import(&shop(), &Options::default());
    assert_eq!(dataset.name, "shop");
    assert_eq!(node_types(&dataset), [("product", 2), ("customer", 3), ("city", 2)]);
    assert_eq!(edge_types(&dataset), ["customer-buys-product", "customer-in-city", "product-rev_buys-customer"]);
    // Rows are nodes 0 and 1 (b7, a1), 2 to 4 (30, 10, 20), 5 and 6 (Rome, Oslo).
    assert_eq!(
        edges(&dataset),
        [
            "customer:30 -buys-> product:b7 weight 1.5 at 101",
            "customer:10 -buys-> product:b7 weight 1 at 125",
            "customer:10 -buys-> product:a1 weight 2 at 130",
            "customer:10 -buys-> product:a1 weight 4 at 126",
            "product:b7 -rev_buys-> customer:30 weight 1.5 at 101",
            "product:b7 -rev_buys-> customer:10 weight 1 at 125",
            "product:a1 -rev_buys-> customer:10 weight 2 at 130",
            "product:a1 -rev_buys-> customer:10 weight 4 at 126",
            "customer:30 -in-> city:Rome weight 1",
            "customer:20 -in-> city:Rome weight 1",
            "customer:10 -in-> city:Oslo weight 1",
        ]
    );
    assert_eq!(**dataset.topology.indptr(), [0, 2, 4, 5, 8, 8, 10, 11]);
    assert_eq!(features(&dataset, 0), (vec![2.5, 1.0, 10.0, 3.0], 2));
    assert_eq!(features(&dataset, 1), (vec![41.0, 35.0, 29.0], 1));
    assert_eq!(features(&dataset, 2).1, 0);
    let never = i64::MIN;
    assert_eq!(**dataset.topology.node_times().expect("times"), [never, never, 100, 120, 90, never, never]);
    assert_eq!(*dataset.labels.clone().expect("labels"), [-1, -1, 0, 1, -1, -1, -1]);
    assert_eq!(meta(&dataset).schema().classes, Some(vec!["no".to_string(), "yes".to_string()]));
    let splits = &dataset.splits;
    assert_eq!([&*splits.train, &*splits.valid, &*splits.test], [&[2, 3][..], &[4], &[]]);
    let names = &meta(&dataset).provenance["feature_names_by_type"];
    assert_eq!(names.to_string(), r#"{"customer":["age"],"product":["price","size"]}"#);
    assert_eq!(meta(&dataset).provenance["format"], "manifest");
    assert!(notes(&dataset).contains("1 of 3 nodes of type \\\"customer\\\" have no label"), "{}", notes(&dataset));
}

#[test]
fn duplicates_weights_and_reverses_are_as_the_options_say() {
    let options = Options {
        drop_duplicates: true,
        drop_weights: true,
        symmetrise: true,
        feature_dtype: Some(morphgl_graph_store::Dtype::F16),
        name: Some("other".into()),
        ..Options::default()
    };
    let dataset = import(&shop(), &options);
    assert_eq!(dataset.name, "other");
    assert_eq!(
        edges(&dataset),
        [
            "customer:30 -buys-> product:b7 at 101",
            "customer:10 -buys-> product:b7 at 125",
            "customer:10 -buys-> product:a1 at 130",
            "product:b7 -rev_buys-> customer:30 at 101",
            "city:Rome -rev_in-> customer:30",
            "product:b7 -rev_buys-> customer:10 at 125",
            "product:a1 -rev_buys-> customer:10 at 130",
            "city:Oslo -rev_in-> customer:10",
            "city:Rome -rev_in-> customer:20",
            "customer:30 -in-> city:Rome",
            "customer:20 -in-> city:Rome",
            "customer:10 -in-> city:Oslo",
        ]
    );
    assert!(notes(&dataset).contains("2 duplicate edges were dropped"), "{}", notes(&dataset));
    assert!(matches!(dataset.features_by_type[0], Some(FeatureMatrix::F16 { dim: 2, .. })));
}

#[test]
fn pairs_are_drawn_of_one_type_and_leave_the_graph_with_their_reverses() {
    let manifest = r#"
        [nodes.a]
        count = 20
        [nodes.b]
        count = 30
        [[edges]]
        type = "to"
        file = "to.csv"
        source = "a"
        target = "b"
        time = 3
        reverse = "back"
        links = true
        [[edges]]
        type = "near"
        file = "near.csv"
        source = "b"
        target = "b"
    "#;
    let row = |i: usize| format!("{},{},{i}\n", i % 20, i % 30);
    let to: String = (0..60).map(row).collect();
    let files = [("graph.toml", manifest), ("to.csv", to.as_str()), ("near.csv", "0,1\n1,2\n")];
    let edge_split = Some(morphgl_formats::EdgeSplit { train: 0.5, valid: 0.25, test: 0.25, seed: 3 });
    let dataset = import(&files, &Options { edge_split, ..Options::default() });
    let whole = import(&files, &Options::default());
    let pairs = &dataset.edges;
    assert_eq!([pairs.valid.len(), pairs.test.len()], [30, 30], "two ends each");
    let forward = |edges: &[String], name: &str| edges.iter().filter(|edge| edge.contains(name)).count();
    let (left, all) = (edges(&dataset), edges(&whole));
    assert_eq!([forward(&all, "-to->"), forward(&all, "-back->"), forward(&all, "-near->")], [60, 60, 2]);
    assert_eq!([forward(&left, "-to->"), forward(&left, "-back->"), forward(&left, "-near->")], [30, 30, 2]);
    // What is left stands as before, with its times, and the pairs that were drawn are gone both ways.
    assert_eq!(left, all.iter().filter(|edge| left.contains(edge)).cloned().collect::<Vec<_>>());
    for pair in pairs.valid.chunks_exact(2).chain(pairs.test.chunks_exact(2)) {
        let (source, target) = (pair[0], pair[1]);
        assert!(source < 20 && target >= 20);
        let row = |v: u32| dataset.topology.neighbors(v).to_vec();
        assert!(!row(target).contains(&source) && !row(source).contains(&target), "{source} -> {target}");
    }
    let types = dataset.topology.types().expect("types");
    let to = types.edge_types().iter().position(|of| of.name == "to").expect("an edge type") as u16;
    let of_pairs = pairs.types.iter().flat_map(|types| types.as_deref().expect("types of pairs"));
    assert!(of_pairs.into_iter().all(|&of| of == to), "pairs of the marked type");

    // Without a mark, pairs are those of all types, and of the reverses.
    let unmarked = manifest.replace("links = true", "");
    let all = import(&[("graph.toml", &unmarked), files[1], files[2]], &Options { edge_split, ..Options::default() });
    let count = |types: &Option<morphgl_graph_store::Array<u16>>, name: &str| {
        let number = types_of(&all, name);
        types.as_deref().expect("types of pairs").iter().filter(|&&of| of == number).count()
    };
    for (name, expected) in [("to", [30, 15, 15]), ("back", [30, 15, 15]), ("near", [1, 1, 0])] {
        assert_eq!(all.edges.types.each_ref().map(|types| count(types, name)), expected, "{name}");
    }
}

/// Number of the edge type of a name.
fn types_of(dataset: &Typed, name: &str) -> u16 {
    let types = dataset.topology.types().expect("types");
    types.edge_types().iter().position(|of| of.name == name).expect("an edge type") as u16
}

#[test]
fn targets_are_those_of_one_type() {
    let manifest =
        SHOP.replace("label = \"churn\"", "targets = [\"signed_up\", \"age\"]").replace("time = \"signed_up\"", "");
    let manifest = manifest.replace("features = [\"age\"]", "features = [\"a*\"]");
    let mut files = shop();
    files[0].1 = &manifest;
    files[2].1 = "customer_id,age,signed_up,ab,fold\n30,41,,1,train\n10,35,120,2,train\n20,29,90,3,valid\n";
    let dataset = import(&files, &Options::default());
    let targets = dataset.targets.as_ref().expect("targets");
    assert_eq!((targets.row(3), targets.row(2)[1]), (&[120.0, 35.0][..], 41.0));
    assert!(targets.row(2)[0].is_nan() && targets.row(0).iter().chain(targets.row(6)).all(|value| value.is_nan()));
    assert_eq!(meta(&dataset).schema().targets, Some(vec!["signed_up".to_string(), "age".to_string()]));
    assert_eq!(features(&dataset, 1), (vec![1.0, 2.0, 3.0], 1), "what is predicted is no feature");
}

#[test]
fn edges_between_nodes_of_one_type_may_be_undirected() {
    let manifest = r#"
        [nodes.person]
        count = 3
        [[edges]]
        type = "knows"
        file = "knows.csv"
        source = "person"
        target = "person"
        reverse = "knows"
    "#;
    let dataset = import(&[("graph.toml", manifest), ("knows.csv", "0,2\n1,1\n")], &Options::default());
    let expected = ["person:2 -knows-> person:0", "person:1 -knows-> person:1", "person:0 -knows-> person:2"];
    assert_eq!(edges(&dataset), expected);
    assert_eq!(dataset.node_ids.as_ref().expect("ids").to_vec(), [0, 1, 2]);
}

#[test]
fn edges_of_one_type_may_be_in_several_files() {
    let manifest = r#"
        [nodes.a]
        count = 2
        [nodes.b]
        count = 2
        [[edges]]
        type = "to"
        file = "1.csv"
        source = "a"
        target = "b"
        [[edges]]
        type = "to"
        file = "2.csv"
        source = { type = "a", column = 2 }
        target = { type = "b", column = 1 }
    "#;
    let dataset = import(&[("graph.toml", manifest), ("1.csv", "1,0\n"), ("2.csv", "1,0\n")], &Options::default());
    assert_eq!(edges(&dataset), ["a:1 -to-> b:0", "a:0 -to-> b:1"]);
    assert_eq!(edge_types(&dataset), ["a-to-b"]);
}

/// Writes an array, a matrix of rows of `dim` values.
fn npy<T: morphgl_graph_store::Element>(path: PathBuf, values: &[T], dim: Option<usize>) {
    let mut out = morphgl_graph_store::NpyWriter::create(path).expect("a file");
    out.write(values).expect("written");
    out.finish(dim).expect("finished");
}

#[test]
fn arrays_give_features_labels_times_splits_and_edges() {
    let manifest = r#"
        [nodes.paper]
        features = "x.npy"
        label = { file = "y.npy" }
        time = { file = "year.csv" }
        split = { train = "train.npy", test = "test.txt" }
        [nodes.author]
        count = 2
        [[edges]]
        type = "cites"
        file = "cites.npy"
        source = "paper"
        target = "paper"
        time = { file = "t.npy" }
        [[edges]]
        type = "writes"
        file = "writes.npy"
        source = "author"
        target = "paper"
        weight = { file = "w.npy" }
    "#;
    let dir = folder(&[("graph.toml", manifest), ("year.csv", "year\n1999\n2001\n2000\n"), ("test.txt", "1\n")]);
    let path = |name: &str| dir.path().join(name);
    npy::<f32>(path("x.npy"), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Some(2));
    npy::<i32>(path("y.npy"), &[1, 0, -1], None);
    npy::<u32>(path("train.npy"), &[2, 0], None);
    // [2, 3]: sources, then targets.
    npy::<u32>(path("cites.npy"), &[0, 1, 2, 1, 0, 0], Some(3));
    npy::<i64>(path("t.npy"), &[-5, 6, 7], None);
    // [3, 2]: pairs.
    npy::<i32>(path("writes.npy"), &[0, 0, 1, 0, 1, 2], Some(2));
    npy::<f32>(path("w.npy"), &[0.5, 2.0, 1.0], None);
    let dataset = open(|target| manifest::import(&path("graph.toml"), target, &Options::default(), &Silent));
    assert_eq!(
        edges(&dataset),
        [
            "paper:1 -cites-> paper:0 weight 1 at 6",
            "paper:2 -cites-> paper:0 weight 1 at 7",
            "author:0 -writes-> paper:0 weight 0.5",
            "author:1 -writes-> paper:0 weight 2",
            "paper:0 -cites-> paper:1 weight 1 at -5",
            "author:1 -writes-> paper:2 weight 1",
        ]
    );
    assert_eq!(features(&dataset, 0), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2));
    assert_eq!(dataset.labels.as_ref().expect("labels").to_vec(), [1, 0, -1, -1, -1]);
    assert_eq!(dataset.topology.node_times().expect("times")[..3], [1999, 2001, 2000]);
    assert_eq!((dataset.splits.train.to_vec(), dataset.splits.test.to_vec()), (vec![0, 2], vec![1]));
}
