//! The order in which a mini-batch's rows are read from host memory.

use morphgl_cuda::{Buffer, Device, Kernel, Mapped, Shape, Stream};
use morphgl_registry::{CounterSpec, Result};
use serde::Deserialize;

use crate::KERNELS;

/// Rows that were gathered in the order of their addresses; it tells what `auto` has chosen.
pub const PAGE_ORDERED_ROWS: CounterSpec =
    CounterSpec::new("page_ordered_rows", "rows gathered in the order of their addresses in host memory");

/// Smallest bucket: a page by which a device may address host memory.
const MIN_SHIFT: u32 = 12;
/// Maximum number of buckets, for which a table of 4 GiB has buckets of 1 or 2 MiB. The counters, 16 KiB, are summed by one block. Wider
/// buckets of larger tables lose little: the rows that a grid reads at a time are of several buckets anyway.
const MAX_BUCKETS: u64 = 1 << 12;
/// Threads of the block that sums the counters, as the kernel has it; threads of the others.
const SCAN_THREADS: u32 = 1024;
const THREADS: u32 = 256;

/// In which order rows are read from host memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Order {
    /// Whichever is faster.
    #[default]
    Auto,
    /// As the mini-batch lists its nodes.
    Nodes,
    /// By their addresses.
    Pages,
}

/// Puts the rows of mini-batches in the order of their addresses in a table, as far as buckets of the address space tell them apart: a
/// device translates an address faster if it has translated its neighbours lately.
#[derive(Debug)]
pub(crate) struct PageOrder {
    count: Kernel,
    scan: Kernel,
    place: Kernel,
    /// Binary logarithm of the bytes of a bucket.
    shift: u32,
    num_buckets: u32,
}

impl PageOrder {
    /// Of a table of so many bytes at an address.
    pub(crate) fn new(device: &Device, address: u64, bytes: u64) -> Result<Self> {
        let (shift, num_buckets) = buckets(address, bytes);
        let [count, scan, place] =
            ["gather_order_count", "gather_order_scan", "gather_order_place"].map(|name| KERNELS.kernel(device, name));
        Ok(Self { count: count?, scan: scan?, place: place?, shift, num_buckets })
    }

    /// The numbers of the rows in that order, of the first `num_rows` of `nodes`.
    ///
    /// O(rows + buckets); 4 bytes of device memory for each.
    pub(crate) fn of(
        &self,
        stream: &Stream,
        (nodes, num_rows): (&Buffer<u32>, usize),
        (table, row_bytes): (&Mapped<u8>, usize),
    ) -> Result<Buffer<u32>> {
        let mut counts = Buffer::<u32>::new(stream, self.num_buckets as usize)?;
        stream.fill(&mut counts, 0)?;
        let mut order = Buffer::new(stream, num_rows)?;
        let shape = Shape::covering(num_rows, THREADS);
        let rows = (num_rows as u32, row_bytes as u32);
        let arguments =
            &mut [nodes.into(), rows.0.into(), rows.1.into(), table.into(), self.shift.into(), (&mut counts).into()];
        // SAFETY: the arguments are the kernel's. Each node's row lies in the table, and each byte of the table has a counter.
        unsafe { stream.launch(&self.count, shape, arguments)? };
        let arguments = &mut [self.num_buckets.into(), (&mut counts).into()];
        // SAFETY: the arguments are the kernel's, and there are so many counts.
        unsafe { stream.launch(&self.scan, Shape::linear(1, SCAN_THREADS), arguments)? };
        let arguments = &mut [
            nodes.into(),
            rows.0.into(),
            rows.1.into(),
            table.into(),
            self.shift.into(),
            (&mut counts).into(),
            (&mut order).into(),
        ];
        // SAFETY: as above, and the counts are now those of the rows of earlier buckets: places are numbers below `num_rows`.
        unsafe { stream.launch(&self.place, shape, arguments)? };
        Ok(order)
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
