//! Table of the process's pinned pages, each pinned once.
//!
//! Memory is pinned by whole pages, two arrays may share a page, and drivers refuse to pin a page twice. So the process has
//! one table of disjoint, reference-counted pieces.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::device::Device;
use crate::driver::{Address, Failure, Outcome};
use crate::lock::lock;

/// Bytes pinned per call, so that a failure comes early and reports progress. Pieces end at its multiples.
pub(crate) const CHUNK: usize = 1 << 30;

struct Piece {
    end: usize,
    users: usize,
    device: Device,
    /// Keeps the pages mapped until they are unpinned, even if a neighbouring array is their last user.
    _owner: Arc<dyn Any + Send + Sync>,
}

/// Pieces by start address.
type Pieces = BTreeMap<usize, Piece>;

fn pieces() -> MutexGuard<'static, Pieces> {
    static PIECES: Mutex<Pieces> = Mutex::new(BTreeMap::new());
    lock(&PIECES)
}

/// A range of pages that stays pinned while this lives.
#[derive(Debug)]
pub(crate) struct PinnedRange {
    start: usize,
    end: usize,
}

impl PinnedRange {
    /// Pins the pages of `bytes`, which is not empty, in pieces that end at multiples of `chunk`.
    ///
    /// # Safety
    ///
    /// The bytes stay valid and unmoved while `owner` or a clone of it lives.
    pub(crate) unsafe fn new(
        device: &Device,
        owner: &Arc<dyn Any + Send + Sync>,
        bytes: &[u8],
        chunk: usize,
    ) -> Outcome<Self> {
        let (page, begin) = (page_bytes(), bytes.as_ptr() as usize);
        let (start, end) = (begin / page * page, (begin + bytes.len()).next_multiple_of(page));
        let mut pieces = pieces();
        let mut pinned = overlapping(&pieces, start, end);
        pinned.push((end, end));
        let mut added: Vec<usize> = Vec::new();
        let mut at = start;
        for (next_start, next_end) in pinned {
            while at < next_start {
                let piece_end = next_start.min((at + 1).next_multiple_of(chunk));
                // SAFETY: the caller's promise; a page stays mapped as a whole.
                if let Err(failure) = unsafe { pin(device, at, piece_end) } {
                    let removed: Vec<Piece> = added.into_iter().map(|start| unpin(&mut pieces, start)).collect();
                    drop(pieces);
                    drop(removed);
                    return Err(explain(failure, begin, bytes.len(), at.saturating_sub(begin)));
                }
                pieces
                    .insert(at, Piece { end: piece_end, users: 0, device: device.clone(), _owner: Arc::clone(owner) });
                added.push(at);
                at = piece_end;
            }
            at = at.max(next_end);
        }
        for (start, _) in overlapping(&pieces, start, end) {
            pieces.get_mut(&start).expect("the piece is in the table").users += 1;
        }
        Ok(Self { start, end })
    }

    /// Boundaries between pieces, which no copy may cross.
    pub(crate) fn cuts(&self) -> Vec<Address> {
        overlapping(&pieces(), self.start, self.end).into_iter().skip(1).map(|(start, _)| start as Address).collect()
    }
}

impl Drop for PinnedRange {
    fn drop(&mut self) {
        let mut pieces = pieces();
        let mut removed = Vec::new();
        for (start, _) in overlapping(&pieces, self.start, self.end) {
            let piece = pieces.get_mut(&start).expect("the piece is in the table");
            piece.users -= 1;
            if piece.users == 0 {
                removed.push(unpin(&mut pieces, start));
            }
        }
        // Dropping an owner may be slow: do it unlocked.
        drop(pieces);
        drop(removed);
    }
}

/// Start and end of the pieces that overlap `start..end`.
fn overlapping(pieces: &Pieces, start: usize, end: usize) -> Vec<(usize, usize)> {
    let before = pieces.range(..start).next_back().filter(|(_, piece)| piece.end > start);
    before.into_iter().chain(pieces.range(start..end)).map(|(start, piece)| (*start, piece.end)).collect()
}

/// # Safety
///
/// The pages stay mapped until they are unpinned.
unsafe fn pin(device: &Device, start: usize, end: usize) -> Outcome<()> {
    let read_only = mapping(start, end).is_some_and(|m| !m.writable);
    // SAFETY: the caller's promise.
    let address = unsafe { device.driver().register(start as *const u8, end - start, read_only) }?;
    if address == start as Address {
        return Ok(());
    }
    device.driver().unregister(start as *const u8);
    let message = "the device sees host memory at other addresses, so it cannot read memory that is pinned in pieces";
    Err(Failure::new("cuMemHostGetDevicePointer_v2", message))
}

fn unpin(pieces: &mut Pieces, start: usize) -> Piece {
    let piece = pieces.remove(&start).expect("the piece is in the table");
    piece.device.driver().unregister(start as *const u8);
    piece
}

/// Adds likely causes and their cures.
fn explain(failure: Failure, start: usize, bytes: usize, done: usize) -> Failure {
    let limit = locked_limit().filter(|limit| *limit < bytes as u64).map(|limit| {
        format!(
            "the limit on locked memory is {limit} bytes: raise it (ulimit -l unlimited, LimitMEMLOCK=infinity of a \
             service, --ulimit memlock=-1 of a container)"
        )
    });
    let available = morphgl_registry::Machine::probe().available_bytes;
    let full = (available < (bytes - done) as u64).then(|| {
        format!(
            "{available} bytes of memory are free, by the machine or the cgroup's memory.max, and pinned pages stay in memory"
        )
    });
    let mapped = mapping(start + done, start + done + 1)
        .and_then(|m| m.file)
        .map(|file| format!("{file} is mapped: loaded into memory instead (without --mmap), it can be pinned"));
    let mut failure = failure.about(format_args!("pinning {bytes} bytes in place, after {done}"));
    for cause in [limit, full, mapped].into_iter().flatten() {
        failure.message.push_str("; ");
        failure.message.push_str(&cause);
    }
    failure
}

/// The process's limit on locked memory, if any.
fn locked_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes two numbers.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

struct PageMapping {
    writable: bool,
    file: Option<String>,
}

/// Mapping of the pages of `start..end` from `/proc/self/maps`; writable if all of them are.
fn mapping(start: usize, end: usize) -> Option<PageMapping> {
    parse_maps(&std::fs::read_to_string("/proc/self/maps").ok()?, start, end)
}

fn parse_maps(maps: &str, start: usize, end: usize) -> Option<PageMapping> {
    let mut mapping = None;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        if from < end && to > start {
            let all = mapping.get_or_insert(PageMapping { writable: true, file: None });
            all.writable &= fields.next()?.as_bytes().get(1) == Some(&b'w');
            all.file = all.file.take().or_else(|| line.find('/').map(|at| line[at..].to_string()));
        }
    }
    mapping
}

fn page_bytes() -> usize {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests;
