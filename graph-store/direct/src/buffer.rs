//! Memory that the kernel may write to directly: aligned to pages.

/// A page of 4 KiB, the largest alignment that disks ask for.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Bytes that begin at a page's beginning and stay where they are.
#[derive(Debug)]
pub(crate) struct Buffer(
    // Invariant: never grown or shrunk, so its memory keeps its address until it is dropped.
    Vec<Page>,
);

impl Buffer {
    /// At least `bytes` bytes, all 0.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(vec![Page([0; PAGE]); bytes.div_ceil(PAGE)])
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        // SAFETY: a page is its bytes and nothing else, and any byte is valid.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * PAGE) }
    }

    pub(crate) fn as_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * PAGE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_at_a_page_and_holds_what_was_written() {
        let mut buffer = Buffer::new(5000);
        assert_eq!((buffer.as_bytes().as_ptr() as usize % PAGE, buffer.as_bytes().len()), (0, 2 * PAGE));
        buffer.as_bytes_mut()[4999] = 7;
        assert_eq!(buffer.as_bytes()[4999], 7);
    }
}
