//! How much of the links that several trainers share is in use.

use std::collections::BTreeMap;

use morphgl_profile::{LinkProfile, LinkShare};
use morphgl_report::Timeline;
use serde::{Deserialize, Serialize};

/// A link that several trainers of a plan share, and its predicted use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkUse {
    /// The link, and the devices behind it.
    pub link: LinkProfile,
    /// The part of its bandwidth that is in use, on average over an epoch, 0 to 1.
    pub share: f64,
}

impl LinkUse {
    /// The link with its devices, for the user.
    pub(crate) fn label(&self) -> String {
        let users: Vec<String> = self.link.users.iter().map(|user| user.place.to_string()).collect();
        format!("{}, shared by {}", self.link.name, users.join(", "))
    }

    /// The part of the link's bandwidth that was in use in a timeline of all trainers, on average over its epochs; `None` where it has none.
    ///
    /// A phase that holds the link takes as much of it as its device can; phases of several devices at once take all of it at most.
    ///
    /// # Complexity
    ///
    /// O(n log n) for n activities.
    pub fn executed(&self, timeline: &Timeline) -> Option<f64> {
        let users = &self.link.users;
        let of_lane = |lane: &usize| {
            let lane = timeline.lanes.get(*lane)?;
            let is_own = |user: &&LinkShare| {
                lane.resource == user.resource && lane.name.starts_with(&format!("{}: ", user.place))
            };
            users.iter().find(is_own).map(|user| user.fraction)
        };
        let mut epochs: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        let mut changes: Vec<(f64, f64)> = Vec::new();
        for bar in &timeline.activities {
            let (begin, end) = epochs.entry(bar.epoch).or_insert((bar.start, bar.end));
            (*begin, *end) = (begin.min(bar.start), end.max(bar.end));
            if let Some(part) = bar.lanes.iter().find_map(of_lane) {
                changes.extend([(bar.start, part), (bar.end, -part)]);
            }
        }
        let seconds: f64 = epochs.values().map(|(begin, end)| end - begin).sum();
        changes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut used, mut wanted, mut since) = (0.0, 0.0_f64, 0.0);
        for (time, change) in changes {
            used += wanted.clamp(0.0, 1.0) * (time - since);
            (wanted, since) = (wanted + change, time);
        }
        (seconds > 0.0).then(|| (used / seconds).min(1.0))
    }
}
