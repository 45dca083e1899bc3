//! The routes of a schedule's shares, and checks of schedules that no executor could run.

use morphgl_plan::{Policy, RouteKeys, Schedule, ScheduleShare};
use morphgl_registry::{Key, Route};

use crate::{Error, Result};

/// Index of the route of each share.
///
/// # Errors
///
/// A share's route is not among `routes`, or the schedule contradicts itself, as one read from a file may.
pub(crate) fn routes_of(
    schedule: &Schedule,
    routes: &[&Route],
    training: &Key,
    num_batches: u32,
) -> Result<Vec<usize>> {
    let refused = |text: String| Err(Error::setting(None, text));
    let planned = schedule.num_batches();
    if planned > num_batches as usize {
        let text = format!("the schedule is for {planned} mini-batches, an epoch has {num_batches}; plan again");
        return refused(text);
    }
    let shares = &schedule.shares;
    if shares.is_empty() || schedule.resources.len() > 32 {
        return refused("the schedule has no share, or more than 32 resources; plan again".to_string());
    }
    let dual = shares.len() == 2 && !shares[0].in_place && shares[1].in_place;
    if schedule.policy == Policy::DualBuffer && !dual {
        let text = "a dual-buffer schedule has a share that is transferred and then one batched in place; plan again";
        return refused(text.to_string());
    }
    let known: Vec<RouteKeys> = routes.iter().map(|&route| route.into()).collect();
    let mut indices = Vec::new();
    for ScheduleShare { keys, hardware, .. } in shares {
        if keys.training != *training {
            return refused(format!(
                "{keys}: training is by {training} here; plan again for it, or train by what was planned"
            ));
        }
        let Some(index) = known.iter().position(|k| k == keys) else {
            let known: Vec<String> = known.iter().map(ToString::to_string).collect();
            return refused(format!("{keys}: no such route here; there is {}; plan again", known.join(", ")));
        };
        if indices.contains(&index) {
            return refused(format!("{keys}: two shares of the schedule; plan again"));
        }
        let mut names = [&hardware.batching, &hardware.transferring, &hardware.training].into_iter().flatten();
        if let Some(name) = names.find(|name| schedule.resources.iter().all(|r| r.name != **name)) {
            return refused(format!("{keys}: holds {name}, which is not among the schedule's resources; plan again"));
        }
        indices.push(index);
    }
    Ok(indices)
}
