//! cnr-2000 against the arrays of an independent decoder, and damaged copies of it against messages.
#![allow(clippy::print_stderr, reason = "the reader of a test run learns what was not compared")]

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_formats::{Options, Rows, Silent};
use morphgl_formats_bv::import;
use morphgl_graph_store::{Dataset, Load, read_npy};

/// The directory of cnr-2000, or one printed line and `None`.
fn data() -> Option<PathBuf> {
    let root = match std::env::var_os("MORPHGL_TEST_DATA") {
        Some(root) => PathBuf::from(root),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let path = root.join("bvgraph-cnr-2000");
    if path.exists() {
        return Some(path);
    }
    eprintln!("no bvgraph-cnr-2000 in the test data: nothing compared with it");
    None
}

fn open(source: &Path, rows: Rows, options: &Options) -> Dataset {
    let dir = tempfile::tempdir().unwrap();
    let target = import(source, &dir.path().join("cnr"), rows, options, &Silent).unwrap();
    Dataset::open(target, Default::default()).unwrap()
}

/// The transpose, by counting.
fn transpose(indptr: &[u64], indices: &[u32]) -> (Vec<u64>, Vec<u32>) {
    let num_nodes = indptr.len() - 1;
    let mut starts = vec![0u64; num_nodes + 1];
    indices.iter().for_each(|&u| starts[u as usize + 1] += 1);
    (0..num_nodes).for_each(|v| starts[v + 1] += starts[v]);
    let (mut next, mut out) = (starts.clone(), vec![0; indices.len()]);
    for v in 0..num_nodes {
        for &u in &indices[indptr[v] as usize..indptr[v + 1] as usize] {
            out[next[u as usize] as usize] = v as u32;
            next[u as usize] += 1;
        }
    }
    (starts, out)
}

#[test]
fn equals_the_independent_decoder_array_for_array() {
    let Some(dir) = data() else { return };
    let (indptr, _) = read_npy::<u64>(&dir.join("expected/cnr-2000.indptr.u64.npy"), Load::Ram).unwrap();
    let (indices, _) = read_npy::<u32>(&dir.join("expected/cnr-2000.indices.u32.npy"), Load::Ram).unwrap();
    let source = dir.join("cnr-2000");
    let successors = open(&source, Rows::Sources, &Options::default());
    assert_eq!((successors.num_nodes(), successors.topology.num_edges()), (325_557, 3_216_152));
    assert!(successors.topology.indptr() == &indptr && successors.topology.indices() == &indices);
    // The default lists in-neighbours; a budget of 4 MiB spills the edges to the disk.
    let (starts, sources) = transpose(&indptr, &indices);
    for memory in [2 << 30, 4 << 20] {
        let dataset = open(&source, Rows::Targets, &Options { memory, ..Options::default() });
        assert!(dataset.topology.indptr()[..] == starts && dataset.topology.indices()[..] == sources);
        assert_eq!(dataset.name, "cnr-2000");
    }
}

#[test]
fn a_basename_may_have_dots_and_the_ending() {
    let Some(data) = data() else { return };
    let dir = tempfile::tempdir().unwrap();
    for ending in ["graph", "properties"] {
        let content = fs::read(data.join(format!("cnr-2000.{ending}"))).unwrap();
        fs::write(dir.path().join(format!("uk-2007.05.{ending}")), content).unwrap();
    }
    let plain = open(&dir.path().join("uk-2007.05"), Rows::Targets, &Options::default());
    let ended = open(&dir.path().join("uk-2007.05.graph"), Rows::Targets, &Options::default());
    assert_eq!((plain.name.as_str(), plain.topology.num_edges()), ("uk-2007.05", 3_216_152));
    assert!(plain.topology == ended.topology);
}

/// A copy of cnr-2000, changed, whose import must fail with the message.
#[track_caller]
fn check_refused(change: impl FnOnce(&Path), expected: &str) {
    let Some(data) = data() else { return };
    let dir = tempfile::tempdir().unwrap();
    for ending in ["graph", "properties"] {
        // Not `fs::copy`, which would keep the data read-only.
        let content = fs::read(data.join(format!("cnr-2000.{ending}"))).unwrap();
        fs::write(dir.path().join(format!("g.{ending}")), content).unwrap();
    }
    change(dir.path());
    let before = fs::read_dir(dir.path()).unwrap().count();
    let target = dir.path().join("dataset");
    let error = import(&dir.path().join("g"), &target, Rows::Targets, &Options::default(), &Silent).unwrap_err();
    assert_eq!(error.to_string().replace(&format!("{}/", dir.path().display()), ""), expected);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "something is left behind");
}

fn edit(dir: &Path, from: &str, to: &str) {
    let path = dir.join("g.properties");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} is in the properties");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn damaged_graphs_are_refused() {
    let download = "the file is damaged or of another graph: download it again";
    check_refused(
        |dir| {
            let file = fs::File::options().write(true).open(dir.join("g.graph")).unwrap();
            file.set_len(1000).unwrap();
        },
        &format!("g.graph, byte 1000: the file has 1000 bytes, its properties promise 1164843; {download}"),
    );
    check_refused(
        |dir| edit(dir, "arcs=3216152", "arcs=3216153"),
        &format!("g.graph: 3216152 arcs, but the properties promise 3216153; {download}"),
    );
    check_refused(
        |dir| edit(dir, "arcs=3216152", "arcs=3000000"),
        &format!("g.graph: more arcs than the 3000000 that the properties promise; {download}"),
    );
    check_refused(
        |dir| edit(dir, "nodes=325557", "nodes=many"),
        "g.properties: nodes=many is not a whole number; check that these are the properties of a BV graph",
    );
    check_refused(
        |dir| edit(dir, "\nnodes=325557", ""),
        "g.properties: the property nodes is missing; check that these are the properties of a BV graph",
    );
    check_refused(
        |dir| edit(dir, "BVGraph\n", "EFGraph\n"),
        "g.properties: a graph of class it.unimi.dsi.webgraph.EFGraph; convert it to BVGraph with WebGraph's tools",
    );
    check_refused(
        |dir| fs::remove_file(dir.join("g.properties")).unwrap(),
        "g.properties: there is no such file; \
         name the graph by its path without an ending, beside which .graph and .properties lie",
    );
}

#[test]
fn bits_that_are_no_graph_end_in_an_error() {
    let Some(data) = data() else { return };
    for seed in 0..4u8 {
        let dir = tempfile::tempdir().unwrap();
        let mut bits = fs::read(data.join("cnr-2000.graph")).unwrap();
        let middle = bits.len() / 2;
        bits[middle..middle + 4096].iter_mut().enumerate().for_each(|(i, b)| *b ^= (i as u8).wrapping_mul(31) ^ seed);
        fs::write(dir.path().join("g.graph"), bits).unwrap();
        fs::write(dir.path().join("g.properties"), fs::read(data.join("cnr-2000.properties")).unwrap()).unwrap();
        let target = dir.path().join("dataset");
        let error = import(&dir.path().join("g"), &target, Rows::Targets, &Options::default(), &Silent).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}/g.graph", dir.path().display())), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something is left behind");
    }
}
