//! Cores that this process and all others kept busy: a measurement beside other work is worth less.

use std::time::Instant;

/// Clock ticks per second in what Linux reports to programs, on every architecture.
const TICKS: f64 = 100.0;

/// Core-seconds of the machine and of this process at one moment; `None` where the system does not report them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    at: Instant,
    /// Time stolen by other guests of the host included.
    machine: Option<f64>,
    process: Option<f64>,
}

/// Mean number of busy cores; `None` where the system does not report it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cores {
    pub(crate) own: Option<f64>,
    pub(crate) others: Option<f64>,
}

impl Load {
    pub(crate) fn now() -> Self {
        let machine = std::fs::read_to_string("/proc/stat").ok().and_then(|text| machine_seconds(&text));
        Self { at: Instant::now(), machine, process: cpu_seconds() }
    }

    /// Busy cores from `self` until now, to two decimals.
    pub(crate) fn busy_cores(self) -> Cores {
        let now = Self::now();
        let seconds = (now.at - self.at).as_secs_f64().max(1e-9);
        let own = now.process.zip(self.process).map(|(end, start)| (end - start) / seconds);
        let all = now.machine.zip(self.machine).map(|(end, start)| (end - start) / seconds);
        let rounded = |cores: f64| (cores * 100.0).round() / 100.0;
        Cores { own: own.map(rounded), others: all.zip(own).map(|(all, own)| rounded(all - own)) }
    }
}

/// Core-seconds of this process.
pub(crate) fn cpu_seconds() -> Option<f64> {
    process_seconds(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Busy core-seconds in the first line of `/proc/stat`: all but idle and waiting for disks.
fn machine_seconds(stat: &str) -> Option<f64> {
    let ticks: Vec<f64> = stat.lines().next()?.split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    Some((user + nice + system + irq + softirq + steal) / TICKS)
}

/// User and system seconds in `/proc/self/stat`; the process's name, which may hold spaces, ends with the last parenthesis.
fn process_seconds(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

#[cfg(test)]
mod tests;
