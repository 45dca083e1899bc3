//! Mini-batches with given rows, and the work beside them, for measurements before training.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, Counters, GivenNodes, GivenRows, Result, RouteOperators, SamplerSettings, SeedSet, Training,
};
use morphgl_row_cache::NodeMap;

use crate::compute::FirstLayer;
use crate::split::{Settings, hottest};
use crate::wrap::{self, GivenRowSource};
use crate::{HotQueue, SuperBatchStatistics};

/// Makes mini-batches as layer-split training would have them: the hot nodes are those of each super-batch, the rows those of one
/// super-batch by the initial parameters.
pub struct Trial {
    settings: Settings,
    num_nodes: usize,
    queue: Mutex<(HotQueue, BTreeMap<u64, Arc<HotNodes>>)>,
    /// Rows of the hot nodes of one super-batch, and what the first layer's weights multiply for them.
    matrices: Vec<Vec<f32>>,
    /// What that super-batch took beside training.
    pub statistics: SuperBatchStatistics,
}

/// The hot nodes of a super-batch.
struct HotNodes {
    map: NodeMap,
    list: Arc<[u32]>,
}

impl HotNodes {
    /// Those of `nodes`, in ascending order.
    fn new(num_nodes: usize, nodes: &[u32]) -> Arc<Self> {
        Arc::new(Self { map: crate::split::map(num_nodes, nodes), list: nodes.into() })
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trial({:?})", self.statistics)
    }
}

impl Trial {
    /// Chooses the hot nodes of the first super-batch, and computes their rows by the parameters of `first_layer`.
    ///
    /// # Errors
    ///
    /// As [`LayerSplit::new`](crate::LayerSplit::new).
    pub fn new(
        first_layer: Box<dyn Training>,
        (dataset, seeds, sampler): (&Arc<Dataset>, &SeedSet, &SamplerSettings),
        settings: Settings,
    ) -> Result<Self> {
        let num_nodes = dataset.num_nodes();
        let (super_batches, start) = (settings.super_batches, settings.start);
        let parameters = first_layer.parameters()?;
        let mut first_layer = FirstLayer::new(dataset, seeds, sampler, first_layer)?;
        let mut queue = HotQueue::new(dataset, seeds, sampler, super_batches, 1)?;
        let super_batch = super_batches.of(start);
        // The first time, memory is new.
        queue.of(super_batch)?;
        let (nodes, mut statistics) = hottest(&mut queue, super_batch, settings.hot_ratio)?;
        let mut matrices = settings.matrices();
        first_layer.compute(start, &nodes, &parameters, &mut matrices)?;
        let computing = Instant::now();
        first_layer.compute(start, &nodes, &parameters, &mut matrices)?;
        statistics.computing = computing.elapsed().as_secs_f64();
        let queue = Mutex::new((queue, BTreeMap::from([(super_batch, HotNodes::new(num_nodes, &nodes))])));
        Ok(Self { settings, num_nodes, queue, matrices, statistics })
    }

    /// The operators of a route, whose mini-batches are given rows.
    pub fn route(self: &Arc<Self>, operators: RouteOperators) -> RouteOperators {
        let rows: Arc<dyn GivenRowSource> = Arc::clone(self) as _;
        wrap::route(operators, &rows)
    }
}

impl Trial {
    /// The hot nodes of the super-batch that a mini-batch is part of.
    fn hot(&self, id: BatchId) -> Result<Arc<HotNodes>> {
        let super_batch = self.settings.super_batches.of(id);
        let mut chosen = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let (queue, all) = &mut *chosen;
        if let Some(hot) = all.get(&super_batch) {
            return Ok(Arc::clone(hot));
        }
        let (nodes, _) = hottest(queue, super_batch, self.settings.hot_ratio)?;
        let hot = HotNodes::new(self.num_nodes, &nodes);
        all.insert(super_batch, Arc::clone(&hot));
        Ok(hot)
    }
}

impl GivenNodes for Trial {
    fn mark(&self, id: BatchId, nodes: &[u32], marks: &mut Vec<bool>) -> Result<()> {
        let HotNodes { map, .. } = &*self.hot(id)?;
        marks.clear();
        marks.extend(nodes.iter().map(|&node| !map.is_empty() && map.get(node).is_some()));
        Ok(())
    }

    fn list(&self, id: BatchId) -> Result<Arc<[u32]>> {
        Ok(Arc::clone(&self.hot(id)?.list))
    }
}

impl GivenRowSource for Trial {
    /// Rows of nodes that the one super-batch does not have are some other node's.
    fn fill(&self, _: BatchId, given: &mut GivenRows) -> Result<(Counters, Duration)> {
        let start = Instant::now();
        let inputs = self.settings.input_widths.len();
        given.inputs.resize_with(inputs, Vec::new);
        let out = std::iter::once(&mut given.rows).chain(&mut given.inputs);
        for ((rows, matrix), width) in out.zip(&self.matrices).zip(self.settings.widths()) {
            let count = (matrix.len() / width).max(1);
            rows.clear();
            rows.reserve(given.nodes.len() * width);
            for &node in given.nodes.iter().filter(|_| !matrix.is_empty()) {
                rows.extend_from_slice(&matrix[node as usize % count * width..][..width]);
            }
        }
        given.inputs.retain(|input| !input.is_empty());
        Ok((Counters::NONE, start.elapsed()))
    }
}
