//! The memory budget, measured by the peak of child processes.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::Command;

use morphgl_generate::{
    RelationalConfig, RelationalTask, RmatConfig, SbmConfig, TypedConfig, TypedFeatures, relational_to_disk,
    rmat_to_disk, sbm_to_disk, typed_to_disk,
};
use morphgl_graph_store::Dtype;

/// Set in a child: the directory it works in.
const DIR: &str = "MORPHGL_TEST_MEMORY_DIR";
/// Threads, and bytes of memory granted above the minimum that a graph needs.
const WITHIN: [(usize, u64); 3] = [(1, 0), (4, 12 << 20), (48, 0)];

#[derive(Debug)]
enum Graph {
    Sbm(SbmConfig),
    Rmat(RmatConfig),
    Typed(TypedConfig),
    Relational(RelationalConfig),
}

/// Graphs whose blocks of rows, features or tables take most of the memory.
fn graphs() -> Vec<Graph> {
    let base = SbmConfig { dim: 4, ..SbmConfig::default() };
    let kronecker = RmatConfig { nodes: 150_000, dim: 32, ..RmatConfig::default() };
    let typed = TypedConfig { nodes: 300_000, dim: 8, ..TypedConfig::default() };
    let relational = RelationalConfig { nodes: 500_000, dim: 8, ..RelationalConfig::default() };
    vec![
        Graph::Sbm(SbmConfig { nodes: 200_000, degree: 8.0, dim: 32, ..base.clone() }),
        Graph::Sbm(SbmConfig { nodes: 20_000, degree: 100.0, classes: 2, dtype: Dtype::U8, ..base.clone() }),
        Graph::Sbm(SbmConfig {
            nodes: 1_000_000,
            degree: 0.5,
            classes: 1,
            homophily: 1.0,
            dtype: Dtype::F16,
            ..base.clone()
        }),
        Graph::Sbm(SbmConfig { nodes: 40, classes: 4, degree: 3.0, dim: 1 << 20, ..base.clone() }),
        Graph::Sbm(SbmConfig { nodes: 20_000, classes: 9_000, degree: 2.0, homophily: 0.1, dim: 300, ..base }),
        Graph::Rmat(kronecker.clone()),
        Graph::Rmat(RmatConfig { symmetrise: true, dtype: Dtype::Bf16, ..kronecker.clone() }),
        Graph::Rmat(RmatConfig { nodes: 2_000_000, edge_factor: 0.5, dim: 1, classes: 2, ..kronecker }),
        Graph::Typed(typed.clone()),
        Graph::Typed(TypedConfig { nodes: 20_000, degree: 90.0, features: TypedFeatures::All, ..typed.clone() }),
        Graph::Typed(TypedConfig { classes: 1000, dim: 300, features: TypedFeatures::ByType, ..typed }),
        Graph::Relational(relational.clone()),
        Graph::Relational(RelationalConfig { degree: 300.0, classes: 3, ..relational.clone() }),
        Graph::Relational(RelationalConfig { task: RelationalTask::NextOrder, ..relational }),
    ]
}

#[test]
fn generating_stays_within_its_budget() {
    if let Some(dir) = std::env::var_os(DIR) {
        generate(Path::new(&dir));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut held = 0;
    for case in 0..graphs().len() {
        for (threads, more) in WITHIN {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--nocapture", "--test-threads=1"]).env(DIR, dir.path());
            let settings = [("CASE", case as u64), ("THREADS", threads as u64), ("MORE", more)];
            child.envs(settings.map(|(name, value)| (name, value.to_string())));
            let output = child.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let numbers = std::fs::read_to_string(dir.path().join("peak")).unwrap();
            let mut numbers = numbers.split(' ').map(|n| n.parse::<u64>().unwrap());
            let (taken, memory) = (numbers.next().unwrap(), numbers.next().unwrap());
            let what = format!("graph {case} on {threads} threads with {more} bytes more than the least");

            assert!(taken <= memory, "{what}: {taken} bytes of {memory}");
            held = held.max(taken);
        }
    }
    assert!(held > 40 << 20, "{held} bytes at most: no graph is large enough to tell anything");
}

/// Generates, and writes the peak above the memory of the process before, and the budget.
fn generate(dir: &Path) {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (case, more, target) = (number("CASE") as usize, number("MORE"), dir.join("graph"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(number("THREADS") as usize).build().unwrap();
    let before = peak();
    macro_rules! write {
        ($config:expr, $to_disk:ident) => {{
            let memory = $config.least_memory().unwrap() + more;
            $to_disk(&$config, &target, memory, true, &|_, _, _| {}).unwrap();
            memory
        }};
    }
    let memory = pool.install(|| match graphs().swap_remove(case) {
        Graph::Sbm(config) => write!(config, sbm_to_disk),
        Graph::Rmat(config) => write!(config, rmat_to_disk),
        Graph::Typed(config) => write!(config, typed_to_disk),
        Graph::Relational(config) => write!(config, relational_to_disk),
    });
    std::fs::write(dir.join("peak"), format!("{} {memory}", peak() - before)).unwrap();
}

/// Peak memory of this process, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("the kernel reports the peak");
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
