use bytemuck::cast_slice;
use morphgl_cuda::{Device, Pinned, Precision};
use proptest::prelude::*;

use super::*;
use crate::KEY;

fn transposed(num_src: usize, rows: &[Vec<u32>]) -> [Vec<u32>; 3] {
    let results = [false, true].map(|known| transposed_by(BLOCKS, known, num_src, rows));
    assert!(results[0] == results[1], "rows of edges computed by the sort");
    results[0].clone()
}

fn transposed_by(blocks: usize, known: bool, num_src: usize, rows: &[Vec<u32>]) -> [Vec<u32>; 3] {
    let device = Device::open(&"cuda:0".parse().expect("a place"), &KEY).expect("it is emulated");
    let mut gpu = Gpu::new(&device, Some(Precision::F32)).expect("a stream");
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
        ends: None,
        indices: up(&indices).into(),
        weights: None,
        importance: false,
    };
    let row_of = known.then(|| rows_of_edges(&mut gpu, block).expect("a launch"));
    let result = transpose(&mut gpu, block, row_of.map(Into::into), blocks).expect("launches");
    [result.indptr, result.rows, result.edges].map(|region| {
        let mut host = Pinned::new(&device, region.len()).expect("memory");
        gpu.download(region, &mut host).expect("a copy");
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
