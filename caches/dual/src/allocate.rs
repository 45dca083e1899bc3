//! The allocator: entries of any nodes, the best by saving per byte.

use morphgl_row_cache::NodeMap;

use crate::histogram::{Histogram, density};
use crate::kind::{CacheShare, Kind};

/// Maximum number of times that the budget, or what is left of it, is divided.
const ROUNDS: usize = 8;

/// Divides `budget` bytes among the entries of all `kinds`: greedily by saving per byte, with each kind's tables charged to
/// the budget. A kind whose tables cost more than its entries save gets nothing.
///
/// The shares' bytes are at most the budget, and what they save is at most what one entry saves less than the optimum, where
/// entries are small beside the budget: greedy is optimal but for the bytes that it leaves. Entries that save the same per
/// byte are cached in the order of kinds and nodes.
///
/// # Panics
///
/// With more than 8 kinds.
///
/// # Complexity
///
/// Three passes over the nodes, and three more each time that an entry which did not fit left more than a thousandth of the
/// budget (seven times at most). 512 KiB and one bit per node for each kind, and 512 KiB.
pub fn allocate<const N: usize>(num_nodes: u32, kinds: [Kind<'_>; N], budget: u64) -> [Option<CacheShare>; N] {
    assert!(N <= 8, "{N} kinds, at most 8");
    let all = kinds.map(|kind| {
        // Entries that cannot fit must not end the selection of smaller ones.
        let most = budget.saturating_sub(kind.tables);
        Histogram::of((0..num_nodes).filter_map(|node| kind.entry(node)).filter(|&(_, bytes)| bytes <= most))
    });
    let Some((chosen, rest, _)) = best_kinds(&kinds, &all, budget) else { return [const { None }; N] };
    let mut histograms: Vec<Histogram> =
        all.into_iter().enumerate().filter(|(k, _)| chosen.contains(k)).map(|(_, h)| h).collect();
    let of_kind = |&k: &usize| Selected { kind: kinds[k], nodes: Bits::new(num_nodes), bytes: 0, saving: 0.0 };
    let mut selection = Selection { num_nodes, kinds: chosen.iter().map(of_kind).collect(), rest };
    for _ in 0..ROUNDS {
        if selection.round(&histograms) || selection.rest <= budget / 1024 {
            break;
        }
        let left = selection.kinds.iter();
        histograms = left.map(|k| Histogram::of(k.candidates(num_nodes, selection.rest).map(|(_, e)| e))).collect();
    }
    let mut shares = [const { None }; N];
    for (k, selected) in chosen.into_iter().zip(selection.kinds) {
        shares[k] = selected.share(num_nodes);
    }
    shares
}

/// What the best entries of all `kinds` save within each of the ascending `budgets`, tables charged as [`allocate`] does; it
/// never falls. An entry at the end of a budget is taken in part, so that [`allocate`] saves no more than that but for the
/// rounding of savings per byte to less than a hundredth.
///
/// # Panics
///
/// With more than 8 kinds.
///
/// # Complexity
///
/// One pass over the nodes for all budgets. 512 KiB for each kind.
pub fn savings<const N: usize>(num_nodes: u32, kinds: [Kind<'_>; N], budgets: &[u64]) -> Vec<f64> {
    assert!(N <= 8, "{N} kinds, at most 8");
    let all = kinds.map(|kind| Histogram::of((0..num_nodes).filter_map(|node| kind.entry(node))));
    let mut most = 0f64;
    let saving = |&budget: &u64| {
        // Rounding must not make a larger budget save less.
        most = best_kinds(&kinds, &all, budget).map_or(0.0, |(_, _, saving)| saving).max(most);
        most
    };
    budgets.iter().map(saving).collect()
}

/// The kinds worth their tables, the bytes that these leave, and what is saved; `None` if nothing is worth caching.
fn best_kinds(kinds: &[Kind<'_>], histograms: &[Histogram], budget: u64) -> Option<(Vec<usize>, u64, f64)> {
    let (mut best, mut most) = (None, 0.0);
    for subset in 1u32..1 << kinds.len() {
        let chosen: Vec<usize> = (0..kinds.len()).filter(|k| subset >> k & 1 == 1).collect();
        let tables = chosen.iter().fold(0u64, |sum, &k| sum.saturating_add(kinds[k].tables));
        let Some(room) = budget.checked_sub(tables) else { continue };
        let saving = Histogram::saving(&chosen.iter().map(|&k| &histograms[k]).collect::<Vec<_>>(), room);
        if saving > most {
            (best, most) = (Some((chosen, room, saving)), saving);
        }
    }
    best
}

/// A set of nodes.
struct Bits(Vec<u64>);

impl Bits {
    fn new(num_nodes: u32) -> Self {
        Self(vec![0; (num_nodes as usize).div_ceil(64)])
    }

    fn contains(&self, node: u32) -> bool {
        self.0[node as usize / 64] >> (node % 64) & 1 == 1
    }

    fn insert(&mut self, node: u32) {
        self.0[node as usize / 64] |= 1 << (node % 64);
    }
}

/// Entries of one kind selected so far.
struct Selected<'a> {
    kind: Kind<'a>,
    nodes: Bits,
    bytes: u64,
    saving: f64,
}

impl Selected<'_> {
    /// The nodes not selected yet whose entry takes at most `most` bytes, with saving and bytes of the entry.
    fn candidates(&self, num_nodes: u32, most: u64) -> impl Iterator<Item = (u32, (f32, u64))> + '_ {
        let left = (0..num_nodes).filter(move |&node| !self.nodes.contains(node));
        left.filter_map(move |node| Some((node, self.kind.entry(node)?))).filter(move |&(_, (_, bytes))| bytes <= most)
    }

    fn share(self, num_nodes: u32) -> Option<CacheShare> {
        let map = NodeMap::new(num_nodes as usize, |node| self.nodes.contains(node));
        (!map.is_empty()).then_some(CacheShare { map, bytes: self.bytes + self.kind.tables, saving: self.saving })
    }
}

struct Selection<'a> {
    num_nodes: u32,
    kinds: Vec<Selected<'a>>,
    /// Bytes left.
    rest: u64,
}

impl Selection<'_> {
    /// Selects the best entries that fit into what is left, by their histograms; returns whether these were all.
    fn round(&mut self, histograms: &[Histogram]) -> bool {
        let (num_nodes, most) = (self.num_nodes, self.rest);
        let threshold = Histogram::threshold(&histograms.iter().collect::<Vec<_>>(), most, || {
            self.kinds.iter().flat_map(|kind| kind.candidates(num_nodes, most).map(|(_, entry)| entry))
        });
        self.rest = threshold.rest;
        for selected in &mut self.kinds {
            for node in 0..num_nodes {
                if selected.nodes.contains(node) {
                    continue;
                }
                let Some(entry) = selected.kind.entry(node) else { continue };
                let ((saving, bytes), density) = (entry, density(entry));
                if density >= threshold.from {
                    // Larger ones are no candidates.
                    if bytes > most {
                        continue;
                    }
                } else if density + 1 == threshold.from && bytes <= self.rest {
                    // Of those just below, as many as fit.
                    self.rest -= bytes;
                } else {
                    continue;
                }
                selected.nodes.insert(node);
                selected.bytes += bytes;
                selected.saving += f64::from(saving);
            }
        }
        threshold.from == 0
    }
}
