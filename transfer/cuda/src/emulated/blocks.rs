//! Allocations of emulated device memory and pinned memory, both from the host's heap.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

use super::failure;
use crate::driver::{Address, Failure, MemoryKind, Outcome};

const ALIGNMENT: usize = 256;

/// Live allocations.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    sizes: HashMap<Address, (usize, MemoryKind)>,
    /// Bytes in use, by kind.
    used: [u64; 2],
}

impl Blocks {
    /// Bytes in use.
    pub(super) fn used(&self, of: MemoryKind) -> u64 {
        self.used[of as usize]
    }

    /// Allocates a zeroed block, within `most` bytes of its kind.
    pub(super) fn take(&mut self, call: &'static str, bytes: usize, of: MemoryKind, most: u64) -> Outcome<Address> {
        let used = self.used(of);
        if (bytes as u64).checked_add(used).is_none_or(|used| used > most) {
            let what = format!("{bytes} bytes asked for, {used} of {most} in use");
            return Err(Failure { call, what, memory: true });
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|e| failure(call, e.to_string()))?;
        // SAFETY: sizes are positive.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            return Err(Failure { call, what: "the host's memory is full".to_string(), memory: true });
        }
        self.used[of as usize] += bytes as u64;
        self.sizes.insert(pointer as Address, (bytes, of));
        Ok(pointer as Address)
    }

    /// Frees a block.
    pub(super) fn give(&mut self, address: Address) {
        let (bytes, of) = self.sizes.remove(&address).expect("memory is freed once, by whom it was given to");
        self.used[of as usize] -= bytes as u64;
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("it was one before");
        // SAFETY: it was allocated with this layout, and nobody uses it any more.
        unsafe { dealloc(address as *mut u8, layout) };
    }
}
