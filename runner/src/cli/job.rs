//! The options that every command with a model shares, and what they make.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::Limits;
use crate::memory;
use crate::{JobConfig, Operators, TrainingSpec, registry, routes};
use anyhow::Context;
use clap::{Args, ValueEnum};
use morphgl_graph_store::{Dataset, Load, Meta, OpenOptions};
use morphgl_model_spec::ModelSpec;
use morphgl_plan::Time;
use morphgl_registry::{At, Expansion, Fanouts, Key, Machine, Pick, SamplerSettings};
use serde_json::{Map, Value};

use super::model::ModelArgs;
use super::show::{self, Show};
use super::usage::{OrUsage, Usage};
use super::values;

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct DataArgs {
    /// Directory of the dataset [default: a generated graph of 50,000 nodes]
    pub(crate) dataset: Option<PathBuf>,
    /// Map the dataset's files instead of reading them to memory
    #[arg(long, requires = "dataset")]
    pub(crate) mmap: bool,
    /// Skip checksums and the search for NaN features when opening the dataset
    #[arg(long, requires = "dataset")]
    pub(crate) no_verify: bool,
}

impl DataArgs {
    /// Opens the dataset, or generates the embedded default; leaves one on disk that does not fit in the memory there is, or
    /// that is to be batched from there. Then, with the bytes that may be held of it: half of the memory less the program's own.
    pub(crate) fn open_within(
        &self,
        memory: Option<u64>,
        batch: &BatchArgs,
        show: Show,
    ) -> anyhow::Result<(Arc<Dataset>, Option<u64>)> {
        let Some(path) = self.dataset.as_ref().filter(|_| !self.mmap) else { return Ok((self.open(show)?, None)) };
        let meta = Meta::read(path)?;
        let bytes: u64 = meta.arrays.values().map(|a| a.shape.iter().product::<u64>() * a.dtype.size() as u64).sum();
        let memory = memory.unwrap_or_else(|| Machine::probe().available_bytes / 10 * 9);
        let asked = match &batch.batching {
            Some(key) => registry()?.get(key)?.reads == At::Disk,
            None => false,
        };
        if !asked && fits(bytes, memory) {
            return Ok((self.open(show)?, None));
        }
        let start = Instant::now();
        let dataset = Arc::new(Dataset::open(path, OpenOptions { load: Load::Disk, verify: false })?);
        let share = memory.saturating_sub(BESIDE) / 2;
        let (bytes, memory, half) = (show::bytes(bytes), show::bytes(memory), show::bytes(share));
        let why = if asked { "as asked" } else { "it does not fit" };
        show.say(format_args!(
            "left on disk ({why}): {bytes} of dataset, {memory} of memory, {half} of it to hold what is used most"
        ));
        describe(&dataset, start, show);
        Ok((dataset, Some(share)))
    }

    /// Opens the dataset, or generates the embedded default.
    pub(crate) fn open(&self, show: Show) -> anyhow::Result<Arc<Dataset>> {
        let start = Instant::now();
        let dataset = match &self.dataset {
            Some(path) => open(path, self.mmap, !self.no_verify)?,
            None => Arc::new(crate::default_dataset()),
        };
        describe(&dataset, start, show);
        Ok(dataset)
    }
}

fn describe(dataset: &Dataset, start: Instant, show: Show) {
    show.say(format_args!(
        "{}: {} nodes, {} edges, {} features, {} classes ({})",
        dataset.name,
        show::number(dataset.num_nodes() as u64),
        show::number(dataset.topology.num_edges()),
        dataset.feature_dim(),
        dataset.num_classes,
        Time(start.elapsed().as_secs_f64()),
    ));
}

/// What of the memory a dataset in memory may take: the rest is for the program, the model, a step and its mini-batches.
fn fits(dataset: u64, memory: u64) -> bool {
    dataset <= memory / 4 * 3
}

/// Kept free of what is held of a dataset on disk, whatever is allowed: for the program, a small model and its steps.
const BESIDE: u64 = 64 << 20;

pub(crate) fn open(path: &Path, mmap: bool, verify: bool) -> anyhow::Result<Arc<Dataset>> {
    let load = if mmap { Load::Mmap } else { Load::Ram };
    Ok(Arc::new(Dataset::open(path, OpenOptions { load, verify })?))
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mini-batches and machine")]
pub(crate) struct BatchArgs {
    /// Neighbours sampled a node, the seeds' own hop first; -1 for all [default: 15,10,5, cut to the number of layers]
    #[arg(long, allow_hyphen_values = true)]
    pub(super) fanouts: Option<Fanouts>,
    /// Seeds a mini-batch
    #[arg(long, value_parser = values::at_least_one, default_value_t = 1024)]
    batch_size: usize,
    /// Nodes a hop expands: all found so far (DGL), or the newly found (PyG)
    #[arg(long, value_enum, default_value = "all")]
    expansion: ExpansionArg,
    /// Pick neighbours by edge weight instead of uniformly
    #[arg(long)]
    weighted: bool,
    /// Seed of permutation, sampling, initial parameters and dropout
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads to use [default: all cores]
    #[arg(long, value_parser = values::threads)]
    pub(crate) threads: Option<usize>,
    /// Batching operator, by its key [default: of the best plan]
    #[arg(long, value_name = "KEY")]
    batching: Option<Key>,
    /// Transferring operator, by its key
    #[arg(long, value_name = "KEY")]
    transferring: Option<Key>,
    /// Training operator, by its key; no other is measured then [default: of those at a place, the one measured to be the
    /// fastest]
    #[arg(long, value_name = "KEY")]
    training: Option<Key>,
    /// Set an operator's option, such as Training_CUDA_Native.tf32=true; may be repeated. `morphgl ops --options` lists them
    #[arg(long, value_name = "KEY.NAME=VALUE", value_parser = values::setting)]
    set: Vec<(Key, String, Value)>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExpansionArg {
    All,
    New,
}

impl BatchArgs {
    /// Refuses fanouts that are not one a layer.
    pub(crate) fn check_layers(&self, layers: usize) -> anyhow::Result<()> {
        match &self.fanouts {
            Some(fanouts) if fanouts.0.len() != layers => {
                let hops = fanouts.0.len();
                let what = format!("{hops} hops for a model of {layers} layers; give one fanout a layer");
                Err(Usage::error(format!("--fanouts {fanouts}: {what}")))
            }
            _ => Ok(()),
        }
    }

    fn operators(&self) -> Operators {
        let Self { batching, transferring, training, .. } = self.clone();
        Operators { batching, transferring, training }
    }

    /// The options of operators, checked; the last of a name counts. Sizes may be text such as `2GiB`.
    fn options(&self) -> anyhow::Result<BTreeMap<Key, Map<String, Value>>> {
        let mut all = BTreeMap::<Key, Map<String, Value>>::new();
        if self.set.is_empty() {
            return Ok(all);
        }
        let registry = registry()?;
        for (key, name, value) in &self.set {
            let options = registry.get(key).or_usage("--set")?.options;
            let in_bytes = options.iter().any(|o| o.name == name && o.unit == "bytes");
            let size = value.as_str().filter(|_| in_bytes).and_then(|text| super::durations::bytes(text).ok());
            all.entry(key.clone()).or_default().insert(name.clone(), size.map_or(value.clone(), Value::from));
        }
        for (key, options) in &all {
            registry.check_options(key, &Value::Object(options.clone())).or_usage("--set")?;
        }
        Ok(all)
    }

    /// Refuses operators that no route has, before a dataset is read; and keeps what runs outside of plans (opening,
    /// checking, gathering) to the threads asked for, too.
    pub(crate) fn limit_threads(&self) -> anyhow::Result<()> {
        let named =
            [("--batching", &self.batching), ("--transferring", &self.transferring), ("--training", &self.training)];
        let named: Vec<&str> = named.iter().filter(|(_, key)| key.is_some()).map(|(option, _)| *option).collect();
        if !named.is_empty() {
            routes(&registry()?, &self.operators()).or_usage(named.join(", "))?;
        }
        self.options()?;
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        }
        Ok(())
    }
}

/// What a plan may use.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory the whole program may use, for example 8GiB, the files of --mmap not counted; with --profile or --durations,
    /// memory for buffers [default: nine tenths of what is free]
    #[arg(long, value_name = "BYTES", value_parser = |s: &str| super::durations::bytes(s))]
    pub(crate) memory: Option<u64>,
    /// Device memory that mini-batches on their way, and the workers that sample there, may use, for example 2GiB; the model
    /// and caches come on top of it [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = |s: &str| super::durations::bytes(s))]
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

/// The job the options describe on `dataset`.
pub(crate) fn config(dataset: &Dataset, model: &ModelArgs, batch: &BatchArgs) -> anyhow::Result<JobConfig> {
    let spec = model.spec(dataset.feature_dim(), dataset.num_classes, batch);
    refuse_larger_than_memory(&spec, Machine::probe().available_bytes)?;
    with_spec(TrainingSpec { model: spec, optimizer: model.optimizer() }, batch)
}

/// Refuses a model that cannot be held, before memory runs out over it: one label that is too large is enough for that.
fn refuse_larger_than_memory(spec: &ModelSpec, free: u64) -> anyhow::Result<()> {
    // What is wrong otherwise is said, in its own words, by those who build the model.
    if spec.validate().is_err() || free == 0 {
        return Ok(());
    }
    let values: f64 = spec.parameters().iter().map(|p| p.shape.iter().map(|&n| n as f64).product::<f64>()).sum();
    // In f32, here and the best so far; gradients and moments may lie on a device.
    let bytes = (values * 8.0) as u64;
    if bytes > free {
        let (bytes, free, classes) = (show::bytes(bytes), show::bytes(free), show::number(spec.num_classes as u64));
        anyhow::bail!(
            "model: parameters for a width of {} and {classes} classes take at least {bytes}, {free} are free; \
             use a smaller --hidden, or look for a label that is too large",
            spec.hidden
        );
    }
    Ok(())
}

/// The job of a model that is already there.
pub(crate) fn with_spec(spec: TrainingSpec, batch: &BatchArgs) -> anyhow::Result<JobConfig> {
    let sampler = SamplerSettings {
        fanouts: batch.fanouts.clone().unwrap_or_else(|| crate::default_fanouts(&spec.model)),
        batch_size: batch.batch_size,
        seed: batch.seed,
        expansion: match batch.expansion {
            ExpansionArg::All => Expansion::All,
            ExpansionArg::New => Expansion::New,
        },
        pick: if batch.weighted { Pick::Weighted } else { Pick::Uniform },
        shuffle: true,
    };
    Ok(JobConfig {
        spec,
        sampler,
        seed: batch.seed,
        threads: batch.threads,
        operators: batch.operators(),
        options: batch.options()?,
        disk_bytes: None,
    })
}
