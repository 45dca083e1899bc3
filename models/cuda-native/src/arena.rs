//! Arena allocator for a mini-batch's device memory: stack order, released as a whole.

use morphgl_cuda::{Buffer, Floats, Stream};
use morphgl_registry::Result;

/// Alignment of regions in words: 256 bytes.
const ALIGNMENT: usize = 64;
/// Minimum words of a block.
const MIN_BLOCK: usize = 1 << 14;

/// Whether each region is a block of its own, so that a sanitizer detects accesses beyond one.
fn separate() -> bool {
    morphgl_cuda::sanitizer().is_some()
}

/// A range of 4-byte words in an arena, valid until released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    block: usize,
    start: usize,
    len: usize,
}

impl Region {
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// Its first `len` words.
    pub(crate) fn first(self, len: usize) -> Self {
        self.from(0, len)
    }

    /// The `len` words from `start` on.
    pub(crate) fn from(self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len, "{len} words from {start} on of {}", self.len);
        Self { start: self.start + start, len, ..self }
    }
}

/// A position of an arena to release back to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    block: usize,
    used: usize,
}

/// The arena: one block in the steady state. A mini-batch larger than all before adds blocks, and the next one merges them.
#[derive(Debug)]
pub(crate) struct Arena {
    blocks: Vec<Buffer<f32>>,
    // Invariant: regions lie in blocks up to `block`, and in that one before word `used`.
    block: usize,
    used: usize,
    peak: usize,
}

impl Arena {
    pub(crate) fn new(stream: &Stream) -> Result<Self> {
        Ok(Self { blocks: vec![Buffer::new(stream, MIN_BLOCK)?], block: 0, used: 0, peak: 0 })
    }

    /// Releases all regions. Earlier work of the stream may still use them: later work is ordered after it.
    pub(crate) fn begin(&mut self, stream: &Stream) -> Result<()> {
        if self.blocks.len() > 1 {
            self.blocks.clear();
            self.peak = self.peak.max(MIN_BLOCK);
            // An eighth more, since mini-batches differ in size.
            self.blocks.push(Buffer::new(stream, self.peak + self.peak / 8)?);
        }
        (self.block, self.used) = (0, 0);
        Ok(())
    }

    pub(crate) fn take(&mut self, stream: &Stream, len: usize) -> Result<Region> {
        if separate() {
            self.blocks.truncate(self.block + 1);
            self.blocks.push(Buffer::new(stream, len)?);
            (self.block, self.used) = (self.block + 1, len);
            return Ok(Region { block: self.block, start: 0, len });
        }
        let padded = len.next_multiple_of(ALIGNMENT);
        while self.used + padded > self.blocks[self.block].len() {
            if self.block + 1 == self.blocks.len() {
                let last = self.blocks[self.block].len();
                self.blocks.push(Buffer::new(stream, padded.max(last / 2).max(MIN_BLOCK))?);
            }
            (self.block, self.used) = (self.block + 1, 0);
        }
        let region = Region { block: self.block, start: self.used, len };
        self.used += padded;
        let before: usize = self.blocks[..self.block].iter().map(Buffer::len).sum();
        self.peak = self.peak.max(before + self.used);
        Ok(region)
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { block: self.block, used: self.used }
    }

    /// Releases all regions taken since `mark`.
    pub(crate) fn release(&mut self, mark: Mark) {
        (self.block, self.used) = (mark.block, mark.used);
    }

    pub(crate) fn floats(&self, region: Region) -> Floats<'_> {
        Floats::from(&self.blocks[region.block]).part(region.start..region.start + region.len)
    }

    /// Block and offset of a region.
    pub(crate) fn locate(&mut self, region: Region) -> (&mut Buffer<f32>, usize) {
        (&mut self.blocks[region.block], region.start)
    }

    /// Total words of all blocks.
    pub(crate) fn words(&self) -> usize {
        self.blocks.iter().map(Buffer::len).sum()
    }
}
