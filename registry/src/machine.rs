//! The machine: cores, memory, accelerators.

use std::fs;
use std::path::Path;

use morphgl_platform::system_memory;
use serde::{Deserialize, Serialize};

use crate::Place;

/// A device that a linked operator crate found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    /// Its place.
    pub place: Place,
    /// Its name, as its driver reports it.
    pub name: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
}

/// The machine as this process may use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores this process may use: the minimum of the machine's, its affinity mask and its cgroup's quota.
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
    /// Values that the system does not report are 0 (memory) or 1 (cores).
    pub fn probe() -> Self {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let field = |name: &str| -> u64 {
            let line = meminfo.lines().find(|l| l.starts_with(name));
            line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) * 1024
        };
        let (total, available) = match (field("MemTotal:"), field("MemAvailable:")) {
            // Without `/proc`, as in some containers: free memory is then without the page cache.
            (0, _) => system_memory().map_or((0, 0), |[total, free]| (total, free)),
            reported => reported,
        };
        // Without `/proc`, the cgroup of the mount, which is a container's own.
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_else(|_| "0::/\n".to_string());
        let (limit, free) = cgroups(Path::new("/sys/fs/cgroup"), &own);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = cpuinfo.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
        Self {
            cpu: name.map_or_else(|| std::env::consts::ARCH.to_string(), |(_, n)| n.trim().to_string()),
            // The standard library takes affinity and cgroup quota into account.
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: total.min(limit),
            available_bytes: available.min(free),
            accelerators: Vec::new(),
        }
    }
}

/// File names of a version of cgroups, and its field of `memory.stat` for inactive file cache of a cgroup and its descendants.
struct Version {
    limit: &'static str,
    used: &'static str,
    inactive: &'static str,
}

const V1: Version =
    Version { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", inactive: "total_inactive_file " };
const V2: Version = Version { limit: "memory.max", used: "memory.current", inactive: "inactive_file " };

/// The minimum memory limit of the cgroups in `own`, the text of `/proc/self/cgroup`, and the memory free under the limits;
/// `u64::MAX` without limits. Both versions may be mounted; one of them limits memory.
fn cgroups(mount: &Path, own: &str) -> (u64, u64) {
    // A line is `number:controllers:/path`; version 2 has number 0 and no controllers.
    let lines = own.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        match controllers {
            "" => Some((V2, mount.to_path_buf(), path)),
            _ => controllers.split(',').any(|c| c == "memory").then(|| (V1, mount.join("memory"), path)),
        }
    });
    lines.fold((u64::MAX, u64::MAX), |(min, free), (version, mount, path)| {
        let (limit, used) = cgroup(&version, &mount, path);
        (min.min(limit), free.min(limit.saturating_sub(used)))
    })
}

/// The minimum memory limit of a cgroup and its ancestors, `u64::MAX` without one, and the memory used under it.
///
/// Inactive file cache counts as free: the kernel drops it before it refuses memory.
/// In a container the path may be the host's, which does not exist; the container's own cgroup is then the mount point.
fn cgroup(version: &Version, mount: &Path, own: &str) -> (u64, u64) {
    let read = |file: &Path| fs::read_to_string(file).ok();
    let number = |file: &Path| read(file).and_then(|t| t.trim().parse::<u64>().ok());
    let below = mount.join(own);
    let groups = below.ancestors().take_while(|g| g.starts_with(mount));
    let tight = groups.filter_map(|g| Some((number(&g.join(version.limit))?, g))).min_by_key(|(limit, _)| *limit);
    let Some((limit, group)) = tight else { return (u64::MAX, 0) };
    let stat = read(&group.join("memory.stat")).unwrap_or_default();
    let inactive = stat.lines().find_map(|l| l.strip_prefix(version.inactive)?.parse::<u64>().ok()).unwrap_or(0);
    (limit, number(&group.join(version.used)).unwrap_or(0).saturating_sub(inactive))
}

#[cfg(test)]
mod tests;
