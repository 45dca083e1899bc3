//! The options of what a plan may use.

use anyhow::Context;
use clap::Args;
use morphgl_registry::Machine;

use super::show;
use super::values;
use crate::{Limits, memory};

/// What a plan may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory the whole program may use, for example 8GiB, the files of --mmap not counted; with --profile or --durations,
    /// memory for buffers [default: nine tenths of what is free]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory: Option<u64>,
    /// Device memory that mini-batches on their way, and the workers that sample there, may use, for example 2GiB; the model
    /// and caches come on top of it [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) device_memory: Option<u64>,
    /// Mini-batches that may wait, ready, for training
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) buffer: u16,
}

impl LimitArgs {
    /// The limits as they stand in the options, of a plan for another machine than this.
    pub(crate) fn given(&self) -> Limits {
        let Self { memory, device_memory, buffer } = *self;
        Limits { ready: buffer.into(), host_bytes: memory, device_bytes: device_memory, ..Limits::default() }
    }

    /// Bytes that this whole process may hold on this machine, where it holds `held` now.
    ///
    /// # Errors
    ///
    /// It holds more than is allowed.
    pub(crate) fn process(&self, held: u64) -> anyhow::Result<u64> {
        self.here(held)?;
        // What this process holds it may go on holding.
        Ok(self.memory.unwrap_or_else(|| held + Machine::probe().available_bytes / 10 * 9))
    }

    /// The limits on this machine, where the program holds `held` bytes without buffers.
    pub(crate) fn here(&self, held: u64) -> anyhow::Result<Limits> {
        let free = match self.memory {
            Some(all) => all.checked_sub(held).with_context(|| {
                let (all, held) = (show::bytes(all), show::bytes(held));
                format!(
                    "--memory {all}: {held} are held before anything is buffered (dataset, model, a step); \
                     give more, or fewer --threads"
                )
            })?,
            // What profiling held and gave back is taken again.
            None => {
                let free = Machine::probe().available_bytes + memory::anonymous();
                free.saturating_sub(held) / 10 * 9
            }
        };
        Ok(Limits { host_bytes: Some(free), ..self.given() })
    }
}
