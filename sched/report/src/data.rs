//! Timelines as compact JSON for the page's script.

use serde_json::{Value, json};

use crate::rows::{Block, TimelineRows, check, density};
use crate::timeline::Timeline;

/// Maximum number of embedded activities of a timeline; the middle of a longer one is embedded as density.
pub(crate) const MAX_ACTIVITIES: usize = 40_000;
/// Columns of that density.
const COLUMNS: usize = 600;

/// A timeline: its kinds of activity (work, route, lanes), and a column each of kind, epoch, batch, start and length.
/// Epochs and starts are differences to the one before; times are whole numbers of `unit` seconds.
pub(crate) fn timeline(name: &str, timeline: &Timeline, rows: &TimelineRows) -> Value {
    let mut blocks: Vec<(Block, Vec<usize>)> =
        timeline.activities.iter().filter_map(|a| check(a, timeline.lanes.len())).collect();
    blocks.sort_by(|a, b| a.0.start.total_cmp(&b.0.start));
    let gap = if blocks.len() > MAX_ACTIVITIES {
        let middle: Vec<_> = blocks.drain(MAX_ACTIVITIES / 2..blocks.len() - MAX_ACTIVITIES / 2).collect();
        densities(&middle, timeline.lanes.len())
    } else {
        Value::Null
    };
    let unit = if rows.seconds >= 1.0 { 1e-6 } else { 1e-9 };
    let ticks = |seconds: f64| (seconds / unit).round() as i64;
    let mut kinds: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    let (mut kind, mut epoch, mut batch, mut start, mut length) = (vec![], vec![], vec![], vec![], vec![]);
    let (mut last_epoch, mut last_start) = (0, 0);
    for (block, lanes) in blocks {
        let new = (block.work as usize, block.route, lanes);
        let index = kinds.iter().position(|k| *k == new).unwrap_or_else(|| {
            kinds.push(new);
            kinds.len() - 1
        });
        let (in_epoch, at) = (i64::from(block.epoch), ticks(block.start));
        kind.push(index);
        epoch.push(in_epoch - last_epoch);
        batch.push(block.batch);
        start.push(at - last_start);
        length.push(ticks(block.end) - at);
        (last_epoch, last_start) = (in_epoch, at);
    }
    let lanes: Vec<Value> = timeline.lanes.iter().map(|l| json!([l.name, l.resource, l.simulated])).collect();
    let marks: Vec<Value> = rows.marks.iter().map(|m| json!([m.name, m.start, m.end])).collect();
    json!({
        "name": name, "seconds": rows.seconds, "lanes": lanes, "routes": timeline.routes, "marks": marks,
        "unit": unit, "kinds": kinds, "kind": kind, "epoch": epoch, "batch": batch, "start": start, "length": length,
        "gap": gap,
    })
}

/// Of each lane and column, the share of time in each kind of work, in percent.
fn densities(blocks: &[(Block, Vec<usize>)], lanes: usize) -> Value {
    let from = blocks.iter().map(|b| b.0.start).fold(f64::INFINITY, f64::min);
    let to = blocks.iter().map(|b| b.0.end).fold(from, f64::max);
    let percent = |share: f64| (100.0 * share.min(1.0)).round() as u8;
    let lane = |lane: usize| -> Vec<u8> {
        let on_lane = blocks.iter().filter(|(_, lanes)| lanes.contains(&lane)).map(|(block, _)| block);
        density(on_lane, from, to, COLUMNS).into_iter().flatten().map(percent).collect()
    };
    json!({ "from": from, "to": to, "bins": (0..lanes).map(lane).collect::<Vec<_>>() })
}

/// JSON escaped for a script element of HTML and XHTML.
pub(crate) fn embed(value: &Value) -> String {
    value.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}
