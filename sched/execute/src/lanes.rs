//! All lanes of a run, by number.

use std::time::Instant;

use crossbeam::channel::{Receiver, bounded};
use morphgl_registry::Key;

use crate::Result;
use crate::lane::{Done, Lane, Operator, Reports, ahead};

/// Who works in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Training,
    /// Of a share.
    Transferring(usize),
    /// One of a share's workers, in ascending order.
    Worker(usize),
}

/// A lane's place: it stays when the lane is given up.
struct Place {
    role: Role,
    key: Key,
    /// `None` when its thread could not be started, or was given up.
    lane: Option<Lane>,
}

/// All lanes of a run.
pub(crate) struct Lanes {
    places: Vec<Place>,
    done: Receiver<Done>,
}

impl Lanes {
    /// Starts all lanes.
    ///
    /// # Errors
    ///
    /// A thread cannot be started: its operator is lost, the others are there.
    pub(crate) fn start(start: Instant, operators: Vec<(Role, Key, Operator)>) -> (Self, Result<()>) {
        // A lane answers once for each mini-batch that it was told of, and there is room for all these answers: nobody waits to
        // report.
        let answers: usize = operators.iter().map(|(_, _, operator)| 1 + ahead(operator)).sum();
        let (report, done) = bounded(answers.max(1));
        let mut lanes = Self { places: Vec::with_capacity(operators.len()), done };
        let mut outcome = Ok(());
        for (role, key, operator) in operators {
            let name = match role {
                Role::Training => "training".to_string(),
                Role::Transferring(share) => format!("transferring-{share}"),
                Role::Worker(share) => format!("batching-{share}-{}", lanes.of(role).count()),
            };
            let reports = Reports { done: report.clone(), start };
            let lane = match Lane::start(lanes.places.len(), name, &key, operator, reports) {
                Ok(lane) => Some(lane),
                Err(e) => {
                    outcome = outcome.and(Err(e));
                    None
                }
            };
            lanes.places.push(Place { role, key, lane });
        }
        (lanes, outcome)
    }

    /// Numbers of the lanes of this role.
    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = usize> + '_ {
        (0..self.places.len()).filter(move |&i| self.places[i].role == role)
    }

    /// Number of lanes.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Where lanes report to.
    pub(crate) fn done(&self) -> &Receiver<Done> {
        &self.done
    }

    pub(crate) fn lane(&self, number: usize) -> &Lane {
        self.places[number].lane.as_ref().expect("a lane that was given up is a failure, after which nothing begins")
    }

    /// Mini-batches that a lane may be told of beside the one that its operator is at.
    pub(crate) fn ahead(&self, number: usize) -> usize {
        self.places[number].lane.as_ref().map_or(0, Lane::ahead)
    }

    /// Leaves a lane to itself; its operator's key.
    pub(crate) fn give_up(&mut self, number: usize) -> Key {
        self.places[number].lane = None;
        self.places[number].key.clone()
    }

    /// Ends all lanes, and hands back who worked in each: `Err` with the key where the operator is lost.
    pub(crate) fn end(self) -> Vec<(Role, std::result::Result<Operator, Key>)> {
        let back = |p: Place| (p.role, p.lane.and_then(Lane::end).ok_or(p.key));
        self.places.into_iter().map(back).collect()
    }
}
