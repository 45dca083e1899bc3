//! Sampling by edge type: any graph, settings and number of threads against the reference; and the distribution of picks, by chi-square
//! tests over fixed seeds at p = 1e-3.

use std::collections::{HashMap, HashSet};

use morphgl_batching_cpu::CpuTyped;
use morphgl_conformance::batching::{Case, graphs, reference};
use morphgl_generate::TypedConfig;
use morphgl_graph_store::{Dataset, EdgeType, NodeType, Topology, Types};
use morphgl_registry::{
    BatchId, Batching, CustomSettings, Expansion, Fanouts, HostBatch, NeighborSettings, PairSettings, Pick, Place,
    Sampling,
};
use morphgl_sampler_core::{MAX_TYPED_EPOCHS, TYPED};
use proptest::prelude::*;
use serde_json::Value;

fn typed(hops: NeighborSettings, by_type: &str) -> Sampling {
    with_trees(hops, by_type, (false, "no"))
}

fn with_trees(hops: NeighborSettings, by_type: &str, (disjoint, temporal): (bool, &str)) -> Sampling {
    let settings = [("fanouts_by_type", by_type.into()), ("disjoint", disjoint.into()), ("temporal", temporal.into())];
    let settings = settings.map(|(name, value): (&str, Value)| (name.to_string(), value)).into_iter().collect();
    let layers = hops.fanouts.0.len();
    Sampling::Custom(CustomSettings { kind: TYPED.name.into(), layers, hops: Some(hops), settings })
}

fn sampler(case: &Case) -> CpuTyped {
    CpuTyped::new(&case.context(Place::Host, Value::Null)).expect("the case is valid")
}

fn fanout() -> impl Strategy<Value = i64> {
    prop_oneof![4 => 1i64..9, 1 => 60i64..70, 1 => Just(-1)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..Default::default() })]

    #[test]
    fn batches_are_the_reference_s(
        (num_nodes, degree, weights) in (4usize..200, 0usize..40, any::<bool>()),
        hops in prop::collection::vec((fanout(), prop_oneof![1 => Just(0), 3 => fanout()]), 1..4),
        (new, weighted, seed) in (any::<bool>(), any::<bool>(), any::<u64>()),
        (epoch, threads) in (0..MAX_TYPED_EPOCHS, 1usize..4),
        (disjoint, temporal, ascends, of_edges) in (any::<bool>(), 0usize..4, any::<bool>(), any::<bool>()),
        (pairs, negatives) in (any::<bool>(), 0u32..4),
    ) {
        let temporal = ["no", "no", "uniform", if weights && weighted { "uniform" } else { "last" }][temporal];
        let list = |fanouts: Vec<i64>| fanouts.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        let (all, own): (Vec<i64>, Vec<i64>) = hops.into_iter().unzip();
        let settings = NeighborSettings {
            fanouts: list(all).parse().expect("fanouts"),
            expansion: if new { Expansion::New } else { Expansion::All },
            pick: if weights && weighted { Pick::Weighted } else { Pick::Uniform },
        };
        let case = Case::new(graphs::timed(&graphs::typed(num_nodes, degree, weights), ascends, of_edges));
        let by_type = format!("big-a-big={}", list(own));
        let case = case.with(|s| (s.seed, s.sampling) = (seed, with_trees(settings, &by_type, (disjoint, temporal))));
        let drawn = PairSettings { negatives, ..PairSettings::default() };
        let case = if pairs { case.of_edges(drawn) } else { case };
        let sampler = sampler(&case);
        let mut worker = sampler.worker(threads).expect("a worker");
        let mut recycled = None;
        for index in 0..sampler.num_batches() as u32 {
            let id = BatchId { epoch, index };
            let (batch, _) = worker.prepare(id, recycled.take()).and_then(|h| h.wait()).expect("a mini-batch");
            prop_assert_eq!(batch.host().expect("in host memory"), &reference::sample(&case, id));
            recycled = Some(batch);
        }
    }
}

/// Node 0 with edges of two types: six from nodes 1 to 6, and five from nodes 7 to 11.
fn star() -> Dataset {
    let node = |name: &str, count| NodeType { name: name.into(), count };
    let edge = |source: &str| EdgeType { source: source.into(), name: "to".into(), target: "center".into() };
    let nodes = vec![node("center", 1), node("left", 6), node("right", 5)];
    let types = Types::new(nodes, vec![edge("left"), edge("right")]).expect("sound");
    let indptr: Vec<u64> = std::iter::once(0).chain([11; 12]).collect();
    let topology = Topology::new(indptr, (1..12).collect::<Vec<u32>>(), None).expect("a graph");
    Dataset::new("star", topology.with_types(types, vec![0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]).expect("sorted"))
}

fn first_batch(case: &Case, epoch: u32) -> HostBatch {
    let mut worker = sampler(case).worker(1).expect("a worker");
    let handle = worker.prepare(BatchId { epoch, index: 0 }, None).and_then(|handle| handle.wait());
    handle.and_then(|(batch, _)| batch.into_host()).expect("a mini-batch in host memory")
}

/// Two of six left and two of five right neighbours: each of the 15 x 10 pairs of subsets is equally likely, so that neighbours are
/// picked with probability fanout / degree within their type, independently of the other type.
#[test]
fn every_pair_of_subsets_is_equally_likely() {
    let case = Case::new(star()).of(&[0]);
    let two = "2".parse::<Fanouts>().expect("a fanout");
    let mut counts: HashMap<Vec<u32>, u32> = HashMap::new();
    let rounds = 12_000;
    for round in 0..rounds {
        let case = case.with(|s| (s.seed, s.sampling) = (round / 100, typed(two.clone().into(), "")));
        let batch = first_batch(&case, (round % 100) as u32);
        *counts.entry(batch.input_nodes[1..].to_vec()).or_default() += 1;
    }
    let mean = rounds as f64 / 150.0;
    assert!(counts.keys().all(|picked| picked[1] <= 6 && picked[2] > 6), "two of each type, in the order of the row");
    let seen: f64 = counts.values().map(|&count| (f64::from(count) - mean).powi(2) / mean).sum();
    let statistic = seen + (150 - counts.len()) as f64 * mean;
    // 149 degrees of freedom.
    assert!(statistic < 208.1, "chi-square {statistic:.1}");
}

/// Of the left neighbours 1, 3, 4 and 6 are no later than node 0, of the right ones 8 and 9: each of the six pairs of the former is
/// equally likely, with both of the latter; the last two are 4 and 6, since of equal times the later in the row comes first.
#[test]
fn neighbours_within_the_seeds_time_are_equally_likely() {
    let times = [50i64, 50, 51, 10, 50, 99, 50, 60, 7, 50, 51, 51];
    let star = star();
    let topology = star.topology.clone().with_times(Some(times.to_vec().into()), None).expect("a time per node");
    let case = Case::new(Dataset { topology, ..star }).of(&[0]);
    let two = "2".parse::<Fanouts>().expect("a fanout");
    let mut counts: HashMap<Vec<u32>, u32> = HashMap::new();
    let rounds = 3_000;
    for round in 0..rounds {
        let sampling = with_trees(two.clone().into(), "", (false, "uniform"));
        let case = case.with(|s| (s.seed, s.sampling) = (round / 100, sampling));
        *counts.entry(first_batch(&case, (round % 100) as u32).input_nodes).or_default() += 1;
    }
    let expected = [[1, 3], [1, 4], [1, 6], [3, 4], [3, 6], [4, 6]].map(|[a, b]| vec![0, a, b, 8, 9]);
    let mean = rounds as f64 / 6.0;
    let statistic: f64 = expected.iter().map(|nodes| (f64::from(counts[nodes]) - mean).powi(2) / mean).sum();
    assert_eq!(counts.len(), 6, "neighbours later than the seed, or others: {counts:?}");
    // Five degrees of freedom.
    assert!(statistic < 20.5, "chi-square {statistic:.1}");
    let last = case.with(|s| s.sampling = with_trees(two.into(), "", (false, "last")));
    assert_eq!(first_batch(&last, 0).input_nodes, [0, 4, 6, 8, 9]);
}

/// Ten million edges are sampled of nodes with random times, none of which is later than the seed of its tree.
#[test]
fn none_of_ten_million_edges_is_later_than_its_seed() {
    let dataset = graphs::timed(&graphs::typed(4_000, 40, false), false, true);
    let (nodes, edges) = (dataset.topology.node_times().cloned(), dataset.topology.edge_times().cloned());
    let (nodes, edges) = (nodes.expect("times of nodes"), edges.expect("times of edges"));
    // The latest of parallel edges.
    let mut time_of: HashMap<(u32, u32, u16), i64> = HashMap::new();
    for node in 0..4_000 {
        for (edge_type, row) in dataset.topology.sub_rows(node) {
            for edge in row {
                let source = dataset.topology.indices()[edge];
                let time = time_of.entry((source, node, edge_type as u16)).or_insert(i64::MAX);
                *time = (*time).min(edges[edge]);
            }
        }
    }
    let case = Case::new(dataset);
    let fanouts: Fanouts = "15,10".parse().expect("fanouts");
    let case = case.with(|s| (s.batch_size, s.sampling) = (512, with_trees(fanouts.into(), "", (false, "uniform"))));
    let sampler = sampler(&case);
    let mut worker = sampler.worker(1).expect("a worker");
    let (mut count, mut recycled) = (0, None);
    for id in (0..).flat_map(|epoch| (0..sampler.num_batches() as u32).map(move |index| BatchId { epoch, index })) {
        let (batch, _) = worker.prepare(id, recycled.take()).and_then(|handle| handle.wait()).expect("a mini-batch");
        let host = batch.host().expect("in host memory");
        let trees = host.trees.as_ref().expect("the tree of each input node");
        for block in &host.blocks {
            let types = block.edge_types.as_ref().expect("the type of each edge");
            for row in 0..block.num_dst {
                let bound = nodes[host.input_nodes[trees[row] as usize] as usize];
                for edge in block.indptr[row] as usize..block.indptr[row + 1] as usize {
                    let source = host.input_nodes[block.indices[edge] as usize];
                    assert!(nodes[source as usize] <= bound, "a node is later than the seed");
                    // Each edge of the farthest block is looked up; of the others their nodes alone.
                    if block.num_src == host.input_nodes.len() && edge % 16 == 0 {
                        assert!(time_of[&(source, host.input_nodes[row], types[edge])] <= bound, "an edge is later");
                    }
                }
            }
            count += block.num_edges();
        }
        if count >= 10_000_000 {
            break;
        }
        recycled = Some(batch);
    }
}

/// A node with a million in-neighbours of two types: as the reference picks.
#[test]
fn a_row_of_a_million_edges_is_picked_from_as_any_other() {
    let num_nodes = 1_000_001u64;
    let node = |name: &str, count| NodeType { name: name.into(), count };
    let edge = |source: &str| EdgeType { source: source.into(), name: "to".into(), target: "hub".into() };
    let types = Types::new(vec![node("hub", 1), node("a", 400_000), node("b", 600_000)], vec![edge("a"), edge("b")]);
    let indptr: Vec<u64> = std::iter::once(0).chain(std::iter::repeat_n(num_nodes - 1, num_nodes as usize)).collect();
    let topology = Topology::new(indptr, (1..num_nodes as u32).collect::<Vec<u32>>(), None).expect("a graph");
    let of_edges: Vec<u16> = (1..num_nodes).map(|v| u16::from(v > 400_000)).collect();
    let topology = topology.with_types(types.expect("sound"), of_edges).expect("sorted");
    let case = Case::new(graphs::timed(&Dataset::new("hub", topology), false, false)).of(&[0]);
    for trees in [(false, "no"), (true, "no"), (false, "uniform"), (false, "last")] {
        let sampling = with_trees("70,5".parse::<Fanouts>().expect("fanouts").into(), "a-to-hub=5000,2", trees);
        let case = case.with(|s| s.sampling = sampling);
        assert!(first_batch(&case, 3) == reference::sample(&case, BatchId { epoch: 3, index: 0 }), "{trees:?}");
    }
}

/// Links of one edge type of papers, authors and fields of study: neither an edge of a target, nor its reverse of type `rev_…`, is in
/// the target's mini-batch; and negatives are of the type of the destination.
#[test]
fn no_target_of_an_edge_type_is_in_its_own_mini_batch() {
    let config = TypedConfig { nodes: 6_000, dim: 1, classes: 4, ..TypedConfig::default() };
    let dataset = morphgl_generate::typed(&config).expect("valid");
    let types = Types::clone(dataset.topology.types().expect("types"));
    let number = |name: &str| types.edge_types().iter().position(|of| of.name == name).expect("an edge type");
    let (writes, reverse) = (number("writes"), number("rev_writes"));
    let mut pairs = Vec::new();
    for paper in types.range(types.ends(writes)[1]) {
        let row = dataset.topology.sub_rows(paper).filter(|(of, _)| *of == writes).flat_map(|(_, row)| row);
        pairs.extend(row.map(|edge| [dataset.topology.indices()[edge], paper]));
    }
    let targets: Vec<HashSet<[u32; 2]>> = pairs.chunks(256).map(|chunk| chunk.iter().copied().collect()).collect();
    let drawn = PairSettings { negatives: 2, ..PairSettings::default() };
    for exclude in [true, false] {
        let settings = typed("10,5".parse::<Fanouts>().expect("fanouts").into(), "");
        let case = Case::new(dataset.clone()).of_pairs(&pairs, PairSettings { exclude, ..drawn });
        let case = case.with(|s| (s.sampling, s.batch_size, s.shuffle) = (settings, 256, false));
        let sampler = sampler(&case);
        let mut worker = sampler.worker(2).expect("a worker");
        // Edges of the target's type, of its reverse, and of other types between nodes of a mini-batch.
        let mut found = [0; 2];
        let mut others = 0;
        for (index, targets) in (0..sampler.num_batches() as u32).zip(&targets) {
            let id = BatchId { epoch: 0, index };
            let (batch, _) = worker.prepare(id, None).and_then(|handle| handle.wait()).expect("a mini-batch");
            let batch = batch.host().expect("in host memory");
            for block in &batch.blocks {
                let edge_types = block.edge_types.as_ref().expect("the type of each edge");
                for row in 0..block.num_dst {
                    let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
                    for (&local, &edge_type) in block.row(row).iter().zip(&edge_types[edges]) {
                        let [from, to] = [local as usize, row].map(|local| batch.input_nodes[local]);
                        match usize::from(edge_type) {
                            of if of == writes => found[0] += usize::from(targets.contains(&[from, to])),
                            of if of == reverse => found[1] += usize::from(targets.contains(&[to, from])),
                            _ => others += 1,
                        }
                    }
                }
            }
            let pairs = batch.pairs.as_deref().expect("pairs");
            let destinations = pairs.ends.iter().map(|&[_, to]| batch.seeds()[to as usize]);
            assert!(destinations.into_iter().all(|node| types.node_type(node) == types.ends(writes)[1]));
        }
        assert!(others > 100_000, "{others} edges of other types");
        if exclude {
            assert_eq!(found, [0, 0], "targets and their reverses in their own mini-batches");
        } else {
            assert!(found.iter().all(|&count| count > 10_000), "where they are not excluded: {found:?}");
        }
    }
}

#[test]
fn impossible_times_are_refused() {
    let refused =
        |case: &Case| CpuTyped::new(&case.context(Place::Host, Value::Null)).expect_err("refused").to_string();
    let hops = || NeighborSettings::from("2".parse::<Fanouts>().expect("a fanout"));
    let timeless = Case::new(star()).with(|s| s.sampling = with_trees(hops(), "", (false, "uniform")));
    let error = refused(&timeless);
    assert!(error.contains("the nodes have no times"), "{error}");
    let weighted = graphs::timed(&graphs::random(20, 3, true), false, true);
    let by_weight = NeighborSettings { pick: Pick::Weighted, ..hops() };
    let both = Case::new(weighted).with(|s| s.sampling = with_trees(by_weight, "", (false, "last")));
    let error = refused(&both);
    assert!(error.contains("temporal=last picks by time"), "{error}");
}

#[test]
fn epochs_beyond_the_counter_are_refused() {
    let case = Case::new(star()).of(&[0]);
    let case = case.with(|s| s.sampling = typed("2".parse::<Fanouts>().expect("a fanout").into(), ""));
    let mut worker = sampler(&case).worker(1).expect("a worker");
    let id = BatchId { epoch: MAX_TYPED_EPOCHS, index: 0 };
    let error = worker.prepare(id, None).and_then(|handle| handle.wait()).expect_err("refused").to_string();
    assert!(error.contains("65536 epochs at most"), "{error}");
}
