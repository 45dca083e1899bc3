use super::{mapping, page_bytes, parse_maps};

#[test]
fn proc_maps_is_parsed() {
    let maps = "1000-3000 rw-p 00000000 00:00 0\n\
                3000-5000 r--s 00000000 fe:00 12 /data/a file.npy\n\
                7000-8000 rw-p 00000000 00:00 0 [heap]\n";
    let parse = |start, end| parse_maps(maps, start, end).map(|m| (m.writable, m.file));
    assert_eq!(parse(0x1000, 0x2000), Some((true, None)));
    assert_eq!(parse(0x2000, 0x4000), Some((false, Some("/data/a file.npy".to_string()))));
    assert_eq!(parse(0x5000, 0x7000), None);
    assert_eq!(parse(0x7000, 0x7001), Some((true, None)));
}

#[test]
fn pages_of_the_process_are_found() {
    let own = vec![1u8; 3 * page_bytes()];
    let start = own.as_ptr() as usize;
    assert!(mapping(start, start + own.len()).expect("the page is mapped").writable);
    let code = pages_of_the_process_are_found as *const () as usize;
    assert!(!mapping(code, code + 1).expect("the page is mapped").writable);
}
