//! The order in which a device reads parts of a table in host memory.

use morphgl_registry::Result;
use serde::Deserialize;

use crate::{Argument, Buffer, Kernel, Shape, Stream};

/// Smallest bucket: a page by which a device may address host memory.
const MIN_SHIFT: u32 = 12;
/// Maximum number of buckets, for which a table of 4 GiB has buckets of 1 or 2 MiB. The counters, 16 KiB, are summed by one block. Wider
/// buckets of larger tables lose little: what a grid reads at a time is of several buckets anyway.
const MAX_BUCKETS: u64 = 1 << 12;
/// Threads of the block that sums the counters, as `scan_buckets` has it; threads of the others.
const SCAN_THREADS: u32 = 1024;
const THREADS: u32 = 256;

/// In which order a device reads parts of a table in host memory for the nodes of a mini-batch: feature rows, adjacency lists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Whichever is faster.
    #[default]
    Auto,
    /// As the mini-batch lists its nodes.
    Nodes,
    /// By their addresses.
    Pages,
}

impl Order {
    /// Bytes of the smallest table that is worth a measurement. Of a smaller one, addresses are translated fast in any order: from one of
    /// 256 MiB an H200 read 42 GB/s of the link's 55.
    pub const MIN_TABLE: usize = 64 << 20;
    /// Fewer reads of the host are not put in order unless an option says so. Some 3,000 are in flight at a time, which span most of the
    /// table in any order where they are a large part of the mini-batch; and four launches have to pay.
    pub const MIN_READS: usize = 1 << 14;
}

/// Puts items in the order of their addresses in a table, as far as buckets of the address space tell them apart, by one pass of a radix
/// sort: a device translates an address faster if it has translated its neighbours lately.
///
/// The kernels are the operator's, made by the functions `by_bucket` and `scan_buckets` of `morphgl.cuh`: one counts the items by bucket,
/// one sums the counts, and one writes the items' numbers to their places. The first and the last have the operator's own arguments, then
/// `shift` and the counters; the last then the order.
#[derive(Debug)]
pub struct PageOrder {
    kernels: [Kernel; 3],
    /// Binary logarithm of the bytes of a bucket.
    shift: u32,
    num_buckets: u32,
}

impl PageOrder {
    /// Of a table of so many bytes at an address, by kernels that count, scan and place.
    pub fn new(kernels: [Kernel; 3], address: u64, bytes: u64) -> Self {
        let (shift, num_buckets) = buckets(address, bytes);
        Self { kernels, shift, num_buckets }
    }

    /// Number of buckets, and so of counters.
    pub fn num_buckets(&self) -> u32 {
        self.num_buckets
    }

    /// Queues the kernels: afterwards `order` has the numbers of the items, of which there are at most `num_items`, in that order.
    /// `counts` is overwritten.
    ///
    /// O(items + buckets).
    ///
    /// # Panics
    ///
    /// When `counts` has fewer elements than there are buckets, or `order` fewer than items.
    ///
    /// # Safety
    ///
    /// `items` are the first arguments of the kernels that count and place, whose bucket of an item is below the number of buckets;
    /// otherwise as for [`Stream::launch`].
    pub unsafe fn sort(
        &self,
        stream: &Stream,
        (num_items, items): (usize, &[Argument<'_>]),
        counts: &mut Buffer<u32>,
        order: &mut Buffer<u32>,
    ) -> Result<()> {
        let [count, scan, place] = &self.kernels;
        assert!(counts.len() >= self.num_buckets as usize && order.len() >= num_items, "memory for {num_items} items");
        stream.fill(counts, 0)?;
        let shape = Shape::covering(num_items, THREADS);
        let (counts, order) = (&*counts, &*order);
        let mut arguments = [items, &[self.shift.into(), counts.into()]].concat();
        // SAFETY: the caller's promise; there is a counter per bucket.
        unsafe { stream.launch(count, shape, &mut arguments)? };
        // SAFETY: the arguments are the kernel's, and there are so many counts.
        unsafe {
            stream.launch(scan, Shape::linear(1, SCAN_THREADS), &mut [self.num_buckets.into(), counts.into()])?;
        }
        let mut arguments = [items, &[self.shift.into(), counts.into(), order.into()]].concat();
        // SAFETY: as above, and the counts are now those of the items of earlier buckets: places are below the number of items.
        unsafe { stream.launch(place, shape, &mut arguments) }
    }
}

/// Binary logarithm of the bytes of a bucket of a table of so many bytes at an address, and the number of buckets: as many as there may
/// be, of at least a page each.
fn buckets(address: u64, bytes: u64) -> (u32, u32) {
    let last = address + bytes.max(1) - 1;
    let number = |shift: u32| (last >> shift) - (address >> shift) + 1;
    let shift =
        (MIN_SHIFT..u64::BITS).find(|&shift| number(shift) <= MAX_BUCKETS).expect("2 buckets of half the space");
    (shift, number(shift) as u32)
}

#[cfg(test)]
mod tests;
