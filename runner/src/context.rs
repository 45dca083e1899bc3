//! What a run works in: passed to whatever opens, builds, measures and trains.

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use morphgl_execute::Stop;
use morphgl_group::Shards;
use morphgl_platform::SmallPages;
use morphgl_registry::Registry;

use crate::AllocatorHooks;
use crate::memory::ProcessMemory;
use crate::ranks::Ranks;

/// What a process has once, and all of its runs share: memory, and the ranks of MPI.
#[derive(Debug, Default)]
pub struct Process {
    memory: ProcessMemory,
    ranks: OnceLock<Ranks>,
    is_program: bool,
}

impl Process {
    /// The process of a program that is one command: signals and the number of threads are the command's affair. All others call
    /// commands, or train by the library, and have [`Process::default`].
    pub(crate) fn program() -> Self {
        Self { is_program: true, ..Self::default() }
    }

    /// The same process, whose allocator has these hooks. Without them the allocator decides.
    pub fn with_allocator(self, hooks: AllocatorHooks) -> Self {
        Self { memory: ProcessMemory::new(hooks), ..self }
    }

    /// Whether signals and the number of threads are a single command's affair.
    pub(crate) fn is_program(&self) -> bool {
        self.is_program
    }

    pub(crate) fn memory(&self) -> &ProcessMemory {
        &self.memory
    }

    /// The ranks of MPI that the process has joined; `None` where it is the only one.
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
    shards: Option<Arc<Shards>>,
    /// Held by a run with little memory.
    small_pages: Arc<OnceLock<Arc<SmallPages>>>,
}

impl RunContext {
    /// A run in a process of its own, which nobody stops.
    ///
    /// # Errors
    ///
    /// As [`RunContext::of`].
    pub fn new() -> Result<Self> {
        Self::of(&Arc::default(), Stop::new())
    }

    /// A run in this process, which `stop` ends: the operators that this program is linked with are collected, and each is probed on
    /// this machine, once.
    ///
    /// # Errors
    ///
    /// Two linked crates register the same key.
    pub fn of(process: &Arc<Process>, stop: Stop) -> Result<Self> {
        let (process, registry) = (Arc::clone(process), Arc::new(Registry::collect()?));
        Ok(Self { process, registry, stop, shards: None, small_pages: Arc::default() })
    }

    /// The operators this program is linked with, and the machine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What ends the run.
    pub fn stop(&self) -> &Stop {
        &self.stop
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

    /// The view that mini-batches get their features from; `None` where this process has all rows.
    pub(crate) fn shards(&self) -> Option<&Arc<Shards>> {
        self.shards.as_ref()
    }

    /// The same run, whose mini-batches get their features from this view.
    pub(crate) fn with_shards(&self, shards: Shards) -> Self {
        Self { shards: Some(Arc::new(shards)), ..self.clone() }
    }
}
