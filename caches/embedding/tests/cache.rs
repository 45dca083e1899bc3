//! Waits, ends, and what is refused.

use std::thread;

use morphgl_embedding_cache::{EmbeddingCache, Error};
use morphgl_row_cache::NodeMap;

#[test]
fn reads_wait_for_rows_and_end_when_the_cache_is_closed() {
    let cache = EmbeddingCache::new(vec![1], 3);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let mut rows = Vec::new();
            cache.read(0, 2, &[1, 0], &mut [&mut rows]).map(|version| (version, rows))
        });
        cache.choose(0, NodeMap::prefix(2)).expect("the first");
        cache.publish(0, 1, vec![vec![5.0, 6.0]]).expect("its rows");
        assert_eq!(reading.join().expect("no panic"), Ok((1, vec![6.0, 5.0])));
        let waiting = scope.spawn(|| cache.nodes(1).map(|nodes| nodes.len()));
        cache.close("the other side failed");
        assert_eq!(waiting.join().expect("no panic"), Err(Error::Closed("the other side failed".to_string())));
    });
    cache.close("later");
    // What is there can still be read.
    assert_eq!(cache.nodes(0).map(|nodes| nodes.len()), Ok(2));
}

#[test]
fn super_batches_come_in_order_and_old_ones_go() {
    let cache = EmbeddingCache::new(vec![2], 100);
    let order = |result: Result<(), Error>| match result {
        Err(Error::OutOfOrder { super_batch, what }) => (super_batch, what),
        other => panic!("{other:?}"),
    };
    assert_eq!(order(cache.publish(0, 0, vec![Vec::new()]).map(|_| ())).1, "its nodes were not chosen");
    for number in 0..3 {
        cache.choose(number, NodeMap::prefix(3)).expect("in order");
    }
    assert_eq!(
        order(cache.choose(5, NodeMap::prefix(3))),
        (5, "its nodes come after those of super-batch 2".to_string())
    );
    assert!(
        order(cache.publish(0, 0, vec![vec![0.0; 5]]).map(|_| ()))
            .1
            .contains("3 nodes, rows of [2] elements, and matrices of [5]")
    );
    for number in 0..3 {
        let freed = cache.publish(number, number, vec![vec![number as f32; 6]]).expect("in order");
        let kept = |matrix: &Vec<f32>| matrix.is_empty() && matrix.capacity() > 0;
        assert_eq!(freed.iter().any(kept), number == 2, "the memory of super-batch 0 is free then");
        assert_eq!(cache.num_bytes(), 24 * (number + 1).min(2), "rows of two super-batches");
    }
    assert_eq!(order(cache.publish(2, 0, vec![vec![0.0; 6]]).map(|_| ())).1, "it has rows already");
    assert_eq!(order(cache.nodes(0).map(|_| ())), (0, "it is over, super-batch 1 is the oldest".to_string()));
    let mut rows = Vec::new();
    assert_eq!(cache.read(2, 9, &[7], &mut [&mut rows]), Err(Error::Missing { node: 7, super_batch: 2 }));
    assert_eq!(cache.check(1, 2), Err(Error::Stale { step: 1, version: 2, bound: 100 }));
}

#[test]
fn matrices_have_a_row_per_node_or_none() {
    let cache = EmbeddingCache::new(vec![2, 3, 1], 4);
    cache.choose(0, NodeMap::new(9, |node| node % 4 == 0)).expect("in order");
    let matrices = vec![vec![0.0, 0.1, 4.0, 4.1, 8.0, 8.1], Vec::new(), vec![0.5, 4.5, 8.5]];
    cache.publish(0, 2, matrices).expect("rows of three nodes");
    let [mut rows, mut none, mut last] = [Vec::new(), vec![1.0], Vec::new()];
    assert_eq!(cache.read(0, 3, &[8, 0, 8], &mut [&mut rows, &mut none, &mut last]), Ok(2));
    assert_eq!((rows, none, last), (vec![8.0, 8.1, 0.0, 0.1, 8.0, 8.1], vec![], vec![8.5, 0.5, 8.5]));
}
