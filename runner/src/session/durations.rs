//! Durations by hand: a planning problem without a machine.

use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use morphgl_plan::{Bytes, Candidate, Durations, Hardware, Limits, Problem, Resource, RouteKeys};

/// Durations of the two routes of a machine with one accelerator, as `batching-cpu=20ms,workers=8,…`.
///
/// A route without its durations is left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ManualDurations {
    seconds: [Option<f64>; 5],
    workers: usize,
    batches: usize,
}

const NAMES: [&str; 5] = ["batching-cpu", "transferring-pcie", "batching-device", "transferring-device", "training"];
const EXAMPLE: &str = "batching-cpu=80ms,workers=8,transferring-pcie=4ms,batching-device=14ms,\
transferring-device=4ms,training=10ms,batches=1179";

impl FromStr for ManualDurations {
    type Err = anyhow::Error;

    fn from_str(s: &str) -> Result<Self> {
        let mut durations = Self { seconds: [None; 5], workers: 1, batches: 1179 };
        for part in s.split(',') {
            let part = part.trim();
            let (name, value) =
                part.split_once('=').with_context(|| format!("{part:?}: not name=value; for example {EXAMPLE}"))?;
            let count = || match value.parse::<usize>() {
                Ok(n) if (1..=10_000_000).contains(&n) => Ok(n),
                _ => bail!("{part:?}: not a count from 1 to 10,000,000"),
            };
            match (name, NAMES.iter().position(|n| *n == name)) {
                ("workers", _) => durations.workers = count()?,
                ("batches", _) => durations.batches = count()?,
                // clap prints only the outermost error of a chain.
                (_, Some(i)) => durations.seconds[i] = Some(seconds(value).map_err(|e| anyhow!("{part:?}: {e}"))?),
                _ => bail!("{name:?}: no such duration; there are {}, workers and batches", NAMES.join(", ")),
            }
        }
        Ok(durations)
    }
}

/// Seconds written with a unit: `1.5s`, `20ms`, `300us`.
pub(crate) fn seconds(text: &str) -> Result<f64> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("s", 1.0)];
    let (number, unit) = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))
        .context("a duration has a unit, s, ms or us; for example 20ms")?;
    match number.trim().parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x * unit),
        _ => bail!("not a duration; give 0 or more, for example 20ms"),
    }
}

impl ManualDurations {
    /// The planning problem.
    pub(crate) fn problem(&self, limits: Limits) -> Result<Problem> {
        let [host, pcie, device, gather, training] = self.seconds;
        let key = |name: &str| name.parse().expect("keys that are written here are valid");
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let route = |batching: &str, transferring: &str, hardware: [&[&str]; 2], durations: Durations| Candidate {
            keys: RouteKeys {
                batching: key(batching),
                transferring: key(transferring),
                training: key("Training_DEV_ByHand"),
            },
            hardware: Hardware {
                batching: names(hardware[0]),
                transferring: names(hardware[1]),
                training: names(&["DEV"]),
            },
            in_place: hardware[0].contains(&"DEV"),
            on_host: false,
            durations,
            bytes: Bytes::default(),
        };
        let training = training.context("training is missing; for example training=10ms")?;
        let mut routes = Vec::new();
        match (host, pcie) {
            (Some(host), Some(pcie)) => {
                let durations = Durations::constant(self.workers, host, pcie, training)?;
                routes.push(route("Batching_CPU_ByHand", "Transferring_PCIe_ByHand", [&["CPU"], &["PCIe"]], durations));
            }
            (None, None) => {}
            _ => bail!("the host's route needs both batching-cpu and transferring-pcie"),
        }
        match (device, gather) {
            (Some(device), gather) => {
                let durations = Durations::constant(1, device, gather.unwrap_or(0.0), training)?;
                let both: &[&str] = &["DEV", "PCIe"];
                routes.push(route("Batching_DEV+PCIe_ByHand", "Transferring_DEV+PCIe_ByHand", [both, both], durations));
            }
            (None, Some(_)) => bail!("transferring-device needs batching-device, too"),
            (None, None) => {}
        }
        if routes.is_empty() {
            bail!("no route has its durations; for example {EXAMPLE}");
        }
        let resources =
            vec![Resource::shared("CPU", self.workers), Resource::exclusive("PCIe"), Resource::exclusive("DEV")];
        Ok(Problem::new(self.batches, resources, routes)?.with_limits(limits))
    }
}

#[cfg(test)]
mod tests;
