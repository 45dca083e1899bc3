//! What a hit saves, as it was measured.

use std::fmt;

/// Seconds that a cache hit saves, measured by the caller that reads on a miss (the slopes of DUCATI's benefit model: running time
/// against hits, for each of the two tasks).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slopes {
    /// Of a feature row, by its bytes: node types have rows of different length.
    pub row: Curve,
    /// Of an adjacency list, by its number of neighbours.
    pub list: Curve,
}

/// Maximum points that are shown.
const MOST_SHOWN: usize = 12;

/// A quantity by length, linear between the measured lengths and constant beyond them; 0 where nothing was measured.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curve {
    // Invariant: finite, in ascending order of lengths.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// The curve through the measured `points`, of length and value; those that are not finite numbers are left out.
    pub fn new(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let finite = points.into_iter().filter(|(length, value)| length.is_finite() && value.is_finite());
        let mut points: Vec<_> = finite.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { points }
    }

    /// The measured points.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// The points that are shown, with their indices.
    fn shown(&self) -> impl Iterator<Item = (usize, (f64, f64))> + '_ {
        let len = self.points.len();
        let is_shown = move |i: usize| len <= MOST_SHOWN || i == 0 || i + 1 == len;
        self.points.iter().copied().enumerate().filter(move |&(i, _)| is_shown(i))
    }

    /// The value at a length.
    ///
    /// # Complexity
    ///
    /// O(log points).
    pub fn at(&self, length: f64) -> f64 {
        let after = self.points.partition_point(|&(l, _)| l < length);
        match (self.points[..after].last(), self.points.get(after)) {
            (Some(&(from, low)), Some(&(to, high))) => low + (high - low) * (length - from) / (to - from),
            (Some(&(_, value)), None) | (None, Some(&(_, value))) => value,
            (None, None) => 0.0,
        }
    }
}

/// In microseconds: `3.1 µs per feature row; a list 2.9 µs with 4 neighbours, 9.0 µs with 2000`; of rows of several lengths
/// `1.2 µs per feature row of 256 bytes, 3.1 µs of 4096`. Of more than twelve lengths the first and the last.
impl fmt::Display for Slopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row.points[..] {
            [] => f.write_str("0.0 µs per feature row")?,
            [(_, seconds)] => write!(f, "{:.1} µs per feature row", 1e6 * seconds)?,
            _ => {
                for (i, (bytes, seconds)) in self.row.shown() {
                    let [before, row, unit] = if i == 0 { ["", " per feature row", " bytes"] } else { [", ", "", ""] };
                    write!(f, "{before}{:.1} µs{row} of {bytes:.0}{unit}", 1e6 * seconds)?;
                }
            }
        }
        for (i, (length, seconds)) in self.list.shown() {
            f.write_str(if i == 0 { "; a list" } else { "," })?;
            write!(f, " {:.1} µs with {length:.0}", 1e6 * seconds)?;
            f.write_str(if i == 0 { " neighbours" } else { "" })?;
        }
        Ok(())
    }
}
