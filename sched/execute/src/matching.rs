//! Which route runs which share of a schedule, and what no executor could run.

use morphgl_plan::{Policy, Schedule, Share};
use morphgl_registry::{Key, Route};

use crate::{Error, ErrorKind, Result};

/// The route of each share, by position.
///
/// # Errors
///
/// A share that no route runs, or a schedule that contradicts itself, as one read from a file may.
pub(crate) fn routes_of(
    schedule: &Schedule,
    routes: &[&Route],
    training: &Key,
    num_batches: u32,
) -> Result<Vec<usize>> {
    let wrong = |what: String| Err(Error { operator: None, batch: None, kind: ErrorKind::Setting(what) });
    let planned = schedule.num_batches();
    if planned > num_batches as usize {
        let what = format!("the schedule is for {planned} mini-batches, an epoch has {num_batches}; plan again");
        return wrong(what);
    }
    let shares = &schedule.shares;
    if shares.is_empty() || schedule.resources.len() > 32 {
        return wrong("the schedule has no share, or more than 32 resources; plan again".to_string());
    }
    let dual = shares.len() == 2 && !shares[0].in_place && shares[1].in_place;
    if schedule.policy == Policy::DualBuffer && !dual {
        let what = "a dual-buffer schedule has a share that is transferred and then one batched in place; plan again";
        return wrong(what.to_string());
    }
    let mut found = Vec::new();
    for (i, Share { keys, hardware, .. }) in shares.iter().enumerate() {
        if keys.training != training.to_string() {
            return wrong(format!(
                "{keys}: training is by {training} here; plan again for it, or train by what was planned"
            ));
        }
        let same =
            |r: &&Route| keys.batching == r.batching.to_string() && keys.transferring == r.transferring.to_string();
        let Some(route) = routes.iter().position(same) else {
            let known: Vec<String> =
                routes.iter().map(|r| format!("{} → {} → {training}", r.batching, r.transferring)).collect();
            return wrong(format!("{keys}: no such route here; there is {}; plan again", known.join(", ")));
        };
        if shares[..i].iter().any(|other| other.keys == *keys) {
            return wrong(format!("{keys}: two shares of the schedule; plan again"));
        }
        let mut names = [&hardware.batching, &hardware.transferring, &hardware.training].into_iter().flatten();
        if let Some(name) = names.find(|name| schedule.resources.iter().all(|r| r.name != **name)) {
            return wrong(format!("{keys}: holds {name}, which is not among the schedule's resources; plan again"));
        }
        found.push(route);
    }
    Ok(found)
}
