//! Allocations of emulated device memory and pinned memory, both from the host's heap.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

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
    pub(super) fn used(&self, kind: MemoryKind) -> u64 {
        self.used[kind as usize]
    }

    /// Allocates a zeroed block, within `limit` bytes of its kind.
    pub(super) fn allocate(
        &mut self,
        call: &'static str,
        bytes: usize,
        kind: MemoryKind,
        limit: u64,
    ) -> Outcome<Address> {
        let full = |message| Failure { call, message, out_of_memory: true };
        let used = self.used(kind);
        if (bytes as u64).checked_add(used).is_none_or(|used| used > limit) {
            return Err(full(format!("{bytes} bytes requested, {used} of {limit} in use")));
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|e| Failure::new(call, e.to_string()))?;
        // SAFETY: sizes are positive.
        let pointer = unsafe { alloc_zeroed(layout) };
        if pointer.is_null() {
            return Err(full("the host's memory is full".to_string()));
        }
        self.used[kind as usize] += bytes as u64;
        self.sizes.insert(pointer as Address, (bytes, kind));
        Ok(pointer as Address)
    }

    pub(super) fn free(&mut self, address: Address) {
        let (bytes, kind) = self.sizes.remove(&address).expect("a block is freed once");
        self.used[kind as usize] -= bytes as u64;
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("the layout was valid at allocation");
        // SAFETY: the block was allocated with this layout, and is not used any more.
        unsafe { dealloc(address as *mut u8, layout) };
    }
}
