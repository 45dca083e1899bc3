//! Helpers of the importers' tests: writers of small files, damage, and what a refusal must be like.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use morphgl_graph_store::Result;

/// Writes a file and the directories above it.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Writes `text` gzipped.
pub(crate) fn write_gz(path: &Path, text: &str) {
    let mut gz = flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    gz.write_all(text.as_bytes()).unwrap();
    write(path, &gz.finish().unwrap());
}

/// The bytes of a `.npy` array.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

/// Writes an npz archive of (name, npy bytes), deflated or stored.
pub(crate) fn write_npz(path: &Path, compressed: bool, arrays: &[(&str, Vec<u8>)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    let method = if compressed { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    for (name, bytes) in arrays {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Little-endian bytes of numbers.
#[macro_export]
macro_rules! le {
    ($t:ty: $($v:expr),* $(,)?) => {{
        let values: Vec<$t> = vec![$($v),*];
        values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()
    }};
}

/// `bytes`, cut at a share of its length, with bytes replaced at shares of the length and at offsets from its start.
pub(crate) fn corrupted(mut bytes: Vec<u8>, cut: Option<f64>, changes: &[(f64, u8)], head: &[(usize, u8)]) -> Vec<u8> {
    if let Some(cut) = cut {
        bytes.truncate((bytes.len() as f64 * cut) as usize);
    }
    let len = bytes.len();
    let changes = changes.iter().map(|&(at, v)| ((len as f64 * at) as usize, v)).chain(head.iter().copied());
    for (at, value) in changes {
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
    }
    bytes
}

/// Checks that an import failed with a line that contains `what`, and left no files.
#[track_caller]
pub(crate) fn failure(result: Result<PathBuf>, target: &Path, what: &str) {
    let error = match result {
        Ok(path) => panic!("imported to {} instead of {what:?}", path.display()),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(what), "{error:?} does not say {what:?}");
    assert!(!error.contains('\n') && error.contains("; "), "{error:?} is not one line with a cure");
    let left: Vec<_> = fs::read_dir(target.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let left: Vec<_> = left.iter().filter(|n| n.to_string_lossy().contains("out")).collect();
    assert!(left.is_empty(), "{left:?} is left behind");
}
