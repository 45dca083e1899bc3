//! Location of a dataset's array, for readers of its file.

use std::fs::File;
use std::path::{Path, PathBuf};

use half::{bf16, f16};

use crate::npy::read_header;
use crate::{Dtype, Error, Meta, Position, Result};

/// A stored array: its file, and its offset there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayFile {
    /// The file.
    pub path: PathBuf,
    /// Byte of the file that the first element begins at.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Lengths of the dimensions, slowest first.
    pub shape: Vec<u64>,
}

impl ArrayFile {
    /// Finds the array `name` of the dataset at `dataset`; `None` where the dataset does not have it.
    ///
    /// # Errors
    ///
    /// No dataset there, or a file that is missing, cut short or not what `graph.json` says.
    pub fn find(dataset: &Path, name: &str) -> Result<Option<Self>> {
        let meta = Meta::read(dataset)?;
        let Some(array) = meta.arrays.get(name) else { return Ok(None) };
        let path = dataset.join(&array.file);
        let file = File::open(&path).map_err(|e| Error::io(&path, e))?;
        let (shape, offset) = match array.dtype {
            Dtype::U8 => read_header::<u8>(&path, &file),
            Dtype::U32 => read_header::<u32>(&path, &file),
            Dtype::U64 => read_header::<u64>(&path, &file),
            Dtype::I32 => read_header::<i32>(&path, &file),
            Dtype::I64 => read_header::<i64>(&path, &file),
            Dtype::F16 => read_header::<f16>(&path, &file),
            Dtype::Bf16 => read_header::<bf16>(&path, &file),
            Dtype::F32 => read_header::<f32>(&path, &file),
            Dtype::F64 => read_header::<f64>(&path, &file),
        }?;
        if shape != array.shape {
            let what = format!("the shape is {shape:?}, graph.json says {:?}", array.shape);
            return Err(Error::invalid(&path, Position::File, what, "the file was replaced: import the dataset again"));
        }
        let found = Self { path, offset, dtype: array.dtype, shape };
        let (end, actual) = (offset + found.num_bytes(), file.metadata().map_err(|e| Error::io(&found.path, e))?.len());
        if actual < end {
            let what = format!("the header promises {end} bytes, the file has {actual}");
            let cure = "the file was cut short or altered: copy or create it again";
            return Err(Error::invalid(&found.path, Position::Byte(actual), what, cure));
        }
        Ok(Some(found))
    }

    /// Bytes of all elements.
    pub fn num_bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.size() as u64
    }
}
