//! Graph attention against an f64 reference, finite differences, and itself on other numbers of threads and SIMD levels.

use morphgl_model_core::{Dropout, DropoutSite};
use morphgl_platform::SimdLevel;
use morphgl_training_cpu_native::attention::{Attention, Edges, Grads, Inputs, Options, Transposed};
use proptest::prelude::*;

/// A block, the inputs of attention, and the output's gradient.
#[derive(Debug, Clone)]
struct Case {
    num_src: usize,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    options: Options<'static>,
    values: Vec<f32>,
    att_src: Vec<f32>,
    att_dst: Vec<f32>,
    terms: Vec<f32>,
    grad: Vec<f32>,
}

/// The output, and the gradients of the values, of both vectors and of the terms of scores.
type Results<T> = [Vec<T>; 5];

/// Numbers in [-1, 1), a function of `seed`.
fn random(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// More nodes than any case has rows, in no order.
static NODES: [u32; 4096] = {
    let (mut nodes, mut i) = ([0; 4096], 0);
    while i < 4096 {
        nodes[i] = (i as u32).wrapping_mul(0x9E37_79B1);
        i += 1;
    }
    nodes
};

fn options(heads: usize, width: usize, self_loops: bool, dropped: f32) -> Options<'static> {
    let dropout = Dropout::new(5, 1, 2, 0, DropoutSite::Attention, dropped).map(|dropout| (dropout, &NODES[..]));
    Options { heads, width, slope: 0.2, self_loops, dropout, level: SimdLevel::current() }
}

impl Case {
    fn new(num_src: usize, rows: &[Vec<u32>], options: Options<'static>, seed: u64) -> Self {
        let mut indptr = vec![0];
        rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u32));
        let cols = options.heads * options.width;
        // Vectors as models initialise them: scores are around 1 for any width.
        let vector = |seed| random(seed, cols).iter().map(|x| x * (3.0 / options.width as f32).sqrt()).collect();
        Self {
            num_src,
            indptr,
            indices: rows.concat(),
            options,
            values: random(seed, num_src * cols),
            att_src: vector(seed + 1),
            att_dst: vector(seed + 2),
            terms: Vec::new(),
            grad: random(seed + 3, rows.len() * cols),
        }
    }

    /// The case with a term of each entry's score.
    fn with_terms(self) -> Self {
        let entries = self.indices.len() + if self.options.self_loops { self.indptr.len() - 1 } else { 0 };
        Self { terms: random(78, entries * self.options.heads), ..self }
    }

    /// A block of random rows: some are empty, some have an edge from their own node, and one is long.
    fn random(num_dst: usize, num_src: usize, degree: usize, options: Options<'static>, seed: u64) -> Self {
        let numbers = random(seed + 9, num_dst * (degree + 1) + 4000);
        let node = |x: f32| ((f64::from(x) + 1.0) / 2.0 * num_src as f64) as u32;
        let rows: Vec<Vec<u32>> = numbers[4000..]
            .chunks_exact(degree + 1)
            .enumerate()
            .map(|(row, x)| {
                let len = if row == num_dst / 2 { 0 } else { node(x[0]) as usize % (degree + 1) };
                let mut sources: Vec<u32> = x[1..=len].iter().map(|&x| node(x)).collect();
                if row % 7 == 3 {
                    sources.push(row as u32);
                }
                if row == 1 {
                    sources.extend(numbers[..4000].iter().map(|&x| node(x)));
                }
                sources
            })
            .collect();
        Self::new(num_src, &rows, options, seed)
    }

    fn transposed(&self) -> [Vec<u32>; 3] {
        let mut edges: Vec<(u32, u32, u32)> = Vec::new();
        for row in 0..self.indptr.len() - 1 {
            for edge in self.indptr[row]..self.indptr[row + 1] {
                edges.push((self.indices[edge as usize], row as u32, edge));
            }
        }
        edges.sort_unstable();
        let starts = (0..=self.num_src as u32).map(|src| edges.partition_point(|e| e.0 < src) as u32);
        [starts.collect(), edges.iter().map(|e| e.1).collect(), edges.iter().map(|e| e.2).collect()]
    }

    fn run(&self) -> Results<f32> {
        let edges = Edges { indptr: &self.indptr, indices: &self.indices, num_src: self.num_src };
        let attention = Attention::new(edges, self.options);
        let inputs =
            Inputs { values: &self.values, att_src: &self.att_src, att_dst: &self.att_dst, terms: &self.terms };
        // The earlier content of the buffers must not matter.
        let mut kept = vec![f32::NAN; attention.kept_len()];
        let mut scratch = vec![f32::NAN; attention.scratch_len()];
        let all = [&self.grad, &self.values, &self.att_src, &self.att_dst, &self.terms];
        let mut results = all.map(|x| vec![f32::NAN; x.len()]);
        let [out, values, att_src, att_dst, terms] = &mut results;
        attention.forward(inputs, &mut kept, out);
        let [indptr, dst, edge] = self.transposed();
        let transposed = Transposed { indptr: &indptr, dst: &dst, edge: &edge };
        let grads = Grads { values, att_src, att_dst };
        attention.backward((inputs, transposed), &kept, &self.grad, &mut scratch, grads);
        let heads = self.options.heads;
        let of_entries = attention.term_grads(&scratch, 0..terms.len() / heads);
        terms.chunks_exact_mut(heads).zip(of_entries).for_each(|(to, from)| to.copy_from_slice(from));
        results
    }

    /// The formulas in f64, head by head and edge by edge, with the whole Jacobian of the softmax.
    fn reference(&self) -> Results<f64> {
        let Options { heads, width, self_loops, dropout, .. } = self.options;
        let (cols, slope) = (heads * width, f64::from(self.options.slope));
        let wide = |x: &[f32]| x.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
        let (z, grad) = (wide(&self.values), wide(&self.grad));
        let (a, b) = (wide(&self.att_src), wide(&self.att_dst));
        let all = [&self.grad, &self.values, &self.att_src, &self.att_dst, &self.terms];
        let mut results = all.map(|x| vec![0.0; x.len()]);
        for row in 0..self.indptr.len() - 1 {
            let (first, end) = (self.indptr[row] as usize, self.indptr[row + 1] as usize);
            let first_entry = first + if self_loops { row } else { 0 };
            // A source, and the place among the row's entries.
            let mut entries: Vec<(usize, usize)> =
                (first..end).map(|e| (self.indices[e] as usize, e - first)).collect();
            if self_loops {
                entries.retain(|e| e.0 != row);
                entries.push((row, end - first));
            }
            for h in 0..heads {
                let head = h * width..(h + 1) * width;
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let of = |node: usize| &z[node * cols..][head.clone()];
                let term = |position: usize| (first_entry + position) * heads + h;
                let raw = entries.iter().map(|e| {
                    let of_edge = self.terms.get(term(e.1)).map_or(0.0, |&term| f64::from(term));
                    dot(of(e.0), &a[head.clone()]) + dot(of(row), &b[head.clone()]) + of_edge
                });
                let raw: Vec<f64> = raw.collect();
                let slopes: Vec<f64> = raw.iter().map(|&x| if x > 0.0 { 1.0 } else { slope }).collect();
                let powers: Vec<f64> = raw.iter().zip(&slopes).map(|(x, slope)| (x * slope).exp()).collect();
                let total: f64 = powers.iter().sum();
                let alpha: Vec<f64> = powers.iter().map(|p| p / total).collect();
                let factor = |position: usize| match dropout {
                    Some((d, nodes)) if !d.keeps(nodes[row], (position * heads + h) as u64) => 0.0,
                    Some((d, _)) => f64::from(d.scale()),
                    None => 1.0,
                };
                let g = &grad[row * cols..][head.clone()];
                let of_alpha: Vec<f64> = entries.iter().map(|e| factor(e.1) * dot(g, of(e.0))).collect();
                for (i, &(src, position)) in entries.iter().enumerate() {
                    let jacobian = |j: usize| alpha[j] * (f64::from(u8::from(i == j)) - alpha[i]);
                    let score = slopes[i] * (0..entries.len()).map(|j| jacobian(j) * of_alpha[j]).sum::<f64>();
                    if let Some(of_term) = results[4].get_mut(term(position)) {
                        *of_term += score;
                    }
                    let message = alpha[i] * factor(position);
                    for (w, c) in head.clone().enumerate() {
                        results[0][row * cols + c] += message * of(src)[w];
                        results[1][src * cols + c] += message * g[w] + score * a[c];
                        results[1][row * cols + c] += score * b[c];
                        results[2][c] += score * of(src)[w];
                        results[3][c] += score * of(row)[w];
                    }
                }
            }
        }
        results
    }

    /// Compares with the reference; errors are relative to the maximum of a row (or of a vector), or to 1.
    #[track_caller]
    fn check(&self) {
        let cols = self.options.heads * self.options.width;
        let names = ["output", "gradient of values", "gradient of att_src", "gradient of att_dst", "gradient of terms"];
        for ((actual, expected), name) in self.run().iter().zip(&self.reference()).zip(names) {
            for (row, (actual, expected)) in actual.chunks(cols).zip(expected.chunks(cols)).enumerate() {
                let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                for (&x, &y) in actual.iter().zip(expected) {
                    let error = (f64::from(x) - y).abs() / scale;
                    assert!(error < 1e-5, "{name}, row {row}: {x}, expected {y}; {:?}", self.options);
                }
            }
        }
    }
}

/// Seven source nodes, four rows: one empty, one with an edge twice, one with an edge to itself.
fn small(options: Options<'static>) -> Case {
    Case::new(7, &[vec![4, 0, 5], vec![], vec![6, 6, 2], vec![3, 4, 1]], options, 18)
}

#[test]
fn every_shape_and_level_equals_the_reference() {
    for level in SimdLevel::available().rev() {
        let shapes = [(1, 64), (1, 40), (4, 16), (4, 64), (8, 8), (8, 32), (3, 10), (5, 47), (2, 33), (7, 1), (1, 200)];
        for (heads, width) in shapes {
            for (self_loops, dropped) in [(false, 0.0), (true, 0.0), (false, 0.4), (true, 0.4)] {
                let options = Options { level, ..options(heads, width, self_loops, dropped) };
                small(options).check();
                small(options).with_terms().check();
                // The longest row has more dropout factors than a window.
                Case::random(90, 150, 12, options, 5).check();
                Case::random(90, 150, 12, options, 5).with_terms().check();
            }
        }
    }
}

#[test]
fn gradients_equal_finite_differences() {
    const STEP: f32 = 4e-3;
    for (self_loops, dropped) in [(false, 0.0), (true, 0.0), (true, 0.4)] {
        let mut case = small(options(2, 3, self_loops, dropped)).with_terms();
        let [_, values, att_src, att_dst, terms] = case.run();
        let value = |case: &Case| -> f64 {
            let out = &case.run()[0];
            out.iter().zip(&case.grad).map(|(&o, &g)| f64::from(o) * f64::from(g)).sum()
        };
        let pick: [fn(&mut Case) -> &mut Vec<f32>; 4] =
            [|c| &mut c.values, |c| &mut c.att_src, |c| &mut c.att_dst, |c| &mut c.terms];
        for (pick, grads) in pick.iter().zip([values, att_src, att_dst, terms]) {
            for (e, &grad) in grads.iter().enumerate() {
                let x = pick(&mut case)[e];
                pick(&mut case)[e] = x + STEP;
                let (up, above) = (value(&case), x + STEP);
                pick(&mut case)[e] = x - STEP;
                let (down, below) = (value(&case), x - STEP);
                pick(&mut case)[e] = x;
                let difference = (up - down) / f64::from(above - below);
                let error = (difference - f64::from(grad)).abs() / difference.abs().max(1.0);
                assert!(error < 3e-3, "element {e}: {grad}, finite difference {difference}");
            }
        }
    }
}

/// A block of many parts.
#[test]
fn the_bits_are_the_same_on_any_number_of_threads() {
    for (heads, width) in [(1, 64), (4, 16), (3, 5)] {
        for level in SimdLevel::available().rev() {
            let options = Options { level, ..options(heads, width, true, 0.3) };
            let case = Case::random(4000, 9000, 20, options, 3);
            let on = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool starts");
                pool.install(|| case.run().map(|r| r.iter().map(|x| x.to_bits()).collect::<Vec<_>>()))
            };
            let one = on(1);
            for threads in [2, 3, 7] {
                assert!(on(threads) == one, "other bits on {threads} threads; {:?}", case.options);
            }
        }
    }
}

/// Scores far apart: the softmax does not overflow, and tiny coefficients become 0.
#[test]
fn large_scores_do_not_overflow() {
    for level in SimdLevel::available().rev() {
        let mut case = small(Options { level, ..options(2, 8, true, 0.0) });
        case.values.iter_mut().for_each(|x| *x *= 1e4);
        let results = case.run();
        assert!(results.iter().flatten().all(|x| x.is_finite()), "{results:?}");
        case.values[0] = f32::NAN;
        let [out, values, ..] = case.run();
        assert!(out[..8].iter().all(|x| x.is_nan()), "NaN propagates to the output: {out:?}");
        assert!(values[0].is_nan(), "NaN propagates to the gradient: {values:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Coefficients sum to 1: attention over equal values returns that value, and the vectors' gradients are 0.
    #[test]
    fn equal_values_are_preserved(rows in prop::collection::vec(prop::collection::vec(0u32..12, 1..9), 1..12), heads in 1usize..6) {
        let mut case = Case::new(12, &rows, options(heads, 4, rows.len() % 2 == 0, 0.0), 7);
        let row = case.values[..heads * 4].to_vec();
        case.values.chunks_exact_mut(heads * 4).for_each(|x| x.copy_from_slice(&row));
        let [out, _, att_src, att_dst, _] = case.run();
        for out in out.chunks_exact(heads * 4) {
            prop_assert!(out.iter().zip(&row).all(|(a, b)| (a - b).abs() < 1e-6), "{:?}, not {:?}", out, row);
        }
        prop_assert!(att_src.iter().chain(&att_dst).all(|x| x.abs() < 1e-4));
    }

    #[test]
    fn any_small_block_equals_the_reference(
        rows in prop::collection::vec(prop::collection::vec(0u32..12, 0..9), 0..12),
        (heads, width) in (1usize..10, 1usize..40),
        self_loops: bool,
        with_terms: bool,
        dropped in 0.0f32..0.9,
    ) {
        let case = Case::new(12, &rows, options(heads, width, self_loops, dropped), 11);
        if with_terms { case.with_terms() } else { case }.check();
    }
}
