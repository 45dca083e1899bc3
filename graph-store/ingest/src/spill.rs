//! Sorted runs in a file, and their merge.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result, parallel};
use morphgl_platform::{PagePool, Pages};
use rayon::prelude::*;

use crate::ranges::{Block, Merge};
use crate::records::{Record, Records, Sorted};

/// Interval, in records of a run, at which a key is remembered.
const STRIDE: u64 = 4096;

/// Sorted runs, one after another in a file that is removed on drop.
#[derive(Debug)]
pub(crate) struct Spill {
    path: PathBuf,
    file: File,
    /// Records in the file.
    len: u64,
    pub(crate) runs: Vec<Run>,
}

/// A sorted run in the file.
#[derive(Debug)]
pub(crate) struct Run {
    /// In records.
    range: Range<u64>,
    /// Keys of the records 0, STRIDE, 2 STRIDE, … of the run.
    keys: Vec<u64>,
}

/// Records as bytes of the file.
pub(crate) fn encoded<R: Record>(records: Sorted<'_, R>, pool: &PagePool) -> Pages {
    let mut bytes = pool.take();
    let mut out = bytes.resize(records.len() * R::BYTES).chunks_exact_mut(R::BYTES);
    records.for_each(|record| record.encode(out.next().expect("the pages are as long as the records")));
    bytes
}

impl Spill {
    /// Creates the file at `path`, where nothing may be.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|e| Error::io(path, e))?;
        Ok(Self { path: path.to_path_buf(), file, len: 0, runs: Vec::new() })
    }

    /// Begins a run.
    pub(crate) fn begin(&mut self) {
        self.runs.push(Run { range: self.len..self.len, keys: Vec::new() });
    }

    /// Appends sorted records, as [`encoded`] makes them, to the run that was begun last.
    pub(crate) fn append<R: Record>(&mut self, bytes: &[u8]) -> Result<()> {
        let run = self.runs.last_mut().expect("a run was begun");
        let done = run.range.end - run.range.start;
        let first = (done.next_multiple_of(STRIDE) - done) as usize;
        run.keys.extend(bytes.chunks_exact(R::BYTES).skip(first).step_by(STRIDE as usize).map(|b| R::decode(b).key()));
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, e))?;
        self.len += (bytes.len() / R::BYTES) as u64;
        run.range.end = self.len;
        Ok(())
    }

    /// Sorts the records of `runs`; of equal keys, those of earlier runs come first. `make` and `emit` as in
    /// [`Merge::blocks`].
    ///
    /// The keys are cut into spans of which two fit a quarter of `memory`; while one is sorted and emitted, the next is
    /// read.
    pub(crate) fn merge<R: Record, T: Send>(
        &self,
        runs: &[Run],
        memory: u64,
        merge: Merge,
        make: &(impl Fn(Sorted<'_, R>) -> T + Sync),
        emit: &mut (impl FnMut(T) -> Result<()> + Send),
    ) -> Result<()> {
        let ends = ends(runs, memory / 8 / size_of::<R>() as u64);
        // One pool of pages for all threads: an allocator would keep some for each.
        let pool = PagePool::new();
        let reader = |run| RunReader { spill: self, run, at: 0, pool: &pool };
        let mut readers: Vec<RunReader<'_>> = runs.iter().map(reader).collect();
        let mut start = 0;
        let mut ready: Vec<Block<R>> = Vec::new();
        for end in ends {
            if end.is_some_and(|end| end - start == 1) {
                // One key, perhaps of more records than fit memory.
                merge.blocks(&mut ready, make, emit)?;
                ready.clear();
                let mut first = true;
                for reader in &mut readers {
                    loop {
                        let mut records = reader.below::<R>(end, reader.at + STRIDE)?;
                        if records.is_empty() {
                            break;
                        }
                        if merge.unique {
                            records.truncate(usize::from(first));
                        }
                        first = false;
                        emit(make(Sorted::Whole(&records)))?;
                    }
                }
            } else {
                let (written, read) = parallel::join(
                    || merge.blocks(&mut ready, make, emit),
                    || readers.iter_mut().map(|reader| reader.span(end)).collect::<Result<Vec<_>>>(),
                );
                written?;
                ready = read?;
            }
            start = end.unwrap_or(start);
        }
        merge.blocks(&mut ready, make, emit)
    }
}

/// Upper bounds, as keys, of spans of about `len` records, ascending; the last, `None`, is the end of all. A key with as many
/// records as several spans is one span.
fn ends(runs: &[Run], len: u64) -> Vec<Option<u64>> {
    let mut keys: Vec<u64> = runs.iter().flat_map(|run| run.keys.iter().copied()).collect();
    keys.par_sort_unstable();
    // A span may take a stride of every run more than its share.
    let step = (len / STRIDE).saturating_sub(runs.len() as u64).max(1) as usize;
    let mut ends: Vec<u64> = keys.into_iter().step_by(step).skip(1).collect();
    let again: Vec<u64> = ends.windows(2).filter(|w| w[0] == w[1]).filter_map(|w| w[0].checked_add(1)).collect();
    ends.extend(again);
    ends.sort_unstable();
    ends.dedup();
    ends.into_iter().filter(|&end| end > 0).map(Some).chain([None]).collect()
}

impl Drop for Spill {
    fn drop(&mut self) {
        // The dataset's writer removes the whole directory when the import fails; here the file may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

struct RunReader<'s> {
    spill: &'s Spill,
    run: &'s Run,
    /// Number of records returned.
    at: u64,
    pool: &'s PagePool,
}

impl RunReader<'_> {
    /// The records from here on whose keys are below `end`.
    fn span<R: Record>(&mut self, end: Option<u64>) -> Result<Block<R>> {
        let strides = end.map(|end| self.run.keys.partition_point(|&key| key < end) as u64);
        let records = self.below(end, strides.map_or(u64::MAX, |strides| strides * STRIDE))?;
        Ok(Block::new(records, 0))
    }

    /// The records from here to `to`, or the end of the run, whose keys are below `end`.
    fn below<R: Record>(&mut self, end: Option<u64>, to: u64) -> Result<Records<R>> {
        let mut records = self.read::<R>(to.min(self.run.range.end - self.run.range.start))?;
        if let Some(end) = end {
            records.truncate(records.partition_point(|r| r.key() < end));
        }
        self.at += records.len() as u64;
        Ok(records)
    }

    /// The records from here to `to`.
    fn read<R: Record>(&self, to: u64) -> Result<Records<R>> {
        const BYTES: usize = 1 << 18;
        let mut left = to.saturating_sub(self.at) as usize;
        let mut records = Records::default();
        records.reserve(left);
        let mut pages = self.pool.take();
        let bytes = pages.resize((left * R::BYTES).min(BYTES / R::BYTES * R::BYTES));
        let mut file = &self.spill.file;
        let io = |e| Error::io(&self.spill.path, e);
        file.seek(SeekFrom::Start((self.run.range.start + self.at) * R::BYTES as u64)).map_err(io)?;
        while left > 0 {
            let n = left.min(bytes.len() / R::BYTES);
            file.read_exact(&mut bytes[..n * R::BYTES]).map_err(io)?;
            records.append(n, |out| {
                let read = bytes[..n * R::BYTES].chunks_exact(R::BYTES);
                out.iter_mut().zip(read).for_each(|(out, bytes)| *out = R::decode(bytes));
                n
            });
            left -= n;
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests;
