//! The description of an operator, a constant that its crate submits.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Accelerator, At, Batching, BatchingContext, CounterSpec, Error, Key, Machine, OptionSpec, Phase, Result,
    SamplingSpec, SeedSet, Training, TrainingContext, Transferring, TransferringContext, option,
};

/// Why an operator cannot run on this machine. Not an error: a machine need not have every device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// What is missing, for the user.
    pub reason: String,
}

/// The constructor of an operator.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "each variant builds an operator of its phase")]
pub enum Build {
    Batching(fn(&BatchingContext) -> Result<Box<dyn Batching>>),
    Transferring(fn(&TransferringContext) -> Result<Box<dyn Transferring>>),
    Training(fn(&TrainingContext) -> Result<Box<dyn Training>>),
}

impl Build {
    /// The phase of what it builds.
    pub const fn phase(&self) -> Phase {
        match self {
            Build::Batching(_) => Phase::Batching,
            Build::Transferring(_) => Phase::Transferring,
            Build::Training(_) => Phase::Training,
        }
    }
}

impl fmt::Debug for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Build::{}", self.phase())
    }
}

/// When a batching or transferring operator fills in the features of mini-batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureFill {
    /// Every mini-batch gets features, whatever `gather` in the context says.
    Always,
    /// Mini-batches get features where `gather` in the context is set.
    #[default]
    OnRequest,
    /// No mini-batch gets features; another operator of the route fills them in.
    Never,
}

/// The description of an operator, submitted as a constant by [`crate::submit!`].
#[derive(Debug, Clone)]
pub struct Description {
    /// Its name.
    pub key: Key,
    /// What it does, in one line without a full stop.
    pub summary: &'static str,
    /// The place it reads from. Batching reads the dataset, in host memory or on disk; transferring and training read
    /// mini-batches.
    pub reads: At,
    /// The place it writes to.
    pub writes: At,
    /// Whether it can run on this machine. Never panics.
    pub probe: fn(&Machine) -> std::result::Result<(), Unavailable>,
    /// The devices its backend finds. Never panics.
    pub accelerators: fn(&Machine) -> Vec<Accelerator>,
    /// Its constructor.
    pub build: Build,
    /// Whether it is a reference, against which others of its phase are tested. Its routes come last.
    pub reference: bool,
    /// Whether it runs on a simulated device: reports mark its figures, and its training learns nothing.
    pub simulated: bool,
    /// Whether its device queues the work of several phases, as CUDA streams do.
    pub queues: bool,
    /// Whether it is a training operator that reads features from the dataset in host memory, where a mini-batch has none.
    pub reads_store: bool,
    /// Whether it transfers or trains mini-batches with given rows ([`GivenRows`](crate::GivenRows)).
    pub takes_given_rows: bool,
    /// When batching or transferring fills in features.
    pub features: FeatureFill,
    /// Whether it is a transferring operator that gathers features where it writes mini-batches: batching then leaves them out.
    pub gathers_features: bool,
    /// Whether it is a transferring operator that copies from one device to another of its backend: its routes batch on one and
    /// train on another.
    pub between_devices: bool,
    /// The kinds of sampling of a batching operator, whose settings it reads.
    pub samplers: &'static [SamplingSpec],
    /// Whether a batching operator makes the same mini-batches as every other interchangeable one of its kinds.
    pub interchangeable: bool,
    /// Whether it takes pairs of nodes as seeds ([`SeedSet::of_pairs`](crate::SeedSet::of_pairs)): a batching operator samples
    /// them, a transferring operator moves them with their mini-batch, and a training operator trains on them.
    pub takes_pairs: bool,
    /// Whether it is a batching operator that takes rows of a task as seeds ([`SeedSet::of_rows`](crate::SeedSet::of_rows)): what it samples
    /// for each is no later than the row's time.
    pub takes_rows: bool,
    /// Whether it is a training operator with a model of its own (`--model custom`), and trains no other.
    pub own_model: bool,
    /// Its own options.
    pub options: &'static [OptionSpec],
    /// Its counters.
    pub counters: &'static [CounterSpec],
}

impl Description {
    /// Describes an operator that runs anywhere and brings no device.
    ///
    /// # Panics
    ///
    /// When the key names another phase than `build` builds; in a constant, at compile time.
    pub const fn new(key: Key, summary: &'static str, reads: At, writes: At, build: Build) -> Self {
        assert!(key.phase as u8 == build.phase() as u8, "the key's phase is the phase of what is built");
        Self {
            key,
            summary,
            reads,
            writes,
            probe: |_| Ok(()),
            accelerators: |_| Vec::new(),
            build,
            reference: false,
            simulated: false,
            queues: false,
            reads_store: false,
            takes_given_rows: false,
            features: FeatureFill::OnRequest,
            gathers_features: false,
            between_devices: false,
            samplers: &[SamplingSpec::NEIGHBOR],
            interchangeable: false,
            takes_pairs: false,
            takes_rows: false,
            own_model: false,
            options: &[],
            counters: &[],
        }
    }

    /// The same operator with these options.
    pub const fn with_options(mut self, options: &'static [OptionSpec]) -> Self {
        self.options = options;
        self
    }

    /// The same operator with these counters.
    pub const fn with_counters(mut self, counters: &'static [CounterSpec]) -> Self {
        self.counters = counters;
        self
    }

    /// The same batching operator, which reads the settings of these kinds of sampling.
    pub const fn sampling(mut self, samplers: &'static [SamplingSpec]) -> Self {
        self.samplers = samplers;
        self
    }

    /// The same batching operator, with the claim that its mini-batches are those of every other such operator of its kinds, bit
    /// for bit and whatever its options are; `morphgl_conformance::batching` proves it. Plans and evaluation choose among such
    /// operators. One without the claim samples only where it is named.
    ///
    /// # Panics
    ///
    /// When it is not of phase Batching; in a constant, at compile time.
    pub const fn interchangeable(mut self) -> Self {
        assert!(matches!(self.build, Build::Batching(_)), "an operator whose mini-batches are compared makes them");
        self.interchangeable = true;
        self
    }

    /// The same operator, which takes pairs of nodes as seeds. One without the claim is never built for them
    /// ([`Description::check_seeds`]); of a batching operator that has it, `morphgl_conformance::batching` proves that its mini-batches
    /// are those of the graph without the edges that they exclude.
    pub const fn taking_pairs(mut self) -> Self {
        self.takes_pairs = true;
        self
    }

    /// The same batching operator, which takes rows of a task as seeds. One without the claim is never built for them
    /// ([`Description::check_seeds`]); of one that has it, `morphgl_conformance::batching` proves that no edge or node of a row's tree is later
    /// than the row.
    ///
    /// # Panics
    ///
    /// When it is not of phase Batching; in a constant, at compile time.
    pub const fn taking_rows(mut self) -> Self {
        assert!(matches!(self.build, Build::Batching(_)), "an operator that samples within times makes mini-batches");
        self.takes_rows = true;
        self
    }

    /// The same training operator, which has a model of its own: it trains where the job's model is custom, and no other does.
    ///
    /// # Panics
    ///
    /// When it is not of phase Training; in a constant, at compile time.
    pub const fn with_own_model(mut self) -> Self {
        assert!(matches!(self.build, Build::Training(_)), "an operator with a model trains it");
        self.own_model = true;
        self
    }

    /// The same operator, which fills in features as `features` says.
    pub const fn filling(mut self, features: FeatureFill) -> Self {
        self.features = features;
        self
    }

    /// The same operator, which gathers features where it writes mini-batches, so that batching leaves them out.
    ///
    /// # Panics
    ///
    /// When it is not of phase Transferring; in a constant, at compile time.
    pub const fn gathering_features(mut self) -> Self {
        assert!(
            matches!(self.build, Build::Transferring(_)),
            "an operator that gathers in place of batching transfers"
        );
        self.gathers_features = true;
        self
    }

    /// The same transferring operator, which copies from one device to another of its backend: it makes routes that batch on one and
    /// train on another, and none of a single device.
    ///
    /// # Panics
    ///
    /// When it is not of phase Transferring, or does not move mini-batches from a device to a device; in a constant, at compile
    /// time.
    pub const fn between_devices(mut self) -> Self {
        let transfers = matches!(self.build, Build::Transferring(_));
        let devices = matches!((self.reads, self.writes), (At::Device(_), At::Device(_)));
        assert!(transfers && devices, "an operator between devices transfers from a device to a device");
        self.between_devices = true;
        self
    }

    /// The same operator, on a simulated device.
    pub const fn as_simulated(mut self) -> Self {
        self.simulated = true;
        self
    }

    /// The same operator, on a device that queues the work of several phases, as CUDA streams do: an executor begins a phase
    /// before others on the same resources have ended. The durations that its handles measure then include such other work.
    pub const fn queueing(mut self) -> Self {
        self.queues = true;
        self
    }

    /// The same operator as a reference for others of its phase.
    pub const fn as_reference(mut self) -> Self {
        self.reference = true;
        self
    }

    /// The same operator, which reads features from the dataset in host memory where a mini-batch has none.
    ///
    /// # Panics
    ///
    /// When it does not train in host memory; in a constant, at compile time.
    pub const fn reading_store(mut self) -> Self {
        let trains = matches!(self.build, Build::Training(_));
        assert!(trains && matches!(self.reads, At::Host), "an operator that reads the store trains in host memory");
        self.reads_store = true;
        self
    }

    /// The same operator, which transfers or trains mini-batches with given rows. A training operator on the host then computes
    /// its first layer alone ([`Training::first_layer`]); mini-batches on a device say how old their rows are
    /// ([`DeviceBatch::first_layer_rows`](crate::DeviceBatch::first_layer_rows)), and one that transfers mini-batches of a device fills
    /// in their rows ([`Transferring::transfer_with_given`]).
    ///
    /// # Panics
    ///
    /// When it is of phase Batching, whose operators say so by their workers
    /// ([`Batching::worker_with_given`]); in a constant, at compile time.
    pub const fn taking_given_rows(mut self) -> Self {
        assert!(!matches!(self.build, Build::Batching(_)), "given rows are transferred and trained with");
        self.takes_given_rows = true;
        self
    }

    /// Whether a batching operator samples by `kind` where the user named `chosen`, or none: an operator that is not
    /// interchangeable has to be named.
    pub fn samples(&self, kind: &str, chosen: Option<&Key>) -> bool {
        let named = chosen.map_or(self.interchangeable, |chosen| *chosen == self.key);
        named && self.samplers.iter().any(|spec| spec.name == kind)
    }

    /// Checks that the operator takes such seeds.
    ///
    /// # Errors
    ///
    /// Pairs that it does not take; of a batching operator rows of a task, whose mini-batches others take as those of nodes.
    pub fn check_seeds(&self, seeds: &SeedSet) -> Result<()> {
        let (what, claim) = match () {
            () if seeds.pairs().is_some() && !self.takes_pairs => ("pairs of nodes as seeds", "takes_pairs"),
            () if seeds.rows().is_some() && !self.takes_rows && self.key.phase == Phase::Batching => {
                ("rows of a task, which are nodes at times, as seeds", "takes_rows")
            }
            () => return Ok(()),
        };
        let cure = format!("name an operator that does, which `morphgl ops --json` lists by {claim}, or name none");
        Err(Error::setting(&self.key, format!("it does not take {what}; {cure}")))
    }

    /// Checks names and types of the options given to the operator, an object by name or `null`.
    ///
    /// # Errors
    ///
    /// An option that it does not have, or a value of another type.
    pub fn check_options(&self, given: &Value) -> Result<()> {
        option::check_options(&self.key, self.options, given)
    }

    /// The same operator with a probe of its own.
    pub const fn with_probe(mut self, probe: fn(&Machine) -> std::result::Result<(), Unavailable>) -> Self {
        self.probe = probe;
        self
    }

    /// The same operator, which also finds its backend's devices.
    pub const fn with_accelerators(mut self, accelerators: fn(&Machine) -> Vec<Accelerator>) -> Self {
        self.accelerators = accelerators;
        self
    }
}

impl SamplingSpec {
    /// The kinds by which the linked operators sample: those of this crate first, then by name.
    pub fn linked() -> Vec<Self> {
        samplings(inventory::iter::<Description>.into_iter())
    }
}

/// The kinds of some operators, each once: those of this crate first, then by name.
pub(crate) fn samplings<'a>(descriptions: impl Iterator<Item = &'a Description>) -> Vec<SamplingSpec> {
    let rank = |name: &str| SamplingSpec::BUILT_IN.iter().position(|spec| spec.name == name).unwrap_or(usize::MAX);
    let mut specs: Vec<SamplingSpec> = descriptions.flat_map(|d| d.samplers).copied().collect();
    specs.sort_by_key(|spec| (rank(spec.name), spec.name));
    specs.dedup_by_key(|spec| spec.name);
    specs
}
