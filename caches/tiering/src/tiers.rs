//! Which memory holds each row of a reordered dataset.

use std::ops::Range;

use crate::{Error, Result};

/// A level of the feature store, as one gathering device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The memory of the gathering device.
    Device,
    /// The memory of another device.
    Peer,
    /// The host's memory.
    Host,
    /// The dataset's file.
    Disk,
}

/// The place of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The level.
    pub tier: Tier,
    /// The device that holds the row, at [`Tier::Device`] and [`Tier::Peer`].
    pub device: Option<u32>,
    /// Position among the rows that this device, the host or the disk holds.
    pub offset: u32,
}

/// How many rows each tier holds, from the hottest row, number 0, on; the disk holds the others. Any number may be 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Division {
    /// Number of devices.
    pub devices: u32,
    /// Rows of which every device has a copy.
    pub replicated: u32,
    /// Rows spread over the devices one by one: hot and cold rows, and so traffic, are balanced.
    pub interleaved: u32,
    /// Rows in host memory.
    pub host: u32,
}

/// Bytes that each tier has for rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierBudgets<'a> {
    /// Of each device, the replicated rows included.
    pub devices: &'a [u64],
    /// Of each device, for rows of which every device has a copy.
    pub replicated: u64,
    /// Of the host.
    pub host: u64,
}

/// One index over devices, host and disk for the rows of a dataset reordered by hotness (data-tiering §4.2 and Appendix A.3):
/// arithmetic alone, without a table.
///
/// A device holds the replicated rows in their order, and then its interleaved ones: rank `r` among these is row `r / n` of
/// those of device `r % n`, as in the caches of several devices of `Transferring_CUDA+PCIe_ZeroCopy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiers {
    num_rows: u32,
    // Invariant: the rows of all tiers are at most `num_rows`; without devices, none are replicated or interleaved.
    division: Division,
}

impl Tiers {
    /// The tiers of `num_rows` rows.
    ///
    /// # Errors
    ///
    /// More rows than there are, or rows on devices without a device.
    pub fn new(num_rows: u32, division: Division) -> Result<Self> {
        let Division { devices, replicated, interleaved, host } = division;
        let held = u64::from(replicated) + u64::from(interleaved) + u64::from(host);
        if held > u64::from(num_rows) {
            let what = format!("its tiers hold {held} rows, and there are {num_rows}");
            return Err(Error::argument("division", what, "give the tiers at most all rows"));
        }
        if devices == 0 && replicated + interleaved > 0 {
            let what = format!("{} rows are on devices, and there is none", replicated + interleaved);
            return Err(Error::argument("division", what, "give the number of devices, or no rows of theirs"));
        }
        Ok(Self { num_rows, division })
    }

    /// The tiers in which as many rows are replicated, interleaved and in host memory as fit, in this order.
    ///
    /// # Complexity
    ///
    /// O(devices).
    pub fn fit(num_rows: u32, row_bytes: u64, budgets: &TierBudgets<'_>) -> Self {
        let rows = |bytes: u64, left: u64| (bytes / row_bytes.max(1)).min(left);
        let all = u64::from(num_rows);
        let devices = budgets.devices;
        let least = devices.iter().copied().min().unwrap_or(0);
        let replicated = rows(budgets.replicated.min(least), all);
        // Interleaved, a device has as many rows as those before it, or one less.
        let most = |(i, &budget): (u64, &u64)| {
            (rows(budget, u64::MAX) - replicated).saturating_mul(devices.len() as u64).saturating_add(i)
        };
        let most = (0u64..).zip(devices).map(most).min().unwrap_or(0);
        let interleaved = most.min(all - replicated);
        let host = rows(budgets.host, all - replicated - interleaved);
        let [replicated, interleaved, host] = [replicated, interleaved, host].map(|rows| rows as u32);
        let division = Division { devices: devices.len() as u32, replicated, interleaved, host };
        Self { num_rows, division }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> u32 {
        self.num_rows
    }

    /// Number of rows of each tier.
    pub fn division(&self) -> Division {
        self.division
    }

    /// The place of `row` for a gather by device `by`, which is not read where no device has rows.
    ///
    /// # Panics
    ///
    /// When there is no such row, or the row lies on devices and `by` is none of them.
    ///
    /// # Complexity
    ///
    /// O(1).
    #[inline]
    pub fn locate(&self, row: u32, by: u32) -> Location {
        assert!(row < self.num_rows, "row {row} of {}", self.num_rows);
        let Division { devices, replicated, interleaved, host } = self.division;
        if row < replicated + interleaved {
            assert!(by < devices, "device {by} of {devices}");
        }
        if row < replicated {
            return Location { tier: Tier::Device, device: Some(by), offset: row };
        }
        let rank = row - replicated;
        if rank < interleaved {
            let device = rank % devices;
            let tier = if device == by { Tier::Device } else { Tier::Peer };
            return Location { tier, device: Some(device), offset: replicated + rank / devices };
        }
        let rank = rank - interleaved;
        match rank < host {
            true => Location { tier: Tier::Host, device: None, offset: rank },
            false => Location { tier: Tier::Disk, device: None, offset: rank - host },
        }
    }

    /// The rows that `device` holds, in the order of their offsets.
    ///
    /// # Panics
    ///
    /// When there is no such device.
    pub fn device_rows(&self, device: u32) -> impl Iterator<Item = u32> + use<> {
        let Division { devices, replicated, interleaved, .. } = self.division;
        assert!(device < devices, "device {device} of {devices}");
        (0..replicated).chain((replicated..replicated + interleaved).skip(device as usize).step_by(devices as usize))
    }

    /// Number of rows that `device` holds.
    ///
    /// # Panics
    ///
    /// When there is no such device.
    pub fn num_device_rows(&self, device: u32) -> u32 {
        let Division { devices, replicated, interleaved, .. } = self.division;
        assert!(device < devices, "device {device} of {devices}");
        replicated + interleaved / devices + u32::from(device < interleaved % devices)
    }

    /// The rows in host memory, in the order of their offsets.
    pub fn host_rows(&self) -> Range<u32> {
        let first = self.division.replicated + self.division.interleaved;
        first..first + self.division.host
    }

    /// The rows that are on disk alone, in the order of their offsets.
    pub fn disk_rows(&self) -> Range<u32> {
        self.host_rows().end..self.num_rows
    }
}

#[cfg(test)]
mod tests;
