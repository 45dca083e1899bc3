//! A stretch of an array as bytes, to be read and decoded on any thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use morphgl_graph_store::{Error, MAX_NODES, Position, Result};
use morphgl_platform::{PagePool, Pages};

use crate::elements::{ElementType, OTHER_ELEMENTS};
use crate::plain::{Filled, PlainFile};

/// Bytes of a file that are read and decoded at a time.
const PIECE: usize = 512 << 10;

/// Elements of an array: bytes that are read already, or where they lie in a file.
pub(crate) struct Raw {
    pub(crate) path: PathBuf,
    pub(crate) ty: ElementType,
    /// Number of the first element.
    pub(crate) first: u64,
    /// Where the bytes begin in the array's file.
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) bytes: Bytes,
}

pub(crate) enum Bytes {
    Read(Pages),
    File(Arc<PlainFile>),
}

impl Raw {
    /// The bytes.
    ///
    /// # Errors
    ///
    /// The file ends early, or cannot be read.
    pub(crate) fn read(self, pool: &PagePool) -> Result<Filled> {
        let decode = Decode { path: self.path, ty: self.ty, first: self.first, at: self.at };
        match self.bytes {
            Bytes::Read(pages) => Ok(pages.into()),
            Bytes::File(file) => decode.fill(&file, pool.take(), self.len),
        }
    }

    /// Replaces `out` by the node ids.
    ///
    /// # Errors
    ///
    /// As of [`Raw::read`]; elements that are no node ids.
    pub(crate) fn node_ids(self, pool: &PagePool, out: &mut Vec<u32>) -> Result<()> {
        out.clear();
        out.reserve_exact(self.len / self.ty.size.max(1));
        self.pieces(pool, |decode, bytes| decode.node_ids(bytes, out))
    }

    /// Replaces `out` by the numbers.
    ///
    /// # Errors
    ///
    /// As of [`Raw::read`]; elements that are no numbers.
    pub(crate) fn floats(self, pool: &PagePool, out: &mut Vec<f32>) -> Result<()> {
        out.clear();
        out.reserve_exact(self.len / self.ty.size.max(1));
        self.pieces(pool, |decode, bytes| decode.floats(bytes, out))
    }

    /// Hands on the bytes, those of a file a few at a time: they are decoded while they lie in the cache.
    fn pieces(self, pool: &PagePool, mut each: impl FnMut(&Decode, &[u8]) -> Result<()>) -> Result<()> {
        let mut decode = Decode { path: self.path, ty: self.ty, first: self.first, at: self.at };
        let file = match self.bytes {
            Bytes::Read(pages) => return each(&decode, &pages),
            Bytes::File(file) => file,
        };
        let (mut pages, mut left) = (pool.take(), self.len);
        while left > 0 {
            let bytes = decode.fill(&file, pages, left.min(PIECE))?;
            each(&decode, &bytes)?;
            left -= bytes.len();
            decode.first += (bytes.len() / decode.ty.size.max(1)) as u64;
            decode.at += bytes.len() as u64;
            pages = bytes.into_pages();
        }
        Ok(())
    }
}

/// How the bytes of a stretch are to be understood.
struct Decode {
    path: PathBuf,
    ty: ElementType,
    first: u64,
    at: u64,
}

impl Decode {
    fn damaged(&self, what: impl Into<String>) -> Error {
        Error::invalid(&self.path, Position::Byte(self.at), what, "the file is damaged or cut short: download it again")
    }

    fn other(&self, what: impl Into<String>) -> Error {
        Error::invalid(&self.path, Position::Byte(self.at), what, OTHER_ELEMENTS)
    }

    /// The `len` bytes from where they begin, in `pages`.
    fn fill(&self, file: &PlainFile, pages: Pages, len: usize) -> Result<Filled> {
        file.fill(pages, self.at, len).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged("the array ends early"),
            _ => Error::io(&self.path, e),
        })
    }

    /// Appends the node ids.
    fn node_ids(&self, bytes: &[u8], out: &mut Vec<u32>) -> Result<()> {
        let start = out.len();
        if self.ty.ids(bytes, out) {
            return Ok(());
        }
        out.truncate(start);
        let mut wide = Vec::new();
        let ints = self.ty.ints(bytes, &mut wide);
        ints.map_err(|name| self.other(format!("elements of type {name}, expected integers")))?;
        for (i, id) in (self.first..).zip(wide) {
            match u32::try_from(id) {
                Ok(id) if u64::from(id) < MAX_NODES => out.push(id),
                _ => {
                    let what = format!("the node id {id} is outside 0..{MAX_NODES}");
                    let cure = "correct or renumber the ids";
                    return Err(Error::invalid(&self.path, Position::Element(i), what, cure));
                }
            }
        }
        Ok(())
    }

    /// Appends the numbers.
    fn floats(&self, bytes: &[u8], out: &mut Vec<f32>) -> Result<()> {
        let floats = self.ty.floats(bytes, out);
        floats.map_err(|name| self.other(format!("elements of type {name}, expected numbers")))
    }
}
