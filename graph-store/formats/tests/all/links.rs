//! Pairs of link prediction: drawn, and in files beside the graph.

use std::path::{Path, PathBuf};

use crate::support::{edges, open, write};
use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{EdgeSplit, LinkFiles, Options, Silent, export_numpy, mtx};
use morphgl_graph_store::{Dataset, NpyWriter, negatives_per_pair};
use tempfile::TempDir;

/// Imports an edge list with files of validation and test pairs, and of test negatives.
fn import(dir: &TempDir, text: &str, format: &EdgeListOptions, links: LinkFiles, bipartite: bool) -> Dataset {
    let source = write(dir, "edges.csv", text.as_bytes());
    let options = Options { links, bipartite: bipartite.then_some(true), ..Options::default() };
    open(|target| edge_list::import(&source, target, format, &options, &Silent))
}

fn error(dir: &TempDir, text: &str, format: &EdgeListOptions, options: &Options) -> String {
    let source = write(dir, "edges.csv", text.as_bytes());
    let error = edge_list::import(&source, &dir.path().join("out"), format, options, &Silent).expect_err("refused");
    error.to_string().replace(&format!("{}/", dir.path().display()), "")
}

fn npy(dir: &TempDir, name: &str, values: &[i64]) -> PathBuf {
    let path = dir.path().join(name);
    let mut writer = NpyWriter::create(&path).unwrap();
    writer.write(values).unwrap();
    writer.finish(Some(2)).unwrap();
    path
}

fn valid(path: PathBuf) -> LinkFiles {
    LinkFiles { valid: Some(path), ..LinkFiles::default() }
}

fn notes(dataset: &Dataset) -> String {
    dataset.path.meta().unwrap().provenance.get("notes").map(ToString::to_string).unwrap_or_default()
}

#[test]
fn files_of_pairs_have_the_ids_of_the_edges() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = |dataset: &Dataset| dataset.edges.valid_pairs().to_vec();
    // Ids from 1, kept; a header of two names that nobody knows.
    let one = EdgeListOptions { first_id: Some(1), ..Default::default() };
    let links = valid(write(&dir, "valid.csv", b"left,right\n1,4\n4,2\n"));
    let kept = import(&dir, "1,2\n2,3\n3,4\n", &one, links, false);
    assert_eq!((pairs(&kept), kept.num_nodes()), (vec![[0, 3], [3, 1]], 4));
    assert_eq!(*kept.train_pairs(), [[0, 1], [1, 2], [2, 3]]);
    // Ids with gaps, and an array.
    let compact = EdgeListOptions { ids: Ids::Compact, ..Default::default() };
    let links = LinkFiles {
        test: Some(npy(&dir, "test.npy", &[70, 10])),
        test_negatives: Some(npy(&dir, "negatives.npy", &[70, 20, 70, 70])),
        ..valid(write(&dir, "valid.tsv", b"10\t70\n"))
    };
    let dataset = import(&dir, "10,20\n20,70\n", &compact, links, false);
    assert_eq!((pairs(&dataset), dataset.edges.test_pairs()), (vec![[0, 2]], &[[2, 0]][..]));
    let (test, negatives) = (dataset.edges.test_pairs(), dataset.edges.test_negative_pairs());
    assert_eq!((negatives, negatives_per_pair(test, negatives)), (&[[2, 1], [2, 2]][..], Some(2)));
    // Names, and columns that options name, in the pairs too.
    let columns =
        Columns { src: Some(Column::Name("a".into())), dst: Some(Column::Name("b".into())), ..Default::default() };
    let strings = EdgeListOptions { ids: Ids::Strings, columns, ..Default::default() };
    let links = valid(write(&dir, "names.csv", b"when,b,a\n7,x,z\n"));
    let dataset = import(&dir, "a,b\nx,y\ny,z\n", &strings, links, false);
    assert_eq!(pairs(&dataset), [[2, 0]]);
}

#[test]
fn two_kinds_of_nodes_are_kept_apart_in_pairs() {
    let dir = tempfile::tempdir().unwrap();
    let text = "user_id,item_id,rating\n0,0,5\n1,2,3\n2,1,1\n";
    for ids in [Ids::Keep, Ids::Compact, Ids::Strings] {
        let format = EdgeListOptions { ids, ..Default::default() };
        let columns = Columns {
            src: Some(Column::Name("user_id".into())),
            dst: Some(Column::Name("item_id".into())),
            weight: Some(Column::Name("rating".into())),
            ..Columns::default()
        };
        let format = EdgeListOptions { columns, ..format };
        let links = valid(write(&dir, "valid.csv", b"user_id,item_id\n0,2\n2,0\n"));
        let dataset = import(&dir, text, &format, links, true);
        // Users are nodes 0 to 2 and items 3 to 5, but for names, which are sorted: item_id:0 comes before user_id:0.
        let [user, item] = if ids == Ids::Strings { [3, 0] } else { [0, 3] };
        assert_eq!(dataset.edges.valid_pairs(), [[user, item + 2], [user + 2, item]], "{ids:?}");
        let expected = [(user, item, 5.0), (user + 2, item + 1, 1.0), (user + 1, item + 2, 3.0)];
        assert_eq!(edges(&dataset), expected, "{ids:?}");
    }
}

/// The file that recbole has of MovieLens-100k: tabs, and names with types.
#[test]
fn atomic_files_of_recbole_are_edges_between_two_kinds() {
    let dir = tempfile::tempdir().unwrap();
    let text = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n196\t242\t3\t881250949\n186\t302\t3\t891717742\n186\t242\t4\t878887116\n";
    let source = write(&dir, "ml.inter", text.as_bytes());
    let name = |name: &str| Some(Column::Name(name.into()));
    for suffixes in [[""; 3], [":token", ":token", ":float"]] {
        let [user, item, rating] =
            [("user_id", 0), ("item_id", 1), ("rating", 2)].map(|(n, i)| n.to_string() + suffixes[i]);
        let columns = Columns { src: name(&user), dst: name(&item), weight: name(&rating), ..Columns::default() };
        let format = EdgeListOptions { ids: Ids::Compact, columns, ..Default::default() };
        let options = Options { bipartite: Some(true), ..Options::default() };
        let dataset = open(|target| edge_list::import(&source, target, &format, &options, &Silent));
        assert_eq!(edges(&dataset), [(0, 2, 4.0), (1, 2, 3.0), (0, 3, 3.0)]);
        let mixed = text.replace("242", "186");
        let refused = error(&dir, &mixed, &format, &Options::default());
        assert!(refused.contains("seem to be ids of two kinds of nodes; keep them apart by --bipartite"), "{refused}");
    }
}

#[test]
fn edges_are_drawn_and_taken_out() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..200).map(|i| format!("{} {}\n", i % 50, (i * 7 + i / 50 + 1) % 50)).collect();
    let source = write(&dir, "edges.txt", text.as_bytes());
    let split = EdgeSplit { train: 0.8, valid: 0.1, test: 0.1, seed: 3 };
    let import = |symmetrise: bool, edge_split: Option<EdgeSplit>| {
        let options = Options { symmetrise, edge_split, ..Options::default() };
        open(|target| edge_list::import(&source, target, &Default::default(), &options, &Silent))
    };
    for symmetrise in [false, true] {
        let (whole, drawn) = (import(symmetrise, None), import(symmetrise, Some(split)));
        assert!(whole.edges.is_empty() && !drawn.edges.is_empty());
        let all = whole.train_pairs().len();
        let (train, valid, test) = (drawn.train_pairs(), drawn.edges.valid_pairs(), drawn.edges.test_pairs());
        assert_eq!(train.len() + valid.len() + test.len(), all);
        assert_eq!(train.len(), (0.8 * all as f64).round() as usize);
        for &[u, v] in valid.iter().chain(test) {
            assert!(!drawn.topology.neighbors(v).contains(&u), "{u} to {v} remains");
            assert!(!symmetrise || !drawn.topology.neighbors(u).contains(&v), "{v} to {u} remains");
        }
        let noted = if symmetrise { "undirected edges to validate on" } else { " edges to validate on" };
        assert!(notes(&drawn).contains(noted), "{}", notes(&drawn));
        assert_eq!(import(symmetrise, Some(split)).path.checksums(), drawn.path.checksums());
    }
    // A symmetric matrix is undirected without --symmetrise.
    let text = "%%MatrixMarket matrix coordinate pattern symmetric\n4 4 4\n2 1\n3 2\n4 3\n4 1\n";
    let source = write(&dir, "ring.mtx", text.as_bytes());
    let options =
        Options { edge_split: Some(EdgeSplit { train: 0.5, valid: 0.5, test: 0.0, ..split }), ..Options::default() };
    let drawn = open(|target| mtx::import(&source, target, &options, &Silent));
    assert_eq!((drawn.topology.num_edges(), drawn.edges.valid_pairs().len()), (4, 2));
}

#[test]
fn exported_pairs_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let links = LinkFiles {
        train: Some(npy(&dir, "train.npy", &[0, 1])),
        train_negatives: Some(npy(&dir, "own.npy", &[0, 2, 0, 0])),
        test: Some(npy(&dir, "test.npy", &[2, 0, 1, 1])),
        test_negatives: Some(npy(&dir, "negatives.npy", &[2, 2])),
        ..LinkFiles::default()
    };
    let dataset = import(&dir, "0,1\n1,2\n", &Default::default(), links, false);
    let exported = export_numpy(&dataset, &dir.path().join("arrays")).unwrap();
    let options = Options::default();
    let back = open(|target| numpy::import(&exported, target, NumpyOptions::default(), &options, &Silent));
    assert_eq!((&back.edges, &back.topology), (&dataset.edges, &dataset.topology));
    assert_eq!(*back.train_pairs(), [[0, 1]]);
}

#[test]
fn pairs_that_are_edges_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let dataset = import(&dir, "0,1\n1,2\n", &Default::default(), valid(write(&dir, "v.csv", b"0,1\n0,2\n")), false);
    let notes = notes(&dataset);
    assert!(notes.contains("1 of 2 validation pairs are edges of the graph"), "{notes}");
}

#[test]
fn refusals_name_the_file_and_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let refuse =
        |links: LinkFiles| error(&dir, "0,1\n1,2\n", &Default::default(), &Options { links, ..Options::default() });
    let cure = "remove the pair, or add the node to the graph (--num-nodes, or a row of --nodes)";
    let unknown = refuse(valid(write(&dir, "v.csv", b"0,1\n0,7\n")));
    assert_eq!(unknown, format!("v.csv, line 2: there is no node \"7\"; {cure}"));
    let unknown = refuse(valid(npy(&dir, "v.npy", &[0, 1, 2, 9])));
    assert_eq!(unknown, format!("v.npy, element 3: there is no node 9; {cure}"));
    let own = |negatives: &[i64]| {
        let (train, negatives) = (npy(&dir, "t.npy", &[0, 1, 2, 0]), npy(&dir, "n.npy", negatives));
        LinkFiles { train: Some(train), train_negatives: Some(negatives), ..LinkFiles::default() }
    };
    let cure = "give as many for each training pair, in their order and with its source";
    let other = refuse(own(&[0, 2, 2, 2, 0, 0, 2, 1]));
    assert_eq!(other, format!("n.npy, element 1: a negative of the pair 0,1 has the source 2, not 0; {cure}"));
    let uneven = refuse(own(&[0, 2]));
    assert_eq!(uneven, format!("n.npy, element 0: 1 negatives of 2 pairs are not as many for each; {cure}"));
    let untrained = refuse(LinkFiles { train_negatives: Some(npy(&dir, "n.npy", &[0, 1])), ..LinkFiles::default() });
    assert_eq!(untrained, "n.npy: negatives of no pairs; name the pairs by --train-edges");
    let orphan = refuse(LinkFiles { test_negatives: Some(npy(&dir, "n.npy", &[0, 1])), ..LinkFiles::default() });
    assert_eq!(orphan, "n.npy: negatives of no pairs; name the pairs by --test-edges");
    let columns = refuse(valid(write(&dir, "w.csv", b"a,b,c\n0,1,2\n")));
    assert!(columns.starts_with("w.csv: the columns are named"), "{columns}");
    let path = dir.path().join("rows.npy");
    let mut writer = NpyWriter::create(&path).unwrap();
    writer.write(&[0i64, 1, 2]).unwrap();
    writer.finish(Some(3)).unwrap();
    let shape = refuse(valid(path));
    assert!(shape.starts_with("rows.npy: pairs of shape [1, 3], expected [pairs, 2]; "), "{shape}");
    let split = Some(EdgeSplit { train: 0.5, valid: 0.6, test: 0.1, seed: 0 });
    let shares = error(&dir, "0,1\n", &Default::default(), &Options { edge_split: split, ..Options::default() });
    assert!(shares.starts_with("--edge-split: the shares are 0.5, 0.6 and 0.1; "), "{shares}");
    let both = Options {
        edge_split: Some(EdgeSplit { train: 0.5, valid: 0.5, test: 0.0, seed: 0 }),
        links: valid(Path::new("v.csv").into()),
        ..Options::default()
    };
    let both = error(&dir, "0,1\n", &Default::default(), &both);
    assert!(both.starts_with("--edge-split: it draws the pairs"), "{both}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("out")), "{left:?}");
}
