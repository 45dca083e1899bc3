//! The cache: super-batches in order, each with its nodes and, once they are computed, their rows.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use morphgl_row_cache::NodeMap;

use crate::{Error, Result};

/// Embeddings of the nodes of super-batches.
#[derive(Debug)]
pub struct EmbeddingCache {
    widths: Vec<usize>,
    bound: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    // Invariant: consecutive super-batches; those with rows come first.
    super_batches: VecDeque<SuperBatch>,
    closed: Option<String>,
}

#[derive(Debug)]
struct SuperBatch {
    number: u64,
    nodes: Arc<NodeMap>,
    list: Arc<[u32]>,
    rows: Option<Arc<SuperBatchRows>>,
}

/// The rows of a super-batch's nodes.
#[derive(Debug)]
pub struct SuperBatchRows {
    number: u64,
    nodes: Arc<NodeMap>,
    list: Arc<[u32]>,
    version: u64,
    /// As wide as the cache says.
    widths: Vec<usize>,
    matrices: Vec<Vec<f32>>,
}

impl SuperBatchRows {
    /// The nodes in ascending order: the list of [`EmbeddingCache::list`].
    pub fn nodes(&self) -> &Arc<[u32]> {
        &self.list
    }

    /// Steps before the parameters that they were computed with.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The matrices in order of their nodes; one may be empty.
    pub fn matrices(&self) -> &[Vec<f32>] {
        &self.matrices
    }

    /// Copies the rows of `nodes` in every matrix to `out`.
    ///
    /// # Errors
    ///
    /// A node without one.
    ///
    /// # Complexity
    ///
    /// O(nodes · widths).
    pub fn read(&self, nodes: &[u32], out: &mut [&mut Vec<f32>]) -> Result<()> {
        let index = |&node: &u32| self.nodes.get(node).ok_or(Error::Missing { node, super_batch: self.number });
        let indices: Vec<usize> = nodes.iter().map(index).collect::<Result<_>>()?;
        for ((rows, matrix), &width) in out.iter_mut().zip(&self.matrices).zip(&self.widths) {
            rows.clear();
            if !matrix.is_empty() {
                rows.reserve(nodes.len() * width);
                indices.iter().for_each(|index| rows.extend_from_slice(&matrix[index * width..][..width]));
            }
        }
        Ok(())
    }
}

impl EmbeddingCache {
    /// A cache of matrices of these widths, each with a row per node, which may be used up to `bound` steps after the parameters they
    /// were computed with.
    pub fn new(widths: Vec<usize>, bound: u64) -> Self {
        Self { widths, bound, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Elements of a row of each matrix.
    pub fn widths(&self) -> &[usize] {
        &self.widths
    }

    /// The largest staleness, in steps.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the nodes whose rows `super_batch` will have.
    ///
    /// # Errors
    ///
    /// Not the super-batch after the last one.
    pub fn choose(&self, super_batch: u64, nodes: NodeMap) -> Result<()> {
        let mut state = self.lock();
        if let Some(last) = state.super_batches.back().filter(|last| super_batch != last.number + 1) {
            let what = format!("its nodes come after those of super-batch {}", last.number);
            return Err(Error::OutOfOrder { super_batch, what });
        }
        let (list, nodes) = (nodes.nodes().collect(), Arc::new(nodes));
        state.super_batches.push_back(SuperBatch { number: super_batch, nodes, list, rows: None });
        self.changed.notify_all();
        Ok(())
    }

    /// Sets the rows of `super_batch`, in ascending order of their nodes, computed with the parameters after `version` steps; a
    /// matrix may be empty, and is so to its readers. Drops the super-batches before the one before it, and returns the memory of one's
    /// matrices, none where they are being read.
    ///
    /// # Errors
    ///
    /// A super-batch without nodes or with rows; another number of matrices, or not one row per node.
    pub fn publish(&self, super_batch: u64, version: u64, matrices: Vec<Vec<f32>>) -> Result<Vec<Vec<f32>>> {
        let mut state = self.lock();
        let wrong = |what: String| Err(Error::OutOfOrder { super_batch, what });
        let Some(found) = state.super_batches.iter_mut().find(|s| s.number == super_batch) else {
            return wrong("its nodes were not chosen".to_string());
        };
        if found.rows.is_some() {
            return wrong("it has rows already".to_string());
        }
        let fits =
            |(matrix, width): (&Vec<f32>, &usize)| matrix.is_empty() || matrix.len() == found.nodes.len() * width;
        if matrices.len() != self.widths.len() || !matrices.iter().zip(&self.widths).all(fits) {
            let lengths: Vec<usize> = matrices.iter().map(Vec::len).collect();
            let (nodes, widths) = (found.nodes.len(), &self.widths);
            return wrong(format!("it has {nodes} nodes, rows of {widths:?} elements, and matrices of {lengths:?}"));
        }
        let (nodes, list) = (Arc::clone(&found.nodes), Arc::clone(&found.list));
        let widths = self.widths.clone();
        found.rows = Some(Arc::new(SuperBatchRows { number: super_batch, nodes, list, version, widths, matrices }));
        let mut freed = Vec::new();
        while let Some(old) = state.super_batches.pop_front_if(|s| s.number + 1 < super_batch) {
            freed = old.rows.and_then(Arc::into_inner).map_or(freed, |rows| rows.matrices);
        }
        self.changed.notify_all();
        freed.iter_mut().for_each(Vec::clear);
        Ok(freed)
    }

    /// Ends every wait, now and later, with this reason. The first reason stays.
    pub fn close(&self, why: &str) {
        self.lock().closed.get_or_insert_with(|| why.to_string());
        self.changed.notify_all();
    }

    /// Waits until `get` finds something at `super_batch`.
    fn wait_for<T>(&self, super_batch: u64, get: impl Fn(&SuperBatch) -> Option<T>) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = state.super_batches.iter().find(|s| s.number == super_batch).and_then(&get) {
                return Ok(found);
            }
            if let Some(why) = &state.closed {
                return Err(Error::Closed(why.clone()));
            }
            if let Some(first) = state.super_batches.front().filter(|first| super_batch < first.number) {
                let what = format!("it is over, super-batch {} is the oldest", first.number);
                return Err(Error::OutOfOrder { super_batch, what });
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The nodes whose rows `super_batch` has or will have. Waits until they are chosen.
    ///
    /// # Errors
    ///
    /// The super-batch is over, or the cache was closed.
    pub fn nodes(&self, super_batch: u64) -> Result<Arc<NodeMap>> {
        self.wait_for(super_batch, |s| Some(Arc::clone(&s.nodes)))
    }

    /// The nodes of [`EmbeddingCache::nodes`] in ascending order: the same list each time.
    ///
    /// # Errors
    ///
    /// As [`EmbeddingCache::nodes`].
    pub fn list(&self, super_batch: u64) -> Result<Arc<[u32]>> {
        self.wait_for(super_batch, |s| Some(Arc::clone(&s.list)))
    }

    /// The rows of `super_batch`, to be used at `step`. Waits until they are published.
    ///
    /// # Errors
    ///
    /// Rows that are staler than the bound, and as [`EmbeddingCache::nodes`].
    pub fn rows(&self, super_batch: u64, step: u64) -> Result<Arc<SuperBatchRows>> {
        let rows = self.wait_for(super_batch, |s| s.rows.clone())?;
        self.check(step, rows.version)?;
        Ok(rows)
    }

    /// Copies the rows of `nodes` in every matrix to `out`, to be used at `step`, and returns their version.
    ///
    /// # Errors
    ///
    /// As [`EmbeddingCache::rows`] and [`SuperBatchRows::read`].
    pub fn read(&self, super_batch: u64, step: u64, nodes: &[u32], out: &mut [&mut Vec<f32>]) -> Result<u64> {
        let rows = self.rows(super_batch, step)?;
        rows.read(nodes, out)?;
        Ok(rows.version)
    }

    /// Asserts that rows of `version` may be used at `step`.
    ///
    /// # Errors
    ///
    /// They are staler than the bound, or from the future.
    pub fn check(&self, step: u64, version: u64) -> Result<()> {
        let bound = self.bound;
        match step.checked_sub(version) {
            Some(staleness) if staleness <= bound => Ok(()),
            _ => Err(Error::Stale { step, version, bound }),
        }
    }

    /// Bytes of the rows that are held.
    pub fn num_bytes(&self) -> u64 {
        let rows =
            |s: &SuperBatch| s.rows.as_ref().map_or(0, |rows| 4 * rows.matrices.iter().map(Vec::len).sum::<usize>());
        self.lock().super_batches.iter().map(rows).sum::<usize>() as u64
    }
}
