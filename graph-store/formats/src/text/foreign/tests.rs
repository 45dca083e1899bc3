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
        (b"digraph{0->1;1->2}", "DOT"),
        (b"graph {\n 0 -- 1 [weight=2];\n}\n", "DOT"),
        (b"// made by hand\nstrict graph G {\n a -- b;\n}\n", "DOT"),
        (b"<?xml version=\"1.0\"?>\n<gexf xmlns=\"http://gexf.net/1.3\"><graph>", "GEXF"),
        (b"*Vertices 3\n1 \"a\"\n*Edges\n1 2\n", "Pajek"),
        (b"% c\n*Network x\n*Vertices 3\n", "Pajek"),
        (b"nodedef>name VARCHAR,label VARCHAR\n0,a\n", "GDF"),
        (b"1 one\n2 two\n#\n1 2 e\n", "Trivial Graph"),
        (b"p edge 3 2\ne 1 2\ne 2 3\n", "DIMACS"),
        (b"c roads\nc of a town\np sp 3 2\na 1 2 7\n", "DIMACS"),
        (b"dl n=3 format=edgelist1\nlabels:\na,b,c\ndata:\n1 2 1\n", "UCINET"),
        (b"<http://a> <http://p> <http://b> .\n", "N-Triples"),
        (b"# c\n_:a <http://p> \"x\" .\n", "N-Triples"),
        (b"\xff\xfes\0r\0c\0", "UTF-16"),
        (b"s\0r\0c\0,\0d\0s\0t\0\n\0", "UTF-16"),
        (b"\x01\x00\x00\x00\x02", "no text"),
    ] {
        assert!(kind(head).is_some_and(|(found, _)| found.contains(what)), "{what}: {:?}", kind(head));
    }
    for head in [
        &b"0 1\n1 2\n"[..],
        b"BZh91AY",
        b"source,target\n",
        b"%%MatrixMarket",
        b"# graph\n0 1\n",
        b"",
        b"0 1\n#\n1 2\n",
        b"p,edge\n",
        b"graph,node\n0,1\n",
        b"dl ul\n",
        b"alice bob\n#\nbob carol\n",
        b"c d\np q\n",
    ] {
        assert_eq!(kind(head), None);
    }
}
