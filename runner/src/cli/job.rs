//! The options that every command with a model shares, and what they make.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::Limits;
use crate::memory;
use crate::{JobConfig, Operators, TrainingSpec, registry, routes};
use anyhow::Context;
use clap::{Args, ValueEnum};
use morphgl_graph_store::{Dataset, Load, Meta, OpenOptions};
use morphgl_model_spec::{Activation, Attention, ModelKind, ModelSpec, Normalization, OptimizerSpec, WeightDecayOn};
use morphgl_plan::Time;
use morphgl_registry::{Expansion, Fanouts, Key, Machine, Pick, SamplerSettings};

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
        limits: &LimitArgs,
        batch: &BatchArgs,
        show: Show,
    ) -> anyhow::Result<(Arc<Dataset>, Option<u64>)> {
        let Some(path) = self.dataset.as_ref().filter(|_| !self.mmap) else { return Ok((self.open(show)?, None)) };
        let meta = Meta::read(path)?;
        let bytes: u64 = meta.arrays.values().map(|a| a.shape.iter().product::<u64>() * a.dtype.size() as u64).sum();
        let memory = limits.memory.unwrap_or_else(|| Machine::probe().available_bytes / 10 * 9);
        let asked = batch.batching.as_ref().is_some_and(|key| key.hardware.resources().contains(&crate::job::DISK));
        if !asked && fits(bytes, memory) {
            return Ok((self.open(show)?, None));
        }
        let start = Instant::now();
        let dataset = Arc::new(Dataset::open(path, OpenOptions { load: Load::Disk, verify: false })?);
        let share = memory.saturating_sub(PROGRAM) / 2;
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

/// What the program takes before it holds anything of a dataset.
const PROGRAM: u64 = 64 << 20;

pub(crate) fn open(path: &Path, mmap: bool, verify: bool) -> anyhow::Result<Arc<Dataset>> {
    let load = if mmap { Load::Mmap } else { Load::Ram };
    Ok(Arc::new(Dataset::open(path, OpenOptions { load, verify })?))
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Kind of model: gcn, sage, gat, gin, or mlp (the features alone, for comparison); heads and attention are read by
    /// GAT alone
    #[arg(long, default_value = "sage")]
    model: ModelKind,
    /// Number of layers [default: as many as fanouts, else 3]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    layers: Option<u16>,
    /// Width of hidden layers, all heads together [default: 256]
    #[arg(long)]
    hidden: Option<usize>,
    /// GAT: attention heads of hidden layers [default: 4]
    #[arg(long)]
    heads: Option<usize>,
    /// GAT: attention heads of the last layer, averaged
    #[arg(long, default_value_t = 1)]
    output_heads: usize,
    /// GAT: how an edge is scored
    #[arg(long, value_enum, default_value = "gat")]
    attention: AttentionArg,
    /// Share of the hidden layers' outputs that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.5)]
    dropout: f32,
    /// Share of the input features that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.0)]
    input_dropout: f32,
    /// GAT: share of the attention coefficients that is dropped
    #[arg(long, value_parser = values::finite::<f32>, default_value_t = 0.0)]
    attention_dropout: f32,
    /// What follows every layer but the last
    #[arg(long, value_enum, default_value = "relu")]
    activation: ActivationArg,
    /// What stands between a hidden layer and its activation
    #[arg(long, value_enum, default_value = "none")]
    normalization: NormalizationArg,
    /// Hidden layers after the first add their input to their output
    #[arg(long)]
    residual: bool,
    /// GraphSAGE: scale every layer's output rows to length 1
    #[arg(long)]
    l2_normalize: bool,
    /// Learning rate of Adam
    #[arg(long, value_parser = values::finite::<f64>, default_value_t = 0.003)]
    lr: f64,
    /// Weight decay of Adam, coupled (L2) as torch's
    #[arg(long, value_parser = values::finite::<f64>, default_value_t = 0.0)]
    weight_decay: f64,
    /// Weight decay on the first layer alone, as in Kipf and Welling's GCN
    #[arg(long)]
    decay_first_layer: bool,
}

impl ModelArgs {
    /// Sets what was not asked for: hidden width by kind of model, and heads.
    pub(crate) fn default_to(&mut self, hidden: impl FnOnce(ModelKind) -> usize, heads: usize) {
        self.hidden = self.hidden.or_else(|| Some(hidden(self.model)));
        self.heads = self.heads.or(Some(heads));
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AttentionArg {
    Gat,
    Gatv2,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ActivationArg {
    Relu,
    Elu,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NormalizationArg {
    None,
    Layer,
    Batch,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mini-batches and machine")]
pub(crate) struct BatchArgs {
    /// Neighbours sampled a node, the seeds' own hop first; -1 for all [default: 15,10,5, cut to the number of layers]
    #[arg(long, allow_hyphen_values = true)]
    fanouts: Option<Fanouts>,
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
    /// Batching operator, by its key [default: of the first route]
    #[arg(long, value_name = "KEY")]
    batching: Option<Key>,
    /// Transferring operator, by its key
    #[arg(long, value_name = "KEY")]
    transferring: Option<Key>,
    /// Training operator, by its key
    #[arg(long, value_name = "KEY")]
    training: Option<Key>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ExpansionArg {
    All,
    New,
}

impl BatchArgs {
    fn operators(&self) -> Operators {
        let Self { batching, transferring, training, .. } = self.clone();
        Operators { batching, transferring, training }
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

    /// The limits on this machine, where the program holds `held` bytes without buffers.
    pub(crate) fn here(&self, held: u64) -> anyhow::Result<Limits> {
        let free = match self.memory {
            Some(all) => all.checked_sub(held).with_context(|| {
                let (all, held) = (show::bytes(all), show::bytes(held));
                format!(
                    "--memory {all}: dataset, model and a step take {held} before anything is buffered; \
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

impl ModelArgs {
    /// The model for so many features and classes.
    fn spec(&self, in_dim: usize, num_classes: usize, batch: &BatchArgs) -> ModelSpec {
        ModelSpec {
            hidden: self.hidden.unwrap_or(256),
            layers: self.layers.map(usize::from).or(batch.fanouts.as_ref().map(|f| f.0.len())).unwrap_or(3),
            heads: self.heads.unwrap_or(4),
            output_heads: self.output_heads,
            attention: match self.attention {
                AttentionArg::Gat => Attention::Gat,
                AttentionArg::Gatv2 => Attention::Gatv2,
            },
            dropout: self.dropout,
            input_dropout: self.input_dropout,
            attention_dropout: self.attention_dropout,
            activation: match self.activation {
                ActivationArg::Relu => Activation::Relu,
                ActivationArg::Elu => Activation::Elu,
            },
            residual: self.residual,
            normalization: match self.normalization {
                NormalizationArg::None => Normalization::None,
                NormalizationArg::Layer => Normalization::Layer,
                NormalizationArg::Batch => Normalization::Batch,
            },
            l2_normalize: self.l2_normalize,
            ..ModelSpec::new(self.model, in_dim, num_classes)
        }
    }

    fn optimizer(&self) -> OptimizerSpec {
        OptimizerSpec {
            lr: self.lr,
            weight_decay: self.weight_decay,
            weight_decay_on: if self.decay_first_layer { WeightDecayOn::FirstLayer } else { WeightDecayOn::All },
            ..OptimizerSpec::default()
        }
    }

    /// Refuses what no dataset could be trained with, before one is read.
    pub(crate) fn check(&self, batch: &BatchArgs) -> anyhow::Result<()> {
        let spec = self.spec(1, 1, batch);
        for checked in [spec.validate(), self.optimizer().validate()] {
            // Its context is the field: `model.input_dropout` is set by --input-dropout.
            checked.map_err(|e| {
                let field = e.context.rsplit('.').next().unwrap_or_default().replace('_', "-");
                Usage::error(e.to_string().replacen(&e.context, &format!("--{field}"), 1))
            })?;
        }
        let layers = spec.layers;
        match &batch.fanouts {
            Some(fanouts) if fanouts.0.len() != layers => {
                let hops = fanouts.0.len();
                let what = format!("{hops} hops for a model of {layers} layers; give one fanout a layer");
                Err(Usage::error(format!("--fanouts {fanouts}: {what}")))
            }
            _ => Ok(()),
        }
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
        disk_bytes: None,
    })
}
