//! Mini-batches with given rows, and the work beside them, for measurements before training.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    BatchId, Counters, Error, GivenNodes, GivenRows, GivenTable, Result, RouteOperators, SamplerSettings, SeedSet,
    Training,
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
    matrices: Mutex<Arc<Vec<Vec<f32>>>>,
    /// What that super-batch took beside training, by the number of threads.
    pub statistics: Vec<(usize, SuperBatchStatistics)>,
}

/// The hot nodes of a super-batch.
#[derive(Debug)]
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
    /// Chooses the hot nodes of the first super-batch, and computes their rows by the parameters of `first_layer`: on each of these numbers of
    /// threads, in place of that of the settings.
    ///
    /// # Errors
    ///
    /// As [`LayerSplit::new`](crate::LayerSplit::new).
    ///
    /// # Panics
    ///
    /// When no number of threads is given.
    pub fn new(
        mut first_layer: Box<dyn Training>,
        (dataset, seeds, sampler): (&Arc<Dataset>, &SeedSet, &SamplerSettings),
        settings: Settings,
        threads: &[usize],
    ) -> Result<Self> {
        let num_nodes = dataset.num_nodes();
        let (super_batches, start) = (settings.super_batches, settings.start);
        let parameters = first_layer.parameters()?;
        let super_batch = super_batches.of(start);
        let (mut statistics, mut matrices, mut chosen) = (Vec::new(), settings.matrices(), None);
        for &threads in threads {
            let mut computing = FirstLayer::new((dataset, seeds, sampler), first_layer, threads)?;
            let mut queue = HotQueue::new(dataset, seeds, sampler, super_batches, threads)?;
            // The first time, memory is new.
            queue.of(super_batch)?;
            let (nodes, mut of_threads) = hottest(&mut queue, super_batch, settings.hot_ratio)?;
            computing.compute(start, &nodes, &parameters, &mut matrices)?;
            let begin = Instant::now();
            computing.compute(start, &nodes, &parameters, &mut matrices)?;
            of_threads.computing = begin.elapsed().as_secs_f64();
            statistics.push((threads, of_threads));
            chosen = Some((queue, nodes));
            first_layer = computing.into_trainer();
        }
        let (queue, nodes) = chosen.expect("a number of threads");
        let queue = Mutex::new((queue, BTreeMap::from([(super_batch, HotNodes::new(num_nodes, &nodes))])));
        let matrices = Mutex::new(Arc::new(matrices));
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
    fn table(&self, id: BatchId, _: usize) -> Result<(Box<dyn GivenTable>, Counters)> {
        let hot = self.hot(id)?;
        let mut matrices = self.matrices.lock().unwrap_or_else(PoisonError::into_inner);
        let short = |(matrix, width): (&Vec<f32>, usize)| !matrix.is_empty() && matrix.len() < hot.list.len() * width;
        if matrices.iter().zip(self.settings.widths()).any(short) {
            let longer = |(matrix, width): (&Vec<f32>, usize)| {
                let len = if matrix.is_empty() { 0 } else { hot.list.len() * width };
                matrix.iter().copied().cycle().take(len).collect()
            };
            *matrices = Arc::new(matrices.iter().zip(self.settings.widths()).map(longer).collect());
        }
        let (matrices, widths) = (Arc::clone(&matrices), self.settings.widths());
        Ok((Box::new(TrialRows { id, hot, matrices, widths }), Counters::NONE))
    }
}

/// Rows of the hot nodes of a super-batch: the first ones of matrices that may have more.
#[derive(Debug)]
struct TrialRows {
    id: BatchId,
    hot: Arc<HotNodes>,
    matrices: Arc<Vec<Vec<f32>>>,
    widths: Vec<usize>,
}

impl TrialRows {
    /// Each matrix that is not empty, with its width.
    fn matrices(&self) -> impl Iterator<Item = (&[f32], usize)> {
        let matrices = self.matrices.iter().zip(&self.widths).filter(|(matrix, _)| !matrix.is_empty());
        matrices.map(|(matrix, &width)| (&matrix[..self.hot.list.len() * width], width))
    }
}

impl GivenTable for TrialRows {
    fn nodes(&self) -> &Arc<[u32]> {
        &self.hot.list
    }

    fn matrices(&self) -> Vec<&[f32]> {
        self.matrices().map(|(matrix, _)| matrix).collect()
    }

    fn version(&self) -> u64 {
        0
    }

    fn fill(&self, given: &mut GivenRows) -> Result<()> {
        let missing = |&node: &u32| {
            let lacks = || Error::setting(self.id, format!("node {node} is given, and no hot node"));
            self.hot.map.get(node).ok_or_else(lacks)
        };
        let indices: Vec<usize> = given.nodes.iter().map(missing).collect::<Result<_>>()?;
        given.inputs.resize_with(self.matrices().count().saturating_sub(1), Vec::new);
        for ((matrix, width), rows) in self.matrices().zip(std::iter::once(&mut given.rows).chain(&mut given.inputs)) {
            rows.clear();
            rows.reserve(indices.len() * width);
            indices.iter().for_each(|index| rows.extend_from_slice(&matrix[index * width..][..width]));
        }
        Ok(())
    }
}
