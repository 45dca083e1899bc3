//! The edges of each type as a block of their own, for attention.

use std::ops::Range;

use super::Groups;
use crate::adjacency::TransposedEdges;
use crate::attention::{Attention, Edges, Options, Transposed};
use crate::buffer::resize;
use crate::csr::{Sorted, sort_by_source};

/// The edges of one type. The destinations are the first sources.
#[derive(Debug, Default)]
pub(crate) struct Relation {
    pub(crate) edge_type: usize,
    /// The destinations, as rows of attention's output, and the sources, as rows of the transformed input.
    pub(crate) ends: Range<usize>,
    pub(crate) sources: Range<usize>,
    /// The edges among those of all relations.
    pub(crate) entries: Range<usize>,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    transposed: TransposedEdges,
}

/// The edges of all types that have some. All memory is reused.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    all: Vec<Relation>,
    count: usize,
    /// The position of a source among those of the last edge type that has it, and the number of that relation plus 1.
    position: Vec<u32>,
    seen: Vec<u32>,
}

impl Relations {
    pub(crate) fn list(&self) -> &[Relation] {
        &self.all[..self.count]
    }

    /// Divides the edges of groups without own parts; the groups are then of the sources' rows.
    pub(super) fn divide(&mut self, groups: &mut Groups) {
        self.count = groups.list.len();
        if self.all.len() < self.count {
            self.all.resize_with(self.count, Relation::default);
        }
        resize(&mut self.position, groups.num_src);
        self.seen.clear();
        self.seen.resize(groups.num_src, 0);
        let mut sources: Vec<u32> = std::mem::take(&mut groups.scratch);
        sources.clear();
        for ((number, relation), group) in (1..).zip(&mut self.all).zip(&mut groups.list) {
            let Relation { indptr, indices, .. } = relation;
            let offsets = &groups.indptr[group.rows.start..=group.rows.end];
            let (first, first_source) = (offsets[0], sources.len());
            indptr.clear();
            indptr.extend(offsets.iter().map(|offset| offset - first));
            for (at, &end) in (0..).zip(&groups.ends[group.rows.clone()]) {
                (self.position[end as usize], self.seen[end as usize]) = (at, number);
                sources.push(end);
            }
            indices.clear();
            for &source in &groups.columns[first as usize..offsets[offsets.len() - 1] as usize] {
                let at = source as usize;
                if self.seen[at] != number {
                    (self.position[at], self.seen[at]) = ((sources.len() - first_source) as u32, number);
                    sources.push(source);
                }
                indices.push(self.position[at]);
            }
            (relation.edge_type, relation.ends) = (group.weight, group.rows.clone());
            relation.sources = first_source..sources.len();
            relation.entries = first as usize..first as usize + relation.indices.len();
            group.rows = relation.sources.clone();
        }
        groups.indptr.clear();
        groups.indptr.extend(0..=sources.len() as u32);
        groups.coefficients.clear();
        groups.coefficients.resize(sources.len(), 1.0);
        groups.scratch = std::mem::replace(&mut groups.columns, sources);
    }

    /// Sorts the edges of every type by source.
    pub(crate) fn transpose(&mut self) {
        for Relation { indptr, indices, sources, transposed: t, .. } in &mut self.all[..self.count] {
            resize(&mut t.rows, indices.len());
            resize(&mut t.edges, indices.len());
            let sorted = Sorted { rows: &mut t.rows, edges: &mut t.edges, coefficients: &mut [] };
            sort_by_source((indptr, indices, sources.len()), &mut t.indptr, &mut t.counts, sorted, &|_, _| 1.0);
        }
    }
}

impl Relation {
    /// Attention over the edges, without self loops.
    pub(crate) fn attention<'a>(&'a self, options: Options<'a>) -> Attention<'a> {
        let edges = Edges { indptr: &self.indptr, indices: &self.indices, num_src: self.sources.len() };
        Attention::new(edges, options)
    }

    pub(crate) fn transposed(&self) -> Transposed<'_> {
        let TransposedEdges { indptr, rows, edges, .. } = &self.transposed;
        Transposed { indptr, dst: rows, edge: edges }
    }
}
