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
use crate::gpu::{Gpu, Words, arguments, each, rows_by_units};
use crate::transpose::{BLOCKS, Block, rows_of_edges, sort_by_source};

/// What is grouped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ungrouped<'a> {
    /// A block, the types of its edges, and the nodes of its destinations.
    Block { block: Block<'a>, edge_types: Words<'a>, nodes: Words<'a> },
    /// The first nodes of a list, by their type alone.
    Nodes(Words<'a>, usize),
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
    /// Of nodes alone, the number of each row's among those of its type.
    numbers: Option<Words<'a>>,
}

impl<'a> Groups<'a> {
    /// The rows of a weight: their first, and their number.
    pub(crate) fn rows(&self, weight: usize) -> [usize; 2] {
        [self.starts[weight], self.starts[weight + 1] - self.starts[weight]]
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Number of rows that are no own ones, which come first.
    pub(crate) fn num_edge_rows(&self) -> usize {
        self.starts[self.num_types]
    }

    /// Number of weights of destinations' own rows.
    pub(crate) fn num_own(&self) -> usize {
        self.starts.len() - 1 - self.num_types
    }

    /// Of nodes alone, the number of each row's node among those of its type.
    pub(crate) fn numbers(&self) -> Words<'a> {
        self.numbers.expect("nodes were grouped")
    }

    /// Adds the bias of each own row's weight to rows of `out`, of which `own_rows` are the numbers of the own rows.
    pub(crate) fn add_biases(
        &self,
        gpu: &Gpu,
        (own_rows, rows): (Words<'_>, usize),
        biases: Region,
        out: Region,
        width: usize,
    ) -> Result<()> {
        let (starts, own) = (self.device_starts.after(self.num_types), self.num_own());
        assert!(own_rows.len() >= rows && biases.len() >= own * width && out.len() >= rows * width, "rows and biases");
        let arguments = arguments![gpu, own_rows, starts, biases, out, rows, width, own];
        // SAFETY: the kernel's arguments, as long as asserted; an own row is one of the weights', which have a bias each.
        unsafe { gpu.launch(&gpu.kernels.train_group_biases, rows_by_units(rows, width), arguments) }
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
    numbers: Option<Region>,
    num_types: usize,
}

/// A stream with the memory of the groups of one mini-batch, which is reused after the passes over it.
#[derive(Debug)]
struct Turn {
    gpu: Gpu,
    /// Event after the passes, and whether there was none since the memory was last written.
    used: Option<Event>,
    lent: bool,
}

/// Groups the blocks of mini-batches beside the passes; those of one while the passes over the one before run.
#[derive(Debug)]
pub(crate) struct Grouping {
    turns: [Turn; 2],
    next: usize,
    num_types: usize,
    /// Weights of destinations' own rows.
    num_own: usize,
    node_types: usize,
    /// The first node of each node type, and the number of nodes.
    starts: Buffer<u32>,
}

impl Grouping {
    /// For a typed model, or one with inputs per node type, on a graph with these types; `None` for other models.
    pub(crate) fn new(gpu: &Gpu, spec: &ModelSpec, types: Option<&Types>) -> Result<Option<Self>> {
        let by_type = spec.kind.is_typed() || !spec.input_widths.is_empty();
        let Some(types) = types.filter(|_| by_type) else { return Ok(None) };
        let node_types = types.node_types().len();
        let starts = (0..node_types).map(|of_type| types.range(of_type).start).chain([types.num_nodes() as u32]);
        let starts = Buffer::of(&gpu.stream, &starts.collect::<Vec<_>>())?;
        // Other streams read them.
        gpu.stream.synchronize()?;
        let turn = || -> Result<Turn> { Ok(Turn { gpu: gpu.beside()?, used: None, lent: false }) };
        Ok(Some(Self {
            turns: [turn()?, turn()?],
            next: 0,
            num_types: types.edge_types().len(),
            num_own: if spec.kind == ModelKind::Rgcn { 1 } else { node_types },
            node_types,
            starts,
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
        blocks: &[Ungrouped<'_>],
    ) -> Result<Vec<Groups<'a>>> {
        let Self { turns, next, num_types, num_own, node_types, starts } = self;
        *next = 1 - *next;
        let Turn { gpu, used, lent } = &mut turns[*next];
        // Passes that failed have not said when they end.
        let used = if std::mem::replace(lent, true) { Some(stream.record(false)?) } else { used.take() };
        used.map_or(Ok(()), |used| gpu.stream.wait(&used))?;
        gpu.begin()?;
        gpu.stream.wait(ready)?;
        let most = *num_types + (*num_own).max(*node_types) + 3;
        let mut host = Pinned::<f32>::new(gpu.stream.device(), most * blocks.len())?;
        let mut all = Vec::with_capacity(blocks.len());
        for (at, &ungrouped) in blocks.iter().enumerate() {
            let own = if matches!(ungrouped, Ungrouped::Nodes(..)) { *node_types } else { *num_own };
            let grouped = group(gpu, ungrouped, [*num_types, own], starts)?;
            gpu.download_to(grouped.device_starts, &mut host, at * most)?;
            all.push(grouped);
        }
        let done = gpu.stream.record(false)?;
        stream.wait(&done)?;
        done.synchronize()?;
        let gpu = &*gpu;
        let of_block = |(grouped, starts): (Grouped, &[f32])| {
            let weights = grouped.device_starts.len() - 3;
            let starts: Vec<usize> = starts[..weights + 3].iter().map(|start| start.to_bits() as usize).collect();
            if starts[weights + 1] < starts[weights + 2] {
                let what = "it has an edge of a type or a node that the graph does not have";
                return Err(Error::setting(KEY, format!("{what}; batch it from the dataset that is trained on")));
            }
            let words = |region: Region| Words::Floats(gpu.floats(region.into()));
            Ok(Groups {
                starts: starts[..=weights].to_vec(),
                device_starts: words(grouped.device_starts),
                num_types: grouped.num_types,
                columns: words(grouped.columns),
                of_entries: words(grouped.of_entries),
                begins: words(grouped.begins),
                ends: words(grouped.ends),
                destinations: words(grouped.destinations),
                numbers: grouped.numbers.map(words),
            })
        };
        all.into_iter().zip(host.chunks_exact(most)).map(of_block).collect()
    }

    /// The last groups are not read after the work of `stream` so far.
    pub(crate) fn done(&mut self, stream: &Stream) -> Result<()> {
        let turn = &mut self.turns[self.next];
        (turn.used, turn.lent) = (Some(stream.record(false)?), false);
        Ok(())
    }
}

/// Queues the kernels that group rows, of so many edge types and weights of own rows.
fn group(
    gpu: &mut Gpu,
    ungrouped: Ungrouped<'_>,
    [edge_types, own]: [usize; 2],
    first_nodes: &Buffer<u32>,
) -> Result<Grouped> {
    let (block, types, nodes) = match ungrouped {
        Ungrouped::Block { block, edge_types, nodes } => (Some(block), Some(edge_types), nodes),
        Ungrouped::Nodes(nodes, _) => (None, None, nodes),
    };
    let (num_types, num_edges, num_dst) = match ungrouped {
        Ungrouped::Block { block, .. } => (edge_types, block.num_edges, block.num_dst),
        Ungrouped::Nodes(_, count) => (0, 0, count),
    };
    let (indptr, indices) = block.map(|block| (block.indptr, block.indices)).unzip();
    assert!(types.is_none_or(|types| 2 * types.len() + 1 >= num_edges), "a type per edge");
    assert!(nodes.len() >= num_dst, "a node per destination");
    let (entries, weights) = (num_edges + num_dst, num_types + own);
    let mut take = || gpu.take(entries);
    let (columns, of_entries, begins) = (take()?, take()?, take()?);
    let (ends, destinations, places, keys) = (take()?, take()?, take()?, take()?);
    let row_of = block.map(|block| rows_of_edges(gpu, block)).transpose()?;
    let arguments =
        arguments![gpu, indptr, row_of, types, nodes, first_nodes, keys, num_edges, num_dst, num_types, own];
    // SAFETY: the kernel's arguments; an edge has a row and a type, a destination a node, an entry a key.
    unsafe { gpu.launch(&gpu.kernels.train_group_keys, each(entries), arguments) }?;
    // Two more keys: of entries that begin no row, and of wrong ones.
    let (starts, sorted) = sort_by_source(gpu, keys.into(), [weights + 2, entries], None, BLOCKS)?;
    let arguments =
        arguments![gpu, sorted, starts, indptr, row_of, types, begins, ends, destinations, places, num_edges, weights];
    // SAFETY: as above; there are at most as many rows as entries, and a start per key.
    unsafe { gpu.launch(&gpu.kernels.train_group_rows, each(entries), arguments) }?;
    let arguments = arguments![gpu, indptr, indices, row_of, types, places, columns, of_entries, num_edges, num_dst];
    // SAFETY: as above; a place per entry.
    unsafe { gpu.launch(&gpu.kernels.train_group_entries, each(entries), arguments) }?;
    let numbers = match block {
        Some(_) => None,
        None => {
            let numbers = gpu.take(num_dst)?;
            let arguments = arguments![gpu, nodes, destinations, starts, first_nodes, numbers, own];
            // SAFETY: as above; a row per node.
            unsafe { gpu.launch(&gpu.kernels.train_group_numbers, each(num_dst), arguments) }?;
            Some(numbers)
        }
    };
    Ok(Grouped { device_starts: starts, columns, of_entries, begins, ends, destinations, numbers, num_types })
}
