//! OGB raw directories: a real one by its counts, small ones in OGB's layouts, and broken ones.

use std::fs;
use std::path::Path;

use crate::data::{failure, npy, write, write_gz, write_npz};
use crate::le;
use half::f16;
use morphgl_formats::{DuplicateWeights, EdgeSplit, Options, RandomSplit, Silent, ogb};
use morphgl_graph_store::{Dataset, Dtype, FeatureView, OpenOptions, TargetMatrix};
use proptest::prelude::*;

fn open(source: &Path, options: &Options) -> Dataset {
    let tmp = tempfile::tempdir().unwrap();
    let path = ogb::import(source, &tmp.path().join("out"), options, &Silent).unwrap();
    Dataset::open(path, OpenOptions::default()).unwrap()
}

/// A node-property set of four nodes as OGB lays it out.
fn small(root: &Path) {
    for (name, text) in [
        ("raw/num-node-list", "4\n"),
        ("raw/num-edge-list", "5\n"),
        ("raw/edge", "0,1\n2,1\n3,1\n3,0\n2,2\n"),
        ("raw/node-feat", "0.5,-1\n1e-3,2\n3,4\n0.125,6\n"),
        ("raw/node-label", "0\n2\n1\n0\n"),
        ("split/time/train", "0\n2\n"),
        ("split/time/valid", "1\n"),
        ("split/time/test", "3\n"),
    ] {
        write_gz(&root.join(format!("{name}.csv.gz")), text);
    }
}

#[track_caller]
fn check_small(dataset: &Dataset) {
    assert_eq!(dataset.topology.indptr()[..], [0u64, 1, 4, 5, 5][..]);
    assert_eq!(dataset.topology.indices()[..], [3u32, 0, 2, 3, 2][..]);
    assert_eq!(dataset.labels.as_deref(), Some(&[0, 2, 1, 0][..]));
    assert_eq!(dataset.num_classes, 3);
    assert_eq!(
        (&dataset.splits.train[..], &dataset.splits.valid[..], &dataset.splits.test[..]),
        (&[0, 2][..], &[1][..], &[3][..])
    );
}

/// As in ogbn-proteins, a node has a label of each of several tasks, or none.
#[test]
fn labels_of_several_tasks_are_targets() {
    let expected = TargetMatrix::new(vec![0.0, 1.0, 1.0, f32::NAN, 1.0, 1.0, f32::NAN, f32::NAN], 2).unwrap();
    let tmp = tempfile::tempdir().unwrap();
    small(tmp.path());
    write_gz(&tmp.path().join("raw/node-label.csv.gz"), "0,1\n1,\n1.0,1\nnan,NaN\n");
    let dataset = open(tmp.path(), &Options::default());
    assert_eq!((dataset.targets.as_ref(), dataset.labels), (Some(&expected), None));
    let tmp = tempfile::tempdir().unwrap();
    small_binary(tmp.path(), true);
    let labels = npy("<f4", "(4, 2)", &le![f32: 0.0, 1.0, 1.0, f32::NAN, 1.0, 1.0, f32::NAN, f32::NAN]);
    write_npz(&tmp.path().join("raw/node-label.npz"), true, &[("node_label", labels)]);
    assert_eq!(open(tmp.path(), &Options::default()).targets, Some(expected));
}

/// A dataset that `morphgl info --check` refuses is not written.
#[test]
fn a_node_twice_in_a_split_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    small(tmp.path());
    write_gz(&tmp.path().join("split/time/valid.csv.gz"), "1\n3\n1\n");
    let target = tmp.path().join("out");
    let what = "node 1 is twice in the split valid; only training nodes may repeat; correct the split";
    failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, what);
}

/// The directory at the end of an archive says which arrays there are: one that is altered hides an array.
#[test]
fn an_array_that_the_archives_directory_hides_is_an_error() {
    let tmp = tempfile::tempdir().unwrap();
    let (path, target) = (tmp.path().join("raw/data.npz"), tmp.path().join("out"));
    let arrays = || {
        vec![
            ("num_nodes_list", npy("<i8", "(1,)", &2i64.to_le_bytes())),
            ("num_edges_list", npy("<i8", "(1,)", &1i64.to_le_bytes())),
            ("edge_index", npy("<i8", "(2, 1)", &le![i64: 0, 1])),
            ("node_feat", npy("<f4", "(2, 1)", &le![f32: 1.0, 2.0])),
        ]
    };
    for compressed in [false, true] {
        write_npz(&path, compressed, &arrays());
        let whole = fs::read(&path).unwrap();
        let check = |bytes: &[u8], what: &str| {
            write(&path, bytes);
            failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, what);
        };
        // Another name in the directory, which is the last place where the name stands.
        let at = whole.windows(9).rposition(|w| w == b"node_feat").unwrap();
        let mut renamed = whole.clone();
        renamed[at] = b'm';
        check(&renamed, "the archive's directory says \"mode_feat.npy\" where \"node_feat.npy\" is");
        // A directory without its last entry: number and size at the end are less.
        let end = whole.len() - 22;
        let entry = whole.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
        let mut short = [&whole[..entry], &whole[end..]].concat();
        let at = short.len() - 22;
        short[at + 8] -= 1;
        short[at + 10] -= 1;
        let size =
            (u32::from_le_bytes(short[at + 12..at + 16].try_into().unwrap()) - (end - entry) as u32).to_le_bytes();
        short[at + 12..at + 16].copy_from_slice(&size);
        check(&short, "the archive's directory leaves out what is at byte");
        // A checksum that does not hold.
        let mut altered = whole.clone();
        let data = whole.windows(9).position(|w| w == b"node_feat").unwrap();
        let at = if compressed { data + 30 } else { data + 9 + 4 + 10 + 70 };
        altered[at] ^= 0x10;
        write(&path, &altered);
        assert!(ogb::import(tmp.path(), &target, &Options::default(), &Silent).is_err());
    }
    write_npz(&path, true, &[arrays(), vec![("something", npy("<i8", "(1,)", &[0; 8]))]].concat());
    let set = ogb::import(tmp.path(), &target, &Options::default(), &Silent).unwrap();
    let notes = morphgl_graph_store::Meta::read(set).unwrap().provenance["notes"].to_string();
    assert!(notes.contains("arrays of unknown names were left out: something"), "{notes}");
}

#[test]
fn a_csv_set_with_and_without_years_is_read() {
    for years in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        small(tmp.path());
        if years {
            write_gz(&tmp.path().join("raw/node_year.csv.gz"), "2010\n2011\n2012\n2013\n");
        }
        let target = tmp.path().join("out");
        let path = ogb::import(tmp.path(), &target, &Options::default(), &Silent).unwrap();
        let dataset = Dataset::open(&path, OpenOptions::default()).unwrap();
        check_small(&dataset);
        let features = dataset.features.as_ref().unwrap().view();
        assert_eq!(features, FeatureView::F32(&[0.5, -1.0, 0.001, 2.0, 3.0, 4.0, 0.125, 6.0]));
        let json: serde_json::Value = serde_json::from_slice(&fs::read(path.join("graph.json")).unwrap()).unwrap();
        assert_eq!(json["provenance"]["node_year"], if years { "present, not stored" } else { "absent" });
        assert_eq!(json["provenance"]["split"], "time");
    }
}

/// The same set as papers100M's files: `data.npz` and `node-label.npz`, with a label missing.
fn small_binary(root: &Path, compressed: bool) {
    small(root);
    for name in ["num-node-list", "num-edge-list", "edge", "node-feat", "node-label"] {
        fs::remove_file(root.join(format!("raw/{name}.csv.gz"))).unwrap();
    }
    let half = [0.5f32, -1.0, 0.25, 2.0, 3.0, 4.0, 0.125, 6.0].map(f16::from_f32);
    let arrays = [
        ("edge_index", npy("<i8", "(2, 5)", &le![i64: 0, 2, 3, 3, 2, 1, 1, 1, 0, 2])),
        ("node_feat", npy("<f2", "(4, 2)", &half.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())),
        ("node_year", npy("<i8", "(4, 1)", &le![i64: 2010, 2011, 2012, 2013])),
        ("num_nodes_list", npy("<i8", "(1,)", &le![i64: 4])),
        ("num_edges_list", npy("<i8", "(1,)", &le![i64: 5])),
    ];
    write_npz(&root.join("raw/data.npz"), compressed, &arrays);
    let labels = npy("<f4", "(4, 1)", &le![f32: 0.0, f32::NAN, 1.0, 2.0]);
    write_npz(&root.join("raw/node-label.npz"), compressed, &[("node_label", labels)]);
}

#[test]
fn a_binary_set_is_read_deflated_or_stored() {
    for compressed in [false, true] {
        let tmp = tempfile::tempdir().unwrap();
        small_binary(tmp.path(), compressed);
        let dataset = open(tmp.path(), &Options::default());
        assert_eq!(dataset.topology.indices()[..], [3u32, 0, 2, 3, 2][..]);
        assert_eq!(dataset.labels.as_deref(), Some(&[0, -1, 1, 2][..]));
        let features = dataset.features.as_ref().unwrap();
        assert_eq!(features.dtype(), Dtype::F16);
        let mut wide = [0.0; 8];
        features.view().to_f32(&mut wide);
        assert_eq!(wide, [0.5, -1.0, 0.25, 2.0, 3.0, 4.0, 0.125, 6.0]);
        assert_eq!(dataset.splits.train[..], [0, 2]);
    }
}

/// The features of an edge.
fn feature(dataset: &Dataset, edge: usize) -> Vec<f32> {
    let matrix = dataset.edge_features[0].as_ref().expect("features of edges");
    let row = dataset.topology.edge_ids().expect("ids of edges")[edge] as usize;
    let mut values = vec![0.0; matrix.dim()];
    matrix.view().part(row * matrix.dim(), matrix.dim()).to_f32(&mut values);
    values
}

#[test]
fn edges_of_several_chunks_arrive_in_both_variants() {
    let tmp = tempfile::tempdir().unwrap();
    let (nodes, edges) = (1000u64, 700_000u64);
    let pair = |i: u64| ((i * 7919) % nodes, (i * 104_729 + 13) % nodes);
    let text: String = (0..edges).map(pair).map(|(u, v)| format!("{u},{v}\n")).collect();
    let csv = tmp.path().join("csv");
    write_gz(&csv.join("raw/edge.csv.gz"), &text);
    write_gz(&csv.join("raw/num-node-list.csv.gz"), &format!("{nodes}\n"));
    write_gz(&csv.join("raw/num-edge-list.csv.gz"), &format!("{edges}\n"));
    let of_edges: String = (0..edges).map(|i| format!("{i}\n")).collect();
    write_gz(&csv.join("raw/edge-feat.csv.gz"), &of_edges);
    let of_edges: Vec<u8> = (0..edges).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let bytes: Vec<u8> =
        (0..edges).map(|i| pair(i).0).chain((0..edges).map(|i| pair(i).1)).flat_map(|v| v.to_le_bytes()).collect();
    let binary = tmp.path().join("binary");
    let arrays = [
        ("edge_index", npy("<i8", &format!("(2, {edges})"), &bytes)),
        ("edge_feat", npy("<f4", &format!("({edges}, 1)"), &of_edges)),
        ("num_nodes_list", npy("<i8", "(1,)", &le![i64: nodes as i64])),
        ("num_edges_list", npy("<i8", "(1,)", &le![i64: edges as i64])),
    ];
    write_npz(&binary.join("raw/data.npz"), true, &arrays);
    let options = Options { name: Some("same".into()), ..Options::default() };
    let (csv, binary) = (open(&csv, &options), open(&binary, &options));
    assert_eq!(csv.topology, binary.topology);
    assert_eq!(csv.topology.num_edges(), edges);
    assert_eq!(csv.edge_features, binary.edge_features);
    for v in 0..nodes as u32 {
        for e in csv.topology.edge_range(v) {
            let value = feature(&csv, e)[0];
            assert_eq!(pair(value as u64), (csv.topology.indices()[e].into(), v.into()), "edge {e}");
        }
    }
    let (u, v) = pair(edges - 1);
    assert!(csv.topology.neighbors(v as u32).contains(&(u as u32)));
}

#[test]
fn a_real_set_of_many_graphs_becomes_one_graph() {
    let source = morphgl_testdata::path("ogb-raw/ogbg_molesol");
    let dataset = open(&source, &Options::default());
    assert_eq!((dataset.num_nodes(), dataset.topology.num_edges(), dataset.feature_dim()), (14_991, 15_428, 9));
    assert!(dataset.labels.is_none() && dataset.splits.train.is_empty());
    // The first molecule has 32 atoms, its first bond is 0 - 1; the second one's atoms begin at 32.
    assert!(dataset.topology.neighbors(1).contains(&0));
    assert!(dataset.topology.neighbors(33).contains(&32));
    let both = open(&source, &Options { symmetrise: true, ..Options::default() });
    assert_eq!(both.topology.num_edges(), 2 * 15_428);
    // The kinds of the first molecule's first bonds, in both directions.
    let bond = |u: u32, v: u32| {
        let row = both.topology.edge_range(v);
        let at = both.topology.indices()[row.clone()].iter().position(|&source| source == u).expect("a bond");
        feature(&both, row.start + at)
    };
    for (u, v) in [(0, 1), (1, 2), (32, 33)] {
        assert_eq!(bond(u, v), bond(v, u));
    }
    assert_eq!((both.edge_features.len(), bond(0, 1).len()), (1, 3));
}

#[test]
fn a_random_split_replaces_even_several() {
    let tmp = tempfile::tempdir().unwrap();
    small(tmp.path());
    write_gz(&tmp.path().join("split/other/train.csv.gz"), "0\n");
    let target = tmp.path().join("out");
    let result = ogb::import(tmp.path(), &target, &Options::default(), &Silent);
    failure(result, &target, "several splits: other, time; leave one of them");
    let split = Some(RandomSplit { train: 0.5, valid: 0.25, test: 0.25, seed: 3 });
    assert_eq!(open(tmp.path(), &Options { split, ..Options::default() }).splits.train.len(), 2);
}

#[test]
fn bad_tables_name_file_and_line() {
    let tmp = tempfile::tempdir().unwrap();
    for (name, text, what) in [
        (
            "raw/edge",
            "0,1\n2,1\n3,4\n3,0\n2,2\n",
            "edge.csv.gz, line 3: the edge 3,4 names a node that does not exist, there are 4",
        ),
        ("raw/edge", "0,1\n2,1,7\n3,1\n3,0\n2,2\n", "edge.csv.gz, line 2: 3 columns, expected 2"),
        ("raw/edge", "0,1\n2,1\n3,1\n3,0\n", "edge.csv.gz, line 5: 4 lines for 5 edges"),
        ("raw/edge", "0,1\n2,1\n3,1\n3,0\n2,2\n1,1\n", "edge.csv.gz, line 6: more edges than the 5 promised"),
        ("raw/edge", "0,1\n2,x\n3,1\n3,0\n2,2\n", "edge.csv.gz, line 2: column 2: \"x\" is not a whole number"),
        ("raw/node-feat", "1,2\n1,nan\n3,4\n5,6\n", "node-feat.csv.gz, line 2: column 2: the feature is nan"),
        ("raw/node-feat", "1,2\n1\n3,4\n5,6\n", "node-feat.csv.gz, line 2: 1 columns, expected 2"),
        ("raw/node-feat", "1,2\n1,2\n3,4\n", "node-feat.csv.gz, line 4: 3 lines for 4 nodes"),
        ("raw/node-feat", "1,2\n1,2\n3,4\n5,6\n7,8\n", "node-feat.csv.gz, line 5: 5 lines for 4 nodes"),
        ("raw/node-feat", "", "node-feat.csv.gz, line 1: 0 lines for 4 nodes"),
        (
            "raw/node-label",
            "0\n1\n-3\n0\n",
            "node-label.csv.gz, line 3: column 1: the label \"-3\" is not a class number",
        ),
        ("raw/node-label", "0\n1\n9\n0\n", "node-label.csv.gz, line 3: the label 9 is out of range for 4 nodes"),
        ("raw/node-label", "0\n1\n", "node-label.csv.gz: 2 labels for 4 nodes"),
        ("raw/node-label", "0,1\n1,0\n1\n0,0\n", "node-label.csv.gz, line 3: 1 columns, expected 2"),
        ("raw/node-label", "0,1\n1,inf\n1,1\n0,0\n", "node-label.csv.gz, line 2: column 2: the target is inf"),
        ("raw/node-label", "0,1\n1,1\n0,0\n", "node-label.csv.gz: 3 labels for 4 nodes"),
        ("raw/num-node-list", "4\n4\n", "num-node-list.csv.gz: 2 node counts and 1 edge counts"),
        ("raw/num-node-list", "99999999999\n", "num-node-list.csv.gz: more than the"),
        ("split/time/test", "3\n4\n", "test.csv.gz, line 2: column 1: node 4 does not exist, there are 4"),
        ("split/time/test", "one\n", "test.csv.gz, line 1: column 1: \"one\" is not a whole number"),
    ] {
        small(tmp.path());
        write_gz(&tmp.path().join(format!("{name}.csv.gz")), text);
        let target = tmp.path().join("out");
        failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, what);
    }
}

/// Faults deep in a table that is parsed by several threads, and one that comes after them.
#[test]
fn of_many_bad_edges_the_first_is_named() {
    let tmp = tempfile::tempdir().unwrap();
    let target = tmp.path().join("out");
    for (bad, what) in [
        ("1,1000", "the edge 1,1000 names a node that does not exist, there are 1000"),
        ("1,2,3", "3 columns, expected 2"),
        ("-1,2", "column 1: \"-1\" is not a whole number of at least 0"),
    ] {
        let line = |i: u64| if i == 400_001 || i == 650_000 { format!("{bad}\n") } else { format!("{},7\n", i % 1000) };
        let text: String = (1..=700_000).map(line).collect();
        write_gz(&tmp.path().join("raw/edge.csv.gz"), &text);
        write_gz(&tmp.path().join("raw/num-node-list.csv.gz"), "1000\n");
        write_gz(&tmp.path().join("raw/num-edge-list.csv.gz"), "700000\n");
        let result = ogb::import(tmp.path(), &target, &Options::default(), &Silent);
        failure(result, &target, &format!("edge.csv.gz, line 400001: {what}"));
    }
}

#[test]
fn missing_cut_and_damaged_files_are_named() {
    let tmp = tempfile::tempdir().unwrap();
    let target = tmp.path().join("out");
    let check = |what: &str| failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, what);
    check(
        "raw: there is no such directory; name the directory that holds OGB's raw/ and split/; of the package ogb, NodePropPredDataset(\"ogbn-arxiv\", root=\".\") downloads it as ogbn_arxiv",
    );
    for name in ["raw/edge", "raw/num-node-list", "raw/num-edge-list", "split/time/valid"] {
        small(tmp.path());
        fs::remove_file(tmp.path().join(format!("{name}.csv.gz"))).unwrap();
        check(&format!("{name}.csv.gz: there is no such file"));
    }
    small(tmp.path());
    let edge = tmp.path().join("raw/edge.csv.gz");
    let bytes = fs::read(&edge).unwrap();
    write(&edge, &bytes[..bytes.len() - 6]);
    check("edge.csv.gz, line 6: the gzip data ends early");
    write(&edge, "0,1\n2,1\n".repeat(9).as_bytes());
    check("edge.csv.gz, line 1: the gzip data is damaged");
}

#[test]
fn bad_binary_sets_name_the_array() {
    let tmp = tempfile::tempdir().unwrap();
    let target = tmp.path().join("out");
    let counts =
        || [("num_nodes_list", npy("<i8", "(1,)", &le![i64: 2])), ("num_edges_list", npy("<i8", "(1,)", &le![i64: 1]))];
    for (array, what) in [
        (
            ("edge_index", npy("<i8", "(2, 1)", &le![i64: 0, 5])),
            "element 0: the edge 0,5 names a node that does not exist",
        ),
        (("edge_index", npy("<i8", "(2, 1)", &le![i64: 0, -1])), "edge 0 is 0,-1"),
        (("edge_index", npy("<i8", "(2, 3)", &[0; 48])), "edges of shape [2, 3], expected [2, 1]"),
        (("edge_index", npy("<f4", "(2, 1)", &[0; 8])), "elements of type float32, expected integers"),
        (("edge_index", npy("<i8", "(2, 1)", &[0; 9])), "edge_index.npy, byte"),
        (("other", npy("<i8", "(2, 1)", &[0; 16])), "the archive has no array \"edge_index\""),
    ] {
        let mut arrays = counts().to_vec();
        arrays.push(array);
        write_npz(&tmp.path().join("raw/data.npz"), true, &arrays);
        failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, what);
    }
    small_binary(tmp.path(), true);
    write_npz(&tmp.path().join("raw/node-label.npz"), true, &[("node_label", npy("<f4", "(4, 2, 1)", &[0; 32]))]);
    failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, "targets of shape [4, 2, 1]");
    write_npz(&tmp.path().join("raw/node-label.npz"), true, &[("node_label", npy("<f4", "(3, 1)", &[0; 12]))]);
    failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, "3 labels for 4 nodes");
    let labels = npy("<f4", "(4, 1)", &le![f32: 0.0, 1.0, 77.0, 0.0]);
    write_npz(&tmp.path().join("raw/node-label.npz"), true, &[("node_label", labels)]);
    failure(
        ogb::import(tmp.path(), &target, &Options::default(), &Silent),
        &target,
        "element 2: the label 77 is out of range",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However a file is cut or altered: an error or a dataset that opens, and no panic.
    #[test]
    fn corrupt_files_never_panic(
        name in proptest::sample::select(vec!["raw/edge", "raw/node-feat", "raw/num-node-list", "raw/data", "split/time/train"]),
        cut in proptest::option::weighted(0.3, 0.0..1.0f64),
        changes in proptest::collection::vec((0.0..1.0f64, any::<u8>()), 1..5),
    ) {
        let tmp = tempfile::tempdir().unwrap();
        let path = if name == "raw/data" {
            small_binary(tmp.path(), false);
            tmp.path().join("raw/data.npz")
        } else {
            small(tmp.path());
            tmp.path().join(format!("{name}.csv.gz"))
        };
        write(&path, &crate::data::corrupted(fs::read(&path).unwrap(), cut, &changes, &[]));
        let target = tmp.path().join("out");
        match ogb::import(tmp.path(), &target, &Options::default(), &Silent) {
            Ok(path) => drop(Dataset::open(path, OpenOptions::default()).unwrap()),
            Err(error) => prop_assert!(!error.to_string().contains('\n') && !target.exists(), "{error}"),
        }
    }
}

fn links(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ogbl").join(name)
}

/// A copy of a set of links, to be damaged.
fn copy_of_links(name: &str) -> tempfile::TempDir {
    let tmp = tempfile::tempdir().unwrap();
    for folder in ["raw", "split/time"] {
        fs::create_dir_all(tmp.path().join(folder)).unwrap();
        for file in fs::read_dir(links(name).join(folder)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), tmp.path().join(folder).join(file.file_name())).unwrap();
        }
    }
    tmp
}

fn notes(dataset: &Dataset) -> String {
    dataset.path.meta().unwrap().provenance.get("notes").map(ToString::to_string).unwrap_or_default()
}

/// Pairs with one list of negatives for all, and weights of edges, of which some are listed twice.
#[test]
fn links_with_one_list_of_negatives() {
    let dataset = open(&links("collab"), &Options::default());
    let topology = &dataset.topology;
    assert_eq!(topology.indptr()[..], [0u64, 0, 2, 3, 4, 5, 6][..]);
    assert_eq!(topology.indices()[..], [0u32, 0, 1, 2, 3, 4][..]);
    assert_eq!(topology.weights().unwrap()[..], [2.0f32, 3.0, 1.0, 1.0, 1.0, 5.0][..]);
    assert_eq!(dataset.feature_dim(), 2);
    let edges = &dataset.edges;
    assert_eq!(*dataset.train_pairs(), [[0, 1], [1, 2], [2, 3], [0, 1], [3, 4], [4, 5]]);
    assert_eq!((edges.valid_pairs(), edges.test_pairs()), (&[[0, 2], [5, 3]][..], &[[1, 3]][..]));
    assert_eq!(edges.valid_negative_pairs(), [[5, 0], [4, 0], [1, 5]]);
    assert_eq!(edges.test_negative_pairs(), [[2, 5], [5, 1]]);
    assert!(notes(&dataset).contains("arrays of the split were left out: weight, year"), "{}", notes(&dataset));
    let provenance = &dataset.path.meta().unwrap().provenance;
    assert_eq!(provenance["edge_year"], "present, not stored");
    // As OGB's own loader reads it: both directions; and edges of several years are one, of their summed weight.
    let merged = Options { symmetrise: true, duplicate_weights: DuplicateWeights::Add, ..Options::default() };
    let dataset = open(&links("collab"), &merged);
    assert_eq!((dataset.topology.num_edges(), dataset.topology.weights().unwrap()[0]), (10, 5.0));
    assert!(open(&links("collab"), &Options { drop_weights: true, ..Options::default() }).topology.weights().is_none());
    let split = EdgeSplit { train: 0.6, valid: 0.2, test: 0.2, seed: 1 };
    let drawn = open(&links("collab"), &Options { edge_split: Some(split), ..Options::default() });
    assert!(drawn.edges.valid_negatives.is_none() && drawn.edges.train.is_none());
}

/// Pairs with negatives of each, in the form before torch 1.6.
#[test]
fn links_with_negatives_of_each_pair() {
    let dataset = open(&links("citation2"), &Options::default());
    let edges = &dataset.edges;
    assert_eq!(dataset.topology.num_edges(), 4);
    assert_eq!(*dataset.train_pairs(), [[0, 1], [2, 1], [3, 0], [4, 3]]);
    assert_eq!(edges.valid_pairs(), [[2, 0], [4, 1]]);
    assert_eq!(edges.valid_negative_pairs(), [[2, 3], [2, 4], [2, 2], [4, 0], [4, 2], [4, 4]]);
    let count = |pairs, negatives| morphgl_graph_store::negatives_per_pair(pairs, negatives);
    assert_eq!(count(edges.valid_pairs(), edges.valid_negative_pairs()), Some(3));
    assert_eq!(count(edges.test_pairs(), edges.test_negative_pairs()), Some(3));
}

#[test]
fn impossible_links_name_the_file_and_the_cure() {
    const OLD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.";
    let refuse = |part: &str, bytes: Option<&[u8]>, words: &str| {
        let tmp = copy_of_links("citation2");
        let path = tmp.path().join(format!("split/time/{part}.pt"));
        match bytes {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let target = tmp.path().join("out");
        failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, words);
    };
    let saved = |pickle: &[u8]| [OLD, pickle].concat();
    refuse(
        "valid",
        None,
        "valid.pt: there is no such file; name the directory that holds OGB's raw/ and split/, complete",
    );
    refuse("valid", Some(b"0,1\n"), "not a file of torch.save; download it again");
    let whole = fs::read(links("citation2").join("split/time/valid.pt")).unwrap();
    refuse("valid", Some(&whole[..whole.len() / 2]), "the file was cut short: download it again");
    let whole = fs::read(links("collab").join("split/time/valid.pt")).unwrap();
    refuse("valid", Some(&whole[..whole.len() / 2]), "not a readable archive");
    let tensor = saved(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n.");
    refuse("test", Some(&tensor), "tensors are not read: save numpy arrays");
    refuse("test", Some(&saved(b"\x80\x02K\x01.")), "it is not a dict of arrays");
    let triples = saved(b"\x80\x02}(X\x04\0\0\0headK\x01X\x08\0\0\0relationK\x01u.");
    refuse("train", Some(&triples), "triples of a knowledge graph, whose edges have types, are not read");
    refuse("test", Some(&saved(b"\x80\x02}.")), "it has neither edge nor source_node and target_node");
    refuse("test", Some(&saved(b"\x80\x02}X\x04\0\0\0edgeK\x01s.")), "edge is not a numpy array");
    let swapped = fs::read(links("citation2").join("split/time/train.pt")).unwrap();
    let other = swapped.windows(8).position(|bytes| bytes == 4u64.to_le_bytes()).expect("node 4");
    let absent: Vec<u8> = swapped.iter().enumerate().map(|(at, &b)| if at == other { 9 } else { b }).collect();
    refuse("train", Some(&absent), "node 9 does not exist, there are 5 nodes");
    let tmp = copy_of_links("collab");
    write_gz(&tmp.path().join("raw/edge_weight.csv.gz"), "1\n2\n");
    let target = tmp.path().join("out");
    failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, "2 weights for 6 edges");
    write_gz(&tmp.path().join("raw/edge_weight.csv.gz"), "1\n2\n1\n-1\n1\n1\n");
    let words = "the weight is -1, not a finite number of at least 0";
    failure(ogb::import(tmp.path(), &target, &Options::default(), &Silent), &target, words);
}
