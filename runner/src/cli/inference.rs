//! Whether inference with all neighbours fits in memory, and what is done where it does not.

use clap::Args;
use morphgl_registry::{Machine, Training};

use super::show::{self, Show};
use super::usage::Usage;
use super::values;
use crate::{Evaluation, Plan, Problem, memory};

/// What inference may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct MemoryArgs {
    /// Memory the whole program may use, for example 8GiB, the files of --mmap not counted [default: nine tenths of what is
    /// free]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
}

impl MemoryArgs {
    /// What inference would take now, and what there is for it.
    pub(crate) fn inference(&self, disk_bytes: Option<u64>, training: &dyn Training) -> Inference {
        if disk_bytes.is_some() {
            return Inference::OnDisk;
        }
        let room = match self.memory {
            Some(all) => all.saturating_sub(memory::anonymous()),
            None => Machine::probe().available_bytes / 10 * 9,
        };
        Inference::InMemory { need: training.infer_bytes(), room }
    }
}

/// What is known of inference with all neighbours.
pub(crate) enum Inference {
    /// The dataset is left on disk.
    OnDisk,
    /// It takes so many bytes (not known: `None`), and there is room for so many.
    InMemory { need: Option<u64>, room: u64 },
}

impl Inference {
    /// How to evaluate: as asked, else with all neighbours where they fit.
    ///
    /// # Errors
    ///
    /// They are asked for and do not fit.
    pub(crate) fn choose(&self, asked: Option<Evaluation>, show: Show) -> anyhow::Result<Evaluation> {
        Ok(match (asked, self.why_not()) {
            (Some(Evaluation::Full), Some(why)) => {
                return Err(Usage::error(format!(
                    "--evaluation full: {why}; use sampled or none, or allow more memory"
                )));
            }
            (Some(asked), _) => asked,
            (None, None) => Evaluation::Full,
            (None, Some(why)) => {
                show.say(format_args!("evaluating on sampled mini-batches: {why}"));
                Evaluation::Sampled
            }
        })
    }

    /// Why it cannot be done, if it cannot.
    pub(crate) fn why_not(&self) -> Option<String> {
        match *self {
            Self::OnDisk => {
                Some("the dataset is left on disk, and all neighbours of all nodes do not fit in memory".to_string())
            }
            Self::InMemory { need: Some(need), room } if need > room => {
                let (need, room) = (show::bytes(need), show::bytes(room));
                Some(format!("all neighbours of all nodes take {need} of memory, there are {room}"))
            }
            Self::InMemory { .. } => None,
        }
    }
}

/// How many workers there is room for to batch for sampled evaluation beside those of the plan, which keep their memory;
/// `None` where there is for as many.
pub(crate) fn fewer_workers(problem: &Problem, plan: &Plan, room: u64) -> Option<usize> {
    let share = plan.schedule.shares.first()?;
    let route = problem.routes().iter().find(|r| r.keys == share.keys)?;
    // Of each: one mini-batch in the making, and one that waits.
    let each = route.bytes.worker + 2 * route.bytes.batched;
    usize::try_from(room / each.max(1)).ok().filter(|&n| n < share.workers)
}
