//! The batching operator of a loader, found in the registry and built for its seeds.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    At, Batching, BatchingContext, Error, Key, PairSettings, Place, Registry, Result, SamplerSettings, SeedSet,
};
use serde_json::Value;

/// What the mini-batches of a loader depend on, but for their seeds.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) dataset: Arc<Dataset>,
    /// Of seeds that are pairs.
    pub(crate) pairs: Option<PairSettings>,
    pub(crate) settings: SamplerSettings,
    /// Whether mini-batches have features.
    pub(crate) gather: bool,
}

impl Request {
    /// Seeds: nodes, or the ends of pairs one after another; `given` are destinations of negatives, as many of each pair.
    ///
    /// # Errors
    ///
    /// As [`SeedSet::new`] and [`SeedSet::of_pairs_against`].
    pub(crate) fn seeds(&self, seeds: &[u32], given: &[u32]) -> Result<SeedSet> {
        let num_nodes = self.dataset.num_nodes();
        match &self.pairs {
            Some(settings) => {
                let pairs = bytemuck::cast_slice(seeds);
                SeedSet::of_pairs_against("edge_label_index", pairs, given, num_nodes, *settings)
            }
            None => SeedSet::new("input_nodes", seeds, num_nodes),
        }
    }
}

/// What operators of one kind of sampling are built by, whatever their seeds.
pub(crate) struct Builder {
    pub(crate) registry: Arc<Registry>,
    pub(crate) key: Key,
    pub(crate) request: Request,
    pub(crate) place: Place,
    pub(crate) options: Value,
}

impl Builder {
    /// Finds the operator; `disk` are options of one that leaves the graph's directory on disk.
    ///
    /// # Errors
    ///
    /// No operator samples so in host memory, or from disk.
    pub(crate) fn on_host(request: Request, disk: Option<Value>) -> Result<Self> {
        let kind = request.settings.sampling.kind().to_string();
        let from = if disk.is_some() { At::Disk } else { At::Host };
        let registry = Registry::collect()?;
        let status = registry.status();
        let found = status.iter().find(|s| {
            let samples = s.description.reads == from && s.description.samples(&kind, None);
            samples && matches!(s.description.writes, At::Host) && s.availability.is_ok()
        });
        let key = found.map(|s| s.description.key.clone()).ok_or_else(|| {
            let cure = match disk {
                Some(_) => "does not read from disk; leave memory and cache out, or sample by neighbor",
                None => "has no interchangeable operator in host memory; load by another sampler",
            };
            Error::setting("sampler", format!("{kind} {cure}"))
        })?;
        let (registry, options) = (Arc::new(registry), disk.unwrap_or_default());
        Ok(Self { registry, key, request, place: Place::Host, options })
    }

    /// The operator for these seeds, as of [`Request::seeds`].
    ///
    /// # Errors
    ///
    /// Wrong seeds, and the operator's own.
    pub(crate) fn operator(&self, seeds: &[u32], given: &[u32]) -> Result<Box<dyn Batching>> {
        let Self { registry, key, request, place, options } = self;
        let context = BatchingContext {
            dataset: Arc::clone(&request.dataset),
            seeds: request.seeds(seeds, given)?,
            settings: request.settings.clone(),
            gather: request.gather,
            place: place.clone(),
            options: options.clone(),
        };
        registry.batching(key, &context)
    }
}
