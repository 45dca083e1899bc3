//! What the machine has.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Place;

/// A device that a linked operator crate found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Its place.
    pub place: Place,
    /// Its name, as its driver says it.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

/// The machine as this process may use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores this process may use: the least of the machine's, its affinity mask and its cgroup's quota.
    pub cores: usize,
    /// Memory in bytes this process may use: the lesser of the machine's and its cgroup's limit.
    pub memory_bytes: u64,
    /// Memory in bytes that is free now, within that limit.
    pub available_bytes: u64,
    /// Devices found by the linked operators.
    pub accelerators: Vec<Accelerator>,
}

impl Machine {
    /// Looks at cores, memory and cgroup limits; accelerators are added by [`crate::Registry::new`].
    ///
    /// What the system does not tell is 0 (memory) or 1 (cores).
    pub fn probe() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let field = |name: &str| -> u64 {
            let line = meminfo.lines().find(|l| l.starts_with(name));
            line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        let (total, available) = (field("MemTotal:"), field("MemAvailable:"));
        let (limit, used) = cgroup(Path::new("/sys/fs/cgroup"), &own_cgroup());
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
        Self {
            cpu: name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, n)| n.trim().to_string()),
            // The standard library takes affinity and cgroup quota into account.
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: total.min(limit),
            available_bytes: available.min(limit.saturating_sub(used)),
            accelerators: Vec::new(),
        }
    }
}

/// Path of this process's cgroup (version 2) below the mount point, empty where there is none.
fn own_cgroup() -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    own.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or_default().to_string()
}

/// The least memory limit of a cgroup and those above it, and what is used under it; no limit is `u64::MAX`.
///
/// Cache of files that nobody uses just now counts as free: the kernel gives it up before it refuses memory.
fn cgroup(mount: &Path, own: &str) -> (u64, u64) {
    let read = |file: &Path| fs::read_to_string(file).ok();
    let number = |file: &Path| read(file).and_then(|t| t.trim().parse::<u64>().ok());
    let below = mount.join(own);
    let groups = below.ancestors().take_while(|g| g.starts_with(mount));
    let tight = groups.filter_map(|g| Some((number(&g.join("memory.max"))?, g))).min_by_key(|(limit, _)| *limit);
    let Some((limit, group)) = tight else { return (u64::MAX, 0) };
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let idle = stat.lines().find_map(|l| l.strip_prefix("inactive_file ")?.parse::<u64>().ok()).unwrap_or(0);
    (limit, number(&group.join("memory.current")).unwrap_or(0).saturating_sub(idle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_cgroup_above_counts() {
        let mount = std::env::temp_dir().join(format!("morphgl-cgroup-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = mount.join(file);
            fs::create_dir_all(path.parent().expect("a file in a folder")).expect("room on the disk");
            fs::write(path, text).expect("room on the disk");
        };
        assert_eq!(cgroup(&mount, "a/b"), (u64::MAX, 0));
        write("a/b/memory.max", "max\n");
        assert_eq!(cgroup(&mount, "a/b"), (u64::MAX, 0));
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 500\ninactive_file 150\n");
        assert_eq!(cgroup(&mount, "a/b"), (1000, 550));
        write("a/b/memory.max", "900\n");
        write("a/b/memory.current", "20\n");
        assert_eq!(cgroup(&mount, "a/b"), (900, 20));
        fs::remove_dir_all(&mount).expect("it was there");
    }
}
