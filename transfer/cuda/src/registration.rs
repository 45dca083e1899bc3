//! Registry of the process's pinned pages, each pinned once.
//!
//! Memory is pinned by whole pages, two arrays may share a page, and drivers refuse to pin a page twice. So the process has
//! one table of disjoint, reference-counted pieces.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::device::Device;
use crate::driver::{Failure, Outcome};
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

static PIECES: Mutex<BTreeMap<usize, Piece>> = Mutex::new(BTreeMap::new());

fn pieces() -> MutexGuard<'static, BTreeMap<usize, Piece>> {
    lock(&PIECES)
}

/// A range of pages that stays pinned while this lives.
#[derive(Debug)]
pub(crate) struct Lease {
    start: usize,
    end: usize,
    /// Boundaries between pieces, which no copy may cross.
    pub(crate) cuts: Vec<u64>,
}

impl Lease {
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
        let page = page_bytes();
        let start = bytes.as_ptr() as usize / page * page;
        let end = (bytes.as_ptr() as usize + bytes.len()).next_multiple_of(page);
        let mut pieces = pieces();
        let mut known: Vec<(usize, usize)> = overlapping(&pieces, start, end);
        known.push((end, end));
        let mut fresh: Vec<usize> = Vec::new();
        let mut at = start;
        for (next, after) in known {
            while at < next {
                let upto = next.min((at + 1).next_multiple_of(chunk));
                // SAFETY: the caller's promise; a page stays mapped as a whole.
                if let Err(failure) = unsafe { pin(device, at, upto) } {
                    let gone: Vec<Piece> = fresh.into_iter().map(|first| unpin(&mut pieces, first)).collect();
                    drop(pieces);
                    drop(gone);
                    let begin = bytes.as_ptr() as usize;
                    return Err(explain(failure, begin, bytes.len(), at.saturating_sub(begin)));
                }
                pieces.insert(at, Piece { end: upto, users: 0, device: device.clone(), _owner: Arc::clone(owner) });
                fresh.push(at);
                at = upto;
            }
            at = at.max(after);
        }
        let mine = overlapping(&pieces, start, end);
        for (first, _) in &mine {
            pieces.get_mut(first).expect("it is in the table").users += 1;
        }
        let cuts = mine.iter().skip(1).map(|(first, _)| *first as u64).collect();
        Ok(Self { start, end, cuts })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut pieces = pieces();
        let mut gone = Vec::new();
        for (first, _) in overlapping(&pieces, self.start, self.end) {
            let piece = pieces.get_mut(&first).expect("it is in the table");
            piece.users -= 1;
            if piece.users == 0 {
                gone.push(unpin(&mut pieces, first));
            }
        }
        // Dropping an owner may be slow: do it unlocked.
        drop(pieces);
        drop(gone);
    }
}

/// Start and end of the pieces that overlap `start..end`.
fn overlapping(pieces: &BTreeMap<usize, Piece>, start: usize, end: usize) -> Vec<(usize, usize)> {
    let before = pieces.range(..start).next_back().filter(|(_, piece)| piece.end > start);
    before.into_iter().chain(pieces.range(start..end)).map(|(first, piece)| (*first, piece.end)).collect()
}

/// # Safety
///
/// The pages stay mapped until they are unpinned.
unsafe fn pin(device: &Device, start: usize, end: usize) -> Outcome<()> {
    let read_only = mapping(start, end).is_some_and(|m| !m.writable);
    // SAFETY: the caller's promise.
    let address = unsafe { device.driver().register(start as *const u8, end - start, read_only) }?;
    if address == start as u64 {
        return Ok(());
    }
    device.driver().unregister(start as *const u8);
    let what = "the device sees host memory at other addresses, so it cannot read what is pinned in pieces".to_string();
    Err(Failure { call: "cuMemHostGetDevicePointer_v2", what, memory: false })
}

fn unpin(pieces: &mut BTreeMap<usize, Piece>, first: usize) -> Piece {
    let piece = pieces.remove(&first).expect("it is in the table");
    piece.device.driver().unregister(first as *const u8);
    piece
}

/// Adds likely causes and their cures.
fn explain(failure: Failure, start: usize, bytes: usize, done: usize) -> Failure {
    let mut causes = Vec::new();
    if let Some(limit) = locked_limit().filter(|limit| *limit < bytes as u64) {
        let cure =
            "raise it (ulimit -l unlimited, LimitMEMLOCK=infinity of a service, --ulimit memlock=-1 of a container)";
        causes.push(format!("the limit on locked memory is {limit} bytes: {cure}"));
    }
    let available = morphgl_registry::Machine::probe().available_bytes;
    if available < (bytes - done) as u64 {
        causes.push(format!(
            "{available} bytes of memory are free, by the machine or the cgroup's memory.max, and pinned pages stay in memory"
        ));
    }
    if let Some(file) = mapping(start + done, start + done + 1).and_then(|m| m.file) {
        causes.push(format!("{file} is mapped: loaded into memory instead (without --mmap), it can be pinned"));
    }
    let mut failure = failure.of(format!("pinning {bytes} bytes in place, after {done}"));
    for cause in causes {
        failure.what.push_str("; ");
        failure.what.push_str(&cause);
    }
    failure
}

/// The process's limit on locked memory, if any.
fn locked_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it writes two numbers.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (asked == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Properties of mapped pages.
struct Mapping {
    writable: bool,
    file: Option<String>,
}

/// Mapping of the pages of `start..end` from `/proc/self/maps`; writable if all of them are.
fn mapping(start: usize, end: usize) -> Option<Mapping> {
    of_maps(&std::fs::read_to_string("/proc/self/maps").ok()?, start, end)
}

fn of_maps(maps: &str, start: usize, end: usize) -> Option<Mapping> {
    let mut found: Option<Mapping> = None;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
        if from >= end || to <= start {
            continue;
        }
        let writable = fields.next()?.as_bytes().get(1) == Some(&b'w');
        let file = line.find('/').map(|at| line[at..].to_string());
        let before = found.take().unwrap_or(Mapping { writable: true, file: None });
        found = Some(Mapping { writable: before.writable && writable, file: before.file.or(file) });
    }
    found
}

fn page_bytes() -> usize {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::{mapping, of_maps, page_bytes};

    #[test]
    fn mappings_are_read_from_the_kernel_s_list() {
        let maps = "1000-3000 rw-p 00000000 00:00 0\n\
                    3000-5000 r--s 00000000 fe:00 12 /data/a file.npy\n\
                    7000-8000 rw-p 00000000 00:00 0 [heap]\n";
        let look = |start, end| of_maps(maps, start, end).map(|m| (m.writable, m.file));
        assert_eq!(look(0x1000, 0x2000), Some((true, None)));
        assert_eq!(look(0x2000, 0x4000), Some((false, Some("/data/a file.npy".to_string()))));
        assert_eq!(look(0x5000, 0x7000), None);
        assert_eq!(look(0x7000, 0x7001), Some((true, None)));
    }

    #[test]
    fn own_pages_are_known() {
        let own = vec![1u8; 3 * page_bytes()];
        let start = own.as_ptr() as usize;
        assert!(mapping(start, start + own.len()).expect("it is mapped").writable);
        let code = own_pages_are_known as *const () as usize;
        assert!(!mapping(code, code + 1).expect("it is mapped").writable);
    }
}
