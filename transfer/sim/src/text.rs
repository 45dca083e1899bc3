//! Text form of the configuration: `Display` and `FromStr` are inverses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use morphgl_registry::{BatchId, Error, ErrorKind, Result};

use crate::{Config, Fault, FaultKind, Slow, Work};

impl Work {
    /// All works, in printing order.
    pub const ALL: [Work; 6] = [
        Work::BatchingCpu,
        Work::TransferringPcie,
        Work::BatchingDevice,
        Work::TransferringDevice,
        Work::Training,
        Work::TransferringPeer,
    ];

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Work::BatchingCpu => "batching-cpu",
            Work::TransferringPcie => "transferring-pcie",
            Work::BatchingDevice => "batching-device",
            Work::TransferringDevice => "transferring-device",
            Work::Training => "training",
            Work::TransferringPeer => "transferring-peer",
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Kinds of faults by name.
const FAULTS: [(FaultKind, &str); 4] = [
    (FaultKind::Error, "error"),
    (FaultKind::Panic, "panic"),
    (FaultKind::Hang, "hang"),
    (FaultKind::Memory, "memory"),
];

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(FAULTS[*self as usize].1)
    }
}

/// Maximum number of devices: each has threads of its own.
const MAX_DEVICES: u32 = 64;

/// Units of durations, in nanoseconds, the largest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (work, duration) in Work::ALL.into_iter().zip(self.durations) {
            let nanos = duration.as_nanos();
            let (unit, size) =
                UNITS.into_iter().find(|(_, size)| nanos.is_multiple_of(u128::from(*size))).unwrap_or(("ns", 1));
            write!(f, "{work}={}{unit},", nanos / u128::from(size))?;
        }
        write!(f, "memory={},devices={},noise={}", self.memory, self.devices, self.noise)?;
        for Slow { work, factor, from } in &self.slow {
            write!(f, ",slow={work}*{factor}@{}:{}", from.epoch, from.index)?;
        }
        for Fault { work, kind, at } in &self.faults {
            write!(f, ",fault={work}:{kind}@{}:{}", at.epoch, at.index)?;
        }
        if !self.name.is_empty() {
            write!(f, ",name={}", self.name)?;
        }
        Ok(())
    }
}

impl FromStr for Config {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let mut config = Self::default();
        let mut keys = Vec::new();
        for part in s.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| wrong(part, "a part reads name=value"))?;
            let (key, value) = (key.trim(), value.trim());
            if keys.contains(&key) {
                return Err(wrong(part, "this part is given twice; give it once"));
            }
            match key {
                "memory" => {
                    let cure = "not a number of mini-batches; give at least 1, for example memory=14";
                    config.memory = value.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong(part, cure))?;
                }
                "devices" => {
                    let cure = "not a number of devices; give 1 to 64, for example devices=2";
                    let devices = value.parse().ok().filter(|n| (1..=MAX_DEVICES).contains(n));
                    config.devices = devices.ok_or_else(|| wrong(part, cure))?;
                }
                "noise" => config.noise = number(part, value)?,
                "name" if value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') => {
                    config.name = value.to_string();
                }
                "name" => return Err(wrong(part, "a name is ASCII letters, digits, '-' and '_'")),
                "slow" => config.slow.push(slow(part, value)?),
                "fault" => config.faults.push(fault(part, value)?),
                _ => config.durations[work(part, key)? as usize] = duration(part, value)?,
            }
            if !["slow", "fault"].contains(&key) {
                keys.push(key);
            }
        }
        Ok(config)
    }
}

fn wrong(part: &str, cure: &str) -> Error {
    Error::new(format!("simulated accelerator, {part:?}"), ErrorKind::Parse(cure.to_string()))
}

fn work(part: &str, name: &str) -> Result<Work> {
    Work::ALL.into_iter().find(|w| w.name() == name).ok_or_else(|| {
        let works = Work::ALL.map(Work::name).join(", ");
        wrong(part, &format!("{name:?} is unknown; there are {works}, memory, devices, noise, slow, fault and name"))
    })
}

fn duration(part: &str, value: &str) -> Result<Duration> {
    let cure = "not a duration; give a number with a unit of s, ms, us or ns, for example 5ms or 2.5ms";
    let split = value.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(|| wrong(part, cure))?;
    let (digits, unit) = value.split_at(split);
    let unit = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(|| wrong(part, cure))?.1;
    let whole = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let nanos = whole.or_else(|| {
        let nanos = (digits.parse::<f64>().ok()? * unit as f64).round();
        // Larger values overflow.
        (0.0..u64::MAX as f64).contains(&nanos).then_some(nanos as u64)
    });
    nanos.map(Duration::from_nanos).ok_or_else(|| wrong(part, cure))
}

fn number(part: &str, value: &str) -> Result<f64> {
    let cure = "not a factor; give a number from 0 to 1000, for example 0.1";
    value.parse().ok().filter(|x| (0.0..=1000.0).contains(x)).ok_or_else(|| wrong(part, cure))
}

fn batch(part: &str, value: &str) -> Result<BatchId> {
    let id = value.split_once(':').and_then(|(epoch, index)| {
        Some(BatchId { epoch: epoch.trim().parse().ok()?, index: index.trim().parse().ok()? })
    });
    id.ok_or_else(|| wrong(part, "after '@' comes a mini-batch as epoch:index, for example 0:17"))
}

fn slow(part: &str, value: &str) -> Result<Slow> {
    let pieces = value.split_once('*').and_then(|(name, rest)| Some((name, rest.split_once('@')?)));
    let (name, (factor, from)) = pieces
        .ok_or_else(|| wrong(part, "it reads slow=work*factor@epoch:index, for example slow=training*2@0:500"))?;
    Ok(Slow { work: work(part, name.trim())?, factor: number(part, factor.trim())?, from: batch(part, from)? })
}

fn fault(part: &str, value: &str) -> Result<Fault> {
    let pieces = value.split_once(':').and_then(|(name, rest)| Some((name, rest.split_once('@')?)));
    let shape = "it reads fault=work:kind@epoch:index, for example fault=training:panic@0:17";
    let (name, (kind, at)) = pieces.ok_or_else(|| wrong(part, shape))?;
    let kind = FAULTS.into_iter().find(|(_, name)| *name == kind.trim());
    let (kind, _) = kind.ok_or_else(|| wrong(part, "it fails by error, panic, hang or memory"))?;
    Ok(Fault { work: work(part, name.trim())?, kind, at: batch(part, at)? })
}
