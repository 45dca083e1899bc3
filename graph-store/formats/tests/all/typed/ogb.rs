//! OGB's layout of graphs of several node types.

use std::io::Write;

use morphgl_formats::{Options, Silent, ogb};
use tempfile::TempDir;

use super::{edge_types, edges, features, meta, node_types, notes, open};

/// Gzipped files below a directory.
fn gzipped(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in files {
        let path = dir.path().join(format!("{name}.csv.gz"));
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let mut out = flate2::write::GzEncoder::new(std::fs::File::create(path).expect("a file"), Default::default());
        out.write_all(text.as_bytes()).expect("written");
        out.finish().expect("written");
    }
    dir
}

const MAG: [(&str, &str); 10] = [
    ("raw/num-node-dict", "paper,author\n3,2\n"),
    ("raw/triplet-type-list", "paper,cites,paper\nauthor,writes,paper\n"),
    ("raw/relations/paper___cites___paper/edge", "0,1\n2,1\n2,0\n"),
    ("raw/relations/author___writes___paper/edge", "1,0\n0,2\n1,2\n"),
    ("raw/node-feat/paper/node-feat", "0.5,1\n2,-1\n0,0\n"),
    ("raw/node-feat/paper/node_year", "2010\n2012\n2011\n"),
    ("raw/node-label/paper/node-label", "4\n0\n2\n"),
    ("split/time/paper/train", "0\n2\n"),
    ("split/time/paper/valid", "1\n"),
    ("split/time/paper/test", ""),
];

#[test]
fn a_set_of_several_types_is_read() {
    let dir = gzipped(&MAG[..9]);
    let error = ogb::import(dir.path(), &dir.path().join("out"), &Options::default(), &Silent).expect_err("refused");
    assert!(error.to_string().contains("test.csv.gz: there is no such file; the directory is not whole"), "{error}");

    let mut files = MAG;
    // An empty list is one, too.
    (files[8].1, files[9].1) = ("", "1\n");
    let dir = gzipped(&files);
    let dataset = open(|target| ogb::import(dir.path(), target, &Options::default(), &Silent));
    assert_eq!(node_types(&dataset), [("author", 2), ("paper", 3)]);
    assert_eq!(edge_types(&dataset), ["author-writes-paper", "paper-cites-paper"]);
    assert_eq!(
        edges(&dataset),
        [
            "author:1 -writes-> paper:0",
            "paper:2 -cites-> paper:0",
            "paper:0 -cites-> paper:1",
            "paper:2 -cites-> paper:1",
            "author:0 -writes-> paper:2",
            "author:1 -writes-> paper:2",
        ]
    );
    assert_eq!(features(&dataset, 1), (vec![0.5, 1.0, 2.0, -1.0, 0.0, 0.0], 2));
    assert_eq!(dataset.labels.as_ref().expect("labels").to_vec(), [-1, -1, 4, 0, 2]);
    assert_eq!(dataset.topology.node_times().expect("times")[2..], [2010, 2012, 2011]);
    let splits = &dataset.splits;
    assert_eq!([&*splits.train, &*splits.valid, &*splits.test], [&[2, 4][..], &[], &[3]]);
    assert_eq!(meta(&dataset).provenance["split"], "time");
    assert_eq!(meta(&dataset).provenance["edge_year"], "absent");
    assert_eq!(dataset.edge_features, []);
}

/// Features of the edges of one type, and of its reverses, and files of edges that are not stored.
#[test]
fn features_of_edges_are_read_by_type() {
    let mut files = MAG.to_vec();
    files[8].1 = "";
    files[9].1 = "1\n";
    files.push(("raw/relations/author___writes___paper/edge-feat", "1,0.5\n2,0.25\n3,0\n"));
    files.push(("raw/relations/paper___cites___paper/edge_reltype", "1\n1\n1\n"));
    let dir = gzipped(&files);
    let options = Options { symmetrise: true, ..Options::default() };
    let dataset = open(|target| ogb::import(dir.path(), target, &options, &Silent));
    assert_eq!(edge_types(&dataset)[..2], ["author-writes-paper", "paper-cites-paper"]);
    let topology = &dataset.topology;
    let (types, ids) = (topology.edge_types().expect("types"), topology.edge_ids().expect("rows"));
    let mut found = Vec::new();
    for (edge, text) in edges(&dataset).into_iter().enumerate().filter(|(_, text)| text.contains("writes")) {
        let matrix = dataset.edge_features[usize::from(types[edge])].as_ref().expect("features");
        let mut row = [0.0; 2];
        matrix.view().part(2 * ids[edge] as usize, 2).to_f32(&mut row);
        found.push((text, row));
    }
    let row = |text: &str, row: [f32; 2]| (text.to_string(), row);
    assert_eq!(
        found,
        [
            row("paper:2 -rev_writes-> author:0", [2.0, 0.25]),
            row("paper:0 -rev_writes-> author:1", [1.0, 0.5]),
            row("paper:2 -rev_writes-> author:1", [3.0, 0.0]),
            row("author:1 -writes-> paper:0", [1.0, 0.5]),
            row("author:0 -writes-> paper:2", [2.0, 0.25]),
            row("author:1 -writes-> paper:2", [3.0, 0.0]),
        ]
    );
    assert!(dataset.edge_features[1].is_none(), "citations have none");
    assert!(notes(&dataset).contains("edge_reltype, the number of the type of each edge, was left out"));
    files[10].1 = "1,0.5\n2,0.25\n";
    let dir = gzipped(&files);
    let error = ogb::import(dir.path(), &dir.path().join("out"), &options, &Silent).expect_err("a row is missing");
    assert!(error.to_string().contains("edge-feat.csv.gz: 2 rows for 3 edges"), "{error}");
}

#[test]
fn splits_without_lists_of_nodes_are_left_out() {
    let dir = gzipped(&MAG[..7]);
    std::fs::create_dir_all(dir.path().join("split/random")).expect("a folder");
    let dataset = open(|target| ogb::import(dir.path(), target, &Options::default(), &Silent));
    assert!(notes(&dataset).contains("the split has no lists of nodes, and was left out"), "{}", notes(&dataset));
}

#[test]
fn damage_is_refused() {
    let refused = |at: usize, text: &str| {
        let mut files = MAG;
        files[at].1 = text;
        let dir = gzipped(&files);
        let error =
            ogb::import(dir.path(), &dir.path().join("out"), &Options::default(), &Silent).expect_err("refused");
        error.to_string().replace(&format!("{}/", dir.path().display()), "")
    };
    for (at, text, expected) in [
        (0, "paper,author\n3,x\n", "raw/num-node-dict.csv.gz, line 2: \"x\" is not a whole number of at least 0"),
        (0, "paper,author\n3,2\n1,1\n", "raw/num-node-dict.csv.gz: several graphs of several node types"),
        (0, "paper,author\n", "raw/num-node-dict.csv.gz: no number of nodes"),
        (1, "paper,cites\n", "raw/triplet-type-list.csv.gz: 2 columns, expected source, name and target"),
        (
            1,
            "paper,cites,town\n",
            "raw/triplet-type-list.csv.gz: there is no node type \"town\" in num-node-dict.csv.gz",
        ),
        (2, "0,1\n0,3\n", "raw/relations/paper___cites___paper/edge.csv.gz, line 2: the target \"3\" is no node"),
        (4, "1,2\n", "raw/node-feat/paper/node-feat.csv.gz: 1 rows for the 3 nodes of type \"paper\""),
        (6, "1\n2\n", "raw/node-label/paper/node-label.csv.gz: 2 rows for the 3 nodes of type \"paper\""),
        (7, "7\n", "split/time/paper/train.csv.gz, line 1: there is no node \"7\""),
    ] {
        let error = refused(at, text);
        assert!(error.starts_with(expected), "{error}");
    }
}
