//! Gather on the host over the memory of every tier.

use std::ops::AddAssign;

use crate::{Error, Location, Result, Tier, Tiers};

/// Rows read from each tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierCounts {
    /// From the gathering device.
    pub device: u64,
    /// From other devices.
    pub peer: u64,
    /// From host memory.
    pub host: u64,
    /// From disk.
    pub disk: u64,
}

impl TierCounts {
    /// Rows requested: the sum of all tiers.
    pub fn requests(&self) -> u64 {
        self.device + self.peer + self.host + self.disk
    }

    fn add(&mut self, tier: Tier) {
        *match tier {
            Tier::Device => &mut self.device,
            Tier::Peer => &mut self.peer,
            Tier::Host => &mut self.host,
            Tier::Disk => &mut self.disk,
        } += 1;
    }
}

impl AddAssign for TierCounts {
    fn add_assign(&mut self, other: Self) {
        self.device += other.device;
        self.peer += other.peer;
        self.host += other.host;
        self.disk += other.disk;
    }
}

/// Rows of fixed length, held by devices, host and disk.
#[derive(Debug, Clone)]
pub struct TieredRows<'a> {
    tiers: Tiers,
    row_bytes: usize,
    // Invariant: each holds as many rows as `tiers` says.
    devices: Vec<&'a [u8]>,
    host: &'a [u8],
    disk: &'a [u8],
}

impl<'a> TieredRows<'a> {
    /// The rows of `row_bytes` bytes in the memory of each device and of the host, and in the mapped file, each in the order of
    /// its offsets.
    ///
    /// # Errors
    ///
    /// Memory of another length than its rows take.
    pub fn new(tiers: Tiers, row_bytes: usize, devices: Vec<&'a [u8]>, host: &'a [u8], disk: &'a [u8]) -> Result<Self> {
        let check = |name, memory: &[u8], rows: u32| {
            let expected = rows as usize * row_bytes;
            if memory.len() == expected {
                return Ok(());
            }
            let what = format!("{} bytes, and its {rows} rows take {expected}", memory.len());
            Err(Error::argument(name, what, "give the rows that the tiers place there"))
        };
        let (given, expected) = (devices.len(), tiers.division().devices);
        if given != expected as usize {
            let what = format!("memory of {given}, and the tiers have {expected}");
            return Err(Error::argument("devices", what, "give the memory of each device"));
        }
        (0u32..).zip(&devices).try_for_each(|(d, memory)| check("devices", memory, tiers.num_device_rows(d)))?;
        check("host", host, tiers.host_rows().len() as u32)?;
        check("disk", disk, tiers.disk_rows().len() as u32)?;
        Ok(Self { tiers, row_bytes, devices, host, disk })
    }

    /// The index.
    pub fn tiers(&self) -> &Tiers {
        &self.tiers
    }

    /// The bytes of `row`, and its tier, for device `by`.
    ///
    /// # Panics
    ///
    /// As [`Tiers::locate`].
    #[inline]
    pub fn row(&self, row: u32, by: u32) -> (&'a [u8], Tier) {
        let Location { tier, device, offset } = self.tiers.locate(row, by);
        let memory = match (tier, device) {
            (Tier::Host, _) => self.host,
            (Tier::Disk, _) => self.disk,
            (_, device) => self.devices[device.expect("rows on devices have one") as usize],
        };
        let start = offset as usize * self.row_bytes;
        (&memory[start..start + self.row_bytes], tier)
    }

    /// Copies `rows`, in that order, into `out`, for device `by`; returns how many came from each tier.
    ///
    /// # Panics
    ///
    /// As [`Tiers::locate`], and when `out` is not as long as the rows together.
    ///
    /// # Complexity
    ///
    /// O(bytes of the rows).
    pub fn gather(&self, rows: &[u32], by: u32, out: &mut [u8]) -> TierCounts {
        assert_eq!(out.len(), rows.len() * self.row_bytes, "bytes of the output and of the rows");
        let mut counts = TierCounts::default();
        for (i, &row) in rows.iter().enumerate() {
            let (bytes, tier) = self.row(row, by);
            out[i * self.row_bytes..][..self.row_bytes].copy_from_slice(bytes);
            counts.add(tier);
        }
        counts
    }
}
