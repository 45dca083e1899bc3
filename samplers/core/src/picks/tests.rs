use super::*;

const WEIGHTS: [f32; 7] = [1.0, 0.0, 2.0, 0.0, 0.0, 3.0, 0.0];

fn picks(pick: Pick, fanout: &str) -> Picks<'static> {
    let hops = NeighborSettings { pick, fanouts: fanout.parse().expect("fanouts"), ..Default::default() };
    Picks::new(&hops, 0, EdgeArrays { weights: Some(&WEIGHTS), ids: None }, BatchId { epoch: 1, index: 2 }, 0)
}

#[test]
fn a_block_begins_with_the_rows_that_are_expanded() {
    let rows = || [0..4usize, 4..4, 4..7].into_iter();
    let mut block = Block { indices: vec![9; 40], ..Block::default() };
    let check = |pick, fanout, block: &mut Block, expected: &[u32]| {
        let picks = picks(pick, fanout);
        picks.begin(block, 5, rows().map(|edges| picks.count(edges))).expect("few edges");
        let num_edges = expected.last().map_or(0, |&end| end as usize);
        let weights = block.weights.as_ref().map(Vec::len);
        assert_eq!((block.num_dst, &block.indptr[..]), (5, expected));
        assert_eq!((block.indices.len(), weights), (num_edges, Some(num_edges)));
    };
    check(Pick::Uniform, "3", &mut block, &[0, 0, 0, 3, 3, 6]);
    check(Pick::Uniform, "-1", &mut block, &[0, 0, 0, 4, 4, 7]);
    check(Pick::Weighted, "-1", &mut block, &[0, 0, 0, 2, 2, 3]);
    check(Pick::Weighted, "1", &mut block, &[0, 0, 0, 1, 1, 2]);
    let without = Picks { edges: EdgeArrays::default(), ..picks(Pick::Uniform, "3") };
    without.begin(&mut block, 3, rows().map(|edges| without.count(edges))).expect("few edges");
    assert_eq!((&block.indptr[..], block.weights), (&[0u32, 3, 3, 6][..], None));
}

#[test]
fn more_edges_than_32_bit_offsets_are_refused() {
    let picks = Picks { edges: EdgeArrays::default(), ..picks(Pick::Uniform, "-1") };
    let rows = [0..u32::MAX as usize, 0..1];
    let counts = rows.into_iter().map(|edges| picks.count(edges));
    let error = picks.begin(&mut Block::default(), 2, counts).expect_err("2^32 edges");
    let expected = "mini-batch 2 of epoch 1: hop 0 has 4294967296 edges, more than 2^32 - 1";
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn rows_are_picked_by_the_settings() {
    let mut scratch = PickScratch::default();
    let mut pick = |pick, fanout, edges: Range<usize>| {
        let picks = picks(pick, fanout);
        let mut out = vec![0; picks.count(edges.clone()) as usize];
        picks.pick(5, edges, &mut out, &mut scratch);
        out
    };
    assert_eq!(pick(Pick::Weighted, "-1", 1..7), [1, 4]);
    assert_eq!(pick(Pick::Uniform, "-1", 1..7), [0, 1, 2, 3, 4, 5]);
    let row = picks(Pick::Uniform, "2").row(5);
    let mut expected = [0; 2];
    pick_uniform(&row, 6, &mut expected, &mut PickScratch::default());
    assert_eq!(pick(Pick::Uniform, "2", 1..7), expected);
}
