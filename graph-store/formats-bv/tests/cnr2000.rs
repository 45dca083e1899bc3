//! cnr-2000 against the arrays of an independent decoder, and damaged copies of it against messages.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_formats::{Options, RowContent, Silent};
use morphgl_formats_bv::import;
use morphgl_graph_store::{Array, Dataset, Load, read_npy};

/// A graph's path without ending, and the arrays of the decoder.
struct Decoded {
    source: PathBuf,
    indptr: Vec<u64>,
    indices: Array<u32>,
}

impl Decoded {
    fn read(folder: &Path, name: &str) -> Self {
        let array = |ending: &str| folder.join(format!("expected/{name}.{ending}.npy"));
        let (indptr, _) = read_npy::<u64>(&array("indptr.u64"), Load::Ram).unwrap();
        let (indices, _) = read_npy::<u32>(&array("indices.u32"), Load::Ram).unwrap();
        Self { source: folder.join(name), indptr: indptr.to_vec(), indices }
    }

    /// The first rows of cnr-2000.
    fn head() -> Self {
        let mut head = Self::read(&morphgl_testdata::path("bvgraph"), "cnr-2000-head");
        // Nodes behind these rows have no successors.
        head.indptr.resize(325_549 + 1, 81_129);
        head
    }
}

fn open(source: &Path, rows: RowContent, options: &Options) -> Dataset {
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
    let whole = morphgl_testdata::extra("bvgraph-cnr-2000").map(|folder| Decoded::read(&folder, "cnr-2000"));
    for Decoded { source, indptr, indices } in [Some(Decoded::head()), whole].into_iter().flatten() {
        let successors = open(&source, RowContent::Sources, &Options::default());
        assert!(successors.topology.indptr()[..] == indptr && successors.topology.indices() == &indices);
        // The default lists in-neighbours; a budget of 300 KiB spills the edges to the disk.
        let (starts, sources) = transpose(&indptr, &indices);
        for memory in [2 << 30, 300 << 10] {
            let dataset = open(&source, RowContent::Targets, &Options { memory, ..Options::default() });
            assert!(dataset.topology.indptr()[..] == starts && dataset.topology.indices()[..] == sources);
            assert_eq!(Path::new(&dataset.name), Path::new(source.file_name().unwrap()));
        }
    }
}

/// Writes the graph's files as `name` into a folder.
fn copy(folder: &Path, name: &str) {
    for ending in ["graph", "properties"] {
        let content = fs::read(morphgl_testdata::path(&format!("bvgraph/cnr-2000-head.{ending}"))).unwrap();
        fs::write(folder.join(format!("{name}.{ending}")), content).unwrap();
    }
}

#[test]
fn a_basename_may_have_dots_and_the_ending() {
    let dir = tempfile::tempdir().unwrap();
    copy(dir.path(), "uk-2007.05");
    let plain = open(&dir.path().join("uk-2007.05"), RowContent::Targets, &Options::default());
    let ended = open(&dir.path().join("uk-2007.05.graph"), RowContent::Targets, &Options::default());
    assert_eq!((plain.name.as_str(), plain.topology.num_edges()), ("uk-2007.05", 81_129));
    assert!(plain.topology == ended.topology);
}

/// A copy of the graph, changed, whose import must fail with the message.
#[track_caller]
fn check_refused(change: impl FnOnce(&Path), expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    copy(dir.path(), "g");
    change(dir.path());
    let before = fs::read_dir(dir.path()).unwrap().count();
    let target = dir.path().join("dataset");
    let error = import(&dir.path().join("g"), &target, RowContent::Targets, &Options::default(), &Silent).unwrap_err();
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
        &format!("g.graph, byte 1000: the file has 1000 bytes, its properties promise 76566; {download}"),
    );
    check_refused(
        |dir| edit(dir, "arcs=81129", "arcs=81130"),
        &format!("g.graph: 81129 arcs, but the properties promise 81130; {download}"),
    );
    check_refused(
        |dir| edit(dir, "arcs=81129", "arcs=80000"),
        &format!("g.graph: more arcs than the 80000 that the properties promise; {download}"),
    );
    check_refused(
        |dir| edit(dir, "nodes=325549", "nodes=many"),
        "g.properties: nodes=many is not a whole number; check that these are the properties of a BV graph",
    );
    check_refused(
        |dir| edit(dir, "\nnodes=325549", ""),
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
    for seed in 0..4u8 {
        let dir = tempfile::tempdir().unwrap();
        copy(dir.path(), "g");
        let mut bits = fs::read(dir.path().join("g.graph")).unwrap();
        let middle = bits.len() / 4;
        bits[middle..middle + 4096].iter_mut().enumerate().for_each(|(i, b)| *b ^= (i as u8).wrapping_mul(31) ^ seed);
        fs::write(dir.path().join("g.graph"), bits).unwrap();
        let target = dir.path().join("dataset");
        let error =
            import(&dir.path().join("g"), &target, RowContent::Targets, &Options::default(), &Silent).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}/g.graph", dir.path().display())), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something is left behind");
    }
}
