//! A dataset, a configuration, and the operators built for them.

use std::sync::Arc;

use anyhow::{Result, bail};
use morphgl_graph_store::Dataset;
use morphgl_profile::Selection;
use morphgl_registry::{
    Batching, Key, NamedTensor, Operators, Place, Registry, Route, RouteOperators, TrainingOperator,
};

use crate::JobConfig;
use crate::build::{
    LEFT_ON_DISK, brings_features, build_batching, build_training, build_transferring, check_model, gathers,
    hops_mismatch, label, registry, routes,
};

/// What is trained: a dataset and a configuration, with the operators of every route that could do it.
#[derive(Debug)]
pub struct Job {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) config: JobConfig,
    pub(crate) registry: Registry,
    pub(crate) operators: Operators,
    /// Training operators that could not be built, their places, and why.
    pub(crate) unable: Vec<(Key, Place, String)>,
    /// How training operators were chosen.
    pub(crate) selections: Vec<Selection>,
    /// Routes that could not be built, and why.
    unbuilt: Vec<String>,
}

/// A batching operator that routes may share.
struct Built {
    key: Key,
    place: Place,
    gather: bool,
    operator: Arc<dyn Batching>,
}

impl Job {
    /// Builds the operators of the routes that have those asked for; of several devices of a backend, the first is used.
    /// Of several training operators at a place all are built: [`Job::select`] keeps one of them.
    ///
    /// # Errors
    ///
    /// A dataset without features, labels or training nodes; settings that do not fit it or one another;
    /// or no route that can be built: the first one's reason.
    pub fn new(dataset: Arc<Dataset>, config: JobConfig) -> Result<Self> {
        let registry = registry()?;
        let mut routes = routes(&registry, &config.operators)?;
        let keys = |r: &Route| (r.batching.clone(), r.transferring.clone(), r.training.clone());
        routes.dedup_by_key(|r| keys(r));
        let (operators, unable, selections, unbuilt) = (Operators::default(), Vec::new(), Vec::new(), Vec::new());
        let mut job = Self { dataset, config, registry, operators, unable, selections, unbuilt };
        job.check()?;
        let mut first = None;
        let (on_disk, wanted) = (job.config.disk_bytes.is_some(), job.config.operators.batching.clone());
        // Sampling from disk is slower where the dataset is in memory: only on request.
        routes.retain(|r| on_disk || r.read_at != Place::Disk || wanted.is_some());
        // Routes to several places share mini-batches and what was measured of them: all bring features. At one place a single
        // training operator remains, and mini-batches are made for that.
        let several = routes.windows(2).any(|pair| pair[0].trained_at != pair[1].trained_at);
        let mut built = Vec::new();
        for route in routes {
            if on_disk && route.read_at != Place::Disk {
                job.leave_out(format!("{}: {LEFT_ON_DISK}", route.batching));
                continue;
            }
            let brings = several || brings_features(&job.config, &job.registry, &route);
            if let Err(e) = job.add(&route, brings, &mut built) {
                // Whoever sets an operator's options asks for it: nobody takes its place.
                if job.sets_options_of(&route) {
                    return Err(e);
                }
                job.leave_out(format!("{} → {} → {}: {e:#}", route.batching, route.transferring, route.training));
                first = first.or(Some(e));
            }
        }
        let of_a_route = |key: &&Key| {
            let keys = |r: &RouteOperators| [&r.route.batching, &r.route.transferring, &r.route.training].contains(key);
            job.operators.routes.iter().any(keys)
        };
        if let Some(key) = job.config.options.keys().find(|key| !of_a_route(key)) {
            bail!("{key}: no plan here uses it, so its options would not be read; leave them out");
        }
        match first {
            Some(e) if job.operators.routes.is_empty() => Err(e),
            None if job.operators.routes.is_empty() => {
                bail!("{}; allow more memory, or name no other", job.unbuilt.join("; "))
            }
            _ => Ok(job),
        }
    }

    fn sets_options_of(&self, route: &Route) -> bool {
        let keys = [&route.batching, &route.transferring, &route.training];
        keys.into_iter().any(|key| self.config.options.contains_key(key))
    }

    fn leave_out(&mut self, why: String) {
        if !self.unbuilt.contains(&why) {
            self.unbuilt.push(why);
        }
    }

    fn check(&self) -> Result<()> {
        let (layers, fanouts) = (self.config.spec.model.layers, &self.config.sampler.fanouts);
        check_model(&self.dataset, &self.config)?;
        if fanouts.0.len() != layers {
            bail!(hops_mismatch(fanouts, layers));
        }
        if self.dataset.labels.is_none() {
            bail!("{}: the dataset has no labels to train on; import it with labels", label(&self.dataset));
        }
        Ok(())
    }

    /// Builds a route's operators; `brings_features` says whether its mini-batches carry features. Batching operators that are
    /// already in `built` are reused.
    fn add(&mut self, route: &Route, brings_features: bool, built: &mut Vec<Built>) -> Result<()> {
        if self.operators.trainer(route).is_none() {
            let operator = build_training(&self.dataset, &self.config, &self.registry, route);
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
        // A sampler that never fills in features leaves them to the transfer that follows.
        let gather = gathers(&self.registry, route, brings_features)?;
        let same = |b: &&Built| (&b.key, &b.place, b.gather) == (&route.batching, &route.batched_at, gather);
        let batching = match built.iter().find(same) {
            Some(built) => Arc::clone(&built.operator),
            None => {
                let operator: Arc<dyn Batching> =
                    build_batching(&self.dataset, &self.config, &self.registry, route, gather)?.into();
                let (key, place) = (route.batching.clone(), route.batched_at.clone());
                built.push(Built { key, place, gather, operator: Arc::clone(&operator) });
                operator
            }
        };
        let transferring = build_transferring(&self.dataset, &self.config, &self.registry, route, brings_features)?;
        self.operators.routes.push(RouteOperators { route: route.clone(), batching, transferring });
        Ok(())
    }

    /// The dataset.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The configuration.
    pub fn config(&self) -> &JobConfig {
        &self.config
    }

    /// The operators and the machine.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Threads the job may use.
    pub fn threads(&self) -> usize {
        self.config.num_threads(&self.registry)
    }

    /// Routes that could not be built, and why: one line each.
    pub fn unbuilt(&self) -> &[String] {
        &self.unbuilt
    }

    /// Bytes that inference of all nodes takes by the training operator of this key; `None` where that is not known.
    pub fn infer_bytes(&self, training: &str) -> Option<u64> {
        self.operators.trainers.iter().find(|t| t.key.to_string() == training)?.operator.infer_bytes()
    }

    /// How the dataset is read, where it is left on disk: one line an operator.
    pub fn on_disk(&self) -> Vec<String> {
        let routes = self.operators.routes.iter().filter(|r| r.route.read_at == Place::Disk);
        let mut lines: Vec<String> = routes.map(|r| format!("{}: {:?}", r.route.batching, r.batching)).collect();
        // Routes to several training operators share who batches.
        lines.dedup();
        lines
    }

    /// How training operators were chosen, where there are several at a place: see [`Job::select`].
    pub fn selections(&self) -> &[Selection] {
        &self.selections
    }

    /// All operators, to be profiled.
    pub fn operators_mut(&mut self) -> &mut Operators {
        &mut self.operators
    }

    /// Replaces the model's parameters, wherever it may be trained.
    ///
    /// # Errors
    ///
    /// Parameters that are not the model's.
    pub fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        self.operators.trainers.iter_mut().try_for_each(|t| t.operator.set_parameters(parameters)).map_err(Into::into)
    }
}
