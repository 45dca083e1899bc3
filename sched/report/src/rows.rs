//! A timeline prepared for drawing: checked, one sorted list of blocks for each lane.

use crate::timeline::{Bar, Mark, Timeline};
use morphgl_plan::Phase;

/// Seconds of the longest timeline: thirty thousand years.
const LONGEST: f64 = 1e12;

/// An activity on one lane.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Block {
    pub(crate) phase: Phase,
    pub(crate) route: usize,
    pub(crate) epoch: u32,
    pub(crate) batch: u32,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

/// The blocks of every lane, by start.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) lanes: Vec<Vec<Block>>,
    /// Drawable marks, by start.
    pub(crate) marks: Vec<Mark>,
    pub(crate) seconds: f64,
    pub(crate) left_out: usize,
}

impl Timeline {
    /// Number of activities that cannot be drawn (see [`Timeline::activities`]).
    pub fn left_out(&self) -> usize {
        Rows::new(self).left_out
    }

    /// Busy share of each lane, 0 to 1; overlapping activities count once.
    ///
    /// # Complexity
    /// O(n log n) time and O(n) space for n activities.
    pub fn busy(&self) -> Vec<f64> {
        let rows = Rows::new(self);
        rows.lanes.iter().map(|lane| rows.busy(lane, 0.0, rows.seconds)).collect()
    }
}

impl Rows {
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

    /// Busy share of a lane during `from..to`.
    pub(crate) fn busy(&self, lane: &[Block], from: f64, to: f64) -> f64 {
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

    /// End of the last block.
    pub(crate) fn last(&self) -> f64 {
        self.lanes.iter().flatten().map(|block| block.end).fold(0.0, f64::max)
    }

    /// The lane with the most blocks.
    pub(crate) fn longest(&self) -> &[Block] {
        self.lanes.iter().max_by_key(|lane| lane.len()).map_or(&[], Vec::as_slice)
    }
}

/// An activity's block and its distinct lanes, if it can be drawn on one of `lanes` lanes.
pub(crate) fn check(activity: &Bar, lanes: usize) -> Option<(Block, Vec<usize>)> {
    let (start, end) = interval(activity.start, activity.end)?;
    let mut on: Vec<usize> = activity.lanes.iter().copied().filter(|&lane| lane < lanes).collect();
    on.sort_unstable();
    on.dedup();
    let Bar { phase, batch, epoch, route, .. } = *activity;
    (!on.is_empty()).then_some((Block { phase, route, epoch, batch, start, end }, on))
}

/// The part of an interval after 0, if there is one and both ends are finite and within [`LONGEST`].
pub(crate) fn interval(start: f64, end: f64) -> Option<(f64, f64)> {
    let sound = start.is_finite() && end >= start && (0.0..=LONGEST).contains(&end);
    sound.then_some((start.max(0.0), end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lane;

    fn activity(start: f64, end: f64, lanes: &[usize]) -> Bar {
        Bar { phase: Phase::Training, batch: 0, epoch: 0, route: 0, start, end, lanes: lanes.to_vec() }
    }

    #[test]
    fn what_cannot_be_drawn_is_counted_and_overlapping_time_counts_once() {
        let timeline = Timeline {
            lanes: vec![Lane::default(); 2],
            activities: vec![
                activity(2.0, 3.0, &[0, 1, 1, 7]),
                activity(0.0, 1.0, &[0]),
                activity(0.5, 1.5, &[0]),
                activity(-1.0, 0.5, &[1]),
                activity(f64::NAN, 1.0, &[0]),
                activity(0.0, f64::INFINITY, &[0]),
                activity(2.0, 1.0, &[0]),
                activity(-2.0, -1.0, &[0]),
                activity(0.0, 1.0, &[2]),
                activity(0.0, 1.0, &[]),
            ],
            seconds: 5.0,
            ..Timeline::default()
        };
        let rows = Rows::new(&timeline);
        assert_eq!(rows.left_out, 6);
        assert_eq!(rows.lanes[0].iter().map(|b| b.start).collect::<Vec<_>>(), [0.0, 0.5, 2.0]);
        assert_eq!(rows.lanes[1].iter().map(|b| b.start).collect::<Vec<_>>(), [0.0, 2.0]);
        assert_eq!(timeline.busy(), [2.5 / 5.0, 1.5 / 5.0]);
        assert_eq!(rows.busy(&rows.lanes[0], 0.5, 2.5), 1.5 / 2.0);
    }
}
