//! The edges that a mini-batch of pairs leaves out of the graph.

use std::ops::Range;

use morphgl_registry::Result;

use super::ReadRows;
use crate::weighted::count_positive;

/// An entry of the hash table without a row.
const FREE: u32 = u32::MAX;
/// Entries of the hash table per row, at least.
const SPARSE: usize = 4;

/// The edges of the graph that a mini-batch leaves out: its positives, their parallel edges and their reverses. Samplers see
/// each row that loses edges as if it had the others alone, in their order.
///
/// ```
/// use morphgl_sampler_core::{Excluded, HostRows};
/// use morphgl_graph_store::Topology;
///
/// // Node 0 has the in-neighbours 1, 2, 1 and 0; node 1 has 0; node 2 has none.
/// let graph = Topology::new(vec![0, 4, 5, 5], vec![1, 2, 1, 0, 0], None)?;
/// let mut excluded = Excluded::default();
/// excluded.set(&[[1, 0]], None, &mut HostRows::new(&graph, false))?;
/// let row = excluded.get(0).expect("it loses both edges from 1");
/// assert_eq!((row.degree, [0, 1].map(|position| row.position(position))), (2, [1, 3]));
/// assert_eq!(excluded.get(1).map(|row| row.degree), Some(0)); // its only edge is the reverse
/// assert!(excluded.get(2).is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Excluded {
    rows: Vec<Row>,
    /// The position of each edge that is left out, row after row, less the number of those before it in its row.
    skips: Vec<u32>,
    // Invariant: empty, or a power of two entries, more than `rows.len()`. A row is at the first free entry from its node's home on.
    table: Vec<u32>,
    /// Buffers: the edges (destination, source) that may be left out, ascending, and their distinct destinations.
    edges: Vec<u64>,
    nodes: Vec<u32>,
    /// The edges of each of `nodes`.
    ends: Vec<usize>,
    /// Of pairs with edge types, `edges` with the type of each, [`ANY`] for all; ascending.
    typed: Vec<(u64, u32)>,
}

/// Edge types of pairs, and of a graph.
#[derive(Debug, Clone, Copy)]
pub struct TypesOfPairs<'a> {
    /// Number of the edge type of each pair.
    pub of_pairs: &'a [u16],
    /// The reverse of each edge type; `None` where it has none by name.
    pub reverses: &'a [Option<u16>],
    /// Number of the type of each edge, in the order of the graph's indices.
    pub of_edges: &'a [u16],
}

/// Stands for all edge types.
const ANY: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Row {
    node: u32,
    /// Number of edges that are left.
    degree: u32,
    start: u64,
    skips: Range<u32>,
}

/// A row that loses edges.
#[derive(Debug, Clone, Copy)]
pub struct ExcludedRow<'a> {
    /// Position of the whole row's first edge in the graph's indices.
    pub start: u64,
    /// Number of edges that are left, at the positions `0..degree` of the row without the others.
    pub degree: u32,
    /// Of a part of a row ([`ExcludedRow::part`]), the number of edges that are left before it; else 0.
    first: u32,
    skips: &'a [u32],
}

impl Excluded {
    /// The edges from source to destination and back of each of `pairs`, as often as the graph has them. Of pairs with `types`, those of
    /// the pair's type and back those of its reverse, or where it has none those of all types.
    ///
    /// # Errors
    ///
    /// Rows cannot be read.
    ///
    /// # Complexity
    ///
    /// O(pairs · log(pairs)), and the rows of their end nodes: a binary search where they are sorted, else one pass.
    pub fn set(&mut self, pairs: &[[u32; 2]], types: Option<TypesOfPairs<'_>>, rows: &mut impl ReadRows) -> Result<()> {
        let Self { rows: found, skips, edges, nodes, ends, typed, .. } = self;
        edges.clear();
        typed.clear();
        match types {
            None => edges.extend(pairs.iter().flat_map(|&[a, b]| [edge(a, b), edge(b, a)])),
            Some(types) => {
                let back = |of: u16| types.reverses[usize::from(of)].map_or(ANY, u32::from);
                let of_pair = |(&[a, b], &of): (&[u32; 2], &u16)| [(edge(a, b), of.into()), (edge(b, a), back(of))];
                typed.extend(pairs.iter().zip(types.of_pairs).flat_map(of_pair));
                typed.sort_unstable();
                edges.extend(typed.iter().map(|(edge, _)| edge));
            }
        }
        edges.sort_unstable();
        edges.dedup();
        let has_type = |edge: u64, at: u64| {
            let Some(types) = types else { return true };
            let first = typed.partition_point(|(other, _)| *other < edge);
            let mut of_edge = typed[first..].iter().take_while(|(other, _)| *other == edge);
            of_edge.any(|&(_, of)| of == ANY || of == u32::from(types.of_edges[at as usize]))
        };
        nodes.clear();
        ends.clear();
        for (i, &edge) in edges.iter().enumerate() {
            let destination = (edge >> 32) as u32;
            if nodes.last() != Some(&destination) {
                nodes.push(destination);
                ends.push(i);
            }
            *ends.last_mut().expect("pushed with the first node") = i + 1;
        }
        found.clear();
        skips.clear();
        let sorted = rows.are_sorted();
        rows.read_rows(nodes, &mut |i, start, row| {
            let sources = &edges[i.checked_sub(1).map_or(0, |before| ends[before])..ends[i]];
            let first = skips.len();
            let mut skip = |position: usize| {
                if has_type(edge(row[position], nodes[i]), start + position as u64) {
                    skips.push(position as u32);
                }
            };
            if sorted {
                for &edge in sources {
                    let source = edge as u32;
                    let begin = row.partition_point(|&u| u < source);
                    (begin..row.len()).take_while(|&p| row[p] == source).for_each(&mut skip);
                }
            } else if let [edge] = sources {
                let source = *edge as u32;
                row.iter().enumerate().filter(|(_, u)| **u == source).for_each(|(p, _)| skip(p));
            } else {
                let is_source = |u: u32| sources.binary_search_by_key(&u, |&edge| edge as u32).is_ok();
                row.iter().enumerate().filter(|(_, u)| is_source(**u)).for_each(|(p, _)| skip(p));
            }
            let count = skips.len() - first;
            skips[first..].iter_mut().zip(0..).for_each(|(position, before)| *position -= before);
            if count > 0 {
                let (node, degree) = (nodes[i], (row.len() - count) as u32);
                found.push(Row { node, degree, start, skips: first as u32..skips.len() as u32 });
            }
        })?;
        self.fill_table();
        Ok(())
    }

    fn fill_table(&mut self) {
        let Self { rows, table, .. } = self;
        let len = (rows.len() * SPARSE).next_power_of_two();
        table.clear();
        table.resize(len, FREE);
        for (i, row) in rows.iter().enumerate() {
            let mut at = home(row.node, len);
            while table[at] != FREE {
                at = (at + 1) & (len - 1);
            }
            table[at] = i as u32;
        }
    }

    /// Number of rows that lose edges.
    pub fn num_rows(&self) -> usize {
        self.rows.len()
    }

    /// The rows that lose edges with their nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, ExcludedRow<'_>)> {
        self.rows.iter().enumerate().map(|(index, row)| (row.node, self.row(index)))
    }

    /// Index of a node's row among those that lose edges.
    #[inline]
    pub fn find(&self, node: u32) -> Option<usize> {
        if self.rows.is_empty() {
            return None;
        }
        let len = self.table.len();
        let mut at = home(node, len);
        loop {
            match self.table[at] {
                FREE => return None,
                i if self.rows[i as usize].node == node => return Some(i as usize),
                _ => at = (at + 1) & (len - 1),
            }
        }
    }

    /// The row at an index returned by [`Excluded::find`].
    ///
    /// # Panics
    ///
    /// When there is no such row.
    #[inline]
    pub fn row(&self, index: usize) -> ExcludedRow<'_> {
        let Row { start, degree, ref skips, .. } = self.rows[index];
        ExcludedRow { start, degree, first: 0, skips: &self.skips[skips.start as usize..skips.end as usize] }
    }

    /// The node's row; `None` where it loses no edge.
    #[inline]
    pub fn get(&self, node: u32) -> Option<ExcludedRow<'_>> {
        self.find(node).map(|index| self.row(index))
    }

    /// Replaces the degrees of those of `nodes` whose rows lose edges: by the number of edges that are left, or with `weights` by the
    /// sum of theirs, in f64 and rounded once. Nodes are distinct, but for those of disjoint `trees`.
    pub fn set_degrees(&self, weights: Option<&[f32]>, nodes: &[u32], trees: bool, degrees: &mut [f32]) {
        let mut left = self.num_rows();
        for (&node, degree) in nodes.iter().zip(degrees) {
            if left == 0 {
                break;
            }
            if let Some(row) = self.get(node) {
                left -= usize::from(!trees);
                *degree = match weights {
                    None => row.degree as f32,
                    Some(weights) => row.edges().map(|edge| f64::from(weights[edge as usize])).sum::<f64>() as f32,
                };
            }
        }
    }
}

impl ExcludedRow<'_> {
    /// Number of edges of the whole row, those that are lost included.
    pub fn whole_degree(&self) -> u32 {
        self.degree + self.skips.len() as u32
    }

    /// Number of the edges that are left before a position in the whole row.
    pub fn num_left_before(&self, position: u32) -> u32 {
        let (mut lost, mut end) = (0, self.skips.len());
        while lost < end {
            let middle = lost + (end - lost) / 2;
            if self.skips[middle] + (middle as u32) < position { lost = middle + 1 } else { end = middle }
        }
        position - lost as u32
    }

    /// The `degree` edges from the `first` of those that are left on: a sub-row. Positions among them begin with 0.
    pub fn part(self, first: u32, degree: u32) -> Self {
        Self { first, degree, ..self }
    }

    /// The position in the whole row of the edge at `position` of those that are left.
    #[inline]
    pub fn position(&self, position: u32) -> u32 {
        let position = self.first + position;
        // A row seldom loses more than one edge.
        let before = match self.skips {
            [skip] => usize::from(*skip <= position),
            skips => skips.partition_point(|&skip| skip <= position),
        };
        position + before as u32
    }

    /// The edges that are left: their positions in the graph's indices, ascending.
    pub fn edges(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.degree).map(|position| self.start + u64::from(self.position(position)))
    }

    /// Replaces positions in the graph's indices, as if the edges that are left were the row's first, by their own.
    pub(crate) fn shift(&self, addresses: &mut [u64]) {
        for address in addresses {
            *address = self.start + u64::from(self.position((*address - self.start) as u32));
        }
    }

    /// Number of positive weights among the edges that are left, counted up to `at_most`.
    pub(crate) fn count_positive(&self, weights: &[f32], at_most: u64) -> u64 {
        let positive = self.edges().map(|edge| count_positive(&weights[edge as usize..=edge as usize], 1) as u64);
        positive.sum::<u64>().min(at_most)
    }
}

fn edge(source: u32, destination: u32) -> u64 {
    u64::from(destination) << 32 | u64::from(source)
}

/// The first entry of a table of `len`, a power of two, in which a node is looked up.
#[inline]
fn home(node: u32, len: usize) -> usize {
    (node.wrapping_mul(0x9E37_79B9) >> 8) as usize & (len - 1)
}
