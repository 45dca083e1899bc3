//! How many of the hottest rows every device of a pool holds (Data Tiering, §4.2: the optimal division "may vary").

/// Mean seconds of a row of a gather, by where it is read from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RowSeconds {
    pub(crate) own: f64,
    pub(crate) peer: f64,
    pub(crate) host: f64,
}

/// What decides how many rows are replicated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Replication {
    /// The caller: so many, or as many as a device has room for.
    Rows(u32),
    /// Expected seconds of a gather.
    Fastest(RowSeconds),
}

/// Rows of a pool by rank: the `replicated` hottest are on every device, the others below `cached` on one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) cached: u64,
    pub(crate) replicated: u32,
}

impl RowSeconds {
    /// Expected seconds of a gather, as the mean over `num_devices` devices that gather alike. `accesses` is the number of accesses of
    /// so many of the first ranks, and `all` of all rows.
    ///
    /// Of the rows that lie on one device each, as many are read from there as from any other.
    pub(crate) fn of(&self, rows: Rows, num_devices: u64, accesses: impl Fn(u64) -> f64, all: f64) -> f64 {
        let others = (num_devices - 1) as f64 / num_devices as f64;
        let spread = self.own + others * (self.peer - self.own);
        let (replicated, cached) = (accesses(u64::from(rows.replicated)), accesses(rows.cached));
        self.own * replicated + spread * (cached - replicated) + self.host * (all - cached)
    }
}

/// The number of replicated rows with the least expected seconds; the least such number.
///
/// `heat` are the accesses of each row by rank, `room` the rows that devices have room for with so many replicated ones, or fewer.
///
/// # Complexity
///
/// O(rows): exact, by sums over the ranks.
pub(crate) fn fastest(
    heat: impl Iterator<Item = f32>,
    room: impl Fn(u32) -> Rows,
    num_devices: u64,
    seconds: RowSeconds,
) -> u32 {
    let mut sums = vec![0.0];
    sums.extend(heat.scan(0.0, |sum, heat| {
        *sum += f64::from(heat);
        Some(*sum)
    }));
    let all = sums[sums.len() - 1];
    let accesses = |rows: u64| sums[(rows as usize).min(sums.len() - 1)];
    let most = room(u32::try_from(sums.len() - 1).unwrap_or(u32::MAX)).replicated;
    let timed = (0..=most).map(|replicated| (replicated, seconds.of(room(replicated), num_devices, accesses, all)));
    timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map_or(0, |(replicated, _)| replicated)
}

#[cfg(test)]
mod tests;
