//! Mini-batches of pairs: positives, negatives, their end nodes, and the edges that are not sampled beside them.

use std::ops::Range;

use morphgl_graph_store::{Array, PairTargets, Topology};
use morphgl_registry::{BatchId, BatchPairs, Error, HostBatch, NegativeDistribution, PairSeeds, PairSettings, Result};

use crate::{Epochs, Order, Relabel};
use negatives::Negatives;

pub use excluded::{Excluded, ExcludedRow, TypesOfPairs};
pub use rows::{HostRows, ReadRows};

mod excluded;
mod negatives;
mod rows;

/// The pairs of an operator, and what their negatives are drawn from; shared by its workers.
#[derive(Debug)]
pub struct Pairs {
    seeds: PairSeeds,
    negatives: Negatives,
    /// Of pairs with edge types.
    types: Option<EdgeTypes>,
}

/// The types of a graph's edges.
#[derive(Debug)]
struct EdgeTypes {
    of_edges: Array<u16>,
    /// The reverse of each type by name.
    reverses: Vec<Option<u16>>,
}

impl Pairs {
    /// The pairs `seeds` of a graph with the offsets and draw keys of `topology`, and where pairs have edge types its types; other arrays
    /// are not read. `seed` is that of all randomness.
    ///
    /// # Errors
    ///
    /// Edge types of pairs of a graph without such types; more negatives per positive than [`MAX_FANOUT`](crate::MAX_FANOUT); negatives by degree in a graph without edges, or of a node
    /// type without in-edges; negatives within the mini-batch of destinations of several node types.
    ///
    /// # Complexity
    ///
    /// O(1), in a graph with node types O(pairs); in a reordered graph O(nodes) time and 4 bytes per node; for negatives by degree O(nodes) time and 12 bytes per node.
    pub fn new(topology: &Topology, seeds: &PairSeeds, seed: u64) -> Result<Self> {
        let negatives = Negatives::new(topology, seeds, seed)?;
        Ok(Self { seeds: seeds.clone(), negatives, types: EdgeTypes::of(topology, seeds)? })
    }

    /// Bytes of what negatives are drawn from.
    pub fn num_bytes(&self) -> u64 {
        self.negatives.num_bytes()
    }

    /// Bytes per node of what such negatives are drawn from.
    pub fn bytes_per_node(topology: &Topology, settings: &PairSettings) -> u64 {
        let drawn = settings.negatives > 0 && settings.distribution != NegativeDistribution::Given;
        let keys = if drawn && topology.draw_keys().is_some() { 4 } else { 0 };
        keys + if drawn && settings.distribution == NegativeDistribution::Degree { 12 } else { 0 }
    }

    /// How mini-batches are made of them.
    pub fn settings(&self) -> &PairSettings {
        self.seeds.settings()
    }
}

impl EdgeTypes {
    /// Of a graph whose edges have those of the pairs; `None` of pairs without types.
    fn of(topology: &Topology, seeds: &PairSeeds) -> Result<Option<Self>> {
        let Some(&highest) = seeds.edge_types().iter().max() else { return Ok(None) };
        let types = topology.types().zip(topology.edge_types());
        let Some((types, of_edges)) = types.filter(|(types, _)| usize::from(highest) < types.edge_types().len()) else {
            let what =
                format!("a pair is of edge type {highest}, which the graph does not have; give pairs of this graph");
            return Err(Error::setting("pairs", what));
        };
        let reverse = |of: usize| types.reverse_of(of).map(|reverse| reverse as u16);
        let reverses = (0..types.edge_types().len()).map(reverse).collect();
        Ok(Some(Self { of_edges: of_edges.clone(), reverses }))
    }
}

/// The pairs of one mini-batch after another, in the same memory: the part of a worker.
#[derive(Debug, Default)]
pub struct PairBatch {
    /// The positives of the whole mini-batch, and their edge types, where pairs have some.
    positives: Vec<[u32; 2]>,
    edge_types: Vec<u16>,
    /// The negatives that are drawn next: their indices, and the nodes whose rows say whether they are edges.
    drawn: Vec<u32>,
    destinations: Vec<u32>,
    relabel: Relabel,
    seeds: Vec<u32>,
    excluded: Excluded,
}

impl PairBatch {
    /// Draws the pairs of a share of the mini-batch `batch.id`, a range of its positives, and sets them and their targets in `batch`. Positions behind
    /// the last positive are left out. `order` is the worker's copy, replaced when the epoch changes.
    ///
    /// # Errors
    ///
    /// An epoch has no such mini-batch, or it has no positive at these positions; rows cannot be read.
    ///
    /// # Complexity
    ///
    /// O(pairs) expected, and the rows of the positives' end nodes: a binary search in each where they are sorted, else all of
    /// them. With edges avoided, so for the rows of the negatives' destinations.
    pub fn draw(
        &mut self,
        pairs: &Pairs,
        epochs: &Epochs,
        share: Range<usize>,
        order: &mut Option<Order>,
        rows: &mut impl ReadRows,
        batch: &mut HostBatch,
    ) -> Result<()> {
        let id = batch.id;
        let whole = epochs.positions(id, 0..usize::MAX)?;
        let share = epochs.positions(id, share)?;
        let share = share.start - whole.start..share.end - whole.start;
        let order = epochs.seeds(id, 0..usize::MAX, order)?;
        self.positives.clear();
        self.positives.extend(order.iter().map(|&pair| pairs.seeds.ends()[pair as usize]));
        self.edge_types.clear();
        if pairs.types.is_some() {
            self.edge_types.extend(order.iter().map(|&pair| pairs.seeds.edge_types()[pair as usize]));
        }
        let settings = *pairs.settings();
        let batch_pairs = batch.pairs.get_or_insert_default();
        batch_pairs.num_positives = share.len();
        let ends = &mut batch_pairs.ends;
        ends.clear();
        ends.extend_from_slice(&self.positives[share.clone()]);
        match settings.distribution {
            NegativeDistribution::Given => self.choose_negatives(pairs, id, (share.start, &order[share.clone()]), ends),
            _ => self.draw_negatives(pairs, id, share.start, ends, rows)?,
        }
        set_targets(pairs.seeds.targets(), &order[share.clone()], batch);
        let batch_pairs = batch.pairs.as_mut().expect("they were drawn");
        let count = batch_pairs.negatives_per_positive();
        let BatchPairs { ends, edge_types, .. } = &mut **batch_pairs;
        edge_types.clear();
        if pairs.types.is_some() {
            let own = &self.edge_types[share];
            edge_types.extend(own.iter().chain(own.iter().flat_map(|of| std::iter::repeat_n(of, count))));
        }
        self.relabel.start(std::mem::take(&mut self.seeds));
        self.relabel.locals(ends.as_flattened_mut());
        self.seeds = self.relabel.finish();
        if settings.exclude {
            let types = pairs.types.as_ref().map(|types| TypesOfPairs {
                of_pairs: &self.edge_types,
                reverses: &types.reverses,
                of_edges: &types.of_edges,
            });
            self.excluded.set(&self.positives, types, rows)?;
        }
        Ok(())
    }

    /// Appends the negatives that are given with the positives in `ends`: those of the mini-batch from position `first` on, which are
    /// the pairs `order`.
    fn choose_negatives(
        &mut self,
        pairs: &Pairs,
        id: BatchId,
        (first, order): (usize, &[u32]),
        ends: &mut Vec<[u32; 2]>,
    ) {
        let count = pairs.settings().negatives as usize;
        for (positive, &pair) in order.iter().enumerate() {
            let (given, source) = (pairs.seeds.given_of(pair as usize), ends[positive][0]);
            pairs.negatives.choose(id, first + positive, given.len(), count, &mut self.drawn);
            ends.extend(self.drawn.iter().map(|&at| [source, given[at as usize]]));
        }
    }

    /// Appends the negatives of the positives in `ends`, the first of which is the positive `first` of the whole mini-batch.
    fn draw_negatives(
        &mut self,
        pairs: &Pairs,
        id: BatchId,
        first: usize,
        ends: &mut Vec<[u32; 2]>,
        rows: &mut impl ReadRows,
    ) -> Result<()> {
        let Self { positives, edge_types, drawn, destinations, .. } = self;
        let (settings, num_positives) = (pairs.settings(), ends.len());
        let count = settings.negatives as usize;
        for i in 0..num_positives {
            ends.extend(std::iter::repeat_n(ends[i], count));
        }
        let negatives = &mut ends[num_positives..];
        drawn.clear();
        drawn.extend(0..negatives.len() as u32);
        for attempt in 0..PairSettings::MAX_TRIES {
            for &i in &*drawn {
                let (positive, number) = (first + i as usize / count, i % settings.negatives);
                negatives[i as usize][1] = pairs.negatives.draw(id, positives, positive, number, attempt);
            }
            if !settings.avoid_edges || drawn.is_empty() {
                break;
            }
            destinations.clear();
            destinations.extend(drawn.iter().map(|&i| negatives[i as usize][1]));
            let (mut kept, sorted) = (0, rows.are_sorted());
            let mut tested = 0;
            rows.read_rows(destinations, &mut |i, start, row| {
                debug_assert_eq!(i, tested, "rows in order");
                tested += 1;
                let source = negatives[drawn[i] as usize][0];
                let is_edge = match &pairs.types {
                    None if sorted => row.binary_search(&source).is_ok(),
                    None => row.contains(&source),
                    Some(types) => {
                        let own = edge_types[first + drawn[i] as usize / count];
                        let of_row = &types.of_edges[start as usize..start as usize + row.len()];
                        row.iter().zip(of_row).any(|edge| edge == (&source, &own))
                    }
                };
                drawn[kept] = drawn[i];
                kept += usize::from(is_edge);
            })?;
            drawn.truncate(kept);
        }
        Ok(())
    }

    /// The seeds: the end nodes of the pairs drawn last, each once, by first appearance.
    pub fn seeds(&self) -> &[u32] {
        &self.seeds
    }

    /// The edges that the mini-batch drawn last leaves out; none where its settings do not exclude any.
    pub fn excluded(&self) -> &Excluded {
        &self.excluded
    }
}

/// Sets the targets of `chosen` pairs; none where these have none.
fn set_targets(of_pairs: &PairTargets, chosen: &[u32], batch: &mut HostBatch) {
    let HostBatch { labels, targets, .. } = batch;
    labels.clear();
    targets.values.clear();
    targets.width = of_pairs.dim();
    if let Some(classes) = &of_pairs.labels {
        labels.extend(chosen.iter().map(|&pair| classes[pair as usize]));
    }
    if let Some(values) = &of_pairs.values {
        chosen.iter().for_each(|&pair| targets.values.extend_from_slice(values.row(pair)));
    }
}

#[cfg(test)]
mod tests;
