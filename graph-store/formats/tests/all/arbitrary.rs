//! For any bytes, a reader of text ends with a dataset that opens or with a message of one line, and leaves nothing else.

use std::path::{Path, PathBuf};

use morphgl_formats::edge_list::{self, EdgeListOptions, Ids};
use morphgl_formats::{NodeFiles, Options, Silent, metis, mtx};
use morphgl_graph_store::{Dataset, Result};
use proptest::prelude::*;

fn check(content: &[u8], import: impl FnOnce(&Path, &Path) -> Result<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let source = crate::support::write(&dir, "source", content);
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
    let strings = EdgeListOptions { ids: Ids::Strings, ..Default::default() };
    check(content, |s, t| edge_list::import(s, t, &strings, &options, &Silent));
    check(content, |s, t| mtx::import(s, t, &options, &Silent));
    check(content, |s, t| metis::import(s, t, &options, &Silent));
}

/// The text of [`TEXT`], compressed by Python's `lzma`: the crate of the decoder has no encoder.
const XZ: &[u8] = &[
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00, 0x00, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0x00, 0x21, 0x01, 0x16, 0x00, 0x00,
    0x00, 0x74, 0x2f, 0xe5, 0xa3, 0xe0, 0x00, 0xef, 0x00, 0x13, 0x5d, 0x00, 0x18, 0x08, 0x02, 0x84, 0xbc, 0xba, 0xc4,
    0x34, 0xb7, 0x02, 0xcd, 0xb6, 0x18, 0x0a, 0x03, 0xc1, 0xa0, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x67, 0x11, 0x8b, 0x00,
    0x01, 0x2b, 0xf0, 0x01, 0x00, 0x00, 0x00, 0x10, 0x16, 0xb6, 0x5e, 0x3e, 0x30, 0x0d, 0x8b, 0x02, 0x00, 0x00, 0x00,
    0x00, 0x01, 0x59, 0x5a,
];

const TEXT: &str = "0 1\n1 2\n2 0\n";

/// The text twenty times, in each compression that is read.
fn compressed() -> [Vec<u8>; 4] {
    let text = TEXT.repeat(20);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
    std::io::Write::write_all(&mut bzip2, text.as_bytes()).unwrap();
    [gzip.finish().unwrap(), bzip2.finish().unwrap(), zstd::encode_all(text.as_bytes(), 3).unwrap(), XZ.to_vec()]
}

#[test]
fn every_compression_is_read() {
    for content in compressed() {
        check(&content, |source, target| {
            let done = edge_list::import(source, target, &EdgeListOptions::default(), &Options::default(), &Silent);
            assert_eq!(Dataset::open(target, Default::default()).unwrap().topology.num_edges(), 60);
            done
        });
    }
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
    fn compressed_streams_that_are_damaged(at in 0usize..1000, bit in 0u8..8, which in 0usize..4) {
        let mut content = compressed()[which].clone();
        let at = at % content.len();
        content[at] ^= 1 << bit;
        check_all(&content);
    }

    #[test]
    fn tables_that_are_nearly_right(
        header in prop::sample::select(vec!["", "id,label,f0\n", "id\tsplit\n", "label\n", "src,dst\n"]),
        body in "([0-4a,;\t\r\n\"#.-]|train|\n){0,40}",
    ) {
        let dir = tempfile::tempdir().unwrap();
        let table = Some(crate::support::write(&dir, "nodes", format!("{header}{body}").as_bytes()));
        let given = [
            NodeFiles { table: table.clone(), ..Default::default() },
            NodeFiles { features: table.clone(), ..Default::default() },
            NodeFiles { labels: table.clone(), ..Default::default() },
            NodeFiles { splits: [table, None, None], ..Default::default() },
        ];
        for (nodes, ids) in given.into_iter().flat_map(|n| [Ids::Keep, Ids::Compact, Ids::Strings].map(|ids| (n.clone(), ids))) {
            let options = Options { nodes, memory: 1 << 16, ..Options::default() };
            let format = EdgeListOptions { ids, ..Default::default() };
            check(b"src,dst\n0,1\n1,2\n2,0\n", |s, t| edge_list::import(s, t, &format, &options, &Silent));
        }
    }
}
