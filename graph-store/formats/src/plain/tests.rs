use super::*;

/// Beginnings and ends on block boundaries and off them, up to the end of the file and past it; cached or not.
#[test]
fn direct_and_plain_reads_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let all: Vec<u8> = (0..300_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&path, &all).unwrap();
    let file = PlainFile::open(&path).unwrap();
    let last = all.len();
    for (from, to) in
        [(0, 4096), (0, last), (128, last), (128, 90_000), (8192, last - 1), (last - 5, last), (4095, 69_631)]
    {
        let expected = &all[from..to];
        let filled = file.fill(Pages::new(), from as u64, to - from).unwrap();
        assert!(filled[..] == *expected, "{from}..{to}");
        if let Some(direct) = &file.direct {
            let start = from / 4096 * 4096;
            let mut pages = Pages::new();
            let out = pages.resize((to - start).next_multiple_of(4096));
            let read = read_blocks(direct, 4096, start as u64, out).expect("the disk reads");
            assert!(read >= to - start, "{from}..{to}");
            assert!(out[from - start..to - start] == *expected, "{from}..{to}");
        }
    }
    let past = file.fill(Pages::new(), 128, last).err().map(|e| e.kind());
    assert_eq!(past, Some(io::ErrorKind::UnexpectedEof));
    if let Some(direct) = &file.direct {
        let mut pages = Pages::new();
        let read = read_blocks(direct, 4096, 0, pages.resize(last.next_multiple_of(4096))).expect("the disk reads");
        assert_eq!(read, last);
    }
}
