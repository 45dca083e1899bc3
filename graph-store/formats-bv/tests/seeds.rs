//! Two tiny graphs, the seeds of fuzzing, and damage that announces more than there can be.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_formats::{Options, RowContent, Silent};
use morphgl_formats_bv::import;
use morphgl_graph_store::Dataset;

fn seed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/bv").join(name)
}

#[test]
fn both_byte_orders_give_the_same_graph() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let target =
            import(&seed(name), &dir.path().join(name), RowContent::Sources, &Options::default(), &Silent).unwrap();
        Dataset::open(target, Default::default()).unwrap().topology
    };
    let (big, little) = (open("tiny"), open("little"));
    assert!(big == little && big.num_nodes() == 40);
    // `examples/tiny-formats-bv.rs` says which arcs the graph has.
    let near = |v: u32| (v / 4 * 4..v / 4 * 4 + 6).chain([v * 7 % 40, v * 11 % 40]);
    for v in 0..40 {
        let mut expected: Vec<u32> = near(v).filter(|&u| u < 40 && (u + v) % 9 != 0).collect();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(big.neighbors(v), expected, "{v}");
    }
}

/// Imports the seed with other bits or properties; it is refused with these words.
#[track_caller]
fn check_refused(bits: Option<&[u8]>, from: &str, to: &str, words: &str) {
    let dir = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(seed("tiny.properties")).unwrap();
    assert!(text.contains(from), "{from}");
    // Without the sums of bits, by which a short file is refused at once.
    let kept = text.lines().filter(|line| !line.starts_with("bitsfor")).map(|line| line.replace(from, to) + "\n");
    fs::write(dir.path().join("g.properties"), kept.collect::<String>()).unwrap();
    let bytes = bits.map_or_else(|| fs::read(seed("tiny.graph")).unwrap(), <[u8]>::to_vec);
    fs::write(dir.path().join("g.graph"), bytes).unwrap();
    let error =
        import(&dir.path().join("g"), &dir.path().join("out"), RowContent::Targets, &Options::default(), &Silent);
    let error = error.unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "something is left behind");
}

#[test]
fn announcements_cost_no_memory() {
    // An outdegree of 2^40 in gamma code: 40 zeros, a one and 40 bits. Its list would take 8 TiB.
    let degree = [&[0u8; 5][..], &[0x80], &[0; 10]].concat();
    check_refused(Some(&degree), "nodes=40", "nodes=40", "node 0 has 1099511627775 successors in a graph of 40 nodes");
    check_refused(None, "windowsize=7", "windowsize=99999999999", "lists refer to the 99999999999 before them");
    check_refused(None, "windowsize=7", "windowsize=1", "before its own");
    check_refused(None, "nodes=40", "nodes=20", "");
}
