//! Location of a dataset's array, for readers of its file.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::npy::read_header;
use crate::{Dtype, Error, Meta, Position, Result};

/// A stored array: its file, and its offset there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayFile {
    /// The file.
    pub path: PathBuf,
    /// Byte offset of the first element.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Lengths of the dimensions, slowest first.
    pub shape: Vec<u64>,
}

impl ArrayFile {
    /// Locates the array `name` of the dataset at `dataset`; `None` where the dataset does not have it.
    ///
    /// # Errors
    ///
    /// No dataset there, or a file that is missing, cut short or not what `graph.json` says.
    pub fn find(dataset: &Path, name: &str) -> Result<Option<Self>> {
        let meta = Meta::read(dataset)?;
        let Some(array) = meta.arrays.get(name) else { return Ok(None) };
        let path = dataset.join(&array.file);
        let file = File::open(&path).map_err(|e| Error::io(&path, e))?;
        let (shape, offset) = read_header(array.dtype, &path, &file)?;
        array.check_shape(&path, &shape)?;
        let located = Self { path, offset, dtype: array.dtype, shape };
        let actual = file.metadata().map_err(|e| Error::io(&located.path, e))?.len();
        let end = offset.saturating_add(located.num_bytes());
        if actual < end {
            let what = format!("the header promises {end} bytes, the file has {actual}");
            let cure = "the file was cut short or altered: copy or create it again";
            return Err(Error::invalid(&located.path, Position::Byte(actual), what, cure));
        }
        Ok(Some(located))
    }

    /// Bytes of all elements.
    pub fn num_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size() as u64
    }
}
