//! Graph attention: edge scores, a softmax over each row, and the weighted sum, with their backward.
//!
//! Forward saves only its inputs; backward recomputes the coefficients, which costs an exponential per edge and head
//! instead of two edge-by-head matrices. Backward has two passes, one by destination row (scores and gradients of the
//! row) and one by source node over the transposed block; neither needs atomics.

use std::sync::Arc;

use burn_tensor::Tensor;
use rayon::prelude::*;

use crate::adjacency::Adjacency;
use crate::bridge::{HostOp, apply};
use crate::mask::Mask;
use crate::matrix::{Matrix, MatrixRef, TASK_ROWS, axpy, dot, for_rows, sum_rows};

/// Options of the attention over a row's edges.
#[derive(Debug, Clone)]
pub struct AttentionOptions {
    /// Number of heads, which share the width of the values equally.
    pub heads: usize,
    /// Slope of the leaky ReLU for negative scores; 0.2 in the papers.
    pub slope: f32,
    /// Whether each node attends to itself by one added self loop, which replaces those of the graph (PyG's `GATConv`).
    pub self_loops: bool,
    /// Dropout of the coefficients: element `entry * heads + head` of a row, whose entries are the edges of the block, then
    /// the self loop.
    pub dropout: Option<Mask>,
}

/// GAT (Veličković et al.): coefficients softmax(leaky_relu(a_src·z_u + a_dst·z_v)), output their sum of z_u.
///
/// `z` is `[num_src, heads * width]`, the attention vectors are `[1, heads * width]`; the output is `[num_dst, heads * width]`.
pub fn gat_attention(
    z: Tensor<2>,
    att_src: Tensor<2>,
    att_dst: Tensor<2>,
    adjacency: &Arc<Adjacency>,
    options: AttentionOptions,
) -> Tensor<2> {
    apply(Attend { adjacency: Arc::clone(adjacency), options, gatv2: false }, [z, att_src, att_dst])
}

/// GATv2 (Brody et al.): coefficients softmax(att·leaky_relu(l_u + r_v)), output their sum of l_u.
///
/// `left` is `[num_src, heads * width]`, `right` `[num_dst, heads * width]`, `att` `[1, heads * width]`.
pub fn gatv2_attention(
    left: Tensor<2>,
    right: Tensor<2>,
    att: Tensor<2>,
    adjacency: &Arc<Adjacency>,
    options: AttentionOptions,
) -> Tensor<2> {
    apply(Attend { adjacency: Arc::clone(adjacency), options, gatv2: true }, [left, right, att])
}

#[derive(Debug)]
struct Attend {
    adjacency: Arc<Adjacency>,
    options: AttentionOptions,
    gatv2: bool,
}

/// Inputs of the scores.
enum Scorer<'a> {
    /// GAT: one number per node, head and side, `[num_src, heads]` and `[num_dst, heads]`.
    Sum { src: Matrix, dst: Matrix },
    /// GATv2: two vectors and the attention vector.
    Dot { left: MatrixRef<'a>, right: MatrixRef<'a>, att: &'a [f32] },
}

/// An edge of a row: its source and its position (self loops follow the block's edges).
type Edge = (usize, usize);

/// Results of the pass by destination row, read by the pass by source.
struct EdgeGrads {
    /// Gradient of each edge's score, and its coefficient after dropout, `[edges + num_dst, heads]`.
    pairs: Vec<[f32; 2]>,
    heads: usize,
}

impl EdgeGrads {
    /// Gradient of the score, and coefficient, of an edge by head.
    #[inline]
    fn of(&self, edge: usize) -> &[[f32; 2]] {
        &self.pairs[edge * self.heads..(edge + 1) * self.heads]
    }

    /// Adds the gradients of an edge's scores.
    #[inline]
    fn add_scores(&self, edge: usize, out: &mut [f32]) {
        out.iter_mut().zip(self.of(edge)).for_each(|(o, [score, _])| *o += score);
    }
}

impl Attend {
    fn edges_of(&self, row: usize, edges: &mut Vec<Edge>) {
        edges.clear();
        let range = self.adjacency.row(row);
        let sources = self.adjacency.indices[range.clone()].iter().map(|&src| src as usize).zip(range);
        if self.options.self_loops {
            edges.extend(sources.filter(|(src, _)| *src != row));
            edges.push((row, self.adjacency.num_edges() + row));
        } else {
            edges.extend(sources);
        }
    }

    fn scorer<'a>(&self, inputs: &[MatrixRef<'a>]) -> Scorer<'a> {
        let heads = self.options.heads;
        if self.gatv2 {
            return Scorer::Dot { left: inputs[0], right: inputs[1], att: inputs[2].values };
        }
        let z = inputs[0];
        let side = |rows: usize, att: &[f32]| {
            let mut out = Matrix::zeros(rows, heads);
            let width = z.cols / heads;
            for_rows(&mut out, |row, out| {
                for (h, o) in out.iter_mut().enumerate() {
                    let head = h * width..(h + 1) * width;
                    *o = dot(&z.row(row)[head.clone()], &att[head]);
                }
            });
            out
        };
        Scorer::Sum { src: side(z.rows, inputs[1].values), dst: side(self.adjacency.num_dst, inputs[2].values) }
    }

    fn leaky(&self, x: f32) -> f32 {
        if x > 0.0 { x } else { self.options.slope * x }
    }

    /// The softmax coefficients of a row, `[edges, heads]`, before dropout.
    fn coefficients(&self, scorer: &Scorer<'_>, row: usize, edges: &[Edge], out: &mut Vec<f32>) {
        let heads = self.options.heads;
        out.clear();
        for &(src, _) in edges {
            match scorer {
                Scorer::Sum { src: s, dst: t } => {
                    let (s, t) = (s.view(), t.view());
                    out.extend(s.row(src).iter().zip(t.row(row)).map(|(s, t)| self.leaky(s + t)));
                }
                Scorer::Dot { left, right, att } => {
                    let width = left.cols / heads;
                    let sides = left.row(src).iter().zip(right.row(row));
                    let mut terms = sides.zip(*att).map(|((l, r), a)| a * self.leaky(l + r));
                    out.extend((0..heads).map(|_| terms.by_ref().take(width).sum::<f32>()));
                }
            }
        }
        for h in 0..heads {
            let mut max = f32::NEG_INFINITY;
            for score in out.iter().skip(h).step_by(heads) {
                max = max.max(*score);
            }
            let mut sum = 0.0;
            for score in out.iter_mut().skip(h).step_by(heads) {
                *score = (*score - max).exp();
                sum += *score;
            }
            for score in out.iter_mut().skip(h).step_by(heads) {
                *score /= sum;
            }
        }
    }

    /// The dropout factors of a row's edges, `[edges, heads]`.
    fn factors(&self, row: usize, edges: &[Edge], out: &mut Vec<f32>) {
        let heads = self.options.heads;
        out.clear();
        out.resize(edges.len() * heads, 1.0);
        if let Some(mask) = &self.options.dropout {
            let of_row = self.adjacency.row(row);
            for (&(_, position), factors) in edges.iter().zip(out.chunks_exact_mut(heads)) {
                // The self loop comes after the row's edges.
                let entry = if of_row.contains(&position) { position - of_row.start } else { of_row.len() };
                mask.fill(row, entry * heads, factors);
            }
        }
    }

    /// Gradients of scores and coefficients after dropout, for all edges: the pass by destination row.
    fn edge_grads(&self, scorer: &Scorer<'_>, values: MatrixRef<'_>, grad: MatrixRef<'_>) -> EdgeGrads {
        let (heads, width) = (self.options.heads, values.cols / self.options.heads);
        let (num_edges, num_dst) = (self.adjacency.num_edges(), self.adjacency.num_dst);
        // An edge that an added self loop replaces has 0 for both.
        let mut pairs = vec![[0.0f32; 2]; (num_edges + num_dst) * heads];
        let (of_edges, of_loops) = pairs.split_at_mut(num_edges * heads);
        let tasks = self.task_slices(of_edges).into_par_iter().zip(of_loops.par_chunks_mut(TASK_ROWS * heads));
        tasks.enumerate().for_each(|(task, (of_edges, of_loops))| {
            let (mut edges, mut alpha, mut factors) = (Vec::new(), Vec::new(), Vec::new());
            let (first_row, end_row) = (task * TASK_ROWS, ((task + 1) * TASK_ROWS).min(num_dst));
            let first_edge = self.adjacency.row(first_row).start;
            let (mut sums, mut grads) = (vec![0.0f32; heads], Vec::new());
            for row in first_row..end_row {
                self.edges_of(row, &mut edges);
                self.coefficients(scorer, row, &edges, &mut alpha);
                self.factors(row, &edges, &mut factors);
                sums.fill(0.0);
                grads.clear();
                for (e, &(src, _)) in edges.iter().enumerate() {
                    for (h, sum) in sums.iter_mut().enumerate() {
                        let (at, head) = (e * heads + h, h * width..(h + 1) * width);
                        let of_alpha = dot(&grad.row(row)[head.clone()], &values.row(src)[head]) * factors[at];
                        *sum += alpha[at] * of_alpha;
                        grads.push(of_alpha);
                    }
                }
                for (e, &(src, position)) in edges.iter().enumerate() {
                    let out = match position.checked_sub(num_edges) {
                        None => &mut of_edges[(position - first_edge) * heads..][..heads],
                        Some(own) => &mut of_loops[(own - first_row) * heads..][..heads],
                    };
                    for (h, out) in out.iter_mut().enumerate() {
                        let at = e * heads + h;
                        let mut score = alpha[at] * (grads[at] - sums[h]);
                        if let Scorer::Sum { src: s, dst: t } = scorer
                            && s.view().row(src)[h] + t.view().row(row)[h] <= 0.0
                        {
                            score *= self.options.slope;
                        }
                        *out = [score, alpha[at] * factors[at]];
                    }
                }
            }
        });
        EdgeGrads { pairs, heads }
    }

    /// Splits an array over edges and heads into one slice per task.
    fn task_slices<'a, T>(&self, mut of_edges: &'a mut [T]) -> Vec<&'a mut [T]> {
        let num_dst = self.adjacency.num_dst;
        let mut slices = Vec::with_capacity(num_dst.div_ceil(TASK_ROWS));
        for first in (0..num_dst).step_by(TASK_ROWS) {
            let edges = self.adjacency.indptr[(first + TASK_ROWS).min(num_dst)] - self.adjacency.indptr[first];
            let (slice, rest) = of_edges.split_at_mut(edges as usize * self.options.heads);
            slices.push(slice);
            of_edges = rest;
        }
        slices
    }

    /// Calls `each(row, position)` for every edge that starts in `src`, in a fixed order.
    fn edges_from(&self, src: usize, mut each: impl FnMut(usize, usize)) {
        let transposed = self.adjacency.transposed();
        let range = transposed.indptr[src] as usize..transposed.indptr[src + 1] as usize;
        for (&row, &edge) in transposed.rows[range.clone()].iter().zip(&transposed.edges[range]) {
            each(row as usize, edge as usize);
        }
        if self.options.self_loops && src < self.adjacency.num_dst {
            each(src, self.adjacency.num_edges() + src);
        }
    }

    fn backward_gat(&self, inputs: &[MatrixRef<'_>], grads: &EdgeGrads, grad: MatrixRef<'_>) -> [Matrix; 3] {
        let (z, att_src, att_dst) = (inputs[0], inputs[1].values, inputs[2].values);
        let (heads, width) = (self.options.heads, z.cols / self.options.heads);
        let num_dst = self.adjacency.num_dst;
        let mut edges_s = Matrix::zeros(z.rows, heads);
        for_rows(&mut edges_s, |src, s| {
            self.edges_from(src, |_, at| grads.add_scores(at, s));
        });
        let mut edges_t = Matrix::zeros(num_dst, heads);
        for_rows(&mut edges_t, |row, t| {
            for at in self.adjacency.row(row) {
                grads.add_scores(at, t);
            }
            grads.add_scores(self.adjacency.num_edges() + row, t);
        });
        let (s, t) = (edges_s.view(), edges_t.view());
        let mut out = Matrix::zeros(z.rows, z.cols);
        for_rows(&mut out, |src, out| {
            self.edges_from(src, |row, at| {
                for h in 0..heads {
                    let head = h * width..(h + 1) * width;
                    axpy(&mut out[head.clone()], grads.of(at)[h][1], &grad.row(row)[head]);
                }
            });
            for h in 0..heads {
                let head = h * width..(h + 1) * width;
                axpy(&mut out[head.clone()], s.row(src)[h], &att_src[head.clone()]);
                if src < num_dst {
                    axpy(&mut out[head.clone()], t.row(src)[h], &att_dst[head]);
                }
            }
        });
        let attention = |rows: usize, side: MatrixRef<'_>| {
            let sums = sum_rows(rows, z.cols, |row, sums| {
                for h in 0..heads {
                    let head = h * width..(h + 1) * width;
                    axpy(&mut sums[head.clone()], side.row(row)[h], &z.row(row)[head]);
                }
            });
            Matrix::new(sums, 1, z.cols)
        };
        [out, attention(z.rows, s), attention(num_dst, t)]
    }

    fn backward_gatv2(&self, inputs: &[MatrixRef<'_>], grads: &EdgeGrads, grad: MatrixRef<'_>) -> [Matrix; 3] {
        let (left, right, att) = (inputs[0], inputs[1], inputs[2].values);
        let (heads, width, slope) = (self.options.heads, left.cols / self.options.heads, self.options.slope);
        // Adds the gradient of l_u + r_v through the score of an edge.
        let add = |out: &mut [f32], src: usize, row: usize, at: usize| {
            for (c, o) in out.iter_mut().enumerate() {
                let side = if left.row(src)[c] + right.row(row)[c] > 0.0 { 1.0 } else { slope };
                *o += grads.of(at)[c / width][0] * att[c] * side;
            }
        };
        let mut of_left = Matrix::zeros(left.rows, left.cols);
        for_rows(&mut of_left, |src, out| {
            self.edges_from(src, |row, at| {
                for h in 0..heads {
                    let head = h * width..(h + 1) * width;
                    axpy(&mut out[head.clone()], grads.of(at)[h][1], &grad.row(row)[head]);
                }
                add(out, src, row, at);
            });
        });
        let mut of_right = Matrix::zeros(right.rows, right.cols);
        for_rows(&mut of_right, |row, out| {
            let mut edges = Vec::new();
            self.edges_of(row, &mut edges);
            for (src, at) in edges {
                add(out, src, row, at);
            }
        });
        let of_att = sum_rows(self.adjacency.num_dst, left.cols, |row, sums| {
            let mut edges = Vec::new();
            self.edges_of(row, &mut edges);
            for (src, at) in edges {
                for (c, sum) in sums.iter_mut().enumerate() {
                    *sum += grads.of(at)[c / width][0] * self.leaky(left.row(src)[c] + right.row(row)[c]);
                }
            }
        });
        [of_left, of_right, Matrix::new(of_att, 1, left.cols)]
    }
}

impl HostOp for Attend {
    fn forward(&self, inputs: &[MatrixRef<'_>]) -> Matrix {
        let (values, heads) = (inputs[0], self.options.heads);
        assert_eq!(values.rows, self.adjacency.num_src, "rows to attend to and source nodes");
        assert_eq!(values.cols % heads, 0, "a width of {} for {heads} heads", values.cols);
        let width = values.cols / heads;
        let scorer = self.scorer(inputs);
        let mut out = Matrix::zeros(self.adjacency.num_dst, values.cols);
        if values.cols == 0 {
            return out;
        }
        out.values.par_chunks_mut(TASK_ROWS * values.cols).enumerate().for_each(|(task, rows)| {
            let (mut edges, mut alpha, mut factors) = (Vec::new(), Vec::new(), Vec::new());
            for (i, out) in rows.chunks_exact_mut(values.cols).enumerate() {
                let row = task * TASK_ROWS + i;
                self.edges_of(row, &mut edges);
                self.coefficients(&scorer, row, &edges, &mut alpha);
                self.factors(row, &edges, &mut factors);
                for (e, &(src, _)) in edges.iter().enumerate() {
                    for h in 0..heads {
                        let (at, head) = (e * heads + h, h * width..(h + 1) * width);
                        axpy(&mut out[head.clone()], alpha[at] * factors[at], &values.row(src)[head]);
                    }
                }
            }
        });
        out
    }

    fn saves_inputs(&self) -> bool {
        true
    }

    fn backward(&self, grad: MatrixRef<'_>, inputs: &[MatrixRef<'_>], wanted: &[bool]) -> Vec<Option<Matrix>> {
        let scorer = self.scorer(inputs);
        let edges = self.edge_grads(&scorer, inputs[0], grad);
        let grads = match self.gatv2 {
            false => self.backward_gat(inputs, &edges, grad),
            true => self.backward_gatv2(inputs, &edges, grad),
        };
        grads.into_iter().zip(wanted).map(|(grad, &wanted)| wanted.then_some(grad)).collect()
    }
}
