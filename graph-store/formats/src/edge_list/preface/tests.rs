use super::*;

fn read(text: &str) -> Preface {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("list");
    std::fs::write(&path, text).expect("room");
    Preface::read(&path).expect("text")
}

#[test]
fn comments_of_collections_are_read() {
    let konect = |bipartite, weighted| Some(Konect { bipartite, weighted });
    let found = read("% bip posweighted asc\n% 6 3 4\n1 1 2 1200000000\n");
    let expected = Preface {
        konect: konect(true, true),
        undirected: false,
        num_edges: Some(6),
        sizes: Some([3, 4]),
        num_fields: 4,
    };
    assert_eq!(found, expected);
    assert_eq!(read("% sym unweighted\n1\t2\n").konect, konect(false, false));
    assert!(read("%sym weighted\n1 2\n").undirected);
    assert_eq!(read("\u{feff}% asym positive\n\n% 7 5 5\n").sizes, Some([5, 5]));
    let snap = read("# Directed graph\n# Nodes: 7115 Edges: 103689\n# FromNodeId\tToNodeId\n30\t1412\n");
    assert_eq!((snap.konect, snap.num_edges, snap.undirected), (None, Some(103_689), false));
    assert!(read("# Undirected graph: ../../data/output/dblp.ungraph.txt\n0 1\n").undirected);
    // Numbers mean nothing without KONECT's line, and comments end at the first edge.
    assert_eq!(read("% 6 3 4\n1 2\n% bip\n").sizes, None);
    assert_eq!(read("").num_fields, 0);
}
