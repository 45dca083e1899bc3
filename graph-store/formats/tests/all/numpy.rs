//! Plain arrays in every form, back and forth, and arrays that do not fit one another.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::support::{edges, open};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{Ingest, Options, RowContent, Silent, edge_list, export_numpy};
use morphgl_graph_store::{Dataset, Dtype, Element, FeatureView, NpyWriter, Result};
use proptest::prelude::*;
use tempfile::TempDir;

/// A directory of arrays.
struct Arrays(TempDir);

impl Arrays {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes little-endian numbers under a numpy header.
    fn put<T: Element>(self, name: &str, values: &[T], dim: Option<usize>) -> Self {
        let mut out = NpyWriter::create(self.0.path().join(format!("{name}.npy"))).unwrap();
        out.write(values).unwrap();
        out.finish(dim).unwrap();
        self
    }

    /// Writes any bytes under any header.
    fn raw(self, name: &str, descr: &str, fortran: bool, shape: &str, bytes: &[u8]) -> Self {
        let order = if fortran { "True" } else { "False" };
        let dict = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let mut file = File::create(self.0.path().join(format!("{name}.npy"))).unwrap();
        file.write_all(b"\x93NUMPY\x01\x00").unwrap();
        file.write_all(&(dict.len() as u16).to_le_bytes()).unwrap();
        file.write_all(dict.as_bytes()).unwrap();
        file.write_all(bytes).unwrap();
        self
    }

    /// Packs the arrays as numpy's `savez` does.
    fn archive(&self) -> std::path::PathBuf {
        let path = self.0.path().join("graph.npz");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        for entry in fs::read_dir(self.0.path()).unwrap().map(|e| e.unwrap().path()) {
            if entry.extension().is_some_and(|e| e == "npy") {
                let name = entry.file_name().unwrap().to_str().unwrap();
                zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
                zip.write_all(&fs::read(&entry).unwrap()).unwrap();
            }
        }
        zip.finish().unwrap();
        path
    }

    fn open(&self, format: NumpyOptions) -> Dataset {
        let directory = open(|target| numpy::import(self.0.path(), target, format, &Options::default(), &Silent));
        let archive = open(|target| numpy::import(&self.archive(), target, format, &Options::default(), &Silent));
        assert_eq!((&directory.topology, &directory.features), (&archive.topology, &archive.features));
        assert_eq!((&directory.labels, &directory.splits), (&archive.labels, &archive.splits));
        directory
    }

    #[track_caller]
    fn check_refused(&self, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("dataset");
        let import = numpy::import(self.0.path(), &target, NumpyOptions::default(), &Options::default(), &Silent);
        let message = import.expect_err("the import refuses").to_string();
        let message = message.replace(&format!("{}/", self.0.path().display()), "");
        assert_eq!(message.replace(&self.0.path().display().to_string(), "DIR"), expected);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "something is left behind");
    }
}

/// 1 → 0, 2 → 0, 0 → 1.
const EDGES: [(u32, u32, f32); 3] = [(1, 0, 1.0), (2, 0, 1.0), (0, 1, 1.0)];

#[test]
fn every_form_of_edges_reads_alike() {
    let bytes = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let planar = bytes(&[1, 2, 0, 0, 0, 1]);
    let interleaved = bytes(&[1, 0, 2, 0, 0, 1]);
    let forms = [
        Arrays::new().put("indptr", &[0i64, 2, 3], None).put("indices", &[1i64, 2, 0], None),
        Arrays::new().put("indptr", &[0u64, 2, 3, 3], None).put("indices", &[1u32, 2, 0], None),
        Arrays::new().raw("edge_index", "<i4", false, "(2, 3)", &planar),
        Arrays::new().raw("edge_index", "<i4", true, "(3, 2)", &planar),
        Arrays::new().raw("edge_index", "<i4", false, "(3, 2)", &interleaved),
        Arrays::new().raw("edge_index", "<i4", true, "(2, 3)", &interleaved),
        Arrays::new().put("src", &[1i32, 2, 0], None).put("dst", &[0u8, 0, 1], None),
    ];
    for (i, arrays) in forms.into_iter().enumerate() {
        if i == 0 {
            arrays.check_refused(
                "indices.npy, element 1: the edge 2 -> 0 names a node that does not exist, there are 2 nodes; \
                 correct the edge or the number of nodes",
            );
            continue;
        }
        let dataset = arrays.open(NumpyOptions::default());
        assert_eq!((dataset.num_nodes(), edges(&dataset)), (3, EDGES.to_vec()), "form {i}");
    }
    let rows = Arrays::new().put("indptr", &[0i64, 1, 2, 3], None).put("indices", &[1u32, 0, 0], None);
    let dataset = rows.open(NumpyOptions { rows: Some(RowContent::Targets), num_nodes: None });
    assert_eq!(edges(&dataset), EDGES);
}

#[test]
fn features_of_edges_are_in_the_order_of_the_edges() {
    let features = [0.5f32, 1.0, 2.0, 3.0, 4.0, 5.0];
    let forms = [
        Arrays::new().put("src", &[1i32, 2, 0], None).put("dst", &[0u8, 0, 1], None).put(
            "edge_attr",
            &features,
            Some(2),
        ),
        Arrays::new().put("indptr", &[0u64, 2, 3, 3], None).put("indices", &[1u32, 2, 0], None).put(
            "edge_features",
            &features,
            Some(2),
        ),
    ];
    for arrays in forms {
        let dataset = arrays.open(NumpyOptions::default());
        assert_eq!(dataset.topology.edge_ids().map(|ids| &ids[..]), Some(&[0u32, 1, 2][..]));
        let matrix = dataset.edge_features[0].as_ref().expect("features of edges");
        let FeatureView::F32(values) = matrix.view() else { panic!("f32 stays f32") };
        assert_eq!((values, matrix.dim()), (&features[..], 2));
    }
    let edges = || Arrays::new().put("src", &[1i32, 2, 0], None).put("dst", &[0u8, 0, 1], None);
    edges()
        .put("edge_attr", &features[..4], Some(2))
        .check_refused("edge_attr.npy: 2 rows for 3 edges; give every edge its row");
    edges().put("edge_features", &features, Some(2)).put("edge_ids", &[2u32, 1, 0], None).check_refused(
        "DIR: rows of features of edges by edge_ids, which are not read; save edge_features[edge_ids] in place of both, a row per edge",
    );
}

/// Rows that are written while others are read, and the same edges sorted at the end.
#[test]
fn rows_in_order_become_the_graph_that_edges_in_any_order_become() {
    // Rows of none to six edges, listed in no order, some twice; and one of a third of all edges.
    let degree = |v: u32| if v == 9_000 { 40_000 } else { v % 7 };
    let rows: Vec<u32> = (0..27_000).flat_map(|v| std::iter::repeat_n(v, degree(v) as usize)).collect();
    let sources: Vec<u32> = (0..rows.len() as u32).map(|i| i.wrapping_mul(2_654_435_761) % 27_001 / 3).collect();
    let weights: Vec<f32> = (0..rows.len()).map(|i| i as f32).collect();
    let indptr: Vec<u64> = (0..=27_000).map(|v| rows.partition_point(|&row| row < v) as u64).collect();
    let compressed = Arrays::new().put("indptr", &indptr, None).put("indices", &sources, None);
    let listed = Arrays::new().put("src", &sources, None).put("dst", &rows, None);
    let [compressed, listed] = [compressed, listed].map(|arrays| arrays.put("weights", &weights, None));
    let (format, all) = (NumpyOptions { num_nodes: Some(27_000), ..NumpyOptions::default() }, Options::default());
    for options in [
        all.clone(),
        Options { drop_weights: true, ..all.clone() },
        Options { drop_duplicates: true, add_self_loops: true, ..all.clone() },
        Options { drop_self_loops: true, ..all.clone() },
        Options { symmetrise: true, ..all.clone() },
    ] {
        let expected = open(|target| numpy::import(listed.0.path(), target, format, &options, &Silent));
        for memory in [1 << 17, 1 << 20, 1 << 30] {
            let options = Options { memory, ..options.clone() };
            for arrays in [&compressed, &listed] {
                let actual = open(|target| numpy::import(arrays.0.path(), target, format, &options, &Silent));
                assert!(actual.topology == expected.topology, "{options:?}");
            }
        }
    }
}

#[test]
fn features_labels_splits_and_weights_are_converted() {
    let arrays = || Arrays::new().put("src", &[1i64, 2, 0], None).put("dst", &[0i64, 0, 1], None);
    let full = arrays()
        .put("x", &[0.5f64, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], Some(2))
        .put("y", &[2i64, -1, 0, 1], None)
        .put("edge_weight", &[0.25f64, 2.0, 1.0], None)
        .raw("train_mask", "|b1", false, "(4,)", &[1, 0, 0, 1])
        .raw("val_mask", "|b1", false, "(4,)", &[0, 1, 0, 0])
        .put("test_idx", &[2i64], None)
        .put("node_ids", &[10i64, 20, 30, 40], None);
    let dataset = full.open(NumpyOptions::default());
    assert_eq!(dataset.num_nodes(), 4, "the features have a row for the node without edges");
    assert_eq!(edges(&dataset), [(1, 0, 0.25), (2, 0, 2.0), (0, 1, 1.0)]);
    let features = dataset.features.unwrap();
    assert_eq!(features.view(), FeatureView::F32(&[0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
    assert_eq!((&dataset.labels.unwrap()[..], dataset.num_classes), (&[2, -1, 0, 1][..], 3));
    let splits = &dataset.splits;
    assert_eq!((&splits.train[..], &splits.valid[..], &splits.test[..]), (&[0, 3][..], &[1][..], &[2][..]));
    assert_eq!(&dataset.node_ids.unwrap()[..], [10, 20, 30, 40]);
    let bytes = arrays().put("feat", &[1u8, 2, 3], Some(1)).open(NumpyOptions::default());
    assert_eq!(bytes.features.unwrap().dtype(), Dtype::U8);
    let more = arrays().open(NumpyOptions { num_nodes: Some(9), ..Default::default() });
    assert_eq!(more.num_nodes(), 9);
}

#[test]
fn arrays_that_do_not_fit_are_refused() {
    let pair = || Arrays::new().put("src", &[1i64, 2, 0], None).put("dst", &[0i64, 0, 1], None);
    let together = "save the arrays of one graph together";
    Arrays::new().put("x", &[1.0f32], Some(1)).check_refused(
        "DIR: no edges: neither indptr and indices, nor edge_index, nor src and dst; \
         save the edges under one of these names",
    );
    pair()
        .put("dst", &[0i64], None)
        .check_refused(&format!("dst.npy: an array of shape [1], expected [3] as of src; {together}"));
    pair().put("indptr", &[0i64], None).check_refused(
        "DIR: the edges are given more than once, by indptr and src; keep one of indptr, edge_index and src",
    );
    pair().put("x", &[1.0f32; 8], Some(4)).check_refused(
        "src.npy, element 1: the edge 2 -> 0 names a node that does not exist, there are 2 nodes; \
         correct the edge or the number of nodes",
    );
    pair()
        .put("x", &[1.0f32; 6], Some(2))
        .put("y", &[0i64; 4], None)
        .check_refused("y.npy: labels for 4 nodes, but the graph has 3; give every node its row");
    pair().put("x", &[1.0f32; 6], None).check_refused(
        "x.npy: features of shape [6], expected [nodes, values] in C order; \
         save them with numpy.ascontiguousarray and reshape",
    );
    pair()
        .put("x", &[0.0f32, 1.0, f32::INFINITY], Some(1))
        .check_refused("x.npy, element 2: the feature of node 2, column 0 is inf, not a finite number; clean the data");
    pair()
        .put("weights", &[1.0f32; 2], None)
        .check_refused(&format!("weights.npy: an array of shape [2], expected [3], one weight per edge; {together}"));
    pair()
        .put("train", &[0i64, 3], None)
        .check_refused("train.npy, element 1: node 3 does not exist, there are 3 nodes; correct the split");
    pair().put("valid", &[0i64, 2, 0], None).check_refused(
        "valid.npy, element 2: node 0 is listed twice; only training nodes may repeat; correct the split",
    );
    // The message of an intact file does not call it damaged.
    let again = "correct the array and save it again";
    pair()
        .put("src", &[1.0f32, 2.0, 0.0], None)
        .check_refused(&format!("src.npy, byte 128: elements of type float32, expected integers; {again}"));
    pair().raw("x", "|O", false, "(3, 2)", &[0x80, 4, b'.']).check_refused(
        "x.npy: its elements are not numbers but objects or text; save them as numbers, with astype('float32')",
    );
    pair().raw("y", "|O", false, "(3,)", &[0x80, 4, b'.']).check_refused(
        "y.npy: labels that are no numbers but objects or text; number them: numpy.unique(y, return_inverse=True)[1]; or write a table of ids and labels, for --labels",
    );
    pair().raw("y", "<U1", false, "(3,)", &[0; 12]).check_refused(
        "y.npy: labels that are no numbers but objects or text; number them: numpy.unique(y, return_inverse=True)[1]; or write a table of ids and labels, for --labels",
    );
    pair().put("y", &[0i64; 30], Some(10)).check_refused(
        "y.npy: an array of shape [3, 10], where one value per node is expected; read one of its columns by --label-column 1 to 10; of one-hot labels save y.argmax(1), and give several values or labels per node as targets (--targets FILE, or an array named targets)",
    );
    pair().raw("train_mask", "|b1", false, "(3, 2)", &[1; 6]).check_refused(
        "train_mask.npy: an array of shape [3, 2], where one value per node is expected; read one of its columns by --split-column 1 to 2",
    );
    pair()
        .raw("train_mask", "|b1", false, "(2,)", &[1, 0])
        .check_refused("train_mask.npy: a mask of 2 nodes, but the graph has 3; give every node its element");
    pair()
        .put("train", &[0i64], None)
        .put("train_idx", &[0i64], None)
        .check_refused("DIR: both train and train_idx are given, which mean the same; remove one of them");
    pair()
        .put("src", &[1i64, -1, 0], None)
        .check_refused("src.npy, element 1: the node id -1 is outside 0..4294967295; correct or renumber the ids");
    let rows = |offsets: &[i64]| Arrays::new().put("indptr", offsets, None).put("indices", &[0u32, 1, 1], None);
    rows(&[0, 2, 1, 3]).check_refused(&format!("indptr.npy, element 2: the offset decreases from 2 to 1; {together}"));
    rows(&[1, 2, 3]).check_refused(&format!("indptr.npy, element 0: the first offset is 1 and must be 0; {together}"));
    rows(&[0, 1, 2])
        .check_refused(&format!("indptr.npy, element 2: the last offset is 2, but there are more edges; {together}"));
    rows(&[0, 1, 4])
        .check_refused(&format!("indptr.npy, element 2: the last offset is 4, but there are 3 edges; {together}"));
    rows(&[0, 1, 3])
        .put("y", &[0i64; 3], None)
        .check_refused(&format!("indptr.npy: an array of shape [3], expected [4] for 3 nodes; {together}"));
}

/// Entry (i, j) is an edge i → j whatever the matrix is stored as: 0 → 1, 0 → 2, 2 → 0.
/// The length of a file is compared with the shape in its header before anything is allocated or written.
#[test]
fn shapes_that_their_files_do_not_have() {
    let shapes =
        ["(30, 1000000000)", "(30, 100000000000)", "(1152921504606846976, 1)", "(1152921504606846976,)", "(5,)"];
    for name in ["features", "labels", "train", "train_mask", "node_ids", "src", "edge_weight", "edge_index"] {
        for shape in shapes {
            let arrays = Arrays::new().put("src", &[0u32, 1], None).put("dst", &[1u32, 0], None);
            let arrays = match name {
                "edge_index" => Arrays::new(),
                _ => arrays,
            };
            let arrays = arrays.raw(name, "<f4", false, shape, &[0; 8]);
            for archived in [false, true] {
                let source = if archived { arrays.archive() } else { arrays.0.path().to_path_buf() };
                let target = arrays.0.path().join("out");
                let done = numpy::import(&source, &target, NumpyOptions::default(), &Options::default(), &Silent);
                let error = done.expect_err("eight bytes").to_string();
                assert!(error.contains(&format!("{name}.npy")) && error.contains("the array ends early"), "{error}");
                assert!(!target.exists());
            }
        }
    }
}

#[test]
fn scipys_matrices_point_one_way() {
    let text = |format: &str| ("format", "|S3", format.as_bytes().to_vec());
    let matrix = |format: &str| {
        let (name, descr, bytes) = text(format);
        Arrays::new().raw(name, descr, false, "()", &bytes).put("shape", &[3i64, 3], None)
    };
    let values = |arrays: Arrays, data: &[f64]| {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        arrays.raw("data", "<f8", false, "(3,)", &bytes)
    };
    let csr = || matrix("csr").put("indptr", &[0i32, 2, 2, 3], None).put("indices", &[1i32, 2, 0], None);
    let csc = || matrix("csc").put("indptr", &[0i32, 1, 2, 3], None).put("indices", &[2i32, 0, 0], None);
    let coo = || matrix("coo").put("row", &[0i32, 2, 0], None).put("col", &[1i32, 0, 2], None);
    for (arrays, data) in [(csr(), [5.0, 6.0, 7.0]), (csc(), [7.0, 5.0, 6.0]), (coo(), [5.0, 7.0, 6.0])] {
        let dataset = values(arrays, &data).open(NumpyOptions::default());
        assert_eq!(edges(&dataset), [(2, 0, 7.0), (0, 1, 5.0), (0, 2, 6.0)]);
        assert!(dataset.topology.weights().is_some());
    }
    let ones = values(csr(), &[1.0; 3]).open(NumpyOptions::default());
    assert!(ones.topology.weights().is_none(), "weights of 1 say nothing");
    let reversed = values(csr(), &[1.0; 3]);
    let options = Options { reverse: true, ..Options::default() };
    let reversed = open(|target| numpy::import(reversed.0.path(), target, NumpyOptions::default(), &options, &Silent));
    assert_eq!(edges(&reversed), [(1, 0, 1.0), (2, 0, 1.0), (0, 2, 1.0)]);
    values(matrix("bsr"), &[1.0; 3])
        .check_refused("format.npy: a scipy matrix of format \"bsr\"; save it with .tocsr(), .tocsc() or .tocoo()");
}

/// What follows a dot in a directory's name is no ending.
#[test]
fn a_dataset_has_the_whole_name_of_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("ogbn-1.5"), dir.path().join("dataset"));
    let arrays = Arrays::new().put("src", &[0i64, 1], None).put("dst", &[1i64, 2], None);
    std::fs::rename(arrays.0.path(), &source).unwrap();
    numpy::import(&source, &target, NumpyOptions::default(), &Options::default(), &Silent).unwrap();
    assert_eq!(morphgl_graph_store::Meta::read(&target).unwrap().name, "ogbn-1.5");
}

/// Arrays that are ignored and odd data of nodes are in the notes of the dataset.
#[test]
fn notes_say_what_is_odd() {
    let notes = |arrays: Arrays, options: &Options| -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("dataset");
        numpy::import(arrays.0.path(), &target, NumpyOptions::default(), options, &Silent).unwrap();
        let meta = morphgl_graph_store::Meta::read(&target).unwrap();
        let notes = meta.provenance.get("notes").and_then(|n| n.as_array()).cloned().unwrap_or_default();
        notes.iter().map(|note| note.as_str().unwrap().to_string()).collect()
    };
    let edges = || Arrays::new().put("src", &[0i64, 1, 2], None).put("dst", &[1i64, 2, 3], None);
    let plain = Options::default();
    assert!(notes(edges(), &plain).is_empty());
    assert_eq!(
        notes(edges().put("edge_color", &[1.0f32; 3], None).put("time", &[1i64; 3], None), &plain),
        ["arrays of unknown names were left out: edge_color, time"]
    );
    assert_eq!(
        notes(edges().put("y", &[1i64, 2, 1, 2], None), &plain),
        ["no node is of class 0; if labels count from 1, take 1 off them"]
    );
    assert_eq!(notes(edges().put("y", &[0i64, 3, 0, 3], None), &plain), ["2 of 4 classes have no node: 1, 2"]);
    let split =
        || edges().put("y", &[0i64, -1, 1, 0], None).put("train", &[0i64, 1], None).put("test", &[1i64, 3], None);
    assert_eq!(
        notes(split(), &plain),
        [
            "1 nodes are in more than one split: their accuracy says nothing of unseen nodes",
            "1 of 2 training nodes have no label, and teach nothing",
            "1 of 2 test nodes have no label, and are not scored",
        ]
    );
    let shares = morphgl_formats::RandomSplit { train: 0.5, valid: 0.0, test: 0.5, seed: 0 };
    let drawn = Options { split: Some(shares), ..Options::default() };
    assert_eq!(notes(split(), &drawn), ["the source's own split was left out for a random one (--split)"]);
}

#[test]
fn a_real_graph_survives_export_and_import() {
    let source = morphgl_testdata::path("edge-lists/wiki-Vote.txt.gz");
    let format = edge_list::EdgeListOptions { ids: edge_list::Ids::Compact, ..Default::default() };
    let dataset = open(|target| edge_list::import(&source, target, &format, &Options::default(), &Silent));
    let dir = tempfile::tempdir().unwrap();
    let arrays = export_numpy(&dataset, &dir.path().join("arrays")).unwrap();
    let back = open(|target| numpy::import(&arrays, target, NumpyOptions::default(), &Options::default(), &Silent));
    assert_eq!((&back.topology, &back.node_ids), (&dataset.topology, &dataset.node_ids));
    let error = export_numpy(&dataset, &arrays).unwrap_err().to_string();
    assert_eq!(error, format!("{}: the output exists; choose another output or remove it first", arrays.display()));
}

/// A dataset with everything.
fn whole(pairs: &[(u32, u32)], dtype: Dtype, weighted: bool) -> Result<(TempDir, Dataset)> {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { feature_dtype: Some(dtype), ..Options::default() };
    let mut ingest = Ingest::new(Path::new("whole"), &dir.path().join("whole"), &options, &Silent)?;
    let mut sink = ingest.edges(Path::new("whole"), Some(9), weighted)?;
    for (i, &(u, v)) in pairs.iter().enumerate() {
        sink.push(&[u], &[v], weighted.then_some(&[i as f32]))?;
    }
    sink.finish()?;
    let mut features = ingest.features(Path::new("x"), 2, Dtype::F32)?;
    features.push(&(0..18).map(|i| i as f32).collect::<Vec<_>>())?;
    features.finish()?;
    ingest.labels(Path::new("y"), &[0, 1, 2, 0, 1, 2, -1, 1, 2], None)?;
    ingest.splits(Path::new("split"), &[3, 0], &[1], &[2, 8])?;
    let dataset = Dataset::open(ingest.finish()?, Default::default())?;
    Ok((dir, dataset))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn import_is_the_inverse_of_export(
        pairs in prop::collection::vec((0u32..9, 0u32..9), 0..40),
        dtype in prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::U8, Dtype::Bf16]),
        weighted: bool,
    ) {
        let (dir, dataset) = whole(&pairs, dtype, weighted).unwrap();
        let arrays = export_numpy(&dataset, &dir.path().join("arrays")).unwrap();
        let options = Options { feature_dtype: (dtype == Dtype::Bf16).then_some(dtype), ..Options::default() };
        let back = open(|target| numpy::import(&arrays, target, NumpyOptions::default(), &options, &Silent));
        prop_assert_eq!(&back.topology, &dataset.topology);
        prop_assert_eq!(&back.features, &dataset.features);
        prop_assert_eq!((&back.labels, back.num_classes), (&dataset.labels, 3));
        prop_assert_eq!(&back.splits, &dataset.splits);
    }
}
