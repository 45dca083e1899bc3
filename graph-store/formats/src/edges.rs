//! The stream of edges into a dataset.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};

use crate::Ingest;
use crate::csc::CscWriter;
use crate::sort::{Record, Sorter};

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
    highest: Option<u32>,
}

#[derive(Debug)]
enum AnySorter {
    Plain(Sorter<u64>),
    Weighted(Sorter<(u64, f32)>),
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
        let source = source.to_path_buf();
        Ok(Self { ingest, source, num_nodes, weighted, sorter, pushed: 0, sorted: 0, highest: None })
    }

    /// Appends edges `sources[i]` → `targets[i]`, in chunks as large as is convenient.
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
        self.check_nodes(sources, targets)?;
        let options = self.ingest.options();
        let pairs = sources.iter().zip(targets).map(|(&u, &v)| (u, v));
        match &mut self.sorter {
            AnySorter::Plain(sorter) => {
                let edges = pairs.map(|pair| (pair, 1.0));
                self.sorted += sort_in(sorter, edges, options.symmetrise, options.drop_self_loops)?;
            }
            AnySorter::Weighted(sorter) => {
                let weights = weights.expect("a weighted sorter is made for weighted edges only");
                assert_eq!(sources.len(), weights.len(), "sources and weights of the same edges");
                if let Some(i) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
                    let what = format!("the weight {} is not a finite number of at least 0", weights[i]);
                    let cure = "correct it or import without weights";
                    return Err(Error::invalid(&self.source, Position::Element(self.pushed + i as u64), what, cure));
                }
                let edges = pairs.zip(weights.iter().copied());
                self.sorted += sort_in(sorter, edges, options.symmetrise, options.drop_self_loops)?;
            }
        }
        self.pushed += sources.len() as u64;
        Ok(())
    }

    fn check_nodes(&mut self, sources: &[u32], targets: &[u32]) -> Result<()> {
        let highest = sources.iter().chain(targets).max().copied();
        self.highest = self.highest.max(highest);
        let limit = self.num_nodes.unwrap_or(MAX_NODES);
        if highest.is_none_or(|h| u64::from(h) < limit) {
            return Ok(());
        }
        let bad = |&(_, (u, v)): &(usize, (&u32, &u32))| u64::from(*u.max(v)) >= limit;
        let (i, (u, v)) = sources.iter().zip(targets).enumerate().find(bad).expect("an id is too high");
        let what = format!("the edge {u} -> {v} names a node that does not exist, there are {limit} nodes");
        let position = Position::Element(self.pushed + i as u64);
        Err(Error::invalid(&self.source, position, what, "correct the edge or the number of nodes"))
    }

    /// Number of edges pushed so far.
    pub fn len(&self) -> u64 {
        self.pushed
    }

    /// Whether no edge was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.pushed == 0
    }

    /// Highest id so far.
    pub(crate) fn highest(&self) -> Option<u32> {
        self.highest
    }

    /// Sorts and writes the graph; returns its number of nodes.
    ///
    /// # Errors
    ///
    /// No edge and no number of nodes; a disk that refuses.
    pub fn finish(self) -> Result<u64> {
        let Some(num_nodes) = self.num_nodes.or(self.highest.map(|h| u64::from(h) + 1)) else {
            let cure = "check that this is the right file and format";
            return Err(Error::invalid(&self.source, Position::File, "there is no edge", cure));
        };
        let ingest = self.ingest;
        let progress = ingest.progress();
        progress.stage("sort", Some(self.sorted));
        let weighted = matches!(self.sorter, AnySorter::Weighted(_));
        let mut csc = CscWriter::new(&ingest.writer, num_nodes, weighted, ingest.options().add_self_loops)?;
        match self.sorter {
            AnySorter::Plain(sorter) => sorter.merge(|block| {
                progress.advance(block.len() as u64);
                csc.write(block)
            })?,
            AnySorter::Weighted(sorter) => sorter.merge(|block| {
                progress.advance(block.len() as u64);
                csc.write(block)
            })?,
        }
        csc.finish(&mut ingest.writer)?;
        ingest.num_nodes = Some(num_nodes);
        Ok(num_nodes)
    }
}

fn sort_in<R: Record>(
    sorter: &mut Sorter<R>,
    edges: impl Iterator<Item = ((u32, u32), f32)>,
    symmetrise: bool,
    drop_self_loops: bool,
) -> Result<u64> {
    let mut sorted = 0;
    for ((u, v), weight) in edges {
        if u == v && drop_self_loops {
            continue;
        }
        sorter.push(R::new(u64::from(v) << 32 | u64::from(u), weight))?;
        sorted += 1;
        if symmetrise && u != v {
            sorter.push(R::new(u64::from(u) << 32 | u64::from(v), weight))?;
            sorted += 1;
        }
    }
    Ok(sorted)
}
