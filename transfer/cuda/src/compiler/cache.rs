//! Content-addressed cache of compiled kernels on disk.

use std::fs;
use std::io::Write;
use std::path::Path;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// First bytes of a cache file, with the version of its layout.
const MAGIC: [u8; 8] = *b"morphgl1";

/// Returns the cached result for `content`, or calls `make` and stores its result.
///
/// Files are written atomically; damaged ones are made again. A directory that cannot be written disables the cache.
pub(super) fn get_or(
    directory: &Path,
    name: &str,
    content: &[&str],
    make: impl FnOnce() -> Result<Vec<u8>, String>,
) -> Result<Vec<u8>, String> {
    // Lengths come first, so that no two contents concatenate to the same bytes.
    let mut all: Vec<u8> = content.iter().flat_map(|c| (c.len() as u64).to_le_bytes()).collect();
    content.iter().for_each(|c| all.extend_from_slice(c.as_bytes()));
    let path = directory.join(format!("{name}-{:032x}", xxh3_128(&all)));
    if let Some(cached) = fs::read(&path).ok().as_deref().and_then(open) {
        return Ok(cached.to_vec());
    }
    let made = make()?;
    let temporary = directory.join(format!(".{name}-{}-{:?}", std::process::id(), std::thread::current().id()));
    let sealed = [&MAGIC[..], &xxh3_64(&made).to_le_bytes(), &made].concat();
    let written = fs::create_dir_all(directory)
        .and_then(|()| fs::File::create_new(&temporary)?.write_all(&sealed))
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The only cost is another compilation next time.
        let _ = fs::remove_file(&temporary);
    }
    Ok(made)
}

/// Payload of an intact cache file.
fn open(file: &[u8]) -> Option<&[u8]> {
    let (magic, rest) = file.split_at_checked(8)?;
    let (digest, payload) = rest.split_at_checked(8)?;
    (magic == MAGIC && digest == xxh3_64(payload).to_le_bytes()).then_some(payload)
}

#[cfg(test)]
mod tests;
