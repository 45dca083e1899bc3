//! What a run works in: passed to whatever opens, builds, measures and trains.

use std::fmt::Display;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Result;
use morphgl_execute::Stop;
use morphgl_group::Shards;
use morphgl_platform::SmallPages;
use morphgl_registry::Registry;
use morphgl_sim::MachineDescription;

use crate::memory::ProcessMemory;
use crate::observer::{Observer, OfOtherRank, Silent};
use crate::ranks::{self, OwnExchange, Ranks};
use crate::{AllocatorHooks, SharedExchange};

/// What a process has once, and all of its runs share: memory, and the other ranks.
#[derive(Debug, Default)]
pub struct Process {
    memory: ProcessMemory,
    ranks: OnceLock<Ranks>,
    /// What connects the ranks in place of MPI, where the program has given it.
    own_exchange: Option<OwnExchange>,
    /// Whether a signal has asked the program to end; `None` in a process that is not one command.
    interrupted: Option<fn() -> bool>,
}

impl Process {
    /// The process of a program that is one command, which `interrupted` says whether a signal has asked to end: signals and the
    /// number of threads are the command's affair. All others call commands, or train by the library, and have [`Process::default`].
    pub(crate) fn program(interrupted: fn() -> bool) -> Self {
        Self { interrupted: Some(interrupted), ..Self::default() }
    }

    /// The same process, whose allocator has these hooks. Without them the allocator decides.
    pub fn with_allocator(self, hooks: AllocatorHooks) -> Self {
        Self { memory: ProcessMemory::new(hooks), ..self }
    }

    /// The same process as one of several ranks on this `host`, which the program connects in place of MPI: `make` is called once, when
    /// the first run begins, with the limit of each wait for other ranks. A process that takes part in further runs has
    /// a value of its own for each.
    pub fn with_exchange(
        self,
        host: String,
        make: impl FnOnce(Duration) -> morphgl_group::Result<SharedExchange> + Send + 'static,
    ) -> Self {
        Self { own_exchange: Some(OwnExchange::new(host, Box::new(make))), ..self }
    }

    pub(crate) fn own_exchange(&self) -> Option<&OwnExchange> {
        self.own_exchange.as_ref()
    }

    /// Whether signals and the number of threads are a single command's affair.
    pub(crate) fn is_program(&self) -> bool {
        self.interrupted.is_some()
    }

    /// Says whether a signal has asked the program to end.
    pub(crate) fn interrupted(&self) -> fn() -> bool {
        self.interrupted.unwrap_or(|| false)
    }

    pub(crate) fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// The ranks that the process has joined; `None` where it is the only one.
    pub(crate) fn ranks(&self) -> Option<&Ranks> {
        self.ranks.get()
    }

    /// Joins the other ranks. MPI is initialized at most once: where they were joined before, these are kept.
    pub(crate) fn join(&self, ranks: Ranks) -> Result<&Ranks> {
        let ranks = self.ranks.get_or_init(|| ranks);
        ranks.gather_places()?;
        Ok(ranks)
    }
}

/// What a run works in. Clones are of the same run; other runs of the process work beside it.
#[derive(Debug, Clone)]
pub struct RunContext {
    process: Arc<Process>,
    registry: Arc<Registry>,
    stop: Stop,
    observer: Arc<dyn Observer>,
    shards: Option<Arc<Shards>>,
    /// The described machine that the run is simulated on; `None` on the one that there is.
    machine: Option<Arc<MachineDescription>>,
    /// Held by a run with little memory.
    small_pages: Arc<OnceLock<Arc<SmallPages>>>,
}

impl RunContext {
    /// A run in a process of its own, which nobody stops or watches.
    ///
    /// # Errors
    ///
    /// As [`RunContext::of`].
    pub fn new() -> Result<Self> {
        Self::of(&Arc::default(), Stop::new(), Arc::new(Silent))
    }

    /// A run in this process, which `stop` ends and `observer` watches: the operators that this program is linked with are
    /// collected, and each is probed on this machine, once. Of several ranks the first alone is watched.
    ///
    /// # Errors
    ///
    /// Two linked crates register the same key.
    pub fn of(process: &Arc<Process>, stop: Stop, observer: Arc<dyn Observer>) -> Result<Self> {
        let (process, registry) = (Arc::clone(process), Arc::new(Registry::collect()?));
        let observer = match process.ranks() {
            Some(ranks) if !ranks.is_first() => Arc::new(OfOtherRank(observer)),
            _ => observer,
        };
        let (shards, machine) = (None, None);
        Ok(Self { process, registry, stop, observer, shards, machine, small_pages: Arc::default() })
    }

    /// The same run, simulated on a described machine: its operators are the simulated ones, and its time is virtual.
    ///
    /// # Errors
    ///
    /// As [`RunContext::of`].
    pub fn on_machine(&self, machine: MachineDescription) -> Result<Self> {
        let registry = Arc::new(Registry::described(machine.machine())?);
        Ok(Self { registry, machine: Some(Arc::new(machine)), ..self.clone() })
    }

    /// The described machine that the run is simulated on.
    pub fn machine(&self) -> Option<&MachineDescription> {
        self.machine.as_deref()
    }

    /// As [`RunContext::of`], of a process that a launcher of MPI may have started as one of several ranks: it joins the others. MPI is
    /// initialized before operators are probed, because drivers may start threads. Each wait for other ranks is limited, and
    /// gradients are added up in buckets of so many bytes.
    ///
    /// # Errors
    ///
    /// As [`RunContext::of`], and ranks that cannot be joined.
    pub fn of_ranks(
        process: &Arc<Process>,
        stop: Stop,
        observer: Arc<dyn Observer>,
        limit: Duration,
        bucket_bytes: Option<u64>,
    ) -> Result<Self> {
        let heeded = || {
            observer.heeds(&stop);
            stop.clone()
        };
        ranks::enter(process, limit, bucket_bytes, heeded)?;
        Self::of(process, stop, observer)
    }

    /// As [`RunContext::of_ranks`], for inference: ranks may be joined already, and an interruption ends them at once.
    ///
    /// # Errors
    ///
    /// As [`RunContext::of_ranks`].
    pub fn of_inference(
        process: &Arc<Process>,
        stop: Stop,
        observer: Arc<dyn Observer>,
        limit: Duration,
    ) -> Result<Self> {
        ranks::enter_to_infer(process, limit)?;
        Self::of(process, stop, observer)
    }

    /// The operators this program is linked with, and the machine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What ends the run.
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// The flag that ends the run in order from now on; the observer is notified of it.
    pub(crate) fn heed_stop(&self) -> Stop {
        self.observer.heeds(&self.stop);
        self.stop.clone()
    }

    /// Who watches the run.
    pub fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    pub(crate) fn remark(&self, text: impl Display) {
        self.observer.remark(&text);
    }

    pub(crate) fn line(&self, text: impl Display) {
        self.observer.line(&text);
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    pub(crate) fn memory(&self) -> &ProcessMemory {
        self.process.memory()
    }

    /// Says that the run may use so many bytes.
    pub(crate) fn limit_memory(&self, bytes: u64) {
        if let Some(pages) = self.memory().limited(bytes) {
            self.small_pages.get_or_init(|| pages);
        }
    }

    pub(crate) fn ranks(&self) -> Option<&Ranks> {
        self.process.ranks()
    }

    /// Whether this is the rank that prints and writes results; `true` of a process alone.
    pub fn is_first_rank(&self) -> bool {
        self.ranks().is_none_or(Ranks::is_first)
    }

    /// The view that mini-batches get their features from; `None` where this process has all rows.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// The same run, whose mini-batches get their features from this view.
    pub(crate) fn with_shards(&self, shards: Shards) -> Self {
        Self { shards: Some(Arc::new(shards)), ..self.clone() }
    }
}
