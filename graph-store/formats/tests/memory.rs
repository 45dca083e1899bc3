//! The memory budget, measured by the peak of child processes.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::path::Path;
use std::process::Command;

use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{NodeFiles, Options, RowContent, Silent, UnknownNodes};
use morphgl_graph_store::NpyWriter;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Set in a child: the directory it works in.
const DIR: &str = "MORPHGL_TEST_MEMORY_DIR";
const EDGES: u64 = 500_000;
/// Bytes of the nodes' ids, which are mapped where nodes are renumbered.
const NODES_BYTES: u64 = 1 << 20;

/// Form of the edges.
#[derive(Debug, Clone, Copy)]
enum Way {
    Text,
    Compact,
    /// Text, from which the edges of most nodes are left out.
    KeepListed,
    CompactListed,
    /// Text with two features per edge.
    Features,
    /// The same, between nodes of two types.
    TypedFeatures,
    EdgeIndex,
    Sources,
    Targets,
}

const WAYS: [Way; 9] = [
    Way::Text,
    Way::Compact,
    Way::KeepListed,
    Way::CompactListed,
    Way::Features,
    Way::TypedFeatures,
    Way::EdgeIndex,
    Way::Sources,
    Way::Targets,
];

#[test]
fn an_import_stays_within_its_budget() {
    if let Some(dir) = std::env::var_os(DIR) {
        import(Path::new(&dir));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    write_sources(dir.path());
    let run = |way: usize, threads: u64, memory: u64, symmetrise: bool| -> (u64, u64) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--nocapture", "--test-threads=1"]).env(DIR, dir.path());
        let settings = [("WAY", way as u64), ("THREADS", threads), ("BUDGET", memory), ("BOTH", symmetrise.into())];
        child.envs(settings.map(|(name, value)| (name, value.to_string())));
        let output = child.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let numbers = std::fs::read_to_string(dir.path().join("peak")).unwrap();
        let (taken, allowed) = numbers.split_once(' ').unwrap();
        (taken.parse().unwrap(), allowed.parse().unwrap())
    };
    let check = |way: usize, threads: u64, memory: u64, symmetrise: bool| {
        let (taken, allowed) = run(way, threads, memory, symmetrise);
        let what = format!("{:?} on {threads} threads in {memory} bytes, both ways: {symmetrise}", WAYS[way]);
        if taken > allowed { Err(format!("{what}: {taken} bytes of {allowed}")) } else { Ok(()) }
    };
    // Half a million edges in both directions, eight bytes each, and their buffers: far more than the small budgets.
    assert!(run(0, 2, 1 << 30, true).0 > 8 << 20);
    // So many threads that the scratch of each counts; so little memory that what an import takes besides counts.
    for way in 0..WAYS.len() {
        check(way, 64, 128 << 20, true).unwrap();
        check(way, 1, 2 << 20, true).unwrap();
    }
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 12, failure_persistence: None, ..Config::default() },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    );
    let threads = prop::sample::select(vec![1u64, 2, 4, 16, 64]);
    let cases = (0..WAYS.len(), threads, 20u32..28, 0u64..1 << 20, any::<bool>());
    let law = |(way, threads, bits, more, symmetrise)| {
        let memory = (1u64 << bits) + (more << (bits - 20));
        check(way, threads, memory, symmetrise).map_err(TestCaseError::fail)
    };
    runner.run(&cases, law).unwrap();
}

/// One graph in all forms.
fn write_sources(dir: &Path) {
    let ends = |i: u64| (i * 7919 % 50_021, i * 104_729 % 50_023);
    let mut text = std::io::BufWriter::new(std::fs::File::create(dir.join("edges.txt")).unwrap());
    (0..EDGES).map(ends).for_each(|(u, v)| writeln!(text, "{u} {v}").unwrap());
    text.into_inner().unwrap();
    let mut text = std::io::BufWriter::new(std::fs::File::create(dir.join("features.txt")).unwrap());
    (0..EDGES).map(ends).for_each(|(u, v)| writeln!(text, "{u} {v} {} 0.5", u % 9).unwrap());
    text.into_inner().unwrap();
    let rows: String = (0..20_000).map(|id| format!("{id},{}\n", id % 7)).collect();
    std::fs::write(dir.join("nodes.csv"), format!("id,label\n{rows}")).unwrap();
    let array = |name: &str, dim: Option<usize>, values: &[i64]| {
        std::fs::create_dir_all(dir.join(name).parent().unwrap()).unwrap();
        let mut out = NpyWriter::create(dir.join(name)).unwrap();
        out.write(values).unwrap();
        out.finish(dim).unwrap();
    };
    let (sources, targets): (Vec<i64>, Vec<i64>) = (0..EDGES).map(ends).map(|(u, v)| (u as i64, v as i64)).unzip();
    array("coo/edge_index.npy", Some(EDGES as usize), &[&sources[..], &targets].concat());
    let (nodes, degree) = (50_000, EDGES as i64 / 50_000);
    let offsets: Vec<i64> = (0..=nodes).map(|v| v * degree).collect();
    let indices: Vec<i64> = sources.iter().map(|u| u % nodes).collect();
    array("csc/indptr.npy", None, &offsets);
    array("csc/indices.npy", None, &indices);
}

/// Imports, and writes the peak above the memory of the process before, and the budget.
fn import(dir: &Path) {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (memory, symmetrise) = (number("BUDGET"), number("BOTH") != 0);
    let options = Options { memory, symmetrise, replace: true, ..Options::default() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number("THREADS") as usize).build().unwrap();
    let target = dir.join("dataset");
    let table = Some(dir.join("nodes.csv"));
    let nodes = NodeFiles { table, unknown_nodes: Some(UnknownNodes::Drop), ..NodeFiles::default() };
    let listed = Options { nodes, ..options.clone() };
    let text = |ids, options: &Options| {
        let format = EdgeListOptions { ids, ..EdgeListOptions::default() };
        edge_list::import(&dir.join("edges.txt"), &target, &format, options, &Silent)
    };
    let arrays = |source: &str, rows| {
        let format = NumpyOptions { rows: Some(rows), ..NumpyOptions::default() };
        numpy::import(&dir.join(source), &target, format, &options, &Silent)
    };
    let before = peak();
    let allowed = pool.install(|| {
        let made = match WAYS[number("WAY") as usize] {
            Way::Text => text(Ids::Keep, &options),
            Way::Compact => text(Ids::Compact, &options),
            Way::KeepListed => text(Ids::Keep, &listed),
            Way::CompactListed => text(Ids::Compact, &listed),
            way @ (Way::Features | Way::TypedFeatures) => {
                let features = vec![Column::Name("3-4".into())];
                let columns = Columns { features, ..Columns::default() };
                let format = EdgeListOptions { columns, ..EdgeListOptions::default() };
                let options = Options { bipartite: Some(matches!(way, Way::TypedFeatures)), ..options.clone() };
                edge_list::import(&dir.join("features.txt"), &target, &format, &options, &Silent)
            }
            Way::EdgeIndex => arrays("coo", RowContent::Sources),
            Way::Sources => arrays("csc", RowContent::Sources),
            Way::Targets => arrays("csc", RowContent::Targets),
        };
        made.unwrap();
        memory + Options::fixed_memory() + NODES_BYTES
    });
    std::fs::write(dir.join("peak"), format!("{} {allowed}", peak() - before)).unwrap();
}

/// Peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("the kernel reports the peak");
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
