//! The stream of edges into a dataset.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};
use morphgl_platform::PagePool;
use rayon::prelude::*;

use crate::Ingest;
use crate::csc::{CscWriter, Part};
use crate::edge_blocks::{AnyBlock, AnyMaker, Blocks, EdgeBlock, Edges, Fault};
use crate::records::{Sorted, Weighted};
use crate::sort::Sorter;

/// Takes edges in any order, sorts them within the memory budget and writes the graph.
///
/// Row `v` of the dataset lists the sources of the edges into `v` in ascending order; edges between the same nodes
/// stay in the order they were pushed in, the reverse of an edge right after it.
#[derive(Debug)]
pub struct EdgeSink<'s, 'a> {
    pub(crate) ingest: &'s mut Ingest<'a>,
    pub(crate) source: PathBuf,
    num_nodes: Option<u64>,
    weighted: bool,
    sorter: AnySorter,
    pushed: u64,
    sorted: u64,
    /// Self-loops that were dropped.
    loops: u64,
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
        Ok(Self {
            ingest,
            source: source.to_path_buf(),
            num_nodes,
            weighted,
            sorter,
            pushed: 0,
            sorted: 0,
            loops: 0,
            highest: None,
            in_order: None,
            csc: None,
            written: 0,
            pool: PagePool::new(),
        })
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
        let (changes, edges) = (blocks.changes(false), blocks.turned(edges));
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
        self.loops += blocks.loops(&edges);
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
            reverse: options.reverse,
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
            self.loops += block.loops;
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
        let least = self.ingest.least_nodes;
        let highest = self.highest.map(|h| u64::from(h) + 1).or((least > 0).then_some(least));
        let Some(num_nodes) = self.num_nodes.or(highest.map(|n| n.max(least))) else {
            let cure = "check that this is the right file and format";
            return Err(Error::invalid(&self.source, Position::File, "there is no edge", cure));
        };
        let mut csc = self.writer(num_nodes)?;
        let Self { ingest, sorter, pool, sorted, mut written, loops, .. } = self;
        let progress = ingest.progress();
        progress.stage("sort", Some(sorted - written));
        let mut emit = |part: Part| {
            progress.advance(part.len());
            written += part.len();
            csc.write(&part)
        };
        match sorter {
            AnySorter::Plain(sorter) => sorter.merge(&|records: Sorted<'_, _>| Part::of(records, &pool), &mut emit)?,
            AnySorter::Weighted(sorter) => {
                sorter.merge(&|records: Sorted<'_, _>| Part::of(records, &pool), &mut emit)?
            }
        }
        csc.finish(&mut ingest.writer)?;
        if loops > 0 {
            ingest.note(format!("{loops} self-loops were dropped"));
        }
        if sorted > written {
            let reverse = if ingest.options().symmetrise { ", both directions counted" } else { "" };
            ingest.note(format!("{} duplicate edges were dropped{reverse}", sorted - written));
        }
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
    /// meanwhile. Holds where the number of nodes is known and no edge is turned round.
    pub(crate) fn targets_in_order(&mut self) {
        let options = self.ingest.options();
        self.in_order = self.num_nodes.filter(|_| !options.symmetrise && !options.reverse);
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
