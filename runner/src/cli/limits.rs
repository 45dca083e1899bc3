//! The options that limit a plan.

use anyhow::Context;
use clap::Args;
use morphgl_registry::Machine;

use super::show;
use super::values;
use crate::{Limits, memory};

/// Of the memory that --memory leaves for caches, buffers and workers, 1 / `RESERVE_PARTS` stays unplanned: plans count what
/// these use, not fragmentation of the heap or pages of the program loaded later. Without it a plan that filled 160 MiB on a
/// machine under load peaked 1.4 MiB above.
const RESERVE_PARTS: u64 = 16;

/// The limits of a plan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory the whole program may use, for example 8GiB, the files of --mmap not counted; with --profile or --durations,
    /// memory for caches and buffers [default: nine tenths of what is free]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Device memory for mini-batches in flight, the workers that sample there and caches whose size is planned, for example 2GiB;
    /// the model and other caches come on top of it [default: with a cache to plan nine tenths of what is free, else no limit]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) device_memory: Option<u64>,
    /// Maximum length of the ready queue: mini-batches that wait for training
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) buffer: u16,
}

impl LimitArgs {
    /// The limits of a plan for another machine: those of the options alone.
    pub(crate) fn options(&self) -> Limits {
        let Self { memory, device_memory, buffer } = *self;
        Limits { ready: buffer.into(), host_bytes: memory, device_bytes: device_memory, ..Limits::default() }
    }

    /// Memory limit of this process in bytes, `held` of which are in use; an error if more is in use than allowed.
    pub(crate) fn process(&self, held: u64) -> anyhow::Result<u64> {
        self.this_machine(held)?;
        Ok(self.memory.unwrap_or_else(|| held + Machine::probe().available_bytes / 10 * 9))
    }

    /// The limits of a plan on this machine, where the program needs `held` bytes besides caches, buffers and workers; an error
    /// if that is more than allowed.
    pub(crate) fn this_machine(&self, held: u64) -> anyhow::Result<Limits> {
        let free = match self.memory {
            Some(all) => all.checked_sub(held).map(|free| free - free / RESERVE_PARTS).with_context(|| {
                let (all, held) = (show::bytes(all), show::bytes(held));
                format!(
                    "--memory {all}: {held} are held before anything is buffered (dataset, model, a step); \
                     give more, or fewer --threads"
                )
            })?,
            // `held` is counted from nothing, so the memory that is in use now counts as free.
            None => (Machine::probe().available_bytes + memory::anonymous()).saturating_sub(held) / 10 * 9,
        };
        Ok(Limits { host_bytes: Some(free), ..self.options() })
    }
}
