//! A block with coefficients for aggregation, and its transpose for the backward pass.

mod attention;
mod features;
mod relations;

use std::sync::OnceLock;

use morphgl_registry::Block;

pub(crate) use self::attention::HgtBlock;
pub(crate) use self::features::FeaturedEdges;
pub(crate) use self::relations::{Relation, TypedBlock, destinations_by_type};

/// Factor of each edge's message.
#[derive(Debug, Clone, PartialEq)]
pub enum Coefficients {
    /// 1.
    Ones,
    /// One per destination row.
    Rows(Vec<f32>),
    /// One per edge.
    Edges(Vec<f32>),
}

/// Degrees that normalise a graph convolution (as in TF-GNN's `GCNConv`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcnNorm {
    /// None.
    None,
    /// The destination's in-degree.
    In,
    /// The source's out-degree.
    Out,
    /// The root of the source's out-degree times the destination's in-degree.
    InOut,
    /// The root of the source's in-degree times the destination's in-degree, as in PyG; used by models.
    InIn,
}

/// Degrees in the whole graph of a block's source nodes, self loops not counted.
#[derive(Debug, Clone, Copy)]
pub struct Degrees<'a> {
    /// Sum of the weights of the edges that end in the node.
    pub incoming: &'a [f32],
    /// Sum of the weights of the edges that start in the node; only for [`GcnNorm::Out`] and [`GcnNorm::InOut`].
    pub outgoing: &'a [f32],
}

/// The edges of a block by source node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transposed {
    pub(crate) indptr: Vec<u32>,
    /// Destination row of each edge, ascending within a source.
    pub(crate) rows: Vec<u32>,
    /// Position of each edge in the block.
    pub(crate) edges: Vec<u32>,
}

/// The edges of a block by type.
#[derive(Debug)]
pub(crate) enum Typed {
    /// For a layer per edge type.
    Relations(TypedBlock),
    /// For attention over the edges of all types.
    Attention(HgtBlock),
}

/// A block with coefficients of edges and, with self loops, one per row for the row's own node.
#[derive(Debug)]
pub struct Adjacency {
    // Invariant: a valid CSC with sources below `num_src`, `num_dst <= num_src`, as many coefficients as rows or edges.
    pub(crate) num_dst: usize,
    pub(crate) num_src: usize,
    pub(crate) indptr: Vec<u32>,
    pub(crate) indices: Vec<u32>,
    pub(crate) coefficients: Coefficients,
    pub(crate) self_loops: Option<Vec<f32>>,
    /// The edges by type, of which alone typed models read.
    pub(crate) typed: Option<Typed>,
    /// The edges with their features, which alone models that read these read.
    pub(crate) featured: Option<FeaturedEdges>,
    transposed: OnceLock<Transposed>,
    edge_rows: OnceLock<Vec<u32>>,
}

impl Adjacency {
    /// A block with coefficients.
    ///
    /// # Panics
    ///
    /// When the number of coefficients is not that of edges or rows, or with more destination than source nodes.
    pub fn new(block: &Block, coefficients: Coefficients, self_loops: Option<Vec<f32>>) -> Self {
        let (num_dst, num_edges) = (block.num_dst, block.num_edges());
        assert!(num_dst <= block.num_src, "{num_dst} destination of {} source nodes", block.num_src);
        match &coefficients {
            Coefficients::Ones => {}
            Coefficients::Rows(rows) => assert_eq!(rows.len(), num_dst, "coefficients of rows"),
            Coefficients::Edges(edges) => assert_eq!(edges.len(), num_edges, "coefficients of edges"),
        }
        assert!(self_loops.as_ref().is_none_or(|s| s.len() == num_dst), "a self loop per row");
        Self {
            num_dst,
            num_src: block.num_src,
            indptr: block.indptr.clone(),
            indices: block.indices.clone(),
            coefficients,
            self_loops,
            typed: None,
            featured: None,
            transposed: OnceLock::new(),
            edge_rows: OnceLock::new(),
        }
    }

    /// A block divided by edge types, which typed models read.
    pub(crate) fn typed(block: &Block, typed: Typed) -> Self {
        Self { typed: Some(typed), ..Self::sizes(block) }
    }

    /// A block whose edges are read with their features.
    pub(crate) fn featured(block: &Block, featured: FeaturedEdges) -> Self {
        Self { featured: Some(featured), ..Self::sizes(block) }
    }

    /// A block of so many nodes, without edges.
    fn sizes(block: &Block) -> Self {
        let indptr = vec![0; block.num_dst + 1];
        let sizes = Block { num_dst: block.num_dst, num_src: block.num_src, indptr, ..Block::default() };
        Self::edges(&sizes)
    }

    /// A block without coefficients, for attention.
    pub fn edges(block: &Block) -> Self {
        Self::new(block, Coefficients::Ones, None)
    }

    /// The mean of the neighbours, 0 without any, weighted by their importance where the sampler gives it (PinSAGE); weights of
    /// the graph are not read (as in PyG's `SAGEConv`).
    pub fn mean(block: &Block) -> Self {
        if let Some(weights) = block.weights.as_ref().filter(|_| block.importance) {
            let rows = block.indptr.windows(2).map(|w| &weights[w[0] as usize..w[1] as usize]);
            let shares = rows.flat_map(|row| {
                let sum = row.iter().sum::<f32>();
                row.iter().map(move |w| w / sum)
            });
            return Self::new(block, Coefficients::Edges(shares.collect()), None);
        }
        let rows = block.indptr.windows(2).map(|w| 1.0 / (w[1] - w[0]).max(1) as f32);
        Self::new(block, Coefficients::Rows(rows.collect()), None)
    }

    /// The sum of the neighbours; weights are not read (as in PyG's `GINConv`).
    /// A sampled row is scaled up to the node's degree, which keeps the estimate unbiased.
    pub fn sum(block: &Block, in_degrees: &[f32]) -> Self {
        let rows = (0..block.num_dst).map(|row| rescale(block, row, in_degrees[row]));
        Self::new(block, Coefficients::Rows(rows.collect()), None)
    }

    /// A graph convolution: weights divided by degrees, with a self loop of weight 1 for every node if `self_loops`.
    /// A sampled row is scaled up to the node's degree; with all neighbours this is the full graph's convolution.
    pub fn gcn(block: &Block, degrees: Degrees<'_>, norm: GcnNorm, self_loops: bool) -> Self {
        let self_weight = if self_loops { 1.0 } else { 0.0 };
        let inverse = |degree: f32| if degree + self_weight > 0.0 { 1.0 / (degree + self_weight) } else { 0.0 };
        let incoming = |v: usize| inverse(degrees.incoming[v]);
        let outgoing = |v: usize| inverse(degrees.outgoing[v]);
        let divisor = |src: usize, dst: usize| match norm {
            GcnNorm::None => 1.0,
            GcnNorm::In => incoming(dst),
            GcnNorm::Out => outgoing(src),
            GcnNorm::InOut => (outgoing(src) * incoming(dst)).sqrt(),
            GcnNorm::InIn => (incoming(src) * incoming(dst)).sqrt(),
        };
        let mut coefficients = Vec::with_capacity(block.num_edges());
        for row in 0..block.num_dst {
            let scale = rescale(block, row, degrees.incoming[row]);
            let start = block.indptr[row] as usize;
            coefficients.extend(block.row(row).iter().enumerate().map(|(i, &src)| {
                let weight = block.weights.as_ref().map_or(1.0, |w| w[start + i]);
                scale * weight * divisor(src as usize, row)
            }));
        }
        let loops = self_loops.then(|| (0..block.num_dst).map(|row| divisor(row, row)).collect());
        Self::new(block, Coefficients::Edges(coefficients), loops)
    }

    /// Number of destination nodes.
    pub fn num_dst(&self) -> usize {
        self.num_dst
    }

    /// Number of source nodes, the destination nodes first.
    pub fn num_src(&self) -> usize {
        self.num_src
    }

    /// Number of edges, without self loops.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// The destination row of each edge, built at the first call.
    pub(crate) fn edge_rows(&self) -> &[u32] {
        self.edge_rows
            .get_or_init(|| (0..self.num_dst).flat_map(|row| self.row(row).map(move |_| row as u32)).collect())
    }

    #[inline]
    pub(crate) fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.indptr[row] as usize..self.indptr[row + 1] as usize
    }

    /// Coefficient of edge `edge`, which ends in `row`.
    #[inline]
    pub(crate) fn coefficient(&self, edge: usize, row: usize) -> f32 {
        match &self.coefficients {
            Coefficients::Ones => 1.0,
            Coefficients::Rows(rows) => rows[row],
            Coefficients::Edges(edges) => edges[edge],
        }
    }

    /// The edges by source node, built by counting sort at the first call.
    pub(crate) fn transposed(&self) -> &Transposed {
        self.transposed.get_or_init(|| {
            let mut indptr = vec![0u32; self.num_src + 1];
            for &src in &self.indices {
                indptr[src as usize + 1] += 1;
            }
            for v in 0..self.num_src {
                indptr[v + 1] += indptr[v];
            }
            let mut next = indptr.clone();
            let (mut rows, mut edges) = (vec![0; self.indices.len()], vec![0; self.indices.len()]);
            for row in 0..self.num_dst {
                for edge in self.row(row) {
                    let position = &mut next[self.indices[edge] as usize];
                    rows[*position as usize] = row as u32;
                    edges[*position as usize] = edge as u32;
                    *position += 1;
                }
            }
            Transposed { indptr, rows, edges }
        })
    }

    /// Whether a linear layer from `in_dim` to `out_dim` is cheaper before the aggregation than after it; both are linear.
    ///
    /// Aggregation is bound by memory and GEMM by arithmetic: an element of a message costs about as much as eight
    /// multiply-adds (AVX2, rows of 100 to 400 bytes).
    pub fn transform_first(&self, in_dim: usize, out_dim: usize) -> bool {
        let (edges, src, dst) = (self.num_edges() as f64, self.num_src as f64, self.num_dst as f64);
        let (i, o) = (in_dim as f64, out_dim as f64);
        src * i * o + 8.0 * edges * o < dst * i * o + 8.0 * edges * i
    }
}

/// Factor that scales a sampled row up to all edges of its node.
fn rescale(block: &Block, row: usize, degree: f32) -> f32 {
    let (start, end) = (block.indptr[row] as usize, block.indptr[row + 1] as usize);
    let sampled: f32 = match &block.weights {
        Some(weights) => weights[start..end].iter().sum(),
        None => (end - start) as f32,
    };
    // A row with all its neighbours sums to its degree up to rounding, and its factor is exactly 1.
    if sampled > 0.0 && (degree - sampled).abs() > 1e-5 * degree { degree / sampled } else { 1.0 }
}
