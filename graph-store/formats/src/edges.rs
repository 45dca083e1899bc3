//! The stream of edges into a dataset.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, MAX_NODES, PagePool, Position, Result};
use rayon::prelude::*;

use crate::Ingest;
use crate::csc::{CscWriter, Part};
use crate::ranges::Block;
use crate::records::{Record, Records, Sorted, Weighted};
use crate::sort::{BlockMaker, Sorter};

/// Takes edges in any order, sorts them within the memory budget and writes the graph.
///
/// Row `v` of the dataset lists the sources of the edges into `v` in ascending order; edges between the same nodes
/// stay in the order they were pushed in, the reverse of an edge right after it.
#[derive(Debug)]
pub struct EdgeSink<'s, 'a> {
    ingest: &'s mut Ingest<'a>,
    source: PathBuf,
    num_nodes: Option<u64>,
    weighted: bool,
    sorter: AnySorter,
    pushed: u64,
    sorted: u64,
    /// Highest id so far.
    pub(crate) highest: Option<u32>,
    /// The number of nodes, where targets come in order and rows are written as soon as they are whole: by `csc`,
    /// which has `written` edges.
    in_order: Option<u64>,
    csc: Option<CscWriter>,
    written: u64,
    pool: PagePool,
}

#[derive(Debug)]
enum AnySorter {
    Plain(Sorter<u64>),
    Weighted(Sorter<Weighted>),
}

/// Makes blocks for one sink, on any thread and whatever happens to the sink meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    num_nodes: Option<u64>,
    symmetrise: bool,
    drop_self_loops: bool,
    maker: AnyMaker,
}

#[derive(Debug, Clone)]
enum AnyMaker {
    Plain(BlockMaker<u64>),
    Weighted(BlockMaker<Weighted>),
}

impl AnySorter {
    fn block_len(&self) -> usize {
        match self {
            Self::Plain(sorter) => sorter.block_len(),
            Self::Weighted(sorter) => sorter.block_len(),
        }
    }
}

impl<'s, 'a> EdgeSink<'s, 'a> {
    pub(crate) fn new(
        source: &Path,
        ingest: &'s mut Ingest<'a>,
        num_nodes: Option<u64>,
        weighted: bool,
    ) -> Result<Self> {
        if let Some(n) = num_nodes.filter(|&n| n > MAX_NODES) {
            let what = format!("{n} nodes are more than the {MAX_NODES} that ids of 32 bits allow");
            return Err(Error::invalid(source, Position::File, what, "cut the graph into smaller ones"));
        }
        let options = ingest.options();
        let (memory, unique) = (options.memory, options.drop_duplicates || options.symmetrise);
        let spill = ingest.dir().join("edges.spill");
        let sorter = if weighted && !options.drop_weights {
            AnySorter::Weighted(Sorter::new(spill, memory, unique))
        } else {
            AnySorter::Plain(Sorter::new(spill, memory, unique))
        };
        let (source, pushed, sorted, highest, pool) = (source.to_path_buf(), 0, 0, None, PagePool::new());
        let (in_order, csc, written) = (None, None, 0);
        Ok(Self { ingest, source, num_nodes, weighted, sorter, pushed, sorted, highest, in_order, csc, written, pool })
    }

    /// Appends edges `sources[i]` → `targets[i]`, in slices as large as is convenient: large ones are taken by all
    /// threads.
    ///
    /// # Errors
    ///
    /// A node that does not exist, a weight that is negative or not finite, a disk that refuses.
    ///
    /// # Panics
    ///
    /// When the slices differ in length, or weights are given or missing against what the stream was opened with.
    pub fn push(&mut self, sources: &[u32], targets: &[u32], weights: Option<&[f32]>) -> Result<()> {
        assert_eq!(sources.len(), targets.len(), "sources and targets of the same edges");
        assert_eq!(weights.is_some(), self.weighted, "weights as the stream was opened");
        if let Some(weights) = weights {
            assert_eq!(sources.len(), weights.len(), "sources and weights of the same edges");
        }
        let len = self.sorter.block_len();
        let slices = |i: usize| {
            let range = i..(i + len).min(sources.len());
            Edges {
                sources: &sources[range.clone()],
                targets: &targets[range.clone()],
                weights: weights.map(|w| &w[range]),
            }
        };
        if sources.len() <= len / 2 {
            return self.push_few(slices(0));
        }
        let blocks = self.blocks();
        // A few blocks a thread at a time: what is not taken yet stays, with scratch, within a quarter of the memory.
        let few = self.ingest.options().memory / 4 / (len as u64 * self.edge_bytes()).max(1);
        let few = len * (few as usize).clamp(1, 4 * rayon::current_num_threads());
        for start in (0..sources.len()).step_by(few) {
            let starts: Vec<usize> = (start..(start + few).min(sources.len())).step_by(len).collect();
            let made: Vec<_> = starts.par_iter().map(|&i| blocks.block(slices(i), false)).collect();
            self.push_blocks(made)?;
        }
        Ok(())
    }

    fn push_few(&mut self, edges: Edges<'_>) -> Result<()> {
        let blocks = self.blocks();
        let highest = blocks.checked(&edges).map_err(|fault| self.error(fault))?;
        self.highest = self.highest.max(highest);
        let changes = blocks.changes(false);
        match &mut self.sorter {
            AnySorter::Plain(sorter) => {
                let records = edges.collect(changes, sorter.maker().buffer());
                self.sorted += records.len() as u64;
                sorter.push(&records)?;
                sorter.maker().give(records);
            }
            AnySorter::Weighted(sorter) => {
                let records = edges.collect(changes, sorter.maker().buffer());
                self.sorted += records.len() as u64;
                sorter.push(&records)?;
                sorter.maker().give(records);
            }
        }
        self.pushed += edges.sources.len() as u64;
        Ok(())
    }

    /// What makes blocks for this sink.
    pub(crate) fn blocks(&self) -> Blocks {
        let options = self.ingest.options();
        let maker = match &self.sorter {
            AnySorter::Plain(sorter) => AnyMaker::Plain(sorter.maker()),
            AnySorter::Weighted(sorter) => AnyMaker::Weighted(sorter.maker()),
        };
        Blocks {
            num_nodes: self.num_nodes,
            symmetrise: options.symmetrise,
            drop_self_loops: options.drop_self_loops,
            maker,
        }
    }

    /// Edges a block should be made of.
    pub(crate) fn block_len(&self) -> usize {
        self.sorter.block_len()
    }

    /// Bytes an edge takes in a block and in the scratch of its sort, its reverse included.
    pub(crate) fn edge_bytes(&self) -> u64 {
        let record = if let AnySorter::Plain(_) = self.sorter { size_of::<u64>() } else { size_of::<Weighted>() };
        (2 * record as u64) << u32::from(self.ingest.options().symmetrise)
    }

    /// Appends blocks.
    pub(crate) fn push_blocks(&mut self, blocks: impl IntoIterator<Item = EdgeBlock>) -> Result<()> {
        for block in blocks {
            let records = block.records.map_err(|fault| self.error(fault))?;
            self.highest = self.highest.max(block.highest);
            self.pushed += block.pushed;
            match (&mut self.sorter, records) {
                (AnySorter::Plain(sorter), AnyBlock::Plain(block)) => {
                    self.sorted += block.records.len() as u64;
                    sorter.push_block(block)?;
                }
                (AnySorter::Weighted(sorter), AnyBlock::Weighted(block)) => {
                    self.sorted += block.records.len() as u64;
                    sorter.push_block(block)?;
                }
                _ => unreachable!("blocks are made for the sorter there is"),
            }
            self.write_early()?;
        }
        Ok(())
    }

    /// The error of a fault in the edges that come next.
    fn error(&self, fault: Fault) -> Error {
        Error::invalid(&self.source, Position::Element(self.pushed + fault.at), fault.what, fault.cure)
    }

    /// Number of edges pushed so far.
    pub fn len(&self) -> u64 {
        self.pushed
    }

    /// Whether no edge was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// Sorts and writes the graph; returns its number of nodes.
    ///
    /// # Errors
    ///
    /// No edge and no number of nodes; a disk that refuses.
    pub fn finish(mut self) -> Result<u64> {
        let Some(num_nodes) = self.num_nodes.or(self.highest.map(|h| u64::from(h) + 1)) else {
            let cure = "check that this is the right file and format";
            return Err(Error::invalid(&self.source, Position::File, "there is no edge", cure));
        };
        let mut csc = self.writer(num_nodes)?;
        let Self { ingest, sorter, pool, sorted, written, .. } = self;
        let progress = ingest.progress();
        progress.stage("sort", Some(sorted - written));
        let mut emit = |part: Part| {
            progress.advance(part.len());
            csc.write(&part)
        };
        match sorter {
            AnySorter::Plain(sorter) => sorter.merge(&|records: Sorted<'_, _>| Part::of(records, &pool), &mut emit)?,
            AnySorter::Weighted(sorter) => {
                sorter.merge(&|records: Sorted<'_, _>| Part::of(records, &pool), &mut emit)?
            }
        }
        csc.finish(&mut ingest.writer)?;
        ingest.num_nodes = Some(num_nodes);
        Ok(num_nodes)
    }

    /// What writes the graph, from its first row or from where it was left.
    fn writer(&mut self, num_nodes: u64) -> Result<CscWriter> {
        let weighted = matches!(self.sorter, AnySorter::Weighted(_));
        let loops = self.ingest.options().add_self_loops;
        self.csc.take().map_or_else(|| CscWriter::new(&self.ingest.writer, num_nodes, weighted, loops), Ok)
    }

    /// Promises that no edge from now on has a target below those of the edges before, which lets rows be written
    /// meanwhile. Holds where the number of nodes is known and no edge is reversed.
    pub(crate) fn targets_in_order(&mut self) {
        self.in_order = self.num_nodes.filter(|_| !self.ingest.options().symmetrise);
    }

    /// Writes the rows to which nothing can come any more.
    fn write_early(&mut self) -> Result<()> {
        let Some(num_nodes) = self.in_order else { return Ok(()) };
        let mut csc = self.writer(num_nodes)?;
        let (pool, written) = (&self.pool, &mut self.written);
        let mut emit = |part: Part| {
            *written += part.len();
            csc.write(&part)
        };
        match &mut self.sorter {
            AnySorter::Plain(sorter) => {
                sorter.merge_early(&|records: Sorted<'_, _>| Part::of(records, pool), &mut emit)?
            }
            AnySorter::Weighted(sorter) => {
                sorter.merge_early(&|records: Sorted<'_, _>| Part::of(records, pool), &mut emit)?
            }
        }
        self.csc = Some(csc);
        Ok(())
    }
}

impl Blocks {
    /// Checks and sorts edges, which several threads may do at once; [`EdgeSink::push_blocks`] takes them in order.
    /// With `mirror`, the reverse of each edge that is no loop follows it.
    pub(crate) fn block(&self, edges: Edges<'_>, mirror: bool) -> EdgeBlock {
        let highest = match self.checked(&edges) {
            Ok(highest) => highest,
            Err(fault) => return EdgeBlock { pushed: 0, highest: None, records: Err(fault) },
        };
        let changes = self.changes(mirror);
        let records = match &self.maker {
            AnyMaker::Plain(maker) if !changes.mirror && !changes.drop_self_loops => {
                let placed = maker.placed(edges.sources, edges.targets, maker.buffer());
                AnyBlock::Plain(placed.unwrap_or_else(|buffer| maker.sorted(edges.collect(changes, buffer))))
            }
            AnyMaker::Plain(maker) => AnyBlock::Plain(maker.sorted(edges.collect(changes, maker.buffer()))),
            AnyMaker::Weighted(maker) => AnyBlock::Weighted(maker.sorted(edges.collect(changes, maker.buffer()))),
        };
        EdgeBlock { pushed: edges.sources.len() as u64, highest, records: Ok(records) }
    }

    fn changes(&self, mirror: bool) -> Changes {
        Changes { mirror: mirror || self.symmetrise, drop_self_loops: self.drop_self_loops }
    }

    /// Highest id of the edges.
    fn checked(&self, edges: &Edges<'_>) -> std::result::Result<Option<u32>, Fault> {
        let highest = edges.sources.iter().zip(edges.targets).map(|(&u, &v)| u.max(v)).max();
        let limit = self.num_nodes.unwrap_or(MAX_NODES);
        if highest.is_some_and(|h| u64::from(h) >= limit) {
            let pairs = edges.sources.iter().zip(edges.targets);
            let mut pairs = pairs.enumerate().filter(|&(_, (u, v))| u64::from(*u.max(v)) >= limit);
            let (i, (u, v)) = pairs.next().expect("an id is too high");
            let what = format!("the edge {u} -> {v} names a node that does not exist, there are {limit} nodes");
            return Err(Fault { at: i as u64, what, cure: "correct the edge or the number of nodes" });
        }
        if let AnyMaker::Weighted(_) = self.maker {
            let weights = edges.weights.expect("a weighted sorter is made for weighted edges only");
            if let Some(i) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
                let what = format!("the weight {} is not a finite number of at least 0", weights[i]);
                return Err(Fault { at: i as u64, what, cure: "correct it or import without weights" });
            }
        }
        Ok(highest)
    }
}

/// Edges as they come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edges<'e> {
    pub(crate) sources: &'e [u32],
    pub(crate) targets: &'e [u32],
    pub(crate) weights: Option<&'e [f32]>,
}

/// Edges that are checked and sorted, or what is wrong with them.
#[derive(Debug)]
pub(crate) struct EdgeBlock {
    pushed: u64,
    highest: Option<u32>,
    records: std::result::Result<AnyBlock, Fault>,
}

impl EdgeBlock {
    /// Edges that were given for the block.
    pub(crate) fn len(&self) -> u64 {
        self.pushed
    }
}

#[derive(Debug)]
enum AnyBlock {
    Plain(Block<u64>),
    Weighted(Block<Weighted>),
}

/// What is wrong with the edge `at`, counted from the first of its slice.
#[derive(Debug)]
struct Fault {
    at: u64,
    what: String,
    cure: &'static str,
}

/// What is done to edges on their way.
#[derive(Debug, Clone, Copy)]
struct Changes {
    mirror: bool,
    drop_self_loops: bool,
}

impl Edges<'_> {
    /// The records of the edges, in `records`.
    fn collect<R: Record>(&self, changes: Changes, mut records: Records<R>) -> Records<R> {
        records.append(self.sources.len() << u32::from(changes.mirror), |out| {
            if !changes.mirror && !changes.drop_self_loops && self.weights.is_none() {
                let keys = self.sources.iter().zip(self.targets).map(|(&u, &v)| u64::from(v) << 32 | u64::from(u));
                out.iter_mut().zip(keys).for_each(|(out, key)| *out = R::new(key, 1.0));
                return out.len();
            }
            let mut len = 0;
            for (i, (&u, &v)) in self.sources.iter().zip(self.targets).enumerate() {
                if u == v && changes.drop_self_loops {
                    continue;
                }
                let weight = self.weights.map_or(1.0, |w| w[i]);
                out[len] = R::new(u64::from(v) << 32 | u64::from(u), weight);
                len += 1;
                if changes.mirror && u != v {
                    out[len] = R::new(u64::from(u) << 32 | u64::from(v), weight);
                    len += 1;
                }
            }
            len
        });
        records
    }
}
