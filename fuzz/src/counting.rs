//! An allocator that counts, for programs that bound the memory of readers.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator with the bytes in use and their peak.
struct Counting;

/// Bytes in use.
pub(crate) static NOW: AtomicUsize = AtomicUsize::new(0);
/// Their peak since it was last set.
pub(crate) static PEAK: AtomicUsize = AtomicUsize::new(0);

fn count(layout: Layout) {
    PEAK.fetch_max(NOW.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
}

// SAFETY: every call is forwarded to the system's allocator unchanged; the counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    // The default of `GlobalAlloc` writes zeros over the whole block, a tenth and more of an import's time; large blocks come from the
    // system zeroed.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `alloc` above with this layout, hence from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
