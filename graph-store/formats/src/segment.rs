//! A segment of an array as bytes, to be read and decoded on any thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};
use morphgl_platform::{PagePool, Pages};

use crate::elements::{ElementType, OTHER_ELEMENTS, Parsed};
use crate::files::DAMAGED;
use crate::plain::{FilledPages, PlainFile};

/// Bytes of a file that are read and decoded at a time.
const PIECE: usize = 512 << 10;

/// Consecutive elements of an array.
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) ty: ElementType,
    /// Number of the first element.
    pub(crate) first: u64,
    /// Offset of the bytes in the array's file.
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) bytes: SegmentBytes,
}

/// The bytes of a segment, or the file to read them from.
pub(crate) enum SegmentBytes {
    Read(Pages),
    File(Arc<PlainFile>),
}

impl Segment {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// The file ends early, or cannot be read.
    pub(crate) fn read(mut self, pool: &PagePool) -> Result<FilledPages> {
        match self.take_bytes() {
            SegmentBytes::Read(pages) => Ok(pages.into()),
            SegmentBytes::File(file) => self.fill(&file, pool.take(), self.len),
        }
    }

    /// Replaces `out` by the node ids.
    ///
    /// # Errors
    ///
    /// As of [`Segment::read`]; elements that are no node ids.
    pub(crate) fn node_ids(self, pool: &PagePool, out: &mut Vec<u32>) -> Result<()> {
        self.decode(pool, out, Self::decode_ids)
    }

    /// Replaces `out` by the numbers.
    ///
    /// # Errors
    ///
    /// As of [`Segment::read`]; elements that are no numbers.
    pub(crate) fn floats(self, pool: &PagePool, out: &mut Vec<f32>) -> Result<()> {
        self.decode(pool, out, |segment, bytes, out| segment.checked(segment.ty.floats(bytes, out)))
    }

    /// Replaces `out` by the elements, which `append` decodes; a file is read in pieces that fit the cache.
    fn decode<T>(
        mut self,
        pool: &PagePool,
        out: &mut Vec<T>,
        append: impl Fn(&Self, &[u8], &mut Vec<T>) -> Result<()>,
    ) -> Result<()> {
        let size = self.ty.size.max(1);
        out.clear();
        out.reserve_exact(self.len / size);
        let file = match self.take_bytes() {
            SegmentBytes::Read(pages) => return append(&self, &pages, out),
            SegmentBytes::File(file) => file,
        };
        let mut pages = pool.take();
        while self.len > 0 {
            let bytes = self.fill(&file, pages, self.len.min(PIECE))?;
            append(&self, &bytes, out)?;
            self.len -= bytes.len();
            self.first += (bytes.len() / size) as u64;
            self.at += bytes.len() as u64;
            pages = bytes.into_pages();
        }
        Ok(())
    }

    fn take_bytes(&mut self) -> SegmentBytes {
        std::mem::replace(&mut self.bytes, SegmentBytes::Read(Pages::new()))
    }

    /// The first `len` bytes, in `pages`.
    fn fill(&self, file: &PlainFile, pages: Pages, len: usize) -> Result<FilledPages> {
        file.fill(pages, self.at, len).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::invalid(&self.path, Position::Byte(self.at), "the array ends early", DAMAGED)
            }
            _ => Error::io(&self.path, e),
        })
    }

    fn checked<T>(&self, parsed: Parsed<T>) -> Result<T> {
        parsed.map_err(|what| Error::invalid(&self.path, Position::Byte(self.at), what, OTHER_ELEMENTS))
    }

    /// Appends node ids.
    fn decode_ids(&self, bytes: &[u8], out: &mut Vec<u32>) -> Result<()> {
        let start = out.len();
        if self.ty.ids(bytes, out) {
            return Ok(());
        }
        out.truncate(start);
        let mut wide = Vec::new();
        self.checked(self.ty.ints(bytes, &mut wide))?;
        for (i, id) in (self.first..).zip(wide) {
            let Some(id) = u32::try_from(id).ok().filter(|&id| u64::from(id) < MAX_NODES) else {
                let what = format!("the node id {id} is outside 0..{MAX_NODES}");
                return Err(Error::invalid(&self.path, Position::Element(i), what, "correct or renumber the ids"));
            };
            out.push(id);
        }
        Ok(())
    }
}
