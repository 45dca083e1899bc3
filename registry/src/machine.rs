//! What the machine has.

use std::fs;

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
        let number = |path: &str| fs::read_to_string(path).ok().and_then(|t| t.trim().parse::<u64>().ok());
        let limit = cgroup_file("memory.max").and_then(|p| number(&p)).unwrap_or(u64::MAX);
        let used = cgroup_file("memory.current").and_then(|p| number(&p)).unwrap_or(0);
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

/// Path of a file of this process's cgroup (version 2), where there is one.
fn cgroup_file(name: &str) -> Option<String> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::"))?.trim_end_matches('/').to_string();
    let file = format!("/sys/fs/cgroup{path}/{name}");
    fs::exists(&file).ok()?.then_some(file)
}
