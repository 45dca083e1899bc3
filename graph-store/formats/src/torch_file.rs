//! Files of `torch.save` that hold numpy arrays: a zip archive with a pickle in it, or, before torch 1.6, pickles one after another.

use std::io::Read;
use std::path::Path;

use morphgl_graph_store::{Error, Result};
use morphgl_platform::open_regular;

use crate::archive::Archive;
use crate::files::{RAISE_MEMORY, invalid};
use crate::pickle::{self, Pickle};

/// The first pickle of a file before torch 1.6: an integer of 80 bits.
const OLD: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
/// Pickles between that and the object: the version, and what the types of the machine are.
const OLD_HEADERS: usize = 2;

/// A file of `torch.save`, held whole.
#[derive(Debug)]
pub(crate) struct TorchFile<'p> {
    path: &'p Path,
    bytes: Vec<u8>,
    /// Where the object's pickle begins.
    at: usize,
}

impl<'p> TorchFile<'p> {
    /// Reads a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// A longer file, or one that `torch.save` did not write; an IO error.
    pub(crate) fn read(path: &'p Path, limit: u64) -> Result<Self> {
        let mut bytes = Vec::new();
        if !path.exists() {
            let cure = "name the directory that holds OGB's raw/ and split/, complete";
            return invalid(path, "there is no such file", cure);
        }
        let io = |e| Error::io(path, e);
        open_regular(path).map_err(io)?.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > limit {
            return invalid(path, format!("a file of more than {limit} bytes, which is held whole"), RAISE_MEMORY);
        }
        if bytes.starts_with(b"PK\x03\x04") {
            drop(bytes);
            let bytes = Archive::of_any(path)?.member("/data.pkl", limit)?;
            return Ok(Self { path, bytes, at: 0 });
        }
        let mut at = OLD.len();
        if !bytes.starts_with(OLD) {
            return invalid(path, "not a file of torch.save", "download it again");
        }
        for _ in 0..OLD_HEADERS {
            at += pickle::read_first(path, &bytes[at..])?.1;
        }
        Ok(Self { path, bytes, at })
    }

    /// The object.
    ///
    /// # Errors
    ///
    /// Anything but numpy arrays, dicts and lists; damage.
    pub(crate) fn pickle(&self) -> Result<Pickle<'_>> {
        pickle::read(self.path, &self.bytes[self.at..])
    }
}
