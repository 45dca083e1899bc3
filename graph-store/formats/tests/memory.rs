//! The memory budget, measured by the peak of a process of its own.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use morphgl_formats::edge_list::{self, EdgeListOptions, Ids};
use morphgl_formats::{Options, Silent};

/// Set in the child: the directory it works in.
const CHILD: &str = "MORPHGL_TEST_MEMORY_DIR";
const BUDGET: u64 = 8 << 20;

#[test]
fn an_import_stays_within_its_budget() {
    if let Some(dir) = std::env::var_os(CHILD) {
        import(Path::new(&dir));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut text = std::io::BufWriter::new(std::fs::File::create(dir.path().join("edges.txt")).unwrap());
    for i in 0..2_000_000u64 {
        writeln!(text, "{} {}", i * 7919 % 50_021, i * 104_729 % 50_023).unwrap();
    }
    text.into_inner().unwrap();
    let run = |memory: u64, ids: &str| -> u64 {
        let test = std::env::current_exe().unwrap();
        let mut child = Command::new(test);
        child.args(["--nocapture"]).env(CHILD, dir.path());
        let output = child.env("BUDGET", memory.to_string()).env("IDS", ids).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        std::fs::read_to_string(dir.path().join("peak")).unwrap().parse().unwrap()
    };
    // Four million edges of eight bytes, and what else it takes: far more than the small budget.
    assert!(run(1 << 30, "keep") > 32 << 20);
    for ids in ["keep", "compact"] {
        let peak = run(BUDGET, ids);
        assert!(peak < BUDGET + (8 << 20), "{ids}: {peak} bytes for a budget of {BUDGET} and 8 MiB of fixed buffers");
    }
}

fn import(dir: &Path) {
    let number = |name: &str| std::env::var(name).unwrap();
    let options =
        Options { memory: number("BUDGET").parse().unwrap(), symmetrise: true, replace: true, ..Options::default() };
    let ids = if number("IDS") == "keep" { Ids::Keep } else { Ids::Compact };
    let format = EdgeListOptions { ids, ..EdgeListOptions::default() };
    let before = peak();
    edge_list::import(&dir.join("edges.txt"), &dir.join("dataset"), format, &options, &Silent).unwrap();
    std::fs::write(dir.join("peak"), (peak() - before).to_string()).unwrap();
}

/// Most memory this process ever held, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("the kernel tells the peak");
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
