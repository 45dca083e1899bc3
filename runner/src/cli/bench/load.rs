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
mod tests {
    use super::{Load, busy, own};

    #[test]
    fn counters_are_read_from_their_columns() {
        let machine = "cpu  100 20 300 4000 50 6 7 800 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(busy(machine), Some((100.0 + 20.0 + 300.0 + 6.0 + 7.0 + 800.0) / 100.0));
        assert_eq!(busy("cpu 1 2"), None);
        let process = "7 (a b) c) R 1 7 7 0 -1 4194304 90 0 0 0 250 150 11 12 20 0 1 0 5 6 7";
        assert_eq!(own(process), Some(4.0));
        assert_eq!(own("nothing"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_of_this_process_is_its_own() {
        let load = Load::start();
        let mut x = 1u64;
        while load.at.elapsed().as_millis() < 300 {
            x = std::hint::black_box(x.wrapping_mul(6364136223846793005).wrapping_add(1));
        }
        let measured = load.end();
        assert!(measured.own.is_some_and(|own| own > 0.0), "{measured:?} {x}");
    }
}
