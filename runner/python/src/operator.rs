//! The batching operator of a loader, found in the registry and built for its seeds.

use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    At, Batching, BatchingContext, Error, Key, PairSettings, Place, Registry, Result, SamplerSettings, SeedSet,
};

/// What operators of one kind of sampling are built by, whatever their seeds.
pub(crate) struct Builder {
    registry: Registry,
    pub(crate) key: Key,
    pub(crate) dataset: Arc<Dataset>,
    /// Of seeds that are pairs.
    pairs: Option<PairSettings>,
    settings: SamplerSettings,
    gather: bool,
    options: serde_json::Value,
}

impl Builder {
    /// Finds the operator; `disk` are options of one that leaves the graph's directory on disk.
    ///
    /// # Errors
    ///
    /// No operator samples so in host memory, or from disk.
    pub(crate) fn new(
        dataset: Arc<Dataset>,
        pairs: Option<PairSettings>,
        settings: SamplerSettings,
        gather: bool,
        disk: Option<serde_json::Value>,
    ) -> Result<Self> {
        let kind = settings.sampling.kind().to_string();
        let from = if disk.is_some() { At::Disk } else { At::Host };
        let registry = Registry::collect()?;
        let status = registry.status();
        let found = status.iter().find(|s| {
            let samples = s.description.reads == from && s.description.samples(&kind, None);
            samples && s.availability.is_ok()
        });
        let key = found.map(|s| s.description.key.clone()).ok_or_else(|| {
            let cure = match disk {
                Some(_) => "does not read from disk; leave memory and cache out, or sample by neighbor",
                None => "has no interchangeable operator in host memory; load by another sampler",
            };
            Error::setting("sampler", format!("{kind} {cure}"))
        })?;
        Ok(Self { registry, key, dataset, pairs, settings, gather, options: disk.unwrap_or_default() })
    }

    /// The operator for these seeds: nodes, or the ends of pairs one after another; `given` are destinations of negatives,
    /// as many of each pair.
    ///
    /// # Errors
    ///
    /// As [`SeedSet::new`], [`SeedSet::of_pairs_against`], and the operator's own.
    pub(crate) fn operator(&self, seeds: &[u32], given: &[u32]) -> Result<Box<dyn Batching>> {
        let num_nodes = self.dataset.num_nodes();
        let seeds = match &self.pairs {
            Some(settings) => {
                let pairs = bytemuck::cast_slice(seeds);
                SeedSet::of_pairs_against("edge_label_index", pairs, given, num_nodes, *settings)?
            }
            None => SeedSet::new("input_nodes", seeds, num_nodes)?,
        };
        let Self { registry, key, dataset, settings, gather, options, .. } = self;
        let context = BatchingContext {
            dataset: Arc::clone(dataset),
            seeds,
            settings: settings.clone(),
            gather: *gather,
            place: Place::Host,
            options: options.clone(),
        };
        registry.batching(key, &context)
    }
}
