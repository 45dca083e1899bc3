//! Caches whose size is chosen with the plan.

use std::fmt;

use morphgl_registry::{CacheCurve, CachePoint, Key};
use serde::{Deserialize, Serialize};

use crate::numbers::{MAX_SECONDS, check_bytes};
use crate::{Invalid, Time};

/// Maximum slowdown of an operator by a smaller cache that a plan assumes.
const SLOWEST: f64 = 1e6;

/// The memory that holds a cache, buffers and workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheMemory {
    /// The host's.
    #[default]
    Host,
    /// A device's: of batching the one that batches, of transferring the one that trains.
    Device,
}

/// The cache of a batching or transferring operator, which all of the operator's routes share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cache {
    /// The operator.
    #[serde(alias = "batching")]
    pub operator: Key,
    /// The memory that holds it.
    #[serde(default)]
    pub memory: CacheMemory,
    /// The size that durations were measured with, and what other sizes save.
    pub curve: CacheCurve,
    /// Part of the looked-up rows that are expected to be found with that size, 0 to 1; `None` where it is not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_rate: Option<f64>,
}

impl Cache {
    /// Whether its size can be chosen.
    pub(crate) fn is_resizable(&self) -> bool {
        self.curve.points.len() > 1
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let error = |what: &str| Err(Invalid(format!("{}: the curve of its cache: {what}", self.operator)));
        let is_amount = |x: f64| (0.0..=MAX_SECONDS).contains(&x);
        let points = &self.curve.points;
        let CacheCurve { build_seconds, batch_seconds, .. } = self.curve;
        if !is_amount(build_seconds) || !is_amount(batch_seconds) || !points.iter().all(|p| is_amount(p.saved_seconds))
        {
            return error("seconds are finite, not negative and at most 10^9");
        }
        let rises =
            |pair: &[CachePoint]| pair[0].bytes < pair[1].bytes && pair[0].saved_seconds <= pair[1].saved_seconds;
        if !points.windows(2).all(rises) {
            return error("points are by ascending bytes, and more bytes save no less");
        }
        let most = points.last().map_or(0, |point| point.bytes).max(self.curve.bytes);
        check_bytes(&self.operator, most.max(self.curve.free_bytes.unwrap_or(0)))
    }

    /// The smallest size of the curve.
    pub(crate) fn least(&self) -> u64 {
        self.curve.points.first().map_or(self.curve.bytes, |point| point.bytes)
    }

    /// The largest size of the curve: a larger one saves no more.
    pub(crate) fn most(&self) -> u64 {
        self.curve.points.last().map_or(self.curve.bytes, |point| point.bytes)
    }

    pub(crate) fn sizes_of_points(&self) -> impl Iterator<Item = u64> + '_ {
        self.curve.points.iter().map(|point| point.bytes)
    }

    /// The least bytes that save as much as `bytes` do.
    pub(crate) fn needed(&self, bytes: u64) -> u64 {
        let bytes = bytes.min(self.most());
        let same = self.curve.points.iter().find(|p| p.saved_seconds >= self.saved(bytes));
        same.map_or(bytes, |point| point.bytes.min(bytes))
    }

    /// The size that saves most within the limit of its memory: as profiled without a limit, which leaves nothing to divide.
    pub(crate) fn largest(&self, limit: Option<u64>) -> u64 {
        match (self.curve.points.last(), limit) {
            (Some(most), Some(limit)) if self.is_resizable() => most.bytes.min(limit).max(self.curve.bytes),
            _ => self.curve.bytes,
        }
    }

    /// Seconds of the operator's phase with a cache of `bytes` over those as profiled.
    ///
    /// What the curve says of larger sizes cannot be more than a mini-batch took: then the curve is scaled down.
    pub(crate) fn factor(&self, bytes: u64) -> f64 {
        let profiled = self.saved(self.curve.bytes);
        let whole = self.curve.batch_seconds.max(self.saved(u64::MAX) - profiled);
        if whole > 0.0 { (1.0 - (self.saved(bytes) - profiled) / whole).clamp(0.0, SLOWEST) } else { 1.0 }
    }

    /// Seconds that a size saves per mini-batch: linear between points, constant beyond them.
    pub(crate) fn saved(&self, bytes: u64) -> f64 {
        let points = &self.curve.points;
        let after = points.partition_point(|p| p.bytes < bytes);
        match (points[..after].last(), points.get(after)) {
            (Some(low), Some(high)) => {
                let share = (bytes - low.bytes) as f64 / (high.bytes - low.bytes) as f64;
                low.saved_seconds + share * (high.saved_seconds - low.saved_seconds)
            }
            (Some(point), None) | (None, Some(point)) => point.saved_seconds,
            (None, None) => 0.0,
        }
    }
}

/// The hit rate of a `share` of each mini-batch: linear between that of whole ones and that of a `part` of them, at most 1.
pub fn hit_rate_of_share(whole: f64, (part, of_part): (f64, f64), share: f64) -> f64 {
    let slope = if part < 1.0 { (whole - of_part) / (1.0 - part) } else { 0.0 };
    (whole - slope * (1.0 - share)).clamp(0.0, 1.0)
}

/// The size of an operator's cache in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheSize {
    /// The operator.
    #[serde(alias = "batching")]
    pub operator: Key,
    /// The memory that holds the cache.
    #[serde(default)]
    pub memory: CacheMemory,
    /// Bytes that durations were measured with.
    pub profiled_bytes: u64,
    /// Bytes in this plan.
    pub bytes: u64,
    /// Predicted seconds that the operator saves per mini-batch beside the profiled size; below 0 for a smaller one.
    pub saved_seconds: f64,
    /// Part of the looked-up rows that are expected to be found, 0 to 1; `None` where it is not predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_rate: Option<f64>,
    /// Bytes of the limit of that memory that the plan's caches leave for buffers and workers; `None` without a limit.
    pub left_bytes: Option<u64>,
}

impl fmt::Display for CacheSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        write!(f, "{} holds {}", self.operator, mib(self.bytes))?;
        if self.memory == CacheMemory::Device {
            f.write_str(" of device memory")?;
        }
        match self.bytes == self.profiled_bytes {
            true => f.write_str(", as profiled")?,
            false => {
                let (saves, seconds) = (self.saved_seconds >= 0.0, Time(self.saved_seconds.abs()));
                let verb = if saves { "saves" } else { "costs" };
                write!(f, " (profiled with {}), which {verb} {seconds} more a mini-batch", mib(self.profiled_bytes))?;
            }
        }
        if let Some(rate) = self.hit_rate {
            write!(f, "; {:.1}% of rows are predicted to be found", 100.0 * rate)?;
        }
        self.left_bytes.map_or(Ok(()), |left| write!(f, "; {} are left for buffers and workers", mib(left)))
    }
}
