//! Every method reads the bytes of the file, whatever the elements.

use std::io::Write;

use morphgl_platform::direct::{DirectFile, Fetch, Method, Reader, Settings, ring_refused};
use proptest::prelude::*;

/// A file of `len` bytes, each a hash of its offset.
fn file(len: usize) -> (tempfile::NamedTempFile, Vec<u8>) {
    let bytes: Vec<u8> = (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).expect("space on the disk");
    (file, bytes)
}

fn methods() -> Vec<Method> {
    match ring_refused() {
        None => vec![Method::Ring, Method::Threads],
        Some(_) => vec![Method::Threads],
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn elements_are_copied_to_their_positions(
        len in 5000usize..200_000, unit in 1usize..3000, base in 0u64..200, block in prop::sample::select(vec![512usize, 4096]),
        depth in 1usize..20, gap in 0usize..10_000, sort: bool, picks in prop::collection::vec(any::<u64>(), 0..300),
    ) {
        let (file, bytes) = file(len);
        let elements = (len as u64 - base) / unit as u64;
        let mut picks: Vec<u64> = picks.into_iter().map(|p| p % elements).collect();
        if sort {
            picks.sort_unstable();
        }
        let fetches: Vec<Fetch> = picks.iter().zip(0..).map(|(&element, to)| Fetch { element, to }).collect();
        let opened = DirectFile::open(file.path(), block).expect("the file opens");
        for method in methods() {
            let settings = Settings { depth, most: 16 << 10, gap, method: Some(method) };
            let mut reader = Reader::new(settings).expect("a reader");
            prop_assert_eq!(reader.method(), method);
            let mut out = vec![0; fetches.len() * unit];
            reader.read(&opened, base, unit, &fetches, &mut out).expect("the file is whole");
            for (&element, found) in picks.iter().zip(out.chunks(unit)) {
                let start = base as usize + element as usize * unit;
                prop_assert_eq!(found, &bytes[start..start + unit]);
            }
            let stats = reader.stats();
            prop_assert_eq!(stats.wanted, out.len() as u64);
            prop_assert!(stats.reads <= fetches.len() as u64 && (stats.reads == 0) == fetches.is_empty());
        }
    }
}

#[test]
fn a_file_that_ends_too_early_is_an_error_with_the_byte_and_the_reader_stays_usable() {
    let (file, bytes) = file(100_000);
    let opened = DirectFile::open(file.path(), 512).expect("the file opens");
    file.as_file().set_len(50_000).expect("it can be cut");
    let fetches: Vec<Fetch> = (0..1000).map(|i| Fetch { element: i, to: i as u32 }).collect();
    for method in methods() {
        let mut reader = Reader::new(Settings { method: Some(method), ..Settings::default() }).expect("a reader");
        let error = reader.read(&opened, 0, 100, &fetches, &mut vec![0; 100_000]).expect_err("half of it is gone");
        let text = error.to_string();
        assert!(text.contains("byte 50000") && text.contains(&*file.path().to_string_lossy()), "{text}");
        let mut out = vec![0; 100];
        reader.read(&opened, 0, 100, &[Fetch { element: 3, to: 0 }], &mut out).expect("the first half is read");
        assert_eq!(out, bytes[300..400]);
    }
}

#[test]
fn a_missing_file_is_an_error_with_its_path() {
    let error = DirectFile::open("/nowhere/at all", 512).expect_err("there is no such file");
    assert!(error.to_string().starts_with("/nowhere/at all: "), "{error}");
}

#[test]
fn reading_a_directory_is_an_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let opened = DirectFile::open(dir.path(), 4096).expect("directories open");
    let mut reader = Reader::new(Settings::default()).expect("a reader");
    let error = reader.read(&opened, 0, 1, &[Fetch { element: 0, to: 0 }], &mut [0]).expect_err("no file");
    assert!(error.to_string().contains("byte 0: cannot be read"), "{error}");
}

#[test]
fn a_reader_that_is_refused_io_uring_gives_the_reason() {
    // No kernel has rings of so many entries.
    let most = Settings { depth: 32_769, most: 512, ..Settings::default() };
    Reader::new(Settings { method: Some(Method::Ring), ..most }).expect_err("no such ring");
    let reader = Reader::new(most).expect("threads do it");
    assert_eq!(reader.method(), Method::Threads);
    assert!(reader.refused().is_some_and(|why| why.contains("io_uring")), "{:?}", reader.refused());
    for method in methods() {
        let reader = Reader::new(Settings { method: Some(method), ..Settings::default() }).expect("a reader");
        assert_eq!(reader.refused(), None, "the requested method: {method}");
    }
}
