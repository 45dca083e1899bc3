//! Limits of a plan.

use clap::Args;
use morphgl_registry::Machine;

use crate::admission::Excess;
use crate::sufficient::{RESERVE_PARTS, Sizes, with_reserve};
use crate::usage::Usage;
use crate::{JobConfig, Limits, memory, values, words};

/// Maximum length of the ready queue, where none is given.
const BUFFER: u16 = 10;

/// The limits of a plan.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Resident memory the whole program may use, for example 8GiB: the program itself, dataset or caches, model, mini-batches; the
    /// files of --mmap not counted. Under mpirun of each rank. With --profile or --durations memory for caches and buffers [default:
    /// nine tenths of what is free]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub memory: Option<u64>,
    /// Device memory for mini-batches in flight, the workers that sample there and caches whose size is planned, for example 2GiB;
    /// the model, a topology that is not cached by parts, and other caches come on top of it [default: with a cache to plan nine tenths of what is free, else no limit]
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    pub device_memory: Option<u64>,
    /// Maximum length of the ready queue: mini-batches that wait for training [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub buffer: Option<u16>,
}

impl LimitOptions {
    /// The limits of a plan for another machine: those of the options alone.
    pub(crate) fn options(&self) -> Limits {
        let Self { memory, device_memory, buffer } = *self;
        Limits {
            ready: buffer.unwrap_or(BUFFER).into(),
            host_bytes: memory,
            device_bytes: device_memory,
            ..Limits::default()
        }
    }

    /// Memory limit of this process in bytes, `held` of which are in use.
    pub(crate) fn process(&self, held: u64) -> u64 {
        self.memory.unwrap_or_else(|| held + Machine::probe().available_bytes / 10 * 9)
    }

    /// The limits of a plan on this machine, where the program needs `held` bytes besides caches, buffers and workers.
    pub(crate) fn this_machine(&self, held: u64) -> Limits {
        let free = match self.memory {
            Some(all) => {
                let free = all.saturating_sub(held);
                free - free / RESERVE_PARTS
            }
            // `held` is counted from nothing, so the memory that is in use now counts as free.
            None => (Machine::probe().available_bytes + memory::anonymous()).saturating_sub(held) / 10 * 9,
        };
        Limits { host_bytes: Some(free), ..self.options() }
    }
}

/// Bytes of --memory that leave `planned` for a plan beside `held`.
pub(crate) fn needed(held: u64, planned: u64) -> u64 {
    held + with_reserve(planned)
}

/// What is known of the memory that a job needs, besides its sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    Nothing,
    /// Bytes that the job needs.
    Needed(u64),
    /// A share of a mini-batch that was tried does not fit; the second value is the bytes of the dataset and its caches.
    Tried(Excess, u64),
}

/// The error for too little `memory`, with the memory and the batch size that suffice for the job.
pub(crate) fn too_little(memory: u64, why: &str, known: Known, sizes: Sizes, config: &JobConfig) -> anyhow::Error {
    let computed = sizes.sufficient(config, config.sampler.batch_size);
    let enough = match known {
        Known::Nothing => computed,
        Known::Needed(bytes) => computed.max(bytes),
        // Both are upper bounds.
        Known::Tried(excess, held) => {
            let own = excess.whole.saturating_sub(held);
            computed.min(sizes.beside(with_reserve(own)).max(excess.bytes))
        }
    };
    let enough = enough.div_ceil(1 << 20);
    let smaller = sizes.smaller_batch(config, memory).map_or(String::new(), |n| format!(", or --batch-size {n}"));
    Usage::error(format!("--memory {}: {why}; give --memory {enough}MiB{smaller}", words::bytes(memory)))
}
