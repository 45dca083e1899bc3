//! Node ids of 64 bits, numbered anew without gaps, outside of memory.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Load, Result, read_npy};
use rayon::prelude::*;

use crate::Ingest;
use crate::radix::Scratch;
use crate::records::Sorted;
use crate::sort::Sorter;
use crate::text::{Chunks, Pairs, PairsFormat, parse};

/// Reads all edges, writes `node_ids` and hands on the edges between the new ids; returns how many weights were rounded.
///
/// Two passes: the ids go through a sorter that keeps one of each while the edges wait in a file; then each id is
/// looked up in the sorted ids, which are mapped, so that their size does not count against the budget.
pub(crate) fn edges(
    ingest: &mut Ingest<'_>,
    source: &Path,
    chunks: &mut Chunks<'_>,
    lines: PairsFormat,
) -> Result<u64> {
    let raw = Raw { path: ingest.dir().join("edges.raw"), weighted: lines.weighted };
    let (blocks, rounded) = collect(ingest, source, chunks, lines, &raw)?;
    let (ids, _) = read_npy::<u64>(&ingest.dir().join("node_ids.npy"), Load::Mmap)?;
    let progress = ingest.progress();
    let ranks = Ranks::new(&ids, ingest.options().memory);
    let mut edges = ingest.edges(source, Some(ids.len() as u64), lines.weighted)?;
    progress.stage("renumber", Some(blocks.iter().sum::<usize>() as u64));
    let mut reader = raw.open()?;
    for len in blocks {
        let pairs = raw.read(&mut reader, len)?;
        let renumber = |old: &[u64]| -> Vec<u32> { old.par_iter().map(|&id| ranks.of(id)).collect() };
        let (sources, targets) = (renumber(&pairs.sources), renumber(&pairs.targets));
        edges.push(&sources, &targets, lines.weighted.then_some(&pairs.weights))?;
        progress.advance(len as u64);
    }
    edges.finish()?;
    fs::remove_file(&raw.path).map_err(|e| Error::io(&raw.path, e))?;
    Ok(rounded)
}

/// Where each id stands among the sorted ids.
struct Ranks<'i> {
    ids: &'i [u64],
    /// Bits of an id that do not tell its bucket.
    shift: u32,
    /// Where each bucket of ids begins, and the end of the last one.
    starts: Vec<u32>,
}

impl<'i> Ranks<'i> {
    /// Buckets of about one id each where the ids lie evenly, within a sixteenth of `memory`.
    fn new(ids: &'i [u64], memory: u64) -> Self {
        let most = (memory / 16 / 4).min(2 * ids.len() as u64).max(1);
        let highest = ids.last().copied().unwrap_or(0);
        let shift = (0..u64::BITS - 1).find(|&shift| highest >> shift < most).unwrap_or(u64::BITS - 1);
        let mut starts = vec![0u32; (highest >> shift) as usize + 2];
        ids.iter().for_each(|id| starts[(id >> shift) as usize + 1] += 1);
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        Self { ids, shift, starts }
    }

    fn of(&self, id: u64) -> u32 {
        let bucket = (id >> self.shift) as usize;
        let (from, to) = (self.starts[bucket], self.starts[bucket + 1]);
        let at = self.ids[from as usize..to as usize].binary_search(&id);
        from + at.expect("every id of an edge was collected") as u32
    }
}

/// Spills the edges and writes the sorted ids; returns the lengths of the blocks the edges were spilled in, and how many
/// weights were rounded.
fn collect(
    ingest: &mut Ingest<'_>,
    source: &Path,
    chunks: &mut Chunks<'_>,
    lines: PairsFormat,
    raw: &Raw,
) -> Result<(Vec<usize>, u64)> {
    // Nodes are few beside edges: what sorting the ids leaves to the allocator is small then.
    let mut sorter = Sorter::<u64>::new(ingest.dir().join("ids.spill"), ingest.options().memory / 4, true);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&raw.path).map_err(|e| Error::io(&raw.path, e))?);
    let (mut blocks, mut rounded, scratch) = (Vec::new(), 0, Scratch::default());
    while let Some(chunk) = chunks.next()? {
        let pieces = parse(source, &chunk, |text| {
            let pairs = Pairs::<u64>::parse(text, lines)?;
            let mut ids = scratch.take();
            ids.reserve(2 * pairs.sources.len());
            ids.extend_from_slice(&pairs.sources);
            ids.extend_from_slice(&pairs.targets);
            scratch.sort(&mut ids, 0);
            ids.dedup();
            Ok((pairs, ids))
        })?;
        for (pairs, ids) in pieces {
            sorter.push(&ids)?;
            scratch.give(ids);
            raw.write(&mut out, &pairs)?;
            rounded += pairs.rounded;
            blocks.push(pairs.sources.len());
        }
    }
    out.flush().map_err(|e| Error::io(&raw.path, e))?;
    let mut stream = ingest.writer.stream::<u64>("node_ids")?;
    sorter.merge(&|ids: Sorted<'_, u64>| ids.to_vec(), &mut |ids: Vec<u64>| stream.write(&ids))?;
    let num_nodes = stream.len();
    let meta = stream.finish(None)?;
    ingest.add_node_ids(source, num_nodes, meta);
    Ok((blocks, rounded))
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
        let mut pairs = Pairs { sources: vec![0; len], targets: vec![0; len], weights: vec![0.0; weights], rounded: 0 };
        reader
            .read_exact(bytemuck::cast_slice_mut(&mut pairs.sources))
            .and_then(|()| reader.read_exact(bytemuck::cast_slice_mut(&mut pairs.targets)))
            .and_then(|()| reader.read_exact(bytemuck::cast_slice_mut(&mut pairs.weights)))
            .map_err(|e| Error::io(&self.path, e))?;
        Ok(pairs)
    }
}
