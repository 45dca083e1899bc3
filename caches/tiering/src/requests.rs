//! Read requests over PCIe of a warp that copies a row from host memory.

/// Bytes of a cache line of the device: the most that one request reads.
pub const LINE: u64 = 128;
/// Bytes of a sector, of which a line has four: the least that one request reads.
pub const SECTOR: u64 = 32;

/// Which bytes of a row a warp loads at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpAccess {
    /// From the row's first byte on: loads of a row that does not begin with a line lie on two lines each (the naive access of
    /// PyTorch-Direct).
    Naive,
    /// Rotated to the first line that begins within the row; the bytes before it come last (the circular shift of
    /// PyTorch-Direct). Rows shorter than a line, or of whole lines, are not rotated.
    Shifted,
    /// From the beginning of the row's first line on; lanes before the row's first byte are idle. The access of
    /// `Transferring_CUDA+PCIe_ZeroCopy`.
    WholeLines,
}

/// How a warp copies a row: in loads of `lanes * unit` consecutive bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarpPattern {
    /// Which bytes are loaded at a time.
    pub access: WarpAccess,
    /// Lanes that copy a row together; a power of two.
    pub lanes: u64,
    /// Bytes that a lane loads, which divide address and length of the row; a power of two, at most 16.
    pub unit: u64,
}

/// What the copy of a row reads over the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reads {
    /// Requests: a load makes one for each line that it touches.
    pub requests: u64,
    /// Sectors of [`SECTOR`] bytes that the requests read together.
    pub sectors: u64,
}

impl WarpPattern {
    /// A warp whose lanes load a value of four bytes each: PyTorch-Direct's, with or without its circular shift, and
    /// data-tiering's (Appendix A.3, Listing 1), which is [`WarpAccess::Naive`].
    pub const fn of_values(access: WarpAccess) -> Self {
        Self { access, lanes: 32, unit: 4 }
    }

    /// The pattern of `Transferring_CUDA+PCIe_ZeroCopy` with `access` naive, for rows of this length in a table that begins with
    /// a line: [`WarpPattern::of_values`] of [`WarpAccess::Naive`], by smaller values where four bytes do not divide a row.
    pub const fn of_naive(row_bytes: u64) -> Self {
        let unit = largest_unit(row_bytes, 4);
        Self { access: WarpAccess::Naive, lanes: 32, unit }
    }

    /// The pattern of `Transferring_CUDA+PCIe_ZeroCopy` for rows of this length, in a table that begins with a line. A load of
    /// half a warp is of two rows: they make a request less where they share the line that both read at once.
    pub const fn of_zero_copy(row_bytes: u64) -> Self {
        let unit = largest_unit(row_bytes, 16);
        // Half a warp copies short rows.
        let lanes = if unit >= 8 && row_bytes <= 256 { 16 } else { 32 };
        Self { access: WarpAccess::WholeLines, lanes, unit }
    }

    /// The reads of one row at a byte address.
    ///
    /// # Panics
    ///
    /// When `lanes` or `unit` is no power of two, or the unit does not divide address and length.
    ///
    /// # Complexity
    ///
    /// O(1).
    pub fn reads(&self, address: u64, row_bytes: u64) -> Reads {
        let Self { access, lanes, unit } = *self;
        assert!(lanes.is_power_of_two() && unit.is_power_of_two(), "{self:?}");
        assert!(
            address.is_multiple_of(unit) && row_bytes.is_multiple_of(unit),
            "{row_bytes} bytes at {address}, {self:?}"
        );
        let (load, end) = (lanes * unit, address + row_bytes);
        let head = address.next_multiple_of(LINE) - address;
        let rotated = row_bytes >= LINE && !row_bytes.is_multiple_of(LINE) && head > 0;
        let count = |granule| match access {
            WarpAccess::WholeLines => pieces(address, end, i128::from(address - address % LINE), load, granule),
            WarpAccess::Shifted if rotated => {
                // The head follows on the tail, whose last load may have room for some of it.
                let begin = address + head;
                let cuts = i128::from(begin) - i128::from(row_bytes);
                pieces(begin, end, begin.into(), load, granule) + pieces(address, begin, cuts, load, granule)
            }
            WarpAccess::Naive | WarpAccess::Shifted => pieces(address, end, address.into(), load, granule),
        };
        Reads { requests: count(LINE), sectors: count(SECTOR) }
    }

    /// Mean requests and sectors of a row, in a table of rows of this length that begins with a line.
    ///
    /// # Panics
    ///
    /// When the unit does not divide the length.
    pub fn mean(&self, row_bytes: u64) -> (f64, f64) {
        // After 128 rows the addresses are those of the first ones again, but for whole lines.
        let rows = (0..LINE).map(|row| self.reads(row * row_bytes, row_bytes));
        let (requests, sectors) = rows.fold((0, 0), |(r, s), reads| (r + reads.requests, s + reads.sectors));
        (requests as f64 / LINE as f64, sectors as f64 / LINE as f64)
    }
}

/// The largest power of two, from `most` down, that divides the length of a row.
const fn largest_unit(row_bytes: u64, most: u64) -> u64 {
    let mut unit = most;
    while !row_bytes.is_multiple_of(unit) {
        unit /= 2;
    }
    unit
}

/// Number of pieces of `begin..end` that is cut at multiples of `granule`, and where a load ends: at addresses that are
/// `cut` plus a multiple of `load`, of which both are powers of two.
fn pieces(begin: u64, end: u64, cut: i128, load: u64, granule: u64) -> u64 {
    if begin >= end {
        return 0;
    }
    let touched = (end - 1) / granule - begin / granule + 1;
    // Where a load ends with a granule, it cuts nothing in addition.
    let (load, granule) = (i128::from(load), i128::from(granule));
    let ends = between(begin, end, cut, load);
    let aligned = match cut.rem_euclid(load.min(granule)) {
        0 if load >= granule => ends,
        0 => between(begin, end, 0, granule),
        _ => 0,
    };
    touched + ends - aligned
}

/// Number of addresses strictly between `begin` and `end` that are `cut` plus a multiple of `step`.
fn between(begin: u64, end: u64, cut: i128, step: i128) -> u64 {
    let up_to = |address: u64| (i128::from(address) - cut).div_euclid(step);
    (up_to(end - 1) - up_to(begin)) as u64
}

#[cfg(test)]
mod tests;
