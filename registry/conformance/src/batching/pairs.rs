//! Mini-batches of pairs: of operators that take them ([`Description::takes_pairs`](morphgl_registry::Description::takes_pairs)).

use std::collections::HashSet;
use std::sync::Arc;

use morphgl_graph_store::{PairTargets, TargetMatrix};
use morphgl_registry::{
    BatchId, BatchPairs, Expansion, HostBatch, NegativeDistribution, PairSeeds, PairSettings, Pick, Sampling,
    SamplingSpec, SeedSet,
};

use morphgl_sampler_core::TYPED;
use serde_json::Value;

use super::{Case, Subject, graphs, ids, laws, reference};
use crate::one_line;

impl Case {
    /// The same with pairs as seeds.
    pub fn of_pairs(&self, pairs: &[[u32; 2]], settings: PairSettings) -> Self {
        self.of_pairs_against(pairs, &[], settings)
    }

    /// The same with pairs as seeds, and destinations of negatives that are given with them.
    pub fn of_pairs_against(&self, pairs: &[[u32; 2]], given: &[u32], settings: PairSettings) -> Self {
        let num_nodes = self.dataset.num_nodes();
        let seeds = SeedSet::of_pairs_against("pairs", pairs, given, num_nodes, settings).expect("pairs of the graph");
        Self { seeds, ..self.clone() }
    }

    /// The same pairs with a class and two values each, some of which are unknown; they may have no negatives.
    pub fn labelled(&self) -> Self {
        let num_pairs = self.seeds.num_examples();
        let labels: Vec<i32> = (0..num_pairs).map(|pair| (pair * 7 % 5) as i32 - 1).collect();
        let value = |i: usize| if i % 7 < 2 { f32::NAN } else { i as f32 };
        let values = TargetMatrix::new((0..2 * num_pairs).map(value).collect::<Vec<_>>(), 2).expect("two values each");
        self.of_targets(PairTargets { labels: Some(labels.into()), values: Some(values) })
    }

    /// The same pairs with these targets.
    pub(super) fn of_targets(&self, targets: PairTargets) -> Self {
        Self { seeds: self.seeds.clone().with_targets("pairs", targets).expect("a row per pair"), ..self.clone() }
    }

    /// The same pairs with an edge type each: that of an edge between them, where there is one, else any.
    pub fn of_edge_types(&self) -> Self {
        let topology = &self.dataset.topology;
        let (types, edge_types) = topology.types().zip(topology.edge_types()).expect("a graph with types");
        let of_pair = |(at, &[source, target]): (usize, &[u32; 2])| {
            let edges: Vec<usize> =
                topology.edge_range(target).filter(|&edge| topology.indices()[edge] == source).collect();
            match edges.len() {
                0 => (at % types.edge_types().len()) as u16,
                count => edge_types[edges[at % count]],
            }
        };
        let pairs = self.seeds.pairs().expect("a case of pairs").ends();
        self.with_edge_types(&pairs.iter().enumerate().map(of_pair).collect::<Vec<_>>())
    }

    /// The same pairs with these edge types; without, where there are none.
    pub(super) fn with_edge_types(&self, types: &[u16]) -> Self {
        match types {
            [] => self.clone(),
            _ => Self {
                seeds: self.seeds.clone().with_edge_types("pairs", types).expect("a type per pair"),
                ..self.clone()
            },
        }
    }

    /// The same with `count` negatives given with each of its pairs, some of them alike; a mini-batch takes `negatives` of them.
    pub fn with_given(&self, count: usize, negatives: u32) -> Self {
        let pairs = self.seeds.pairs().expect("a case of pairs");
        let (ends, num_nodes) = (pairs.ends(), self.dataset.num_nodes());
        let given: Vec<u32> = (0..ends.len() * count).map(|i| ((i * i + 3 * i) % num_nodes) as u32).collect();
        let distribution = NegativeDistribution::Given;
        let settings = PairSettings { negatives, distribution, avoid_edges: false, ..*pairs.settings() };
        self.of_pairs_against(ends, &given, settings).with_edge_types(pairs.edge_types())
    }

    /// The same with some of the graph's edges as pairs: loops, parallel edges and their reverses among them, some twice, and
    /// some that are no edges.
    pub fn of_edges(&self, settings: PairSettings) -> Self {
        let num_nodes = self.dataset.num_nodes() as u32;
        let topology = &self.dataset.topology;
        let edges = (0..num_nodes).flat_map(|v| topology.neighbors(v).iter().map(move |&u| [u, v]));
        let mut pairs: Vec<[u32; 2]> = edges.enumerate().filter(|(i, _)| i % 9 < 2).map(|(_, pair)| pair).collect();
        pairs.extend((0..num_nodes.min(12)).map(|v| [v, (7 * v + 1) % num_nodes]));
        pairs.extend(pairs.iter().step_by(5).map(|&[u, v]| [v, u]).collect::<Vec<_>>());
        pairs.extend_from_within(..2);
        self.of_pairs(&pairs, settings)
    }
}

/// The laws of mini-batches of pairs, for one kind of sampling.
pub(super) fn run(subject: &Subject<'_>, spec: &SamplingSpec) {
    for case in subject.some(cases()) {
        check(subject, &case.by(spec));
    }
    let random = Case::new(graphs::random(120, 7, false)).of_edges(PairSettings::default()).by(spec);
    laws::batches_are_a_function_of_their_id(subject, &random);
    laws::seed_and_epoch_change_the_draws(subject, &random);
    laws::features_are_left_out_when_asked(subject, &random);
    if *spec == TYPED {
        by_type(subject);
    }
    if *spec != SamplingSpec::NEIGHBOR || !subject.description.interchangeable {
        return;
    }
    let pairs = PairSettings { negatives: 2, ..PairSettings::default() };
    let mut is_taken = subject.takes_some();
    for weights in [false, true] {
        let case = Case::new(graphs::random(120, 7, weights)).with(|s| s.batch_size = 40).of_edges(pairs);
        for expansion in [Expansion::All, Expansion::New] {
            for pick in [Pick::Uniform, Pick::Weighted] {
                for fanouts in ["-1", "3", "5,4,3", "100,2"] {
                    if (weights || pick == Pick::Uniform) && is_taken() {
                        let hops = case.with_fanouts(fanouts).with_hops(|h| (h.expansion, h.pick) = (expansion, pick));
                        laws::batches_equal_the_reference(subject, &hops);
                        shares_make_the_whole(subject, &hops);
                    }
                }
            }
        }
        // Hubs: long rows, which lose many edges, and of which many neighbours are drawn.
        let hub: Vec<[u32; 2]> = (0..300).map(|v| [3 * v % 900, 0]).collect();
        let hub = Case::new(graphs::random(900, 5, weights)).with_fanouts("200,80").of_pairs(&hub, pairs);
        for pick in [Pick::Uniform, Pick::Weighted].into_iter().take(1 + usize::from(weights)) {
            check(subject, &hub.with(|s| s.batch_size = 150).with_hops(|hops| hops.pick = pick));
        }
    }
}

/// Sub-rows lose edges as rows do: by any fanouts, in any trees, with any times.
fn by_type(subject: &Subject<'_>) {
    let drawn = PairSettings { negatives: 2, ..PairSettings::default() };
    let mut is_taken = subject.takes_some();
    for weights in [false, true] {
        let graph = graphs::typed(130, 8, weights);
        for (times, trees) in [
            (None, &[("disjoint", Value::from(false)), ("temporal", "no".into())]),
            (None, &[("disjoint", Value::from(true)), ("temporal", "no".into())]),
            (Some(false), &[("disjoint", Value::from(false)), ("temporal", "uniform".into())]),
            (Some(true), &[("disjoint", Value::from(false)), ("temporal", "last".into())]),
            (Some(false), &[("disjoint", Value::from(false)), ("temporal", "last".into())]),
        ] {
            let graph = times.map_or_else(|| graph.clone(), |ascends| graphs::timed(&graph, ascends, true));
            let case = Case::new(graph).with(|s| s.batch_size = 40).of_edges(drawn);
            for (fanouts, by_type) in
                [("-1", ""), ("3", "small-a-big=1"), ("4,70,3", "big-b-big=0,2,5"), ("2,100", "c=-1,1")]
            {
                for pick in [Pick::Uniform, Pick::Weighted].into_iter().take(1 + usize::from(weights)) {
                    if pick == Pick::Weighted && trees[1].1 == "last" || !is_taken() {
                        continue;
                    }
                    let case = case.with_fanouts(fanouts).with_hops(|hops| hops.pick = pick).by(&TYPED);
                    let case = case.with(|s| {
                        let Sampling::Custom(custom) = &mut s.sampling else {
                            unreachable!("the case samples by type")
                        };
                        custom.settings.insert("fanouts_by_type".into(), by_type.into());
                        custom.settings.extend(trees.iter().map(|(name, value)| (name.to_string(), value.clone())));
                    });
                    check(subject, &case);
                }
            }
        }
    }
    // Hubs: long sub-rows, which lose many edges, and of which many neighbours are drawn.
    let hub: Vec<[u32; 2]> = (0..300).map(|v| [3 * v % 900, 0]).collect();
    let hub = Case::new(graphs::typed(900, 5, false)).with_fanouts("200,80").by(&TYPED).of_pairs(&hub, drawn);
    check(subject, &hub.with(|s| s.batch_size = 150));
    check(subject, &hub.with(|s| s.batch_size = 150).of_edge_types());
    let typed = Case::new(graphs::with_reverse(&graphs::typed(130, 8, true))).with(|s| s.batch_size = 40);
    for (fanouts, trees) in [("-1", false), ("3,2", false), ("3,2", true)] {
        let case = typed.with_fanouts(fanouts).by(&TYPED).with(|s| {
            let Sampling::Custom(custom) = &mut s.sampling else { unreachable!("the case samples by type") };
            custom.settings.insert("disjoint".into(), trees.into());
        });
        check(subject, &case.of_edges(drawn).of_edge_types());
    }
}

/// Mini-batches of pairs by any settings are valid, and those of the reference where the operator claims so.
fn check(subject: &Subject<'_>, case: &Case) {
    batches_fit_the_pairs(subject, case);
    laws::reordering_renames_the_nodes(subject, case);
    let has_reference = match &case.settings.sampling {
        Sampling::Custom(custom) => custom.kind == TYPED.name,
        _ => true,
    };
    if subject.description.interchangeable && has_reference {
        laws::batches_equal_the_reference(subject, case);
        shares_make_the_whole(subject, case);
    }
}

/// Positives, negatives and seeds are those of the pairs; the rest is that of the graph without the edges that are excluded.
fn batches_fit_the_pairs(subject: &Subject<'_>, case: &Case) {
    let pairs = case.seeds.pairs().expect("a case of pairs");
    let order = reference::pair_order(case, 2, pairs);
    let expected: Vec<&[usize]> = order.chunks(case.settings.batch_size).collect();
    assert_eq!(subject.build_valid(case).num_batches(), expected.len(), "mini-batches of an epoch of pairs");
    for (batch, indices) in subject.epoch(case, 2).into_iter().zip(expected) {
        let positives: &[[u32; 2]] = &indices.iter().map(|&pair| pairs.ends()[pair]).collect::<Vec<_>>();
        let found = batch.pairs.as_deref().expect("a mini-batch of pairs has pairs");
        assert_eq!(global(&batch, found.positives()), positives, "positives of {}", batch.id);
        seeds_are_the_ends(&batch, found);
        negatives_fit_the_settings(&batch, found, case, (pairs, indices));
        let (labels, targets) = reference::targets_of_pairs(pairs.targets(), indices);
        assert_eq!(batch.labels, labels, "labels of the pairs of {}", batch.id);
        assert_eq!(batch.targets, targets, "targets of the pairs of {}", batch.id);
        let types: Vec<u16> = indices.iter().filter_map(|&pair| pairs.edge_types().get(pair).copied()).collect();
        let (own, count) = (&found.edge_types[..types.len()], found.negatives_per_positive());
        assert_eq!(own, types, "edge types of the positives of {}", batch.id);
        let of_negatives: Vec<u16> = types.iter().flat_map(|&of| vec![of; count]).collect();
        assert_eq!(found.edge_types[types.len()..], of_negatives, "edge types of the negatives of {}", batch.id);
        let left = if pairs.settings().exclude {
            if types.is_empty() {
                no_edge_is_excluded(&batch, positives, case);
            }
            reference::without(&case.dataset, positives, &types)
        } else {
            (*case.dataset).clone()
        };
        let graph = Case { dataset: Arc::new(left), ..case.clone() };
        laws::batch_fits_the_graph(subject, &graph, &batch);
    }
}

/// Pairs of global ids.
fn global(batch: &HostBatch, pairs: &[[u32; 2]]) -> Vec<[u32; 2]> {
    pairs.iter().map(|pair| pair.map(|local| batch.seeds()[local as usize])).collect()
}

/// Each end node is a seed once, by first appearance, and there are no other seeds.
fn seeds_are_the_ends(batch: &HostBatch, pairs: &BatchPairs) {
    let mut next = 0;
    for &local in pairs.ends.as_flattened() {
        assert!(local <= next, "seeds are the end nodes of pairs by first appearance");
        next = next.max(local + 1);
    }
    assert_eq!(next as usize, batch.num_seeds, "seeds are the end nodes of pairs");
    let distinct: HashSet<&u32> = batch.seeds().iter().collect();
    assert_eq!(distinct.len(), batch.num_seeds, "each end node is a seed once");
}

/// `order` are the positions of the positives among the pairs.
fn negatives_fit_the_settings(
    batch: &HostBatch,
    pairs: &BatchPairs,
    case: &Case,
    (seeds, order): (&PairSeeds, &[usize]),
) {
    let PairSettings { negatives, distribution, avoid_edges, .. } = *seeds.settings();
    let expected = pairs.num_positives * (1 + negatives as usize);
    assert_eq!(pairs.ends.len(), expected, "positives and negatives of {}", batch.id);
    let destinations: HashSet<u32> = seeds.ends().iter().map(|pair| pair[1]).collect();
    for (positive, &pair) in order.iter().enumerate() {
        let source = pairs.positives()[positive][0];
        if distribution == NegativeDistribution::Given {
            chosen_of_given(&global(batch, pairs.negatives_of(positive)), seeds, pair);
        }
        for &[from, to] in pairs.negatives_of(positive) {
            assert_eq!(from, source, "a negative has the source of its positive");
            let [from, to] = [from, to].map(|local| batch.seeds()[local as usize]);
            let topology = &case.dataset.topology;
            if let Some(types) = topology.types().filter(|_| distribution != NegativeDistribution::Given) {
                let [of, own] = [to, seeds.ends()[pair][1]].map(|node| types.node_type(node));
                assert_eq!(of, own, "type of the destination {to} of a negative");
            }
            match distribution {
                NegativeDistribution::Degree => assert!(topology.degree(to) > 0, "in-degree of a negative"),
                NegativeDistribution::InBatch if pairs.num_positives > 1 => {
                    assert!(destinations.contains(&to), "a negative within the mini-batch");
                }
                _ => {}
            }
            // A source has few out-neighbours in a graph so large: one of the draws is none of them.
            if avoid_edges && distribution == NegativeDistribution::Uniform && case.dataset.num_nodes() >= 100 {
                let of = topology.edge_types().zip(seeds.edge_types().get(pair));
                let mut row = topology.edge_range(to);
                let is_edge = |edge: usize| {
                    topology.indices()[edge] == from && of.is_none_or(|(edge_types, of)| edge_types[edge] == *of)
                };
                assert!(!row.any(is_edge), "the negative {from},{to} is an edge");
            }
        }
    }
}

/// The negatives are of those given with the pair, in their order, and all of them where as many are taken.
fn chosen_of_given(negatives: &[[u32; 2]], seeds: &PairSeeds, pair: usize) {
    let given = seeds.given_of(pair);
    let mut left = given.iter();
    let in_order = negatives.iter().all(|[_, to]| left.any(|node| node == to));
    assert!(in_order, "negatives {negatives:?} of the {given:?} that are given with pair {pair}");
}

/// No positive of the mini-batch, in either direction, is one of its edges. Those of walks are visits, along edges that are left.
fn no_edge_is_excluded(batch: &HostBatch, positives: &[[u32; 2]], case: &Case) {
    match &case.settings.sampling {
        Sampling::Neighbor(_) | Sampling::Shadow(_) => {}
        Sampling::Custom(custom) if custom.kind == TYPED.name => {}
        _ => return,
    }
    let excluded: HashSet<[u32; 2]> = positives.iter().flat_map(|&[a, b]| [[a, b], [b, a]]).collect();
    for block in &batch.blocks {
        for row in 0..block.num_dst {
            for &local in block.row(row) {
                let edge = [local as usize, row].map(|local| batch.input_nodes[local]);
                assert!(!excluded.contains(&edge), "{} has the edge {edge:?}, which it is trained on", batch.id);
            }
        }
    }
}

/// A share has the positives at its positions and their negatives, as in the whole, and is what the reference makes of them;
/// shares side by side are the whole.
fn shares_make_the_whole(subject: &Subject<'_>, case: &Case) {
    for id in [ids(case, 2).remove(0), ids(case, 2).pop().expect("an epoch has a mini-batch")] {
        let whole = reference::sample(case, id);
        let pairs = whole.pairs.as_deref().expect("pairs");
        let n = pairs.num_positives;
        let cuts = [0, 1, (n / 3).max(1), n];
        let shares: Vec<_> = cuts.windows(2).map(|cut| cut[0]..cut[1]).filter(|cut| !cut.is_empty()).collect();
        let (mut positives, mut negatives) = (Vec::new(), Vec::new());
        for (share, part) in shares.iter().zip(subject.shares(case, id, &shares)) {
            let part = part.unwrap_or_else(|e| panic!("share {share:?} of {id}: {e}"));
            let mut expected = reference::sample_share(case, id, share.clone());
            if !subject.gathers() {
                expected.features = None;
            }
            assert_eq!(part.input_nodes, expected.input_nodes, "input nodes of the share {share:?} of {id}");
            assert_eq!(part, expected, "share {share:?} of {id}");
            let found = part.pairs.as_deref().expect("pairs");
            positives.extend(global(&part, found.positives()));
            negatives.extend(global(&part, &found.ends[found.num_positives..]));
        }
        assert_eq!(positives, global(&whole, pairs.positives()), "positives of all shares of {id}");
        assert_eq!(negatives, global(&whole, &pairs.ends[n..]), "negatives of all shares of {id}");
        for refused in subject.shares(case, id, &[0..0, n..n + 1]) {
            one_line("a share without a positive", &refused.expect_err("a share without a positive").to_string());
        }
        let beyond = BatchId { index: ids(case, 2).len() as u32, ..id };
        assert!(
            subject.shares(case, beyond, std::slice::from_ref(&(0..1))).remove(0).is_err(),
            "a mini-batch beyond the last"
        );
    }
}

fn cases() -> Vec<Case> {
    let settings = PairSettings::default();
    let of = |negatives, distribution| PairSettings { negatives, distribution, ..settings };
    let random = Case::new(graphs::random(120, 7, false));
    let weighted = Case::new(graphs::random(120, 7, true));
    let typed = Case::new(graphs::typed(120, 7, true));
    let reverses = Case::new(graphs::with_reverse(&graphs::typed(120, 7, false)));
    let avoiding = |settings| PairSettings { avoid_edges: true, ..settings };
    let (uniform, degree, within) =
        (NegativeDistribution::Uniform, NegativeDistribution::Degree, NegativeDistribution::InBatch);
    vec![
        random.of_edges(avoiding(of(5, uniform))),
        random.of_edges(of(3, degree)),
        weighted.of_edges(avoiding(of(2, degree))),
        weighted.of_edges(of(4, within)),
        random.of_edges(avoiding(of(2, within))),
        random.with(|s| s.shuffle = false).of_edges(of(0, uniform)),
        random.of_edges(of(0, uniform)).labelled(),
        weighted.with(|s| s.batch_size = 7).of_edges(PairSettings { exclude: false, ..of(0, degree) }).labelled(),
        random.of_edges(PairSettings { exclude: false, ..of(2, uniform) }),
        weighted.with(|s| s.batch_size = 1 << 20).of_edges(settings),
        // Mini-batches of one positive, which has no other to take a negative from.
        random.with(|s| s.batch_size = 1).of_pairs(&[[3, 0], [0, 3], [5, 5]], of(2, within)),
        Case::new(graphs::cycle(5)).with(|s| s.batch_size = 2).of_edges(of(7, uniform)),
        Case::new(graphs::cycle(1)).of_pairs(&[[0, 0]], avoiding(settings)),
        Case::new(graphs::random(60, 0, false)).of_pairs(&[[1, 2], [2, 1], [1, 2]], avoiding(settings)),
        Case::new(graphs::bare(&graphs::cycle(6))).of_edges(settings),
        typed.of_edges(avoiding(of(5, uniform))),
        typed.of_edges(of(3, degree)),
        typed.of_edges(avoiding(of(5, uniform))).of_edge_types(),
        reverses.of_edges(avoiding(of(2, degree))).of_edge_types(),
        reverses.of_edges(PairSettings { exclude: false, ..of(1, uniform) }).of_edge_types(),
        reverses.of_edges(settings).of_edge_types().with_given(5, 2),
        typed.of_pairs(&[[0, 100], [3, 101], [5, 100], [7, 110]], of(2, within)),
        random.of_edges(settings).with_given(4, 4),
        weighted.of_edges(PairSettings { exclude: false, ..settings }).with_given(9, 5),
        random.with(|s| s.batch_size = 1).of_pairs(&[[3, 0], [0, 3], [5, 5]], settings).with_given(40, 1),
    ]
}
