//! Chrome's trace format: one process per timeline, one thread per lane. Perfetto and `chrome://tracing` open it.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::rows::{check, interval};
use crate::timeline::Timeline;

/// Writes whole timelines as a trace, each a process under its name. The writer should be buffered.
///
/// Each activity is a complete event on each lane it occupies, and marks have a row of their own. Activities and marks that cannot
/// be drawn (see [`Timeline::activities`]) are left out and counted in the trace's `otherData`.
///
/// # Errors
/// What the writer returns.
pub fn write_trace<W: Write>(mut out: W, timelines: &[(&str, &Timeline)]) -> io::Result<W> {
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let (mut separator, mut left_out) = ("\n", 0);
    let mut write = |event: Value| {
        out.write_all(separator.as_bytes())?;
        separator = ",\n";
        serde_json::to_writer(&mut out, &event).map_err(io::Error::from)
    };
    for (pid, (name, timeline)) in (1..).zip(timelines) {
        let Timeline { lanes, routes, activities, marks, .. } = timeline;
        let meta = |what: &str, tid: usize, args: Value| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": args });
        write(meta("process_name", 0, json!({ "name": name })))?;
        write(meta("process_sort_index", 0, json!({ "sort_index": pid - 1 })))?;
        for (tid, lane) in (1..).zip(lanes) {
            let name = if lane.simulated { format!("{} (simulated)", lane.name) } else { lane.name.clone() };
            write(meta("thread_name", tid, json!({ "name": name })))?;
            write(meta("thread_sort_index", tid, json!({ "sort_index": tid - 1 })))?;
        }
        for activity in activities {
            let Some((block, on_lanes)) = check(activity, lanes.len()) else {
                left_out += 1;
                continue;
            };
            let route = routes.get(block.route).map_or_else(|| json!(block.route), |name| json!(name));
            for lane in on_lanes {
                write(json!({
                    "ph": "X", "name": format!("{} {}", block.work, block.batch), "cat": block.work.to_string(),
                    "pid": pid, "tid": lane + 1, "ts": micros(block.start), "dur": micros(block.end - block.start),
                    "args": { "batch": block.batch, "epoch": block.epoch, "route": route },
                }))?;
            }
        }
        let tid = lanes.len() + 1;
        if !marks.is_empty() {
            write(meta("thread_name", tid, json!({ "name": "marks" })))?;
        }
        for mark in marks {
            let Some((start, end)) = interval(mark.start, mark.end) else {
                left_out += 1;
                continue;
            };
            let mut event = json!({ "name": mark.name, "cat": "mark", "pid": pid, "tid": tid, "ts": micros(start) });
            if end > start {
                (event["ph"], event["dur"]) = (json!("X"), json!(micros(end - start)));
            } else {
                (event["ph"], event["s"]) = (json!("i"), json!("p"));
            }
            write(event)?;
        }
    }
    write!(out, "\n],\"otherData\":{{\"leftOut\":{left_out}}}}}")?;
    out.flush()?;
    Ok(out)
}

/// Whole timelines as a trace in memory, each a process under its name.
pub fn trace(timelines: &[(&str, &Timeline)]) -> Value {
    let written = write_trace(Vec::new(), timelines).expect("writing to a Vec does not fail");
    serde_json::from_slice(&written).expect("the writer writes JSON")
}

/// Seconds as microseconds, to the nanosecond.
fn micros(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e3
}
