//! Which reads bring what is wanted: sorted, cut at blocks, neighbours in one.

use std::ops::Range;

/// One element of an array on disk, and where it is to go. An element is as many bytes as the reader is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Want {
    /// Which element of the array.
    pub element: u64,
    /// Which element of the output.
    pub to: u32,
}

/// One read of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Request {
    /// First byte, a multiple of the block.
    pub(crate) offset: u64,
    /// Bytes, a multiple of the block.
    pub(crate) len: usize,
    /// What it brings.
    pub(crate) wants: Range<usize>,
}

/// How wants are laid out in the file, and how reads are cut.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Byte of the file that element 0 begins at.
    pub(crate) base: u64,
    /// Bytes of an element.
    pub(crate) unit: usize,
    pub(crate) block: u64,
    /// Bytes that may be read in vain between two wants.
    pub(crate) gap: u64,
    /// Bytes of a read at most.
    pub(crate) most: u64,
}

impl Layout {
    /// First byte of an element.
    pub(crate) fn start(&self, want: Want) -> u64 {
        self.base + want.element * self.unit as u64
    }

    /// The read that begins with `wants[first]`: it takes along the wants that follow, as long as they ascend and are close.
    pub(crate) fn request(&self, wants: &[Want], first: usize) -> Request {
        let blocks = |want: Want| {
            let start = self.start(want);
            let end = start + self.unit as u64;
            (start / self.block * self.block, end.next_multiple_of(self.block))
        };
        let (start, mut end) = blocks(wants[first]);
        let mut last = first + 1;
        while let Some(&want) = wants.get(last) {
            let (from, to) = blocks(want);
            if from < start || from > end + self.gap || to.max(end) - start > self.most {
                break;
            }
            end = end.max(to);
            last += 1;
        }
        Request { offset: start, len: (end - start) as usize, wants: first..last }
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
            let wants: Vec<Want> = elements.into_iter().zip(0..).map(|(element, to)| Want { element, to }).collect();
            let mut next = 0;
            while next < wants.len() {
                let request = layout.request(&wants, next);
                prop_assert_eq!(request.wants.start, next);
                prop_assert!(request.wants.end > next);
                prop_assert!(request.len as u64 <= 4096 && request.offset.is_multiple_of(512) && request.len.is_multiple_of(512));
                for &want in &wants[request.wants.clone()] {
                    let start = layout.start(want);
                    prop_assert!(start >= request.offset);
                    prop_assert!(start + unit as u64 <= request.offset + request.len as u64);
                }
                next = request.wants.end;
            }
        }
    }

    #[test]
    fn neighbours_share_a_read_and_strangers_do_not() {
        let layout = Layout { base: 128, unit: 256, block: 4096, gap: 0, most: 8192 };
        let wants = [0u64, 1, 15, 16, 17, 100].map(|element| Want { element, to: 0 });
        // Row 15 crosses into the second page, row 31 would cross into the third.
        assert_eq!(layout.request(&wants, 0), Request { offset: 0, len: 8192, wants: 0..5 });
        assert_eq!(layout.request(&wants, 5), Request { offset: 24576, len: 4096, wants: 5..6 });
    }
}
