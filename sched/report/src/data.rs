//! Timelines as compact JSON for the page's script.

use serde_json::{Value, json};

use crate::rows::{Rows, check};
use crate::timeline::{Bar, Timeline};

/// Maximum number of embedded activities of a timeline; the middle of a longer one is embedded as density.
pub(crate) const MOST: usize = 40_000;
/// Columns of that density.
const BINS: usize = 600;

/// A timeline: its kinds of activity (phase, route, lanes), and a column each of kind, epoch, batch, start and length.
/// Epochs and starts are differences to the one before; times are whole numbers of `unit` seconds.
pub(crate) fn timeline(name: &str, timeline: &Timeline, rows: &Rows) -> Value {
    let mut sound: Vec<(&Bar, Vec<usize>, f64)> = timeline
        .activities
        .iter()
        .filter_map(|a| check(a, timeline.lanes.len()).map(|(block, lanes)| (a, lanes, block.start)))
        .collect();
    sound.sort_by(|a, b| a.2.total_cmp(&b.2));
    let gap = if sound.len() > MOST {
        let middle: Vec<_> = sound.drain(MOST / 2..sound.len() - MOST / 2).collect();
        density(&middle, timeline.lanes.len())
    } else {
        Value::Null
    };
    let unit = if rows.seconds >= 1.0 { 1e-6 } else { 1e-9 };
    let ticks = |seconds: f64| (seconds / unit).round() as i64;
    let mut kinds: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    let (mut kind, mut epoch, mut batch, mut start, mut length) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut last_epoch, mut last_start) = (0, 0);
    for (activity, lanes, begun) in sound {
        let this = (activity.phase as usize, activity.route, lanes);
        let index = kinds.iter().position(|k| *k == this).unwrap_or_else(|| {
            kinds.push(this);
            kinds.len() - 1
        });
        let at = ticks(begun);
        kind.push(index);
        epoch.push(i64::from(activity.epoch) - last_epoch);
        batch.push(activity.batch);
        start.push(at - last_start);
        length.push(ticks(activity.end) - at);
        (last_epoch, last_start) = (i64::from(activity.epoch), at);
    }
    let lanes: Vec<Value> = timeline.lanes.iter().map(|l| json!([l.name, l.resource, l.simulated])).collect();
    let marks: Vec<Value> = rows.marks.iter().map(|m| json!([m.name, m.start, m.end])).collect();
    json!({
        "name": name, "seconds": rows.seconds, "lanes": lanes, "routes": timeline.routes, "marks": marks,
        "unit": unit, "kinds": kinds, "kind": kind, "epoch": epoch, "batch": batch, "start": start, "length": length,
        "gap": gap,
    })
}

/// Of each lane and column, the share of time in each phase, in percent.
fn density(activities: &[(&Bar, Vec<usize>, f64)], lanes: usize) -> Value {
    let from = activities.iter().map(|a| a.2).fold(f64::INFINITY, f64::min);
    let to = activities.iter().map(|a| a.0.end).fold(from, f64::max);
    let width = ((to - from) / BINS as f64).max(f64::MIN_POSITIVE);
    let mut bins = vec![vec![0.0; 3 * BINS]; lanes];
    for (activity, on, start) in activities {
        let first = (((start - from) / width) as usize).min(BINS - 1);
        let last = (((activity.end - from) / width) as usize).min(BINS - 1);
        for bin in first..=last {
            let left = from + bin as f64 * width;
            let share = (activity.end.min(left + width) - start.max(left)).max(0.0) / width;
            on.iter().for_each(|&lane| bins[lane][3 * bin + activity.phase as usize] += share);
        }
    }
    let whole = |lane: Vec<f64>| lane.into_iter().map(|s| (100.0 * s.min(1.0)).round() as u8).collect::<Vec<u8>>();
    json!({ "from": from, "to": to, "bins": bins.into_iter().map(whole).collect::<Vec<_>>() })
}

/// JSON escaped for a script element of HTML and XHTML.
pub(crate) fn embed(value: &Value) -> String {
    value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}
