//! External renumbering of 64-bit node ids without gaps.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result};
use morphgl_ingest::{Scratch, Sorted, Sorter};
use rayon::prelude::*;

use crate::Ingest;
use crate::ingest::nodes::Keys;
use crate::ingest::unlisted::{Listed, Unlisted};
use crate::ranks::Ranks;
use crate::text::{Chunks, Pairs, PairsFormat, parse_next};

/// Reads all edges, writes `node_ids` and imports the edges between the new ids; returns how many weights were rounded.
///
/// Two passes: the ids go through a sorter that keeps one of each while the edges are spooled to a file; then each id is
/// looked up in the sorted ids, which are mapped, so that their size does not count against the budget.
pub(crate) fn edges(
    ingest: &mut Ingest<'_>,
    source: &Path,
    chunks: &mut Chunks<'_>,
    lines: PairsFormat,
) -> Result<u64> {
    let (mut edges, mut sorter) = (EdgeSpool::create(ingest, lines.weighted)?, id_sorter(ingest));
    let (mut rounded, scratch, mut unlisted) = (0, Scratch::new(0), Unlisted::new(ingest));
    let listed = Listed::of(ingest);
    let parse = |text: &[u8]| {
        let mut pairs = Pairs::<u64>::parse(text, lines)?;
        let left_out = listed.as_ref().map(|listed| listed.filter(&mut pairs, 0));
        let mut ids = scratch.take();
        ids.reserve(2 * pairs.sources.len());
        ids.extend_from_slice(&pairs.sources);
        ids.extend_from_slice(&pairs.targets);
        scratch.sort(&mut ids, 0);
        ids.dedup();
        Ok((pairs, ids, left_out))
    };
    while let Some(pieces) = parse_next(chunks, parse)? {
        for (pairs, ids, left_out) in pieces {
            unlisted.push(left_out)?;
            sorter.push(&ids)?;
            scratch.give(ids);
            edges.write([&pairs.sources, &pairs.targets], &pairs.weights)?;
            rounded += pairs.rounded;
        }
    }
    unlisted.finish(ingest)?;
    finish(ingest, source, edges, sorter)?;
    Ok(rounded)
}

/// Sorts the ids, writes them as `node_ids` and imports the edges with each id replaced by its rank.
pub(crate) fn finish(ingest: &mut Ingest<'_>, source: &Path, edges: EdgeSpool, mut ids: Sorter<u64>) -> Result<()> {
    // Node files may list nodes without an edge.
    for keys in ingest.node_keys() {
        let Keys::Numbers(numbers) = keys else { continue };
        push_ids(&mut ids, numbers.clone())?;
    }
    let mut stream = ingest.writer.stream::<u64>("node_ids")?;
    ids.merge(&|ids: Sorted<'_, u64>| ids.to_vec(), &mut |ids: Vec<u64>| stream.write(&ids))?;
    let num_nodes = stream.len();
    let meta = stream.finish(None)?;
    ingest.add_rows("node_ids", source, num_nodes, meta);
    let ids = ingest.array::<u64>("node_ids")?;
    let ranks = Ranks::new(&ids[..], ingest.options().memory);
    edges.replay(ingest, source, num_nodes, |id| ranks.of(id).expect("every id of an edge was collected"))
}

/// Pushes ids to be sorted, each once.
pub(crate) fn push_ids(sorter: &mut Sorter<u64>, mut ids: Vec<u64>) -> Result<()> {
    ids.sort_unstable();
    ids.dedup();
    sorter.push(&ids)
}

/// An external sorter for node ids, within a quarter of the memory budget: there are far fewer nodes than edges.
pub(crate) fn id_sorter(ingest: &Ingest<'_>) -> Sorter<u64> {
    Sorter::new(ingest.dir().join("ids.spill"), ingest.options().memory / 4, true)
}

/// Edges whose ids have no node numbers yet, spooled block by block to a temporary file inside the unfinished dataset:
/// sources, targets, weights.
pub(crate) struct EdgeSpool {
    path: PathBuf,
    out: BufWriter<File>,
    weighted: bool,
    /// Edges of each block.
    blocks: Vec<usize>,
}

impl EdgeSpool {
    pub(crate) fn create(ingest: &Ingest<'_>, weighted: bool) -> Result<Self> {
        let path = ingest.dir().join("edges.raw");
        let file = File::create_new(&path).map_err(|e| Error::io(&path, e))?;
        Ok(Self { path, out: BufWriter::with_capacity(1 << 20, file), weighted, blocks: Vec::new() })
    }

    /// Appends a block.
    pub(crate) fn write(&mut self, ids: [&[u64]; 2], weights: &[f32]) -> Result<()> {
        self.blocks.push(ids[0].len());
        for bytes in [bytemuck::cast_slice(ids[0]), bytemuck::cast_slice(ids[1]), bytemuck::cast_slice(weights)] {
            self.out.write_all(bytes).map_err(|e| Error::io(&self.path, e))?;
        }
        Ok(())
    }

    /// Imports the edges with each id replaced by `node(id)`.
    pub(crate) fn replay(
        mut self,
        ingest: &mut Ingest<'_>,
        source: &Path,
        num_nodes: u64,
        node: impl Fn(u64) -> u32 + Sync,
    ) -> Result<()> {
        let io = |e| Error::io(&self.path, e);
        self.out.flush().map_err(io)?;
        let progress = ingest.progress();
        progress.stage("renumber", Some(self.blocks.iter().sum::<usize>() as u64));
        let mut edges = ingest.edges(source, Some(num_nodes), self.weighted)?;
        let mut reader = BufReader::with_capacity(1 << 20, File::open(&self.path).map_err(io)?);
        for len in self.blocks {
            let mut weights = vec![0f32; if self.weighted { len } else { 0 }];
            let mut nodes = || -> Result<Vec<u32>> {
                let mut ids = vec![0u64; len];
                reader.read_exact(bytemuck::cast_slice_mut(&mut ids)).map_err(io)?;
                Ok(ids.par_iter().map(|&id| node(id)).collect())
            };
            let (sources, targets) = (nodes()?, nodes()?);
            reader.read_exact(bytemuck::cast_slice_mut(&mut weights)).map_err(io)?;
            edges.push(&sources, &targets, self.weighted.then_some(&weights))?;
            progress.advance(len as u64);
        }
        edges.finish()?;
        fs::remove_file(&self.path).map_err(io)
    }
}
