//! Arrays by name, from an `.npz` archive or a directory of `.npy` files.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::files::{DAMAGED, invalid, is_damage, open_file};
use crate::npy::{ArrayBytes, ArrayReader, open_array};
use crate::text::not_an_archive;

/// An open `.npz` archive.
pub(crate) struct Archive {
    pub(crate) path: PathBuf,
    zip: ZipArchive<BufReader<File>>,
}

impl Archive {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut file = BufReader::with_capacity(64 << 10, open_file(path, "name the .npz file")?);
        if let Some((what, cure)) = not_an_archive(file.fill_buf().map_err(|e| Error::io(path, e))?) {
            return invalid(path, what, cure);
        }
        let zip = ZipArchive::new(file).or_else(|e| zip_error(path, e))?;
        Ok(Self { path: path.to_path_buf(), zip })
    }

    /// Names of the arrays, without `.npy`, in the archive's order.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = self.zip.file_names_raw().map(String::from_utf8_lossy);
        names.map(|n| n.strip_suffix(".npy").unwrap_or(&n).to_string()).collect()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.zip.index_for_name(&format!("{name}.npy")).is_some()
    }

    /// Opens the array `name`.
    pub(crate) fn array(&mut self, name: &str) -> Result<ArrayReader<'_>> {
        let path = self.path.join(format!("{name}.npy"));
        let Some(index) = self.zip.index_for_name(&format!("{name}.npy")) else {
            let what = format!("the archive has no array {name:?}, only {:?}", self.names());
            return invalid(&self.path, what, "check that this is the right file");
        };
        let reader = self.zip.by_index(index).or_else(|e| zip_error(&path, e))?;
        ArrayReader::new(path, ArrayBytes::Stream(Box::new(reader)))
    }
}

fn zip_error<T>(path: &Path, error: ZipError) -> Result<T> {
    match error {
        ZipError::Io(e) if !is_damage(&e) => Err(Error::io(path, e)),
        e => invalid(path, format!("not a readable npz archive ({})", e.to_string().to_lowercase()), DAMAGED),
    }
}

/// A set of arrays.
pub(crate) enum ArraySet {
    Directory(PathBuf),
    Archive(Archive),
}

impl ArraySet {
    pub(crate) fn open(source: &Path) -> Result<Self> {
        let metadata = fs::metadata(source).map_err(|e| Error::io(source, e))?;
        if metadata.is_dir() { Ok(Self::Directory(source.into())) } else { Archive::open(source).map(Self::Archive) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::Directory(path) => path.join(format!("{name}.npy")).is_file(),
            Self::Archive(archive) => archive.has(name),
        }
    }

    /// Names of all arrays, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = match self {
            Self::Directory(path) => {
                let mut names = Vec::new();
                for entry in fs::read_dir(path).map_err(|e| Error::io(path, e))? {
                    let name = entry.map_err(|e| Error::io(path, e))?.file_name();
                    names.extend(name.to_string_lossy().strip_suffix(".npy").map(str::to_string));
                }
                names
            }
            Self::Archive(archive) => archive.names(),
        };
        names.sort_unstable();
        Ok(names)
    }

    /// The one of `names` that exists.
    pub(crate) fn one_of<'n>(&self, names: &[&'n str]) -> Result<Option<&'n str>> {
        let mut existing = names.iter().copied().filter(|name| self.has(name));
        let first = existing.next();
        if let (Some(first), Some(second)) = (first, existing.next()) {
            let what = format!("both {first} and {second} are given, which mean the same");
            return invalid(self.path(), what, "remove one of them");
        }
        Ok(first)
    }

    /// Opens the array `name`.
    pub(crate) fn array(&mut self, name: &str) -> Result<ArrayReader<'_>> {
        match self {
            Self::Directory(path) => open_array(&path.join(format!("{name}.npy"))),
            Self::Archive(archive) => archive.array(name),
        }
    }

    /// Opens the one array of `names` that exists.
    pub(crate) fn array_of(&mut self, names: &[&str]) -> Result<Option<ArrayReader<'_>>> {
        self.one_of(names)?.map(|name| self.array(name)).transpose()
    }

    fn path(&self) -> &Path {
        match self {
            Self::Directory(path) => path,
            Self::Archive(archive) => &archive.path,
        }
    }
}
