//! Attention over shared rows equals attention over rows that every head has a copy of.

use half::{bf16, f16};
use morphgl_model_core::{Dropout, DropoutSite};
use morphgl_platform::SimdLevel;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::{Edges, Grads, Inputs, Options, Transposed};
use super::*;

struct Case {
    indptr: Vec<u32>,
    indices: Vec<u32>,
    num_src: usize,
    nodes: Vec<u32>,
    numbers: u64,
}

impl Case {
    /// Numbers in [-1, 1).
    fn random(&mut self, len: usize) -> Vec<f32> {
        let mut next = || {
            self.numbers = self.numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.numbers >> 40) as f32 / 8_388_608.0 - 1.0
        };
        (0..len).map(|_| next()).collect()
    }

    fn transposed(&self) -> [Vec<u32>; 3] {
        let mut edges: Vec<[u32; 3]> = Vec::new();
        for (row, ends) in self.indptr.windows(2).enumerate() {
            edges.extend((ends[0]..ends[1]).map(|edge| [self.indices[edge as usize], row as u32, edge]));
        }
        edges.sort_unstable();
        let starts = (0..=self.num_src as u32).map(|src| edges.partition_point(|e| e[0] < src) as u32).collect();
        [starts, edges.iter().map(|e| e[1]).collect(), edges.iter().map(|e| e[2]).collect()]
    }

    /// The output, and the gradients of both vectors and of the rows, of shared rows.
    fn shared(&self, options: Options<'_>, inputs: SharedRows<'_>, grad: &[f32]) -> [Vec<f32>; 3] {
        let (rows, heads, width) = (self.indptr.len() - 1, options.heads, options.width);
        let cols = heads * width;
        let a = Attention::new(Edges { indptr: &self.indptr, indices: &self.indices, num_src: self.num_src }, options);
        let mut kept = vec![f32::NAN; a.kept_len()];
        a.shared_halves(inputs, &mut kept);
        let (mut out, mut vectors) = (vec![f32::NAN; rows * cols], vec![0.0; 2 * cols]);
        let mut pairs = vec![f32::NAN; 2 * a.coefficients_len(0..rows)];
        let (mut dst_grads, mut grads) = (vec![f32::NAN; rows * heads], vec![f32::NAN; rows * cols]);
        for start in (0..rows).step_by(ROWS) {
            let block = start..(start + ROWS).min(rows);
            let entries = a.coefficients_len(0..block.start)..a.coefficients_len(0..block.end);
            let mut sums = vec![f32::NAN; block.len() * cols];
            let (coefficients, halves) = a.split_kept(&mut kept);
            a.shared_rows((inputs, halves), block.clone(), &mut coefficients[entries.clone()], &mut sums);
            let of_block = &mut grads[block.start * cols..block.end * cols];
            for (row, head) in block.clone().flat_map(|row| (0..heads).map(move |head| (row, head))) {
                let here = (head * block.len() + row - block.start) * width..;
                let there = row * cols + head * width..row * cols + (head + 1) * width;
                out[there.clone()].copy_from_slice(&sums[here.clone()][..width]);
                of_block[here][..width].copy_from_slice(&grad[there]);
            }
            let outputs = SharedGrads {
                sums: of_block,
                pairs: &mut pairs[2 * entries.start..2 * entries.end],
                dst: &mut dst_grads[block.start * heads..block.end * heads],
                vectors: &mut vectors,
            };
            a.shared_grads((inputs, &kept), block, outputs);
        }
        let [indptr, dst, edge] = self.transposed();
        let transposed = Transposed { indptr: &indptr, dst: &dst, edge: &edge };
        let mut of_rows = vec![f32::NAN; self.num_src * width];
        let sources = SourceGrads { rows: inputs, transposed, grad: &grads, pairs: &pairs, dst_grads: &dst_grads };
        a.shared_sources(sources, &mut vec![f32::NAN; self.num_src * heads], &mut of_rows);
        [out, vectors, of_rows]
    }

    /// The same by a copy of the rows for each head.
    fn copied(&self, options: Options<'_>, x: &[f32], vectors: &[f32], grad: &[f32]) -> [Vec<f32>; 3] {
        let (heads, width) = (options.heads, options.width);
        let cols = heads * width;
        let values: Vec<f32> = x.chunks_exact(width).flat_map(|row| row.repeat(heads)).collect();
        let a = Attention::new(Edges { indptr: &self.indptr, indices: &self.indices, num_src: self.num_src }, options);
        let inputs = Inputs { values: &values, att_src: &vectors[..cols], att_dst: &vectors[cols..], terms: &[] };
        let (mut kept, mut scratch) = (vec![0.0; a.kept_len()], vec![0.0; a.scratch_len()]);
        let (mut out, mut of_values, mut of_vectors) =
            (vec![0.0; grad.len()], vec![0.0; values.len()], vec![0.0; 2 * cols]);
        a.forward(inputs, &mut kept, &mut out);
        let [indptr, dst, edge] = self.transposed();
        let transposed = Transposed { indptr: &indptr, dst: &dst, edge: &edge };
        let (att_src, att_dst) = of_vectors.split_at_mut(cols);
        let grads = Grads { values: &mut of_values, att_src, att_dst };
        a.backward((inputs, transposed), &kept, grad, &mut scratch, grads);
        let of_row =
            |row: &[f32]| (0..width).map(|c| (0..heads).map(|h| row[h * width + c]).sum()).collect::<Vec<f32>>();
        [out, of_vectors, of_values.chunks_exact(cols).flat_map(of_row).collect()]
    }

    #[track_caller]
    fn check(&mut self, options: Options<'_>) {
        let (rows, heads, width) = (self.indptr.len() - 1, options.heads, options.width);
        let x = self.random(self.num_src * width);
        // bf16 has these numbers, too.
        let x: Vec<f32> = x.iter().map(|x| 2.0 + (64.0 * x).floor() / 32.0).collect();
        let size = (0.3 / width as f32).sqrt();
        let vectors: Vec<f32> = self.random(2 * heads * width).iter().map(|v| v * size).collect();
        let grad = self.random(rows * heads * width);
        let expected = self.copied(options, &x, &vectors, &grad);
        let largest = expected.each_ref().map(|e| e.iter().fold(1.0f32, |m, x| m.max(x.abs())));
        // Rows in the order of the source nodes, and scattered among others.
        let scattered: Vec<u32> = (0..self.num_src as u32).map(|v| 3 * (self.num_src as u32 - 1 - v)).collect();
        let mut spread = vec![f32::NAN; 3 * self.num_src * width];
        for (&row, x) in scattered.iter().zip(x.chunks_exact(width)) {
            spread[row as usize * width..][..width].copy_from_slice(x);
        }
        let of_edges: Vec<u32> = self.indices.iter().map(|&src| scattered[src as usize]).collect();
        let (of_halves, of_bf16) = (x.iter().map(|&x| f16::from_f32(x)), x.iter().map(|&x| bf16::from_f32(x)));
        let (of_halves, of_bf16): (Vec<_>, Vec<_>) = (of_halves.collect(), of_bf16.collect());
        let (att_src, att_dst) = vectors.split_at(heads * width);
        let of_nodes = None;
        for (view, of_nodes, of_edges) in [
            (FeatureView::F32(&x), of_nodes, &self.indices[..]),
            (FeatureView::F16(&of_halves), of_nodes, &self.indices),
            (FeatureView::Bf16(&of_bf16), of_nodes, &self.indices),
            (FeatureView::F32(&spread), Some(&scattered[..]), &of_edges),
        ] {
            let found = self.shared(options, SharedRows { view, of_nodes, of_edges, att_src, att_dst }, &grad);
            let names = ["output", "gradient of the vectors", "gradient of the rows"];
            for (((found, expected), largest), name) in found.iter().zip(&expected).zip(largest).zip(names) {
                for (at, (x, y)) in found.iter().zip(expected).enumerate() {
                    assert!((x - y).abs() <= 1e-5 * largest, "{name}, element {at}: {x}, expected {y}; {options:?}");
                }
            }
        }
    }
}

/// A block of random rows: some empty, one longer than a window of dropout's factors, some with an edge from their own
/// node.
fn case(num_dst: usize, num_src: usize, degree: usize, seed: u64) -> Case {
    let mut case = Case { indptr: vec![0], indices: vec![], num_src, nodes: vec![], numbers: seed };
    case.nodes = (0..num_src as u32).map(|v| v.wrapping_mul(0x9E37_79B1)).collect();
    for row in 0..num_dst {
        let numbers = case.random(1 + 2 * degree);
        let below = |x: f32, n: usize| ((x + 1.0) / 2.0 * n as f32) as usize;
        let count = if row == 1 { 40 * degree } else { below(numbers[0], degree + 1) };
        let sources = (0..count).map(|i| (below(numbers[1 + i % degree], num_src) + 7 * i) % num_src);
        case.indices.extend(sources.map(|src| if src % 9 == 0 { row as u32 } else { src as u32 }));
        case.indptr.push(case.indices.len() as u32);
    }
    case
}

fn check(mut case: Case, [heads, width]: [usize; 2], self_loops: bool, dropped: f32, level: SimdLevel) {
    let nodes = case.nodes.clone();
    let dropout = Dropout::new(5, 1, 2, 0, DropoutSite::Attention, dropped).map(|dropout| (dropout, &nodes[..]));
    case.check(Options { heads, width, slope: 0.2, self_loops, dropout, level });
}

#[test]
fn shared_rows_are_copies_at_every_shape_and_level() {
    for level in SimdLevel::available().rev() {
        for shape in [[1, 100], [2, 33], [3, 16], [4, 100], [4, 256], [5, 7], [8, 48], [8, 1], [1, 130], [6, 112]] {
            for (self_loops, dropped) in [(true, 0.0), (false, 0.0), (true, 0.4), (false, 0.4)] {
                check(case(150, 260, 9, 3), shape, self_loops, dropped, level);
            }
        }
    }
}

proptest! {
    // The gradient of a score next to 0 may have either slope, so the cases are the same in every run.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(3), ..ProptestConfig::with_cases(48) })]

    #[test]
    fn shared_rows_are_copies(
        (num_dst, more, degree) in (0usize..120, 1usize..50, 1usize..12),
        (heads, width) in (1usize..9, 1usize..131),
        self_loops: bool,
        dropped in 0.0f32..0.9,
        seed: u64,
    ) {
        check(case(num_dst, num_dst + more, degree, seed), [heads, width], self_loops, dropped, SimdLevel::current());
    }
}
