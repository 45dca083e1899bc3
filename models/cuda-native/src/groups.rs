//! The rows of a block by the weight that multiplies them, for typed layers.
//!
//! How many rows each weight has is known on the device alone, and GEMMs need it on the host. So the rows are grouped on a stream
//! beside that of the passes, which waits for the mini-batch and not for earlier steps; the host waits for the numbers.

use morphgl_cuda::{Buffer, Event, Pinned, Stream};
use morphgl_graph_store::Types;
use morphgl_model_core::{ModelKind, ModelSpec};
use morphgl_registry::{Error, Result};

use crate::KEY;
use crate::arena::Region;
use crate::gpu::{Gpu, Words, arguments, each};
use crate::transpose::{BLOCKS, Block, rows_of_edges, sort_by_source};

/// A block, the types of its edges, and the nodes of its destinations.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TypedBlock<'a> {
    pub(crate) block: Block<'a>,
    pub(crate) edge_types: Words<'a>,
    pub(crate) nodes: Words<'a>,
}

/// Rows by weight, as kernels/groups.cu has them: a row per destination and type of its edges, and an own row per destination. Entries
/// are the edges, then one per destination for its own row.
#[derive(Debug)]
pub(crate) struct Groups<'a> {
    /// The first row of each weight, and the number of rows; on the device, too.
    starts: Vec<usize>,
    pub(crate) device_starts: Words<'a>,
    pub(crate) num_types: usize,
    /// The source and the row of each entry.
    columns: Words<'a>,
    pub(crate) of_entries: Words<'a>,
    /// The entries and the destination of each row.
    begins: Words<'a>,
    pub(crate) ends: Words<'a>,
    pub(crate) destinations: Words<'a>,
}

impl<'a> Groups<'a> {
    /// The rows of a weight: their first, and their number.
    pub(crate) fn rows(&self, weight: usize) -> [usize; 2] {
        [self.starts[weight], self.starts[weight + 1] - self.starts[weight]]
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Number of weights of destinations' own rows.
    pub(crate) fn num_own(&self) -> usize {
        self.starts.len() - 1 - self.num_types
    }

    /// The rows of a block as those of another one.
    pub(crate) fn rows_of(&self, block: Block<'a>) -> Block<'a> {
        Block {
            num_dst: self.num_rows(),
            num_edges: block.num_edges + block.num_dst,
            indptr: self.begins,
            ends: Some(self.ends),
            indices: self.columns,
            ..block
        }
    }
}

/// Groups of a block as regions of the arena of a [`Turn`].
struct Grouped {
    device_starts: Region,
    columns: Region,
    of_entries: Region,
    begins: Region,
    ends: Region,
    destinations: Region,
}

/// A stream with the memory of the groups of one mini-batch, which is reused after the passes over it.
#[derive(Debug)]
struct Turn {
    gpu: Gpu,
    used: Option<Event>,
}

/// Groups the blocks of mini-batches beside the passes; those of one while the passes over the one before run.
#[derive(Debug)]
pub(crate) struct Grouping {
    turns: [Turn; 2],
    next: usize,
    num_types: usize,
    num_own: usize,
    /// The first node of each node type, and the number of nodes.
    starts: Buffer<u32>,
}

impl Grouping {
    /// For a typed model on a graph with these types; `None` for other models.
    pub(crate) fn new(gpu: &Gpu, spec: &ModelSpec, types: Option<&Types>) -> Result<Option<Self>> {
        let Some(types) = types.filter(|_| spec.kind.is_typed()) else { return Ok(None) };
        let num_types = types.node_types().len();
        let starts = (0..num_types).map(|of_type| types.range(of_type).start).chain([types.num_nodes() as u32]);
        let turn = || -> Result<Turn> { Ok(Turn { gpu: gpu.beside()?, used: None }) };
        Ok(Some(Self {
            turns: [turn()?, turn()?],
            next: 0,
            num_types: types.edge_types().len(),
            num_own: if spec.kind == ModelKind::Rgcn { 1 } else { num_types },
            starts: Buffer::of(&gpu.stream, &starts.collect::<Vec<_>>())?,
        }))
    }

    /// Bytes of the arenas.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.turns.iter().map(|turn| turn.gpu.arena_bytes()).sum()
    }

    /// Groups the rows of blocks that are complete at `ready`, in memory that is the caller's until [`Grouping::done`]; `stream` reads it
    /// from now on. Waits for their numbers.
    ///
    /// # Errors
    ///
    /// An edge of a type, or a node, that the graph does not have; the device's memory is full, or the driver fails.
    pub(crate) fn group<'a>(
        &'a mut self,
        (stream, ready): (&Stream, &Event),
        blocks: &[TypedBlock<'_>],
    ) -> Result<Vec<Groups<'a>>> {
        let Self { turns, next, num_types, num_own, starts } = self;
        *next = 1 - *next;
        let Turn { gpu, used } = &mut turns[*next];
        if let Some(used) = used.take() {
            gpu.stream.wait(&used)?;
        }
        gpu.begin()?;
        gpu.stream.wait(ready)?;
        let weights = *num_types + *num_own;
        let mut host = Pinned::<f32>::new(gpu.stream.device(), (weights + 3) * blocks.len())?;
        let mut all = Vec::with_capacity(blocks.len());
        for (at, block) in blocks.iter().enumerate() {
            let grouped = group(gpu, *block, [*num_types, *num_own], starts)?;
            gpu.download_to(grouped.device_starts, &mut host, at * (weights + 3))?;
            all.push(grouped);
        }
        let done = gpu.stream.record(false)?;
        stream.wait(&done)?;
        done.synchronize()?;
        let gpu = &*gpu;
        let of_block = |(grouped, starts): (Grouped, &[f32])| {
            let starts: Vec<usize> = starts.iter().map(|start| start.to_bits() as usize).collect();
            if starts[weights + 1] < starts[weights + 2] {
                let what = "it has an edge of a type or a node that the graph does not have";
                return Err(Error::setting(KEY, format!("{what}; batch it from the dataset that is trained on")));
            }
            let words = |region: Region| Words::Floats(gpu.floats(region.into()));
            Ok(Groups {
                starts: starts[..=weights].to_vec(),
                device_starts: words(grouped.device_starts),
                num_types: *num_types,
                columns: words(grouped.columns),
                of_entries: words(grouped.of_entries),
                begins: words(grouped.begins),
                ends: words(grouped.ends),
                destinations: words(grouped.destinations),
            })
        };
        all.into_iter().zip(host.chunks_exact(weights + 3)).map(of_block).collect()
    }

    /// The last groups are not read after the work of `stream` so far.
    pub(crate) fn done(&mut self, stream: &Stream) -> Result<()> {
        self.turns[self.next].used = Some(stream.record(false)?);
        Ok(())
    }
}

/// Queues the kernels that group the rows of a block, of so many edge types and weights of own rows.
fn group(
    gpu: &mut Gpu,
    TypedBlock { block, edge_types, nodes }: TypedBlock<'_>,
    [num_types, own]: [usize; 2],
    starts: &Buffer<u32>,
) -> Result<Grouped> {
    let Block { num_dst, num_edges, indptr, indices, .. } = block;
    assert!(2 * edge_types.len() + 1 >= num_edges && nodes.len() >= num_dst, "a type per edge, a node per destination");
    let (entries, weights) = (num_edges + num_dst, num_types + own);
    let mut take = || gpu.take(entries);
    let (columns, of_entries, begins) = (take()?, take()?, take()?);
    let (ends, destinations, places, keys) = (take()?, take()?, take()?, take()?);
    let row_of = rows_of_edges(gpu, block)?;
    let arguments =
        arguments![gpu, indptr, row_of, edge_types, nodes, starts, keys, num_edges, num_dst, num_types, own];
    // SAFETY: the kernel's arguments; an edge has a row and a type, a destination a node, an entry a key.
    unsafe { gpu.launch(&gpu.kernels.train_group_keys, each(entries), arguments) }?;
    // Two more keys: of entries that begin no row, and of wrong ones.
    let (device_starts, sorted) = sort_by_source(gpu, keys.into(), [weights + 2, entries], None, BLOCKS)?;
    let arguments = arguments![
        gpu,
        sorted,
        device_starts,
        indptr,
        row_of,
        edge_types,
        begins,
        ends,
        destinations,
        places,
        num_edges,
        weights
    ];
    // SAFETY: as above; there are at most as many rows as entries, and a start per key.
    unsafe { gpu.launch(&gpu.kernels.train_group_rows, each(entries), arguments) }?;
    let arguments =
        arguments![gpu, indptr, indices, row_of, edge_types, places, columns, of_entries, num_edges, num_dst];
    // SAFETY: as above; a place per entry.
    unsafe { gpu.launch(&gpu.kernels.train_group_entries, each(entries), arguments) }?;
    Ok(Grouped { device_starts, columns, of_entries, begins, ends, destinations })
}
