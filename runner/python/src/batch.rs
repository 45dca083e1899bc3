//! Mini-batches in the form of Python's libraries: local edges as int64 pairs, ids as int64, features as they were gathered.

use std::any::Any;
use std::sync::Arc;

use crossbeam::queue::ArrayQueue;
use morphgl_cuda::EdgeList;
use morphgl_graph_store::{Dataset, TargetMatrix};
use morphgl_registry::{Block, HostBatch, MiniBatch, TargetValues};
use pyo3::prelude::*;

use crate::buffer::{Buffer, Kind};
use crate::edges::EdgeIds;

/// Which arrays are made of a mini-batch's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One edge list of all hops, as PyG has it.
    Edges,
    /// The edge list of a single block: all blocks are the same.
    Induced,
    /// No edge list: the blocks themselves, as DGL has them.
    Blocks,
}

/// A mini-batch and the arrays made of it.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    host: HostBatch,
    /// Input nodes.
    n_id: Vec<i64>,
    /// Class of each input node, -1 for none.
    y: Vec<i64>,
    /// Local ids of the edges' sources, then of their targets.
    edge_index: Vec<i64>,
    edge_weight: Vec<f32>,
    /// The graph's number of each edge: in the order of `edge_index`, or block after block.
    e_id: Vec<i64>,
    /// Whether edges are numbered: a mini-batch without edges has no numbers, and is numbered all the same.
    numbered: bool,
    /// Whether the graph has labels.
    labelled: bool,
    /// Targets of each input node, row after row, and how many it has; 0 without targets.
    targets: Vec<f32>,
    num_targets: usize,
    /// Local ids of the pairs' sources, then of their destinations; the positives first.
    pair_ends: Vec<i64>,
}

impl Form {
    /// The form that the package's Python files call `name`.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "blocks" => Self::Blocks,
            "induced" => Self::Induced,
            _ => Self::Edges,
        }
    }

    /// The edge list of a mini-batch on a device.
    pub(crate) fn edge_list(self) -> EdgeList {
        match self {
            Self::Edges => EdgeList::AllHops,
            Self::Induced => EdgeList::OneHop,
            Self::Blocks => EdgeList::Nothing,
        }
    }
}

/// Arrays whose memory no mini-batch uses any more.
#[derive(Debug)]
pub(crate) struct Spares {
    arrays: ArrayQueue<Arrays>,
    /// Whether the mini-batches within them are used again, too.
    keeps_batches: bool,
}

impl Spares {
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        Arc::new(Self { arrays: ArrayQueue::new(capacity.max(1)), keeps_batches: true })
    }

    /// Spares whose mini-batches belong to somebody else.
    pub(crate) fn of_arrays(capacity: usize) -> Arc<Self> {
        Arc::new(Self { arrays: ArrayQueue::new(capacity.max(1)), keeps_batches: false })
    }

    /// Arrays to be used again, and the mini-batch that was within them.
    pub(crate) fn take(&self) -> (Arrays, Option<MiniBatch>) {
        let Some(mut arrays) = self.arrays.pop() else { return (Arrays::default(), None) };
        let host = std::mem::take(&mut arrays.host);
        (arrays, Some(MiniBatch::Host(host)))
    }
}

/// Arrays that return to the spares when the last view of them is gone.
#[derive(Debug)]
struct SharedArrays {
    arrays: Arrays,
    spares: Arc<Spares>,
}

impl Drop for SharedArrays {
    fn drop(&mut self) {
        let mut arrays = std::mem::take(&mut self.arrays);
        if !self.spares.keeps_batches {
            arrays.host = HostBatch::default();
        }
        // Where there are enough spares, the memory is freed.
        let _ = self.spares.arrays.push(arrays);
    }
}

impl Arrays {
    /// Makes the arrays of a mini-batch of `dataset`. O(nodes + edges), with `edges` times the logarithm of the degrees.
    pub(crate) fn fill(&mut self, host: HostBatch, form: Form, dataset: &Dataset, edges: Option<&EdgeIds>) {
        self.n_id.clear();
        self.n_id.extend(host.input_nodes.iter().map(|&v| i64::from(v)));
        self.y.clear();
        self.labelled = dataset.node_labels().is_some();
        if let Some(labels) = dataset.node_labels() {
            self.y.extend(host.input_nodes.iter().map(|&v| i64::from(labels[v as usize])));
        }
        self.targets.clear();
        self.num_targets = dataset.node_targets().map_or(0, TargetMatrix::dim);
        if let Some(targets) = dataset.node_targets() {
            host.input_nodes.iter().for_each(|&v| self.targets.extend_from_slice(targets.row(v)));
        }
        self.pair_ends.clear();
        for end in [0, 1] {
            let pairs = host.pairs.iter().flat_map(|pairs| &pairs.ends);
            self.pair_ends.extend(pairs.map(|pair| i64::from(pair[end])));
        }
        self.edge_index.clear();
        self.edge_weight.clear();
        // The seeds' own hop first.
        let blocks: Vec<&Block> = match form {
            Form::Edges => host.blocks.iter().rev().collect(),
            Form::Induced => host.blocks.iter().take(1).collect(),
            Form::Blocks => Vec::new(),
        };
        self.edge_index.reserve(2 * blocks.iter().map(|block| block.num_edges()).sum::<usize>());
        for block in &blocks {
            self.edge_index.extend(block.indices.iter().map(|&source| i64::from(source)));
            self.edge_weight.extend(block.weights.iter().flatten());
        }
        for block in &blocks {
            for row in 0..block.num_dst {
                self.edge_index.extend(std::iter::repeat_n(row as i64, block.row(row).len()));
            }
        }
        self.e_id.clear();
        self.numbered = edges.is_some();
        if let Some(edges) = edges {
            let blocks = if form == Form::Blocks { host.blocks.iter().collect() } else { blocks };
            blocks.iter().for_each(|block| edges.append(&dataset.topology, &host, block, &mut self.e_id));
        }
        self.host = host;
    }

    pub(crate) fn lend(self, form: Form, spares: &Arc<Spares>) -> Batch {
        Batch { shared: Arc::new(SharedArrays { arrays: self, spares: Arc::clone(spares) }), form }
    }
}

/// One mini-batch. Every array shares its memory, which is used again when neither the mini-batch nor an array is left.
#[pyclass(frozen, module = "morphgl._morphgl")]
pub(crate) struct Batch {
    shared: Arc<SharedArrays>,
    form: Form,
}

impl Batch {
    fn buffer(&self, values: &[u8], shape: Vec<usize>, kind: Kind) -> Buffer {
        let owner: Arc<dyn Any + Send + Sync> = Arc::<SharedArrays>::clone(&self.shared);
        // SAFETY: `values` are within `shared`, which is not changed before the last owner is dropped.
        unsafe { Buffer::new(values, shape, kind, false, owner) }
    }

    fn of<T: bytemuck::NoUninit>(&self, values: &[T], kind: Kind) -> Buffer {
        self.buffer(bytemuck::cast_slice(values), vec![values.len()], kind)
    }
}

#[pymethods]
impl Batch {
    #[getter]
    fn epoch(&self) -> u32 {
        self.shared.arrays.host.id.epoch
    }

    #[getter]
    fn index(&self) -> u32 {
        self.shared.arrays.host.id.index
    }

    /// Number of seeds: the first of the nodes.
    #[getter]
    fn batch_size(&self) -> usize {
        self.shared.arrays.host.num_seeds
    }

    #[getter]
    fn n_id(&self) -> Buffer {
        self.of(&self.shared.arrays.n_id, Kind::I64)
    }

    #[getter]
    fn y(&self) -> Option<Buffer> {
        let Arrays { y, labelled, .. } = &self.shared.arrays;
        labelled.then(|| self.of(y, Kind::I64))
    }

    /// Targets `[nodes, targets]`, NaN where unknown.
    #[getter]
    fn targets(&self) -> Option<Buffer> {
        let Arrays { targets, num_targets, n_id, .. } = &self.shared.arrays;
        let shape = vec![n_id.len(), *num_targets];
        (*num_targets > 0).then(|| self.buffer(bytemuck::cast_slice(targets), shape, Kind::F32))
    }

    /// Local ids of pairs `[2, pairs]`, sources first, the positives before the negatives; `None` where the seeds are nodes.
    #[getter]
    fn pairs(&self) -> Option<Buffer> {
        let Arrays { pair_ends, host, .. } = &self.shared.arrays;
        let shape = vec![2, pair_ends.len() / 2];
        host.pairs.is_some().then(|| self.buffer(bytemuck::cast_slice(pair_ends), shape, Kind::I64))
    }

    /// Number of positive pairs.
    #[getter]
    fn num_positives(&self) -> usize {
        self.shared.arrays.host.pairs.as_ref().map_or(0, |pairs| pairs.num_positives)
    }

    /// Class of each pair, -1 for none; empty where pairs have none.
    #[getter]
    fn pair_labels(&self) -> Buffer {
        self.of(&self.shared.arrays.host.labels, Kind::I32)
    }

    /// Targets `[pairs, targets]`, NaN where unknown; empty where pairs have none.
    #[getter]
    fn pair_targets(&self) -> Buffer {
        let TargetValues { width, values } = &self.shared.arrays.host.targets;
        let shape = vec![values.len().checked_div(*width).unwrap_or(0), *width];
        self.buffer(bytemuck::cast_slice(values), shape, Kind::F32)
    }

    #[getter]
    fn x(&self) -> Option<Buffer> {
        let features = self.shared.arrays.host.features.as_ref()?;
        Some(self.buffer(features.as_bytes(), vec![features.num_rows(), features.dim], Kind::of(features.dtype)))
    }

    /// `[2, edges]`, sources first; `None` for a mini-batch of blocks.
    #[getter]
    fn edge_index(&self) -> Option<Buffer> {
        let edges = &self.shared.arrays.edge_index;
        let shape = vec![2, edges.len() / 2];
        (self.form != Form::Blocks).then(|| self.buffer(bytemuck::cast_slice(edges), shape, Kind::I64))
    }

    #[getter]
    fn edge_weight(&self) -> Option<Buffer> {
        let weighted = self.shared.arrays.host.blocks.iter().all(|block| block.weights.is_some());
        (self.form != Form::Blocks && weighted).then(|| self.of(&self.shared.arrays.edge_weight, Kind::F32))
    }

    /// The graph's number of each edge, in the order of `edge_index` or block after block; `None` where they were not asked for.
    #[getter]
    fn e_id(&self) -> Option<Buffer> {
        let Arrays { e_id, numbered, .. } = &self.shared.arrays;
        numbered.then(|| self.of(e_id, Kind::I64))
    }

    /// New nodes of each hop, the seeds first.
    #[getter]
    fn num_sampled_nodes(&self) -> Vec<usize> {
        let host = &self.shared.arrays.host;
        let blocks = host.blocks.iter().rev().map(|block| block.num_src - block.num_dst);
        match self.form {
            Form::Induced => vec![host.num_seeds, host.input_nodes.len() - host.num_seeds],
            _ => std::iter::once(host.num_seeds).chain(blocks).collect(),
        }
    }

    /// Edges of each hop, the seeds' own first.
    #[getter]
    fn num_sampled_edges(&self) -> Vec<usize> {
        let hops = if self.form == Form::Induced { 1 } else { usize::MAX };
        self.shared.arrays.host.blocks.iter().rev().take(hops).map(Block::num_edges).collect()
    }

    /// `(indptr, indices, weights, num_src, num_dst)` of each block, the one farthest from the seeds first.
    #[getter]
    fn blocks(&self) -> Vec<(Buffer, Buffer, Option<Buffer>, usize, usize)> {
        let block = |block: &Block| {
            let weights = block.weights.as_ref().map(|weights| self.of(weights, Kind::F32));
            let (indptr, indices) = (self.of(&block.indptr, Kind::I32), self.of(&block.indices, Kind::I32));
            (indptr, indices, weights, block.num_src, block.num_dst)
        };
        self.shared.arrays.host.blocks.iter().map(block).collect()
    }
}
