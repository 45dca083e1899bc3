//! Seconds of each phase on a described machine. The formulas are those of `docs/machines.md`; none has a fitted constant.

use morphgl_registry::Place;

use crate::MachineDescription;
use crate::machine::{DeviceDescription, LinkDescription};

/// Bytes of a device's read of one random edge in the host's memory: the smallest transaction of PCIe that GPUs make.
const EDGE_READ: f64 = 32.0;
/// Bytes of a sector, of which a device reads whole ones.
const SECTOR: usize = 32;

/// Operations and memory traffic of a step of training.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepWork {
    /// Floating point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

impl LinkDescription {
    fn seconds(&self, bytes: f64) -> f64 {
        self.latency_us * 1e-6 + bytes / (self.gb_per_s * 1e9)
    }
}

impl DeviceDescription {
    fn launch(&self) -> f64 {
        self.launch_us * 1e-6
    }

    /// Whether it keeps a topology of so many bytes in its own memory: one of at most half of it.
    pub fn holds(&self, topology_bytes: u64) -> bool {
        topology_bytes as f64 <= self.memory_gb * 1e9 / 2.0
    }
}

impl MachineDescription {
    /// Bytes per second of the host's memory that one core has.
    fn core_bandwidth(&self) -> f64 {
        self.host.bandwidth_gb_per_s * 1e9 / self.host.cores as f64
    }

    /// A core samples `edges` edges, and gathers `bytes` of features: it reads and writes them.
    pub fn host_batching(&self, edges: f64, bytes: f64) -> f64 {
        edges / (self.host.sampling_m_edges_per_s * 1e6) + 2.0 * bytes / self.core_bandwidth()
    }

    /// A device samples `edges` edges of a topology of so many bytes; `None` where it does not sample.
    pub fn device_batching(&self, device: &DeviceDescription, edges: f64, topology_bytes: u64) -> Option<f64> {
        let sampling = edges / (device.sampling_m_edges_per_s? * 1e6);
        let reading = if device.holds(topology_bytes) { 0.0 } else { self.link(device).seconds(EDGE_READ * edges) };
        Some(device.launch() + sampling.max(reading))
    }

    /// A mini-batch of so many bytes is copied from the host to a device.
    pub fn copying(&self, device: &DeviceDescription, bytes: f64) -> f64 {
        self.link(device).seconds(bytes)
    }

    /// A mini-batch of so many bytes is copied from one device to another: over their peer connection where there is one, else over
    /// both links through the host, as fast as the slower of them.
    pub fn copying_between(&self, from: &DeviceDescription, to: &DeviceDescription, bytes: f64) -> f64 {
        match self.peer_gb_per_s {
            Some(gb_per_s) => bytes / (gb_per_s * 1e9),
            None => {
                let [from, to] = [from, to].map(|device| self.link(device));
                (from.latency_us + to.latency_us) * 1e-6 + bytes / (from.gb_per_s.min(to.gb_per_s) * 1e9)
            }
        }
    }

    /// A device reads so many rows of features in the host's memory, whole sectors of each.
    pub fn gathering(&self, device: &DeviceDescription, rows: f64, row_bytes: usize) -> f64 {
        let sectors = row_bytes.div_ceil(SECTOR) * SECTOR;
        device.launch() + self.link(device).seconds(rows * sectors as f64)
    }

    /// A device gathers so many cached rows of features within its own memory: it reads and writes them.
    pub fn gathering_cached(&self, device: &DeviceDescription, rows: f64, row_bytes: usize) -> f64 {
        2.0 * rows * row_bytes as f64 / (device.bandwidth_gb_per_s * 1e9)
    }

    /// The host gathers so many rows of features for a device: it gets the ids, 4 bytes each; a core reads and writes the rows; they are
    /// copied.
    pub fn host_gathering(&self, device: &DeviceDescription, rows: f64, row_bytes: usize) -> f64 {
        let bytes = rows * row_bytes as f64;
        self.link(device).seconds(4.0 * rows) + 2.0 * bytes / self.core_bandwidth() + self.link(device).seconds(bytes)
    }

    /// A step of training on a device.
    pub fn device_training(&self, device: &DeviceDescription, work: StepWork) -> f64 {
        let computing = work.flops / (device.tflop_per_s * 1e12 * self.efficiency);
        device.launch() + computing.max(work.bytes / (device.bandwidth_gb_per_s * 1e9))
    }

    /// A step of training on so many of the host's cores.
    pub fn host_training(&self, threads: usize, work: StepWork) -> f64 {
        let threads = threads.clamp(1, self.host.cores) as f64;
        let computing = work.flops / (threads * self.host.gflop_per_s * 1e9 * self.efficiency);
        computing.max(work.bytes / (threads * self.core_bandwidth()))
    }

    /// The all-reduce of so many bytes of gradients over a ring of the trainers at these places: each sends and receives
    /// `2 (n - 1) / n` of them in `2 (n - 1)` steps, as fast as the slowest of them. Between devices over their peer connections where
    /// they have them, else over the links.
    pub fn all_reduce(&self, places: &[Place], bytes: f64) -> f64 {
        let n = places.len() as f64;
        if places.len() < 2 {
            return 0.0;
        }
        let peers = self.peer_gb_per_s.filter(|_| places.iter().all(|place| self.device(place).is_some()));
        let end = |place: &Place| match (peers, self.device(place)) {
            (Some(gb_per_s), _) => (gb_per_s, 0.0),
            (None, Some(device)) => (self.link(device).gb_per_s, self.link(device).latency_us * 1e-6),
            (None, None) => (self.host.bandwidth_gb_per_s, 0.0),
        };
        let slowest = |(rate, latency): (f64, f64), (other, later): (f64, f64)| (rate.min(other), latency.max(later));
        let (gb_per_s, latency) = places.iter().map(end).fold((f64::INFINITY, 0.0), slowest);
        2.0 * (n - 1.0) * (bytes / n / (gb_per_s * 1e9) + latency)
    }
}

#[cfg(test)]
mod tests;
