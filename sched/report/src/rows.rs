//! A timeline prepared for drawing: checked, one sorted list of blocks for each lane.

use crate::timeline::{Bar, Mark, Timeline, Work};

/// Seconds of the longest timeline: thirty thousand years.
const LONGEST: f64 = 1e12;

/// An activity on one lane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Block {
    pub(crate) work: Work,
    pub(crate) route: usize,
    pub(crate) epoch: u32,
    pub(crate) batch: u32,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

/// The blocks of every lane, by start.
#[derive(Debug)]
pub(crate) struct TimelineRows {
    pub(crate) lanes: Vec<Vec<Block>>,
    /// Drawable marks, by start.
    pub(crate) marks: Vec<Mark>,
    pub(crate) seconds: f64,
    pub(crate) left_out: usize,
}

impl Timeline {
    /// Number of activities that cannot be drawn (see [`Timeline::activities`]).
    pub fn left_out(&self) -> usize {
        TimelineRows::new(self).left_out
    }

    /// Utilisation of each lane, 0 to 1; overlapping activities count once.
    ///
    /// # Complexity
    /// O(n log n) time and O(n) space for n activities.
    pub fn utilisation(&self) -> Vec<f64> {
        let rows = TimelineRows::new(self);
        rows.lanes.iter().map(|lane| rows.utilisation(lane, 0.0, rows.seconds)).collect()
    }
}

impl TimelineRows {
    pub(crate) fn new(timeline: &Timeline) -> Self {
        let mut rows = Self {
            lanes: vec![Vec::new(); timeline.lanes.len()],
            marks: Vec::new(),
            seconds: interval(0.0, timeline.seconds).map_or(0.0, |whole| whole.1),
            left_out: 0,
        };
        for activity in &timeline.activities {
            let Some((block, lanes)) = check(activity, timeline.lanes.len()) else {
                rows.left_out += 1;
                continue;
            };
            rows.seconds = rows.seconds.max(block.end);
            for lane in lanes {
                rows.lanes[lane].push(block);
            }
        }
        for lane in &mut rows.lanes {
            lane.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.end.total_cmp(&b.end)));
        }
        for mark in &timeline.marks {
            if let Some((start, end)) = interval(mark.start, mark.end) {
                rows.seconds = rows.seconds.max(end);
                rows.marks.push(Mark { name: mark.name.clone(), start, end });
            }
        }
        rows.marks.sort_by(|a, b| a.start.total_cmp(&b.start));
        rows
    }

    /// Utilisation of a lane during `from..to`.
    pub(crate) fn utilisation(&self, lane: &[Block], from: f64, to: f64) -> f64 {
        if to <= from {
            return 0.0;
        }
        let (mut sum, mut covered) = (0.0, from);
        for block in lane {
            let (start, end) = (block.start.max(covered), block.end.min(to));
            if end > start {
                sum += end - start;
            }
            covered = covered.max(end);
        }
        (sum / (to - from)).clamp(0.0, 1.0)
    }
}

/// For each of `count` equal columns of `from..to`, the share of its time that each kind of work takes.
pub(crate) fn density<'a>(
    blocks: impl IntoIterator<Item = &'a Block>,
    from: f64,
    to: f64,
    count: usize,
) -> Vec<[f64; 4]> {
    let width = ((to - from) / count as f64).max(f64::MIN_POSITIVE);
    let mut columns = vec![[0.0; 4]; count];
    for block in blocks {
        let (start, end) = (block.start.max(from), block.end.min(to));
        let first = (((start - from) / width) as usize).min(count - 1);
        let last = (((end - from) / width) as usize).min(count - 1);
        for (i, column) in columns.iter_mut().enumerate().take(last + 1).skip(first) {
            let (left, right) = (from + i as f64 * width, from + (i + 1) as f64 * width);
            column[block.work as usize] += (end.min(right) - start.max(left)).max(0.0) / width;
        }
    }
    columns
}

/// An activity's block and its distinct lanes, if it can be drawn on one of `lanes` lanes.
pub(crate) fn check(activity: &Bar, lanes: usize) -> Option<(Block, Vec<usize>)> {
    let (start, end) = interval(activity.start, activity.end)?;
    let mut on: Vec<usize> = activity.lanes.iter().copied().filter(|&lane| lane < lanes).collect();
    on.sort_unstable();
    on.dedup();
    let Bar { work, batch, epoch, route, .. } = *activity;
    (!on.is_empty()).then_some((Block { work, route, epoch, batch, start, end }, on))
}

/// The part of an interval after 0, if there is one and both ends are finite and within [`LONGEST`].
pub(crate) fn interval(start: f64, end: f64) -> Option<(f64, f64)> {
    let valid = start.is_finite() && end >= start && (0.0..=LONGEST).contains(&end);
    valid.then_some((start.max(0.0), end))
}

#[cfg(test)]
mod tests;
