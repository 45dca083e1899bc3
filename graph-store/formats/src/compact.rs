//! Node ids of 64 bits, numbered anew without gaps, outside of memory.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Load, Result, read_npy};
use rayon::prelude::*;

use crate::Ingest;
use crate::sort::Sorter;
use crate::text::{Chunks, Pairs, PairsFormat, parse};

/// Reads all edges, writes `node_ids` and hands on the edges between the new ids.
///
/// Two passes: the ids go through a sorter that keeps one of each while the edges wait in a file; then each id is
/// looked up in the sorted ids, which are mapped, so that their size does not count against the budget.
pub(crate) fn edges(ingest: &mut Ingest<'_>, source: &Path, chunks: &mut Chunks<'_>, lines: PairsFormat) -> Result<()> {
    let raw = Raw { path: ingest.dir().join("edges.raw"), weighted: lines.weighted };
    let blocks = collect(ingest, source, chunks, lines, &raw)?;
    let (ids, _) = read_npy::<u64>(&ingest.dir().join("node_ids.npy"), Load::Mmap)?;
    let progress = ingest.progress();
    let mut edges = ingest.edges(source, Some(ids.len() as u64), lines.weighted)?;
    progress.stage("renumber", Some(blocks.iter().sum::<usize>() as u64));
    let mut reader = raw.open()?;
    for len in blocks {
        let pairs = raw.read(&mut reader, len)?;
        let renumber = |old: &[u64]| -> Vec<u32> { old.par_iter().map(|&id| rank(&ids, id)).collect() };
        let (sources, targets) = (renumber(&pairs.sources), renumber(&pairs.targets));
        edges.push(&sources, &targets, lines.weighted.then_some(&pairs.weights))?;
        progress.advance(len as u64);
    }
    edges.finish()?;
    fs::remove_file(&raw.path).map_err(|e| Error::io(&raw.path, e))
}

fn rank(ids: &[u64], id: u64) -> u32 {
    ids.binary_search(&id).expect("every id of an edge was collected") as u32
}

/// Spills the edges and writes the sorted ids; returns the lengths of the blocks the edges were spilled in.
fn collect(
    ingest: &mut Ingest<'_>,
    source: &Path,
    chunks: &mut Chunks<'_>,
    lines: PairsFormat,
    raw: &Raw,
) -> Result<Vec<usize>> {
    let mut sorter = Sorter::<u64>::new(ingest.dir().join("ids.spill"), ingest.options().memory, true);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&raw.path).map_err(|e| Error::io(&raw.path, e))?);
    let mut blocks = Vec::new();
    while let Some(chunk) = chunks.next()? {
        let pieces = parse(source, &chunk, |text| {
            let pairs = Pairs::<u64>::parse(text, lines)?;
            let mut ids = [pairs.sources.as_slice(), &pairs.targets].concat();
            ids.sort_unstable();
            ids.dedup();
            Ok((pairs, ids))
        })?;
        for (pairs, ids) in pieces {
            ids.into_iter().try_for_each(|id| sorter.push(id))?;
            raw.write(&mut out, &pairs)?;
            blocks.push(pairs.sources.len());
        }
    }
    out.flush().map_err(|e| Error::io(&raw.path, e))?;
    let mut stream = ingest.writer.stream::<u64>("node_ids")?;
    sorter.merge(|block| stream.write(block))?;
    let num_nodes = stream.len();
    let meta = stream.finish(None)?;
    ingest.add_node_ids(source, num_nodes, meta);
    Ok(blocks)
}

/// Edges in a file, block after block: sources, targets, weights.
struct Raw {
    path: PathBuf,
    weighted: bool,
}

impl Raw {
    fn write(&self, out: &mut impl Write, pairs: &Pairs<u64>) -> Result<()> {
        out.write_all(bytemuck::cast_slice(&pairs.sources))
            .and_then(|()| out.write_all(bytemuck::cast_slice(&pairs.targets)))
            .and_then(|()| out.write_all(bytemuck::cast_slice(&pairs.weights)))
            .map_err(|e| Error::io(&self.path, e))
    }

    fn open(&self) -> Result<BufReader<File>> {
        Ok(BufReader::with_capacity(1 << 20, File::open(&self.path).map_err(|e| Error::io(&self.path, e))?))
    }

    fn read(&self, reader: &mut impl Read, len: usize) -> Result<Pairs<u64>> {
        let weights = if self.weighted { len } else { 0 };
        let mut pairs = Pairs { sources: vec![0; len], targets: vec![0; len], weights: vec![0.0; weights] };
        reader
            .read_exact(bytemuck::cast_slice_mut(&mut pairs.sources))
            .and_then(|()| reader.read_exact(bytemuck::cast_slice_mut(&mut pairs.targets)))
            .and_then(|()| reader.read_exact(bytemuck::cast_slice_mut(&mut pairs.weights)))
            .map_err(|e| Error::io(&self.path, e))?;
        Ok(pairs)
    }
}
