use morphgl_registry::Block;

use super::*;

#[test]
fn the_order_is_equal_on_any_number_of_threads() {
    let (num_src, num_dst) = (9_000usize, 3_000usize);
    let mut block = Block { num_dst, num_src, indptr: vec![0], ..Block::default() };
    for row in 0..num_dst {
        block.indices.extend((0..row % 17).map(|i| ((row * 31 + i * i * 977) % num_src) as u32));
        block.indptr.push(block.indices.len() as u32);
    }
    let num_edges = block.num_edges();
    assert!(num_edges > SERIAL);
    let sort = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        let (mut indptr, mut counts) = (Vec::new(), Vec::new());
        let (mut rows, mut edges, mut values) = (vec![0; num_edges], vec![0; num_edges], vec![0.0; num_edges]);
        pool.install(|| {
            let sorted = Sorted { rows: &mut rows, edges: &mut edges, coefficients: &mut values };
            sort_by_source((&block.indptr, &block.indices, num_src), &mut indptr, &mut counts, sorted, &|row, edge| {
                (row + edge) as f32
            });
        });
        (indptr, rows, edges, values)
    };
    let mut expected: Vec<(u32, u32)> = block.indices.iter().zip(0..).map(|(&src, edge)| (src, edge)).collect();
    expected.sort();
    let one = sort(1);
    assert!(one.2.iter().eq(expected.iter().map(|(_, edge)| edge)));
    for (position, (src, edge)) in expected.iter().enumerate() {
        assert!((one.0[*src as usize]..one.0[*src as usize + 1]).contains(&(position as u32)));
        assert!(block.row(one.1[position] as usize).contains(src));
        assert_eq!(one.3[position], (one.1[position] + edge) as f32);
    }
    for threads in [2, 3, 5] {
        assert_eq!(sort(threads), one);
    }
}
