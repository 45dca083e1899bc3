//! Directories with the seeds of a reader, of which one file at a time is replaced.

use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// What a reader made of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was read, and what it became is sound.
    Accepted,
    /// A message says why not.
    Refused,
}

/// The folder of seeds.
pub fn seeds_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|at| at.join("fuzz/seeds"))
        .find(|at| at.is_dir())
        .expect("seeds")
}

/// The content of a gzip file, or of each member of a zip archive: mutations of it that keep the checksums.
pub(crate) fn parts(bytes: &[u8]) -> Vec<Vec<u8>> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).expect("a seed");
        return vec![text];
    }
    let Ok(mut archive) = zip::ZipArchive::new(Cursor::new(bytes)) else { return Vec::new() };
    let len = archive.len();
    let part = |i| {
        let mut content = Vec::new();
        archive.by_index(i).expect("a seed").read_to_end(&mut content).expect("a seed");
        content
    };
    (0..len).map(part).collect()
}

/// The compressed `seed` with its part of this number replaced by `content`, its checksums right.
fn with_part(seed: &[u8], part: usize, content: &[u8]) -> Vec<u8> {
    if seed.starts_with(&[0x1f, 0x8b]) {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        gz.write_all(content).expect("memory");
        return gz.finish().expect("memory");
    }
    let mut archive = zip::ZipArchive::new(Cursor::new(seed)).expect("a seed");
    let mut out = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for i in 0..archive.len() {
        let mut member = archive.by_index(i).expect("a seed");
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        out.start_file(String::from_utf8_lossy(member.name_raw()), options).expect("memory");
        if i == part {
            out.write_all(content).expect("memory");
        } else {
            std::io::copy(&mut member, &mut out).expect("memory");
        }
    }
    out.finish().expect("memory").into_inner()
}

/// A directory with the files of a reader, in memory where the system has such a file system.
pub struct Sandbox {
    /// The directory.
    pub dir: PathBuf,
    files: Vec<(String, Vec<u8>)>,
}

impl Sandbox {
    /// Makes the directory of a reader with its files, which is removed with the value.
    pub fn new(reader: &str, files: &[&str]) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        Self::within(&base, reader, files)
    }

    /// Makes it in `base`.
    pub fn within(base: &Path, reader: &str, files: &[&str]) -> Self {
        let dir = base.join(format!("morphgl-fuzz-{}-{reader}", std::process::id()));
        let files = files.iter().map(|name| (name.to_string(), seed(reader, name))).collect();
        let sandbox = Self { dir, files };
        sandbox.files.iter().for_each(|(name, bytes)| sandbox.write(name, bytes));
        sandbox
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.dir.join(name);
        fs::create_dir_all(path.parent().expect("a file in the directory")).expect("room");
        fs::write(path, bytes).expect("room");
    }

    /// Replaces the file of this number, or a part of it, by `content`; calls `read` with its path, and restores the file.
    pub fn replaced<T>(&self, number: usize, content: &[u8], read: impl FnOnce(&Path) -> T) -> T {
        let (file, part) = (number % self.files.len(), number / self.files.len());
        let (name, seed) = &self.files[file];
        match part.checked_sub(1).filter(|_| !parts_of_none(seed)) {
            None => self.write(name, content),
            Some(part) => self.write(name, &with_part(seed, part, content)),
        }
        let result = read(&self.dir.join(name));
        self.write(name, seed);
        result
    }
}

/// Whether a file is not compressed: it has no parts.
fn parts_of_none(seed: &[u8]) -> bool {
    !seed.starts_with(&[0x1f, 0x8b]) && !seed.starts_with(b"PK\x03\x04")
}

/// The content of a reader's file.
pub(crate) fn seed(reader: &str, name: &str) -> Vec<u8> {
    fs::read(seeds_dir().join(reader).join(name)).unwrap_or_else(|e| panic!("{reader}/{name}: {e}"))
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What is left lies in memory or in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sandbox({})", self.dir.display())
    }
}

/// Checks a refusal's message: one line that is no book.
pub(crate) fn refused(message: &dyn fmt::Display) -> Outcome {
    let text = message.to_string();
    assert!(!text.contains('\n') && !text.is_empty() && text.len() < 4000, "a message of one short line: {text:?}");
    Outcome::Refused
}
