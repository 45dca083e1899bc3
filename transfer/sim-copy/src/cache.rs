//! The static cache of feature rows in the memory of a described machine's device.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::available_parallelism;

use morphgl_graph_store::Dataset;
use morphgl_hotness::{CachePolicy, Policy, PolicyKind, PreSample, hottest};
use morphgl_registry::{
    BatchingContext, CACHE_HITS, CACHE_REQUESTS, CacheCurve, Counters, Error, Key, OptionRole, OptionSpec, OptionType,
    Place, Result, SamplerSettings, SeedSet, TransferringContext,
};
use morphgl_row_cache::NodeMap;
use morphgl_sim::{Device, NeighborBatching, OPTIONS};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of mini-batches whose accesses rank the rows with `cache` auto, as of `Transferring_CUDA+PCIe_ZeroCopy`.
const PRESAMPLE: usize = 64;

/// [`OPTIONS`], and those of the cache.
pub(crate) const SPECS: [OptionSpec; OPTIONS.len() + 2] = [
    OPTIONS[0],
    OPTIONS[1],
    OptionSpec::new("cache", OptionType::Text, "auto", "what ranks the rows: auto, none or a hotness policy")
        .such_as(&["none"])
        .of_cache_policy(),
    OptionSpec::new("cache_bytes", OptionType::Count, "what fits", "maximum device memory of the row cache")
        .such_as(&["0"])
        .of_budget(OptionRole::CacheBytes),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Options {
    cache: CachePolicy,
    cache_bytes: Option<u64>,
}

/// The options of the simulated device alone, without those of the cache.
pub(crate) fn of_device(options: &Value) -> Value {
    match options {
        Value::Object(all) => {
            let of_cache = |name: &str| SPECS[OPTIONS.len()..].iter().any(|spec| spec.name == name);
            let own = all.iter().filter(|(name, _)| !of_cache(name));
            Value::Object(own.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    }
}

/// The rows that a device has in its memory: the hottest ones within a number of bytes, which is 0 until it is set.
pub(crate) struct RowCache {
    /// `None` where nothing is cached, whatever the size.
    ranking: Option<Arc<Ranking>>,
    max_bytes: u64,
    /// The nodes whose rows are cached; `None` where there are none.
    map: Option<NodeMap>,
}

/// What was found of the rows that a mini-batch lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) hits: usize,
    pub(crate) misses: usize,
    is_counted: bool,
}

impl Found {
    /// The requests and hits of the cache, where there is one.
    pub(crate) fn counters(self) -> Counters {
        match self.is_counted {
            true => {
                let requests = (self.hits + self.misses) as u64;
                Counters::NONE.with(&CACHE_REQUESTS, requests).with(&CACHE_HITS, self.hits as u64)
            }
            false => Counters::NONE,
        }
    }
}

impl RowCache {
    /// A cache that holds nothing.
    pub(crate) fn off() -> Self {
        Self { ranking: None, max_bytes: 0, map: None }
    }

    /// The cache of an operator that gathers on `device`, by its options: off where durations are configured, and where there are no
    /// features to gather.
    ///
    /// # Errors
    ///
    /// An option that is wrong, or a policy that has nothing to rank rows by.
    pub(crate) fn new(key: &Key, context: &TransferringContext, device: &Device) -> Result<Self> {
        let wrong = |what: String| Error::setting(key, format!("options: {what}"));
        let options = Option::<Options>::deserialize(&context.options).map_err(|e| wrong(e.to_string()))?;
        let Options { cache, cache_bytes } = options.unwrap_or_default();
        let named = match cache {
            CachePolicy::None => return Ok(Self::off()),
            CachePolicy::Auto => false,
            CachePolicy::By(_) => true,
            CachePolicy::Lru | CachePolicy::Sieve => {
                let what = format!("cache {cache}: rows on a device stay as they were filled; name a hotness policy");
                return Err(wrong(what));
            }
        };
        if device.machine().is_none() {
            let what = format!(
                "cache {cache}: devices of configured durations have no cache; describe a machine, or give none"
            );
            return if named { Err(wrong(what)) } else { Ok(Self::off()) };
        }
        let has_rows = context.gather && context.dataset.features.is_some();
        let Some(sampled) = context.sampled.as_ref().filter(|_| has_rows && cache_bytes != Some(0)) else {
            let what =
                format!("cache {cache}: the seeds and settings of the mini-batches are not known; give auto or none");
            return if named && has_rows && cache_bytes != Some(0) { Err(wrong(what)) } else { Ok(Self::off()) };
        };
        let ranking = Ranking::shared(&context.dataset, cache, sampled);
        Ok(Self { ranking: Some(ranking), max_bytes: cache_bytes.unwrap_or(u64::MAX), map: None })
    }

    /// The size as a curve without other sizes; `None` where nothing is ever cached. The seconds of mini-batches are not known here.
    pub(crate) fn curve(&self) -> Option<CacheCurve> {
        let row_bytes = self.ranking.as_ref()?.row_bytes();
        let bytes = self.map.as_ref().map_or(0, |map| map.num_bytes() + map.len() as u64 * row_bytes);
        let (free_bytes, points) = (None, Vec::new());
        Some(CacheCurve { bytes, free_bytes, build_seconds: 0.0, batch_seconds: 0.0, points })
    }

    /// Caches the hottest rows that fit `bytes` with the map that finds them, which all rows do without.
    ///
    /// # Errors
    ///
    /// Rows that cannot be ranked.
    ///
    /// # Complexity
    ///
    /// Where not all rows fit, the ranking for the first of the operators that share it; O(nodes).
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<()> {
        let Some(ranking) = &self.ranking else { return Ok(()) };
        let num_rows = ranking.dataset.num_nodes();
        let rows = ranking.rows_within(bytes.min(self.max_bytes));
        if rows == self.map.as_ref().map_or(0, NodeMap::len) {
            return Ok(());
        }
        self.map = match rows {
            0 => None,
            all if all == num_rows => Some(NodeMap::prefix(all as u32)),
            some => {
                let mut is_hot = vec![false; num_rows];
                ranking.order()?[..some].iter().for_each(|&node| is_hot[node as usize] = true);
                Some(NodeMap::new(num_rows, |node| is_hot[node as usize]))
            }
        };
        Ok(())
    }

    /// Looks up the rows of `nodes`.
    ///
    /// # Complexity
    ///
    /// O(nodes).
    pub(crate) fn find(&self, nodes: &[u32]) -> Found {
        let hits = self.map.as_ref().map_or(0, |map| nodes.iter().filter(|&&v| map.get(v).is_some()).count());
        Found { hits, misses: nodes.len() - hits, is_counted: self.map.is_some() }
    }
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowCache({} rows)", self.map.as_ref().map_or(0, NodeMap::len))
    }
}

/// The order in which the rows of a dataset are cached, which all operators of the process share: computed when the first of them
/// caches some of the rows.
struct Ranking {
    dataset: Arc<Dataset>,
    policy: CachePolicy,
    sampled: (SeedSet, SamplerSettings),
    order: Mutex<Option<Arc<[u32]>>>,
}

impl Ranking {
    fn shared(dataset: &Arc<Dataset>, policy: CachePolicy, sampled: &(SeedSet, SamplerSettings)) -> Arc<Self> {
        static RANKINGS: Mutex<Vec<Weak<Ranking>>> = Mutex::new(Vec::new());
        let mut rankings = RANKINGS.lock().unwrap_or_else(PoisonError::into_inner);
        rankings.retain(|ranking| ranking.strong_count() > 0);
        let is_same = |r: &Arc<Self>| Arc::ptr_eq(&r.dataset, dataset) && (r.policy, &r.sampled) == (policy, sampled);
        if let Some(found) = rankings.iter().filter_map(Weak::upgrade).find(is_same) {
            return found;
        }
        let (dataset, sampled) = (Arc::clone(dataset), sampled.clone());
        let ranking = Arc::new(Self { dataset, policy, sampled, order: Mutex::default() });
        rankings.push(Arc::downgrade(&ranking));
        ranking
    }

    fn row_bytes(&self) -> u64 {
        self.dataset.features.as_ref().map_or(0, |matrix| matrix.row_bytes() as u64)
    }

    /// Number of rows that fit so many bytes: all of them, or as many as do beside the map.
    fn rows_within(&self, bytes: u64) -> usize {
        let (num_rows, row_bytes) = (self.dataset.num_nodes(), self.row_bytes().max(1));
        if num_rows as u64 * row_bytes <= bytes {
            return num_rows;
        }
        let beside_map = bytes.saturating_sub(NodeMap::num_bytes_of(num_rows));
        ((beside_map / row_bytes) as usize).min(num_rows)
    }

    /// The nodes, the hottest first: by the policy, and with auto by the accesses of an epoch, or of its first [`PRESAMPLE`]
    /// mini-batches, which is never trained.
    fn order(&self) -> Result<Arc<[u32]>> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*order {
            return Ok(Arc::clone(known));
        }
        let (seeds, settings) = &self.sampled;
        let threads = available_parallelism().map_or(1, NonZeroUsize::get);
        let score = |policy: &dyn Policy| policy.score(&self.dataset.topology, seeds.nodes(), settings);
        let by = |kind: PolicyKind| kind.policy(settings.seed);
        let named = match self.policy {
            CachePolicy::By(kind) => Some(kind),
            _ => None,
        };
        let hotness = match named.and_then(by) {
            Some(policy) => score(&*policy),
            None => {
                let sampler = NeighborBatching::new(&BatchingContext {
                    dataset: Arc::clone(&self.dataset),
                    seeds: seeds.clone(),
                    settings: settings.clone(),
                    gather: false,
                    place: Place::Host,
                    options: Value::Null,
                })?;
                match named.and_then(|kind| kind.policy_of(settings.seed, &sampler, threads)) {
                    Some(policy) => score(&*policy),
                    None => score(&PreSample { batching: &sampler, epochs: 1, batches: Some(PRESAMPLE), threads }),
                }
            }
        }?;
        let ranked: Arc<[u32]> = hottest(&hotness.features, usize::MAX).into();
        *order = Some(Arc::clone(&ranked));
        Ok(ranked)
    }
}
