//! Neighbour sampling (by edge type, too), ShaDow and random-walk sampling as `morphgl-sampler-core` documents them: slow and plain.
//!
//! Of the operators' code it shares only the Philox generator and the logarithm.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use morphgl_graph_store::{Dataset, PairTargets, Topology, Types};
use morphgl_platform::philox::philox4x32_10;
use morphgl_platform::splitmix64;
use morphgl_registry::{
    BatchFeatures, BatchId, BatchPairs, Block, CustomSettings, Expansion, Fanout, Fanouts, GivenRows, HostBatch,
    NegativeDistribution, NeighborSettings, PairSeeds, PairSettings, Pick, Sampling, ShadowSettings, TargetValues,
    WalkSettings,
};
use morphgl_sampler_core::{TYPED, ln};

use super::Case;

/// The mini-batch `id` of the case.
///
/// # Panics
///
/// As [`sample_share`].
pub fn sample(case: &Case, id: BatchId) -> HostBatch {
    sample_share(case, id, 0..usize::MAX)
}

/// The part of the mini-batch `id` that the seeds at positions `share` need alone, or the positives at these positions; positions
/// behind its last one are left out.
///
/// # Panics
///
/// When the share begins behind the last seed, or the kind of sampling is another crate's.
pub fn sample_share(case: &Case, id: BatchId, share: Range<usize>) -> HostBatch {
    if let Some(pairs) = case.seeds.pairs() {
        return sample_pairs(case, id, share, pairs);
    }
    if let Some(rows) = case.seeds.rows() {
        let order = ordered(case, id.epoch, (0..rows.rows().len()).collect());
        let chosen = batch_of(&order, case, id);
        let chosen = &chosen[share.start..share.end.min(chosen.len())];
        let of = |all: &[u32]| chosen.iter().map(|&at| all[at]).collect::<Vec<u32>>();
        let times: Vec<i64> = chosen.iter().map(|&at| rows.times()[at]).collect();
        let batch = sample_seeds(case, id, (&of(rows.nodes()), Some(&times)));
        let (labels, targets) = targets_of(&case.dataset, &of(rows.rows()));
        return HostBatch { labels, targets, ..batch };
    }
    let order = order(case, id.epoch);
    let seeds = batch_of(&order, case, id);
    sample_seeds(case, id, (&seeds[share.start..share.end.min(seeds.len())], None))
}

/// The mini-batch's part of an epoch's order.
fn batch_of<'o, T>(order: &'o [T], case: &Case, id: BatchId) -> &'o [T] {
    order.chunks(case.settings.batch_size).nth(id.index as usize).expect("the mini-batch is one of the epoch")
}

/// A share of a mini-batch of pairs: that of the end nodes of its pairs in the graph without the edges that are excluded.
fn sample_pairs(case: &Case, id: BatchId, share: Range<usize>, pairs: &PairSeeds) -> HostBatch {
    let order = pair_order(case, id.epoch, pairs);
    let indices = batch_of(&order, case, id);
    let positives: &[[u32; 2]] = &indices.iter().map(|&pair| pairs.ends()[pair]).collect::<Vec<_>>();
    let share = share.start..share.end.min(positives.len());
    let (labels, targets) = targets_of_pairs(pairs.targets(), &indices[share.clone()]);
    let mut chosen = positives[share.clone()].to_vec();
    for positive in share.clone() {
        let [source, _] = positives[positive];
        if pairs.settings().distribution == NegativeDistribution::Given {
            let given = pairs.given_of(indices[positive]);
            let (node, k) = (positive as u32, pairs.settings().negatives);
            let picked: BTreeSet<u32> = match given.len() as u32 {
                count if count == k => (0..k).collect(),
                count => floyd(case, id, (6, 0), node, count, k),
            };
            chosen.extend(picked.into_iter().map(|at| [source, given[at as usize]]));
            continue;
        }
        for number in 0..pairs.settings().negatives {
            let of = pairs.edge_types().get(indices[positive]).copied();
            chosen.push([source, negative(case, id, (positives, of), (positive, number), pairs.settings())]);
        }
    }
    let types: Vec<u16> = indices.iter().filter_map(|&pair| pairs.edge_types().get(pair).copied()).collect();
    let mut edge_types = types.get(share.clone()).unwrap_or_default().to_vec();
    for positive in 0..edge_types.len() {
        edge_types.extend(vec![edge_types[positive]; (chosen.len() - share.len()) / share.len()]);
    }
    let mut seeds: Vec<u32> = Vec::new();
    let mut local = |node: u32| {
        let known = seeds.iter().position(|&seed| seed == node);
        known.unwrap_or_else(|| {
            seeds.push(node);
            seeds.len() - 1
        }) as u32
    };
    let ends = chosen.iter().map(|&[source, destination]| [local(source), local(destination)]).collect();
    let dataset = match pairs.settings().exclude {
        true => without(&case.dataset, positives, &types),
        false => (*case.dataset).clone(),
    };
    let case = Case { dataset: Arc::new(dataset), ..case.clone() };
    let pairs = Some(Box::new(BatchPairs { num_positives: share.len(), ends, edge_types }));
    HostBatch { labels, targets, pairs, ..sample_seeds(&case, id, (&seeds, None)) }
}

/// Labels and targets of these pairs; none where pairs have none.
pub(super) fn targets_of_pairs(targets: &PairTargets, pairs: &[usize]) -> (Vec<i32>, TargetValues) {
    let labels = targets.labels.iter().flat_map(|labels| pairs.iter().map(|&pair| labels[pair])).collect();
    let rows = targets.values.iter().flat_map(|values| pairs.iter().flat_map(|&pair| values.row(pair as u32)));
    (labels, TargetValues { width: targets.dim(), values: rows.copied().collect() })
}

/// The graph without the edges that are among `pairs` in either direction: of any type, where pairs have no `types`; else of the type of
/// such a pair, and back of its reverse, which is any type where it has none by name.
pub fn without(dataset: &Dataset, pairs: &[[u32; 2]], types: &[u16]) -> Dataset {
    let topology = &dataset.topology;
    let is_left_out = |ends: [u32; 2], edge: usize| {
        let mut all = pairs.iter().enumerate();
        all.any(|(at, &[a, b])| match (types.get(at), topology.types(), topology.edge_types()) {
            (Some(&of), Some(types), Some(edge_types)) => {
                let (own, reverse) = (usize::from(edge_types[edge]), types.reverse_of(of.into()));
                ends == [a, b] && own == usize::from(of) || ends == [b, a] && reverse.is_none_or(|of| own == of)
            }
            _ => ends == [a, b] || ends == [b, a],
        })
    };
    let (mut indptr, mut left) = (vec![0], Vec::new());
    for node in 0..dataset.num_nodes() as u32 {
        left.extend(topology.edge_range(node).filter(|&edge| !is_left_out([topology.indices()[edge], node], edge)));
        indptr.push(left.len() as u64);
    }
    fn of<T: Copy>(values: &[T], left: &[usize]) -> Vec<T> {
        left.iter().map(|&edge| values[edge]).collect()
    }
    let weights = topology.weights().map(|weights| of(weights, &left).into());
    let graph = Topology::new(indptr, of(topology.indices(), &left), weights);
    let graph = graph.and_then(|graph| match topology.draw_keys() {
        Some(keys) => graph.with_draw_keys(keys.clone()),
        None => Ok(graph),
    });
    let graph = graph.and_then(|graph| match topology.types().zip(topology.edge_types()) {
        Some((types, edge_types)) => graph.with_types(Types::clone(types), of(edge_types, &left)),
        None => Ok(graph),
    });
    let times = topology.edge_times().map(|times| of(times, &left).into());
    let graph = graph.and_then(|graph| graph.with_times(topology.node_times().cloned(), times));
    Dataset { topology: graph.expect("fewer edges of a graph"), ..dataset.clone() }
}

/// The destination of negative `number` of the positive at `positive` of the mini-batch.
fn negative(
    case: &Case,
    id: BatchId,
    (positives, of): (&[[u32; 2]], Option<u16>),
    (positive, number): (usize, u32),
    settings: &PairSettings,
) -> u32 {
    let topology = &case.dataset.topology;
    let num_nodes = case.dataset.num_nodes() as u32;
    // A destination has the type of the positive's.
    let types = topology.types();
    let same_type =
        |&node: &u32| types.is_none_or(|types| types.node_type(node) == types.node_type(positives[positive][1]));
    let node = |key: u32| (0..num_nodes).find(|&node| draw_key(case, node) == key).expect("keys are a permutation");
    let mut drawn = 0;
    for attempt in 0..64 {
        let word = |tag, block, lane| word(case, tag, attempt, block, positive as u32, id, lane);
        let below = |n: usize| {
            let retries = (0..256).map(|r| word(7, 64 * number + r / 4, r % 4));
            below(n as u64, std::iter::once(word(6, number / 4, number % 4)).chain(retries))
        };
        drawn = match settings.distribution {
            NegativeDistribution::Degree => {
                let half = |lane| u128::from(word(6, number / 2, 2 * (number % 2) + lane));
                let weight = |node: u32| {
                    let root = (topology.degree(node) as f64).sqrt();
                    (65_536.0 * (root * root.sqrt())).floor() as u128
                };
                let total: u128 = (0..num_nodes).filter(same_type).map(weight).sum();
                let mut left = (half(0) + (half(1) << 32)) * total / (1 << 64);
                let nodes = (0..num_nodes).map(node).filter(same_type);
                let at = |&node: &u32| match left.checked_sub(weight(node)) {
                    Some(rest) => {
                        left = rest;
                        false
                    }
                    None => true,
                };
                nodes.into_iter().find(at).expect("weights add up to the total")
            }
            NegativeDistribution::InBatch if positives.len() > 1 => {
                let others = positives.iter().enumerate().filter(|(other, _)| *other != positive);
                others.map(|(_, pair)| pair[1]).nth(below(positives.len() - 1) as usize).expect("one of the others")
            }
            _ => {
                let nodes: Vec<u32> = (0..num_nodes).map(node).filter(same_type).collect();
                nodes[below(nodes.len()) as usize]
            }
        };
        let has_type = |edge: usize| topology.edge_types().zip(of).is_none_or(|(types, of)| types[edge] == of);
        let mut row = topology.edge_range(drawn);
        let is_edge = row.any(|edge| topology.indices()[edge] == positives[positive][0] && has_type(edge));
        if !(settings.avoid_edges && is_edge) {
            break;
        }
    }
    drawn
}

/// The part of a mini-batch that these seeds need, without pairs; seeds may have times other than their nodes'.
fn sample_seeds(case: &Case, id: BatchId, (seeds, times): (&[u32], Option<&[i64]>)) -> HostBatch {
    let (dataset, settings) = (&*case.dataset, &case.settings);
    let none = |_| false;
    let (nodes, blocks) = match &settings.sampling {
        Sampling::Neighbor(hops) => {
            let (nodes, blocks, _) = neighbor(case, id, seeds, hops, &none);
            (nodes, blocks)
        }
        Sampling::Shadow(ShadowSettings { hops, layers }) => {
            let (nodes, ..) = neighbor(case, id, seeds, hops, &none);
            let mut blocks = vec![induced(dataset, &nodes, nodes.len()); layers - 1];
            blocks.push(induced(dataset, &nodes, seeds.len()));
            (nodes, blocks)
        }
        Sampling::Walk(settings) => walk(case, id, seeds, settings),
        Sampling::Custom(custom) if custom.kind == TYPED.name => {
            let set = |name: &str| custom.settings.get(name).cloned().unwrap_or_default();
            let by_time = set("temporal").as_str().filter(|pick| *pick != "no").map(str::to_string);
            if by_time.is_none() && set("disjoint") != true {
                typed(case, id, seeds, custom)
            } else {
                let (nodes, blocks, trees) = disjoint(case, id, (seeds, times), custom, by_time.as_deref());
                return HostBatch { trees: Some(trees), ..assemble(case, id, seeds, (nodes, blocks)) };
            }
        }
        Sampling::Custom(custom) => panic!("there is no reference of sampling by {}", custom.kind),
    };
    assemble(case, id, seeds, (nodes, blocks))
}

/// The mini-batch `id` of neighbour sampling that leaves `given` nodes unexpanded.
///
/// # Panics
///
/// When the case samples otherwise.
pub fn sample_with_given(case: &Case, id: BatchId, given: &dyn Fn(u32) -> bool) -> HostBatch {
    let order = order(case, id.epoch);
    let seeds = batch_of(&order, case, id);
    let hops = case.settings.sampling.hops().expect("neighbour sampling");
    let (nodes, blocks, left_out) = neighbor(case, id, seeds, hops, given);
    let degrees = left_out.iter().map(|&v| degree(&case.dataset, v)).collect();
    let given =
        (!left_out.is_empty()).then(|| Box::new(GivenRows { nodes: left_out, degrees, ..GivenRows::default() }));
    HostBatch { given, ..assemble(case, id, seeds, (nodes, blocks)) }
}

fn assemble(case: &Case, id: BatchId, seeds: &[u32], (nodes, blocks): (Vec<u32>, Vec<Block>)) -> HostBatch {
    let dataset = &*case.dataset;
    // Labels of a dataset with a task are of its rows.
    let (labels, targets) = if dataset.task_rows.is_some() { Default::default() } else { targets_of(dataset, seeds) };
    HostBatch {
        id,
        num_seeds: seeds.len(),
        degrees: nodes.iter().map(|&v| degree(dataset, v)).collect(),
        given: None,
        labels,
        targets,
        features: features(case, &nodes),
        input_nodes: nodes,
        blocks,
        pairs: None,
        features_by_type: Vec::new(),
        trees: None,
    }
}

/// Labels and targets of a dataset's examples.
pub(super) fn targets_of(dataset: &Dataset, examples: &[u32]) -> (Vec<i32>, TargetValues) {
    let labels = dataset.labels.iter().flat_map(|labels| examples.iter().map(|&v| labels[v as usize])).collect();
    let values = dataset.targets.iter().flat_map(|rows| examples.iter().flat_map(|&v| rows.row(v).to_vec())).collect();
    (labels, TargetValues { width: dataset.target_dim(), values })
}

/// The block of `num_dst` destination nodes whose edges have these source nodes, in local ids of `nodes`, to which new ones are
/// added.
fn block(
    nodes: &mut Vec<u32>,
    num_dst: usize,
    mut edges: impl FnMut(usize) -> Vec<(u32, Option<f32>)>,
    has_weights: bool,
) -> Block {
    // Of a seed that repeats, the first occurrence.
    let mut local: HashMap<u32, u32> = nodes.iter().enumerate().rev().map(|(local, &v)| (v, local as u32)).collect();
    let mut block = Block { num_dst, indptr: vec![0], weights: has_weights.then(Vec::new), ..Block::default() };
    for row in 0..num_dst {
        for (neighbor, weight) in edges(row) {
            let known = *local.entry(neighbor).or_insert_with(|| {
                nodes.push(neighbor);
                nodes.len() as u32 - 1
            });
            block.indices.push(known);
            block.weights.iter_mut().for_each(|weights| weights.extend(weight));
        }
        block.indptr.push(block.indices.len() as u32);
    }
    block.num_src = nodes.len();
    block
}

/// Nodes and blocks of neighbour sampling, and the nodes of its last hop but one that are `given`.
fn neighbor(
    case: &Case,
    id: BatchId,
    seeds: &[u32],
    settings: &NeighborSettings,
    given: &dyn Fn(u32) -> bool,
) -> (Vec<u32>, Vec<Block>, Vec<u32>) {
    let topology = &case.dataset.topology;
    let (mut nodes, mut blocks, mut newest, mut left_out) = (seeds.to_vec(), Vec::<Block>::new(), 0, Vec::new());
    for (hop, &fanout) in settings.fanouts.0.iter().enumerate() {
        if hop > 0 && hop + 1 == settings.fanouts.0.len() {
            let found = nodes.clone();
            let is_given = |&v: &u32| given(v) && !found[..newest].contains(&v);
            (left_out, nodes) = found.iter().partition(|&v| is_given(v));
            let moved = [&nodes[..], &left_out].concat();
            let id_of = |local: u32| moved.iter().position(|&v| v == found[local as usize]).expect("found") as u32;
            blocks[0].indices.iter_mut().for_each(|local| *local = id_of(*local));
        }
        let known = nodes.clone();
        let first = if settings.expansion == Expansion::All { 0 } else { newest };
        newest = known.len();
        let edges = |row: usize| {
            let picked =
                if row < first { Vec::new() } else { pick(case, id, hop as u32, known[row], (settings.pick, fanout)) };
            picked.into_iter().map(|edge| (topology.indices()[edge], topology.weights().map(|w| w[edge]))).collect()
        };
        blocks.insert(0, block(&mut nodes, known.len(), edges, topology.weights().is_some()));
    }
    (nodes, blocks, left_out)
}

/// Nodes and blocks of sampling by edge type: every sub-row is picked from as a row is, with the number of its type in the upper half
/// of the epoch's word.
fn typed(case: &Case, id: BatchId, seeds: &[u32], settings: &CustomSettings) -> (Vec<u32>, Vec<Block>) {
    let topology = &case.dataset.topology;
    let hops = settings.hops.as_ref().expect("sampling by fanouts");
    let Some(types) = topology.types() else {
        let (nodes, blocks, _) = neighbor(case, id, seeds, hops, &|_| false);
        return (nodes, blocks);
    };
    let edge_types = topology.edge_types().expect("the type of each edge");
    let (mut nodes, mut blocks, mut newest) = (seeds.to_vec(), Vec::<Block>::new(), 0);
    for (hop, &fanout) in hops.fanouts.0.iter().enumerate() {
        let known = nodes.clone();
        let first = if hops.expansion == Expansion::All { 0 } else { newest };
        newest = known.len();
        let mut of_edges = Vec::new();
        let mut edges = |row: usize| {
            let mut picked = Vec::new();
            let rows = if row < first { 0 } else { types.edge_types().len() };
            for edge_type in 0..rows {
                let Some(fanout) = fanout_of(types, settings, hop, edge_type, fanout) else { continue };
                let edges = of_type(topology, known[row], edge_type);
                let id = BatchId { epoch: id.epoch ^ (edge_type as u32) << 16, ..id };
                picked.extend(pick_from(case, id, hop as u32, (known[row], edges), (hops.pick, fanout)));
            }
            of_edges.extend(picked.iter().map(|&edge| edge_types[edge]));
            picked.into_iter().map(|edge| (topology.indices()[edge], topology.weights().map(|w| w[edge]))).collect()
        };
        let block = block(&mut nodes, known.len(), &mut edges, topology.weights().is_some());
        blocks.insert(0, Block { edge_types: Some(of_edges), ..block });
    }
    (nodes, blocks)
}

/// The fanout of an edge type at a hop: its own, or `fanout`; `None` where none are sampled.
fn fanout_of(types: &Types, settings: &CustomSettings, hop: usize, edge_type: usize, fanout: Fanout) -> Option<Fanout> {
    let of_type = &types.edge_types()[edge_type];
    let text = settings.settings.get("fanouts_by_type").and_then(|text| text.as_str()).unwrap_or_default();
    let mut given = text.split(';').filter_map(|of_type| of_type.split_once('='));
    let own = given.find(|(name, _)| *name == of_type.name || *name == of_type.to_string());
    match own.and_then(|(_, fanouts)| fanouts.split(',').nth(hop)) {
        Some("0") => None,
        Some(given) => Some(given.parse::<Fanouts>().expect("a fanout").0[0]),
        None => Some(fanout),
    }
}

/// The edges of a node's row that are of a type; all of them in a graph without types.
fn of_type(topology: &Topology, node: u32, edge_type: usize) -> Vec<usize> {
    let is_one = |edge: &usize| topology.edge_types().is_none_or(|types| usize::from(types[*edge]) == edge_type);
    topology.edge_range(node).filter(is_one).collect()
}

/// Nodes, blocks and trees of sampling by edge type in a tree per seed. Random numbers of a tree have a seed of their own, by the
/// number of its seed; with times, a tree has the edges and nodes that are no later than its seed, at its node's time or that of `times`.
fn disjoint(
    case: &Case,
    id: BatchId,
    (seeds, times): (&[u32], Option<&[i64]>),
    settings: &CustomSettings,
    by_time: Option<&str>,
) -> (Vec<u32>, Vec<Block>, Vec<u32>) {
    let topology = &case.dataset.topology;
    let hops = settings.hops.as_ref().expect("sampling by fanouts");
    let time = |edge: usize| {
        let node = topology.node_times().map(|times| times[topology.indices()[edge] as usize]);
        let edge = topology.edge_times().map(|times| times[edge]);
        node.into_iter().chain(edge).max().unwrap_or(i64::MIN)
    };
    let cases: Vec<Case> =
        seeds.iter().map(|&v| case.with(|s| s.seed ^= splitmix64(u64::from(draw_key(case, v)) + 1))).collect();
    let mut nodes: Vec<(u32, u32)> = (0..).zip(seeds.iter().copied()).collect();
    let (mut blocks, mut newest) = (Vec::new(), 0);
    for (hop, &fanout) in hops.fanouts.0.iter().enumerate() {
        let known = nodes.clone();
        let first = if hops.expansion == Expansion::All { 0 } else { newest };
        newest = known.len();
        let has_weights = topology.weights().is_some();
        let mut block = Block { num_dst: known.len(), indptr: vec![0], ..Block::default() };
        block.weights = has_weights.then(Vec::new);
        block.edge_types = topology.types().map(|_| Vec::new());
        for (row, &(tree, node)) in known.iter().enumerate() {
            let num_types = topology.types().map_or(1, |types| types.edge_types().len());
            for edge_type in 0..if row < first { 0 } else { num_types } {
                let own = topology.types().map(|types| fanout_of(types, settings, hop, edge_type, fanout));
                let Some(fanout) = own.unwrap_or(Some(fanout)) else { continue };
                let mut edges = of_type(topology, node, edge_type);
                if by_time.is_some() {
                    let of_node = || topology.node_times().expect("times of nodes")[seeds[tree as usize] as usize];
                    let bound = times.map_or_else(of_node, |times| times[tree as usize]);
                    edges.retain(|&edge| time(edge) <= bound);
                }
                let picked = if by_time == Some("last") {
                    let mut latest = edges.clone();
                    latest.sort_by_key(|&edge| (time(edge), edge));
                    let count = fanout.take(edges.len() as u64) as usize;
                    let mut latest = latest.split_off(edges.len() - count);
                    latest.sort_unstable();
                    latest
                } else {
                    let id = BatchId { epoch: id.epoch ^ (edge_type as u32) << 16, ..id };
                    pick_from(&cases[tree as usize], id, hop as u32, (node, edges), (hops.pick, fanout))
                };
                for edge in picked {
                    let source = (tree, topology.indices()[edge]);
                    let local = nodes.iter().position(|known| *known == source).unwrap_or_else(|| {
                        nodes.push(source);
                        nodes.len() - 1
                    });
                    block.indices.push(local as u32);
                    block.weights.iter_mut().for_each(|weights| weights.extend(topology.weights().map(|w| w[edge])));
                    block.edge_types.iter_mut().for_each(|types| types.push(edge_type as u16));
                }
            }
            block.indptr.push(block.indices.len() as u32);
        }
        block.num_src = nodes.len();
        blocks.insert(0, block);
    }
    let (trees, nodes) = nodes.into_iter().unzip();
    (nodes, blocks, trees)
}

/// The edges among `nodes` that end in the first `num_dst` of them.
fn induced(dataset: &Dataset, nodes: &[u32], num_dst: usize) -> Block {
    let (topology, members) = (&dataset.topology, nodes.iter().copied().collect::<HashSet<u32>>());
    let edges = |row: usize| {
        let within = topology.edge_range(nodes[row]).filter(|&edge| members.contains(&topology.indices()[edge]));
        within.map(|edge| (topology.indices()[edge], topology.weights().map(|w| w[edge]))).collect()
    };
    block(&mut nodes.to_vec(), num_dst, edges, topology.weights().is_some())
}

/// Nodes and blocks of sampling by random walks.
fn walk(case: &Case, id: BatchId, seeds: &[u32], settings: &WalkSettings) -> (Vec<u32>, Vec<Block>) {
    let (mut nodes, mut blocks) = (seeds.to_vec(), Vec::new());
    for hop in 0..settings.layers as u32 {
        let known = nodes.clone();
        let edges = |row: usize| visits(case, id, (hop, known[row]), settings);
        blocks.insert(0, Block { importance: true, ..block(&mut nodes, known.len(), edges, true) });
    }
    (nodes, blocks)
}

/// The nodes that the walks from `node` visit most often, and how often.
fn visits(case: &Case, id: BatchId, (hop, node): (u32, u32), settings: &WalkSettings) -> Vec<(u32, Option<f32>)> {
    let (topology, key) = (&case.dataset.topology, draw_key(case, node));
    let mut visits: Vec<(u32, f32)> = Vec::new();
    for walk in 0..settings.walks {
        let mut at = node;
        for step in 0..settings.length {
            let number = walk * settings.length + step;
            let ends =
                u64::from(word(case, 4, hop, number, key, id, 1)) < (settings.restart * 2f64.powi(32)).round() as u64;
            let range = topology.edge_range(at);
            if range.is_empty() || (step > 0 && ends) {
                break;
            }
            let first = word(case, 4, hop, number, key, id, 0);
            let retries = (0..256).map(|r| word(case, 5, hop, 64 * number + r / 4, key, id, r % 4));
            let position = below(range.len() as u64, std::iter::once(first).chain(retries));
            at = topology.indices()[range.start + position as usize];
            match visits.iter_mut().find(|(visited, _)| *visited == at) {
                Some((_, count)) => *count += 1.0,
                None if at != node => visits.push((at, 1.0)),
                None => {}
            }
        }
    }
    // Stable: of nodes visited equally often, those visited first come first.
    visits.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    visits.truncate(settings.neighbors as usize);
    visits.into_iter().map(|(node, count)| (node, Some(count))).collect()
}

/// The in-degree of a node, or the sum of its edges' weights.
pub fn degree(dataset: &Dataset, node: u32) -> f32 {
    let range = dataset.topology.edge_range(node);
    match dataset.topology.weights() {
        Some(weights) => weights[range].iter().map(|&w| f64::from(w)).sum::<f64>() as f32,
        None => range.len() as f32,
    }
}

/// Features of the nodes, row by row.
pub fn features(case: &Case, nodes: &[u32]) -> Option<BatchFeatures> {
    let matrix = case.dataset.features.as_ref().filter(|_| case.gather)?;
    let mut features = BatchFeatures::like(matrix);
    let rows = nodes.iter().flat_map(|&v| matrix.rows(v as usize..v as usize + 1).as_bytes().to_vec());
    let bytes: Vec<u8> = rows.collect();
    features.resize(nodes.len(), matrix.dim(), matrix.dtype()).copy_from_slice(&bytes);
    Some(features)
}

/// Random word `lane` of a counter.
fn word(case: &Case, tag: u32, hop: u32, block: u32, node: u32, id: BatchId, lane: u32) -> u32 {
    let seed = case.settings.seed;
    let counter = [tag << 28 | hop << 22 | block, node, id.index, id.epoch];
    philox4x32_10(counter, [seed as u32, (seed >> 32) as u32])[lane as usize]
}

/// A random number below `n`, from the first word that rejection sampling accepts.
fn below(n: u64, mut words: impl Iterator<Item = u32>) -> u32 {
    let accepted = words.find(|&w| (u64::from(w) * n) % (1 << 32) >= (1 << 32) % n);
    (u64::from(accepted.expect("one of 257 words is accepted")) * n / (1 << 32)) as u32
}

/// The seeds in the order of an epoch.
pub fn order(case: &Case, epoch: u32) -> Vec<u32> {
    ordered(case, epoch, case.seeds.nodes().to_vec())
}

/// The positions of the pairs in the order of an epoch.
pub fn pair_order(case: &Case, epoch: u32, pairs: &PairSeeds) -> Vec<usize> {
    ordered(case, epoch, (0..pairs.ends().len()).collect())
}

fn ordered<T>(case: &Case, epoch: u32, mut order: Vec<T>) -> Vec<T> {
    if case.settings.shuffle {
        let id = BatchId { epoch, index: 0 };
        for i in (1..order.len() as u32).rev() {
            let first = word(case, 2, 0, 0, i / 4, id, i % 4);
            let retries = (0..256).map(|r| word(case, 3, 0, r / 4, i, id, r % 4));
            order.swap(i as usize, below(u64::from(i) + 1, std::iter::once(first).chain(retries)) as usize);
        }
    }
    order
}

/// The node's number in its random draws: a reordered graph draws by the numbers that its nodes had before.
fn draw_key(case: &Case, node: u32) -> u32 {
    case.dataset.topology.draw_keys().map_or(node, |keys| keys[node as usize])
}

/// The sampled edges of a node, ascending.
fn pick(case: &Case, id: BatchId, hop: u32, node: u32, picks: (Pick, Fanout)) -> Vec<usize> {
    pick_from(case, id, hop, (node, case.dataset.topology.edge_range(node).collect()), picks)
}

/// The sampled ones of some edges of a node, ascending.
fn pick_from(
    case: &Case,
    id: BatchId,
    hop: u32,
    (node, edges): (u32, Vec<usize>),
    (pick, fanout): (Pick, Fanout),
) -> Vec<usize> {
    let mut candidates: Vec<usize> = (0..edges.len()).collect();
    if pick == Pick::Weighted {
        let weights = case.dataset.topology.weights().expect("a weighted pick needs weights");
        candidates.retain(|&p| weights[edges[p]] > 0.0);
    }
    let k = match fanout {
        Fanout::AtMost(k) if (k.get() as usize) < candidates.len() => k.get(),
        _ => return candidates.into_iter().map(|p| edges[p]).collect(),
    };
    let key = draw_key(case, node);
    let positions: BTreeSet<u32> = match pick {
        Pick::Uniform => floyd(case, id, (0, hop), key, edges.len() as u32, k),
        Pick::Weighted => {
            let weights = case.dataset.topology.weights().expect("a weighted pick needs weights");
            let time = |p: usize| {
                let (edge, p) = (edges[p], p as u32);
                let lane = |lane| u64::from(word(case, 0, hop, p / 2, key, id, 2 * (p % 2) + lane));
                let bits = (lane(0) + (lane(1) << 32)) / (1 << 12);
                (-ln((bits as f64 + 0.5) / (1u64 << 52) as f64) / f64::from(weights[edge]), p)
            };
            let mut times: Vec<(f64, u32)> = candidates.into_iter().map(time).collect();
            times.sort_by(|a, b| a.partial_cmp(b).expect("times are numbers"));
            times.into_iter().take(k as usize).map(|(_, p)| p).collect()
        }
    };
    positions.into_iter().map(|p| edges[p as usize]).collect()
}

/// `k` of `degree` positions, by the numbers of stream `tag` and, where rejected, of the next one.
fn floyd(case: &Case, id: BatchId, (tag, hop): (u32, u32), node: u32, degree: u32, k: u32) -> BTreeSet<u32> {
    let mut picked = BTreeSet::new();
    for i in 0..k {
        let j = degree - k + i;
        let first = word(case, tag, hop, i / 4, node, id, i % 4);
        let retries = (0..256).map(|r| word(case, tag + 1, hop, 64 * i + r / 4, node, id, r % 4));
        let drawn = below(u64::from(j) + 1, std::iter::once(first).chain(retries));
        picked.insert(if picked.contains(&drawn) { j } else { drawn });
    }
    picked
}
