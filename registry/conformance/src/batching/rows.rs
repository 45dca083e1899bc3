//! Mini-batches of rows of a task: of operators that take them ([`Description::takes_rows`](morphgl_registry::Description::takes_rows)).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use morphgl_graph_store::{Dataset, TargetMatrix, TaskRows, Topology};
use morphgl_registry::{Expansion, Fanouts, HostBatch, NeighborSettings, Pick, Sampling, SeedSet};
use morphgl_sampler_core::TYPED;

use super::{Case, Subject, graphs, laws, reference};
use crate::one_line;

/// Rows of nodes that repeat, at times from before the first edge to after the last.
fn rows(num_nodes: usize) -> Vec<(u32, i64)> {
    let row = |i: usize| ((i * i % 11 * (num_nodes / 11).max(1)) % num_nodes, (i as i64 * 37) % 130 - 15);
    (0..40).map(row).map(|(node, time)| (node as u32, time)).collect()
}

impl Case {
    /// The same with every third row, and the first once more, of a task of these nodes at times, each with a class and two values, some
    /// of which are unknown.
    pub fn of_rows(&self, rows: &[(u32, i64)]) -> Self {
        let (nodes, times): (Vec<u32>, Vec<i64>) = rows.iter().copied().unzip();
        let count = rows.len();
        let labels: Vec<i32> = (0..count).map(|row| (row * 7 % 5) as i32 - 1).collect();
        let value = |i: usize| if i % 7 < 2 { f32::NAN } else { i as f32 };
        let dataset = Dataset {
            task_rows: Some(TaskRows::new(nodes, times, self.dataset.num_nodes()).expect("nodes of the graph")),
            labels: Some(labels.into()),
            targets: TargetMatrix::new((0..2 * count).map(value).collect::<Vec<_>>(), 2).ok(),
            ..(*self.dataset).clone()
        };
        let chosen: Vec<u32> = (0..count as u32).rev().step_by(3).chain([0]).collect();
        Self { dataset: Arc::new(dataset), ..self.clone() }.of_chosen(&chosen)
    }

    /// The same with these rows of its dataset's task as seeds.
    fn of_chosen(&self, chosen: &[u32]) -> Self {
        let all = self.dataset.task_rows.as_ref().expect("rows of a task");
        let seeds = SeedSet::of_rows("rows", chosen, all, self.dataset.num_nodes()).expect("rows of the task");
        Self { seeds, ..self.clone() }
    }

    /// The same, within times, by these fanouts.
    fn within_times(&self, temporal: &str, hops: NeighborSettings) -> Self {
        self.with(|s| {
            let Sampling::Custom(custom) = &mut s.sampling else { unreachable!("the case samples by type") };
            (custom.layers, s.batch_size) = (hops.fanouts.0.len(), 5);
            custom.hops = Some(hops);
            custom.settings.insert("temporal".into(), temporal.into());
        })
    }
}

fn hops(fanouts: &str, expansion: Expansion, pick: Pick) -> NeighborSettings {
    NeighborSettings { fanouts: fanouts.parse::<Fanouts>().expect("fanouts"), expansion, pick }
}

/// Tests an operator that samples by edge type on rows of a task.
pub(super) fn run(subject: &Subject<'_>) {
    let mut is_taken = subject.takes_some();
    let typed = |weights| Case::new(graphs::typed(160, 9, weights)).by(&TYPED);
    let untyped = Case::new(graphs::random(120, 7, true)).by(&TYPED);
    for case in [typed(false), typed(true), untyped] {
        for dataset in times(&case.dataset) {
            let case = Case { dataset: Arc::new(dataset), ..case.clone() };
            let case = case.of_rows(&rows(case.dataset.num_nodes()));
            for (temporal, hops) in [
                ("uniform", hops("3,2", Expansion::All, Pick::Uniform)),
                ("uniform", hops("-1,-1", Expansion::New, Pick::Uniform)),
                ("uniform", hops("4,3", Expansion::All, Pick::Weighted)),
                ("last", hops("2,2", Expansion::All, Pick::Uniform)),
            ] {
                if hops.pick == Pick::Weighted && case.dataset.topology.weights().is_none() || !is_taken() {
                    continue;
                }
                let case = case.within_times(temporal, hops);
                laws::batches_are_a_function_of_their_id(subject, &case);
                laws::batches_equal_the_reference(subject, &case);
                laws::shares_equal_the_reference(subject, &case);
                trees_are_what_rows_may_see(subject, &case);
                reordering_renames_the_nodes(subject, &case);
            }
        }
    }
    rows_at_the_times_of_their_nodes_are_nodes(subject);
    nodes_of_a_dataset_with_a_task_have_no_labels(subject);
    a_node_at_two_times_sees_two_graphs(subject);
    times_that_are_not_read_are_refused(subject);
}

/// The graph with times of nodes and edges, of nodes alone, and of edges alone.
fn times(dataset: &Dataset) -> [Dataset; 3] {
    let [both, of_nodes] = [true, false].map(|of_edges| graphs::timed(dataset, false, of_edges));
    let of_edges = dataset.topology.clone().with_times(None, both.topology.edge_times().cloned());
    let of_edges = Dataset { topology: of_edges.expect("a time per edge"), ..dataset.clone() };
    [both, of_nodes, of_edges]
}

/// The nodes that a row may see, with the number of hops to each: over edges that are no later than `time`, from nodes that are not.
fn seen(topology: &Topology, (node, time): (u32, i64), hops: usize) -> BTreeMap<u32, usize> {
    let mut seen = BTreeMap::from([(node, 0)]);
    let mut newest = vec![node];
    for hop in 1..=hops {
        let mut found = Vec::new();
        for &target in &newest {
            for edge in topology.edge_range(target).filter(|&edge| is_seen(topology, edge, time)) {
                let source = topology.indices()[edge];
                seen.entry(source).or_insert_with(|| {
                    found.push(source);
                    hop
                });
            }
        }
        newest = found;
    }
    seen
}

/// Whether an edge and its source are no later than `time`.
fn is_seen(topology: &Topology, edge: usize, time: i64) -> bool {
    let of_node = topology.node_times().map(|times| times[topology.indices()[edge] as usize]);
    let of_edge = topology.edge_times().map(|times| times[edge]);
    of_node.into_iter().chain(of_edge).all(|of| of <= time)
}

/// No edge and no node of a row's tree is later than the row; with all neighbours, the tree has every node that the row may see.
fn trees_are_what_rows_may_see(subject: &Subject<'_>, case: &Case) {
    let topology = &case.dataset.topology;
    let given = case.seeds.rows().expect("rows");
    let Sampling::Custom(custom) = &case.settings.sampling else { unreachable!("the case samples by type") };
    let fanouts = &custom.hops.as_ref().expect("sampling by fanouts").fanouts;
    let (num_hops, is_whole) = (fanouts.0.len(), fanouts.to_string() == "-1,-1");
    for batch in subject.epoch(&case.with(|s| s.shuffle = false), 0) {
        let first = batch.id.index as usize * case.settings.batch_size;
        let row = |tree: usize| (given.nodes()[first + tree], given.times()[first + tree]);
        let trees = batch.trees.as_ref().expect("the tree of each input node");
        let mut of_trees = vec![BTreeSet::new(); batch.num_seeds];
        trees.iter().zip(&batch.input_nodes).for_each(|(&tree, &node)| _ = of_trees[tree as usize].insert(node));
        for (tree, found) in of_trees.iter().enumerate() {
            assert_eq!(batch.input_nodes[tree], row(tree).0, "the seed of a row is its node");
            let seen = seen(topology, row(tree), num_hops);
            assert!(found.iter().all(|node| seen.contains_key(node)), "{:?} sees {seen:?}, not {found:?}", row(tree));
            assert!(!is_whole || found.len() == seen.len(), "{:?} sees {seen:?}, and has {found:?}", row(tree));
        }
        for block in &batch.blocks {
            for target in 0..block.num_dst {
                let time = row(trees[target] as usize).1;
                let mut left: HashMap<u32, usize> = HashMap::new();
                let edges = topology.edge_range(batch.input_nodes[target]);
                let early = edges.filter(|&edge| is_seen(topology, edge, time));
                early.for_each(|edge| *left.entry(topology.indices()[edge]).or_default() += 1);
                for &local in block.row(target) {
                    assert_eq!(trees[local as usize], trees[target], "edges are within a tree");
                    let count = left.entry(batch.input_nodes[local as usize]).or_default();
                    assert!(*count > 0, "an edge is later than the row, or comes twice");
                    *count -= 1;
                }
            }
        }
    }
}

/// Rows at the times of their nodes give the blocks of these nodes as seeds, bit for bit.
fn rows_at_the_times_of_their_nodes_are_nodes(subject: &Subject<'_>) {
    let case = Case::new(graphs::timed(&graphs::typed(160, 9, false), false, true)).by(&TYPED);
    let times = case.dataset.topology.node_times().expect("times of nodes").clone();
    let nodes: Vec<u32> = (0..30).map(|i| i * i % 160).collect();
    let at_own_times: Vec<(u32, i64)> = nodes.iter().map(|&node| (node, times[node as usize])).collect();
    for temporal in ["uniform", "last"] {
        let of_nodes = case.of(&nodes).within_times(temporal, hops("4,3", Expansion::All, Pick::Uniform));
        let chosen: Vec<u32> = (0..nodes.len() as u32).collect();
        let of_rows = of_nodes.of_rows(&at_own_times).of_chosen(&chosen);
        for (batch, expected) in subject.epoch(&of_rows, 1).into_iter().zip(subject.epoch(&of_nodes, 1)) {
            let (labels, targets) = (expected.labels, expected.targets);
            let expected = HostBatch { labels: batch.labels.clone(), targets: batch.targets.clone(), ..expected };
            assert_eq!(batch, expected, "rows at the times of their nodes");
            assert_eq!((labels.len(), targets.values.len()), (batch.labels.len(), batch.targets.values.len()));
        }
    }
}

/// Nodes as seeds of a dataset with a task have neither labels nor targets: these are those of rows.
fn nodes_of_a_dataset_with_a_task_have_no_labels(subject: &Subject<'_>) {
    let case = Case::new(graphs::timed(&graphs::typed(160, 9, false), false, true)).by(&TYPED);
    let case = case.of_rows(&rows(160)).of(&[0, 159, 80, 0]);
    for batch in subject.epoch(&case, 0) {
        assert!(batch.labels.is_empty() && batch.targets.values.is_empty() && batch.targets.width == 0, "{batch:?}");
    }
}

/// Two rows of one node, in one mini-batch: one before its edges, which sees the node alone, and one behind them, which sees all.
fn a_node_at_two_times_sees_two_graphs(subject: &Subject<'_>) {
    let case = Case::new(graphs::timed(&graphs::typed(160, 9, false), false, true)).by(&TYPED);
    let case = case.within_times("uniform", hops("-1,-1", Expansion::All, Pick::Uniform));
    let hub = (0..160).max_by_key(|&node| case.dataset.topology.degree(node)).expect("a node");
    let case = case.of_rows(&[(hub, -1), (hub, 100)]).of_chosen(&[0, 1]).with(|s| s.shuffle = false);
    let batch = subject.epoch(&case, 0).remove(0);
    let trees = batch.trees.as_ref().expect("trees");
    let [early, late] = [0, 1].map(|tree| trees.iter().filter(|&&of| of == tree).count());
    assert_eq!((early, late), (1, seen(&case.dataset.topology, (hub, 100), 2).len()), "two rows of node {hub}");
    assert_eq!(batch.labels, reference::targets_of(&case.dataset, &[0, 1]).0, "each row has a label of its own");
}

/// As the law of nodes of this name.
fn reordering_renames_the_nodes(subject: &Subject<'_>, case: &Case) {
    let (dataset, new_of_old) = graphs::reordered(&case.dataset);
    let chosen = case.seeds.rows().expect("rows").rows();
    let reordered = Case { dataset: Arc::new(dataset), ..case.clone() }.of_chosen(chosen);
    for (batch, original) in subject.epoch(&reordered, 3).into_iter().zip(subject.epoch(case, 3)) {
        let input_nodes = original.input_nodes.iter().map(|&v| new_of_old[v as usize]).collect();
        assert_eq!(batch, HostBatch { input_nodes, ..original }, "mini-batch of a reordered graph");
    }
}

/// Rows of a task are not sampled without regard to their times.
fn times_that_are_not_read_are_refused(subject: &Subject<'_>) {
    let case = Case::new(graphs::timed(&graphs::typed(160, 9, false), false, true)).by(&TYPED);
    let case = case.of_rows(&rows(160)).within_times("no", hops("3", Expansion::All, Pick::Uniform));
    let error = subject.build(&case).expect_err("rows of a task are sampled within times").to_string();
    assert!(error.contains("temporal=no") && error.contains("give uniform or last"), "{error}");
    one_line("rows without times", &error);
    let rows = case.dataset.task_rows.as_ref().expect("rows");
    let refused = |chosen: &[u32]| SeedSet::of_rows("rows", chosen, rows, 160).expect_err("refused").to_string();
    assert!(refused(&[]).contains("it is empty"));
    assert!(refused(&[40]).contains("row 40 does not exist, there are 40"));
}
