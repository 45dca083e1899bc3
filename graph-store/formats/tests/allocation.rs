//! Lengths that a file claims cost no memory: they are trusted only as far as the file has bytes.

#[path = "../../../fuzz/src/counting.rs"]
mod counting;
mod data;

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use counting::{NOW, PEAK};
use data::{npy, write, write_gz, write_npz};
use morphgl_formats::{Options, Silent, npz, ogb, planetoid};

/// Runs `import`, which fails, and checks its peak of memory above the memory in use before.
#[track_caller]
fn check(what: &str, import: impl FnOnce(&Options) -> Result<(), String>) {
    const LIMIT: usize = 48 << 20;
    let options = Options { memory: 8 << 20, replace: true, ..Options::default() };
    PEAK.store(NOW.load(Relaxed), Relaxed);
    let before = NOW.load(Relaxed);
    let error = import(&options).expect_err(what);
    let taken = PEAK.load(Relaxed) - before;
    assert!(taken < LIMIT, "{what}: {taken} bytes for {error:?}");
}

/// One test, since the counters are the process's.
#[test]
fn claimed_lengths_cost_no_memory() {
    let tmp = tempfile::tempdir().unwrap();
    let target = tmp.path().join("out");
    let npz_file = tmp.path().join("bomb.npz");
    let import_npz =
        |options: &Options| npz::import(&npz_file, &target, options, &Silent).map(drop).map_err(|e| e.to_string());
    for (what, pickle) in [
        ("a string of 2 GiB", &b"T\xff\xff\xff\x7f"[..]),
        ("bytes of 16 EiB", b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("text of 4 GiB", b"X\xff\xff\xff\xff"),
        ("an integer of 2 GiB", b"\x8b\xff\xff\xff\x7f"),
        ("memo number 4294967295", b"Nr\xff\xff\xff\xff."),
        ("a frame of 16 EiB", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN."),
    ] {
        write_npz(&npz_file, true, &[("adj_matrix", npy("|O", "()", pickle))]);
        check(what, import_npz);
    }
    for shape in ["(999999,)", "(9999999999999,)", "(18446744073709551615, 0)"] {
        write_npz(&npz_file, true, &[("adj_data", npy("<f4", "(0,)", b"")), ("adj_shape", npy("<i8", shape, b""))]);
        check(shape, import_npz);
    }
    // 64 MiB of zeros in 64 KiB, as an object and after a short array.
    write_npz(&npz_file, true, &[("adj_matrix", npy("|O", "()", &vec![0; 64 << 20]))]);
    check("a deflated object", import_npz);
    let shape = npy("<i8", "(1,)", &vec![0; 64 << 20]);
    write_npz(&npz_file, true, &[("adj_data", npy("<f4", "(0,)", b"")), ("adj_shape", shape)]);
    check("a deflated array", import_npz);

    let set = tmp.path().join("ogb");
    for (name, text) in [("num-node-list", "2\n"), ("num-edge-list", "1\n"), ("node-label", "0\n1\n")] {
        write_gz(&set.join(format!("raw/{name}.csv.gz")), text);
    }
    write_gz(&set.join("raw/edge.csv.gz"), "9999999999,1\n");
    check("an edge far outside", |options| {
        ogb::import(&set, &target, options, &Silent).map(drop).map_err(|e| e.to_string())
    });

    altered_pickles(&morphgl_testdata::path("planetoid"), tmp.path());
}

/// The real graph with one byte altered at a time, throughout the file.
fn altered_pickles(root: &Path, tmp: &Path) {
    let target = tmp.join("out");
    for ending in ["x", "y", "tx", "ty", "allx", "ally", "graph", "test.index"] {
        write(&tmp.join(format!("ind.cora.{ending}")), &fs::read(root.join(format!("ind.cora.{ending}"))).unwrap());
    }
    let path = tmp.join("ind.cora.tx");
    let original = fs::read(&path).unwrap();
    for at in (0..original.len()).step_by(original.len() / 40).chain(0..40) {
        let mut bytes = original.clone();
        bytes[at] = 0xff;
        fs::write(&path, bytes).unwrap();
        check(&format!("byte {at} altered"), |options| {
            match planetoid::import(&tmp.join("ind.cora"), &target, options, &Silent) {
                Ok(_) => Err("a byte of a value may be altered unseen".into()),
                Err(error) => Err(error.to_string()),
            }
        });
    }
}
