//! NUMA nodes of the host, as Linux lists them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::words;

/// A NUMA node with cores that this process may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its cores that are in this process's affinity mask.
    pub cores: Vec<u32>,
    /// Bytes of its memory; 0 where the system does not say.
    pub memory_bytes: u64,
}

impl NumaNode {
    /// The nodes of the host with cores that this process may use, by number; none where the system lists no nodes.
    pub fn all() -> Vec<Self> {
        Self::listed(Path::new("/sys/devices/system/node"), &cores_of_this_process())
    }

    /// The nodes that the sysfs directory `root` lists, with those of their cores that the list `allowed` has; nodes without any
    /// are left out.
    fn listed(root: &Path, allowed: &str) -> Vec<Self> {
        let allowed: BTreeSet<u32> = numbers(allowed).into_iter().collect();
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        let node = |node: u32| {
            let cores: Vec<u32> = numbers(&read(&format!("node{node}/cpulist")));
            let meminfo = read(&format!("node{node}/meminfo"));
            let total = meminfo.lines().find(|line| line.contains("MemTotal:"));
            let kib = total.and_then(|line| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok());
            let cores: Vec<u32> = cores.into_iter().filter(|core| allowed.contains(core)).collect();
            Self { node, cores, memory_bytes: kib.unwrap_or(0) * 1024 }
        };
        numbers(&read("online")).into_iter().map(node).filter(|node| !node.cores.is_empty()).collect()
    }
}

/// The cores that this process may use, as Linux lists them.
pub(crate) fn cores_of_this_process() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores.unwrap_or_default().trim().to_string()
}

/// How to train on several nodes, for the user; `None` for one node, or none.
pub(crate) fn advice(nodes: &[NumaNode]) -> Option<String> {
    let list = |node: &NumaNode| {
        let (cores, memory) = (words::plural(node.cores.len() as u64, "core"), words::bytes(node.memory_bytes));
        format!("{} ({cores}, {memory})", node.node)
    };
    (nodes.len() > 1).then(|| {
        let list = nodes.iter().map(list).collect::<Vec<_>>().join(", ");
        let n = nodes.len();
        format!("NUMA nodes {list}: mpirun -n {n} --map-by numa --bind-to numa morphgl train … has a trainer on each")
    })
}

/// Parses a list of ranges such as `0-3,8`; skips malformed parts.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs directory of two sockets, a node with memory but no cores, and a node that is offline.
    fn host() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        fs::write(root.path().join("online"), "0-2\n").expect("written");
        for (node, cores, kib) in [(0, "0-3,8-11", 64), (1, "4-7,12-15", 128), (2, "", 512), (3, "16", 1)] {
            let folder = root.path().join(format!("node{node}"));
            fs::create_dir(&folder).expect("made");
            fs::write(folder.join("cpulist"), format!("{cores}\n")).expect("written");
            let meminfo = format!("Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:        1 kB\n");
            fs::write(folder.join("meminfo"), meminfo).expect("written");
        }
        root
    }

    #[test]
    fn nodes_are_those_of_the_affinity_mask() {
        let root = host();
        let cores = |allowed: &str| -> Vec<(u32, Vec<u32>)> {
            NumaNode::listed(root.path(), allowed).into_iter().map(|node| (node.node, node.cores)).collect()
        };
        assert_eq!(cores("0-15"), [(0, vec![0, 1, 2, 3, 8, 9, 10, 11]), (1, vec![4, 5, 6, 7, 12, 13, 14, 15])]);
        assert_eq!(cores("2,9,12"), [(0, vec![2, 9]), (1, vec![12])]);
        assert_eq!(cores("4-7"), [(1, vec![4, 5, 6, 7])]);
        assert_eq!(cores(""), []);
        assert_eq!(NumaNode::listed(Path::new("/nowhere"), "0-15"), []);
    }

    #[test]
    fn several_nodes_are_trained_on_by_ranks() {
        let root = host();
        let said = advice(&NumaNode::listed(root.path(), "0-15")).expect("two nodes");
        for words in ["0 (8 cores, 64.0 KiB), 1 (8 cores, 128.0 KiB)", "mpirun -n 2 --map-by numa --bind-to numa"] {
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(advice(&NumaNode::listed(root.path(), "0-3")), None);
    }
}
