//! The operators of a route in layer-split training: batching leaves hot nodes out, transferring fills in their rows, and
//! training hands out its parameters and asserts the bound.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use morphgl_embedding_cache::{EmbeddingCache, SuperBatchRows};
use morphgl_registry::{
    BatchId, Batching, BatchingWorker, CacheCurve, CounterSpec, Counters, Error, FirstLayerRows, GivenNodes, GivenRows,
    GivenTable, GradientReady, Handle, MiniBatch, NamedTensor, Result, RouteOperators, Score, Training,
    TrainingWrapper, Transferring,
};

use crate::{SplitStatistics, SuperBatches};

/// Rows of the first layer's output that were given.
pub(crate) const GIVEN_ROWS: CounterSpec =
    CounterSpec::new("given_rows", "rows of the first layer that were given, not computed");
/// Rows of the first layer's output that were computed.
pub(crate) const COMPUTED_ROWS: CounterSpec =
    CounterSpec::new("computed_rows", "rows of the first layer that were computed with the mini-batch");
/// Microseconds for which transferring waited for rows.
pub(crate) const WAIT_MICROS: CounterSpec =
    CounterSpec::new("given_wait_micros", "microseconds for which a mini-batch waited for its given rows");
/// Mini-batches with given rows.
pub(crate) const STALE_BATCHES: CounterSpec = CounterSpec::new("given_batches", "mini-batches with given rows");
/// Sum of the staleness of mini-batches with given rows.
pub(crate) const STALENESS: CounterSpec =
    CounterSpec::new("staleness_steps", "steps by which given rows were stale, summed over mini-batches");

/// The parameters that a super-batch begins with.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) super_batch: u64,
    pub(crate) step: u64,
    /// When it began, or was restored.
    pub(crate) began: Instant,
    pub(crate) parameters: Vec<NamedTensor>,
}

/// A message to the thread of the first layer.
#[derive(Debug)]
pub(crate) enum Message {
    /// A super-batch begins.
    Begins(Snapshot),
    /// Training goes on from a checkpoint with the last snapshots, two at most.
    Restored(Vec<Snapshot>),
}

/// Names of a snapshot's tensors in the optimizer's state begin with this, then super-batch and step.
const STATE: &str = "layer_split.";

impl Snapshot {
    /// The snapshot as a part of the optimizer's state.
    fn export(&self) -> impl Iterator<Item = NamedTensor> {
        let Self { super_batch, step, parameters, .. } = self;
        let named = move |tensor: &NamedTensor| NamedTensor {
            name: format!("{STATE}{super_batch}.{step}.{}", tensor.name),
            ..tensor.clone()
        };
        parameters.iter().map(named)
    }

    /// Adds a tensor of an optimizer's state to the snapshots that it is of; returns one that is of none.
    fn import(snapshots: &mut Vec<Self>, tensor: &NamedTensor) -> Option<NamedTensor> {
        let parts = tensor.name.strip_prefix(STATE).and_then(|rest| {
            let (super_batch, rest) = rest.split_once('.')?;
            let (step, name) = rest.split_once('.')?;
            Some((super_batch.parse::<u64>().ok()?, step.parse::<u64>().ok()?, name.to_string()))
        });
        let Some((super_batch, step, name)) = parts else { return Some(tensor.clone()) };
        let index = snapshots.iter().position(|snapshot| snapshot.super_batch == super_batch).unwrap_or_else(|| {
            snapshots.push(Self { super_batch, step, began: Instant::now(), parameters: Vec::new() });
            snapshots.len() - 1
        });
        snapshots[index].parameters.push(NamedTensor { name, ..tensor.clone() });
        None
    }
}

/// What gives mini-batches rows: it marks their nodes for samplers, and has the tables of rows.
pub(crate) trait GivenRowSource: GivenNodes {
    /// The rows of a mini-batch with so many given nodes, and what it counted. Waits for them.
    ///
    /// # Errors
    ///
    /// There are no such rows, or they are too stale.
    fn table(&self, id: BatchId, given: usize) -> Result<(Box<dyn GivenTable>, Counters)>;
}

/// The hot nodes of the super-batch that a mini-batch is part of, and their rows.
#[derive(Debug)]
pub(crate) struct Hot {
    pub(crate) cache: Arc<EmbeddingCache>,
    pub(crate) super_batches: SuperBatches,
    pub(crate) statistics: SplitStatistics,
}

fn failed(id: BatchId, e: morphgl_embedding_cache::Error) -> Error {
    Error::failed(format!("layer split, {id}"), e)
}

impl GivenNodes for Hot {
    fn mark(&self, id: BatchId, nodes: &[u32], marks: &mut Vec<bool>) -> Result<()> {
        let hot = self.cache.nodes(self.super_batches.of(id)).map_err(|e| failed(id, e))?;
        marks.clear();
        marks.extend(nodes.iter().map(|&node| !hot.is_empty() && hot.get(node).is_some()));
        Ok(())
    }

    fn list(&self, id: BatchId) -> Result<Arc<[u32]>> {
        self.cache.list(self.super_batches.of(id)).map_err(|e| failed(id, e))
    }
}

/// Whether an operator makes mini-batches that leave nodes unexpanded.
pub fn leaves_nodes_out(batching: &dyn Batching) -> bool {
    #[derive(Debug)]
    struct Nothing;
    impl GivenNodes for Nothing {
        fn mark(&self, _: BatchId, nodes: &[u32], marks: &mut Vec<bool>) -> Result<()> {
            marks.clear();
            marks.resize(nodes.len(), false);
            Ok(())
        }

        fn list(&self, _: BatchId) -> Result<Arc<[u32]>> {
            Ok(Arc::default())
        }
    }
    let nothing: Arc<dyn GivenNodes> = Arc::new(Nothing);
    batching.worker_with_given(1, &nothing).is_some_and(|worker| worker.is_ok())
}

/// A worker that leaves `given` nodes unexpanded.
fn worker(batching: &dyn Batching, threads: usize, given: &Arc<dyn GivenNodes>) -> Result<Box<dyn BatchingWorker>> {
    batching.worker_with_given(threads, given).unwrap_or_else(|| {
        Err(Error::setting("layer split", "this batching operator expands all nodes; batch by another"))
    })
}

impl GivenRowSource for Hot {
    /// Mini-batches are trained in order, so a mini-batch's position is the step at which its rows are used.
    fn table(&self, id: BatchId, given: usize) -> Result<(Box<dyn GivenTable>, Counters)> {
        let (super_batch, step, waiting) = (self.super_batches.of(id), self.super_batches.position(id), Instant::now());
        let rows = self.cache.rows(super_batch, step).map_err(|e| failed(id, e))?;
        let (waited, staleness) = (waiting.elapsed(), step - rows.version());
        self.statistics.read(staleness, given as u64, waited.as_secs_f64());
        let counters = Counters::NONE
            .with(&GIVEN_ROWS, given as u64)
            .with(&WAIT_MICROS, waited.as_micros() as u64)
            .with(&STALE_BATCHES, 1)
            .with(&STALENESS, staleness);
        Ok((Box::new(HotRows { id, rows }), counters))
    }
}

/// The rows of the super-batch that a mini-batch is part of.
#[derive(Debug)]
struct HotRows {
    id: BatchId,
    rows: Arc<SuperBatchRows>,
}

impl GivenTable for HotRows {
    fn nodes(&self) -> &Arc<[u32]> {
        self.rows.nodes()
    }

    fn matrices(&self) -> Vec<&[f32]> {
        self.rows.matrices().iter().map(Vec::as_slice).filter(|matrix| !matrix.is_empty()).collect()
    }

    fn version(&self) -> u64 {
        self.rows.version()
    }

    fn fill(&self, given: &mut GivenRows) -> Result<()> {
        let GivenRows { nodes, rows, inputs, version, .. } = given;
        inputs.resize_with(self.rows.matrices().len() - 1, Vec::new);
        let mut out: Vec<&mut Vec<f32>> = std::iter::once(rows).chain(&mut *inputs).collect();
        self.rows.read(nodes, &mut out).map_err(|e| failed(self.id, e))?;
        inputs.retain(|input| !input.is_empty());
        *version = self.rows.version();
        Ok(())
    }
}

/// The operators of a route, with mini-batches that are given these rows.
pub(crate) fn route(operators: RouteOperators, rows: &Arc<dyn GivenRowSource>) -> RouteOperators {
    let RouteOperators { route, batching, transferring } = operators;
    let given: Arc<dyn GivenNodes> = Arc::<dyn GivenRowSource>::clone(rows);
    RouteOperators {
        route,
        batching: Arc::new(SplitBatching { inner: batching, given }),
        transferring: Box::new(SplitTransferring { inner: transferring, rows: Arc::clone(rows) }),
    }
}

#[derive(Debug)]
struct SplitBatching {
    inner: Arc<dyn Batching>,
    given: Arc<dyn GivenNodes>,
}

impl Batching for SplitBatching {
    fn num_batches(&self) -> usize {
        self.inner.num_batches()
    }

    fn last_epoch(&self) -> u32 {
        self.inner.last_epoch()
    }

    fn worker(&self, threads: usize) -> Result<Box<dyn BatchingWorker>> {
        worker(self.inner.as_ref(), threads, &self.given)
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.inner.cache()
    }
}

#[derive(Debug)]
struct SplitTransferring {
    inner: Box<dyn Transferring>,
    rows: Arc<dyn GivenRowSource>,
}

impl Transferring for SplitTransferring {
    /// The duration has no wait for rows: that is counted.
    fn transfer(&mut self, batch: MiniBatch) -> Result<Handle<MiniBatch>> {
        let FirstLayerRows { computed, given, .. } = batch.first_layer_rows();
        let counters = Counters::NONE.with(&COMPUTED_ROWS, computed as u64);
        if given == 0 {
            return Ok(self.inner.transfer(batch)?.counting(counters));
        }
        let (table, counted) = self.rows.table(batch.id(), given)?;
        Ok(self.inner.transfer_with_given(batch, &*table)?.counting(counters).counting(counted))
    }

    fn cache(&self) -> Option<CacheCurve> {
        self.inner.cache()
    }

    fn resize_cache(&mut self, bytes: u64) -> Result<()> {
        self.inner.resize_cache(bytes)
    }
}

/// Counts steps, hands out the parameters that each super-batch begins with, and asserts the bound of staleness.
#[derive(Debug)]
pub(crate) struct SplitTraining {
    pub(crate) inner: Box<dyn Training>,
    pub(crate) cache: Arc<EmbeddingCache>,
    pub(crate) super_batches: SuperBatches,
    /// Sends parameters to the first layer's thread; `None` at all trainers of a group but the first, since all have the same parameters.
    pub(crate) messages: Option<Sender<Message>>,
    /// The parameters of every snapshot, where the operator learns nothing and has none.
    pub(crate) fixed: Option<Vec<NamedTensor>>,
    /// The last two snapshots, of which rows in use and rows to come are computed.
    pub(crate) snapshots: Vec<Snapshot>,
    /// Steps before the next one: the position of its mini-batch.
    pub(crate) steps: u64,
    /// The super-batch of the last mini-batch.
    pub(crate) super_batch: Option<u64>,
}

impl SplitTraining {
    fn begin(&mut self, batch: &MiniBatch) -> Result<()> {
        self.hand_out()?;
        let (id, rows) = (batch.id(), batch.first_layer_rows());
        rows.version.map_or(Ok(()), |version| self.cache.check(self.steps, version).map_err(|e| failed(id, e)))
    }

    /// Hands out the parameters where a super-batch begins.
    fn hand_out(&mut self) -> Result<()> {
        let (step, Some(messages)) = (self.steps, &self.messages) else { return Ok(()) };
        let super_batch = self.super_batches.at(step);
        if self.super_batch != Some(super_batch) {
            self.super_batch = Some(super_batch);
            let parameters = self.fixed.clone().map_or_else(|| self.inner.parameters(), Ok)?;
            let snapshot = Snapshot { super_batch, step, began: Instant::now(), parameters };
            self.snapshots.drain(..self.snapshots.len().saturating_sub(1));
            self.snapshots.push(snapshot.clone());
            // After a failure of the first layer's thread nobody receives this; readers of rows get the error.
            let _ = messages.send(Message::Begins(snapshot));
        }
        Ok(())
    }
}

impl Drop for SplitTraining {
    fn drop(&mut self) {
        self.cache.close("training has ended");
    }
}

impl TrainingWrapper for SplitTraining {
    fn inner(&self) -> &dyn Training {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut dyn Training {
        &mut *self.inner
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.begin(batch)?;
        self.inner.accumulate(batch)
    }

    fn accumulate_last(&mut self, batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>> {
        self.begin(batch)?;
        self.inner.accumulate_last(batch, complete)
    }

    /// A trainer of a group whose share of the mini-batch is empty has accumulated nothing, and hands out its parameters here.
    fn step(&mut self) -> Result<Handle<()>> {
        self.hand_out()?;
        self.steps += 1;
        self.inner.step()
    }

    fn train(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.begin(batch)?;
        self.steps += 1;
        self.inner.train(batch)
    }

    /// The optimizer's state, and the snapshots, with which a resumed run has the same rows.
    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        let mut state = self.inner.optimizer_state()?;
        state.extend(self.snapshots.iter().flat_map(Snapshot::export));
        Ok(state)
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        let mut snapshots = Vec::new();
        let own: Vec<NamedTensor> =
            state.iter().filter_map(|tensor| Snapshot::import(&mut snapshots, tensor)).collect();
        // A checkpoint need not keep the order of tensors.
        snapshots.sort_by_key(|snapshot| snapshot.super_batch);
        self.inner.set_optimizer_state(&own)?;
        if let Some(messages) = &self.messages {
            self.super_batch = snapshots.last().map(|last| last.super_batch);
            self.snapshots.clone_from(&snapshots);
            let _ = messages.send(Message::Restored(snapshots));
        }
        Ok(())
    }
}
