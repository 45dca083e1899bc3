//! Scattered reads of an array's elements, many in flight.

use std::io;

use super::engine::{IoEngine, Method, engine};
use super::error::Result;
use super::file::DirectFile;
use super::plan::{Fetch, Layout, Request};

/// Settings of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Maximum reads in flight. Default 128.
    pub depth: usize,
    /// Maximum bytes of a read, and the memory of each read in flight. Default 64 KiB.
    pub most: usize,
    /// Maximum of unwanted bytes between two elements of one read. Default 0.
    pub gap: usize,
    /// The I/O method; `None` is io_uring, or threads where the kernel refuses it. Default `None`.
    pub method: Option<Method>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { depth: 128, most: 64 << 10, gap: 0, method: None }
    }
}

/// Counters of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Reads of the file.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Bytes of the fetched elements.
    pub wanted: u64,
}

impl std::ops::Add for Stats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let Self { reads, bytes, wanted } = other;
        Self { reads: self.reads + reads, bytes: self.bytes + bytes, wanted: self.wanted + wanted }
    }
}

impl std::ops::Sub for Stats {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let Self { reads, bytes, wanted } = other;
        Self { reads: self.reads - reads, bytes: self.bytes - bytes, wanted: self.wanted - wanted }
    }
}

/// Reads elements of files; used by one thread at a time.
#[derive(Debug)]
pub struct Reader {
    settings: Settings,
    engine: Box<dyn IoEngine>,
    refused: Option<String>,
    /// The read in each slot.
    requests: Vec<Request>,
    free: Vec<usize>,
    stats: Stats,
}

impl Reader {
    /// A reader with `depth * most` bytes of buffers.
    ///
    /// # Errors
    ///
    /// The requested method is refused, or threads cannot be started.
    ///
    /// # Panics
    ///
    /// When `depth` or `most` is 0.
    pub fn new(settings: Settings) -> io::Result<Self> {
        assert!(settings.depth > 0 && settings.most > 0, "no read in flight, or of no byte: {settings:?}");
        let (engine, refused) = engine(settings.method, settings.depth, settings.most)?;
        let requests = vec![Request::default(); settings.depth];
        Ok(Self { settings, engine, refused, requests, free: (0..settings.depth).collect(), stats: Stats::default() })
    }

    /// The I/O method.
    pub fn method(&self) -> Method {
        self.engine.method()
    }

    /// Why this reader fell back to threads; `None` where it uses io_uring, or threads were requested.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Counters since the reader was made.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Copies elements of `unit` bytes to their positions in `out`; element 0 begins at byte `base` of `file`.
    ///
    /// `depth` reads are in flight while completed ones are copied. Close elements share a read only where they are
    /// adjacent in `fetches`, which should therefore be sorted.
    ///
    /// # Errors
    ///
    /// The disk fails, or the file ends before an element does: with the file's name and the byte.
    ///
    /// # Panics
    ///
    /// When an element does not fit into one read (`most` less a block), or its position is outside `out`.
    pub fn read(&mut self, file: &DirectFile, base: u64, unit: usize, fetches: &[Fetch], out: &mut [u8]) -> Result<()> {
        let block = file.block();
        let most = self.settings.most / block * block;
        assert!(unit.next_multiple_of(block) + block <= most, "an element of {unit} bytes fits into a read of {most}");
        let layout = Layout { base, unit, block: block as u64, gap: self.settings.gap as u64, most: most as u64 };
        let (mut next, mut outcome) = (0, Ok(()));
        loop {
            while next < fetches.len() && outcome.is_ok() {
                let Some(slot) = self.free.pop() else { break };
                let request = layout.request(fetches, next);
                next = request.fetches.end;
                self.engine.start(slot, file, request.offset, request.len);
                self.requests[slot] = request;
            }
            if self.free.len() == self.requests.len() {
                break;
            }
            let (slot, read) = self.engine.wait();
            self.free.push(slot);
            let request = &self.requests[slot];
            // After a failure the reads in flight are only awaited.
            if outcome.is_err() {
                continue;
            }
            outcome = complete(self.engine.as_mut(), slot, file, request, read, &layout, fetches);
            if outcome.is_err() {
                continue;
            }
            self.stats.reads += 1;
            self.stats.bytes += request.len as u64;
            self.stats.wanted += (request.fetches.len() * unit) as u64;
            copy(self.engine.bytes(slot), request, &layout, fetches, out);
        }
        outcome
    }
}

/// Ensures that all elements of `request` are in its slot; reads again what a read left out.
fn complete(
    engine: &mut dyn IoEngine,
    slot: usize,
    file: &DirectFile,
    request: &Request,
    read: io::Result<usize>,
    layout: &Layout,
    fetches: &[Fetch],
) -> Result<()> {
    let end = fetches[request.fetches.clone()].iter().map(|&w| layout.start(w)).max().unwrap_or(0) + layout.unit as u64;
    let needed = (end - request.offset) as usize;
    if read.as_ref().is_ok_and(|&read| read >= needed) {
        return Ok(());
    }
    // A blocking read: completes a read that was interrupted or cut short, and reports the error of a failed one.
    match file.read(request.offset, &mut engine.bytes_mut(slot)[..request.len]) {
        Ok(read) if read >= needed => Ok(()),
        Ok(read) => Err(file.short(request.offset + read as u64, end)),
        Err(e) => Err(file.failed(request.offset, e)),
    }
}

fn copy(bytes: &[u8], request: &Request, layout: &Layout, fetches: &[Fetch], out: &mut [u8]) {
    let unit = layout.unit;
    let fetches = &fetches[request.fetches.clone()];
    let from = |fetch: Fetch| (layout.start(fetch) - request.offset) as usize;
    if unit == 4 {
        // Most elements are ids, and a copy of known length is one instruction.
        for &fetch in fetches {
            let to = 4 * fetch.to as usize;
            let id: [u8; 4] = bytes[from(fetch)..from(fetch) + 4].try_into().expect("four bytes");
            out[to..to + 4].copy_from_slice(&id);
        }
        return;
    }
    for &fetch in fetches {
        let to = unit * fetch.to as usize;
        out[to..to + unit].copy_from_slice(&bytes[from(fetch)..from(fetch) + unit]);
    }
}
