//! The directions that embeddings have most of their length in: trained ones often fill few of their dimensions.
//!
//! With an orthonormal basis B of such directions, `[kept, dim]`, and ⊥ for what a row has outside of them,
//!
//! ```text
//! ⟨q, c⟩ = ⟨Bq, Bc⟩ + ⟨q⊥, c⊥⟩,  |⟨q⊥, c⊥⟩| ≤ |q⊥|·|c⊥|
//! ```
//!
//! so that codes of Bq and Bc, which are shorter, bound a score as codes of q and c do, with one term more.

use std::ops::Range;

use morphgl_platform::splitmix64;

use super::quantise::{PART, largest};
use super::{MAX_ELEMENT, gamma};
use crate::all_pairs::Rows;

/// Rows of the sample by which directions are found.
const SAMPLED_ROWS: usize = 1024;
/// The largest fraction of the squares of a sample's unit vectors that is outside of the basis.
const OUTSIDE: f64 = 1e-3;
/// Multiplications by the sample's Gram matrix, each of which separates directions by the ratio of their squares.
const ITERATIONS: usize = 4;
/// Minimum number of scores, per square of the dimension, for which a basis is sought: finding it takes about a tenth of the time that as
/// many scores take with it, and less than it saves.
const SCORES: usize = 20_000;
/// Widest embeddings that get a basis, whose matrices are of 64-bit numbers.
const MAX_DIM: usize = 512;

/// An orthonormal basis of some directions, to the error of f32.
#[derive(Debug, Clone)]
pub(in crate::all_pairs) struct Basis {
    /// By [`PART`] directions and dimension, the directions' elements; missing directions are zero.
    directions: Vec<[f32; PART]>,
    dim: usize,
    kept: usize,
    error: f32,
}

impl Basis {
    /// A basis of at most three quarters as many directions as embeddings have dimensions, where these have little outside of it, and so
    /// many pairs are scored that it saves time.
    pub(super) fn of(rows: Rows<'_>, nodes: Range<usize>, num_pairs: usize) -> Option<Self> {
        let dim = rows.dim;
        if dim > MAX_DIM || num_pairs.saturating_mul(nodes.len()) < SCORES * dim * dim {
            return None;
        }
        let gram = gram(rows, nodes);
        let total: f64 = (0..dim).map(|k| gram[k * dim + k]).sum();
        let directions = principal(&gram, dim);
        let mut outside = total;
        let within = |direction: &[f64]| dot(direction, &product(direction, &gram, dim));
        let needed = directions.chunks_exact(dim).take_while(|direction| {
            let before = outside;
            outside -= within(direction);
            before > OUTSIDE * total
        });
        let kept = needed.count().next_multiple_of(4);
        (0 < kept && 4 * kept <= 3 * dim).then(|| Self::new(&directions, dim, kept))
    }

    /// A basis of the first `kept` of some orthonormal directions.
    pub(super) fn new(directions: &[f64], dim: usize, kept: usize) -> Self {
        let rounded: Vec<f64> = directions[..kept * dim].iter().map(|&x| f64::from(x as f32)).collect();
        // The norm of B·Bᵀ − I.
        let mut deviation = 0.0;
        for (i, a) in rounded.chunks_exact(dim).enumerate() {
            for (j, b) in rounded.chunks_exact(dim).enumerate() {
                deviation += (dot(a, b) - f64::from(u8::from(i == j))).powi(2);
            }
        }
        let deviation = deviation.sqrt();
        let mut by_dimension = vec![[0f32; PART]; kept.div_ceil(PART) * dim];
        for (k, direction) in rounded.chunks_exact(dim).enumerate() {
            for (d, &x) in direction.iter().enumerate() {
                by_dimension[k / PART * dim + d][k % PART] = x as f32;
            }
        }
        let error = deviation / (1.0 - deviation) + 2.0 * (kept as f64).sqrt() * f64::from(gamma(dim));
        Self { directions: by_dimension, dim, kept, error: 1.02 * error as f32 }
    }

    /// Number of directions.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// How far ⟨Bq, Bc⟩, of rows as they are projected, is from the product of what q and c have within the directions, for q and c of
    /// length 1.
    ///
    /// Let E = B·Bᵀ − I, |E| ≤ e. The product within is (Bq)ᵀ(B·Bᵀ)⁻¹(Bc), at most e/(1 − e) from (Bq)ᵀ(Bc). An element of Bq is a sum of
    /// `dim` products in f32, off by at most γ, and Bq by √kept·γ; so is Bc.
    pub(super) fn error(&self) -> f32 {
        self.error
    }

    /// Bq of a row, as far as `projected` has elements; those beyond [`kept`](Self::kept) are zeros.
    #[inline(always)]
    pub(super) fn project(&self, row: &[f32], projected: &mut [f32]) {
        let (pairs, rest) = row.as_chunks::<2>();
        for (projected, directions) in projected.chunks_mut(PART).zip(self.directions.chunks_exact(self.dim)) {
            let (elements, last) = directions.as_chunks::<2>();
            // Sums that do not wait for each other.
            let (mut even, mut odd) = ([0f32; PART], [0f32; PART]);
            for ([x, y], [of_x, of_y]) in pairs.iter().zip(elements) {
                for k in 0..PART {
                    even[k] = x.mul_add(of_x[k], even[k]);
                }
                for k in 0..PART {
                    odd[k] = y.mul_add(of_y[k], odd[k]);
                }
            }
            for (x, of_x) in rest.iter().zip(last) {
                for k in 0..PART {
                    even[k] = x.mul_add(of_x[k], even[k]);
                }
            }
            for (projected, k) in projected.iter_mut().zip(0..PART) {
                *projected = even[k] + odd[k];
            }
        }
    }

    /// What a row has within the directions, and the length of the rest, by the directions as they are.
    #[cfg(test)]
    pub(super) fn split(&self, row: &[f64]) -> (Vec<f64>, f64) {
        let direction =
            |k: usize| self.directions[k / PART * self.dim..][..self.dim].iter().map(move |d| f64::from(d[k % PART]));
        let mut directions: Vec<f64> = (0..self.kept).flat_map(direction).collect();
        let within = directions.chunks_exact(self.dim).map(|direction| dot(direction, row)).collect();
        orthonormalise(&mut directions, self.dim);
        let mut rest = row.to_vec();
        for direction in directions.chunks_exact(self.dim) {
            let along = dot(direction, &rest);
            rest.iter_mut().zip(direction).for_each(|(x, &y)| *x -= along * y);
        }
        (within, dot(&rest, &rest).sqrt())
    }
}

/// The Gram matrix of unit vectors along a sample of the rows, `[dim, dim]`.
pub(super) fn gram(rows: Rows<'_>, nodes: Range<usize>) -> Vec<f64> {
    let dim = rows.dim;
    let mut gram = vec![0.0; dim * dim];
    let mut unit = vec![0f64; dim];
    for node in nodes.clone().step_by(nodes.len().div_ceil(SAMPLED_ROWS).max(1)) {
        let row = rows.of(node as u32);
        let max = largest(row);
        if max.is_nan() || max > MAX_ELEMENT || max == 0.0 {
            continue;
        }
        unit.iter_mut().zip(row).for_each(|(unit, &x)| *unit = f64::from(x));
        let norm = dot(&unit, &unit).sqrt();
        unit.iter_mut().for_each(|x| *x /= norm);
        for (sums, &x) in gram.chunks_exact_mut(dim).zip(&unit) {
            sums.iter_mut().zip(&unit).for_each(|(sum, &y)| *sum += x * y);
        }
    }
    gram
}

/// Orthonormal directions, approximately the eigenvectors of a Gram matrix by descending eigenvalue: orthogonal iteration (Golub and
/// Van Loan, Matrix Computations, 4th ed., 2013, §8.2.4).
pub(super) fn principal(gram: &[f64], dim: usize) -> Vec<f64> {
    let mut directions = random_directions(dim);
    for _ in 0..ITERATIONS {
        directions = directions.chunks_exact(dim).flat_map(|direction| product(direction, gram, dim)).collect();
        orthonormalise(&mut directions, dim);
    }
    directions
}

/// `dim` orthonormal directions, always the same.
fn random_directions(dim: usize) -> Vec<f64> {
    let mut directions: Vec<f64> = (0..dim * dim).map(random).collect();
    orthonormalise(&mut directions, dim);
    directions
}

/// From −1/2 to 1/2.
fn random(i: usize) -> f64 {
    (splitmix64(i as u64) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
}

/// Gram-Schmidt orthogonalisation, twice per direction against errors of rounding. A direction in the span of those before it is replaced by
/// a random one.
fn orthonormalise(directions: &mut [f64], dim: usize) {
    let mut drawn = directions.len();
    for at in 0..directions.len() / dim {
        let (before, rest) = directions.split_at_mut(at * dim);
        let direction = &mut rest[..dim];
        loop {
            let length = dot(direction, direction).sqrt();
            for _ in 0..2 {
                for other in before.chunks_exact(dim) {
                    let along = dot(direction, other);
                    direction.iter_mut().zip(other).for_each(|(x, &y)| *x -= along * y);
                }
            }
            let left = dot(direction, direction).sqrt();
            if left > 1e-9 * length {
                direction.iter_mut().for_each(|x| *x /= left);
                break;
            }
            direction.iter_mut().enumerate().for_each(|(d, x)| *x = random(drawn + d));
            drawn += dim;
        }
    }
}

/// A vector times a symmetric matrix.
fn product(vector: &[f64], matrix: &[f64], dim: usize) -> Vec<f64> {
    let mut sums = vec![0.0; dim];
    for (&x, row) in vector.iter().zip(matrix.chunks_exact(dim)) {
        sums.iter_mut().zip(row).for_each(|(sum, &y)| *sum += x * y);
    }
    sums
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, a_rest) = a.as_chunks::<4>();
    let (b, b_rest) = b.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (a, b) in a.iter().zip(b) {
        for k in 0..4 {
            sums[k] += a[k] * b[k];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + rest
}
