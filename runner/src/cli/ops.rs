//! `morphgl ops`: the operators, and the routes they form here.

use morphgl_platform::SimdLevel;
use serde_json::json;

use super::{Outcome, show};

pub(crate) const EXAMPLES: &str = "Examples:
  morphgl ops
  morphgl ops --json | jq '.operators[] | select(.available).key'";

pub(crate) fn run() -> anyhow::Result<Outcome> {
    let registry = crate::registry()?;
    let machine = registry.machine();
    let status = registry.status();
    let routes = registry.routes();
    let rows: Vec<Vec<String>> = status
        .iter()
        .map(|s| {
            let yes = if s.description.reference { "yes, a reference" } else { "yes" };
            let available = s.availability.as_ref().map_or_else(|u| format!("no: {}", u.reason), |()| yes.into());
            let places = format!("{} → {}", s.description.reads, s.description.writes);
            vec![s.description.key.to_string(), places, available, s.description.summary.to_string()]
        })
        .collect();
    let mut text = format!(
        "{}, {} cores, SIMD level {}, {} of memory ({} free)\n",
        machine.cpu,
        machine.cores,
        SimdLevel::current(),
        show::bytes(machine.memory_bytes),
        show::bytes(machine.available_bytes)
    );
    for a in &machine.accelerators {
        text += &format!("{}: {}, {}\n", a.place, a.name, show::bytes(a.memory_bytes));
    }
    text += "\n";
    text += &show::table(&["operator", "places", "available", "summary"], &rows, &[0, 1, 2, 3]);
    text += "\nroutes\n";
    for (i, r) in routes.iter().enumerate() {
        text += &format!("{i}: {} → {} → {} (trained at {})\n", r.batching, r.transferring, r.training, r.trained_at);
    }
    let operators: Vec<_> = status
        .iter()
        .map(|s| {
            let d = s.description;
            json!({
                "key": d.key, "phase": d.key.phase, "hardware": d.key.hardware, "operator": d.key.operator(),
                "summary": d.summary, "reads": d.reads.to_string(), "writes": d.writes.to_string(),
                "available": s.availability.is_ok(), "reference": d.reference,
                "reason": s.availability.as_ref().err().map(|u| &u.reason),
            })
        })
        .collect();
    Ok(Outcome::new(
        text,
        json!({ "machine": machine, "isa": SimdLevel::current().name(), "operators": operators, "routes": routes }),
    ))
}
