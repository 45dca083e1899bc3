//! Merging of element fetches into block-aligned reads.

use std::ops::Range;

/// One element of an array on disk, and its place in the output.
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
    /// Most unwanted bytes between two fetches of one read.
    pub(crate) gap: u64,
    /// Most bytes of a read.
    pub(crate) most: u64,
}

impl Layout {
    /// First byte of an element.
    pub(crate) fn start(&self, fetch: Fetch) -> u64 {
        self.base + fetch.element * self.unit as u64
    }

    /// The read that begins with `fetches[first]` and serves those after it as long as they ascend and are close.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reads_hold_all_wants_and_no_more_than_is_allowed(
            mut elements in prop::collection::vec(0u64..2000, 1..200), unit in 1usize..600, base in 0u64..1000,
            gap in 0u64..3000, sort: bool,
        ) {
            if sort {
                elements.sort_unstable();
            }
            let layout = Layout { base, unit, block: 512, gap, most: 4096 };
            let fetches: Vec<Fetch> = elements.into_iter().zip(0..).map(|(element, to)| Fetch { element, to }).collect();
            let mut next = 0;
            while next < fetches.len() {
                let request = layout.request(&fetches, next);
                prop_assert_eq!(request.fetches.start, next);
                prop_assert!(request.fetches.end > next);
                prop_assert!(request.len as u64 <= 4096 && request.offset.is_multiple_of(512) && request.len.is_multiple_of(512));
                for &fetch in &fetches[request.fetches.clone()] {
                    let start = layout.start(fetch);
                    prop_assert!(start >= request.offset);
                    prop_assert!(start + unit as u64 <= request.offset + request.len as u64);
                }
                next = request.fetches.end;
            }
        }
    }

    #[test]
    fn neighbours_share_a_read_and_strangers_do_not() {
        let layout = Layout { base: 128, unit: 256, block: 4096, gap: 0, most: 8192 };
        let fetches = [0u64, 1, 15, 16, 17, 100].map(|element| Fetch { element, to: 0 });
        // Row 15 crosses into the second page, row 31 would cross into the third.
        assert_eq!(layout.request(&fetches, 0), Request { offset: 0, len: 8192, fetches: 0..5 });
        assert_eq!(layout.request(&fetches, 5), Request { offset: 24576, len: 4096, fetches: 5..6 });
    }
}
