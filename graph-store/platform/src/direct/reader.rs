//! Scattered reads of an array's elements, many in flight.

use std::io;

use super::engine::{Engine, Method, engine};
use super::error::Result;
use super::file::DirectFile;
use super::plan::{Fetch, Layout, Request};

/// Settings of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Most reads in flight. Default 128.
    pub depth: usize,
    /// Most bytes of a read, and the memory of each read in flight. Default 64 KiB.
    pub most: usize,
    /// Most unwanted bytes between two elements of one read. Default 0.
    pub gap: usize,
    /// How reads are carried out; `None` takes io_uring, and threads where the kernel refuses it. Default `None`.
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
    /// Bytes they brought.
    pub bytes: u64,
    /// Bytes of the elements that were fetched.
    pub wanted: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.wanted += other.wanted;
    }
}

/// Reads elements of files, from any one thread at a time.
#[derive(Debug)]
pub struct Reader {
    settings: Settings,
    engine: Box<dyn Engine>,
    refused: Option<String>,
    /// The read in each slot.
    requests: Vec<Request>,
    free: Vec<usize>,
    stats: Stats,
}

impl Reader {
    /// A reader with memory of its own: `depth * most` bytes.
    ///
    /// # Errors
    ///
    /// The method asked for is refused, or threads cannot be started.
    ///
    /// # Panics
    ///
    /// When `depth` or `most` is 0.
    pub fn new(settings: Settings) -> io::Result<Self> {
        assert!(settings.depth > 0 && settings.most > 0, "a read in flight, of at least one byte: {settings:?}");
        let (engine, refused) = engine(settings.method, settings.depth, settings.most)?;
        let requests = vec![Request::default(); settings.depth];
        Ok(Self { settings, engine, refused, requests, free: (0..settings.depth).collect(), stats: Stats::default() })
    }

    /// How reads are carried out.
    pub fn method(&self) -> Method {
        self.engine.method()
    }

    /// Why this reader has threads; `None` where it has io_uring, or threads were asked for.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Counters since the reader was made.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Sets [`Settings::gap`] from now on.
    pub fn set_gap(&mut self, gap: usize) {
        self.settings.gap = gap;
    }

    /// Copies elements of `unit` bytes, the first of which begins at byte `base` of `file`, to their places in `out`.
    ///
    /// `depth` reads are in flight while completed ones are copied from. Close elements share a read where they are
    /// neighbours in `fetches`, which should therefore be sorted.
    ///
    /// # Errors
    ///
    /// The disk fails, or the file ends before an element does: with the file's name and the byte.
    ///
    /// # Panics
    ///
    /// When an element does not fit into one read (`most` less a block), or its place not into `out`.
    pub fn read(&mut self, file: &DirectFile, base: u64, unit: usize, fetches: &[Fetch], out: &mut [u8]) -> Result<()> {
        let block = file.block();
        let most = self.settings.most / block * block;
        assert!(unit.next_multiple_of(block) + block <= most, "an element of {unit} bytes fits into a read of {most}");
        let layout = Layout { base, unit, block: block as u64, gap: self.settings.gap as u64, most: most as u64 };
        let (mut next, mut failed) = (0, None);
        loop {
            while next < fetches.len() && failed.is_none() {
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
            if failed.is_some() {
                continue;
            }
            let done = whole(self.engine.as_mut(), slot, file, request, read, &layout, fetches);
            if let Err(e) = done {
                failed = Some(e);
                continue;
            }
            self.stats.reads += 1;
            self.stats.bytes += request.len as u64;
            self.stats.wanted += (request.fetches.len() * unit) as u64;
            copy(self.engine.bytes(slot), request, &layout, fetches, out);
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Sees to it that all that `request` fetches is in its slot.
fn whole(
    engine: &mut dyn Engine,
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
    // A second, blocking read: completes a read that was interrupted or cut short, and reports the error of one that failed.
    let read = file.read(request.offset, &mut engine.bytes_mut(slot)[..request.len]);
    match read {
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
