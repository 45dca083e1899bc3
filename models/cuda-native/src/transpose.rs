//! Transposition of a block (edges sorted by source), for backward aggregation.

use morphgl_cuda::{Argument, Kernel, Shape};
use morphgl_registry::Result;

use crate::arena::Part;
use crate::gpu::{Gpu, Words, each, number};

/// A block in device memory: CSC from source to destination nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) num_dst: usize,
    pub(crate) num_src: usize,
    pub(crate) num_edges: usize,
    pub(crate) indptr: Words<'a>,
    pub(crate) indices: Words<'a>,
    pub(crate) weights: Option<Words<'a>>,
}

/// The transposed block: offsets by source, and for each edge (in edge order within a source) its row and edge id.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transposed {
    pub(crate) indptr: Part,
    pub(crate) rows: Part,
    pub(crate) edges: Part,
}

/// Threads per block and edges per tile, as in kernels/transpose.cu.
const SORT: usize = 256;
const TILE: usize = 8 * SORT;
/// Maximum bits of a digit: one thread per digit value.
const DIGIT: usize = SORT.trailing_zeros() as usize;
/// Maximum number of thread blocks.
pub(crate) const BLOCKS: usize = 1024;

/// Radix sort of the edges by source, on at most `blocks` thread blocks; `row_of` is the row of each edge, if known.
///
/// # Complexity
///
/// O(edges) per eight bits of the number of sources, whatever their degrees.
pub(crate) fn transpose(gpu: &mut Gpu, block: Block<'_>, row_of: Option<Part>, blocks: usize) -> Result<Transposed> {
    let Block { num_dst, num_src, num_edges, .. } = block;
    let (indptr, rows, edges) = (gpu.take(num_src + 1)?, gpu.take(num_edges)?, gpu.take(num_edges)?);
    let mark = gpu.mark();
    let (keys, other) = ([gpu.take(num_edges)?, gpu.take(num_edges)?], gpu.take(num_edges)?);
    let row_of_edges = row_of.map_or_else(|| gpu.take(num_edges), Ok)?;
    // Digits of equal width, up to rounding.
    let bits = (usize::BITS - num_src.saturating_sub(1).leading_zeros()).max(1) as usize;
    let passes = bits.div_ceil(DIGIT);
    let digit = bits.div_ceil(passes);
    let share = num_edges.div_ceil(blocks).next_multiple_of(TILE).max(TILE);
    let blocks = num_edges.div_ceil(share).max(1);
    let (counts, totals) = (gpu.take(blocks << digit)?, gpu.take(1 << digit)?);
    let run = |kernel: &Kernel, shape: Shape, arguments: &mut [Argument<'_>]| {
        // SAFETY: each kernel's arguments, as kernels/transpose.cu has them: arrays of edges, whose indices are sources,
        // of which each has an offset; a count a value of the digit and block, a total a value.
        unsafe { gpu.launch(kernel, shape, arguments) }
    };
    let (kernels, all) = (&gpu.kernels, number(num_edges));
    let (shares, values) = (Shape::linear(blocks, SORT as u32), Shape::linear(1 << digit, SORT as u32));
    let (mut from, mut numbers) = (block.indices, None);
    for pass in 0..passes {
        let last = pass + 1 == passes;
        let sizes = || [all, number(share), number(pass * digit), number(digit)].map(Argument::from);
        let [edges_in_all, each_share, shift, bits] = sizes();
        let unknown = (pass == 0 && row_of.is_none()).then_some(row_of_edges);
        let arguments = &mut [
            gpu.at(from),
            gpu.at(counts),
            gpu.at(block.indptr),
            gpu.at_some(unknown),
            number(num_dst).into(),
            edges_in_all,
            each_share,
            shift,
            bits,
        ];
        run(&kernels.train_sort_count, shares, arguments)?;
        let arguments = &mut [gpu.at(counts), gpu.at(totals), number(blocks).into()];
        run(&kernels.train_sort_scan, values, arguments)?;
        // Buffers alternate such that the last pass writes to the result.
        let (to, out) = (keys[pass % 2], if (passes - pass) % 2 == 1 { edges } else { other });
        let [edges_in_all, each_share, shift, bits] = sizes();
        let arguments = &mut [
            gpu.at(from),
            gpu.at_some(numbers),
            gpu.at(counts),
            gpu.at(totals),
            gpu.at(to),
            gpu.at(out),
            gpu.at(row_of_edges),
            gpu.at_some(last.then_some(rows)),
            edges_in_all,
            each_share,
            shift,
            bits,
        ];
        run(&kernels.train_sort_move, shares, arguments)?;
        (from, numbers) = (to.into(), Some(out));
    }
    let arguments = &mut [gpu.at(from), gpu.at(indptr), number(num_src).into(), all.into()];
    run(&kernels.train_sort_starts, each(num_src + 1), arguments)?;
    gpu.release(mark);
    Ok(Transposed { indptr, rows, edges })
}

/// The destination row of each edge.
pub(crate) fn rows_of_edges(gpu: &mut Gpu, block: Block<'_>) -> Result<Part> {
    let Block { num_dst, num_edges, indptr, .. } = block;
    let out = gpu.take(num_edges)?;
    let arguments = &mut [gpu.at(indptr), gpu.at(out), number(num_dst).into(), number(num_edges).into()];
    // SAFETY: the kernel's arguments; an edge has an output.
    unsafe { gpu.launch(&gpu.kernels.train_rows_of_edges, each(num_edges), arguments) }?;
    Ok(out)
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use bytemuck::cast_slice;
    use morphgl_cuda::{Device, Pinned};
    use proptest::prelude::*;

    use super::*;
    use crate::KEY;

    fn transposed(num_src: usize, rows: &[Vec<u32>]) -> [Vec<u32>; 3] {
        let found = [false, true].map(|known| transposed_by(BLOCKS, known, num_src, rows));
        assert!(found[0] == found[1], "rows of edges found by the sort");
        found[0].clone()
    }

    fn transposed_by(blocks: usize, known: bool, num_src: usize, rows: &[Vec<u32>]) -> [Vec<u32>; 3] {
        let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated");
        let mut gpu = Gpu::new(&device, Default::default()).expect("a stream");
        let mut indptr = vec![0u32];
        rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u32));
        let indices = rows.concat();
        let mut up = |values: &[u32]| {
            let words: Vec<f32> = values.iter().map(|&v| f32::from_bits(v)).collect();
            gpu.upload(&Pinned::of(&device, &words).expect("memory")).expect("memory")
        };
        let block = Block {
            num_dst: rows.len(),
            num_src,
            num_edges: indices.len(),
            indptr: up(&indptr).into(),
            indices: up(&indices).into(),
            weights: None,
        };
        let row_of = known.then(|| rows_of_edges(&mut gpu, block).expect("a launch"));
        let found = transpose(&mut gpu, block, row_of, blocks).expect("launches");
        [found.indptr, found.rows, found.edges].map(|part| {
            let mut host = Pinned::new(&device, part.len()).expect("memory");
            gpu.download(part, &mut host).expect("a copy");
            gpu.stream.synchronize().expect("no failure");
            cast_slice(&host).to_vec()
        })
    }

    fn expected(num_src: usize, rows: &[Vec<u32>]) -> [Vec<u32>; 3] {
        let ends = rows.iter().enumerate().flat_map(|(row, sources)| sources.iter().map(move |&src| (src, row as u32)));
        let mut edges: Vec<(u32, u32, u32)> = ends.zip(0..).map(|((src, row), edge)| (src, edge, row)).collect();
        edges.sort_unstable();
        let indptr = (0..=num_src as u32).map(|src| edges.partition_point(|e| e.0 < src) as u32).collect();
        [indptr, edges.iter().map(|e| e.2).collect(), edges.iter().map(|e| e.1).collect()]
    }

    /// Numbers of sources of one, two and three digits; several tiles per block.
    #[test]
    fn many_sources_are_transposed() {
        for num_src in [1, 2, 256, 257, 5000, 70_000] {
            let rows: Vec<Vec<u32>> = (0..num_src.min(900))
                .map(|r| (0..r % 7).map(|i| if i == 3 { 0 } else { (r * 131 + i * 977) * 41 % num_src }).collect())
                .collect();
            assert_eq!(transposed(num_src as usize, &rows), expected(num_src as usize, &rows), "{num_src} sources");
        }
        let rows: Vec<Vec<u32>> = (0..40u32).map(|r| (0..2500).map(|i| (r * 7919 + i * 31) % 600).collect()).collect();
        assert!(transposed_by(4, false, 600, &rows) == expected(600, &rows), "100,000 edges in four shares");
    }

    /// A star whose hub is the source of an edge of every row: time quadratic in the degree would be 10^10 steps here.
    #[test]
    fn a_hub_takes_no_longer() {
        let rows: Vec<Vec<u32>> =
            (0..100_000u32).map(|r| if r % 3 == 0 { vec![7] } else { vec![7, 8 + r * 7 % 90_000] }).collect();
        assert!(transposed(100_000, &rows) == expected(100_000, &rows), "a hub of {} edges", rows.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_block_is_transposed(
            rows in prop::collection::vec(prop::collection::vec(0u32..90, 0..9), 0..80),
            more in 0usize..200,
        ) {
            prop_assert_eq!(transposed(90 + more, &rows), expected(90 + more, &rows));
        }
    }
}
