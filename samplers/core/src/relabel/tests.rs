use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::table::home;

/// The tables to be tested, at every SIMD level, for graphs below 5000 nodes or of any size.
fn tables(small: bool) -> impl Iterator<Item = Relabel> {
    let tables = move |level| {
        let direct = small.then(|| Relabel { level, ..Relabel::for_graph(5000, |v| v ^ 21) });
        [Some(Relabel { level, ..Relabel::default() }), direct].into_iter().flatten()
    };
    SimdLevel::available().flat_map(tables)
}

fn check(relabel: &mut Relabel, nodes: &[u32]) -> Result<(), TestCaseError> {
    let mut known = HashMap::new();
    let mut order = Vec::new();
    let expected: Vec<u32> = nodes
        .iter()
        .map(|&node| {
            *known.entry(node).or_insert_with(|| {
                order.push(node);
                order.len() as u32 - 1
            })
        })
        .collect();
    relabel.start(vec![1, 2, 3]);
    let mut actual = nodes.to_vec();
    let mut values = vec![[9, 9]];
    // In two calls, split anywhere.
    let (first, all) = (nodes.len() / 3, nodes.len());
    relabel.locals_of_first(first, &mut actual, &mut values);
    prop_assert_eq!(&actual[first..], &nodes[first..]);
    relabel.locals_of_first(all - first, &mut actual[first..], &mut values);
    prop_assert_eq!(actual, expected);
    let of_new = order.iter().filter(|_| relabel.has_values()).map(|v| [v ^ 21, (v + 1) ^ 21]);
    prop_assert_eq!(values, [[9, 9]].into_iter().chain(of_new).collect::<Vec<_>>());
    prop_assert_eq!(relabel.finish(), order);
    Ok(())
}

/// Seeds that may repeat, then other nodes.
fn check_seeds(relabel: &mut Relabel, seeds: &[u32], nodes: &[u32]) -> Result<(), TestCaseError> {
    let mut order = seeds.to_vec();
    let mut first: HashMap<u32, u32> = seeds.iter().enumerate().rev().map(|(i, &v)| (v, i as u32)).collect();
    let mut local = |&node: &u32| {
        *first.entry(node).or_insert_with(|| {
            order.push(node);
            order.len() as u32 - 1
        })
    };
    let expected: Vec<u32> = [nodes, seeds].concat().iter().map(&mut local).collect();
    relabel.start(vec![1, 2, 3]);
    let mut values = vec![[9, 9]];
    relabel.add_seeds_with_values(seeds, &mut values);
    prop_assert_eq!(relabel.nodes(), seeds);
    let mut actual = [nodes, seeds].concat();
    relabel.locals_of_first(actual.len(), &mut actual, &mut values);
    prop_assert_eq!(actual, expected);
    let of_nodes = order.iter().filter(|_| relabel.has_values()).map(|v| [v ^ 21, (v + 1) ^ 21]);
    prop_assert_eq!(values, [[9, 9]].into_iter().chain(of_nodes).collect::<Vec<_>>());
    prop_assert_eq!(relabel.finish(), order);
    Ok(())
}

/// More seeds than nodes: local ids need more bits than those of distinct nodes.
#[test]
fn there_may_be_more_seeds_than_nodes() {
    for mut relabel in tables(true).chain([Relabel::for_graph(3, |v| v ^ 21)]) {
        for seeds in [3usize, 1, 50_000, 7] {
            let seeds: Vec<u32> = (0..seeds).map(|i| i as u32 % 3).collect();
            check_seeds(&mut relabel, &seeds, &[2, 1, 0]).expect("as the map");
            check(&mut relabel, &[1, 1, 2]).expect("as the map");
        }
    }
}

proptest! {
    #[test]
    fn seeds_that_repeat_take_a_local_id_each(batches in prop::collection::vec(
        (1u32..5000, prop::collection::vec(any::<u32>(), 0..300), prop::collection::vec(any::<u32>(), 0..3000)), 1..5)
    ) {
        for mut relabel in tables(true) {
            for (range, seeds, nodes) in &batches {
                let within = |nodes: &[u32]| nodes.iter().map(|v| v % range).collect::<Vec<u32>>();
                check_seeds(&mut relabel, &within(seeds), &within(nodes))?;
                check(&mut relabel, &within(nodes))?;
            }
        }
    }

    #[test]
    fn equals_a_hash_map(batches in prop::collection::vec(
        (1u32..5000, prop::collection::vec(any::<u32>(), 0..2000)), 1..5)
    ) {
        for mut relabel in tables(true) {
            for (range, nodes) in &batches {
                let nodes: Vec<u32> = nodes.iter().map(|v| v % range).collect();
                check(&mut relabel, &nodes)?;
            }
        }
    }

    #[test]
    fn equals_a_hash_map_on_all_ids(nodes in prop::collection::vec(0..u32::MAX, 0..2000)) {
        for mut relabel in tables(false) {
            check(&mut relabel, &nodes)?;
        }
    }
}

/// Graphs that end anywhere in a line of the table have an entry for each node, and for no other.
#[test]
fn graphs_of_every_length_have_an_entry_for_each_node() {
    for (num_nodes, level) in (0..40u32).flat_map(|n| SimdLevel::available().map(move |level| (n, level))) {
        let mut relabel = Relabel { level, ..Relabel::for_graph(num_nodes as usize, |v| v * 3) };
        relabel.start(Vec::new());
        let (mut nodes, mut values) = ((0..num_nodes).rev().collect::<Vec<u32>>(), Vec::new());
        relabel.locals_of_first(nodes.len(), &mut nodes, &mut values);
        assert_eq!(nodes, (0..num_nodes).collect::<Vec<u32>>());
        assert_eq!(values, (0..num_nodes).rev().map(|v| [v * 3, v * 3 + 3]).collect::<Vec<_>>());
        for beyond in [num_nodes, num_nodes + 7, u32::MAX] {
            let mut nodes = vec![beyond; 20];
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| relabel.locals(&mut nodes)));
            assert!(outcome.is_err(), "node {beyond} of {num_nodes} has a local id: {nodes:?}, {level}");
        }
    }
}

#[test]
fn ids_with_the_same_home_are_distinguished() {
    // Multiples of the constant's inverse become consecutive by the multiplication: they have the same home bucket.
    let inverse = (0..5).fold(1u32, |x, _| x.wrapping_mul(2u32.wrapping_sub(x.wrapping_mul(0x9E37_79B1))));
    let nodes: Vec<u32> = (1..200u32).map(|i| i.wrapping_mul(inverse)).filter(|&v| v != u32::MAX).collect();
    assert!(nodes.iter().all(|&v| home(v, MIN_BUCKETS) == 0));
    for mut relabel in tables(false) {
        check(&mut relabel, &nodes).expect("the table equals the map");
    }
}

#[test]
fn stamps_overflow_and_restart() {
    for mut relabel in tables(true) {
        // Three bits of stamps: words of the first mini-batches stay in the table until their stamp is used again.
        check(&mut relabel, &(0..250).collect::<Vec<u32>>()).expect("the table equals the map");
        relabel.stamp = u32::MAX >> 29;
        let (Table::Direct { bits, .. } | Table::Hashed { bits, .. }) = &mut relabel.table;
        *bits = 29;
        for batch in 0..30u32 {
            let nodes: Vec<u32> = (0..100).map(|i| (i * 7 + batch * 13) % 250).collect();
            check(&mut relabel, &nodes).expect("the table equals the map");
        }
    }
}

#[test]
fn mini_batches_of_similar_sizes_reuse_the_table() {
    let place = |relabel: &Relabel| match &relabel.table {
        Table::Direct { words, .. } => (words.len(), words.as_ptr().cast::<u64>()),
        Table::Hashed { buckets, .. } => (buckets.len(), buckets.as_ptr().cast::<u64>()),
    };
    for mut relabel in [Relabel::default(), Relabel::for_graph(10_000, |_| 0)] {
        let mut buffer = Vec::new();
        let mut tables = Vec::new();
        for round in 0..40u32 {
            relabel.start(buffer);
            // Slightly different sizes.
            relabel.locals(&mut (round * 7..10_000).collect::<Vec<u32>>());
            tables.push(place(&relabel));
            buffer = relabel.finish();
        }
        assert!(tables[1..].iter().all(|table| *table == tables[1]), "the table moved: {tables:?}");
    }
}
