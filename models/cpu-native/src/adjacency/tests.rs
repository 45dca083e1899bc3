use super::*;

#[test]
fn the_order_follows_the_cost() {
    let block = |num_src, num_dst, num_edges: usize| Block {
        num_src,
        num_dst,
        indptr: vec![0; num_dst + 1],
        indices: vec![0; num_edges],
        ..Block::default()
    };
    let sampled = block(1_000, 400, 3_000);
    assert!(!transform_is_cheaper(&sampled, [128, 256], true) && !transform_is_cheaper(&sampled, [128, 16], true));
    // A whole graph has as many destinations as sources, and many edges.
    let whole = block(1_000, 1_000, 20_000);
    assert!(transform_is_cheaper(&whole, [256, 16], true) && transform_is_cheaper(&whole, [256, 16], false));
    assert!(!transform_is_cheaper(&whole, [16, 256], false));
}
