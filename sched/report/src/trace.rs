//! Chrome's trace format: one process a timeline, one thread a lane. Perfetto and `chrome://tracing` open it.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::rows::{check, interval};
use crate::timeline::{Bar, Lane, Mark, Timeline};

/// Writes a trace event by event, for runs too long to hold in memory. Every error is the writer's.
///
/// ```
/// use morphgl_report::{Bar, Lane, Phase, TraceWriter};
///
/// let lanes = [Lane { name: "CPU".into(), resource: "CPU".into(), simulated: false }];
/// let mut trace = TraceWriter::new(Vec::new())?;
/// let run = trace.process("measured", &lanes, &[])?;
/// let lanes = vec![0];
/// trace.activity(run, &Bar { phase: Phase::Training, batch: 7, epoch: 0, route: 0, start: 0.0, end: 0.5, lanes })?;
/// let json: serde_json::Value = serde_json::from_slice(&trace.finish()?)?;
/// assert_eq!(json["traceEvents"][4]["dur"], 500_000.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    /// Number of lanes and names of the routes of each process.
    processes: Vec<(usize, Vec<String>)>,
    events: usize,
    left_out: usize,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a trace. The writer should be buffered.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Self { out, processes: Vec::new(), events: 0, left_out: 0 })
    }

    /// Adds a timeline's rows, and returns the number its activities are added by.
    pub fn process(&mut self, name: &str, lanes: &[Lane], routes: &[String]) -> io::Result<usize> {
        let process = self.processes.len();
        let meta = |what: &str, lane: usize, args: Value| json!({"ph": "M", "name": what, "pid": process + 1, "tid": lane, "args": args});
        self.event(&meta("process_name", 0, json!({ "name": name })))?;
        self.event(&meta("process_sort_index", 0, json!({ "sort_index": process })))?;
        for (i, lane) in lanes.iter().enumerate() {
            let name = if lane.simulated { format!("{} (simulated)", lane.name) } else { lane.name.clone() };
            self.event(&meta("thread_name", i + 1, json!({ "name": name })))?;
            self.event(&meta("thread_sort_index", i + 1, json!({ "sort_index": i })))?;
        }
        self.processes.push((lanes.len(), routes.to_vec()));
        Ok(process)
    }

    /// Adds an activity to a process: one complete event on each lane it occupies.
    /// One that cannot be drawn (see [`Timeline::activities`]) is left out and counted in the trace's `otherData`.
    ///
    /// # Panics
    /// If [`TraceWriter::process`] did not return that process.
    pub fn activity(&mut self, process: usize, activity: &Bar) -> io::Result<()> {
        let (lanes, routes) = &self.processes[process];
        let Some((block, lanes)) = check(activity, *lanes) else {
            self.left_out += 1;
            return Ok(());
        };
        let route = routes.get(block.route).map_or_else(|| json!(block.route), |name| json!(name));
        let args = json!({ "batch": block.batch, "epoch": block.epoch, "route": route });
        let phase = block.phase.to_string();
        for lane in lanes {
            self.event(&json!({
                "ph": "X", "name": format!("{phase} {}", block.batch), "cat": phase,
                "pid": process + 1, "tid": lane + 1,
                "ts": micros(block.start), "dur": micros(block.end - block.start), "args": args,
            }))?;
        }
        Ok(())
    }

    /// Adds a mark to a process, on a row of its own.
    ///
    /// # Panics
    /// If [`TraceWriter::process`] did not return that process.
    pub fn mark(&mut self, process: usize, mark: &Mark) -> io::Result<()> {
        let tid = self.processes[process].0 + 1;
        let Some((start, end)) = interval(mark.start, mark.end) else {
            self.left_out += 1;
            return Ok(());
        };
        let mut event =
            json!({ "name": mark.name, "cat": "mark", "pid": process + 1, "tid": tid, "ts": micros(start) });
        if end > start {
            (event["ph"], event["dur"]) = (json!("X"), json!(micros(end - start)));
        } else {
            (event["ph"], event["s"]) = (json!("i"), json!("p"));
        }
        self.event(&event)
    }

    /// Ends the trace and returns the writer, flushed.
    pub fn finish(mut self) -> io::Result<W> {
        write!(self.out, "\n],\"otherData\":{{\"leftOut\":{}}}}}", self.left_out)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if self.events == 0 { b"\n" } else { b",\n" })?;
        self.events += 1;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }
}

/// Writes whole timelines as a trace, each a process under its name.
///
/// # Errors
/// What the writer returns.
pub fn write_trace<W: Write>(out: W, timelines: &[(&str, &Timeline)]) -> io::Result<W> {
    let mut trace = TraceWriter::new(out)?;
    for (name, timeline) in timelines {
        let process = trace.process(name, &timeline.lanes, &timeline.routes)?;
        for activity in &timeline.activities {
            trace.activity(process, activity)?;
        }
        if !timeline.marks.is_empty() {
            let tid = timeline.lanes.len() + 1;
            trace.event(&json!({
                "ph": "M", "name": "thread_name", "pid": process + 1, "tid": tid, "args": { "name": "marks" },
            }))?;
        }
        for mark in &timeline.marks {
            trace.mark(process, mark)?;
        }
    }
    trace.finish()
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
