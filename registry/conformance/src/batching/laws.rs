//! Properties of batching, one function each.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::thread;

use morphgl_registry::{
    BatchId, Block, GivenNodes, HostBatch, MiniBatch, NeighborSettings, SamplerSettings, Sampling, TargetValues,
    WalkSettings,
};

use super::{Case, GivenSet, Subject, graphs, ids, on_host, prepare, reference, worker};
use crate::one_line;

/// Shapes, prefixes, edges, weights, degrees, labels, targets and features are those of the graph.
pub(super) fn batches_fit_the_graph(subject: &Subject<'_>, case: &Case) {
    for batch in subject.epoch(case, 2) {
        batch_fits_the_graph(subject, case, &batch);
        let labels = case.dataset.labels.as_ref();
        let labels: Vec<i32> = labels.map_or(Vec::new(), |l| batch.seeds().iter().map(|&v| l[v as usize]).collect());
        assert_eq!(batch.labels, labels, "labels of the seeds");
        let targets = case.dataset.targets.as_ref();
        let row = |&v: &u32| targets.map_or(Vec::new(), |t| t.row(v).to_vec());
        let values = batch.seeds().iter().flat_map(row).collect();
        assert_eq!(batch.targets, TargetValues { width: case.dataset.target_dim(), values }, "targets of the seeds");
        assert!(batch.pairs.is_none(), "pairs of nodes");
    }
}

/// All but the labels of a mini-batch is that of the graph.
pub(super) fn batch_fits_the_graph(subject: &Subject<'_>, case: &Case, batch: &HostBatch) {
    let nodes = &batch.input_nodes;
    // Of disjoint trees, a node occurs once per tree.
    let tree = |local: usize| batch.trees.as_ref().map_or(0, |trees| trees[local]);
    let distinct = |count: usize| (0..count).map(|local| (tree(local), nodes[local])).collect::<HashSet<_>>().len();
    let num_repeats = batch.num_seeds - distinct(batch.num_seeds);
    let count = distinct(nodes.len()) + num_repeats;
    assert_eq!(count, nodes.len(), "each input node occurs once, but for seeds that repeat");
    let first: HashMap<(u32, u32), usize> =
        (0..nodes.len()).rev().map(|local| ((tree(local), nodes[local]), local)).collect();
    assert_eq!(batch.blocks.len(), case.settings.sampling.num_layers(), "a block per layer");
    let mut num_src = nodes.len();
    for block in &batch.blocks {
        assert_eq!(block.num_src, num_src, "the source nodes of a block are the destination nodes of the one before");
        block_is_valid(block);
        let is_first = |&local: &u32| first[&(tree(local as usize), nodes[local as usize])] == local as usize;
        assert!(block.indices.iter().all(is_first), "edges name the first occurrence of their source");
        let row = |row: usize| {
            let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            (block.row(row), block.weights.as_ref().map(|weights| &weights[edges]))
        };
        let repeats = (0..batch.num_seeds).map(|seed| (seed, first[&(tree(seed), nodes[seed])]));
        assert!(repeats.into_iter().all(|(a, b)| row(a) == row(b)), "occurrences of a seed have equal rows");
        match &case.settings.sampling {
            Sampling::Custom(_) if block.importance => {
                let weights = block.weights.as_ref().map(Vec::len);
                assert_eq!(weights, Some(block.num_edges()), "importance of every edge");
            }
            Sampling::Walk(walk) => rows_have_importance(block, walk),
            _ => edges_are_the_graphs(block, batch, case),
        }
        num_src = block.num_dst;
    }
    assert_eq!(num_src, batch.num_seeds, "the destination nodes of the last block are the seeds");
    let degrees: Vec<f32> = nodes.iter().map(|&v| reference::degree(&case.dataset, v)).collect();
    assert_eq!(batch.degrees, degrees, "in-degrees of the input nodes");
    let expected = if subject.gathers() { reference::features(case, nodes) } else { None };
    assert_eq!(batch.features, expected, "features of the input nodes");
}

/// Offsets and indices are those of a bipartite graph.
fn block_is_valid(block: &Block) {
    assert!(block.num_dst <= block.num_src, "the destination nodes are the first of the source nodes");
    assert_eq!(block.indptr.len(), block.num_dst + 1, "an offset per row, and one");
    assert_eq!(block.indptr[0], 0, "the first offset");
    assert!(block.indptr.is_sorted(), "offsets never decrease");
    assert_eq!(block.indptr[block.num_dst] as usize, block.indices.len(), "the last offset");
    assert!(block.indices.iter().all(|&i| (i as usize) < block.num_src), "edges come from source nodes");
}

/// Rows hold distinct neighbours in descending order of whole visits.
fn rows_have_importance(block: &Block, walk: &WalkSettings) {
    assert!(block.importance, "weights are importance where the sampler gives any");
    let weights = block.weights.as_ref().expect("importance of every edge");
    assert_eq!(weights.len(), block.num_edges(), "importance of every edge");
    for row in 0..block.num_dst {
        let neighbors = block.row(row);
        let visits = &weights[block.indptr[row] as usize..block.indptr[row + 1] as usize];
        assert!(neighbors.len() <= walk.neighbors as usize, "row {row} has {} neighbours", neighbors.len());
        assert_eq!(neighbors.iter().collect::<HashSet<_>>().len(), neighbors.len(), "each neighbour of row {row} once");
        assert!(!neighbors.contains(&(row as u32)), "a node is no neighbour of its own");
        assert!(visits.is_sorted_by(|a, b| a >= b), "row {row} begins with the neighbours visited most often");
        assert!(visits.iter().all(|&v| v >= 1.0 && v.fract() == 0.0), "row {row} has numbers of visits");
        assert!(
            visits.iter().sum::<f32>() <= (walk.walks * walk.length) as f32,
            "row {row} has at most one visit per step"
        );
    }
}

/// The block's edges are a sub-multiset of the graph's.
fn edges_are_the_graphs(block: &Block, batch: &HostBatch, case: &Case) {
    let topology = &case.dataset.topology;
    assert!(!block.importance, "weights are importance where the sampler gives any");
    assert_eq!(block.weights.is_some(), topology.weights().is_some(), "weights where the graph has them");
    for row in 0..block.num_dst {
        let node = batch.input_nodes[row];
        let mut edges: HashMap<(u32, u32), i64> = HashMap::new();
        for edge in topology.edge_range(node) {
            let weight = topology.weights().map_or(0, |w| w[edge].to_bits());
            *edges.entry((topology.indices()[edge], weight)).or_default() += 1;
        }
        let sampled = block.indptr[row] as usize..block.indptr[row + 1] as usize;
        for i in sampled {
            let weight = block.weights.as_ref().map_or(0, |w| w[i].to_bits());
            let neighbor = batch.input_nodes[block.indices[i] as usize];
            let left = edges.entry((neighbor, weight)).or_default();
            *left -= 1;
            assert!(*left >= 0, "an edge from {neighbor} to {node} is sampled more often than the graph has it");
        }
    }
}

/// In a graph with types every edge of a block has a type, ascending in every row, of an edge between its nodes; else none has.
pub(super) fn edges_have_their_types(subject: &Subject<'_>, case: &Case) {
    let topology = &case.dataset.topology;
    for batch in subject.epoch(case, 0) {
        for block in &batch.blocks {
            let Some(types) = topology.edge_types() else {
                assert_eq!(block.edge_types, None, "no types of edges in a graph without types");
                continue;
            };
            let of_edges = block.edge_types.as_ref().expect("the types of the edges");
            assert_eq!(of_edges.len(), block.num_edges(), "a type per edge");
            for row in 0..block.num_dst {
                let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
                assert!(of_edges[edges.clone()].is_sorted(), "row {row} is sorted by type");
                let of_graph = topology.edge_range(batch.input_nodes[row]);
                for edge in edges {
                    let source = batch.input_nodes[block.indices[edge] as usize];
                    let is_one = |e: usize| topology.indices()[e] == source && types[e] == of_edges[edge];
                    assert!(of_graph.clone().any(is_one), "the graph has no edge of this type from {source}");
                }
            }
        }
    }
}

/// Every edge is within one tree, and with times none is later than the seed of its tree, nor is its source.
pub(super) fn trees_end_at_the_time_of_their_seeds(subject: &Subject<'_>, case: &Case, by_time: bool) {
    let topology = &case.dataset.topology;
    for batch in subject.epoch(case, 0) {
        let trees = batch.trees.as_ref().expect("the tree of each input node");
        assert!(trees[..batch.num_seeds].iter().copied().eq(0..batch.num_seeds as u32), "a tree per seed");
        for block in &batch.blocks {
            for row in 0..block.num_dst {
                let bound = topology.node_times().map(|times| times[batch.input_nodes[trees[row] as usize] as usize]);
                for &local in block.row(row) {
                    assert_eq!(trees[local as usize], trees[row], "edges are within a tree");
                    let source = batch.input_nodes[local as usize];
                    if let (Some(bound), true) = (bound, by_time) {
                        let times = topology.node_times().expect("times of nodes");
                        assert!(times[source as usize] <= bound, "no node is later than the seed");
                        let edges = topology.edge_range(batch.input_nodes[row]);
                        let mut edges = edges.filter(|&edge| topology.indices()[edge] == source);
                        let known = |edge: usize| topology.edge_times().is_none_or(|times| times[edge] <= bound);
                        assert!(edges.any(known), "no edge is later than the seed");
                    }
                }
            }
        }
    }
}

/// An epoch's mini-batches hold every seed as often as it is given, in another order each epoch, or in the order given.
pub(super) fn every_seed_comes_as_often_as_given(subject: &Subject<'_>, case: &Case) {
    let operator = subject.build_valid(case);
    let size = case.settings.batch_size;
    assert_eq!(operator.num_batches(), case.seeds.nodes().len().div_ceil(size), "mini-batches of an epoch");
    let seeds = |epoch| -> Vec<u32> {
        let batches = subject.epoch(case, epoch);
        let (last, whole) = batches.split_last().expect("an epoch has a mini-batch");
        assert!(whole.iter().all(|b| b.num_seeds == size), "only the last mini-batch is smaller");
        assert_eq!(last.num_seeds, case.seeds.nodes().len() - whole.len() * size, "the last mini-batch takes the rest");
        batches.iter().flat_map(|b| b.seeds().to_vec()).collect()
    };
    let (first, second) = (seeds(0), seeds(1));
    if case.settings.shuffle {
        assert_eq!(first, reference::order(case, 0), "the permutation of epoch 0");
        assert!(first != second || first.len() < 4, "another epoch, another order");
        let sorted = |mut nodes: Vec<u32>| {
            nodes.sort_unstable();
            nodes
        };
        let expected = sorted(case.seeds.nodes().to_vec());
        assert_eq!((&sorted(first), &sorted(second)), (&expected, &expected), "every seed as often as given");
    } else {
        assert_eq!((&*first, &*second), (case.seeds.nodes(), case.seeds.nodes()), "seeds in the order given");
    }
}

/// A mini-batch does not depend on worker, number of threads, order of requests or recycled memory.
pub(super) fn batches_are_a_function_of_their_id(subject: &Subject<'_>, case: &Case) {
    let ids: Vec<BatchId> = [0, 5].into_iter().flat_map(|epoch| ids(case, epoch)).collect();
    let expected = subject.batches(case, 1, &ids, false);
    for threads in [1, 2, 3, 8] {
        assert_eq!(subject.batches(case, threads, &ids, true), expected, "on {threads} threads, in recycled memory");
    }
    // Reverse order: a small mini-batch gets the memory of a larger one, and epochs are not in order.
    let reversed: Vec<BatchId> = ids.iter().rev().copied().collect();
    let mut batches = subject.batches(case, 1, &reversed, true);
    batches.reverse();
    assert_eq!(batches, expected, "in reverse order");
    memory_of_another_case_does_not_leak(subject, case, &ids, &expected);
    let operator = subject.build_valid(case);
    let share = |first: usize| -> Vec<(usize, HostBatch)> {
        let mut worker = worker(operator.as_ref(), 1);
        let mut make = |i: usize| (i, on_host(&prepare(worker.as_mut(), ids[i], None)));
        (first..ids.len()).step_by(3).map(&mut make).collect()
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|first| scope.spawn(move || share(first))).collect();
        for worker in workers {
            for (i, batch) in worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                assert_eq!(batch, expected[i], "{} of three concurrent workers", ids[i]);
            }
        }
    });
}

/// Recycling a deeper mini-batch of another graph, with every optional part, changes nothing.
fn memory_of_another_case_does_not_leak(subject: &Subject<'_>, case: &Case, ids: &[BatchId], expected: &[HostBatch]) {
    let other = Case::new(graphs::random(200, 9, true)).with_fanouts("9,9,9,9");
    let mut foreign = reference::sample(&other, BatchId { epoch: 9, index: 0 });
    foreign.id = BatchId { epoch: u32::MAX, index: u32::MAX };
    foreign.blocks.iter_mut().for_each(|block| block.importance = true);
    let mut worker = worker(subject.build_valid(case).as_ref(), 1);
    if let MiniBatch::Host(batch) = prepare(worker.as_mut(), ids[0], Some(MiniBatch::Host(foreign))) {
        assert_eq!(batch, expected[0], "in the memory of another graph's mini-batch");
    }
}

/// Mini-batches of a reordered graph with draw keys are those of the original one, but for the numbers of the nodes; an
/// operator that does not read the keys refuses the graph.
pub(super) fn reordering_renames_the_nodes(subject: &Subject<'_>, case: &Case) {
    let (dataset, new_of_old) = graphs::reordered(&case.dataset);
    let rename = |nodes: &[u32]| nodes.iter().map(|&v| new_of_old[v as usize]).collect::<Vec<_>>();
    let reordered = Case { dataset: Arc::new(dataset), ..case.clone() };
    let renamed = rename(case.seeds.nodes());
    let reordered = match case.seeds.pairs() {
        None => reordered.of(&renamed),
        Some(pairs) => {
            let given = rename(pairs.given());
            let of_pairs = reordered.of_pairs_against(renamed.as_chunks().0, &given, *pairs.settings());
            of_pairs.of_targets(pairs.targets().clone()).with_edge_types(pairs.edge_types())
        }
    };
    if let Err(error) = subject.build(&reordered) {
        let message = error.to_string();
        assert!(message.contains("draw keys"), "a refusal says why: {message}");
        return one_line("a reordered graph", &message);
    }
    for (batch, original) in subject.epoch(&reordered, 3).into_iter().zip(subject.epoch(case, 3)) {
        let expected = HostBatch { input_nodes: rename(&original.input_nodes), ..original };
        assert_eq!(batch.input_nodes, expected.input_nodes, "input nodes of {} of a reordered graph", batch.id);
        assert_eq!(batch, expected, "mini-batch of a reordered graph");
    }
}

/// Another random seed or epoch gives other mini-batches of the same nodes.
pub(super) fn seed_and_epoch_change_the_draws(subject: &Subject<'_>, case: &Case) {
    let fixed = case.with(|s| s.shuffle = false);
    let base = subject.epoch(&fixed, 0);
    assert_ne!(base, subject.epoch(&fixed.with(|s| s.seed += 1), 0), "another seed");
    assert_ne!(base, subject.epoch(&fixed.with(|s| s.seed += 1 << 32), 0), "another upper half of the seed");
    let blocks =
        |batches: Vec<HostBatch>| -> Vec<_> { batches.into_iter().map(|b| (b.input_nodes, b.blocks)).collect() };
    assert_ne!(blocks(base), blocks(subject.epoch(&fixed, 1)), "another epoch");
}

/// A share has the seeds at its positions, positions behind the last seed are left out, and a share without a seed is refused.
pub(super) fn shares_have_their_seeds(subject: &Subject<'_>, case: &Case) {
    for id in ids(case, 2) {
        let whole = subject.batches(case, 1, &[id], false).remove(0);
        let n = whole.num_seeds;
        let shares = cuts(n);
        for (share, part) in shares.iter().zip(subject.shares(case, id, &shares)) {
            let part = part.unwrap_or_else(|e| panic!("share {share:?} of {id}: {e}"));
            assert_eq!(
                part.seeds(),
                &whole.seeds()[share.start..share.end.min(n)],
                "seeds of the share {share:?} of {id}"
            );
        }
        for refused in subject.shares(case, id, &[0..0, n..n + 1]) {
            one_line("a share without a seed", &refused.expect_err("a share without a seed").to_string());
        }
    }
}

/// A share is what the reference makes of its seeds alone, with the draws of the whole mini-batch.
pub(super) fn shares_equal_the_reference(subject: &Subject<'_>, case: &Case) {
    let id = ids(case, 2).pop().expect("an epoch has a mini-batch");
    let shares = cuts(reference::sample(case, id).num_seeds);
    for (share, part) in shares.iter().zip(subject.shares(case, id, &shares)) {
        let part = part.unwrap_or_else(|e| panic!("share {share:?} of {id}: {e}"));
        let expected = reference::sample_share(case, id, share.clone());
        assert_eq!(part.input_nodes, expected.input_nodes, "input nodes of the share {share:?} of {id}");
        assert_eq!(part.blocks, expected.blocks, "blocks of the share {share:?} of {id}");
    }
}

/// Shares of a mini-batch of `n` seeds: the first seed, the last, the middle, and all from the second on.
fn cuts(n: usize) -> Vec<Range<usize>> {
    let cuts = vec![0..1, n - 1..n, n / 3..(2 * n / 3).max(n / 3 + 1), 1..n + 5];
    cuts.into_iter().filter(|cut| cut.start < n).collect()
}

/// Without `gather`, or without features in the dataset, mini-batches have none.
pub(super) fn features_are_left_out_when_asked(subject: &Subject<'_>, case: &Case) {
    let without = Case { gather: false, ..case.clone() };
    let bare = Case { dataset: Arc::new(graphs::bare(&case.dataset)), ..case.clone() };
    for case in [without, bare] {
        assert!(subject.epoch(&case, 0).iter().all(|b| b.features.is_none()), "no features without gathering");
    }
}

/// Impossible requests are one-line errors, not panics.
pub(super) fn impossible_requests_are_refused(subject: &Subject<'_>, case: &Case) {
    let refuse = |what: &str, change: &dyn Fn(&mut SamplerSettings)| {
        let error = subject.build(&case.with(change)).err().unwrap_or_else(|| panic!("{what} has to be refused"));
        one_line(what, &error.to_string());
    };
    refuse("no layer", &|s| match &mut s.sampling {
        Sampling::Neighbor(hops) => hops.fanouts.0.clear(),
        Sampling::Shadow(shadow) => shadow.layers = 0,
        Sampling::Walk(walk) => walk.layers = 0,
        Sampling::Custom(custom) => {
            custom.layers = 0;
            custom.hops.iter_mut().for_each(|hops| hops.fanouts.0.clear());
        }
    });
    let other = match case.settings.sampling {
        Sampling::Walk(_) => Sampling::Neighbor(NeighborSettings::default()),
        _ => Sampling::Walk(WalkSettings::of_layers(2)),
    };
    refuse("another kind of sampling", &|s| s.sampling = other.clone());
    refuse("a batch size of 0", &|s| s.batch_size = 0);
    let operator = subject.build_valid(case);
    let mut worker = worker(operator.as_ref(), 1);
    let beyond = BatchId { epoch: 0, index: operator.num_batches() as u32 };
    let error = worker.prepare(beyond, None).and_then(|handle| handle.wait()).err();
    one_line("a mini-batch beyond the last", &error.expect("there is no such mini-batch").to_string());
    let first = worker.prepare(BatchId::default(), None).and_then(|handle| handle.wait());
    assert!(first.is_ok(), "a refused request leaves the worker usable");
}

/// No row is longer than the hop's fanout, nor than the node's degree.
pub(super) fn rows_keep_to_the_fanout(subject: &Subject<'_>, case: &Case) {
    let fanouts = &case.settings.sampling.hops().expect("sampling by fanouts").fanouts.0;
    for batch in subject.epoch(case, 1) {
        for (block, &fanout) in batch.blocks.iter().rev().zip(fanouts) {
            for row in 0..block.num_dst {
                let degree = case.dataset.topology.degree(batch.input_nodes[row]);
                assert!(block.row(row).len() as u64 <= fanout.take(degree), "row {row} is longer than fanout {fanout}");
            }
        }
    }
}

/// Mini-batches equal the reference, field for field.
pub(super) fn batches_equal_the_reference(subject: &Subject<'_>, case: &Case) {
    for mut batch in [0, 3].into_iter().flat_map(|epoch| subject.epoch(case, epoch)) {
        let mut expected = reference::sample(case, batch.id);
        if !subject.gathers() {
            expected.features = None;
        }
        // Nodes and blocks first: their difference is the shortest to read.
        assert_eq!(batch.input_nodes, expected.input_nodes, "input nodes of {}, {:?}", batch.id, case.settings);
        assert_eq!(batch.blocks, expected.blocks, "blocks of {}, {:?}", batch.id, case.settings);
        batch.input_nodes.clone_from(&expected.input_nodes);
        assert_eq!(batch, expected, "{}", case.settings.sampling);
    }
}

/// Mini-batches of two operators are equal, field for field, but for features where one of them gathers none.
pub(super) fn batches_equal_those_of(subject: &Subject<'_>, other: &Subject<'_>, case: &Case) {
    let case = Case { gather: case.gather && subject.gathers() && other.gathers(), ..case.clone() };
    for (batch, expected) in subject.epoch(&case, 3).into_iter().zip(other.epoch(&case, 3)) {
        assert_eq!(batch.input_nodes, expected.input_nodes, "input nodes of {}, {:?}", batch.id, case.settings);
        assert_eq!(batch, expected, "{} by two operators, {}", batch.id, case.settings.sampling);
    }
}

/// Mini-batches with given nodes are those of the reference, and without any the ordinary ones; operators that make none are
/// not tested.
pub(super) fn given_nodes_are_left_out(subject: &Subject<'_>, case: &Case) {
    let operator = subject.build_valid(case);
    let sets: [fn(u32) -> bool; 3] = [|_| false, |v| v % 3 != 0, |_| true];
    for given in sets {
        let marked: Arc<dyn GivenNodes> = Arc::new(GivenSet::new(case.dataset.num_nodes(), given));
        for threads in [1, 3] {
            let Some(worker) = operator.worker_with_given(threads, &marked) else { return };
            let (mut worker, mut recycled) = (worker.expect("a worker"), None);
            for (id, ordinary) in ids(case, 1).into_iter().zip(subject.epoch(case, 1)) {
                let batch = prepare(worker.as_mut(), id, recycled.take());
                let found = on_host(&batch);
                let mut expected = reference::sample_with_given(case, id, &given);
                if !subject.gathers() {
                    expected.features = None;
                }
                assert_eq!(found, expected, "{id} with given nodes, {threads} threads");
                assert_eq!(
                    found == ordinary,
                    found.given.is_none(),
                    "{id}: an ordinary mini-batch without given nodes"
                );
                recycled = Some(batch);
            }
        }
    }
}
