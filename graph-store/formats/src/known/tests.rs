use super::*;

/// The format of files, the last of which is the source, as another importer would find it.
fn found(of: Format, files: &[(&str, &[u8])]) -> Option<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let mut source = dir.path().to_path_buf();
    for (name, content) in files {
        source = dir.path().join(name);
        std::fs::create_dir_all(source.parent().expect("a parent")).expect("room");
        std::fs::write(&source, content).expect("room");
    }
    let refused = of.refuse_others(&source).err()?.to_string();
    let at = refused.find("`morphgl import").unwrap_or_else(|| panic!("no command: {refused}"));
    Some(
        refused[at..]
            .replace(&format!("{}/", dir.path().display()), "")
            .replace('`', "")
            .replace("morphgl import ", ""),
    )
}

#[test]
fn every_importer_names_the_command_of_the_others() {
    use Format::{Edges, Metis, Mtx, Npz, Numpy, Ogb, Planetoid};
    let banner = b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n";
    let one_percent = b"%MatrixMarket matrix coordinate pattern symmetric\n4 4 3\n2 1\n3 2\n4 3\n";
    let (path, ring) = (b"4 3\n2\n1 3\n2 4\n3\n", b"% ring\n4 4\n2 3\n1 4\n1 4\n2 3\n");
    let weighted = b"2 1 1\n2 7\n1 7\n";
    for format in [Edges, Metis, Npz, Planetoid, Numpy, Ogb] {
        assert_eq!(found(format, &[("a.mtx", banner)]).as_deref(), Some("mtx a.mtx"), "{format:?}");
    }
    for text in [&one_percent[..], b"\n%%matrixmarket matrix coordinate real general\n% c\n1 1 1\n1 1 1\n"] {
        assert_eq!(found(Edges, &[("a", text)]).as_deref(), Some("mtx a"));
    }
    for text in [&path[..], ring, weighted, b"5 4\n2 3\n1 3\n1 2\n5\n4\n"] {
        for format in [Edges, Mtx, Numpy] {
            assert_eq!(found(format, &[("g.graph", text)]).as_deref(), Some("metis g.graph"), "{format:?}");
        }
        assert_eq!(found(Metis, &[("g.graph", text)]), None);
    }
    for text in [&b"0 1\n1 2\n"[..], b"src,dst\n0,1\n", b"1 2\n2 3\n3 1\n", b"# c\n4 4\n1 2\n2 3\n3 4\n"] {
        assert_eq!(found(Edges, &[("e", text)]), None);
        assert_eq!(found(Mtx, &[("e", text)]).as_deref(), Some("edges e"));
    }
    let cora: Vec<(String, &[u8])> =
        PLANETOID.iter().map(|end| (format!("data/ind.cora.{end}"), &b"\x80\x02"[..])).collect();
    let cora: Vec<(&str, &[u8])> = cora.iter().map(|(name, content)| (name.as_str(), *content)).collect();
    assert_eq!(found(Edges, &cora).as_deref(), Some("planetoid data/ind.cora"));
    assert_eq!(found(Planetoid, &cora), None);
    let bv: [(&str, &[u8]); 2] = [("cnr.properties", b"#BVGraph properties\n"), ("cnr.graph", b"\x12\x00")];
    assert_eq!(found(Metis, &bv).as_deref(), Some("bv cnr"));
    assert_eq!(found(Mtx, &[("t.parquet", b"PAR1....")]).as_deref(), Some("edges t.parquet"));
}

#[test]
fn directories_and_archives_are_told_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    let command = |of: Format, name: &str| {
        let refused = of.refuse_others(&dir.path().join(name)).expect_err(name).to_string();
        refused.split('`').nth(1).expect("a command").replace(&format!("{}/", dir.path().display()), "")
    };
    for name in ["ogbn_arxiv/raw/edge.csv.gz", "arrays/src.npy", "Cora/raw/ind.cora.allx"] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("room");
        std::fs::write(path, "").expect("room");
    }
    for format in [Format::Edges, Format::Planetoid, Format::Mtx] {
        assert_eq!(command(format, "ogbn_arxiv"), "morphgl import ogb ogbn_arxiv");
        assert_eq!(command(format, "arrays"), "morphgl import numpy arrays");
    }
    assert_eq!(command(Format::Ogb, "Cora"), "morphgl import planetoid Cora/raw/ind.cora");
    for (name, array, format) in [("cs.npz", "adj_data", "npz"), ("mine.npz", "edge_index", "numpy")] {
        let mut zip = zip::ZipWriter::new(std::fs::File::create(dir.path().join(name)).expect("room"));
        zip.start_file(format!("{array}.npy"), zip::write::SimpleFileOptions::default()).expect("room");
        zip.finish().expect("room");
        assert_eq!(command(Format::Edges, name), format!("morphgl import {format} {name}"));
    }
    assert_eq!(command(Format::Numpy, "cs.npz"), "morphgl import npz cs.npz");
    assert_eq!(command(Format::Npz, "mine.npz"), "morphgl import numpy mine.npz");
    assert!(Format::Edges.refuse_others(&dir.path().join("none")).is_ok(), "the importer says what is missing");
}
