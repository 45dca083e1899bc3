//! ShaDow: the subgraph that the nodes of a mini-batch's hops induce.

use morphgl_registry::{BatchId, Error, Fanout, Result};

use crate::arrays::{BoundedBlock, HopArrays};
use crate::bounds::HopBounds;
use crate::buffer::check_len;
use crate::kernels::{BLOCK, SizeIndices};
use crate::launch::{Launch, WARPS};
use crate::scratch::{Scratch, raise};
use crate::shared::Shared;

/// Longer rows are read by a thread block each, as in `kernels/shadow.cu`.
const LONG_ROW: u64 = 4096;

/// The blocks of a mini-batch: all edges among its nodes, of which `hop` are the bounds, so many times; the last time the rows of
/// the seeds alone. The nodes are in the stream's table, with their rows.
///
/// # Errors
///
/// More edges than 32-bit offsets can address; a device that fails or lacks memory.
pub(crate) fn induce(
    shared: &Shared,
    scratch: &mut Scratch,
    id: BatchId,
    hop: &HopBounds,
    layers: usize,
) -> Result<Vec<BoundedBlock>> {
    let hops = shared.num_hops();
    let edges_of = |block: usize| (2 * hops + 1 + block) as u32;
    let of_seeds = shared.of_seeds(Fanout::All);
    // A single block has the rows of the seeds alone.
    let (dst, mut bounds) = if layers > 1 { (hops, shared.degrees.subgraph(hop)) } else { (0, of_seeds) };
    let sizes = SizeIndices { first: -1, rows: dst as u32, edges: edges_of(0) };
    scratch.grow_row_sums(bounds.rows)?;
    let mut first = HopArrays::empty(&scratch.stream)?;
    let rows = raise(&mut scratch.peak_rows[hops], bounds.rows);
    first.grow_rows(&scratch.stream, rows)?;
    {
        let launch = Launch { shared, stream: &scratch.stream };
        launch.induce(&bounds, sizes, scratch, None)?;
        let Scratch { counts, positive, sums, .. } = &*scratch;
        launch.offsets((&bounds, sizes, u32::MAX), positive, counts, sums, &first.indptr)?;
    }
    if !shared.fits_subgraph(&bounds, layers) {
        let (rows, edges) = scratch.query_sizes(sizes)?;
        if edges > u64::from(u32::MAX) {
            let cure = "give a smaller batch size or fanouts";
            return Err(Error::setting(id, format!("its subgraph has {edges} edges, more than 2^32 - 1; {cure}")));
        }
        bounds = HopBounds { rows, expanded: rows, edges, ..bounds };
    }
    let edges = raise(&mut scratch.peak_edges[hops], bounds.edges);
    let weights = shared.graph.weights.is_some();
    first.grow_edges(&scratch.stream, edges, weights)?;
    Launch { shared, stream: &scratch.stream }.induce(&bounds, sizes, scratch, Some(&first))?;

    let all = HopBounds { rows, edges, ..bounds };
    let of_seeds = HopBounds {
        rows: raise(&mut scratch.peak_rows[hops + 1], of_seeds.rows.min(rows)),
        edges: raise(&mut scratch.peak_edges[hops + 1], of_seeds.edges.min(edges)),
        ..of_seeds
    };
    let copies = (2..layers).map(|_| (hops, 0, all)).chain((layers > 1).then_some((0, 1, of_seeds)));
    let copies = copies.map(|(dst, block, bounds)| {
        let stream = &scratch.stream;
        let mut arrays = HopArrays::empty(stream)?;
        arrays.grow_rows(stream, bounds.rows)?;
        arrays.grow_edges(stream, bounds.edges, weights)?;
        Launch { shared, stream }.copy_rows(&bounds, (dst as u32, edges_of(block)), scratch, &first, &arrays)?;
        Ok(arrays.of(dst, hops, edges_of(block)))
    });
    let copies: Vec<BoundedBlock> = copies.collect::<Result<_>>()?;
    Ok([first.of(dst, hops, edges_of(0))].into_iter().chain(copies).collect())
}

impl Launch<'_> {
    /// Counts the edges that come from nodes of the table, of all rows of `bounds`, or writes them to `arrays`.
    fn induce(
        &self,
        bounds: &HopBounds,
        sizes: SizeIndices,
        scratch: &Scratch,
        arrays: Option<&HopArrays>,
    ) -> Result<()> {
        let Scratch { counts, table, start, len, positive, .. } = scratch;
        check_len(start, bounds.rows);
        check_len(len, bounds.rows);
        check_len(positive, bounds.rows);
        if let Some(arrays) = arrays {
            arrays.check(bounds);
        }
        let weights = arrays.and_then(|arrays| arrays.weights.as_ref());
        let [indptr, indices] = [arrays.map(|a| &a.indptr), arrays.map(|a| &a.indices)];
        let rows = || [start.into(), len.into(), counts.into(), sizes.rows.into()];
        let to = || [positive.into(), indptr.into(), indices.into(), weights.into()];
        let edges = || self.shared.graph.edges(scratch.without());
        let arguments = || rows().into_iter().chain(edges()).chain(to()).chain(table.arguments());
        let kernels = self.kernels();
        self.run(&kernels.shadow_induce, self.reading_grid(32 * bounds.rows, WARPS), arguments())?;
        if self.shared.degrees.largest() <= LONG_ROW {
            return Ok(());
        }
        // A block per row.
        let grid = self.reading_grid(bounds.rows * u64::from(BLOCK), WARPS);
        self.run(&kernels.shadow_induce_long, grid, arguments())
    }

    /// Copies the first rows of the subgraph, as many as entry `rows` of `counts` says, and writes their number of edges to entry
    /// `edges`.
    fn copy_rows(
        &self,
        bounds: &HopBounds,
        (rows, edges): (u32, u32),
        scratch: &Scratch,
        from: &HopArrays,
        to: &HopArrays,
    ) -> Result<()> {
        from.check(bounds);
        to.check(bounds);
        let arrays = [from, to].map(|a| [(&a.indptr).into(), (&a.indices).into(), a.weights.as_ref().into()]);
        let arguments =
            [(&scratch.counts).into(), rows.into(), edges.into()].into_iter().chain(arrays.into_iter().flatten());
        self.run(&self.kernels().shadow_copy, self.grid(bounds.rows.max(bounds.edges)), arguments)
    }
}
