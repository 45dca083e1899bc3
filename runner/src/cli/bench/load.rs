//! How many cores this process kept busy, and how many all others did: a figure taken beside other work is worth less.

use std::time::Instant;

/// Clock ticks a second of what Linux reports to programs, on every architecture.
const TICKS: f64 = 100.0;

/// The machine's and this process's counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    at: Instant,
    /// Core-seconds the machine was busy, time stolen by other machines of its host included.
    busy: f64,
    own: f64,
}

/// Cores kept busy in the mean; `None` where the system does not tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) own: Option<f64>,
    pub(super) others: Option<f64>,
}

impl Load {
    pub(super) fn start() -> Self {
        let machine = std::fs::read_to_string("/proc/stat").ok().and_then(|text| busy(&text));
        Self { at: Instant::now(), busy: machine.unwrap_or(f64::NAN), own: cpu_seconds().unwrap_or(f64::NAN) }
    }

    pub(super) fn end(self) -> Measured {
        let now = Self::start();
        let seconds = (now.at - self.at).as_secs_f64().max(1e-9);
        let (own, all) = ((now.own - self.own) / seconds, (now.busy - self.busy) / seconds);
        let known = |cores: f64| cores.is_finite().then_some((cores * 100.0).round() / 100.0);
        Measured { own: known(own), others: known(all - own) }
    }
}

/// Core-seconds of this process.
pub(super) fn cpu_seconds() -> Option<f64> {
    own(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

/// Busy core-seconds in the first line of `/proc/stat`: all but idle and waiting for disks.
fn busy(stat: &str) -> Option<f64> {
    let ticks: Vec<f64> = stat.lines().next()?.split_whitespace().skip(1).map_while(|t| t.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, irq, soft, stolen, ..] = ticks[..] else { return None };
    Some((user + nice + system + irq + soft + stolen) / TICKS)
}

/// User and system seconds in `/proc/self/stat`; the name, which may hold spaces, ends with the last parenthesis.
fn own(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

#[cfg(test)]
mod tests;
