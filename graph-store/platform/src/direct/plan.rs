//! Merging of element fetches into block-aligned reads.

use std::ops::Range;

/// One element of an array on disk, and its position in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fetch {
    /// Index in the array.
    pub element: u64,
    /// Index in the output.
    pub to: u32,
}

/// One read of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Request {
    /// First byte, a multiple of the block.
    pub(crate) offset: u64,
    /// Bytes, a multiple of the block.
    pub(crate) len: usize,
    /// The fetches it serves.
    pub(crate) fetches: Range<usize>,
}

/// The array's layout in the file, and the limits of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Byte of the file that element 0 begins at.
    pub(crate) base: u64,
    /// Bytes of an element.
    pub(crate) unit: usize,
    pub(crate) block: u64,
    /// Maximum of unwanted bytes between two fetches of one read.
    pub(crate) gap: u64,
    /// Maximum bytes of a read.
    pub(crate) most: u64,
}

impl Layout {
    /// First byte of an element.
    pub(crate) fn start(&self, fetch: Fetch) -> u64 {
        self.base + fetch.element * self.unit as u64
    }

    /// The read for `fetches[first]` and the fetches after it, as long as they ascend and are close.
    pub(crate) fn request(&self, fetches: &[Fetch], first: usize) -> Request {
        let blocks = |fetch: Fetch| {
            let start = self.start(fetch);
            let end = start + self.unit as u64;
            (start / self.block * self.block, end.next_multiple_of(self.block))
        };
        let (start, mut end) = blocks(fetches[first]);
        let mut last = first + 1;
        while let Some(&fetch) = fetches.get(last) {
            let (from, to) = blocks(fetch);
            if from < start || from > end + self.gap || to.max(end) - start > self.most {
                break;
            }
            end = end.max(to);
            last += 1;
        }
        Request { offset: start, len: (end - start) as usize, fetches: first..last }
    }
}

#[cfg(test)]
mod tests;
