//! The ranks of a run, of which this process is one: who they are, and what has to be the same at all. MPI connects them, or the
//! program that the run is a part of.

mod inference;
mod launch;
mod training;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use morphgl_execute::Stop;
use morphgl_graph_store::{ArrayVisitor, Dataset, Element};
use morphgl_group::ReadRows;
use morphgl_registry::{Machine, NamedTensor};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

pub(crate) use self::inference::{enter_to_infer, gathering_bytes};
pub(crate) use self::training::{check_shard, enter};
use crate::numa::cores_of_this_process;
use crate::usage::Usage;
use crate::{Group, NumaNode, SharedExchange};

/// Compared by all ranks.
const VERSION: &str = concat!("morphgl ", env!("CARGO_PKG_VERSION"));

/// The ranks of a run.
#[derive(Debug)]
pub(crate) struct Ranks {
    pub(crate) group: Arc<Group>,
    /// MPI's; `None` of an exchange that the program has made.
    connection: Option<launch::Connection>,
    /// This rank's host.
    host: String,
    /// By rank, once all have said theirs.
    places: OnceLock<Vec<RankPlace>>,
}

/// Makes one end of an exchange between the ranks of a run, each wait for others of which is limited.
type MakeExchange = Box<dyn FnOnce(Duration) -> morphgl_group::Result<SharedExchange> + Send>;

/// An exchange that the program makes when the run begins, in place of MPI's.
pub(crate) struct OwnExchange {
    host: String,
    make: Mutex<Option<MakeExchange>>,
}

impl OwnExchange {
    pub(crate) fn new(host: String, make: MakeExchange) -> Self {
        Self { host, make: Mutex::new(Some(make)) }
    }
}

impl fmt::Debug for OwnExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnExchange({})", self.host)
    }
}

/// Where a rank runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankPlace {
    pub(crate) host: String,
    /// The cores that its process may use, as Linux lists them.
    cores: String,
    /// The NUMA nodes of these cores.
    pub(crate) numa_nodes: Vec<u32>,
}

impl RankPlace {
    fn of_this_process(host: String) -> Self {
        let numa_nodes = NumaNode::all().into_iter().map(|node| node.node).collect();
        Self { host, cores: cores_of_this_process(), numa_nodes }
    }
}

/// A digest of names and bits.
pub(crate) fn digest(tensors: &[NamedTensor]) -> String {
    let mut hash = Xxh3::new();
    for tensor in tensors {
        hash.update(tensor.name.as_bytes());
        tensor.values.iter().for_each(|value| hash.update(&value.to_le_bytes()));
    }
    format!("digest {:016x}", hash.digest())
}

/// Checksums of the arrays of a dataset in memory, by their names.
struct Checksums(BTreeMap<String, String>);

impl ArrayVisitor for Checksums {
    fn array<T: Element>(&mut self, name: &str, values: &[T], dim: Option<usize>) -> morphgl_graph_store::Result<()> {
        let digest = xxh3_64(bytemuck::cast_slice(values));
        self.0.insert(name.to_string(), format!("{digest:016x} of {dim:?}"));
        Ok(())
    }
}

impl Ranks {
    /// Connects this process with the others, by the program's `own` exchange, or by MPI where it was started as one of several; each
    /// wait for others is limited, and gradients are added up in buckets of so many bytes. What `stop` returns ends training at all
    /// ranks; `is_asked` says whether a signal has asked this process to end.
    pub(crate) fn connect(
        own: Option<&OwnExchange>,
        limit: Duration,
        bucket_bytes: Option<u64>,
        is_asked: fn() -> bool,
        stop: impl FnOnce() -> Stop,
    ) -> Result<Option<Self>> {
        let made = own.and_then(|own| {
            let make = own.make.lock().unwrap_or_else(PoisonError::into_inner).take()?;
            Some(make(limit).map(|exchange| (exchange, own.host.clone(), None)))
        });
        let (exchange, host, connection) = match made {
            Some(made) => made?,
            None => match launch::connect(limit, is_asked)? {
                Some((exchange, host, connection)) => (exchange, host, Some(connection)),
                None => return Ok(None),
            },
        };
        let group = Group::new(exchange, stop());
        let group = Arc::new(match bucket_bytes {
            Some(bytes) => group.with_bucket_bytes(bytes as usize),
            None => group,
        });
        Ok(Some(Self { group, connection, host, places: OnceLock::new() }))
    }

    /// Says to all others where this rank runs, and hears of them; all ranks make the first call together.
    pub(crate) fn gather_places(&self) -> Result<()> {
        if self.places.get().is_none() {
            let places = self.group.gather(&RankPlace::of_this_process(self.host.clone()))?;
            self.places.get_or_init(|| places);
        }
        Ok(())
    }

    /// Where each rank runs; only this one's host is known before all have said theirs.
    pub(crate) fn places(&self) -> &[RankPlace] {
        self.places.get().map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_first(&self) -> bool {
        self.group.rank() == 0
    }

    /// A rank and its host, in words.
    pub(crate) fn name(&self, rank: usize) -> String {
        let host = if rank == self.group.rank() { &self.host } else { &self.places()[rank].host };
        format!("rank {rank} ({host})")
    }

    /// This rank and its host, in words.
    pub(crate) fn own_name(&self) -> String {
        self.name(self.group.rank())
    }

    /// Tells all other ranks that this one has failed.
    pub(crate) fn leave(&self, why: &str) {
        self.group.leave(why);
    }

    /// Ends this process's part in the run, after all output; all processes of the run where a rank does not come.
    pub(crate) fn end(&self, status: u8) {
        self.connection.iter().for_each(|connection| connection.end(status));
    }

    /// Lets other ranks read this one's rows; what reads theirs. All ranks make the call.
    pub(crate) fn expose(&self, rows: Arc<Vec<u8>>, row_bytes: usize) -> Result<Box<dyn ReadRows>> {
        match &self.connection {
            Some(connection) => connection.expose(rows, row_bytes),
            None => Err(Usage::error(
                "--shard: rows of other ranks are read by MPI; start the ranks by mpirun, or leave it out",
            )),
        }
    }

    /// Ranks that share this one's cores, itself included.
    fn sharing(&self) -> usize {
        let own = self.places().get(self.group.rank());
        self.places().iter().filter(|place| Some(*place) == own).count().max(1)
    }

    /// This rank's part of the threads that a host's ranks may use together.
    pub(crate) fn threads(&self, of_host: Option<usize>) -> usize {
        let all = of_host.unwrap_or_else(|| Machine::probe().cores);
        (all / self.sharing()).max(1)
    }

    /// This rank's part of the memory that is free, unless there is a limit.
    pub(crate) fn memory(&self, limit: Option<u64>) -> Option<u64> {
        let on_host = self.places().iter().filter(|place| place.host == self.host).count() as u64;
        limit.or_else(|| (on_host > 1).then(|| Machine::probe().available_bytes / 10 * 9 / on_host))
    }

    /// Fails at all ranks where a named value is not the same at all.
    pub(crate) fn check_same(&self, own: &[(String, String)]) -> Result<()> {
        let all = self.group.gather(&own.to_vec())?;
        let first = &all[0];
        for (rank, facts) in all.iter().enumerate().filter(|(_, facts)| *facts != first) {
            let (names, value): (BTreeSet<&String>, _) =
                (facts.iter().chain(first).map(|(name, _)| name).collect(), |of: &[(String, String)], name: &str| {
                    of.iter().find(|(n, _)| n == name).map_or("none".to_string(), |(_, value)| value.clone())
                });
            // In the order of the list: a version before what it changes.
            let in_order = first.iter().map(|(name, _)| name).chain(names);
            let differs = |name: &&String| value(facts, name) != value(first, name);
            let Some(name) = in_order.into_iter().find(differs) else { continue };
            bail!(
                "{name}: {} has {}, {} has {}; give all ranks the same",
                self.name(rank),
                value(facts, name),
                self.name(0),
                value(first, name)
            );
        }
        Ok(())
    }

    /// As [`Ranks::facts`] of a dataset that is open.
    pub(crate) fn facts_of(dataset: &Dataset) -> Result<Vec<(String, String)>> {
        let mut checksums = dataset.path.checksums();
        if checksums.is_empty() {
            let mut arrays = Checksums(checksums);
            dataset.visit_arrays(&mut arrays)?;
            checksums = arrays.0;
        }
        Self::facts(&dataset.name, &checksums)
    }

    /// What every rank has to have before anything is measured, besides its configuration: program, SIMD level, dataset.
    pub(crate) fn facts(dataset: &str, arrays: &impl Serialize) -> Result<Vec<(String, String)>> {
        let digest = xxh3_64(&serde_json::to_vec(arrays)?);
        let fact = |name: &str, value: String| (name.to_string(), value);
        Ok(vec![
            fact("version", VERSION.to_string()),
            fact("SIMD level (MORPHGL_ISA)", morphgl_platform::SimdLevel::current().name().to_string()),
            fact("dataset", format!("{dataset} of digest {digest:016x}")),
        ])
    }

    /// Fails where parameters do not have the same bits at all ranks; `name` says which.
    pub(crate) fn check_parameters(&self, name: &str, parameters: &[NamedTensor]) -> Result<()> {
        self.check_same(&[(name.to_string(), digest(parameters))])
    }
}
