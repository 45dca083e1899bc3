use morphgl_graph_store::NpyWriter;

use super::*;

/// Memory of a segment's rows depends on its edges alone, however many rows lie between them.
#[test]
fn rows_without_edges_take_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut offsets = vec![0u8; 10_001];
    offsets[5000..].fill(1);
    offsets[9000..].fill(3);
    let mut out = NpyWriter::create(dir.path().join("indptr.npy")).unwrap();
    out.write(&offsets).unwrap();
    out.finish(None).unwrap();
    let mut tables = ArraySet::open(dir.path()).unwrap();
    let mut compressed = CompressedRows::new(tables.array("indptr").unwrap(), RowContent::Sources);
    let rows = [2, 1].map(|count| compressed.rows_of(count).unwrap().0);
    assert_eq!(rows, [vec![(4999, 1), (8999, 2)], vec![(8999, 1)]]);
    compressed.end().unwrap();
}
