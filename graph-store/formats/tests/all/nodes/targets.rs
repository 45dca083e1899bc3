//! Real-valued targets: of arrays, tables, and a graph's own arrays.

use std::path::Path;

use morphgl_formats::edge_list::Ids;
use morphgl_formats::{Column, NodeFiles, Options, RandomSplit, Silent, export_numpy, numpy};
use morphgl_graph_store::{Dataset, Meta, TargetMatrix};
use proptest::prelude::*;

use super::columns::selected;
use super::{Case, notes};

fn targets(path: &Path) -> TargetMatrix {
    Dataset::open(path, Default::default()).expect("a dataset").targets.expect("targets")
}

fn matrix(values: &[f32], dim: usize) -> TargetMatrix {
    TargetMatrix::new(values.to_vec(), dim).expect("targets")
}

fn names(path: &Path) -> Option<Vec<String>> {
    Meta::read(path).expect("a dataset").schema().targets
}

const NAN: f32 = f32::NAN;

#[test]
fn a_table_gives_nodes_their_targets_by_their_ids() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.targets = case.file("t.csv", "mass,node,charge\n0.5,3,1\n,0,-2e3\nNaN,1,\n");
    let path = case.import("0 1\n1 2\n2 3\n").unwrap();
    assert_eq!(targets(&path), matrix(&[NAN, -2000.0, NAN, NAN, NAN, NAN, 0.5, 1.0], 2));
    assert_eq!(names(&path), Some(vec!["mass".to_string(), "charge".to_string()]));
    let said = notes(&path);
    assert!(said.contains("t.csv: ids \\\"node\\\", mass, charge: 2 targets"), "{said}");
    assert!(said.contains("2 of 4 nodes have no known target"), "{said}");
    assert!(said.contains("1 target of nodes with others is unknown"), "{said}");
    // Selected columns, in the order of the option.
    case.options.nodes.columns.targets = selected("charge,1");
    let path = case.import("0 1\n1 2\n2 3\n").unwrap();
    assert_eq!(targets(&path), matrix(&[-2000.0, NAN, NAN, NAN, NAN, NAN, 1.0, 0.5], 2));
    // Names of nodes, and flags as text.
    let mut case = Case::new(Ids::Strings);
    case.options.nodes.targets = case.file("t.csv", "name,rare,big\nbob,True,false\nann,1,0\n");
    let path = case.import("src,dst\nann,bob\n").unwrap();
    assert_eq!(targets(&path), matrix(&[1.0, 0.0, 1.0, 0.0], 2));
}

#[test]
fn targets_stand_beside_labels_in_a_table_of_nodes() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.table = case.file("n.csv", "id,target,label,f0\n1,0.25,0,9\n0,-4,1,8\n");
    let error = case.import("0 1\n").unwrap_err();
    assert!(error.contains("not all are known"), "{error}");
    case.options.nodes.columns.targets = selected("target");
    let path = case.import("0 1\n").unwrap();
    assert_eq!((targets(&path), names(&path)), (matrix(&[-4.0, 0.25], 1), Some(vec!["target".to_string()])));
    let dataset = Dataset::open(&path, Default::default()).unwrap();
    assert_eq!((dataset.labels.as_deref(), dataset.feature_dim()), (Some(&[1, 0][..]), 1));
    // The columns are those of the file of targets, where there is one.
    case.options.nodes.columns.targets = None;
    case.options.nodes.table = case.file("n.csv", "id,label,f0\n1,0,9\n0,1,8\n");
    case.options.nodes.targets = case.array("t.npy", &[1i64, 7, 2, 8], Some(2));
    assert_eq!(targets(&case.import("0 1\n").unwrap()), matrix(&[1.0, 7.0, 2.0, 8.0], 2));
    case.options.nodes.columns.targets = selected("2");
    assert_eq!(targets(&case.import("0 1\n").unwrap()), matrix(&[7.0, 8.0], 1));
    case.options.nodes.columns.targets = selected("1-2");
    assert_eq!(targets(&case.import("0 1\n").unwrap()), matrix(&[1.0, 7.0, 2.0, 8.0], 2));
}

#[test]
fn arrays_of_every_type_are_targets() {
    let import = |array: &dyn Fn(&Case) -> Option<std::path::PathBuf>| {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.targets = array(&case);
        let path = case.import("0 1\n1 2\n").unwrap();
        assert_eq!(names(&path), None);
        targets(&path)
    };
    let expected = matrix(&[0.0, 1.0, 5.0], 1);
    assert_eq!(import(&|case| case.array("t.npy", &[0.0f32, 1.0, 5.0], None)), expected);
    assert_eq!(import(&|case| case.array("t.npy", &[0.0f64, 1.0, 5.0], Some(1))), expected);
    assert_eq!(import(&|case| case.array("t.npy", &[0i64, 1, 5], None)), expected);
    assert_eq!(import(&|case| case.array("t.npy", &[0u8, 1, 5], None)), expected);
    assert_eq!(import(&|case| case.array("t.npy", &[NAN, 1.0, 5.0], None)), matrix(&[NAN, 1.0, 5.0], 1));
    // As pandas' `to_numpy` gives them: column after column; and booleans.
    let with = |header: &str, bytes: &[u8]| {
        let header = format!("{header:<117}\n");
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(bytes);
        file
    };
    let file = with("{'descr': '|b1', 'fortran_order': True, 'shape': (3, 2), }", &[1, 0, 1, 0, 0, 1]);
    let fortran = |case: &Case| Some(super::write(&case.dir, "t.npy", &file));
    assert_eq!(import(&fortran), matrix(&[1.0, 0.0, 0.0, 0.0, 1.0, 1.0], 2));
}

#[test]
fn what_is_no_target_is_refused() {
    for (table, columns, expected) in [
        (
            "id,t\n0,1\n1,x\n",
            None,
            "t.csv, line 3: the target \"x\" is no number; correct it, or say by --target-columns",
        ),
        ("id,t\n0,1\n1,inf\n", None, "t.csv, line 3: the target inf is not finite as f32; correct it; NaN or nothing"),
        ("id,t\n0,1e39\n1,1\n", None, "t.csv, line 2: the target inf is not finite as f32"),
        (
            "id,t\n0,\"1,5\"\n1,1\n",
            None,
            "t.csv, line 2: the target \"1,5\" is no number; write numbers with decimal points",
        ),
        ("id,t\n0,1\n9,1\n0,2\n", None, "t.csv, element 2: the node 0 stands there twice"),
        ("id,t\n0,1\n", Some("u"), "t.csv: there is no column \"u\""),
        ("id,t\n0,1\n", Some("id"), "is read as ids, labels, a split or targets; leave it out of --target-columns"),
        ("id\n0\n1\n", None, "t.csv: no column of targets: there are id; name them by --target-columns"),
        (
            "0,5\n2,5\n1,6\n",
            None,
            "the first column has the id of every node once, and would be a target; read it as ids by --id-column 1, or as a target by --target-columns 1-2",
        ),
    ] {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.targets = case.file("t.csv", table);
        case.options.nodes.columns.targets = columns.and_then(selected);
        let edges = if table.contains('9') { "0 1\n1 9\n" } else { "0 1\n1 2\n" };
        let error = case.import(edges).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{table:?}: {error}");
        assert!(!case.dir.path().join("dataset").exists(), "nothing is left");
    }
    let mut case = Case::new(Ids::Keep);
    let mut refused = |array, columns: Option<Vec<Column>>, expected: &str| {
        case.options.nodes.targets = array;
        case.options.nodes.columns.targets = columns;
        let error = case.import("0 1\n1 2\n").unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let case = Case::new(Ids::Keep);
    refused(case.array("t.npy", &[1.0f32, 2.0], None), None, "t.npy: 2 rows, but the graph has 3 nodes");
    let infinite = [1.0, 2.0, 3.0, f32::NEG_INFINITY, 5.0, 6.0];
    refused(
        case.array("t.npy", &infinite, Some(2)),
        None,
        "t.npy, element 3: the target of row 1, column 1 is -inf, not finite as f32",
    );
    refused(case.array("t.npy", &[1e300f64, 2.0, 3.0], None), None, "row 0, column 0 is inf");
    refused(case.array("t.npy", &[1.0f32, 2.0, 3.0], None), selected("2"), "there is no column 2: there are 1");
}

/// Labels that are quantities, or several per node, are refused with the option that reads them.
#[test]
fn labels_that_are_targets_are_refused_by_name() {
    let mut case = Case::new(Ids::Keep);
    let mut refused = |labels: Option<std::path::PathBuf>, expected: &str| {
        case.options.nodes = NodeFiles { labels, ..NodeFiles::default() };
        let error = case.import("0 1\n").unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let case = Case::new(Ids::Keep);
    refused(case.array("y.npy", &[0.5f32, 2.0], None), "give quantities as targets (--targets FILE, or");
    refused(case.array("y.npy", &[1i64, 0, 0, 1], Some(2)), "several values or labels per node as targets (--targets");
    refused(case.file("y.csv", "id,y\n0,0.5\n1,2\n"), "give quantities as targets, by --targets FILE");
}

#[test]
fn splits_are_drawn_among_nodes_with_a_label_or_a_target() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.targets = case.file("t.csv", "id,t\n0,1\n2,3\n3,\n");
    case.options.split = Some(RandomSplit { train: 1.0, valid: 0.0, test: 0.0, seed: 0 });
    let edges = "0 1\n1 2\n2 3\n3 4\n";
    let split = |case: &Case| {
        let path = case.import(edges).unwrap();
        let mut train = Dataset::open(&path, Default::default()).unwrap().splits.train.to_vec();
        train.sort_unstable();
        (train, path)
    };
    assert_eq!(split(&case).0, [0, 2]);
    case.options.nodes.labels = case.file("y.csv", "id,y\n4,1\n0,0\n");
    let (train, path) = split(&case);
    assert_eq!(train, [0, 2, 4]);
    assert!(notes(&path).contains("1 of 3 training nodes have no known target"), "{}", notes(&path));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// A dataset is its own export: targets with unknown values, bit by bit.
    #[test]
    fn exported_targets_are_imported_again(rows in 1usize..20, dim in 1usize..5, seed: u32) {
        let value = |i: u32| match i.wrapping_mul(0x9E37_79B1) ^ seed {
            hash if hash % 3 == 0 => NAN,
            hash => f32::from_bits(hash & 0x7E7F_FFFF),
        };
        let values: Vec<f32> = (0..(rows * dim) as u32).map(value).collect();
        let mut case = Case::new(Ids::Keep);
        case.format.num_nodes = Some(rows as u64);
        case.options.nodes.targets = case.array("t.npy", &values, Some(dim));
        let path = case.import("0 0\n").unwrap();
        prop_assert_eq!(targets(&path), matrix(&values, dim));
        let dataset = Dataset::open(&path, Default::default()).unwrap();
        let exported = export_numpy(&dataset, &case.dir.path().join("arrays")).unwrap();
        let again = case.dir.path().join("again");
        numpy::import(&exported, &again, Default::default(), &Options::default(), &Silent).unwrap();
        prop_assert_eq!(targets(&again), matrix(&values, dim));
    }
}
