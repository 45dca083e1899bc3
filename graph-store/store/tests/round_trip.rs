//! Datasets read from RAM and by mmap equal the written ones.

use std::ptr::NonNull;
use std::sync::Arc;

use half::{bf16, f16};
use morphgl_graph_store::{
    Access, Array, Dataset, DatasetPath, DatasetWriter, Dtype, EdgeType, Element, FeatureMatrix, FeatureView, Load,
    NodeNames, NodeType, NpyWriter, OpenOptions, TargetMatrix, Topology, Types, read_npy,
};
use morphgl_platform::Pages;
use proptest::prelude::*;

const RAM: OpenOptions = OpenOptions { load: Load::Ram, verify: true };
const MMAP: OpenOptions = OpenOptions { load: Load::Mmap, verify: true };

/// Rows of in-neighbours, and one number per node to make features and labels from.
fn graphs() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<u8>)> {
    (1u32..40).prop_flat_map(|n| {
        let rows = prop::collection::vec(prop::collection::vec(0..n, 0..8), n as usize);
        (rows, prop::collection::vec(0u8..5, n as usize))
    })
}

fn write<T: Element>(rows: &[Vec<u32>], numbers: &[u8], dim: usize, value: impl Fn(u8) -> T) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
    let mut indptr = vec![0u64];
    indptr.extend(rows.iter().scan(0, |end, r| {
        *end += r.len() as u64;
        Some(*end)
    }));
    let indices = rows.concat();
    let weights: Vec<f32> = indices.iter().map(|&u| u as f32 / 2.0).collect();
    let features: Vec<T> = numbers.iter().flat_map(|&x| std::iter::repeat_n(value(x), dim)).collect();
    let labels: Vec<i32> = numbers.iter().map(|&x| i32::from(x) - 1).collect();
    writer.array("indptr", &indptr, None).expect("space on the disk");
    // In pieces, as a stream.
    let mut stream = writer.stream::<u32>("indices").expect("space on the disk");
    rows.iter().for_each(|r| stream.write(r).expect("space on the disk"));
    let meta = stream.finish(None).expect("space on the disk");
    writer.add("indices", meta);
    writer.array("weights", &weights, None).expect("space on the disk");
    writer.array("features", &features, Some(dim)).expect("space on the disk");
    writer.array("labels", &labels, None).expect("space on the disk");
    writer.array("train", &[0u32], None).expect("space on the disk");
    writer.finish("set", 4, Default::default()).expect("arrays that fit");
    dir
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn ram_and_mmap_equal_the_written_dataset((rows, numbers) in graphs(), dim in 1usize..5) {
        let dir = write(&rows, &numbers, dim, f32::from);
        let path = dir.path().join("set");
        let (ram, mmap) = (Dataset::open(&path, RAM).expect("sound"), Dataset::open(&path, MMAP).expect("sound"));
        prop_assert_eq!(&ram, &mmap);
        prop_assert!(mmap.topology.indices().is_mapped() && !ram.topology.indices().is_mapped());
        for (v, row) in rows.iter().enumerate() {
            prop_assert_eq!(ram.topology.neighbors(v as u32), &row[..]);
            prop_assert_eq!(ram.topology.degree(v as u32), row.len() as u64);
        }
        let weights = ram.topology.weights().expect("weights were written");
        prop_assert!(weights.iter().zip(rows.concat()).all(|(w, u)| *w == u as f32 / 2.0));
        prop_assert_eq!(ram.splits.train.to_vec(), vec![0]);
        prop_assert!(ram.splits.test.is_empty());
        let features = ram.features.expect("features were written");
        prop_assert_eq!((features.num_rows(), features.dim()), (numbers.len(), dim));
    }
}

#[test]
fn types_and_times_are_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("set");
    let mut writer = DatasetWriter::create(&path, false).expect("a fresh path");
    let node = |name: &str, count| NodeType { name: name.into(), count };
    let edge = |source: &str, name: &str, target: &str| EdgeType {
        source: source.into(),
        name: name.into(),
        target: target.into(),
    };
    let edges = vec![edge("paper", "cites", "paper"), edge("author", "writes", "paper")];
    let types = Types::new(vec![node("paper", 2), node("author", 1)], edges).expect("sound");
    writer.array("indptr", &[0u64, 1, 3, 3], None).expect("space on the disk");
    writer.array("indices", &[2u32, 0, 2], None).expect("space on the disk");
    writer.array("edge_types", &[1u16, 0, 1], None).expect("space on the disk");
    writer.array("node_times", &[1999i64, 2005, -1], None).expect("space on the disk");
    writer.array("edge_times", &[1999i64, 2005, 2005], None).expect("space on the disk");
    writer.array("features.1", &[0.5f32, 1.0], Some(2)).expect("space on the disk");
    writer.set_types(types.clone());
    writer.finish("set", 0, Default::default()).expect("arrays that fit");
    let json = std::fs::read_to_string(path.join("graph.json")).expect("readable");
    assert!(json.contains("\"version\": 2"), "{json}");

    let [ram, mmap] = [RAM, MMAP].map(|options| Dataset::open(&path, options).expect("sound"));
    assert_eq!(ram, mmap);
    assert_eq!(ram.topology.types().map(|types| &**types), Some(&types));
    assert_eq!(ram.topology.edge_types().map(|types| types.to_vec()), Some(vec![1, 0, 1]));
    assert_eq!(ram.topology.node_times().map(|times| times.to_vec()), Some(vec![1999, 2005, -1]));
    assert_eq!(ram.topology.edge_times().map(|times| times.to_vec()), Some(vec![1999, 2005, 2005]));
    let dims: Vec<_> = ram.features_by_type.iter().map(|matrix| matrix.as_ref().map(FeatureMatrix::dim)).collect();
    assert_eq!(dims, [None, Some(2)]);
}

/// Writes a graph of two nodes with three rows of a task; `changed` writes the array of this name.
fn with_rows(name: &str, changed: impl Fn(&mut DatasetWriter)) -> Result<std::path::PathBuf, String> {
    let dir = tempfile::tempdir().expect("a temporary directory").keep();
    let mut writer = DatasetWriter::create(dir.join("set"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 2], None).expect("space on the disk");
    writer.array("indices", &[1u32, 0], None).expect("space on the disk");
    for own in ["task_nodes", "task_times", "labels", "targets", "train", "test"].into_iter().filter(|own| *own != name)
    {
        match own {
            "task_nodes" => writer.array(own, &[1u32, 0, 1], None),
            "task_times" => writer.array(own, &[10i64, -4, 30], None),
            "labels" => writer.array(own, &[1i32, 0, -1], None),
            "targets" => writer.array(own, &[0.5f32, f32::NAN, 2.0], Some(1)),
            "train" => writer.array(own, &[0u32, 2, 0], None),
            _ => writer.array(own, &[2u32], None),
        }
        .expect("space on the disk");
    }
    changed(&mut writer);
    let written = writer.finish("set", 2, Default::default());
    written.map_err(|e| e.to_string().replace(&format!("{}/", dir.join("set").display()), ""))
}

#[test]
fn rows_of_a_task_are_kept_with_their_labels_targets_and_splits() {
    let path = with_rows("", |_| ()).expect("arrays that fit");
    let json = std::fs::read_to_string(path.join("graph.json")).expect("readable");
    assert!(json.contains("\"version\": 3"), "{json}");
    for load in [Load::Ram, Load::Mmap, Load::AllButFeatures, Load::Disk] {
        let dataset = Dataset::open(&path, OpenOptions { load, verify: true }).expect("sound");
        let rows = dataset.task_rows.as_ref().expect("rows");
        assert_eq!((&rows.nodes()[..], &rows.times()[..]), (&[1, 0, 1][..], &[10, -4, 30][..]));
        assert_eq!((dataset.num_nodes(), dataset.num_examples()), (2, 3), "examples are rows");
        assert_eq!((&dataset.splits.train[..], &dataset.splits.test[..]), (&[0, 2, 0][..], &[2][..]));
        assert_eq!(dataset.num_labelled(&[0, 1, 2]), 2);
        assert_eq!(dataset.targets.as_ref().map(|targets| targets.num_rows()), Some(3));
    }
    std::fs::remove_dir_all(path.parent().expect("a directory")).expect("removed");
}

#[test]
fn rows_of_a_task_that_do_not_fit_are_refused() {
    #[track_caller]
    fn check(expected: &str, name: &str, changed: impl Fn(&mut DatasetWriter)) {
        let refused = with_rows(name, changed).expect_err("refused");
        assert!(refused.starts_with(expected), "{refused}");
    }
    check("task_nodes.npy: node 2 does not exist, there are 2", "task_nodes", |writer| {
        writer.array("task_nodes", &[1u32, 0, 2], None).expect("space on the disk");
    });
    check("task_times.npy: task_times has 2 rows, expected 3 for 3 rows of the task", "task_times", |writer| {
        writer.array("task_times", &[1i64, 0], None).expect("space on the disk");
    });
    check("labels.npy: labels has 2 rows, expected 3 for 3 rows of the task", "labels", |writer| {
        writer.array("labels", &[1i32, 0], None).expect("space on the disk");
    });
    check("targets.npy: targets has 2 rows, expected 3 for 3 rows of the task", "targets", |writer| {
        writer.array("targets", &[1.0f32, 0.0], Some(1)).expect("space on the disk");
    });
    check("train.npy: row 3 does not exist, there are 3", "train", |writer| {
        writer.array("train", &[3u32], None).expect("space on the disk");
    });
    check("test.npy, element 1: row 1 is listed twice", "test", |writer| {
        writer.array("test", &[1u32, 1], None).expect("space on the disk");
    });
    check("task_times.npy: task_times cannot be u64", "task_times", |writer| {
        writer.array("task_times", &[1u64, 0, 1], None).expect("space on the disk");
    });
    check("graph.json: rows of a task have both task_nodes and task_times", "task_times", |_| ());
}

#[test]
fn pairs_of_link_prediction_are_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 3, 4], None).expect("space on the disk");
    writer.array("indices", &[1u32, 0, 2, 1], None).expect("space on the disk");
    writer.array("valid_edges", &[0u32, 2], Some(2)).expect("space on the disk");
    writer.array("valid_edges_negatives", &[0u32, 0, 0, 1], Some(2)).expect("space on the disk");
    let path = writer.finish("set", 0, Default::default()).expect("arrays that fit");
    for load in [Load::Ram, Load::Mmap, Load::AllButFeatures, Load::Disk] {
        let dataset = Dataset::open(&path, OpenOptions { load, verify: true }).expect("sound");
        assert_eq!(dataset.edges.valid_pairs(), [[0, 2]]);
        assert_eq!(dataset.edges.valid_negative_pairs(), [[0, 0], [0, 1]]);
        assert!(dataset.edges.test_pairs().is_empty() && dataset.edges.test_negatives.is_none());
        assert_eq!(*dataset.train_pairs(), [[0, 1], [1, 2]], "each undirected edge once");
        assert!(!dataset.edges.is_empty() && Dataset::new("none", dataset.topology).edges.is_empty());
    }
}

#[test]
fn targets_are_kept_with_unknown_ones_and_names() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 3, 4], None).expect("space on the disk");
    writer.array("indices", &[1u32, 0, 2, 1], None).expect("space on the disk");
    let values = [0.5, f32::NAN, -1.5, 2.0, f32::NAN, f32::NAN];
    writer.array("targets", &values, Some(2)).expect("space on the disk");
    let names: Vec<serde_json::Value> = ["mass", "charge"].map(Into::into).to_vec();
    let provenance = [("target_names".to_string(), names.into())].into();
    let path = writer.finish("set", 0, provenance).expect("arrays that fit");
    for load in [Load::Ram, Load::Mmap, Load::AllButFeatures, Load::Disk] {
        let dataset = Dataset::open(&path, OpenOptions { load, verify: true }).expect("sound");
        assert_eq!((dataset.target_dim(), dataset.labels.is_none()), (2, true), "{load:?}");
        assert_eq!(dataset.targets, TargetMatrix::new(values.to_vec(), 2).ok(), "{load:?}");
        let schema = dataset.path.meta().expect("files").schema();
        assert_eq!(schema.targets, Some(vec!["mass".to_string(), "charge".to_string()]));
    }
}

#[test]
fn every_feature_type_is_kept() {
    let rows = vec![vec![], vec![0]];
    let open = |dir: &tempfile::TempDir| Dataset::open(dir.path().join("set"), MMAP).expect("sound").features;
    let widened = |view: FeatureView<'_>| {
        let mut out = vec![0.0; view.len()];
        view.to_f32(&mut out);
        out
    };
    for features in [
        open(&write(&rows, &[1, 3], 3, f32::from)),
        open(&write(&rows, &[1, 3], 3, f16::from)),
        open(&write(&rows, &[1, 3], 3, bf16::from)),
        open(&write(&rows, &[1, 3], 3, |x| x)),
    ] {
        let features = features.expect("features were written");
        assert_eq!(widened(features.view()), [1.0, 1.0, 1.0, 3.0, 3.0, 3.0], "{}", features.dtype());
        assert_eq!(widened(features.rows(1..2)), [3.0; 3], "{}", features.dtype());
    }
}

#[test]
fn numpy_files_of_other_writers_are_read() {
    // Version 2.0 of the format with its longer header, as numpy may write it.
    let dict = "{'descr': '<u4', 'fortran_order': False, 'shape': (2,), }";
    let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
    let header = format!("{dict:<115}\n");
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend([7, 0, 0, 0, 9, 0, 0, 0]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.npy");
    std::fs::write(&path, bytes).expect("space on the disk");
    for load in [Load::Ram, Load::Mmap] {
        let (array, shape): (Array<u32>, _) = read_npy(&path, load).expect("a good file");
        assert_eq!((array.to_vec(), shape), (vec![7, 9], vec![2]));
    }
}

#[test]
fn a_file_of_many_pieces_is_read_whole() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("a.npy");
    // Some 26 MB: read in several pieces, the last one short, into huge pages where there are any.
    let values: Vec<u64> = (0..3_300_001u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let mut writer = NpyWriter::create(&path).expect("space on the disk");
    writer.write(&values).expect("space on the disk");
    writer.finish(None).expect("space on the disk");
    let (ram, _) = read_npy::<u64>(&path, Load::Ram).expect("a good file");
    let (mmap, _) = read_npy::<u64>(&path, Load::Mmap).expect("a good file");
    assert!(*ram == *values && *mmap == *values);
    assert_eq!(ram.as_ptr().align_offset(64), 0);
    for access in [Access::Random, Access::Sequential] {
        // Advice changes what is read ahead, not what is read.
        ram.advise(access);
        mmap.advise(access);
        assert_eq!(ram, mmap);
    }
}

#[test]
fn pages_become_an_array_of_whole_elements() {
    let pages = |len| Pages::zeroed(len).expect("a little memory");
    let mut filled = pages(8);
    filled.copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
    let array = Array::<u32>::from_pages(filled).expect("two elements");
    let copy = array.clone();
    drop(array);
    assert_eq!((copy.to_vec(), copy.is_mapped()), (vec![1, 2], false));
    assert_eq!(Array::<u32>::from_pages(pages(6)), None);
    assert_eq!(Array::<f64>::from_pages(pages(0)).map(|array| array.len()), Some(0));
}

#[test]
fn an_unfinished_dataset_leaves_no_trace() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
    assert!(writer.dir().exists());
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
}

#[test]
fn replacing_is_all_or_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (set, old) = (dir.path().join("set"), dir.path().join(".set.old"));
    let write = |labels: &[i32]| {
        let mut writer = DatasetWriter::create(&set, true).expect("a dataset or nothing there");
        writer.array("indptr", &vec![0u64; labels.len() + 1], None).expect("space on the disk");
        writer.array::<u32>("indices", &[], None).expect("space on the disk");
        writer.array("labels", labels, None).expect("space on the disk");
        writer.finish("set", 2, Default::default()).expect("arrays that fit");
    };
    let labels = || Dataset::open(&set, RAM).expect("sound").labels.expect("labels were written").to_vec();
    write(&[0]);
    write(&[1, 1]);
    assert_eq!((labels(), old.exists()), (vec![1, 1], false));
    // Killed between the two renames: the next writer finds the old dataset and puts it back, even if it fails itself.
    std::fs::rename(&set, &old).expect("a rename");
    let error = Dataset::open(&set, RAM).expect_err("not at its place").to_string();
    assert!(error.contains("killed while it replaced this dataset") && error.contains(".set.old"), "{error}");
    DatasetWriter::create(&set, false).expect_err("the old dataset is back");
    assert_eq!((labels(), old.exists()), (vec![1, 1], false));
    // Killed after them: what is left of the old one is removed.
    std::fs::create_dir(&old).expect("space on the disk");
    write(&[0]);
    assert_eq!((labels(), old.exists()), (vec![0], false));
}

#[cfg(target_os = "linux")]
#[test]
fn leftovers_of_a_killed_process_are_removed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Process ids end below 2^22 on Linux, so this one does not live; the first process always does.
    for name in [".set.partial-99999999", ".set.partial-1", ".settle.partial-99999999"] {
        std::fs::create_dir(dir.path().join(name)).expect("space on the disk");
    }
    drop(DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path"));
    let entries = std::fs::read_dir(dir.path()).expect("readable");
    let mut names: Vec<_> = entries.map(|e| e.expect("readable").file_name()).collect();
    names.sort();
    assert_eq!(names, [".set.partial-1", ".settle.partial-99999999"]);
}

#[test]
fn topologies_are_checked() {
    let error = |indptr: Vec<u64>, indices: Vec<u32>| Topology::new(indptr, indices, None).expect_err("impossible");
    assert_eq!(error(vec![], vec![]), "indptr, element 0: the array is empty and must hold at least one offset");
    assert_eq!(error(vec![0, 2, 1], vec![0, 1]), "indptr, element 2: the offset decreases from 2 to 1");
    assert_eq!(error(vec![0, 1], vec![1]), "indices, element 0: an edge comes from node 1, but there are 1 nodes");
    assert_eq!(error(vec![1, 1], vec![]), "indptr, element 0: the first offset is 1 and must be 0");
    assert_eq!(error(vec![0, 1], vec![]), "indptr, element 1: the last offset is 1, but there are 0 edges");
}

#[test]
fn draw_keys_are_a_permutation_of_the_nodes() {
    let path = || Topology::new(vec![0u64, 1, 3, 4], vec![1u32, 0, 2, 1], None).expect("a path");
    assert_eq!((path().draw_keys(), path().draw_key(2)), (None, 2));
    let error = |keys: Vec<u32>| path().with_draw_keys(keys).expect_err("no permutation");
    assert_eq!(error(vec![0, 1]), "draw_keys, element 0: 2 elements for 3 nodes");
    assert_eq!(error(vec![2, 3, 0]), "draw_keys, element 1: node 3 does not exist, there are 3");
    assert_eq!(error(vec![2, 1, 1]), "draw_keys, element 2: node 1 is listed twice");
    let keyed = path().with_draw_keys(vec![2, 0, 1]).expect("a permutation");
    assert_eq!([0, 1, 2].map(|v| keyed.draw_key(v)), [2, 0, 1]);
    assert_ne!(keyed, path());

    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
    writer.array("indptr", keyed.indptr(), None).expect("space on the disk");
    writer.array("indices", keyed.indices(), None).expect("space on the disk");
    writer.array("draw_keys", &[2u32, 0, 1], None).expect("space on the disk");
    let set = writer.finish("set", 0, Default::default()).expect("arrays that fit");
    for load in [Load::Ram, Load::Mmap, Load::Disk] {
        let dataset = Dataset::open(&set, OpenOptions { load, verify: true }).expect("sound");
        assert_eq!(dataset.topology, keyed);
        let keys = dataset.topology.draw_keys().expect("keys were written");
        assert_eq!(keys.is_mapped(), load == Load::Mmap, "{load:?}");
    }
}

#[test]
fn the_arrays_of_a_dataset_are_at_their_located_offsets() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 3, 4], None).expect("space on the disk");
    writer.array("indices", &[1u32, 0, 2, 1], None).expect("space on the disk");
    writer.array("features", &[0.5f32, 1.0, 2.0, 3.0, 4.0, 5.0], Some(2)).expect("space on the disk");
    writer.array("train", &[2u32], None).expect("space on the disk");
    let path = writer.finish("set", 0, Default::default()).expect("arrays that fit");
    let options = OpenOptions { load: Load::Disk, verify: true };
    let dataset = Dataset::open(&path, options).expect("what was written opens");
    let features = dataset.features.as_ref().expect("it has features");
    assert_eq!((dataset.num_nodes(), features.dim(), &*dataset.splits.train), (3, 2, &[2u32][..]));
    assert!(dataset.topology.indices().is_mapped() && !dataset.splits.train.is_mapped());
    let find = |name| DatasetPath::open(&path).and_then(|dataset| dataset.array(name));
    let array = find("features").expect("a dataset").expect("it has features");
    assert_eq!((array.dtype, &array.shape[..], array.num_bytes()), (Dtype::F32, &[3u64, 2][..], 24));
    let bytes = std::fs::read(&array.path).expect("the file is there");
    let row: &[f32] = &[2.0, 3.0];
    assert_eq!(bytes[array.offset as usize + 8..][..8], *row.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>());
    assert!(find("weights").expect("a dataset").is_none());
    // What is not looked at is not refused; what is looked at, is.
    let mut damaged = bytes;
    damaged[array.offset as usize..].fill(0xFF);
    std::fs::write(&array.path, &damaged).expect("space on the disk");
    assert!(Dataset::open(&path, options).is_ok());
    assert!(Dataset::open(&path, OpenOptions { load: Load::Mmap, verify: true }).is_err());
    std::fs::write(&array.path, &damaged[..damaged.len() - 1]).expect("space on the disk");
    let error = find("features").expect_err("a byte is missing").to_string();
    assert!(error.contains("features.npy, byte 151"), "{error}");
}

/// Files that are opened later are those of the dataset that was opened, or refused.
#[test]
fn a_dataset_that_is_replaced_while_it_is_open() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let target = dir.path().join("set");
    let write = |first: f32| {
        let mut writer = DatasetWriter::create(&target, true).expect("a fresh path, or a dataset");
        writer.array("indptr", &[0u64, 1, 2], None).expect("space on the disk");
        writer.array("indices", &[1u32, 0], None).expect("space on the disk");
        writer.array("features", &[first, 2.0], Some(1)).expect("space on the disk");
        writer.array("node_names", b"ab", None).expect("space on the disk");
        writer.array("node_name_ends", &[1u64, 2], None).expect("space on the disk");
        writer.finish("set", 0, Default::default()).expect("arrays that fit")
    };
    let first =
        |dataset: &Dataset| dataset.path.array("features")?.expect("there").read::<f32>(Load::Ram).map(|x| x[0]);
    write(1.0);
    let open = |load| Dataset::open(&target, OpenOptions { load, verify: true }).expect("what was written opens");
    let [on_disk, mapped, in_memory] = [Load::Disk, Load::Mmap, Load::Ram].map(open);
    let checksums = on_disk.path.checksums();
    assert_eq!(first(&in_memory).expect("still there"), 1.0);
    write(7.0);
    assert_eq!(first(&on_disk).expect("its files are open"), 1.0);
    assert!(NodeNames::of(&on_disk.path).expect("its files are open").is_some());
    for dataset in [&mapped, &in_memory] {
        let error = first(dataset).expect_err("its files are gone").to_string();
        assert!(error.contains("another one has taken its place"), "{error}");
        NodeNames::of(&dataset.path).expect_err("its files are gone");
    }
    assert_eq!(on_disk.path.checksums(), checksums);
    let now = open(Load::Disk);
    assert!(now.path.checksums() != checksums && first(&now).expect("there") == 7.0);
    // Files that are overwritten one by one.
    let json = target.join("graph.json");
    let text =
        std::fs::read_to_string(&json).expect("there").replace(&now.path.checksums()["features"], "0123456789abcdef");
    std::fs::write(&json, text).expect("space on the disk");
    let error = first(&now).expect_err("another description").to_string();
    assert!(error.contains("it was changed since it was opened"), "{error}");
}

#[test]
fn foreign_memory_is_kept_by_its_owner_and_not_copied() {
    let owner = Arc::new(vec![7_u32, 8, 9]);
    let start = NonNull::from(&owner[1..]).cast::<u32>();
    // SAFETY: two elements of the vector, which the array owns.
    let array = unsafe { Array::from_foreign(start, 2, Arc::<Vec<u32>>::clone(&owner)) }.expect("aligned");
    assert_eq!((&*array, array.as_ptr()), (&[8, 9][..], start.as_ptr().cast_const()));
    let copy = array.clone();
    drop(array);
    assert_eq!(Arc::strong_count(&owner), 2);
    drop(copy);
    assert_eq!(Arc::strong_count(&owner), 1);
    let misaligned = NonNull::from(&bytemuck::cast_slice::<u32, u8>(&owner)[1..]).cast::<u32>();
    // SAFETY: no array is made of it.
    assert_eq!(unsafe { Array::from_foreign(misaligned, 1, owner) }, None);
}
