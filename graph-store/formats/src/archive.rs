//! Arrays by name, from an `.npz` archive or a directory of `.npy` files.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Result};
use zip::ZipArchive;
use zip::result::ZipError;

use crate::files::{DAMAGED, RAISE_MEMORY, invalid, is_damage, open_file};
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
        Self::of(path, file)
    }

    /// Opens an archive of any kind.
    pub(crate) fn of_any(path: &Path) -> Result<Self> {
        Self::of(path, BufReader::with_capacity(64 << 10, open_file(path, "name the archive")?))
    }

    fn of(path: &Path, file: BufReader<File>) -> Result<Self> {
        let mut zip = ZipArchive::new(file).or_else(|e| zip_error(path, e))?;
        if zip.has_duplicate_names() {
            return invalid(path, "the archive has two arrays of one name", "remove one of them");
        }
        check_directory(path, &mut zip)?;
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
        let len = reader.size();
        ArrayReader::new(path, ArrayBytes::Stream(Box::new(reader)), len)
    }

    /// The bytes, at most `limit`, of the member whose name ends so.
    pub(crate) fn member(&mut self, ending: &str, limit: u64) -> Result<Vec<u8>> {
        let path = &self.path;
        let names: Vec<String> =
            self.zip.file_names_raw().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let Some(index) = names.iter().position(|name| name.ends_with(ending)) else {
            return invalid(path, format!("the archive has no {ending:?}, only {names:?}"), DAMAGED);
        };
        let mut bytes = Vec::new();
        let member = self.zip.by_index(index).or_else(|e| zip_error(path, e))?;
        member.take(limit.saturating_add(1)).read_to_end(&mut bytes).or_else(|e| zip_error(path, ZipError::Io(e)))?;
        if bytes.len() as u64 > limit {
            return invalid(
                path,
                format!("{:?} has more than {limit} bytes, and is held whole", names[index]),
                RAISE_MEMORY,
            );
        }
        Ok(bytes)
    }

    /// Names of arrays that are none of `known`, for a note.
    pub(crate) fn unknown(&self, known: &[&str]) -> Vec<String> {
        let mut names = self.names();
        names.retain(|name| !known.contains(&name.as_str()));
        names
    }
}

/// Compares the directory at the end of an archive, by which arrays are found, with the headers before each array. In a damaged
/// archive an array could otherwise be missing without a word: its name is another one, or the directory leaves it out.
fn check_directory(path: &Path, zip: &mut ZipArchive<BufReader<File>>) -> Result<()> {
    const HEADER: &[u8] = b"PK\x03\x04";
    /// Bytes of a header before its name, and the offset of the name's length.
    const NAME_AT: usize = 30;
    const LENGTH_AT: usize = 26;
    /// Maximum bytes behind an array that are part of it: its length and checksum, where they were not known before.
    const DESCRIPTOR: u64 = 24;
    let mut file = open_file(path, "name the .npz file")?;
    let mut read = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes));
        read.map(|()| bytes).or_else(|e| zip_error(path, ZipError::Io(e)))
    };
    let mut members = Vec::with_capacity(zip.len());
    for index in 0..zip.len() {
        let member = zip.by_index_raw(index).or_else(|e| zip_error(path, e))?;
        let start = member.header_start();
        let end = member.data_start().unwrap_or(start).saturating_add(member.compressed_size());
        let header = read(start, NAME_AT)?;
        let len = u16::from_le_bytes([header[LENGTH_AT], header[LENGTH_AT + 1]]);
        let name = read(start + NAME_AT as u64, len.into())?;
        if name != member.name_raw() {
            let [listed, named] = [member.name_raw(), &name].map(String::from_utf8_lossy);
            return invalid(path, format!("the archive's directory says {listed:?} where {named:?} is"), DAMAGED);
        }
        members.push((start, end));
    }
    members.sort_unstable();
    let ends = [zip.offset()].into_iter().chain(members.iter().map(|m| m.1));
    let starts = members.iter().map(|m| m.0).chain([zip.central_directory_start()]);
    for (end, next) in ends.zip(starts) {
        let gap = next.saturating_sub(end);
        let head = read(end, gap.min(DESCRIPTOR + HEADER.len() as u64) as usize)?;
        if head.windows(HEADER.len()).any(|bytes| bytes == HEADER) {
            return invalid(path, format!("the archive's directory leaves out what is at byte {end}"), DAMAGED);
        }
    }
    Ok(())
}

fn zip_error<T>(path: &Path, error: ZipError) -> Result<T> {
    match error {
        ZipError::Io(e) if !is_damage(&e) => Err(Error::io(path, e)),
        e => invalid(path, format!("not a readable archive ({})", e.to_string().to_lowercase()), DAMAGED),
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
            Self::Directory(path) => path.join(format!("{name}.npy")).exists(),
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
