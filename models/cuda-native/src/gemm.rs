//! GEMMs of the operator: by cuBLAS, or by a kernel of ours in f32 on tensor cores.

use morphgl_cuda::{Buffer, Floats, Shape, Stream, Transpose};
use morphgl_registry::Result;

use crate::kernels::Kernels;

/// What computes GEMMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gemm {
    /// cuBLAS.
    Cublas,
    /// [`multiply`], for a device of so many multiprocessors.
    Split { multiprocessors: usize },
}

/// Tile of a block, bytes of its shared memory, and threads, as in the kernel.
const ROWS: usize = 128;
const COLUMNS: usize = 64;
const THREADS: u32 = 128;
const SHARED: usize = 3 * (2560 + 1280) * size_of::<f32>();
/// The depth is divided where there are fewer blocks than this per multiprocessor, into parts of at least so much.
const BLOCKS_PER_MULTIPROCESSOR: usize = 4;
const LEAST_DEPTH: usize = 256;
/// The most parts: each is a result of its own in memory.
const MOST_PARTS: usize = 64;

/// `out = op(a) · op(b)`, plus `out` if `add`, as of [`Stream::multiply`], in f32 by three TF32 products of the factors' halves: to the error of
/// f32 sums come at most four units in the last place of each product. The same bits on every run of a device.
///
/// # Errors
///
/// Memory for partial results is full, or the driver fails.
///
/// # Panics
///
/// When both factors are transposed, or a matrix is longer than its memory.
pub(crate) fn multiply(
    stream: &Stream,
    kernels: &Kernels,
    multiprocessors: usize,
    [m, n, k]: [usize; 3],
    (a, transpose_a): (Floats<'_>, Transpose),
    (b, transpose_b): (Floats<'_>, Transpose),
    (out, add): (Floats<'_>, bool),
) -> Result<()> {
    assert!(m * k <= a.len() && k * n <= b.len() && m * n <= out.len(), "matrices of {m} x {k} x {n} elements");
    if m * n == 0 {
        return Ok(());
    }
    let kernel = match (transpose_a, transpose_b) {
        (Transpose::No, Transpose::No) => &kernels.train_gemm,
        (Transpose::Yes, Transpose::No) => &kernels.train_gemm_left_transposed,
        (Transpose::No, Transpose::Yes) => &kernels.train_gemm_right_transposed,
        (Transpose::Yes, Transpose::Yes) => unreachable!("no pass has both factors transposed"),
    };
    let tiles = [m.div_ceil(ROWS), n.div_ceil(COLUMNS)];
    let (num_parts, depth) = divide(multiprocessors, tiles[0] * tiles[1], k);
    let shape = Shape {
        grid: [tiles[0], tiles[1], num_parts].map(|blocks| u32::try_from(blocks).expect("a grid of fewer blocks")),
        block: [THREADS, 1, 1],
        shared: SHARED,
    };
    let parts = (num_parts > 1).then(|| Buffer::<f32>::new(stream, num_parts * m * n)).transpose()?;
    let (target, adds) = match &parts {
        Some(parts) => (parts.into(), false),
        None => (out, add),
    };
    let sizes = [m, n, k, depth].map(|size| size as u64);
    let arguments = &mut [
        a.into(),
        b.into(),
        target.into(),
        sizes[0].into(),
        sizes[1].into(),
        sizes[2].into(),
        sizes[3].into(),
        u32::from(adds).into(),
    ];
    // SAFETY: the matrices have these sizes, and there is an output, or a part of one, for each block.
    unsafe { stream.launch(kernel, shape, arguments) }?;
    let Some(parts) = &parts else { return Ok(()) };
    let arguments =
        &mut [parts.into(), (num_parts as u32).into(), ((m * n) as u64).into(), out.into(), u32::from(add).into()];
    // SAFETY: every part has as many elements as the output.
    unsafe { stream.launch(&kernels.train_gemm_parts, Shape::covering(m * n, 256), arguments) }
}

/// Number of parts of a depth, and the depth of each but the last: one part, unless there are too few tiles for the device.
fn divide(multiprocessors: usize, tiles: usize, k: usize) -> (usize, usize) {
    let wanted = (BLOCKS_PER_MULTIPROCESSOR * multiprocessors).div_ceil(tiles);
    let parts = wanted.min(k / LEAST_DEPTH).clamp(1, MOST_PARTS);
    // Whole steps of the kernel.
    let depth = k.div_ceil(parts).next_multiple_of(16).max(16);
    (k.div_ceil(depth).max(1), depth)
}

#[cfg(test)]
mod tests;
