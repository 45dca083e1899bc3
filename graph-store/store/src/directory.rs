//! The directory of a dataset, held open.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use morphgl_platform::HeldDir;

use crate::npy::ArrayFile;
use crate::{Error, Meta, Position, Result};

/// The directory that a dataset was opened from, held open with the description that it had then; the default, of a dataset made
/// in memory, is an empty path. Dereferences to its path.
///
/// Whatever takes its place at its path later, as by `morphgl import --force`, [`DatasetPath::array`] opens this dataset's files
/// or fails. Two are equal if their paths are.
#[derive(Clone, Default)]
pub struct DatasetPath(Option<Arc<Opened>>);

struct Opened {
    dir: HeldDir,
    meta: Meta,
    /// All arrays, once they are held.
    held: OnceLock<BTreeMap<String, ArrayFile>>,
}

impl DatasetPath {
    /// Opens the directory of a dataset, and reads and checks its `graph.json`.
    ///
    /// # Errors
    ///
    /// No dataset there, a newer version, or arrays of mismatched shapes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let (dir, meta) = Meta::open(path.as_ref())?;
        Ok(Self(Some(Arc::new(Opened { dir, meta, held: OnceLock::new() }))))
    }

    /// The description; `None` of a dataset made in memory.
    pub fn meta(&self) -> Option<&Meta> {
        self.0.as_ref().map(|opened| &opened.meta)
    }

    /// The checksum of each array by its name, which tell one dataset from another; none of a dataset made in memory.
    pub fn checksums(&self) -> BTreeMap<String, String> {
        let arrays = self.meta().into_iter().flat_map(|meta| &meta.arrays);
        arrays.map(|(name, array)| (name.clone(), array.xxh3.clone())).collect()
    }

    /// Opens the file of the array `name`; `None` where the dataset does not have it. Files of a dataset left on disk
    /// ([`Load::Disk`](crate::Load::Disk)) are open already, and stay readable when the dataset is replaced.
    ///
    /// # Errors
    ///
    /// A file that is missing, cut short or not what `graph.json` says; a dataset that was changed, removed or replaced since it
    /// was opened.
    pub fn array(&self, name: &str) -> Result<Option<ArrayFile>> {
        let Some(opened) = self.0.as_ref().filter(|opened| opened.meta.arrays.contains_key(name)) else {
            return Ok(None);
        };
        opened.check()?;
        let array = match opened.held.get() {
            Some(held) => held[name].clone(),
            None => opened.array(name)?,
        };
        let meta = &opened.meta.arrays[name];
        meta.check_shape(&array.path, &array.shape)?;
        let actual = array.file.metadata().map_err(|e| Error::io(&array.path, e))?.len();
        let end = array.offset.saturating_add(array.num_bytes());
        if actual < end {
            let what = format!("the header promises {end} bytes, the file has {actual}");
            let cure = "the file was cut short or altered: copy or create it again";
            return Err(Error::invalid(&array.path, Position::Byte(actual), what, cure));
        }
        Ok(Some(array))
    }

    /// Opens all files that are not open yet, for readers to come.
    pub(crate) fn hold(&self) -> Result<()> {
        let Some(opened) = &self.0 else { return Ok(()) };
        let names = opened.meta.arrays.keys();
        let held = names.map(|name| Ok((name.clone(), opened.array(name)?))).collect::<Result<_>>()?;
        opened.held.get_or_init(|| held);
        Ok(())
    }

    /// The file of an array that the description has, of any shape.
    pub(crate) fn any_array(&self, name: &str) -> Result<ArrayFile> {
        let opened = self.0.as_ref().expect("a description is of a directory");
        opened.held.get().map_or_else(|| opened.array(name), |held| Ok(held[name].clone()))
    }
}

impl Opened {
    /// Refuses a directory whose description has changed since it was opened; one that was removed is detected when its files are opened.
    fn check(&self) -> Result<()> {
        match Meta::of(&self.dir) {
            Ok(meta) if meta == self.meta => Ok(()),
            Ok(_) => Err(self.lost("it was changed since it was opened")),
            Err(_) if !self.dir.is_in_place() => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn array(&self, name: &str) -> Result<ArrayFile> {
        let meta = &self.meta.arrays[name];
        let path = self.dir.path().join(&meta.file);
        let file = self.dir.open_file(meta.file.as_ref()).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound if !self.dir.is_in_place() => {
                self.lost("it was removed, or another one has taken its place, since it was opened")
            }
            _ => Error::io(&path, e),
        })?;
        ArrayFile::of(path, file, meta.dtype)
    }

    fn lost(&self, what: &str) -> Error {
        Error::invalid(self.dir.path(), Position::File, what, "run again, and leave the dataset as it is meanwhile")
    }
}

impl Deref for DatasetPath {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), |opened| opened.dir.path())
    }
}

impl AsRef<Path> for DatasetPath {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl PartialEq for DatasetPath {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for DatasetPath {}

impl fmt::Debug for DatasetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
