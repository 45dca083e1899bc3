use std::collections::HashSet;

use morphgl_graph_store::{EdgeType, NodeType, Types};
use morphgl_registry::{BatchId, NegativeDistribution, PairSettings, SamplerSettings, SeedSet};
use proptest::prelude::*;

use super::*;

fn graph(rows: &[Vec<u32>]) -> Topology {
    let ends = rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    });
    Topology::new(std::iter::once(0).chain(ends).collect::<Vec<u64>>(), rows.concat(), None).expect("a graph")
}

proptest! {
    #[test]
    fn a_row_without_the_excluded_edges_has_the_others_in_order(
        rows in prop::collection::vec(prop::collection::vec(0u32..12, 0..30), 12),
        pairs in prop::collection::vec([0u32..12, 0..12], 0..20),
        sorted: bool,
    ) {
        let mut rows = rows;
        if sorted {
            rows.iter_mut().for_each(|row| row.sort_unstable());
        }
        let graph = graph(&rows);
        prop_assert!(!sorted || HostRows::check_sorted(&graph));
        let excluded: HashSet<[u32; 2]> = pairs.iter().flat_map(|&[a, b]| [[a, b], [b, a]]).collect();
        // The second set takes the memory of the first.
        let mut found = Excluded::default();
        found.set(&[[0, 1], [5, 5], [2, 9]], None, &mut HostRows::new(&graph, sorted)).expect("rows in memory");
        found.set(&pairs, None, &mut HostRows::new(&graph, sorted)).expect("rows in memory");
        let mut losing = 0;
        for (node, row) in (0u32..).zip(&rows) {
            let left: Vec<usize> = (0..row.len()).filter(|&p| !excluded.contains(&[row[p], node])).collect();
            let found = found.get(node);
            prop_assert_eq!(found.is_some(), left.len() < row.len());
            losing += usize::from(found.is_some());
            if let Some(found) = found {
                prop_assert_eq!(found.start, graph.indptr()[node as usize]);
                let positions: Vec<usize> = (0..found.degree).map(|p| found.position(p) as usize).collect();
                prop_assert_eq!(positions, left);
            }
        }
        prop_assert_eq!(found.num_rows(), losing);
    }
}

#[test]
fn impossible_pairs_are_refused() {
    let refused = |graph: &Topology, settings| {
        let seeds = SeedSet::of_pairs("pairs", &[[0, 1], [1, 0]], 2, settings).expect("pairs");
        let pairs = seeds.pairs().expect("they are pairs");
        Pairs::new(graph, pairs, 0).expect_err("cannot be drawn").to_string()
    };
    let empty = graph(&[vec![], vec![]]);
    let degree = PairSettings { distribution: NegativeDistribution::Degree, ..PairSettings::default() };
    assert_eq!(
        refused(&empty, degree),
        "negatives: the graph has no edges, so all nodes have in-degree 0; draw negatives uniformly"
    );
    let types = |counts: [u64; 2], edges: &[u16]| {
        let nodes = ["user", "item"].iter().zip(counts).map(|(name, count)| NodeType { name: name.to_string(), count });
        let end = |at: usize| ["user", "item"][at].to_string();
        let ends = [(0, 1), (1, 1)].map(|(source, target)| EdgeType {
            source: end(source),
            name: "to".into(),
            target: end(target),
        });
        let types = Types::new(nodes.collect(), ends.into()).expect("two types");
        graph(&[vec![], vec![0]]).with_types(types, edges.to_vec()).expect("an edge to an item")
    };
    let typed = types([1, 1], &[0]);
    assert_eq!(refused(&typed, degree), "negatives: no node of type \"user\" has an in-edge; draw negatives uniformly");
    let within = PairSettings { distribution: NegativeDistribution::InBatch, ..degree };
    assert_eq!(
        refused(&typed, within),
        "negatives: the pairs' destinations are of several node types; draw negatives uniformly"
    );
    let many = PairSettings { negatives: 65_537, ..PairSettings::default() };
    assert_eq!(refused(&empty, many), "negatives: 65537 per positive are more than 65536; give fewer");
}

#[test]
fn a_share_without_a_positive_is_refused() {
    let graph = graph(&[vec![1], vec![0]]);
    let seeds = SeedSet::of_pairs("pairs", &[[0, 1]; 5], 2, PairSettings::default()).expect("pairs");
    let epochs = Epochs::new(&seeds, &SamplerSettings { batch_size: 3, ..SamplerSettings::default() });
    let pairs = Pairs::new(&graph, seeds.pairs().expect("pairs"), 0).expect("pairs of the graph");
    let draw = |index, share| {
        let mut batch = HostBatch { id: BatchId { epoch: 0, index }, ..HostBatch::default() };
        let mut rows = HostRows::new(&graph, true);
        let drawn = PairBatch::default().draw(&pairs, &epochs, share, &mut None, &mut rows, &mut batch);
        drawn.map(|()| batch.pairs.expect("set").num_positives)
    };
    assert_eq!(draw(1, 0..9).expect("a share"), 2);
    assert_eq!(draw(0, 1..2).expect("a share"), 1);
    let error = draw(1, 2..3).expect_err("two pairs").to_string();
    assert!(error.starts_with("mini-batch 1 of epoch 0: it has 2 seeds, none at 2..3"), "{error}");
    assert!(draw(2, 0..1).is_err());
}
