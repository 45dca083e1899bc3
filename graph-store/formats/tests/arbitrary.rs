//! Whatever the bytes, a reader of text ends with a dataset that opens or with one line, and leaves nothing else.

mod support;

use std::path::{Path, PathBuf};

use morphgl_formats::edge_list::{self, EdgeListOptions, Ids};
use morphgl_formats::{Options, Silent, metis, mtx};
use morphgl_graph_store::{Dataset, Result};
use proptest::prelude::*;

fn check(content: &[u8], import: impl FnOnce(&Path, &Path) -> Result<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let source = support::write(&dir, "source", content);
    match import(&source, &dir.path().join("dataset")) {
        Ok(target) => {
            Dataset::open(target, Default::default()).unwrap();
        }
        Err(e) => {
            assert!(!e.to_string().contains('\n'), "one line: {e}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "something is left behind");
        }
    }
}

fn check_all(content: &[u8]) {
    // Few nodes, so that a header that promises billions does not fill the disk.
    let options = Options { memory: 1 << 16, ..Options::default() };
    check(content, |s, t| edge_list::import(s, t, &EdgeListOptions::default(), &options, &Silent));
    let compact = EdgeListOptions { ids: Ids::Compact, ..Default::default() };
    check(content, |s, t| edge_list::import(s, t, &compact, &options, &Silent));
    check(content, |s, t| mtx::import(s, t, &options, &Silent));
    check(content, |s, t| metis::import(s, t, &options, &Silent));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn bytes(content in prop::collection::vec(any::<u8>(), 0..300)) {
        check_all(&content);
    }

    #[test]
    fn text_that_is_nearly_right(
        banner in prop::sample::select(vec!["", "3 2\n", "3 2 11 2\n", "# c\n", "src,dst\n",
            "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n", "%%MatrixMarket matrix coordinate pattern general\n"]),
        body in "([0-4 ,;\t\r\n%#.x-]|10|\n){0,60}",
    ) {
        check_all(format!("{banner}{body}").as_bytes());
    }

    #[test]
    fn compressed_streams_that_are_damaged(at in 0usize..1000, bit in 0u8..8, zstd: bool) {
        let text = "0 1\n1 2\n2 0\n".repeat(20);
        let mut content = if zstd {
            zstd::encode_all(text.as_bytes(), 3).unwrap()
        } else {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
            gzip.finish().unwrap()
        };
        let at = at % content.len();
        content[at] ^= 1 << bit;
        check_all(&content);
    }
}
