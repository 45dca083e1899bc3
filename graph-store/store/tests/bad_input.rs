//! Damaged datasets: an error of one line with the file and the cure.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dataset, DatasetWriter, Load, NpyWriter, OpenOptions};

struct Set {
    dir: tempfile::TempDir,
}

impl Set {
    /// A sound dataset: three nodes on a path, two classes.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut writer = DatasetWriter::create(dir.path().join("set"), false).expect("a fresh path");
        writer.array("indptr", &[0u64, 1, 3, 4], None).expect("space on the disk");
        writer.array("indices", &[1u32, 0, 2, 1], None).expect("space on the disk");
        writer.array("features", &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0], Some(2)).expect("space on the disk");
        writer.array("labels", &[0i32, 1, -1], None).expect("space on the disk");
        writer.array("train", &[0u32, 1], None).expect("space on the disk");
        writer.finish("set", 2, Default::default()).expect("arrays that fit");
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("set")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Replaces one array behind the dataset's back, checksum and all, so that only its content is wrong.
    fn replace<T: morphgl_graph_store::Element>(&self, name: &str, values: &[T], dim: Option<usize>) {
        let mut writer = NpyWriter::create(self.file(&format!("{name}.npy"))).expect("space on the disk");
        writer.write(values).expect("space on the disk");
        let meta = writer.finish(dim).expect("space on the disk");
        self.edit(|json| json["arrays"][name] = serde_json::to_value(&meta).expect("plain data"));
    }

    fn edit(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let path = self.file("graph.json");
        let mut json = serde_json::from_str(&fs::read_to_string(&path).expect("readable")).expect("JSON");
        change(&mut json);
        fs::write(&path, json.to_string()).expect("space on the disk");
    }

    #[track_caller]
    fn refused(&self, file: &str, words: &[&str]) {
        for load in [Load::Ram, Load::Mmap] {
            let error = Dataset::open(self.path(), OpenOptions { load, verify: true }).expect_err("damaged");
            line(&error, &self.file(file), words);
        }
    }
}

#[track_caller]
fn line(error: &morphgl_graph_store::Error, file: &Path, words: &[&str]) {
    let text = error.to_string();
    assert!(text.starts_with(&*file.to_string_lossy()), "{text:?} does not begin with {file:?}");
    assert!(!text.contains('\n') && text.contains("; "), "{text:?} is one line with a cure");
    words.iter().for_each(|w| assert!(text.contains(w), "{text:?} does not say {w:?}"));
}

#[test]
fn missing_dataset_and_missing_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let error = Dataset::open(dir.path().join("none"), OpenOptions::default()).expect_err("missing");
    line(&error, &dir.path().join("none"), &["there is no such dataset", "morphgl import"]);
    let error = Dataset::open(dir.path(), OpenOptions::default()).expect_err("not a dataset");
    line(&error, dir.path(), &["no graph.json"]);
    let set = Set::new();
    fs::remove_file(set.file("labels.npy")).expect("it was there");
    set.refused("labels.npy", &["no such file", "check the path"]);
}

#[test]
fn truncated_npy() {
    let set = Set::new();
    let bytes = fs::read(set.file("indices.npy")).expect("readable");
    fs::write(set.file("indices.npy"), &bytes[..bytes.len() - 3]).expect("space on the disk");
    set.refused("indices.npy", &["byte 141", "promises 144 bytes, the file has 141", "copy or create it again"]);
    fs::write(set.file("indices.npy"), &bytes[..7]).expect("space on the disk");
    set.refused("indices.npy", &["not a readable npy file"]);
    fs::write(set.file("indices.npy"), b"").expect("space on the disk");
    set.refused("indices.npy", &["not a readable npy file"]);
}

#[test]
fn wrong_dtype() {
    let set = Set::new();
    set.replace("indices", &[1i64, 0, 2, 1], None);
    set.refused("indices.npy", &["is i64, expected u32", "import the dataset again"]);
    let set = Set::new();
    let mut writer = NpyWriter::<f64>::create(set.file("labels.npy")).expect("space on the disk");
    writer.write(&[0.0, 1.0, 1.0]).expect("space on the disk");
    writer.finish(None).expect("space on the disk");
    set.refused("labels.npy", &["element type <f8, expected <i4 (i32)", "convert the array to i32"]);
    let set = Set::new();
    set.replace("features", &[0u64; 6], Some(2));
    set.refused("features.npy", &["features cannot be u64", "--dtype"]);
}

#[test]
fn impossible_structure() {
    let set = Set::new();
    set.replace("indices", &[1u32, 0, 3, 1], None);
    set.refused("indices.npy", &["element 2", "node 3, but there are 3 nodes", "import it again"]);
    let set = Set::new();
    set.replace("indptr", &[0u64, 3, 1, 4], None);
    set.refused("indptr.npy", &["element 2", "decreases from 3 to 1"]);
    let set = Set::new();
    set.replace("train", &[0u32, 9], None);
    set.refused("train.npy", &["element 1", "node 9 does not exist"]);
    let set = Set::new();
    set.replace("valid", &[0u32, 1, 0], None);
    set.refused("valid.npy", &["element 2", "node 0 is listed twice"]);
    let set = Set::new();
    set.replace("test_edges", &[0u32, 1, 2, 3], Some(2));
    set.refused("test_edges.npy", &["element 3", "node 3 does not exist"]);
    for (keys, words) in [(&[0u32, 1, 0][..], "node 0 is listed twice"), (&[0, 1, 3], "node 3 does not exist")] {
        let set = Set::new();
        set.replace("draw_keys", keys, None);
        set.refused("draw_keys.npy", &["element 2", words, "import it again"]);
    }
    let set = Set::new();
    set.replace("draw_keys", &[1u32, 0], None);
    set.refused("draw_keys.npy", &["draw_keys has 2 rows, expected 3 for 3 nodes"]);
}

#[test]
fn impossible_targets() {
    let set = Set::new();
    set.replace("targets", &[0.5f32, f32::NAN, -1.0, f32::NEG_INFINITY, 1.0, 2.0], Some(2));
    set.refused("targets.npy", &["element 3", "the target is -inf; NaN stands for an unknown one", "import it again"]);
    let set = Set::new();
    set.replace("targets", &[0.5f32, 1.0], Some(1));
    set.refused("targets.npy", &["targets has 2 rows, expected 3 for 3 nodes", "import the dataset again"]);
    let set = Set::new();
    set.replace("targets", &[0.5f32, 1.0, 2.0], None);
    set.refused("targets.npy", &["targets has 1 dimensions, expected 2"]);
    let set = Set::new();
    set.replace("targets", &[1i32, 0, 1], Some(1));
    set.refused("targets.npy", &["targets is i32, expected f32", "import the dataset again"]);
    let set = Set::new();
    set.replace("targets", &[0.5f32, 1.0, 2.0], Some(1));
    set.edit(|json| json["arrays"]["targets"]["shape"] = serde_json::json!([3, 0]));
    set.refused("targets.npy", &["targets has no columns, expected at least 1"]);
}

#[test]
fn nan_features_and_labels_out_of_range() {
    let set = Set::new();
    set.replace("features", &[0.0f32, 1.0, f32::NAN, 3.0, 4.0, 5.0], Some(2));
    set.refused("features.npy", &["element 2", "NaN"]);
    let set = Set::new();
    set.replace("labels", &[0i32, 2, 0], None);
    set.refused("labels.npy", &["element 1", "the label is 2, outside -1 (none) and 0..2"]);
    let set = Set::new();
    set.replace("labels", &[0i32, -2, 0], None);
    set.refused("labels.npy", &["the label is -2"]);
}

#[test]
fn dimension_mismatch() {
    let set = Set::new();
    set.replace("features", &[0.0f32; 8], Some(2));
    set.refused("features.npy", &["features has 4 rows, expected 3 for 3 nodes"]);
    let set = Set::new();
    set.edit(|json| json["arrays"]["features"]["shape"] = serde_json::json!([3, 1]));
    set.refused("features.npy", &["the shape is [3, 2], graph.json says [3, 1]"]);
}

#[test]
fn altered_content_fails_its_checksum() {
    let set = Set::new();
    let mut bytes = fs::read(set.file("features.npy")).expect("readable");
    *bytes.last_mut().expect("not empty") ^= 1;
    fs::write(set.file("features.npy"), bytes).expect("space on the disk");
    set.refused("features.npy", &["the checksum does not hold", "copy it or import the dataset again"]);
    // Without verification the structure is still sound, and that is all that is looked at.
    let options = OpenOptions { load: Load::Mmap, verify: false };
    Dataset::open(set.path(), options).expect("features are not read");
}

#[test]
fn newer_version() {
    let set = Set::new();
    set.edit(|json| {
        json["version"] = 4.into();
        json["arrays"] = "something this version knows nothing of".into();
    });
    set.refused("graph.json", &["dataset version 4 is newer than 3", "update morphgl"]);
    let set = Set::new();
    set.edit(|json| json["format"] = "else".into());
    set.refused("graph.json", &["the format is \"else\""]);
    let set = Set::new();
    set.edit(|json| json["arrays"]["indices"]["file"] = "x".repeat(5000).into());
    set.refused("graph.json", &["the name of an array or of its file has 5000 bytes"]);
    fs::write(set.file("graph.json"), "{").expect("space on the disk");
    set.refused("graph.json", &["line 1", "not a dataset description"]);
}

#[test]
fn an_existing_output_is_not_overwritten() {
    let set = Set::new();
    let error = DatasetWriter::create(set.path(), false).expect_err("it exists");
    line(&error, &set.path(), &["the output exists", "--force"]);
    let error = DatasetWriter::create(set.dir.path(), true).expect_err("not a dataset");
    line(&error, set.dir.path(), &["not a dataset"]);
}

/// A writer with sound arrays, of which those in `leave_out` are not there yet.
fn writer(dir: &Path, leave_out: &[&str]) -> DatasetWriter {
    let mut writer = DatasetWriter::create(dir.join("set"), false).expect("a fresh path");
    let mut add = |name: &str, add: &dyn Fn(&mut DatasetWriter) -> morphgl_graph_store::Result<()>| {
        if !leave_out.contains(&name) {
            add(&mut writer).expect("space on the disk");
        }
    };
    add("indptr", &|w| w.array("indptr", &[0u64, 1, 3, 4], None));
    add("indices", &|w| w.array("indices", &[1u32, 0, 2, 1], None));
    add("features", &|w| w.array("features", &[0.0f32, 1.0, 2.0], Some(1)));
    add("labels", &|w| w.array("labels", &[0i32, 1, -1], None));
    add("train", &|w| w.array("train", &[0u32, 1], None));
    writer
}

/// Whatever opening a dataset would refuse is refused before the dataset is renamed to its target.
#[test]
fn a_writer_refuses_what_could_not_be_opened() {
    let check = |name: &str, words: &[&str], add: &dyn Fn(&mut DatasetWriter)| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut writer = writer(dir.path(), &[name]);
        add(&mut writer);
        let error = writer.finish("set", 2, Default::default()).expect_err(name);
        line(&error, &dir.path().join("set").join(format!("{name}.npy")), words);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0, "{name}: nothing is left");
    };
    let array = |name: &'static str, values: &'static [u32]| {
        move |w: &mut DatasetWriter| w.array(name, values, None).expect("space")
    };
    check("test", &["element 2", "node 1 is listed twice"], &array("test", &[1, 0, 1]));
    check("valid", &["element 1", "node 2 is listed twice"], &array("valid", &[2, 2]));
    check("test", &["node 3 does not exist, there are 3"], &array("test", &[0, 3]));
    check("indices", &["an edge comes from node 7"], &array("indices", &[1, 0, 7, 1]));
    check("draw_keys", &["node 0 is listed twice"], &array("draw_keys", &[0, 0, 1]));
    check("draw_keys", &["node 9 does not exist"], &array("draw_keys", &[0, 9, 1]));
    check("labels", &["labels cannot be u32"], &array("labels", &[0, 1, 1]));
    let pairs = |name: &'static str, values: &'static [u32], dim: usize| {
        move |w: &mut DatasetWriter| w.array(name, values, Some(dim)).expect("space")
    };
    check("train_edges", &["node 3 does not exist, there are 3"], &pairs("train_edges", &[0, 1, 2, 3], 2));
    check("valid_edges", &["valid_edges has 3 columns, expected 2"], &pairs("valid_edges", &[0, 1, 2], 3));
    check("test_edges", &["test_edges has 1 dimensions, expected 2"], &array("test_edges", &[0, 1]));
    check("test_edges_negatives", &["negatives of no pairs"], &pairs("test_edges_negatives", &[0, 1], 2));
    check("train_edges_negatives", &["element 2", "has the source 2, not 0"], &|w| {
        w.array("train_edges", &[0u32, 1], Some(2)).expect("space");
        w.array("train_edges_negatives", &[0u32, 2, 2, 0], Some(2)).expect("space");
    });
    for offsets in [[0u64, 3, 1, 4], [1, 1, 3, 4], [0, 1, 3, 5]] {
        check("indptr", &["the offsets do not ascend from 0 to the 4 edges"], &move |w| {
            w.array("indptr", &offsets, None).expect("space");
        });
    }
    for label in [2, -2] {
        check("labels", &["outside -1 (none) and 0..2"], &move |w| {
            w.array("labels", &[0i32, label, 1], None).expect("space")
        });
    }
    for value in [f32::NAN, f32::INFINITY] {
        check("features", &["NaN or infinite"], &move |w| {
            w.array("features", &[0.0, value, 1.0], Some(1)).expect("space")
        });
        check("weights", &["a weight is not a finite number"], &move |w| {
            w.array("weights", &[1.0, 1.0, value, 1.0], None).expect("space");
        });
    }
    check("weights", &["a weight is not a finite number"], &|w| {
        w.array("weights", &[1.0f32, 1.0, -1.0, 1.0], None).expect("space");
    });
    let dir = tempfile::tempdir().expect("a temporary directory");
    let set = writer(dir.path(), &[]).finish("set", 2, Default::default()).expect("sound");
    Dataset::open(set, OpenOptions::default()).expect("sound");
}

#[test]
fn descriptions_of_impossible_sizes() {
    let set = Set::new();
    set.edit(|json| {
        let shape = serde_json::json!([1u64 << 40, 1u64 << 40]);
        json["arrays"]["more"] = serde_json::json!({ "file": "more.npy", "dtype": "f32", "shape": shape, "xxh3": "" });
    });
    set.refused("graph.json", &["the shape", "of more is impossibly large"]);
    let set = Set::new();
    set.edit(|json| json["arrays"]["labels"]["file"] = "../labels.npy".into());
    set.refused("graph.json", &["labels is not in a file of this directory"]);
}

#[test]
fn types_that_do_not_fit_are_refused() {
    let types = |count: u64| {
        serde_json::json!({
            "nodes": [{ "name": "a", "count": count }, { "name": "b", "count": 1 }],
            "edges": [{ "source": "a", "name": "to", "target": "a" }, { "source": "a", "name": "to", "target": "b" },
                { "source": "b", "name": "to", "target": "a" }],
        })
    };
    // The path 0 - 1 - 2, of which 2 is of type b, without the features of all nodes.
    let typed = || {
        let set = Set::new();
        set.edit(|json| json["types"] = types(2));
        set.edit(|json| drop(json["arrays"].as_object_mut().expect("arrays").remove("features")));
        set.replace("edge_types", &[0u16, 0, 2, 1], None);
        set
    };
    Dataset::open(typed().path(), OpenOptions::default()).expect("sound");

    let set = typed();
    set.edit(|json| json["types"] = types(3));
    set.refused("graph.json", &["the types have 4 nodes, the graph 3"]);
    let set = typed();
    set.edit(|json| drop(json["arrays"].as_object_mut().expect("arrays").remove("edge_types")));
    set.refused("graph.json", &["edge_types", "missing"]);
    let set = typed();
    set.edit(|json| drop(json.as_object_mut().expect("an object").remove("types")));
    set.refused("edge_types.npy", &["graph.json names no types"]);
    let set = typed();
    set.replace("edge_types", &[0u16, 0, 2, 0], None);
    set.refused("edge_types.npy", &["element 3", "node 1 (a) to node 2 (b)", "a-to-a"]);
    let set = typed();
    set.replace("edge_times", &[0i64, 1], None);
    set.refused("edge_times.npy", &["2 rows, expected 4"]);
    let set = typed();
    set.replace("features.2", &[0.5f32], Some(1));
    set.refused("features.2.npy", &["no node type", "there are 2"]);
    let set = typed();
    set.replace("features.1", &[0.5f32, 0.5], Some(1));
    set.refused("features.1.npy", &["expected 1 rows", "\"b\""]);
    let set = typed();
    set.replace("features.1", &[f32::NAN], Some(1));
    set.refused("features.1.npy", &["NaN"]);
    let set = typed();
    set.replace("features", &[0.5f32; 3], Some(1));
    set.replace("features.1", &[0.5f32], Some(1));
    set.refused("features.1.npy", &["both features and features.1"]);
}
