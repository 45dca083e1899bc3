use super::*;

#[test]
fn other_files_are_known_by_their_beginning() {
    for (head, what) in [
        (&b"PK\x03\x04....archive/data.pkl"[..], "PyTorch"),
        (b"PK\x03\x04....arr_0.npy", "zip"),
        (b"\x93NUMPY\x01", "numpy array"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"\x80\x04\x95", "pickle"),
        (b"<?xml version='1.0'?>\n<graphml xmlns='http'>", "GraphML"),
        (b"graph [\n  directed 1\n  node [", "GML"),
        (b"Creator \"igraph\"\nVersion 1\ngraph\n[\n", "GML"),
        (b"{\"edges\": [[0, 1]]}", "JSON"),
        (b"digraph { a -> b }", "DOT"),
        (b"\x01\x00\x00\x00\x02", "no text"),
    ] {
        assert!(kind(head).is_some_and(|(found, _)| found.contains(what)), "{what}: {:?}", kind(head));
    }
    for head in [&b"0 1\n1 2\n"[..], b"BZh91AY", b"source,target\n", b"%%MatrixMarket", b"# graph\n0 1\n", b""] {
        assert_eq!(kind(head), None);
    }
}
