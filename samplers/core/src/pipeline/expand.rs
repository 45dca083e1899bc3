//! One hop: which neighbours of which rows are picked, and their positions in the graph's indices.

use std::ops::Range;

use morphgl_platform::prefetch_early;
use morphgl_registry::Fanout;

use crate::{
    Excluded, ExcludedRow, LANES, Lanes, MAX_LANES_FANOUT, NeighborCheck, PickScratch, Picks, pick_uniform_lanes,
};

/// Neighbours sampled per node along one edge type; `None` for none.
pub type TypeFanout = Option<Fanout>;

/// Indices in a cache line.
const LINE: usize = 16;

/// The bit of a row's start which says that it loses edges.
const LOSES: u64 = 1 << 63;
/// Bits of such a start that have the row's index; those below have the number of edges left before a sub-row.
const INDEX: u32 = 32;

/// A node's CSR row: the range of its in-edges.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CsrRow {
    /// Of a row that loses edges, [`LOSES`], its index among those that do, and of a sub-row the number of edges that are left before it.
    pub(crate) start: u64,
    /// Number of edges, without those that are lost.
    pub(crate) degree: u32,
    /// The node's draw key.
    pub(crate) key: u32,
}

impl CsrRow {
    /// The row, without the edges lost by the row at `index` among those that lose any.
    pub(crate) fn without(self, excluded: &Excluded, index: usize) -> Self {
        Self { start: LOSES | (index as u64) << INDEX, degree: excluded.row(index).degree, ..self }
    }

    /// Whether the row loses edges.
    #[inline(always)]
    fn loses(self) -> bool {
        self.start & LOSES != 0
    }

    /// Index among the rows that lose edges, of one that does.
    fn excluded(self) -> usize {
        ((self.start & !LOSES) >> INDEX) as usize
    }

    /// The sub-row of the positions `range` of the whole row.
    #[inline(always)]
    pub(crate) fn sub_row(self, range: Range<u32>, picker: &RowPicker<'_>) -> Self {
        if self.loses() {
            return self.sub_row_left(range, picker);
        }
        Self { start: self.start + u64::from(range.start), degree: range.end - range.start, ..self }
    }

    #[cold]
    fn sub_row_left(self, range: Range<u32>, picker: &RowPicker<'_>) -> Self {
        let row = picker.without().row(self.excluded());
        let [first, end] = [range.start, range.end].map(|position| row.num_left_before(position));
        Self { start: self.start | u64::from(first), degree: end - first, ..self }
    }

    /// Start and degree of the whole row, edges that it loses included.
    #[inline(always)]
    pub(crate) fn whole(self, picker: &RowPicker<'_>) -> (u64, u32) {
        if !self.loses() {
            return (self.start, self.degree);
        }
        let row = picker.without().row(self.excluded());
        (row.start, row.whole_degree())
    }

    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.degree as usize
    }
}

/// The picks of one hop, and the graph they are picked from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowPicker<'a> {
    pub(crate) indices: &'a [u32],
    /// The check of neighbours in a mapped file.
    pub(crate) check: Option<&'a NeighborCheck<'a>>,
    pub(crate) picks: Picks<'a>,
    /// The edges that are left out of the graph. The rows that lose any have an index instead of a start.
    pub(crate) excluded: Option<&'a Excluded>,
    /// Fanout of each edge type, where rows are sub-rows of one type each; else empty.
    pub(crate) by_type: &'a [TypeFanout],
}

/// A thread's buffers.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    row: PickScratch,
    /// Picks of sixteen rows, or of one.
    lanes: Vec<[u32; LANES]>,
    positions: Vec<u32>,
    /// Rows that lose edges, and the range of the addresses of each.
    losing: Vec<(CsrRow, Range<usize>)>,
    /// Sub-rows that wait to be picked from, by edge type.
    waiting: Vec<Waiting>,
}

/// Degree of a lane that has no sub-row: more than any fanout, and small, so that its words are hardly ever rejected and drawn again.
const UNFILLED: u32 = MAX_LANES_FANOUT as u32 + 1;

/// Up to sixteen sub-rows of one edge type that wait for their draws.
#[derive(Debug)]
struct Waiting {
    // Invariant: lanes from `filled` on have the degree `UNFILLED`.
    lanes: Lanes,
    /// Start of the sub-row, and index of its first address.
    targets: [(u64, usize); LANES],
    filled: usize,
}

/// Consecutive rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsrRows<'a> {
    pub(crate) csr: &'a [CsrRow],
    /// Offsets of the rows' edges in the block, one more than rows.
    pub(crate) indptr: &'a [u32],
    /// Number of the edge type of each row, where rows are sub-rows; else empty.
    pub(crate) types: &'a [u16],
}

impl<'a> CsrRows<'a> {
    /// The shortest prefix of the rows with at least `edges` edges, and the other rows.
    pub(crate) fn split(self, edges: usize) -> (CsrRows<'a>, CsrRows<'a>) {
        let split = u64::from(self.indptr[0]) + edges as u64;
        let rows = self.indptr[1..].iter().position(|&end| u64::from(end) >= split);
        let rows = rows.map_or(self.csr.len(), |last| last + 1);
        let (left, right) = self.csr.split_at(rows);
        let (types, other_types) = self.types.split_at(rows.min(self.types.len()));
        let left = CsrRows { csr: left, indptr: &self.indptr[..=rows], types };
        (left, CsrRows { csr: right, indptr: &self.indptr[rows..], types: other_types })
    }

    /// The rows from `first` on.
    pub(crate) fn from(self, first: usize) -> CsrRows<'a> {
        CsrRows { csr: &self.csr[first..], indptr: &self.indptr[first..], types: &self.types[first..] }
    }

    /// Number of the rows' edges.
    pub(crate) fn num_edges(&self) -> usize {
        (self.indptr[self.csr.len()] - self.indptr[0]) as usize
    }

    /// Each row with the range of its edges among those of all rows.
    fn iter(self) -> impl Iterator<Item = (CsrRow, Range<usize>)> + 'a {
        let base = self.indptr[0];
        let range = move |ends: &[u32]| (ends[0] - base) as usize..(ends[1] - base) as usize;
        self.csr.iter().copied().zip(self.indptr.windows(2).map(range))
    }
}

impl<'a> RowPicker<'a> {
    /// Number of neighbours that are picked of a row.
    #[inline(always)]
    pub(crate) fn count(&self, row: CsrRow) -> u64 {
        self.count_of(&self.picks, row)
    }

    /// As [`RowPicker::count`], by other picks.
    #[inline(always)]
    pub(crate) fn count_of(&self, by: &Picks<'_>, row: CsrRow) -> u64 {
        if row.loses() { self.count_left(by, row) } else { by.count(row.range()) }
    }

    #[cold]
    fn count_left(&self, by: &Picks<'_>, row: CsrRow) -> u64 {
        by.count_left(self.left(row))
    }

    /// The edges that are left of a row, or sub-row, that loses edges.
    fn left(&self, row: CsrRow) -> ExcludedRow<'a> {
        let first = row.start & ((1 << INDEX) - 1);
        self.without().row(row.excluded()).part(first as u32, row.degree)
    }

    /// The edges that are left out: there are some where a row has an index among those that lose edges.
    fn without(&self) -> &'a Excluded {
        self.excluded.expect("a row loses edges")
    }

    /// Fills `addresses` with the positions of the picked neighbours of all rows in the graph's indices, and prefetches them.
    pub(crate) fn pick(&self, rows: CsrRows<'_>, addresses: &mut Vec<u64>, scratch: &mut Scratch) {
        addresses.resize(rows.num_edges(), 0);
        match self.picks.fanout {
            _ if !self.by_type.is_empty() => self.pick_by_type(rows, addresses, scratch),
            Fanout::AtMost(k) if k.get() as usize <= MAX_LANES_FANOUT && self.picks.by_weight().is_none() => {
                self.pick_lanes(rows, k.get(), addresses, scratch);
            }
            _ => self.pick_rows(rows, addresses, scratch),
        }
        for (row, edges) in scratch.losing.drain(..) {
            self.left(row).shift(&mut addresses[edges]);
        }
    }

    /// The row, beginning with its first edge. One that loses edges is picked from as if those that are left were its first, and
    /// its addresses, at `edges`, are shifted later.
    #[inline(always)]
    fn begin(&self, row: CsrRow, edges: &Range<usize>, losing: &mut Vec<(CsrRow, Range<usize>)>) -> CsrRow {
        if !row.loses() {
            return row;
        }
        losing.push((row, edges.clone()));
        CsrRow { start: self.left(row).start, ..row }
    }

    /// Picks from one row, of which `row` is what [`RowPicker::begin`] has made.
    #[inline(always)]
    fn pick_row(
        &self,
        by: &Picks<'_>,
        (csr, row): (CsrRow, CsrRow),
        out: &mut [u64],
        positions: &mut Vec<u32>,
        scratch: &mut PickScratch,
    ) {
        positions.resize(out.len(), 0);
        if csr.loses() {
            by.pick_left(row.key, self.left(csr), positions, scratch);
        } else {
            by.pick(row.key, row.range(), positions, scratch);
        }
        for (address, &position) in out.iter_mut().zip(&*positions) {
            *address = row.start + u64::from(position);
            self.prefetch(*address);
        }
    }

    /// Prefetches the edge at `address`.
    #[inline(always)]
    fn prefetch(&self, address: u64) {
        prefetch_early(self.indices, address as usize);
        if let Some(weights) = self.picks.edges.weights {
            prefetch_early(weights, address as usize);
        }
        if let Some(ids) = self.picks.edges.ids {
            prefetch_early(ids, address as usize);
        }
    }

    /// Takes all neighbours of a row.
    #[inline(always)]
    fn take_all(&self, row: CsrRow, out: &mut [u64]) {
        for (p, address) in out.iter_mut().enumerate() {
            *address = row.start + p as u64;
            if p % LINE == 0 {
                self.prefetch(*address);
            }
        }
        if let Some(&last) = out.last() {
            self.prefetch(last);
        }
    }

    /// Picks for sixteen rows at a time.
    fn pick_lanes(&self, rows: CsrRows<'_>, k: u32, addresses: &mut [u64], scratch: &mut Scratch) {
        let mut lanes = Lanes { nodes: [0; LANES], degrees: [k + 1; LANES] };
        let mut targets = [(0u64, 0usize); LANES];
        let mut filled = 0;
        let Scratch { lanes: picks, losing, .. } = scratch;
        picks.resize(k as usize, [0; LANES]);
        for (row, edges) in rows.iter() {
            let row = self.begin(row, &edges, losing);
            if row.degree <= k {
                self.take_all(row, &mut addresses[edges]);
                continue;
            }
            lanes.nodes[filled] = row.key;
            lanes.degrees[filled] = row.degree;
            targets[filled] = (row.start, edges.start);
            filled += 1;
            if filled == LANES {
                self.draw(&lanes, &targets, picks, addresses);
                filled = 0;
            }
        }
        if filled > 0 {
            self.draw(&lanes, &targets[..filled], picks, addresses);
        }
    }

    /// Draws for the lanes with `targets`: the start of the row, and the index of its first address.
    #[inline(always)]
    fn draw(&self, lanes: &Lanes, targets: &[(u64, usize)], picks: &mut [[u32; LANES]], addresses: &mut [u64]) {
        self.draw_of(&self.picks, lanes, targets, picks, addresses);
    }

    /// As [`RowPicker::draw`], by other picks.
    #[inline(always)]
    fn draw_of(
        &self,
        by: &Picks<'_>,
        lanes: &Lanes,
        targets: &[(u64, usize)],
        picks: &mut [[u32; LANES]],
        addresses: &mut [u64],
    ) {
        pick_uniform_lanes(&by.row(0), lanes, picks);
        for (lane, &(start, at)) in targets.iter().enumerate() {
            for (address, pick) in addresses[at..at + picks.len()].iter_mut().zip(&*picks) {
                *address = start + u64::from(pick[lane]);
                self.prefetch(*address);
            }
        }
    }

    /// Picks row by row: for large fanouts, for -1, and by weight.
    fn pick_rows(&self, rows: CsrRows<'_>, addresses: &mut [u64], scratch: &mut Scratch) {
        let Scratch { row: picking, positions, losing, .. } = scratch;
        for (csr, edges) in rows.iter() {
            let row = self.begin(csr, &edges, losing);
            let out = &mut addresses[edges];
            if out.len() == row.degree as usize {
                self.take_all(row, out);
                continue;
            }
            self.pick_row(&self.picks, (csr, row), out, positions, picking);
        }
    }

    /// The picks of the sub-rows of an edge type; `None` where its edges are not sampled.
    #[inline(always)]
    pub(crate) fn picks_of(&self, edge_type: u16) -> Option<Picks<'a>> {
        let fanout = self.by_type[usize::from(edge_type)]?;
        Some(Picks { fanout, edge_type, ..self.picks })
    }

    /// Picks from sub-rows, for sixteen of one edge type at a time where fanouts are small and picks uniform.
    fn pick_by_type(&self, rows: CsrRows<'_>, addresses: &mut [u64], scratch: &mut Scratch) {
        let Scratch { row: picking, lanes: buffer, positions, losing, waiting } = scratch;
        let empty = || Waiting {
            lanes: Lanes { nodes: [0; LANES], degrees: [UNFILLED; LANES] },
            targets: [(0, 0); LANES],
            filled: 0,
        };
        waiting.resize_with(self.by_type.len(), empty);
        for ((csr, edges), &edge_type) in rows.iter().zip(rows.types) {
            let Some(picks) = self.picks_of(edge_type) else { continue };
            let row = self.begin(csr, &edges, losing);
            if edges.len() == row.degree as usize {
                self.take_all(row, &mut addresses[edges]);
                continue;
            }
            if edges.len() > MAX_LANES_FANOUT || picks.by_weight().is_some() {
                self.pick_row(&picks, (csr, row), &mut addresses[edges], positions, picking);
                continue;
            }
            let Waiting { lanes, targets, filled } = &mut waiting[usize::from(edge_type)];
            (lanes.nodes[*filled], lanes.degrees[*filled]) = (row.key, row.degree);
            targets[*filled] = (row.start, edges.start);
            *filled += 1;
            if *filled == LANES {
                buffer.resize(edges.len(), [0; LANES]);
                self.draw_of(&picks, lanes, targets, buffer, addresses);
                (lanes.degrees, *filled) = ([UNFILLED; LANES], 0);
            }
        }
        for (edge_type, Waiting { lanes, targets, filled }) in (0..).zip(waiting) {
            let Some(picks) = self.picks_of(edge_type).filter(|_| *filled > 0) else { continue };
            let Fanout::AtMost(k) = picks.fanout else { unreachable!("all neighbours need no draw") };
            buffer.resize(k.get() as usize, [0; LANES]);
            self.draw_of(&picks, lanes, &targets[..*filled], buffer, addresses);
            (lanes.degrees, *filled) = ([UNFILLED; LANES], 0);
        }
    }

    /// Loads the picked neighbours, prefetched by [`RowPicker::pick`].
    pub(crate) fn read(&self, addresses: &[u64], picked: &mut [u32]) {
        for (node, &address) in picked.iter_mut().zip(addresses) {
            *node = self.indices[address as usize];
        }
        if let Some(check) = self.check {
            check.nodes(picked);
        }
    }

    /// Loads the weights and ids of the picked edges, where there are any.
    pub(crate) fn read_edges(&self, addresses: &[u64], edges: EdgesOut<'_>) {
        if let Some(all) = self.picks.edges.weights {
            for (weight, &address) in edges.weights.iter_mut().zip(addresses) {
                *weight = all[address as usize];
            }
        }
        if let Some(all) = self.picks.edges.ids {
            for (id, &address) in edges.ids.iter_mut().zip(addresses) {
                *id = all[address as usize];
            }
        }
    }
}

/// The weights and ids of a block's edges, to be written; empty where there are none.
#[derive(Debug, Default)]
pub(crate) struct EdgesOut<'b> {
    pub(crate) weights: &'b mut [f32],
    pub(crate) ids: &'b mut [u32],
}

impl<'b> EdgesOut<'b> {
    /// Takes those of the first `count` edges.
    pub(crate) fn split_off(&mut self, count: usize) -> EdgesOut<'b> {
        EdgesOut { weights: take_first(&mut self.weights, count), ids: take_first(&mut self.ids, count) }
    }
}

/// Takes the first `count` elements, or all.
fn take_first<'b, T>(rest: &mut &'b mut [T], count: usize) -> &'b mut [T] {
    rest.split_off_mut(..count.min(rest.len())).unwrap_or_default()
}
