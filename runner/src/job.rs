//! A dataset, a configuration, and the operators built for them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use anyhow::{Result, bail};
use morphgl_graph_store::Dataset;
use morphgl_group::{Division, SeedShare, ShareBatching};
use morphgl_model_core::ModelKind;
use morphgl_plan::CacheSize;
use morphgl_profile::Selection;
use morphgl_registry::{
    BatchId, Batching, Key, NamedTensor, Operators, Phase, Place, Registry, Route, RouteOperators, TrainingOperator,
};

use crate::budget::{self, Purpose};
use crate::build::{OperatorBuilder, job_routes, label, layers_mismatch, left_on_disk, takes_shards, to_first_devices};
use crate::usage::Usage;
use crate::{Group, JobConfig, RunContext, examples, task};

/// Tolerance of a cache's size: a difference of at most 1 / `SAME` of it does not rebuild the operator.
const SAME: u64 = 100;

/// A training job: a dataset and a configuration, with the operators of every possible route.
#[derive(Debug)]
pub struct Job {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) config: JobConfig,
    pub(crate) context: RunContext,
    pub(crate) operators: Operators,
    /// Training operators that could not be built, their places, and why.
    pub(crate) unable: Vec<(Key, Place, String)>,
    /// Comparisons of training operators.
    pub(crate) selections: Vec<Selection>,
    /// Routes that could not be built, and why: one line each.
    pub(crate) unbuilt: Vec<String>,
    /// Membership in a group of trainers; `None` trains alone.
    pub(crate) group: Option<Arc<Group>>,
    /// Whether mini-batches are trained at several places, so that all carry features.
    several_places: bool,
}

/// Batching operators by key, place, and whether they gather: routes share them.
type BatchingOperators = BTreeMap<(Key, Place, bool), Arc<dyn Batching>>;

impl Job {
    /// Builds the operators of the routes that `config` allows, on the first device of each backend or on all. All training
    /// operators at a place are built: [`Job::select`] keeps one of them.
    ///
    /// # Errors
    ///
    /// A dataset without features, labels or training nodes; settings that do not fit it or one another;
    /// or no route that can be built, for the first one's reason.
    pub fn new(context: &RunContext, dataset: Arc<Dataset>, config: JobConfig) -> Result<Self> {
        let context = context.clone();
        let mut routes = job_routes(context.registry(), &config, &dataset)?;
        // A machine that is described has no routes between devices but those of devices with roles, and one that is named.
        let named = config.operators.transferring.is_some();
        routes.retain(|r| !r.is_between_devices() || config.roles || named || context.machine().is_none());
        match config.every_device {
            // Routes of the other direction come last: of several alike, plans of one trainer have the first.
            true if config.roles => routes.sort_by_key(|r| r.is_between_devices() && r.batched_at < r.trained_at),
            // The last devices batch for the first, whatever their numbers: each pair once.
            true => routes.retain(|r| !r.is_between_devices() || r.batched_at > r.trained_at),
            false => routes = to_first_devices(routes),
        }
        let (operators, unable, selections, unbuilt) = (Operators::default(), Vec::new(), Vec::new(), Vec::new());
        let (group, several_places) = (None, false);
        let mut job = Self { dataset, config, context, operators, unable, selections, unbuilt, group, several_places };
        job.check()?;
        // Why the first route could not be built, and whether its training operator could.
        let mut first: Option<(bool, anyhow::Error)> = None;
        let (on_disk, wanted) = (job.config.disk_bytes.is_some(), job.config.operators.batching.clone());
        // Sampling from disk is slower than from memory: only on request.
        routes.retain(|r| job.context.shards().is_none() || takes_shards(r));
        routes.retain(|r| on_disk || r.read_at != Place::Disk || wanted.is_some());
        // Routes to several places share mini-batches and measurements: all carry features. At one place a single training
        // operator remains, and mini-batches have the form that it needs.
        job.several_places = routes.windows(2).any(|pair| pair[0].trained_at != pair[1].trained_at);
        let mut shared = BatchingOperators::new();
        for route in routes {
            if let Some(why) = left_on_disk(job.registry(), &route, &job.config.operators).filter(|_| on_disk) {
                job.leave_out(why);
                continue;
            }
            if let Err(e) = job.add(&route, &mut shared) {
                // An operator whose options are set is required, and so is one that can cache where that is asked for. Where the
                // training operator lacks the model, only its own options make it required, not those of others on its route.
                let trains = job.operators.trainer(&route).is_some();
                let required = if trains {
                    job.sets_options_of(&route) || job.caches_by(&route)
                } else {
                    job.config.options.contains_key(&route.training)
                };
                if required {
                    return Err(e);
                }
                job.leave_out(match trains {
                    true => format!("{} → {} → {}: {e:#}", route.batching, route.transferring, route.training),
                    false => format!("{e:#}"),
                });
                // An error of the mini-batches concerns every route, one of a training operator without the model only
                // that operator's routes.
                if first.as_ref().is_none_or(|(trained, _)| trains && !trained) {
                    first = Some((trains, e));
                }
            }
        }
        let of_a_route = |key: &&Key| {
            let keys = |r: &RouteOperators| [&r.route.batching, &r.route.transferring, &r.route.training].contains(key);
            job.operators.routes.iter().any(keys)
        };
        let unused = job.config.options.keys().find(|key| !of_a_route(key));
        if let Some(key) = unused.filter(|_| !job.operators.routes.is_empty()) {
            let what = format!("--set {key}: no plan here uses it, so its options would not be read; leave them out");
            return Err(Usage::error(what));
        }
        let built = &job.operators.routes;
        if job.config.caches() && !built.is_empty() && !built.iter().any(|r| job.caches_by(&r.route)) {
            let why = "a dataset in memory that the CPU trains on is read where it lies";
            let what =
                format!("--cache {}: no operator of any route has a cache ({why}); leave it out", job.config.cache);
            return Err(Usage::error(what));
        }
        match first {
            Some((_, e)) if job.operators.routes.is_empty() => Err(e),
            None if job.operators.routes.is_empty() => {
                bail!("{}; allow more memory, or name no other", job.unbuilt.join("; "))
            }
            _ => Ok(job),
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.context.registry()
    }

    fn builder(&self) -> OperatorBuilder<'_> {
        OperatorBuilder { dataset: &self.dataset, config: &self.config, context: &self.context }
    }

    fn sets_options_of(&self, route: &Route) -> bool {
        let keys = [&route.batching, &route.transferring, &route.training];
        keys.into_iter().any(|key| self.config.options.contains_key(key))
    }

    /// Whether the configuration asks for caches, and an operator of `route` has one.
    fn caches_by(&self, route: &Route) -> bool {
        self.config.caches()
            && [&route.batching, &route.transferring].into_iter().any(|key| budget::caches(self.registry(), key))
    }

    fn leave_out(&mut self, why: String) {
        if !self.unbuilt.contains(&why) {
            self.unbuilt.push(why);
        }
    }

    fn check(&self) -> Result<()> {
        self.builder().check_model()?;
        self.builder().check_weights()?;
        if self.config.pairs.is_none() && self.dataset.splits.train.is_empty() {
            if !task::Split::Train.of_pairs(&self.dataset).is_empty() {
                let at = label(&self.dataset);
                bail!("{at}: the dataset has labels of edges, and no training nodes; learn them by --on edges");
            }
            // Reported before any operator's own refusal, which would not name the missing split.
            self.builder().seeds()?;
        }
        let (layers, sampling) = (self.config.spec.model.layers, &self.config.sampler.sampling);
        if sampling.num_layers() != layers {
            bail!(layers_mismatch(sampling, layers));
        }
        task::check(&self.dataset, &label(&self.dataset), &self.config)?;
        self.check_repeats()
    }

    /// Refuses training nodes that repeat and have an edge to themselves, where attention replaces such edges: in a mini-batch that of
    /// the second occurrence comes from the first one, and would not be replaced.
    fn check_repeats(&self) -> Result<()> {
        // Rows of a task have trees of their own, in which no node repeats.
        let are_nodes = self.config.pairs.is_none() && !examples::are_rows(&self.dataset);
        if self.config.spec.model.kind != ModelKind::Gat || !are_nodes {
            return Ok(());
        }
        let (dataset, topology) = (&self.dataset, &self.dataset.topology);
        let mut seen = vec![false; dataset.num_nodes()];
        let has_loop = |&&v: &&u32| {
            std::mem::replace(&mut seen[v as usize], true) && topology.indices()[topology.edge_range(v)].contains(&v)
        };
        if let Some(node) = dataset.splits.train.iter().find(has_loop) {
            let cure = "import it with --drop-self-loops, which changes nothing else, since a gat adds a self-loop to every node";
            bail!(
                "{}: training node {node} repeats and has a self-loop, for which a gat does not train; {cure}",
                label(dataset)
            );
        }
        Ok(())
    }

    /// Whether mini-batches of a route carry features.
    fn carries_features(&self, route: &Route) -> bool {
        self.several_places || self.builder().carries_features(route)
    }

    /// Builds a route's operators. Batching operators are `shared`.
    fn add(&mut self, route: &Route, shared: &mut BatchingOperators) -> Result<()> {
        if self.operators.trainer(route).is_none() {
            let operator = self.builder().training(route);
            let (key, place) = (route.training.clone(), route.trained_at.clone());
            match operator {
                Ok(operator) => self.operators.trainers.push(TrainingOperator { key, place, operator }),
                Err(e) => {
                    let why = format!("{e:#}");
                    let why = why.strip_prefix(&format!("{key}: ")).unwrap_or(&why).to_string();
                    let unable = (key, place, why);
                    if !self.unable.contains(&unable) {
                        self.unable.push(unable);
                    }
                    return Err(e);
                }
            }
        }
        let batching = self.batching(route, Purpose::Training, shared)?;
        let transferring = self.builder().transferring(route, self.carries_features(route))?;
        self.operators.routes.push(RouteOperators { route: route.clone(), batching, transferring });
        Ok(())
    }

    /// The batching operator of a route, built where no other route has it.
    fn batching(&self, route: &Route, purpose: Purpose, shared: &mut BatchingOperators) -> Result<Arc<dyn Batching>> {
        let gather = self.carries_features(route) && route.gathering == Phase::Batching;
        Ok(match shared.entry((route.batching.clone(), route.batched_at.clone(), gather)) {
            Entry::Occupied(entry) => Arc::clone(entry.get()),
            Entry::Vacant(entry) => {
                Arc::clone(entry.insert(self.builder().batching_for(route, gather, purpose)?.into()))
            }
        })
    }

    /// Gives caches these sizes: those of transferring operators are resized, and batching operators with another size are built
    /// again.
    ///
    /// # Errors
    ///
    /// A cache that cannot be filled, or an operator that cannot be built; the job cannot be used then.
    pub(crate) fn resize_caches(&mut self, sizes: &[CacheSize]) -> Result<()> {
        let (transferring, batching): (Vec<_>, Vec<_>) =
            sizes.iter().partition(|s| s.operator.phase == Phase::Transferring);
        for CacheSize { operator: key, bytes, .. } in transferring {
            for RouteOperators { route, transferring, .. } in &mut self.operators.routes {
                // A plan from a file may have another size than the user's.
                let is_fixed = budget::is_fixed(&self.config, self.context.registry(), &route.transferring)?;
                if route.transferring == *key && !is_fixed {
                    transferring.resize_cache(*bytes)?;
                }
            }
        }
        for CacheSize { operator: key, bytes, .. } in batching {
            let is_resized = |r: &RouteOperators| r.route.batching == *key;
            let Some(first) = self.operators.routes.iter().find(|r| is_resized(r)) else { continue };
            let held = first.batching.cache().map_or(*bytes, |cache| cache.bytes);
            // The size of a cache varies a little with what was measured to fill it.
            let is_same = held.abs_diff(*bytes) <= held / SAME;
            if is_same || budget::is_fixed(&self.config, self.registry(), &first.route.batching)? {
                continue;
            }
            // The memory of the old one is needed for the new one.
            let routes = std::mem::take(&mut self.operators.routes).into_iter();
            let kept: Vec<_> = routes
                .map(|r| {
                    let batching = (!is_resized(&r)).then_some(r.batching);
                    (r.route, r.transferring, batching)
                })
                .collect();
            self.context.memory().release();
            let mut shared = BatchingOperators::new();
            for (route, transferring, batching) in kept {
                let batching = match batching {
                    Some(batching) => batching,
                    None => self.batching(&route, Purpose::Resized(*bytes), &mut shared)?,
                };
                self.operators.routes.push(RouteOperators { route, batching, transferring });
            }
        }
        Ok(())
    }

    /// Threads the job may use.
    pub fn threads(&self) -> usize {
        self.config.num_threads(self.registry())
    }

    /// Bytes that inference of all nodes needs with this training operator; `None` where not known.
    pub fn infer_bytes(&self, training: &Key) -> Option<u64> {
        self.operators.trainers.iter().find(|t| t.key == *training)?.operator.infer_bytes()
    }

    /// Operators that read the dataset from disk, a line each.
    pub fn on_disk(&self) -> Vec<String> {
        let routes = self.operators.routes.iter().filter(|r| r.route.read_at == Place::Disk);
        let mut lines: Vec<String> = routes.map(|r| format!("{}: {:?}", r.route.batching, r.batching)).collect();
        // Routes to several training operators share a batching operator.
        lines.dedup();
        lines
    }

    /// Comparisons of training operators at the same place, see [`Job::select`].
    pub fn selections(&self) -> &[Selection] {
        &self.selections
    }

    /// Makes the job that of one trainer of a group.
    pub fn join(&mut self, group: Arc<Group>) {
        self.group = Some(group);
    }

    /// Works with one trainer's shares in place of mini-batches; with whole ones where the share of the first is empty.
    pub(crate) fn with_shares<R>(
        &mut self,
        division: &Arc<dyn Division>,
        rank: usize,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let num_seeds = task::num_examples(&self.dataset, &self.config);
        let batch_size = self.config.sampler.batch_size;
        let share = SeedShare { division: Arc::clone(division), rank, num_seeds, batch_size };
        let first = share.positions(BatchId { epoch: 0, index: 0 });
        if first.map_or(true, |first| first.is_empty()) {
            return work(self);
        }
        let routes = &mut self.operators.routes;
        let whole: Vec<Arc<dyn Batching>> = routes.iter().map(|r| Arc::clone(&r.batching)).collect();
        for route in routes {
            route.batching = Arc::new(ShareBatching { inner: Arc::clone(&route.batching), share: share.clone() });
        }
        let done = work(self);
        self.operators.routes.iter_mut().zip(whole).for_each(|(route, whole)| route.batching = whole);
        done
    }

    /// All operators.
    pub fn operators_mut(&mut self) -> &mut Operators {
        &mut self.operators
    }

    /// Replaces the model's parameters in all training operators.
    ///
    /// # Errors
    ///
    /// Parameters that are not the model's.
    pub fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.operators.trainers.iter_mut().try_for_each(|t| t.operator.set_parameters(parameters)).map_err(Into::into)
    }
}
