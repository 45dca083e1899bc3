use std::fs;

use super::*;

#[test]
fn text_files_are_bounded_and_may_begin_with_a_byte_order_mark() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "\u{feff}äb").unwrap();
    assert_eq!(read_text(&path, 6).unwrap(), "äb");
    assert!(read_text(&path, 5).unwrap_err().to_string().contains("longer than 5 bytes"));
    fs::write(&path, b"ab\xff").unwrap();
    assert!(read_text(&path, 10).unwrap_err().to_string().contains("byte 2 is no UTF-8"));
    assert!(read_text(&dir.path().join("none"), 10).is_err());
    assert!(bounded_text(std::io::repeat(0), 1 << 16).unwrap_err().to_string().contains("longer than"));
    #[cfg(unix)]
    assert!(read_text(Path::new("/dev/zero"), 1 << 16).unwrap_err().to_string().contains("this is a device"));
}

#[test]
fn excerpts_are_cut_between_characters() {
    assert_eq!(excerpt("äöü", 3), "äöü");
    assert_eq!(excerpt("äöü", 2), "äö…");
    assert_eq!(excerpt("", 0), "");
    assert_eq!(excerpt("a\nb\0", 9), "a\\nb\\u{0}");
}
