//! Edges with a class or values to predict: columns of an edge list, drawn or of files of their own.

use std::collections::HashMap;

use crate::support::{edges, open, write};
use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{EdgeSplit, LinkFiles, Options, Silent, export_numpy};
use morphgl_graph_store::{Dataset, PairTargets};
use proptest::prelude::*;
use tempfile::TempDir;

fn name(name: &str) -> Column {
    Column::Name(name.into())
}

/// An edge list whose columns of labels and of values have these names.
fn format(label: &str, targets: &[&str]) -> EdgeListOptions {
    let label = (!label.is_empty()).then(|| name(label));
    let targets = targets.iter().map(|target| name(target)).collect();
    EdgeListOptions { columns: Columns { label, targets, ..Columns::default() }, ..Default::default() }
}

fn import(dir: &TempDir, text: &str, format: &EdgeListOptions, options: &Options) -> Dataset {
    let source = write(dir, "edges.csv", text.as_bytes());
    open(|target| edge_list::import(&source, target, format, options, &Silent))
}

fn error(dir: &TempDir, text: &str, format: &EdgeListOptions) -> String {
    let source = write(dir, "edges.csv", text.as_bytes());
    let options = Options::default();
    let error = edge_list::import(&source, &dir.path().join("out"), format, &options, &Silent).expect_err("refused");
    error.to_string().replace(&format!("{}/", dir.path().display()), "")
}

fn labels(targets: &PairTargets) -> &[i32] {
    targets.labels.as_deref().expect("labels")
}

fn notes(dataset: &Dataset) -> String {
    dataset.path.meta().unwrap().provenance.get("notes").map(ToString::to_string).unwrap_or_default()
}

#[test]
fn classes_are_numbered_and_edges_keep_their_direction() {
    let dir = tempfile::tempdir().unwrap();
    let text = "src,dst,kind\na,b,friend\nb,a,foe\nc,a,friend\nc,c,\n";
    let format = EdgeListOptions { ids: Ids::Strings, ..format("kind", &[]) };
    let dataset = import(&dir, text, &format, &Options { symmetrise: true, ..Options::default() });
    // What messages pass along has both directions, and every edge once.
    assert_eq!(dataset.topology.num_edges(), 5);
    assert_eq!(*dataset.train_pairs(), [[0, 1], [1, 0], [2, 0]], "an edge without a class is none to predict");
    assert_eq!(labels(&dataset.edges.targets[0]), [1, 0, 1]);
    let schema = dataset.path.meta().unwrap().edge_schema(dataset.edges.num_classes());
    assert_eq!(schema.classes, Some(vec!["foe".to_string(), "friend".to_string()]));
    assert_eq!(dataset.path.meta().unwrap().schema().classes, None, "nodes have no classes");
    assert!(notes(&dataset).contains("1 edge without a label left out"), "{}", notes(&dataset));
}

#[test]
fn values_may_be_several_and_the_third_column_is_no_weight() {
    let dir = tempfile::tempdir().unwrap();
    let text = "src,dst,good,late\n0,1,1,0.5\n1,2,,-2\n2,0,0,\n";
    for text in [text.to_string(), text.replace(',', ";"), text.replace(',', "\t")] {
        let dataset = import(&dir, &text, &format("", &["good", "late"]), &Options::default());
        let values = dataset.edges.targets[0].values.as_ref().expect("values");
        assert_eq!((values.dim(), values.row(0)), (2, &[1.0, 0.5][..]));
        assert!(values.row(1)[0].is_nan() && values.row(2)[1].is_nan());
        assert_eq!(dataset.edges.target_dim(), 2);
        let schema = dataset.path.meta().unwrap().edge_schema(0);
        assert_eq!(schema.targets, Some(vec!["good".to_string(), "late".to_string()]));
    }
    // A file without a header, whose third column would be read as weights.
    let columns = Columns { label: Some(Column::Number(3)), ..Columns::default() };
    let unnamed = EdgeListOptions { columns, ..Default::default() };
    for ids in [Ids::Keep, Ids::Compact, Ids::Strings] {
        let dataset = import(&dir, "0 1 5\n1 2 3\n", &EdgeListOptions { ids, ..unnamed.clone() }, &Options::default());
        assert!(dataset.topology.weights().is_none(), "{ids:?}");
        assert_eq!((labels(&dataset.edges.targets[0]), dataset.edges.num_classes()), (&[5, 3][..], 6), "{ids:?}");
    }
    // It is both where options say so.
    let both = Columns { weight: Some(Column::Number(3)), ..unnamed.columns.clone() };
    let dataset = import(&dir, "0 1 5\n1 2 3\n", &EdgeListOptions { columns: both, ..unnamed }, &Options::default());
    assert_eq!(edges(&dataset), [(0, 1, 5.0), (1, 2, 3.0)]);
    assert_eq!(labels(&dataset.edges.targets[0]), [5, 3]);
}

#[test]
fn files_of_pairs_have_the_columns_of_the_edges() {
    let dir = tempfile::tempdir().unwrap();
    let links = LinkFiles {
        valid: Some(write(&dir, "valid.csv", b"kind,dst,src\nc,0,1\n")),
        test: Some(write(&dir, "test.csv", b"src,dst,kind\n1,1,b\n0,2,a\n")),
        test_negatives: Some(write(&dir, "negatives.csv", b"src,dst\n0,0\n")),
        ..LinkFiles::default()
    };
    let options = Options { links, reverse: true, ..Options::default() };
    let dataset = import(&dir, "src,dst,kind\n0,1,b\n1,2,a\n", &format("kind", &[]), &options);
    // Edges of the graph are reversed, and those to train on are these.
    assert_eq!(edges(&dataset).iter().map(|e| (e.0, e.1)).collect::<Vec<_>>(), [(1, 0), (2, 1)]);
    assert_eq!(*dataset.train_pairs(), [[1, 0], [2, 1]]);
    assert_eq!((dataset.edges.valid_pairs(), dataset.edges.test_pairs()), (&[[1, 0]][..], &[[1, 1], [0, 2]][..]));
    let of_splits: Vec<&[i32]> = dataset.edges.targets.iter().map(labels).collect();
    assert_eq!(of_splits, [&[1, 0][..], &[2], &[1, 0]], "classes are numbered over all files");
    assert_eq!(dataset.edges.test_negative_pairs(), [[0, 0]]);
    assert!(!notes(&dataset).contains("say little"), "{}", notes(&dataset));
}

#[test]
fn exported_labels_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let links =
        LinkFiles { test: Some(write(&dir, "test.csv", b"src,dst,kind,late\n1,1,b,7\n")), ..LinkFiles::default() };
    let text = "src,dst,kind,late\n0,1,b,\n1,2,a,0.25\n";
    let dataset = import(&dir, text, &format("kind", &["late"]), &Options { links, ..Options::default() });
    let exported = export_numpy(&dataset, &dir.path().join("arrays")).unwrap();
    let options = Options::default();
    let back = open(|target| numpy::import(&exported, target, NumpyOptions::default(), &options, &Silent));
    assert_eq!((&back.edges, &back.topology), (&dataset.edges, &dataset.topology));
    let split = EdgeSplit { train: 0.5, valid: 0.5, test: 0.0, seed: 0 };
    let options = Options { edge_split: Some(split), ..Options::default() };
    let drawn = open(|target| numpy::import(&exported, target, NumpyOptions::default(), &options, &Silent));
    assert!(drawn.edges.targets.iter().all(PairTargets::is_empty), "drawn pairs are others");
}

#[test]
fn refusals_name_the_file_and_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let absent = error(&dir, "src,dst\n0,1\n", &format("kind", &[]));
    assert!(absent.starts_with("edges.csv, line 1: there is no column \"kind\""), "{absent}");
    let ids = error(&dir, "src,dst\n0,1\n", &format("dst", &[]));
    assert!(ids.contains("--edge-label-column"), "{ids}");
    let twice = error(&dir, "src,dst,late\n0,1,3\n", &format("late", &["late"]));
    assert!(twice.contains("one column is to be predicted twice"), "{twice}");
    let text = error(&dir, "src,dst,late\n0,1,soon\n", &format("", &["late"]));
    assert!(
        text.contains("line 2: the target \"soon\" is no number") && text.contains("--edge-target-columns"),
        "{text}"
    );
    let half = error(&dir, "src,dst,kind\n0,1,2.5\n", &format("kind", &[]));
    assert!(half.contains("give quantities as targets, by --edge-target-columns"), "{half}");
    let other = error(&dir, "src,dst,kind,other\n0,1,2,3\n", &format("kind", &[]));
    assert!(other.contains("of which not all are known"), "{other}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every labelled edge is in one split, with its own label; edges between two nodes are in the same; those to validate and test on
    /// are not in the graph.
    #[test]
    fn drawn_edges_keep_their_labels(
        list in prop::collection::vec((0u32..15, 0u32..15, 0i32..4), 1..150), symmetrise: bool, reverse: bool, seed: u64
    ) {
        let dir = tempfile::tempdir().unwrap();
        let text: String = list.iter().map(|(u, v, label)| format!("{u},{v},{label}\n")).collect();
        let split = EdgeSplit { train: 0.6, valid: 0.2, test: 0.2, seed };
        let options = Options { edge_split: Some(split), symmetrise, reverse, ..Options::default() };
        let format = EdgeListOptions { num_nodes: Some(15), ..format("kind", &[]) };
        let dataset = import(&dir, &format!("src,dst,kind\n{text}"), &format, &options);
        let splits = [&*dataset.train_pairs(), dataset.edges.valid_pairs(), dataset.edges.test_pairs()];
        let (mut found, mut split_of) = (Vec::new(), HashMap::new());
        for (i, (pairs, targets)) in splits.into_iter().zip(&dataset.edges.targets).enumerate() {
            let of_pairs = targets.labels.as_deref().unwrap_or_default();
            prop_assert_eq!(pairs.len(), of_pairs.len());
            for (&[u, v], &label) in pairs.iter().zip(of_pairs) {
                found.push(if reverse { (v, u, label) } else { (u, v, label) });
                let key = if symmetrise { (u.min(v), u.max(v)) } else { (u, v) };
                prop_assert_eq!(*split_of.entry(key).or_insert(i), i, "the split of {} and {}", u, v);
                let has_edge = dataset.topology.neighbors(v).contains(&u);
                prop_assert_eq!(has_edge, i == 0, "edge {} to {} of split {}", u, v, i);
            }
        }
        let mut expected = list;
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected);
        prop_assert!(dataset.edges.check(15).is_ok());
    }
}
