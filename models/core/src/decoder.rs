//! Decoders: the score of a pair of nodes by their embeddings.

use std::fmt;
use std::str::FromStr;

use morphgl_platform::{SimdLevel, simd_dispatch};
use morphgl_registry::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::parameter::{Init, ParameterList};
use crate::submission::unknown;

/// Pairs or rows that a task computes.
const TASK: usize = 256;

/// How the embeddings of two nodes score their pair. Embeddings have `d` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decoder {
    /// Their dot product; no parameter.
    #[default]
    Dot,
    /// Their dot product weighted by a vector (Yang et al., ICLR 2015): `decoder.relation` `[d]`; where pairs have edge types, of each of
    /// these one: `[edge types, d]`.
    DistMult,
    /// Two linear layers, with ReLU between, of both embeddings one after the other, source first: `decoder.lins.0` `[d, 2d]` and
    /// `decoder.lins.1` `[outputs, d]`, with biases; links have one output.
    Mlp,
}

impl Decoder {
    const ALL: [(Decoder, &'static str); 3] =
        [(Decoder::Dot, "dot"), (Decoder::DistMult, "distmult"), (Decoder::Mlp, "mlp")];

    /// Number of elements of its parameters, for embeddings of `width` elements and so many outputs; of [`Decoder::DistMult`] as many for
    /// each edge type of pairs.
    pub fn num_elements(self, width: usize, outputs: usize) -> usize {
        match self {
            Decoder::Dot => 0,
            Decoder::DistMult => width,
            Decoder::Mlp => 2 * width * width + width + outputs * (width + 1),
        }
    }

    /// Appends its parameters, in the order of their elements; `relations` is the number of edge types of pairs, 0 where they have none.
    pub(crate) fn parameters(self, width: usize, outputs: usize, relations: usize, list: &mut ParameterList) {
        match self {
            Decoder::Dot => {}
            Decoder::DistMult if relations == 0 => list.push("relation", &[width], Init::Constant(1.0)),
            // As PyG's and PyKEEN's DistMult: relations differ from the start. With entries of 1, ranks of UMLS are worse by 0.1.
            Decoder::DistMult => {
                list.push("relation", &[relations, width], Init::glorot(relations, width));
            }
            Decoder::Mlp => {
                list.linear("lins.0", width, 2 * width);
                list.linear("lins.1", outputs, width);
            }
        }
    }

    /// The parameters that pairs of an edge type are scored by: of [`Decoder::DistMult`] with a vector per edge type that of this type,
    /// else all.
    ///
    /// # Panics
    ///
    /// When there is no such type.
    pub fn of_edge_type(self, parameters: &[f32], width: usize, edge_type: Option<u16>) -> &[f32] {
        match edge_type {
            Some(of) if self == Decoder::DistMult && parameters.len() > width => {
                &parameters[usize::from(of) * width..][..width]
            }
            _ => parameters,
        }
    }

    /// The scores of pairs of rows of `embeddings` `[rows, width]`; `pairs` are their ends, and the edge type of each, none where they have
    /// no types.
    ///
    /// # Panics
    ///
    /// When a row or a relation does not exist, or `parameters` have not [`Decoder::num_elements`].
    ///
    /// # Complexity
    ///
    /// O(pairs · width); for [`Decoder::Mlp`] and O(rows · width²).
    pub fn scores(
        self,
        embeddings: &[f32],
        width: usize,
        pairs: (&[[u32; 2]], &[u16]),
        parameters: &[f32],
    ) -> Vec<f32> {
        self.outputs((embeddings, width, 1), pairs, parameters)
    }

    /// The outputs `[pairs, outputs]` of pairs of rows of `embeddings` `[rows, width]`, given as `(embeddings, width, outputs)`; `pairs` as
    /// of [`Decoder::scores`].
    ///
    /// # Panics
    ///
    /// As [`Decoder::scores`]; where there are several outputs and it is not [`Decoder::Mlp`].
    ///
    /// # Complexity
    ///
    /// O(pairs · width · outputs); for [`Decoder::Mlp`] and O(rows · width²).
    pub fn outputs(
        self,
        embeddings: (&[f32], usize, usize),
        pairs: (&[[u32; 2]], &[u16]),
        parameters: &[f32],
    ) -> Vec<f32> {
        self.forward(embeddings, pairs, parameters).outputs
    }

    /// The outputs, and what backward needs.
    pub(crate) fn forward(
        self,
        (z, width, outputs): (&[f32], usize, usize),
        (pairs, edge_types): TypedPairs<'_>,
        parameters: &[f32],
    ) -> Forward {
        let by_type = self == Decoder::DistMult && parameters.len() > width;
        assert!(
            !by_type || edge_types.len() == pairs.len(),
            "edge types of the pairs of a decoder with a vector for each"
        );
        let of =
            |pair: usize| self.of_edge_type(parameters, width, edge_types.get(pair).copied().or(by_type.then_some(0)));
        let scorer = self.scorer((z, width, outputs), of(0));
        let mut all = vec![0.0; pairs.len() * outputs];
        let rows = all.par_chunks_exact_mut(outputs).zip(pairs).enumerate().with_min_len(TASK);
        rows.for_each(|(i, (out, &pair))| scorer.outputs_of(pair, of(i), out));
        Forward { outputs: all, parts: scorer.parts }
    }

    /// The outputs of any pairs of rows of `embeddings` `[rows, width]`.
    pub(crate) fn scorer<'a>(
        self,
        (embeddings, width, outputs): (&'a [f32], usize, usize),
        parameters: &'a [f32],
    ) -> Scorer<'a> {
        assert!(outputs == 1 || self == Decoder::Mlp, "{self} of {outputs} outputs");
        assert_eq!(parameters.len(), self.num_elements(width, outputs), "elements of the decoder's parameters");
        let parts = match self {
            Decoder::Dot | Decoder::DistMult => [Vec::new(), Vec::new()],
            // The first layer is linear in each end: its parts are computed once per node, not once per pair.
            Decoder::Mlp => [0, 1].map(|end| Mlp::of(parameters, width, outputs).part(embeddings, end)),
        };
        Scorer { decoder: self, embeddings, width, outputs, parameters, parts }
    }

    /// Writes the gradient by the embeddings to `out`, and adds that by the parameters to `sums`; `slopes` are the derivatives of the
    /// loss by the outputs.
    pub(crate) fn backward(
        self,
        (z, width, outputs): (&[f32], usize, usize),
        ((pairs, edge_types), slopes): (TypedPairs<'_>, &[f32]),
        (parameters, forward): (&[f32], &Forward),
        out: &mut [f32],
        sums: &mut [f32],
    ) {
        let row = |v: u32| &z[v as usize * width..(v as usize + 1) * width];
        let ends = Ends::of(pairs, z.len() / width.max(1));
        match self {
            Decoder::DistMult if parameters.len() > width => {
                let of = |pair: usize| usize::from(edge_types[pair]) * width;
                out.par_chunks_mut(width).enumerate().with_min_len(16).for_each(|(v, out)| {
                    out.fill(0.0);
                    for end in ends.of_node(v) {
                        let (slope, other) = (slopes[end.pair()], pairs[end.pair()][1 - end.side()]);
                        let weights = &parameters[of(end.pair())..];
                        out.iter_mut().zip(row(other)).zip(weights).for_each(|((out, &x), w)| *out += slope * (x * w));
                    }
                });
                for (pair, (&[a, b], &slope)) in pairs.iter().zip(slopes).enumerate() {
                    let products = row(a).iter().zip(row(b)).map(|(a, b)| a * b);
                    sums[of(pair)..].iter_mut().zip(products).for_each(|(sum, product)| *sum += slope * product);
                }
            }
            Decoder::Dot | Decoder::DistMult => {
                let weights = (self == Decoder::DistMult).then_some(parameters);
                out.par_chunks_mut(width).enumerate().with_min_len(16).for_each(|(v, out)| {
                    out.fill(0.0);
                    for end in ends.of_node(v) {
                        let (slope, other) = (slopes[end.pair()], pairs[end.pair()][1 - end.side()]);
                        out.iter_mut().zip(row(other)).for_each(|(out, &x)| *out += slope * x);
                    }
                    if let Some(weights) = weights {
                        out.iter_mut().zip(weights).for_each(|(out, &weight)| *out *= weight);
                    }
                });
                if self == Decoder::DistMult {
                    for (&[a, b], &slope) in pairs.iter().zip(slopes) {
                        let products = row(a).iter().zip(row(b)).map(|(a, b)| a * b);
                        sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += slope * product);
                    }
                }
            }
            Decoder::Mlp => {
                Mlp::of(parameters, width, outputs).backward(z, (pairs, slopes), (&ends, forward), out, sums)
            }
        }
    }
}

/// Ends of pairs, and the edge type of each, none where they have no types.
type TypedPairs<'a> = (&'a [[u32; 2]], &'a [u16]);

/// A decoder with embeddings.
#[derive(Debug)]
pub(crate) struct Scorer<'a> {
    decoder: Decoder,
    embeddings: &'a [f32],
    width: usize,
    outputs: usize,
    parameters: &'a [f32],
    /// Of [`Decoder::Mlp`], the part of each end in the hidden layer.
    parts: [Vec<f32>; 2],
}

impl Scorer<'_> {
    /// The scores of a source's row with those of destinations from `first` on, one for each element of `out`.
    pub(crate) fn scores(&self, source: u32, first: u32, out: &mut [f32]) {
        scores_of_rows(SimdLevel::current(), self, source, first, out);
    }

    /// The score of a source's row with a destination's, of a decoder with one output.
    #[inline(always)]
    pub(crate) fn score(&self, pair: [u32; 2]) -> f32 {
        let mut score = [0.0];
        self.outputs_of(pair, self.parameters, &mut score);
        score[0]
    }

    /// Writes the outputs of a source's row with a destination's, by the parameters of their edge type.
    #[inline(always)]
    fn outputs_of(&self, [source, destination]: [u32; 2], parameters: &[f32], out: &mut [f32]) {
        let row = |v: u32| v as usize * self.width..(v as usize + 1) * self.width;
        let (a, b) = (row(source), row(destination));
        match self.decoder {
            Decoder::Dot => out[0] = dot(&self.embeddings[a], &self.embeddings[b]),
            Decoder::DistMult => out[0] = dot3(&self.embeddings[a], &self.embeddings[b], parameters),
            Decoder::Mlp => {
                let mlp = Mlp::of(parameters, self.width, self.outputs);
                for (i, out) in out.iter_mut().enumerate() {
                    *out = mlp.output(&self.parts[0][a.clone()], &self.parts[1][b.clone()], i);
                }
            }
        }
    }
}

simd_dispatch! {
    /// As [`Scorer::score`] of each row, to the same bits at every level: products and sums are not fused.
    fn scores_of_rows(scorer: &Scorer<'_>, source: u32, first: u32, out: &mut [f32]);
    avx512: score_each(scorer, source, first, out),
    avx2: score_each(scorer, source, first, out),
    portable: score_each(scorer, source, first, out),
}

#[inline(always)]
fn score_each(scorer: &Scorer<'_>, source: u32, first: u32, out: &mut [f32]) {
    for (destination, out) in (first..).zip(out) {
        *out = scorer.score([source, destination]);
    }
}

/// The outputs of pairs, and of [`Decoder::Mlp`] the part of each end in the hidden layer.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) outputs: Vec<f32>,
    parts: [Vec<f32>; 2],
}

/// The pairs of each node, in the order of the pairs.
struct Ends {
    first: Vec<u32>,
    ends: Vec<End>,
}

/// A node's end of a pair: twice the pair's position, and 1 for a destination.
#[derive(Debug, Clone, Copy, Default)]
struct End(u32);

impl End {
    fn pair(self) -> usize {
        (self.0 / 2) as usize
    }

    fn side(self) -> usize {
        (self.0 % 2) as usize
    }
}

impl Ends {
    fn of(pairs: &[[u32; 2]], num_nodes: usize) -> Self {
        let mut first = vec![0u32; num_nodes + 1];
        pairs.iter().flatten().for_each(|&v| first[v as usize + 1] += 1);
        (0..num_nodes).for_each(|v| first[v + 1] += first[v]);
        let (mut next, mut ends) = (first.clone(), vec![End::default(); 2 * pairs.len()]);
        for (i, &v) in pairs.iter().flatten().enumerate() {
            ends[next[v as usize] as usize] = End(i as u32);
            next[v as usize] += 1;
        }
        Self { first, ends }
    }

    fn of_node(&self, v: usize) -> &[End] {
        &self.ends[self.first[v] as usize..self.first[v + 1] as usize]
    }
}

/// The parameters of [`Decoder::Mlp`].
struct Mlp<'a> {
    width: usize,
    weight: &'a [f32],
    bias: &'a [f32],
    /// `[outputs, width]`.
    last: &'a [f32],
    last_bias: &'a [f32],
}

impl<'a> Mlp<'a> {
    fn of(parameters: &'a [f32], width: usize, outputs: usize) -> Self {
        let (weight, rest) = parameters.split_at(2 * width * width);
        let (bias, rest) = rest.split_at(width);
        let (last, last_bias) = rest.split_at(outputs * width);
        Self { width, weight, bias, last, last_bias }
    }

    /// The weights of an output.
    fn last(&self, output: usize) -> &'a [f32] {
        &self.last[output * self.width..][..self.width]
    }

    /// The part of one end of each pair in the hidden layer, of every node: embeddings times that half of the weight, transposed.
    fn part(&self, z: &[f32], end: usize) -> Vec<f32> {
        let d = self.width;
        let mut part = vec![0.0; z.len()];
        part.par_chunks_mut(TASK * d).zip(z.par_chunks(TASK * d)).for_each(|(out, z)| {
            multiply((z.len() / d, d, d), (z, [d, 1]), (&self.weight[end * d..], [1, 2 * d]), (out, d));
        });
        part
    }

    fn hidden(&self, source: f32, destination: f32, k: usize) -> f32 {
        let x = source + destination + self.bias[k];
        // Not `max`, which takes a NaN for 0.
        if x <= 0.0 { 0.0 } else { x }
    }

    fn output(&self, source: &[f32], destination: &[f32], output: usize) -> f32 {
        let last = self.last(output);
        let terms = (0..self.width).map(|k| last[k] * self.hidden(source[k], destination[k], k));
        terms.sum::<f32>() + self.last_bias[output]
    }

    fn backward(
        &self,
        z: &[f32],
        (pairs, slopes): (&[[u32; 2]], &[f32]),
        (ends, forward): (&Ends, &Forward),
        out: &mut [f32],
        sums: &mut [f32],
    ) {
        let (d, rows, outputs) = (self.width, z.len() / self.width, self.last_bias.len());
        let slopes_of = |pair: usize| &slopes[pair * outputs..(pair + 1) * outputs];
        let part = |end: usize, v: u32| &forward.parts[end][v as usize * d..(v as usize + 1) * d];
        // Gradient by the part of each end in the hidden layer, of every node.
        let by_part = [0, 1].map(|side| {
            let mut by_part = vec![0.0; z.len()];
            by_part.par_chunks_mut(d).enumerate().with_min_len(16).for_each(|(v, out)| {
                for end in ends.of_node(v).iter().filter(|end| end.side() == side) {
                    let ([a, b], slopes) = (pairs[end.pair()], slopes_of(end.pair()));
                    for (k, out) in out.iter_mut().enumerate() {
                        if self.hidden(part(0, a)[k], part(1, b)[k], k) > 0.0 {
                            *out += slopes.iter().enumerate().map(|(i, slope)| slope * self.last(i)[k]).sum::<f32>();
                        }
                    }
                }
            });
            by_part
        });
        out.par_chunks_mut(TASK * d).enumerate().for_each(|(task, out)| {
            let (first, count) = (task * TASK * d, out.len());
            out.fill(0.0);
            for (end, by_part) in by_part.iter().enumerate() {
                let by_part = &by_part[first..first + count];
                multiply((count / d, d, d), (by_part, [d, 1]), (&self.weight[end * d..], [2 * d, 1]), (&mut *out, d));
            }
        });
        let (weight, rest) = sums.split_at_mut(2 * d * d);
        let (bias, rest) = rest.split_at_mut(d);
        let (last, last_bias) = rest.split_at_mut(outputs * d);
        for (end, by_part) in by_part.iter().enumerate() {
            multiply((d, rows, d), (by_part, [1, d]), (z, [d, 1]), (&mut weight[end * d..], 2 * d));
        }
        by_part[0].chunks_exact(d).for_each(|row| bias.iter_mut().zip(row).for_each(|(bias, x)| *bias += x));
        for (pair, &[a, b]) in pairs.iter().enumerate() {
            let (source, destination) = (part(0, a), part(1, b));
            for ((last, bias), &slope) in last.chunks_exact_mut(d).zip(&mut *last_bias).zip(slopes_of(pair)) {
                last.iter_mut().enumerate().for_each(|(k, l)| *l += slope * self.hidden(source[k], destination[k], k));
                *bias += slope;
            }
        }
    }
}

/// Adds the product of `a` `[rows, depth]` and `b` `[depth, columns]`, with strides of rows and columns, to `c`, whose rows begin
/// `stride` elements apart.
fn multiply(
    (rows, depth, columns): (usize, usize, usize),
    (a, a_strides): (&[f32], [usize; 2]),
    (b, b_strides): (&[f32], [usize; 2]),
    (c, stride): (&mut [f32], usize),
) {
    if rows == 0 || depth == 0 || columns == 0 {
        return;
    }
    let last = |rows: usize, columns: usize, strides: [usize; 2]| (rows - 1) * strides[0] + (columns - 1) * strides[1];
    assert!(last(rows, depth, a_strides) < a.len(), "elements of the left matrix");
    assert!(last(depth, columns, b_strides) < b.len(), "elements of the right matrix");
    assert!(stride >= columns && last(rows, columns, [stride, 1]) < c.len(), "elements of the result");
    let [ar, ac] = a_strides.map(|s| s as isize);
    let [br, bc] = b_strides.map(|s| s as isize);
    // SAFETY: the largest element of each matrix was compared with its slice's length; rows of the result do not overlap.
    unsafe {
        let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        matrixmultiply::sgemm(rows, depth, columns, 1.0, a, ar, ac, b, br, bc, 1.0, c, stride as isize, 1);
    }
}

/// Lanes that sums are kept in, for vector instructions.
const LANES: usize = 16;

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_in_lanes(a.len(), |k| a[k] * b[k])
}

#[inline(always)]
fn dot3(a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    sum_in_lanes(a.len(), |k| a[k] * b[k] * c[k])
}

#[inline(always)]
fn sum_in_lanes(len: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let whole = len / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(first + lane);
        }
    }
    lanes.iter().sum::<f32>() + (whole..len).map(term).sum::<f32>()
}

impl fmt::Display for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, name) = Decoder::ALL.iter().find(|(decoder, _)| decoder == self).expect("all decoders are listed");
        f.pad(name)
    }
}

impl FromStr for Decoder {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let found = Decoder::ALL.iter().find(|(_, name)| *name == s).map(|(decoder, _)| *decoder);
        found.ok_or_else(|| unknown(s, "decoder", Decoder::ALL.iter().map(|(_, name)| name.to_string())))
    }
}
