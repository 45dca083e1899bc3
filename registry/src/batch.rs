//! Mini-batches: made by batching, moved by transferring, read by training.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use morphgl_graph_store::{Dtype, FeatureMatrix, FeatureView};
use morphgl_platform::Pages;
use serde::{Deserialize, Serialize};

use crate::{BatchPairs, Error, ErrorKind, FirstLayerRows, GivenRows, Place, Result};

/// Epoch and index of a mini-batch. With the graph, the sampler settings and the seed they determine its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct BatchId {
    /// Epoch, from 0.
    pub epoch: u32,
    /// Index within the epoch, from 0.
    pub index: u32,
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mini-batch {} of epoch {}", self.index, self.epoch)
    }
}

/// One hop: a bipartite graph in CSC form from source nodes to destination nodes, in local ids.
///
/// The destination nodes are the first `num_dst` of the source nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Number of destination nodes.
    pub num_dst: usize,
    /// Number of source nodes, the destination nodes included.
    pub num_src: usize,
    /// Row offsets, `num_dst + 1` of them.
    pub indptr: Vec<u32>,
    /// Local ids of the source nodes, row after row.
    pub indices: Vec<u32>,
    /// Weight of each edge: the graph's, where it has weights, or its importance.
    pub weights: Option<Vec<f32>>,
    /// Whether the weights are the edges' importance by the sampler, by which GraphSAGE weighs its mean.
    pub importance: bool,
    /// Number of the type of each edge, ascending in every row, where edges are sampled by type.
    pub edge_types: Option<Vec<u16>>,
    /// The row of each edge in the features of its type ([`Topology::edge_ids`](morphgl_graph_store::Topology::edge_ids)), where the
    /// edges have features. CUDA devices do not get it.
    pub edge_ids: Option<Vec<u32>>,
}

impl Block {
    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// Sources of the edges that end in destination `row`.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.indices[self.indptr[row] as usize..self.indptr[row + 1] as usize]
    }
}

/// Input features of a mini-batch, one row per input node, in their stored type.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchFeatures {
    /// Values per row.
    pub dim: usize,
    /// Element type: f32, f16, bf16 or u8.
    pub dtype: Dtype,
    /// The elements' bytes, row after row, aligned for every element type.
    bytes: Pages,
}

impl BatchFeatures {
    /// An empty matrix of rows like those of `matrix`.
    pub fn like(matrix: &FeatureMatrix) -> Self {
        Self::inside(Pages::new(), matrix)
    }

    /// An empty matrix of rows like those of `matrix`, in the memory of `pages`.
    pub fn inside(pages: Pages, matrix: &FeatureMatrix) -> Self {
        let mut features = Self { dim: matrix.dim(), dtype: matrix.dtype(), bytes: pages };
        features.bytes.resize(0);
        features
    }

    /// A matrix of `rows` rows of `dim` elements of type `dtype`, all zeros.
    pub fn zeros(rows: usize, dim: usize, dtype: Dtype) -> Self {
        let mut features = Self { dim, dtype, bytes: Pages::new() };
        features.resize(rows, dim, dtype);
        features
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.bytes.len().checked_div(self.row_bytes()).unwrap_or(0)
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.dtype.size()
    }

    /// Resizes to `rows` rows of type `dtype` and length `dim`, and returns their bytes, for the caller to overwrite: old content
    /// where the capacity suffices, else zeros. Nothing is cleared or copied, and capacity is kept.
    pub fn resize(&mut self, rows: usize, dim: usize, dtype: Dtype) -> &mut [u8] {
        (self.dim, self.dtype) = (dim, dtype);
        self.bytes.resize(rows * self.row_bytes())
    }

    /// The elements as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements in their type.
    pub fn view(&self) -> FeatureView<'_> {
        let bytes = self.as_bytes();
        match self.dtype {
            Dtype::F32 => FeatureView::F32(bytemuck::cast_slice(bytes)),
            Dtype::F16 => FeatureView::F16(bytemuck::cast_slice(bytes)),
            Dtype::Bf16 => FeatureView::Bf16(bytemuck::cast_slice(bytes)),
            Dtype::U8 => FeatureView::U8(bytes),
            other => unreachable!("a feature matrix is never {other}"),
        }
    }
}

/// Targets of each seed, row after row, repeats included, or of each pair where these have targets; NaN where unknown. Of width 0 and
/// empty where there are none.
#[derive(Debug, Clone, Default)]
pub struct TargetValues {
    /// Values per seed, or per pair.
    pub width: usize,
    /// The values, `width` for each.
    pub values: Vec<f32>,
}

/// By the values' bits, so that NaN equals NaN.
impl PartialEq for TargetValues {
    fn eq(&self, other: &Self) -> bool {
        self.width == other.width && bits(&self.values) == bits(&other.values)
    }
}

fn bits(values: &[f32]) -> &[u32] {
    bytemuck::cast_slice(values)
}

/// What the seeds of a mini-batch are to be predicted to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Targets<'a> {
    /// A class per seed, -1 for none.
    Classes(&'a [i32]),
    /// Values of each seed, row after row, NaN where unknown.
    Values(&'a [f32]),
    /// Pairs of seeds: the positives exist, and the negatives do not.
    Pairs(&'a BatchPairs),
    /// A class of each pair of seeds, -1 for none.
    PairClasses(&'a BatchPairs, &'a [i32]),
    /// Values of each pair of seeds, row after row, NaN where unknown.
    PairValues(&'a BatchPairs, &'a [f32]),
}

/// A mini-batch in host memory. Two of them are the same mini-batch exactly when they are `==`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostBatch {
    /// Epoch and index.
    pub id: BatchId,
    /// Number of seeds, the first of the input nodes. A node given several times as a seed is counted as often.
    pub num_seeds: usize,
    /// Nodes whose features the first layer reads: the seeds in order, then each other node once, by first appearance hop after
    /// hop. The source nodes of every block are a prefix of them, but for given rows. A seed that repeats has an input node and a
    /// row in every block per occurrence, with equal edges; edges that come from it name its first occurrence.
    pub input_nodes: Vec<u32>,
    /// In-degree in the whole graph of each input node (sum of its edges' weights, where there are weights); of pairs, in the graph
    /// without the edges that the mini-batch excludes.
    pub degrees: Vec<f32>,
    /// The hops, the one farthest from the seeds first: `blocks[l]` feeds layer `l`.
    pub blocks: Vec<Block>,
    /// Features of the input nodes; `None` where transferring fills them in, or the graph has none.
    pub features: Option<BatchFeatures>,
    /// Where features are per node type, those of the input nodes of each type, in the order in which they are input nodes; `None` for a
    /// type without features. Empty where training reads them from the dataset in host memory.
    pub features_by_type: Vec<Option<BatchFeatures>>,
    /// Rows of the first layer's output that are not computed.
    pub given: Option<Box<GivenRows>>,
    /// Class of each seed, repeats included, -1 for none; of pairs, that of each pair. Empty where there are none.
    pub labels: Vec<i32>,
    /// Real-valued targets of the seeds, or of the pairs.
    pub targets: TargetValues,
    /// Index of the seed whose tree each input node is in, where trees are disjoint: a node then has an input node per tree.
    /// No training operator reads it, and copies to CUDA devices leave it out.
    pub trees: Option<Vec<u32>>,
    /// The pairs whose end nodes the seeds are; `None` where the seeds are nodes. Of pairs each seed occurs once.
    pub pairs: Option<Box<BatchPairs>>,
}

impl HostBatch {
    /// The seeds.
    pub fn seeds(&self) -> &[u32] {
        &self.input_nodes[..self.num_seeds]
    }

    /// Edges of all blocks.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().map(Block::num_edges).sum()
    }

    /// How many rows of the first layer's output it computes, and is given.
    pub fn first_layer_rows(&self) -> FirstLayerRows {
        FirstLayerRows {
            computed: self.blocks.first().map_or(0, |block| block.num_dst),
            given: self.given.as_ref().map_or(0, |given| given.nodes.len()),
            version: self.given.as_ref().map(|given| given.version),
        }
    }

    /// Bytes that a transfer moves.
    pub fn num_bytes(&self) -> usize {
        let block = |b: &Block| {
            let types = 2 * b.edge_types.as_ref().map_or(0, Vec::len);
            let ids = b.edge_ids.as_ref().map_or(0, Vec::len);
            types + 4 * (b.indptr.len() + b.indices.len() + b.weights.as_ref().map_or(0, Vec::len) + ids)
        };
        let features = self.features.iter().chain(self.features_by_type.iter().flatten());
        let features: usize = features.map(|f| f.as_bytes().len()).sum();
        let given = self.given.as_ref().map_or(0, |g| {
            4 * (g.nodes.len() + g.degrees.len() + g.rows.len() + g.inputs.iter().map(Vec::len).sum::<usize>())
        });
        let pairs = self.pairs.as_ref().map_or(0, |pairs| 8 * pairs.ends.len());
        given
            + pairs
            + 4 * (self.input_nodes.len() + self.degrees.len() + self.labels.len() + self.targets.values.len())
            + self.blocks.iter().map(block).sum::<usize>()
            + features
    }
}

/// A mini-batch in a device's memory, of a type that only the device's operators know.
pub trait DeviceBatch: Any + fmt::Debug + Send {
    /// Epoch and index.
    fn id(&self) -> BatchId;
    /// Where it lies.
    fn place(&self) -> Place;
    /// Number of seeds.
    fn num_seeds(&self) -> usize;
    /// Its bytes on the device, unused capacity included; `None` for as many as on the host.
    fn num_bytes(&self) -> Option<u64> {
        None
    }
    /// How many rows of the first layer's output it computes, and is given.
    fn first_layer_rows(&self) -> FirstLayerRows {
        FirstLayerRows::default()
    }
    /// Copies it to the host, for comparison and for tests.
    fn to_host(&self) -> Result<HostBatch>;
    /// Converts to the operators' own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
    /// Borrows as the operators' own type.
    fn as_any(&self) -> &dyn Any;
}

/// A mini-batch at any place.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "few are alive at a time, and a box would be an allocation per mini-batch"
)]
pub enum MiniBatch {
    /// In host memory.
    Host(HostBatch),
    /// In a device's memory.
    Device(Box<dyn DeviceBatch>),
}

impl MiniBatch {
    /// Epoch and index.
    pub fn id(&self) -> BatchId {
        match self {
            MiniBatch::Host(batch) => batch.id,
            MiniBatch::Device(batch) => batch.id(),
        }
    }

    /// Where it lies.
    pub fn place(&self) -> Place {
        match self {
            MiniBatch::Host(_) => Place::Host,
            MiniBatch::Device(batch) => batch.place(),
        }
    }

    /// Number of seeds.
    pub fn num_seeds(&self) -> usize {
        match self {
            MiniBatch::Host(batch) => batch.num_seeds,
            MiniBatch::Device(batch) => batch.num_seeds(),
        }
    }

    /// How many rows of the first layer's output it computes, and is given.
    pub fn first_layer_rows(&self) -> FirstLayerRows {
        match self {
            MiniBatch::Host(batch) => batch.first_layer_rows(),
            MiniBatch::Device(batch) => batch.first_layer_rows(),
        }
    }

    /// The mini-batch in host memory; one on a device is copied.
    ///
    /// # Errors
    ///
    /// The copy fails.
    pub fn to_host(&self) -> Result<Cow<'_, HostBatch>> {
        match self {
            MiniBatch::Host(batch) => Ok(Cow::Borrowed(batch)),
            MiniBatch::Device(batch) => batch.to_host().map(Cow::Owned),
        }
    }

    /// The mini-batch as one in host memory.
    ///
    /// # Errors
    ///
    /// It lies on a device: the plan's operators do not match.
    pub fn host(&self) -> Result<&HostBatch> {
        match self {
            MiniBatch::Host(batch) => Ok(batch),
            MiniBatch::Device(batch) => Err(misplaced(batch.as_ref())),
        }
    }

    /// The mini-batch as one in host memory, by value.
    ///
    /// # Errors
    ///
    /// As [`MiniBatch::host`].
    pub fn into_host(self) -> Result<HostBatch> {
        match self {
            MiniBatch::Host(batch) => Ok(batch),
            MiniBatch::Device(batch) => Err(misplaced(batch.as_ref())),
        }
    }
}

fn misplaced(batch: &dyn DeviceBatch) -> Error {
    Error::new(batch.id(), ErrorKind::Misplaced(format!("expected in host memory, lies at {}", batch.place())))
}
