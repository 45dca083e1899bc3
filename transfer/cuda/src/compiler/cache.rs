//! Content-addressed cache of compiled kernels on disk.

use std::fs;
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
    if let Some(known) = fs::read(&path).ok().as_deref().and_then(open) {
        return Ok(known.to_vec());
    }
    let made = make()?;
    let beside = directory.join(format!(".{name}-{}-{:?}", std::process::id(), std::thread::current().id()));
    let sealed = [&MAGIC[..], &xxh3_64(&made).to_le_bytes(), &made].concat();
    let written = fs::create_dir_all(directory)
        .and_then(|()| fs::write(&beside, sealed))
        .and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // The only cost is another compilation next time.
        let _ = fs::remove_file(&beside);
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
mod tests {
    use std::fs;
    use std::path::Path;

    use super::get_or;

    fn get(directory: &Path, content: &[&str], result: &str) -> String {
        let bytes = get_or(directory, "k-sm_80", content, || Ok(result.as_bytes().to_vec())).expect("it is made");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn what_was_made_is_found_again_by_its_content() {
        let temporary = tempfile::tempdir().expect("a directory");
        let directory = temporary.path().join("not/there/yet");
        assert_eq!(get(&directory, &["source", "header"], "first"), "first");
        assert_eq!(get(&directory, &["source", "header"], "second"), "first");
        assert_eq!(get(&directory, &["source!", "header"], "third"), "third");
        assert_eq!(get(&directory, &["sourceh", "eader"], "fourth"), "fourth");
        let names: Vec<_> =
            fs::read_dir(&directory).expect("there").map(|e| e.expect("readable").file_name()).collect();
        assert!(names.len() == 3 && names.iter().all(|n| n.to_string_lossy().starts_with("k-sm_80-")), "{names:?}");
    }

    #[test]
    fn a_damaged_file_is_made_again() {
        let temporary = tempfile::tempdir().expect("a directory");
        get(temporary.path(), &["source"], "first");
        let file = fs::read_dir(temporary.path()).expect("there").next().expect("one").expect("readable").path();
        let whole = fs::read(&file).expect("there");
        for at in 0..=whole.len() {
            let mut damaged = whole.clone();
            match damaged.get_mut(at) {
                Some(byte) => *byte ^= 1,
                None => damaged.truncate(at / 2),
            }
            fs::write(&file, damaged).expect("written");
            assert_eq!(get(temporary.path(), &["source"], "again"), "again", "byte {at}");
            fs::write(&file, &whole[..at]).expect("written");
            let expected = if at == whole.len() { "first" } else { "again" };
            assert_eq!(get(temporary.path(), &["source"], "again"), expected, "{at} bytes");
        }
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_done_without() {
        let temporary = tempfile::tempdir().expect("a directory");
        let file = temporary.path().join("file");
        fs::write(&file, "no directory").expect("written");
        assert_eq!(get(&file, &["source"], "made"), "made");
        assert_eq!(get(&file, &["source"], "made again"), "made again");
    }

    #[test]
    fn what_cannot_be_made_is_not_kept() {
        let temporary = tempfile::tempdir().expect("a directory");
        let failed = get_or(temporary.path(), "k", &["source"], || Err("no".to_string()));
        assert_eq!(failed, Err("no".to_string()));
        assert_eq!(get(temporary.path(), &["source"], "made"), "made");
    }
}
