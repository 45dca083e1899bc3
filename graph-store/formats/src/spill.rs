//! Sorted runs in a file, and their merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result};

use crate::sort::{BLOCK, Record};

/// Sorted runs, one after another in a file that goes away with this.
#[derive(Debug)]
pub(crate) struct Spill {
    path: PathBuf,
    file: File,
    len: u64,
    pub(crate) runs: Vec<std::ops::Range<u64>>,
}

impl Spill {
    /// Creates or truncates the file at `path`.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let file = file.map_err(|e| Error::io(path, e))?;
        Ok(Self { path: path.to_path_buf(), file, len: 0, runs: Vec::new() })
    }

    /// Begins a run.
    pub(crate) fn begin(&mut self) {
        self.runs.push(self.len..self.len);
    }

    /// Appends sorted records to the run.
    pub(crate) fn append<R: Record>(&mut self, records: &[R]) -> Result<()> {
        let mut bytes = vec![0; records.len() * R::BYTES];
        for (record, out) in records.iter().zip(bytes.chunks_exact_mut(R::BYTES)) {
            record.encode(out);
        }
        self.file.write_all(&bytes).map_err(|e| Error::io(&self.path, e))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Ends the run.
    pub(crate) fn end(&mut self) {
        if let Some(run) = self.runs.last_mut() {
            run.end = self.len;
        }
    }

    /// Hands the records of `runs` to `emit`, sorted; of equal keys, those of earlier runs first. Read buffers take
    /// `memory` bytes together.
    pub(crate) fn merge<R: Record>(
        &self,
        runs: &[std::ops::Range<u64>],
        unique: bool,
        memory: u64,
        mut emit: impl FnMut(&[R]) -> Result<()>,
    ) -> Result<()> {
        let bytes = (memory / runs.len().max(1) as u64 / R::BYTES as u64).clamp(16, 1 << 20) as usize * R::BYTES;
        let mut heap = BinaryHeap::with_capacity(runs.len());
        let mut readers = Vec::with_capacity(runs.len());
        for run in runs {
            let mut reader = RunReader { spill: self, left: run.clone(), bytes: Vec::new(), at: 0, room: bytes };
            if let Some(record) = reader.next::<R>()? {
                heap.push(Reverse((record.key(), readers.len())));
                readers.push((record, reader));
            }
        }
        let mut block = Vec::with_capacity(BLOCK);
        let mut last = None;
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((key, run)) = *top;
            let (record, reader) = &mut readers[run];
            if !unique || last != Some(key) {
                block.push(*record);
                last = Some(key);
            }
            match reader.next::<R>()? {
                Some(next) => {
                    *record = next;
                    *top = Reverse((next.key(), run));
                }
                None => {
                    PeekMut::pop(top);
                }
            }
            if block.len() == BLOCK {
                emit(&block)?;
                block.clear();
            }
        }
        emit(&block)
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // The dataset's writer removes the whole directory when the import fails; here the file may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

struct RunReader<'s> {
    spill: &'s Spill,
    left: std::ops::Range<u64>,
    bytes: Vec<u8>,
    at: usize,
    room: usize,
}

impl RunReader<'_> {
    fn next<R: Record>(&mut self) -> Result<Option<R>> {
        if self.at == self.bytes.len() {
            let n = (self.left.end - self.left.start).min(self.room as u64);
            if n == 0 {
                return Ok(None);
            }
            self.bytes.resize(n as usize, 0);
            let mut file = &self.spill.file;
            file.seek(SeekFrom::Start(self.left.start))
                .and_then(|_| file.read_exact(&mut self.bytes))
                .map_err(|e| Error::io(&self.spill.path, e))?;
            self.left.start += n;
            self.at = 0;
        }
        let record = R::decode(&self.bytes[self.at..self.at + R::BYTES]);
        self.at += R::BYTES;
        Ok(Some(record))
    }
}
