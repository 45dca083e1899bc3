//! Scores of link prediction: pairs of a split against pairs that do not exist.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Result, bail};
use morphgl_graph_store::{Dataset, negatives_per_pair};
use morphgl_model_core::{Candidates, KnownPairs, ModelSpec, Ranked, RankingScore, ScoreKind, TargetRank};
use morphgl_registry::{BatchPairs, NamedTensor, Targets, Training};
use morphgl_sampler_core::HostRows;
use rayon::prelude::*;

use crate::Group;
use crate::evaluated::Scored;
use crate::link_types;
use crate::task::{Examples, Split, mixed};

/// Negatives that are drawn for each pair of a split that has none of its own.
const DRAWN: usize = 100;
/// Draws of a negative until it is no edge; the last one stands.
const TRIES: u64 = 64;

/// The pairs of a split, and those that they are ranked against.
#[derive(Debug)]
struct PairSet<'a> {
    positives: &'a [[u32; 2]],
    /// Number of the edge type of each positive; none where pairs have no types.
    types: &'a [u16],
    negatives: Cow<'a, [[u32; 2]]>,
    /// Whether as many negatives belong to each pair.
    per_pair: bool,
}

impl<'a> PairSet<'a> {
    fn of(dataset: &'a Dataset, split: Split) -> Self {
        let edges = &dataset.edges;
        let (positives, given): (&[_], &[_]) = match split {
            Split::Train => (&[], &[]),
            Split::Valid => (edges.valid_pairs(), edges.valid_negative_pairs()),
            Split::Test => (edges.test_pairs(), edges.test_negative_pairs()),
        };
        let types: &[u16] = if positives.is_empty() { &[] } else { split.types(dataset) };
        if positives.is_empty() || !given.is_empty() {
            let per_pair = negatives_per_pair(positives, given).is_some();
            return Self { positives, types, negatives: given.into(), per_pair };
        }
        let graph = (dataset, HostRows::check_sorted(&dataset.topology));
        let drawn = (0..positives.len() * DRAWN).into_par_iter().with_min_len(DRAWN);
        let of = |i: usize| (positives[i / DRAWN], types.get(i / DRAWN).copied());
        let drawn: Vec<_> = drawn.map(|i| self::drawn(graph, split, of(i), i as u64)).collect();
        Self { positives, types, negatives: drawn.into(), per_pair: true }
    }

    /// Edge types of all pairs, positives first.
    fn all_types(&self) -> Vec<u16> {
        let count = self.negatives.len() / self.positives.len().max(1);
        let of_negatives = self.types.iter().flat_map(|&of| std::iter::repeat_n(of, count));
        self.types.iter().copied().chain(of_negatives).collect()
    }
}

/// A pair that is no edge, of a positive's edge type, where that is known, of the source of a positive and a node of the type of its
/// destination: a function of the graph, the split and the position.
fn drawn(
    (dataset, sorted): (&Dataset, bool),
    split: Split,
    ([source, destination], edge_type): ([u32; 2], Option<u16>),
    position: u64,
) -> [u32; 2] {
    let nodes = link_types::candidates(dataset, destination);
    let draw = |attempt: u64| {
        let key = ((split as u64) << 62) | (position << 8) | attempt;
        nodes.start + ((u64::from(mixed(key)) * nodes.len() as u64) >> 32) as u32
    };
    let is_edge = |v: u32| {
        let row = dataset.topology.neighbors(v);
        if let Some(of) = edge_type {
            return of_type(dataset, v, of).contains(&source);
        }
        v == source || if sorted { row.binary_search(&source).is_ok() } else { row.contains(&source) }
    };
    let found = (0..TRIES).map(draw).find(|&v| !is_edge(v));
    [source, found.unwrap_or_else(|| draw(TRIES - 1))]
}

/// Embeddings of the end nodes of pairs, and the pairs as rows of them.
pub(crate) struct Embedded {
    pub(crate) rows: Vec<f32>,
    pub(crate) pairs: Vec<[u32; 2]>,
}

/// Nodes to embed, and pairs of them by their positions.
pub(crate) struct Ends {
    pub(crate) nodes: Vec<u32>,
    pub(crate) pairs: Vec<[u32; 2]>,
}

impl Ends {
    /// The end nodes of pairs, each once.
    pub(crate) fn of(num_nodes: usize, pairs: impl Iterator<Item = [u32; 2]>) -> Self {
        let (mut nodes, mut row) = (Vec::new(), vec![u32::MAX; num_nodes]);
        let pairs = pairs.map(|ends| {
            ends.map(|v| {
                let row = &mut row[v as usize];
                if *row == u32::MAX {
                    *row = nodes.len() as u32;
                    nodes.push(v);
                }
                *row
            })
        });
        let pairs = pairs.collect();
        Self { nodes, pairs }
    }

    /// As [`Ends::of`], of all nodes: a node's position is its number.
    pub(crate) fn among_all(num_nodes: usize, pairs: impl Iterator<Item = [u32; 2]>) -> Self {
        Self { nodes: (0..num_nodes as u32).collect(), pairs: pairs.collect() }
    }

    /// Embeds them.
    pub(crate) fn embedded(self, training: &mut dyn Training, embed: Embed<'_>) -> Result<Embedded> {
        Ok(Embedded { rows: embed(training, &self.nodes)?, pairs: self.pairs })
    }

    /// The end nodes of the links or edges that a split is scored by.
    pub(crate) fn of_split(dataset: &Dataset, examples: Examples, split: Split) -> Self {
        if examples == Examples::Edges {
            return Self::of(dataset.num_nodes(), split.pairs(dataset).iter().copied());
        }
        let set = PairSet::of(dataset, split);
        Self::of(dataset.num_nodes(), set.positives.iter().chain(&*set.negatives).copied())
    }
}

/// Outputs of nodes with all neighbours; with a `group`, each of its trainers computes a part.
pub(crate) fn infer(training: &mut dyn Training, nodes: &[u32], group: Option<&Group>) -> Result<Vec<f32>> {
    match group {
        _ if nodes.is_empty() => Ok(Vec::new()),
        None => Ok(training.infer(nodes)?),
        Some(group) => group.infer(training, nodes),
    }
}

/// The sources of a node's edges of a type, which are a sub-row; none in a graph without types.
fn of_type(dataset: &Dataset, node: u32, edge_type: u16) -> &[u32] {
    let (topology, row) = (&dataset.topology, dataset.topology.edge_range(node));
    let of_row = topology.edge_types().map_or(&[][..], |types| &types[row.clone()]);
    let [first, end] =
        [u32::from(edge_type), u32::from(edge_type) + 1].map(|of| of_row.partition_point(|&own| u32::from(own) < of));
    &topology.indices()[row.start + first..row.start + end]
}

/// The edges of a dataset, from source to destination: those of the graph, and the pairs of its splits; of one edge type, if one is
/// given.
///
/// # Complexity
///
/// [`known_bytes`] of memory.
pub(crate) fn known_pairs(dataset: &Dataset, edge_type: Option<u16>) -> KnownPairs {
    if let Some(of) = edge_type {
        let edges =
            || (0..dataset.num_nodes() as u32).flat_map(|v| of_type(dataset, v, of).iter().map(move |&u| [u, v]));
        let of_split = |split: &Split| {
            let pairs = split.pairs(dataset).iter().zip(split.types(dataset));
            pairs.filter(|(_, own)| **own == of).map(|(pair, _)| *pair).collect::<Vec<_>>()
        };
        let splits: Vec<[u32; 2]> = Split::ALL.iter().flat_map(of_split).collect();
        return KnownPairs::of(dataset.num_nodes(), || edges().chain(splits.iter().copied()));
    }
    let (topology, train) = (&dataset.topology, named_train_pairs(dataset));
    let edges =
        || (0..dataset.num_nodes() as u32).flat_map(|v| topology.neighbors(v).iter().map(move |&source| [source, v]));
    let splits = [train, dataset.edges.valid_pairs(), dataset.edges.test_pairs()];
    KnownPairs::of(dataset.num_nodes(), || edges().chain(splits.into_iter().flatten().copied()))
}

/// Pairs to train on that may be no edges of the graph.
fn named_train_pairs(dataset: &Dataset) -> &[[u32; 2]] {
    dataset.edges.train.as_deref().map_or(&[], |nodes| nodes.as_chunks().0)
}

/// Whether a score ranks among all nodes but known ones.
pub(crate) fn any_filtered(kinds: &[ScoreKind]) -> bool {
    kinds.iter().filter_map(|kind| kind.ranking()).any(RankingScore::is_filtered)
}

/// Maximum bytes of [`known_pairs`].
pub(crate) fn known_bytes(dataset: &Dataset) -> u64 {
    let edges = &dataset.edges;
    let splits = named_train_pairs(dataset).len() + edges.valid_pairs().len() + edges.test_pairs().len();
    KnownPairs::max_bytes(dataset.num_nodes(), dataset.topology.num_edges() as usize + splits)
}

/// The elements of a decoder's parameters.
pub(crate) fn decoder_elements(model: &ModelSpec, parameters: Vec<NamedTensor>) -> Vec<f32> {
    let specs = model.parameters();
    let of_decoder = |name: &str| specs.iter().any(|p| p.name == name && p.layer == model.layers);
    parameters.into_iter().filter(|tensor| of_decoder(&tensor.name)).flat_map(|tensor| tensor.values).collect()
}

/// Scores of pairs of rows of embeddings, by the operator's own decoder or that of the model; `types` are their edge types, which are
/// read where that has a vector for each.
pub(crate) fn pair_scores(
    training: &mut dyn Training,
    model: &ModelSpec,
    rows: &[f32],
    (pairs, types): (&[[u32; 2]], &[u16]),
) -> Result<Vec<f32>> {
    if let Some(scores) = training.pair_scores(rows, pairs, model.num_classes) {
        return Ok(scores?);
    }
    let decoder = decoder_elements(model, training.parameters()?);
    Ok(model.decoder.scores(rows, model.num_classes, (pairs, types), &decoder))
}

/// Computes the embeddings of nodes.
pub(crate) type Embed<'a> = &'a mut dyn FnMut(&mut dyn Training, &[u32]) -> Result<Vec<f32>>;

/// The ranks of pairs, each among the nodes of its destination's type, in the order of the pairs; `ranks` gives those of pairs whose
/// destinations are of one type, and which are of one edge type, where `types` are those of the pairs.
fn ranks_by_type(
    dataset: &Dataset,
    (pairs, types): (&[[u32; 2]], &[u16]),
    ranks: impl Fn(&[[u32; 2]], Range<u32>, Option<u16>) -> Vec<TargetRank>,
) -> Vec<TargetRank> {
    let mut by_type = BTreeMap::<_, (Range<u32>, Vec<usize>)>::new();
    for (at, pair) in pairs.iter().enumerate() {
        let (nodes, of) = (link_types::candidates(dataset, pair[1]), types.get(at).copied());
        by_type.entry((of, nodes.start)).or_insert_with(|| (nodes, Vec::new())).1.push(at);
    }
    let mut all = vec![TargetRank::default(); pairs.len()];
    for ((of, _), (nodes, of_type)) in by_type {
        let some: Vec<[u32; 2]> = of_type.iter().map(|&at| pairs[at]).collect();
        of_type.into_iter().zip(ranks(&some, nodes, of)).for_each(|(at, rank)| all[at] = rank);
    }
    all
}

/// Scores splits: against the negatives that the dataset has, else against 100 drawn ones of each pair, the same at every call; filtered
/// scores against all nodes.
pub(crate) fn scored(
    training: &mut dyn Training,
    dataset: &Dataset,
    model: &ModelSpec,
    splits: &[Split],
    embed: Embed<'_>,
    kinds: &[ScoreKind],
) -> Result<Vec<Scored>> {
    let sets: Vec<PairSet<'_>> = splits.iter().map(|&split| PairSet::of(dataset, split)).collect();
    let all = sets.iter().flat_map(|set| set.positives.iter().chain(&*set.negatives).copied());
    let num_nodes = dataset.num_nodes();
    let filtered = any_filtered(kinds);
    if filtered && training.pair_scores(&[], &[], model.num_classes).is_some() {
        let why = "ranks among all nodes are computed by a decoder of MorphGL's, and the model has one of its own";
        bail!("--score: {why}; score by mrr or hits@K against negatives, or decode by dot");
    }
    if model.relations > 0 && sets.iter().any(|set| set.types.len() != set.positives.len()) {
        let cure = "give a dataset whose pairs have types";
        bail!("{}: its pairs have no edge types, for each of which the decoder has a vector; {cure}", dataset.name);
    }
    let has_types = sets.iter().any(|set| !set.types.is_empty());
    let ends = if filtered { Ends::among_all(num_nodes, all) } else { Ends::of(num_nodes, all) };
    let known = (filtered && !has_types).then(|| known_pairs(dataset, None));
    let embedded = ends.embedded(training, embed)?;
    let decoder = decoder_elements(model, training.parameters()?);
    let mut left = &embedded.pairs[..];
    let mut scored = Vec::new();
    for set in &sets {
        let (pairs, rest) = left.split_at(set.positives.len() + set.negatives.len());
        left = rest;
        if set.positives.is_empty() {
            scored.push(Scored { values: vec![f64::NAN; kinds.len()], ..Scored::default() });
            continue;
        }
        let batch =
            BatchPairs { num_positives: set.positives.len(), ends: pairs.to_vec(), edge_types: set.all_types() };
        let sums = training.score_logits(&embedded.rows, Targets::Pairs(&batch), model.num_classes)?;
        let scores = pair_scores(training, model, &embedded.rows, (pairs, &batch.edge_types))?;
        let (positives, negatives) = scores.split_at(set.positives.len());
        let ranked = match set.per_pair {
            true => Ranked::per_pair(positives, negatives),
            false => Ranked::shared(positives, negatives),
        };
        let ranks = filtered.then(|| {
            let (rows, positives) = ((&embedded.rows[..], model.num_classes), &pairs[..set.positives.len()]);
            ranks_by_type(dataset, (positives, set.types), |positives, nodes, of| {
                let own = known.is_none().then(|| known_pairs(dataset, of));
                let decoder = model.decoder.of_edge_type(&decoder, model.num_classes, of);
                model.decoder.ranks(
                    rows,
                    decoder,
                    positives,
                    &Candidates { nodes, known: known.as_ref().or(own.as_ref()) },
                )
            })
        });
        let among_all = Ranked::among_all(ranks.as_deref().unwrap_or_default());
        let value = |kind: &ScoreKind| match kind.ranking() {
            Some(ranking) if ranking.is_filtered() => ranking.value(&among_all),
            Some(ranking) => ranking.value(&ranked),
            None if *kind == ScoreKind::Loss => sums.loss(),
            None => sums.accuracy(),
        };
        scored.push(Scored { sums, values: kinds.iter().map(value).collect(), ..Scored::default() });
    }
    Ok(scored)
}
