//! The stream of edges into a graph.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{DatasetWriter, Error, MAX_NODES, Position, Result, parallel};
use morphgl_platform::PagePool;

use crate::csc::{Columns, CscPart, CscWriter, Merging};
use crate::edge_blocks::{AnyBlock, AnyMaker, EdgeBlock, EdgeBlockMaker, Edges, Fault};
use crate::options::{Dropped, EdgeOptions};
use crate::ranges::Block;
use crate::records::{Numbered, Record, Sorted, Weighted};
use crate::sort::Sorter;

/// Takes edges in any order, sorts them within the memory budget and writes them as CSC.
///
/// Row `v` lists the sources of the edges into `v` in ascending order; edges between the same nodes stay in the order
/// they were pushed in, the reverse of an edge right after it.
#[derive(Debug)]
pub struct CscBuilder {
    source: PathBuf,
    options: EdgeOptions,
    sorter: AnySorter,
    pushed: u64,
    sorted: u64,
    self_loops: u64,
    highest: Option<u32>,
    /// The writer, once targets come in order: rows are written as soon as they are complete.
    csc: Option<CscWriter>,
    pool: PagePool,
}

#[derive(Debug)]
enum AnySorter {
    Plain(Sorter<u64>),
    Weighted(Sorter<Weighted>),
    Numbered(Sorter<Numbered>),
}

/// Evaluates `$body` with the sorter, of whichever record type.
macro_rules! with_sorter {
    ($any:expr, $sorter:ident => $body:expr) => {
        match $any {
            AnySorter::Plain($sorter) => $body,
            AnySorter::Weighted($sorter) => $body,
            AnySorter::Numbered($sorter) => $body,
        }
    };
}

impl CscBuilder {
    /// A builder without edges. Errors name `source`; edges beyond the budget spill to the file `spill`, which is removed
    /// with the builder.
    ///
    /// # Errors
    ///
    /// More nodes than ids of 32 bits allow; self-loops to be added to edges with features.
    pub fn new(source: &Path, spill: PathBuf, options: EdgeOptions) -> Result<Self> {
        if let Some(n) = options.num_nodes.filter(|&n| n > MAX_NODES) {
            let what = format!("{n} nodes are more than the {MAX_NODES} that ids of 32 bits allow");
            return Err(Error::invalid(source, Position::File, what, "cut the graph into smaller ones"));
        }
        if options.numbered && options.add_self_loops {
            let what = "its edges have features, and self-loops that are added would have none";
            return Err(Error::invalid(source, Position::File, what, "leave out --add-self-loops"));
        }
        // Weights are added where rows are written, in the order that the sorter keeps.
        let unique = (options.drop_duplicates || options.symmetrise) && !options.adds_weights();
        let sorter = if options.numbered {
            AnySorter::Numbered(Sorter::new(spill, options.memory, unique))
        } else if options.stores_weights() {
            AnySorter::Weighted(Sorter::new(spill, options.memory, unique))
        } else {
            AnySorter::Plain(Sorter::new(spill, options.memory, unique))
        };
        Ok(Self {
            source: source.to_path_buf(),
            options,
            sorter,
            pushed: 0,
            sorted: 0,
            self_loops: 0,
            highest: None,
            csc: None,
            pool: PagePool::new(),
        })
    }

    /// The file that errors name.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Number of edges pushed so far.
    pub fn num_edges(&self) -> u64 {
        self.pushed
    }

    /// Highest id so far.
    pub fn highest(&self) -> Option<u32> {
        self.highest
    }

    /// Number of edges that are not written yet.
    pub fn pending(&self) -> u64 {
        self.sorted - self.csc.as_ref().map_or(0, |csc| csc.num_records)
    }

    /// Appends edges `sources[i]` → `targets[i]`, in slices of any length: long ones are sorted by all threads.
    ///
    /// # Errors
    ///
    /// A node that does not exist, a weight that is negative or not finite, an IO error.
    ///
    /// # Panics
    ///
    /// When the slices differ in length, or weights are given or missing against the options.
    pub fn push(&mut self, sources: &[u32], targets: &[u32], weights: Option<&[f32]>) -> Result<()> {
        assert_eq!(sources.len(), targets.len(), "sources and targets of the same edges");
        assert_eq!(weights.is_some(), self.options.weighted, "weights as the stream was opened");
        if let Some(weights) = weights {
            assert_eq!(sources.len(), weights.len(), "sources and weights of the same edges");
        }
        let len = self.block_len();
        let slices = |i: usize| {
            let range = i..(i + len).min(sources.len());
            Edges {
                sources: &sources[range.clone()],
                targets: &targets[range.clone()],
                weights: weights.map(|w| &w[range]),
            }
        };
        let maker = self.block_maker();
        if sources.len() <= len / 2 {
            return self.push_few(&maker, slices(0));
        }
        // A few blocks per thread at a time: blocks that are not appended yet stay, with scratch, within a quarter of
        // the memory.
        let batch = self.options.memory / 4 / (len as u64 * self.edge_bytes()).max(1);
        let batch = len * (batch as usize).clamp(1, 4 * rayon::current_num_threads());
        for start in (0..sources.len()).step_by(batch) {
            let starts: Vec<usize> = (start..(start + batch).min(sources.len())).step_by(len).collect();
            let made = parallel::map(starts.len(), parallel::ANY, |i| maker.block(slices(starts[i]), false));
            self.push_blocks(made)?;
        }
        Ok(())
    }

    fn push_few(&mut self, maker: &EdgeBlockMaker, edges: Edges<'_>) -> Result<()> {
        fn push<R: Record>(
            sorter: &mut Sorter<R>,
            edges: &Edges<'_>,
            maker: &EdgeBlockMaker,
            first: u32,
        ) -> Result<u64> {
            let scratch = sorter.maker().scratch;
            let mut records = maker.records(edges, false, scratch.take());
            count_on(&mut records, first);
            sorter.push(&records)?;
            let len = records.len() as u64;
            scratch.give(records);
            Ok(len)
        }
        let highest = maker.checked(&edges).map_err(|fault| self.error(fault))?;
        let (edges, first) = (maker.oriented(edges), self.first_number(edges.sources.len() as u64)?);
        self.highest = self.highest.max(highest);
        self.sorted += with_sorter!(&mut self.sorter, sorter => push(sorter, &edges, maker, first)?);
        self.pushed += edges.sources.len() as u64;
        self.self_loops += maker.self_loops(&edges);
        Ok(())
    }

    /// A maker of blocks, for use on any thread.
    pub fn block_maker(&self) -> EdgeBlockMaker {
        let maker = match &self.sorter {
            AnySorter::Plain(sorter) => AnyMaker::Plain(sorter.maker()),
            AnySorter::Weighted(sorter) => AnyMaker::Weighted(sorter.maker()),
            AnySorter::Numbered(sorter) => AnyMaker::Numbered(sorter.maker()),
        };
        EdgeBlockMaker { options: self.options, maker }
    }

    /// Number of edges for a block.
    pub fn block_len(&self) -> usize {
        with_sorter!(&self.sorter, sorter => sorter.block_len())
    }

    /// Bytes an edge takes in a block and in the scratch of its sort, its reverse included.
    pub fn edge_bytes(&self) -> u64 {
        fn bytes<R>(_: &Sorter<R>) -> usize {
            size_of::<R>()
        }
        let record = with_sorter!(&self.sorter, sorter => bytes(sorter));
        (2 * record as u64) << u32::from(self.options.symmetrise)
    }

    /// Appends blocks, in order.
    ///
    /// # Errors
    ///
    /// As [`CscBuilder::push`].
    pub fn push_blocks(&mut self, blocks: impl IntoIterator<Item = EdgeBlock>) -> Result<()> {
        fn push<R: Record>(sorter: &mut Sorter<R>, mut block: Block<R>, sorted: &mut u64, first: u32) -> Result<()> {
            count_on(&mut block.records, first);
            *sorted += block.records.len() as u64;
            sorter.push_block(block)
        }
        for block in blocks {
            let records = block.records.map_err(|fault| self.error(fault))?;
            let first = self.first_number(block.pushed)?;
            self.highest = self.highest.max(block.highest);
            self.pushed += block.pushed;
            self.self_loops += block.self_loops;
            match (&mut self.sorter, records) {
                (AnySorter::Plain(sorter), AnyBlock::Plain(block)) => push(sorter, block, &mut self.sorted, first)?,
                (AnySorter::Weighted(sorter), AnyBlock::Weighted(block)) => {
                    push(sorter, block, &mut self.sorted, first)?
                }
                (AnySorter::Numbered(sorter), AnyBlock::Numbered(block)) => {
                    push(sorter, block, &mut self.sorted, first)?;
                }
                _ => unreachable!("blocks are made for the builder's own sorter"),
            }
            self.write_early()?;
        }
        Ok(())
    }

    /// The number of the next of `count` edges; 0 where edges are not numbered.
    fn first_number(&self, count: u64) -> Result<u32> {
        if !self.options.numbered {
            return Ok(0);
        }
        if self.pushed + count > u64::from(u32::MAX) {
            let what = "features of more edges than the 2^32 - 1 that are numbered";
            return Err(Error::invalid(&self.source, Position::File, what, "leave the features of edges out"));
        }
        Ok(self.pushed as u32)
    }

    /// The error of a fault in the next edges.
    fn error(&self, fault: Fault) -> Error {
        Error::invalid(&self.source, Position::Element(self.pushed + fault.at), fault.what, fault.cure)
    }

    /// Promises that no later edge has a target below those of the edges before it: rows are then written while others are
    /// pushed, where the number of nodes is known and no edge is reversed.
    ///
    /// # Errors
    ///
    /// An IO error.
    pub fn targets_in_order(&mut self, writer: &DatasetWriter) -> Result<()> {
        let EdgeOptions { num_nodes, symmetrise, reverse, .. } = self.options;
        if let Some(num_nodes) = num_nodes.filter(|_| !symmetrise && !reverse) {
            self.csc = Some(self.csc_writer(writer, num_nodes)?);
        }
        Ok(())
    }

    fn csc_writer(&self, writer: &DatasetWriter, num_nodes: u64) -> Result<CscWriter> {
        let columns = self.columns();
        let merging = Merging { add_self_loops: self.options.add_self_loops, adds: self.options.adds_weights() };
        CscWriter::new(writer, num_nodes, columns, merging)
    }

    fn columns(&self) -> Columns {
        Columns { weights: self.options.stores_weights(), ids: self.options.numbered }
    }

    /// Writes the rows that are complete.
    fn write_early(&mut self) -> Result<()> {
        let columns = self.columns();
        let Some(csc) = &mut self.csc else { return Ok(()) };
        let (pool, mut emit) = (&self.pool, |part: CscPart| csc.write(&part));
        with_sorter!(&mut self.sorter, sorter => {
            sorter.merge_early(&|records: Sorted<'_, _>| CscPart::of(records, columns, pool), &mut emit)
        })
    }

    /// Sorts the edges and writes `indptr`, `indices`, `weights` and `edge_ids` of a graph of `num_nodes` nodes, the number of the
    /// options where these have one; `advance` is called with numbers of edges as they are written.
    ///
    /// # Errors
    ///
    /// An IO error.
    pub fn finish(
        mut self,
        num_nodes: u64,
        writer: &mut DatasetWriter,
        mut advance: impl FnMut(u64) + Send,
    ) -> Result<Dropped> {
        let mut csc = match self.csc.take() {
            Some(csc) => csc,
            None => self.csc_writer(writer, num_nodes)?,
        };
        let columns = self.columns();
        let Self { sorter, pool, sorted, self_loops, .. } = self;
        let mut emit = |part: CscPart| {
            advance(part.len());
            csc.write(&part)
        };
        with_sorter!(sorter, sorter => {
            sorter.merge(&|records: Sorted<'_, _>| CscPart::of(records, columns, &pool), &mut emit)?
        });
        let records = csc.finish(writer)?;
        let duplicates = sorted - records;
        Ok(Dropped { self_loops, duplicates })
    }
}

/// Counts the numbers of records on from `first`.
fn count_on<R: Record>(records: &mut [R], first: u32) {
    if first > 0 {
        records.iter_mut().for_each(|record| *record = record.numbered(record.number() + first));
    }
}
