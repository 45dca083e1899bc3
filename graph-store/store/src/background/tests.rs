use std::fs;

use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// Pieces of all sizes, around one buffer and around as many as there are.
#[test]
fn all_bytes_arrive_in_order_and_are_hashed() {
    let dir = tempfile::tempdir().unwrap();
    for total in [0, 1, BUFFER - 1, BUFFER, BUFFER + 1, 5 * BUFFER + 7, EARLY as usize + 3 * BUFFER] {
        for piece in [4096 + 5, BUFFER, 3 * BUFFER + 1] {
            let bytes: Vec<u8> = (0..total as u64).map(|i| ((i * i) >> 7) as u8).collect();
            let path = dir.path().join("file");
            let mut out = BackgroundFile::new(File::create(&path).unwrap(), 0, Dtype::U8);
            bytes.chunks(piece).for_each(|piece| out.write(piece).unwrap());
            let sink = out.finish().unwrap();
            assert_eq!(sink.hash.digest(), xxh3_64(&bytes), "{total} bytes by {piece}");
            assert!(fs::read(&path).unwrap() == bytes, "{total} bytes by {piece}");
        }
    }
}

/// Pages of more and of less than a buffer among other writes: each is dropped when it is written.
#[test]
fn pages_are_written_between_other_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let pool = morphgl_platform::PagePool::new();
    let mut out = BackgroundFile::new(File::create(&path).unwrap(), 0, Dtype::U8);
    let lengths = [0, 3, BUFFER, BUFFER - 1, BUFFER + 1, 5, 5 * BUFFER + 7, 2 * BUFFER, 2 * BUFFER, 1];
    let mut expected = Vec::new();
    for (number, len) in lengths.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len).map(|i| (((i * i) >> 7) + number) as u8).collect();
        if number % 3 == 1 {
            out.write(&bytes).unwrap();
        } else {
            let mut pages = pool.take();
            pages.resize(len).copy_from_slice(&bytes);
            out.write_pages(pages).unwrap();
        }
        expected.extend(bytes);
    }
    let sink = out.finish().unwrap();
    assert_eq!(sink.hash.digest(), xxh3_64(&expected));
    assert!(fs::read(&path).unwrap() == expected);
    assert!(pool.waiting() > 0);
}

/// Writes to a read-only file fail: the thread's error is returned, and later calls fail too.
#[test]
fn an_error_of_the_thread_is_returned() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "").unwrap();
    let mut out = BackgroundFile::new(File::open(&path).unwrap(), 0, Dtype::U8);
    let results: Vec<_> = (0..8).map(|_| out.write(&[1; BUFFER]).is_ok()).collect();
    assert!(results[0] && !results[7] && results.is_sorted_by_key(|ok| !ok), "{results:?}");
    assert!(out.finish().is_err());
    let mut out = BackgroundFile::new(File::open(&path).unwrap(), 0, Dtype::U8);
    let results: Vec<_> = (0..8).map(|_| out.write_pages(Pages::zeroed(BUFFER).unwrap()).is_ok()).collect();
    assert!(results[0] && !results[7] && results.is_sorted_by_key(|ok| !ok), "{results:?}");
    assert!(out.finish().is_err());
}

#[test]
fn a_file_dropped_unfinished_is_not_written_further() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let mut out = BackgroundFile::new(File::create(&path).unwrap(), 0, Dtype::U8);
    (0..4).for_each(|_| out.write(&[1; BUFFER]).unwrap());
    drop(out);
    let len = fs::metadata(&path).unwrap().len();
    assert_eq!((len % BUFFER as u64, len), (0, fs::metadata(&path).unwrap().len()));
}
