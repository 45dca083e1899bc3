use proptest::prelude::*;

use super::*;
use crate::Dtype;

fn file(version: u8, dictionary: &str) -> Vec<u8> {
    let len = (dictionary.len() as u32).to_le_bytes();
    [&b"\x93NUMPY"[..], &[version, 0], if version == 1 { &len[..2] } else { &len[..] }, dictionary.as_bytes()].concat()
}

fn read(version: u8, dictionary: &str) -> Result<Header> {
    Header::read(&mut &file(version, dictionary)[..])
}

#[test]
fn headers_that_numpy_and_others_write() {
    let header = |descr: &str, fortran_order, shape: &[u64], bytes| Header {
        fields: NpyFields { descr: descr.into(), fortran_order, shape: shape.into() },
        bytes,
    };
    for (version, dictionary, descr, fortran_order, shape) in [
        (1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }      \n", "<f4", false, &[3, 4][..]),
        (1, "{'shape':(5L,),'fortran_order':True,'descr':'|u1'}", "|u1", true, &[5]),
        (2, "{\"descr\": \"<i8\", \"fortran_order\": False, \"shape\": ()}\n", "<i8", false, &[]),
        (
            3,
            "{'descr': [('ä,:', '<f4'), ('b', '<i4', (2,))], 'fortran_order': False, 'shape': (7,)}",
            "[('ä,:', '<f4'), ('b', '<i4', (2,))]",
            false,
            &[7],
        ),
    ] {
        let bytes = file(version, dictionary).len() as u64;
        let found = read(version, dictionary).expect(dictionary);
        assert_eq!(found, header(descr, fortran_order, shape, bytes), "{dictionary}");
    }
    let ours = crate::npy::header(Dtype::F16, &[2, 3]);
    assert_eq!(Header::read(&mut &ours[..]).expect("our own"), header("<f2", false, &[2, 3], ours.len() as u64));
}

#[test]
fn what_is_no_header_is_refused() {
    for dictionary in [
        "",
        "{}",
        "[1, 2]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}",
    ] {
        assert!(read(1, dictionary).is_err(), "{dictionary}");
    }
    let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    assert!(read(4, good).expect_err("a later version").to_string().contains("version 4"));
    let whole = file(1, good);
    assert!((0..whole.len()).all(|len| Header::read(&mut &whole[..len]).is_err()), "cut short");
}

/// A parser with backtracking takes exponential time for these.
#[test]
fn nested_brackets_take_linear_time() {
    let nested = |open: &str, close: &str, count: usize| {
        let value = open.repeat(count) + &close.repeat(count);
        [
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {value}}}"),
            format!("{{'descr': {value}, 'fortran_order': False, 'shape': (1,)}}"),
            value,
        ]
    };
    for (open, close) in [("{", "}"), ("[", "]"), ("(", ")"), ("{", ""), ("[", ""), ("'", ""), ("[(", ")]"), ("[{", "")]
    {
        for count in [16, 22, 1000, 30_000] {
            for dictionary in nested(open, close, count) {
                let _ = read(2, &dictionary);
            }
        }
    }
    let long = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}".to_string() + &" ".repeat(MAX_NPY_HEADER);
    let error = read(2, &long).expect_err("too long").to_string();
    assert!(error.contains("at most 65536 are read"), "{error}");
    // A length that the file does not have costs no memory.
    let whole = [&b"\x93NUMPY\x02\x00"[..], &u32::MAX.to_le_bytes(), b"{'descr'"].concat();
    assert!(Header::read(&mut &whole[..]).expect_err("too long").to_string().contains("4294967295 bytes"));
}

proptest! {
    #[test]
    fn nothing_makes_it_panic(version in 0u8..5, dictionary in "[-{}()\\[\\]'\",: a-fL0-9\\PC]{0,80}") {
        let _ = read(version, &dictionary);
        let _ = read(1, &format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {dictionary}}}"));
    }
}
