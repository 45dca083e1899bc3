//! All lanes of a run, by number.

use std::time::Instant;

use crossbeam::channel::{Receiver, bounded};
use morphgl_registry::Key;

use crate::Error;
use crate::lane::{Answer, Lane, Operator};

/// A lane with its share and its operator's key, which outlive the thread.
struct Entry {
    /// Share of the schedule that the lane serves; `None` for training's lane, which serves all of them.
    share: Option<usize>,
    key: Key,
    /// `None` when its thread could not be started, or was abandoned.
    lane: Option<Lane>,
}

/// All lanes of a run.
pub(crate) struct Lanes {
    entries: Vec<Entry>,
    answers: Receiver<Answer>,
}

impl Lanes {
    /// Starts all lanes; also returns the first error, of a thread that cannot be started: its operator is lost, the others are
    /// there.
    pub(crate) fn start(start: Instant, operators: Vec<(Option<usize>, Key, Operator)>) -> (Self, Option<Error>) {
        // A lane answers once to each mini-batch it was sent, and that of training to an export; the channel holds all these
        // answers: no lane waits to answer.
        let most: usize = operators.iter().map(|(_, _, operator)| 1 + operator.queue()).sum();
        let (send, answers) = bounded(most + 1);
        let mut lanes = Self { entries: Vec::with_capacity(operators.len()), answers };
        let mut failure = None;
        for (number, (share, key, operator)) in operators.into_iter().enumerate() {
            let lane = Lane::start(number, &key, operator, send.clone(), start);
            let lane = match lane {
                Ok(lane) => Some(lane),
                Err(e) => {
                    failure.get_or_insert(e);
                    None
                }
            };
            lanes.entries.push(Entry { share, key, lane });
        }
        (lanes, failure)
    }

    /// Numbers of a share's lanes: transferring first, then its workers.
    pub(crate) fn of_share(&self, share: usize) -> Vec<usize> {
        (0..self.entries.len()).filter(|&i| self.entries[i].share == Some(share)).collect()
    }

    /// Number of lanes.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The channel of all lanes' answers.
    pub(crate) fn answers(&self) -> &Receiver<Answer> {
        &self.answers
    }

    pub(crate) fn lane(&self, number: usize) -> &Lane {
        self.entries[number].lane.as_ref().expect("nothing begins after a lane was abandoned")
    }

    /// Mini-batches that a lane may be sent besides the one in work.
    pub(crate) fn queue(&self, number: usize) -> usize {
        self.entries[number].lane.as_ref().map_or(0, Lane::queue)
    }

    /// Abandons a lane with its thread and operator; returns the operator's key.
    pub(crate) fn abandon(&mut self, number: usize) -> Key {
        self.entries[number].lane = None;
        self.entries[number].key.clone()
    }

    /// Ends all lanes; returns their shares and operators, `Err` with the key of a lost one.
    pub(crate) fn end(self) -> Vec<(Option<usize>, std::result::Result<Operator, Key>)> {
        let end = |entry: Entry| (entry.share, entry.lane.and_then(Lane::end).ok_or(entry.key));
        self.entries.into_iter().map(end).collect()
    }
}
