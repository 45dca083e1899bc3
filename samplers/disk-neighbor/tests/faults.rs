//! Unreadable or invalid files: an error of one line with the file, the byte and the cure.

mod support;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use morphgl_batching_disk_neighbor::DiskNeighbor;
use morphgl_conformance::batching::{graphs, hops};
use morphgl_registry::{BatchId, Batching, BatchingContext, Place, Result, SamplerSettings, SeedSet};
use serde_json::json;

/// Bytes of the header of every array we write.
const HEADER: u64 = 128;

struct Set {
    dir: tempfile::TempDir,
    context: BatchingContext,
}

impl Set {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let made = graphs::random(5000, 9, false);
        support::write(&made, dir.path());
        let seeds: Vec<u32> = (0..5000).collect();
        let context = BatchingContext {
            seeds: SeedSet::new("seeds", &seeds, 5000).expect("each node once"),
            dataset: Arc::new(support::open(dir.path(), &made)),
            settings: SamplerSettings { batch_size: 5000, ..SamplerSettings::default() },
            gather: true,
            place: Place::Host,
            options: json!({ "cache": "none" }),
        };
        Self { dir, context }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("set").join(name)
    }

    /// Builds the operator, damages a file, then samples a mini-batch.
    fn first(&self, damage: impl FnOnce()) -> Result<()> {
        let operator = DiskNeighbor::new(&self.context)?;
        damage();
        operator.worker(1)?.prepare(BatchId::default(), None)?.wait().map(|_| ())
    }
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::File::options().write(true).open(path).expect("the file is there");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes)).expect("space on the disk");
}

#[track_caller]
fn check(result: Result<()>, words: &[&str]) {
    let text = result.expect_err("it cannot work").to_string();
    words.iter().for_each(|w| assert!(text.contains(w), "{text:?} does not say {w:?}"));
    assert!(!text.contains('\n') && text.contains("; "), "{text:?} is one line with a cure");
}

#[test]
fn a_file_that_is_cut_while_it_is_read() {
    let set = Set::new();
    let cut = |name: &str, bytes| {
        let file = fs::File::options().write(true).open(set.file(name)).expect("the file is there");
        file.set_len(bytes).expect("it can be cut");
    };
    // A read past the end is an error with the file's length.
    check(
        set.first(|| cut("features.npy", 1024)),
        &["mini-batch 0 of epoch 0", "features.npy, byte 1024", "cut short"],
    );
    let set = Set::new();
    let cut = || fs::File::options().write(true).open(set.file("indices.npy")).and_then(|f| f.set_len(2048));
    check(set.first(|| cut().expect("it can be cut")), &["indices.npy, byte 2048", "cut short"]);
}

#[test]
fn a_file_that_was_cut_before() {
    let set = Set::new();
    let file = fs::File::options().write(true).open(set.file("features.npy")).expect("the file is there");
    file.set_len(1000).expect("it can be cut");
    check(set.first(|| ()), &["features.npy, byte 1000", "promises"]);
}

#[test]
fn a_neighbour_that_does_not_exist() {
    let set = Set::new();
    let at = HEADER + 4 * 77;
    overwrite(&set.file("indices.npy"), at, &5000u32.to_le_bytes());
    // Node 0 has more than 77 in-neighbours, and fanout -1 reads this one.
    let mut all = Set { context: set.context.clone(), ..set };
    hops(&mut all.context.settings).fanouts = "-1".parse().expect("fanouts");
    check(all.first(|| ()), &["indices.npy, byte 436", "node 5000", "import it again"]);
    all.context.options = json!({ "cache": "inclusion" });
    check(all.first(|| ()), &["indices.npy, byte 436", "node 5000"]);
}

#[test]
fn offsets_that_decrease_or_do_not_end_at_the_number_of_edges() {
    let set = Set::new();
    overwrite(&set.file("indptr.npy"), HEADER + 8 * 100, &1u64.to_le_bytes());
    check(set.first(|| ()), &["indptr.npy, byte 928", "the offset 1 follows", "import it again"]);
    let set = Set::new();
    overwrite(&set.file("indptr.npy"), HEADER + 8 * 4999, &u64::MAX.to_le_bytes());
    check(set.first(|| ()), &["indptr.npy, byte 40120", "edges"]);
}

#[test]
fn offsets_that_change_while_they_are_read() {
    // The end of the last node's list, which is the end of the edges.
    for end in [1 << 20, u64::from(u32::MAX), u64::MAX - 1] {
        let mut set = Set::new();
        // Room for labels and orders at most: offsets stay on disk, and are read for every mini-batch.
        set.context.options = json!({ "memory_bytes": 1 });
        let damage = || overwrite(&set.file("indptr.npy"), HEADER + 8 * 5000, &end.to_le_bytes());
        check(set.first(damage), &["mini-batch 0", "indptr.npy, byte 40128", "the file changed", "import it again"]);
    }
}

#[test]
fn a_label_of_no_class() {
    let set = Set::new();
    overwrite(&set.file("labels.npy"), HEADER + 4 * 9, &77i32.to_le_bytes());
    check(set.first(|| ()), &["labels.npy, byte 164", "the label is 77"]);
}

#[test]
fn unsupported_contexts_are_refused() {
    let set = Set::new();
    let refused = |change: &dyn Fn(&mut BatchingContext), words: &[&str]| {
        let mut context = set.context.clone();
        change(&mut context);
        check(DiskNeighbor::new(&context).map(|_| ()), words);
    };
    refused(&|c| c.dataset = Arc::new(graphs::random(5000, 9, false)), &["made in memory", "morphgl generate"]);
    refused(&|c| c.options = json!({ "memory": 3 }), &["unknown field", "memory_bytes"]);
    refused(&|c| c.options = json!({ "depth": 0 }), &["depth of 0", "give 1 to 4096"]);
    refused(&|c| c.options = json!({ "block": 1000 }), &["block of 1000"]);
    refused(&|c| c.options = json!({ "gap": 1 << 30 }), &["gap of"]);
    refused(
        &|c| c.options = json!({ "cache": "degree" }),
        &["\"degree\": no cache policy", "auto, none, lru, sieve, in-degree"],
    );
    let lru = |c: &mut BatchingContext| (c.gather, c.options) = (false, json!({ "cache": "lru" }));
    refused(&lru, &["cache=lru holds feature rows", "name a hotness policy"]);
    refused(&|c| c.options = json!({ "cache": "hindsight" }), &["counts the epochs that are trained"]);
    refused(&|c| c.options = json!({ "cache_bytes": 100 }), &["cache_bytes=100", "tables of 1264 bytes"]);
    refused(&|c| c.place = "cuda:0".parse().expect("a place"), &["place", "cuda:0"]);
    refused(&|c| hops(&mut c.settings).fanouts.0.clear(), &["fanouts"]);
}

#[test]
fn edge_weights_are_not_read_from_disk() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut writer = morphgl_graph_store::DatasetWriter::create(dir.path().join("set"), false).expect("fresh");
    writer.array("indptr", &[0u64, 1, 2], None).expect("space on the disk");
    writer.array("indices", &[1u32, 0], None).expect("space on the disk");
    writer.array("weights", &[1f32, 2.0], None).expect("space on the disk");
    writer.finish("set", 0, Default::default()).expect("arrays that fit");
    let context = BatchingContext {
        seeds: SeedSet::new("seeds", &[0], 2).expect("a node"),
        dataset: Arc::new(support::open(dir.path(), &graphs::cycle(2))),
        ..Set::new().context
    };
    check(DiskNeighbor::new(&context).map(|_| ()), &["edge weights are not read from disk", "without weights"]);
}
