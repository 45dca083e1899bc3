//! MAG240M's and IGB's directories of `.npy` files by node and edge type.

use std::path::Path;

use half::f16;
use morphgl_formats::igb::{self, IgbLabels, IgbOptions};
use morphgl_formats::mag240m::{self, Mag240mOptions};
use morphgl_formats::{Options, RandomSplit, Silent};
use morphgl_graph_store::FeatureMatrix;
use tempfile::TempDir;

use super::{Typed, edge_types, edges, features, meta, node_types, notes, open};
use crate::data::{npy, write};
use crate::le;

type Files = Vec<(&'static str, Vec<u8>)>;

fn directory(files: &Files) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    files.iter().for_each(|(name, bytes)| write(&dir.path().join(name), bytes));
    dir
}

/// The files, with another content of one of them; without it where that is `None`.
fn with(mut files: Files, name: &'static str, bytes: Option<Vec<u8>>) -> Files {
    files.retain(|(other, _)| *other != name);
    files.extend(bytes.map(|bytes| (name, bytes)));
    files
}

/// What `torch.save` wrote before torch 1.6: its headers, and a pickle.
fn saved(pickle: &[u8]) -> Vec<u8> {
    let headers: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.";
    [headers, b"\x80\x02", pickle, b"."].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// A pickled dict.
fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries: Vec<u8> = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat()).collect();
    [&b"}("[..], &entries, b"u"].concat()
}

fn int(value: u8) -> Vec<u8> {
    vec![b'K', value]
}

/// A pickled numpy array of i64.
fn array(values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let dtype = [
        &b"cnumpy\ndtype\n("[..],
        &text("i8"),
        b"K\x00K\x01tR(K\x03",
        &text("<"),
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb",
    ];
    let shape = [b"K", &[values.len() as u8][..], b"\x85"].concat();
    let made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR(K\x01";
    [&made[..], &shape, &dtype.concat(), b"\x89C", &[bytes.len() as u8], &bytes, b"tb"].concat()
}

fn half(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect()
}

fn counts(entries: &[(&str, u8)]) -> Vec<u8> {
    saved(&dict(&entries.iter().map(|&(name, count)| (name, int(count))).collect::<Vec<_>>()))
}

fn mag() -> Files {
    let nan = f32::NAN;
    vec![
        ("meta.pt", counts(&[("paper", 4), ("author", 3), ("institution", 2), ("num_classes", 3)])),
        ("split_dict.pt", saved(&dict(&[("train", array(&[2, 0])), ("valid", array(&[1])), ("test", array(&[3]))]))),
        ("processed/paper/node_feat.npy", npy("<f2", "(4, 2)", &half(&[0.5, 1.0, 2.0, -1.0, 0.0, 0.25, 3.0, 4.0]))),
        ("processed/paper/node_label.npy", npy("<f4", "(4,)", &le![f32: 2.0, 0.0, 1.0, nan])),
        ("processed/paper/node_year.npy", npy("<i2", "(4,)", &le![i16: 2018, 2019, 2017, 2020])),
        ("processed/author___writes___paper/edge_index.npy", npy("<i8", "(2, 2)", &le![i64: 2, 0, 3, 1])),
        ("processed/author___affiliated_with___institution/edge_index.npy", npy("<i8", "(2, 1)", &le![i64: 1, 0])),
        ("processed/paper___cites___paper/edge_index.npy", npy("<i4", "(2, 3)", &le![i32: 0, 3, 3, 2, 0, 1])),
        ("processed/paper/paper.npy", npy("<i8", "(1,)", &le![i64: 0])),
    ]
}

fn import_mag(files: &Files, format: Mag240mOptions, options: &Options) -> Typed {
    let dir = directory(files);
    open(|target| mag240m::import(dir.path(), target, format, options, &Silent))
}

#[test]
fn mag240m_is_read() {
    let plain = Mag240mOptions::default();
    let dataset = import_mag(&mag(), plain, &Options::default());
    assert_eq!(node_types(&dataset), [("author", 3), ("institution", 2), ("paper", 4)]);
    assert_eq!(
        edge_types(&dataset),
        ["author-affiliated_with-institution", "author-writes-paper", "paper-cites-paper"]
    );
    assert_eq!(
        edges(&dataset),
        [
            "author:1 -affiliated_with-> institution:0",
            "paper:3 -cites-> paper:0",
            "author:0 -writes-> paper:1",
            "paper:3 -cites-> paper:1",
            "paper:0 -cites-> paper:2",
            "author:2 -writes-> paper:3",
        ]
    );
    assert!(matches!(dataset.features_by_type[2], Some(FeatureMatrix::F16 { .. })), "halves stay halves");
    assert_eq!(features(&dataset, 2), (vec![0.5, 1.0, 2.0, -1.0, 0.0, 0.25, 3.0, 4.0], 2));
    assert_eq!(features(&dataset, 0), (vec![], 0));
    assert_eq!(dataset.labels.as_ref().expect("labels").to_vec(), [-1, -1, -1, -1, -1, 2, 0, 1, -1]);
    assert_eq!((dataset.topology.node_times().is_none(), dataset.num_classes), (true, 3));
    // A split is a set: nodes in ascending order.
    let splits = &dataset.splits;
    assert_eq!([&*splits.train, &*splits.valid, &*splits.test], [&[5, 7][..], &[6], &[8]]);
    assert_eq!(meta(&dataset).provenance["format"], "mag240m");
    let notes = notes(&dataset);
    assert!(notes.contains("years of papers were left out; --years takes them as times"), "{notes}");
    assert!(notes.contains("left out: paper/paper.npy"), "{notes}");

    let options = Options { symmetrise: true, ..Options::default() };
    let dataset = import_mag(&mag(), Mag240mOptions { years: true }, &options);
    assert_eq!(dataset.topology.node_times().expect("years")[5..], [2018, 2019, 2017, 2020]);
    assert_eq!(
        edge_types(&dataset)[3..],
        ["institution-rev_affiliated_with-author", "paper-rev_writes-author", "paper-rev_cites-paper"]
    );
    assert!(edges(&dataset).contains(&"paper:3 -rev_writes-> author:2".to_string()), "{:?}", edges(&dataset));

    // The form of newer files, and a random split instead.
    let whole =
        dict(&[("train", array(&[])), ("valid", array(&[1])), ("test-whole", array(&[3])), ("test-dev", array(&[3]))]);
    let files = with(mag(), "split_dict.pt", Some(saved(&whole)));
    let dataset = import_mag(&files, plain, &Options::default());
    assert_eq!((&*dataset.splits.train, &*dataset.splits.test), (&[][..], &[8][..]));
    assert!(super::notes(&dataset).contains("split_dict.pt: test-dev"), "{}", super::notes(&dataset));
    let split = Some(RandomSplit { train: 1.0, valid: 0.0, test: 0.0, seed: 1 });
    assert_eq!(import_mag(&mag(), plain, &Options { split, ..Options::default() }).splits.train.len(), 3);
}

/// The beginning of the refusal of a directory.
#[track_caller]
fn refused(
    files: &Files,
    import: impl FnOnce(&Path, &Path) -> morphgl_graph_store::Result<std::path::PathBuf>,
) -> String {
    let dir = directory(files);
    let out = dir.path().join("out");
    let error = import(dir.path(), &out).expect_err("it is refused").to_string();
    assert!(!out.exists() && !error.contains('\n'), "{error}");
    error.replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn faults_of_mag240m_name_the_file() {
    let check = |name: &'static str, bytes: Option<Vec<u8>>, expected: &str| {
        let error = refused(&with(mag(), name, bytes), |source, target| {
            mag240m::import(source, target, Mag240mOptions { years: true }, &Options::default(), &Silent)
        });
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    };
    check("meta.pt", None, "meta.pt: there is no such file; name the directory of MAG240M, whole");
    check("meta.pt", Some(b"{}".to_vec()), "meta.pt: not a file of torch.save");
    check("meta.pt", Some(saved(b"K\x01")), "meta.pt: it is not a dict of numbers");
    check("meta.pt", Some(saved(&dict(&[("paper", text("4"))]))), "meta.pt: \"paper\" is no whole number");
    check("meta.pt", Some(saved(&dict(&[("num_classes", int(3))]))), "meta.pt: there is no node type");
    check(
        "meta.pt",
        Some(saved(&dict(&[("paper", b"J\xff\xff\xff\xff".to_vec())]))),
        "meta.pt: -1 nodes of type \"paper\"",
    );
    check(
        "meta.pt",
        Some(counts(&[("paper", 4), ("paper", 4)])),
        "meta.pt: the node type \"paper\" stands there twice",
    );
    check(
        "meta.pt",
        Some(counts(&[("paper", 4), ("author", 3)])),
        "processed/author___affiliated_with___institution: there is no node type \"institution\": there are \"author\", \"paper\"",
    );
    check(
        "meta.pt",
        Some(counts(&[("author", 4), ("institution", 2)])),
        "processed/paper: meta.pt has no number of nodes of this type",
    );
    check(
        "meta.pt",
        Some(counts(&[("paper", 5), ("author", 3), ("institution", 2)])),
        "processed/paper/node_feat.npy: 4 rows for the 5 nodes of type \"paper\"",
    );
    check("split_dict.pt", None, "split_dict.pt: there is no such file");
    check(
        "split_dict.pt",
        Some(saved(&dict(&[("train", array(&[0])), ("test", array(&[1]))]))),
        "split_dict.pt: there is no array \"valid\", only \"train\", \"test\"",
    );
    let split = |train: Vec<u8>| Some(saved(&dict(&[("train", train), ("valid", array(&[1])), ("test", array(&[3]))])));
    check("split_dict.pt", split(int(1)), "split_dict.pt: train is not a numpy array");
    check("split_dict.pt", split(array(&[0, 4])), "split_dict.pt, element 1: train: there is no node 4");
    check("split_dict.pt", split(array(&[-1])), "split_dict.pt, element 0: train: there is no node -1");
    check("split_dict.pt", split(array(&[0, 1])), "split_dict.pt, element 0: valid: the node 1 is listed before");
    let label = "processed/paper/node_label.npy";
    check(
        label,
        Some(npy("<f4", "(3,)", &le![f32: 0.0, 1.0, 2.0])),
        "processed/paper/node_label.npy: 3 rows for the 4 nodes",
    );
    check(label, Some(npy("<f4", "(4,)", &le![f32: 0.0, 1.5, 2.0, 0.0])), "processed/paper/node_label.npy, byte ");
    let year = "processed/paper/node_year.npy";
    check(year, Some(npy("<f4", "(4,)", &[0; 16])), "processed/paper/node_year.npy, byte ");
    check(
        year,
        Some(npy("<i2", "(3,)", &[0; 6])),
        "processed/paper/node_year.npy: 3 rows for the 4 nodes of type \"paper\"",
    );
    let feat = "processed/paper/node_feat.npy";
    check(feat, Some(npy("<f2", "(8,)", &[0; 16])), "processed/paper/node_feat.npy: features of shape [8]");
    check(
        feat,
        Some(npy("<f2", "(4, 2)", &half(&[0.0, 0.0, f32::INFINITY, 0.0, 0.0, 0.0, 0.0, 0.0]))),
        "processed/paper/node_feat.npy, element 2",
    );
    let cites = "processed/paper___cites___paper/edge_index.npy";
    let without = with(with(mag(), cites, None), "processed/paper___cites___paper/README", Some(vec![]));
    let error = refused(&without, |source, target| {
        mag240m::import(source, target, Mag240mOptions::default(), &Options::default(), &Silent)
    });
    let expected = "processed/paper___cites___paper/edge_index.npy: there is no such file; the directory is not whole";
    assert!(error.starts_with(expected), "{error}");
    check(
        cites,
        Some(npy("<i8", "(3, 2)", &[0; 48])),
        "processed/paper___cites___paper/edge_index.npy: edges of shape [3, 2], expected [2, edges]",
    );
    check(
        cites,
        Some(npy("<i8", "(2, 1)", &le![i64: 4, 0])),
        "processed/paper___cites___paper/edge_index.npy, element 0: the source \"4\" is no node",
    );
    check(cites, Some(npy("<f4", "(2, 1)", &[0; 8])), "processed/paper___cites___paper/edge_index.npy, byte ");
    check(
        "processed/a___b/x.npy",
        Some(vec![0]),
        "processed/a___b: a folder that is neither of a node type nor of an edge type",
    );
    check(
        "processed/author/node_label.npy",
        Some(npy("<i8", "(3,)", &[0; 24])),
        "processed/paper/node_label.npy: labels of a second node type; leave those of one type",
    );
    let dir = tempfile::tempdir().expect("a directory");
    let error =
        mag240m::import(dir.path(), &dir.path().join("out"), Mag240mOptions::default(), &Options::default(), &Silent);
    let error = error.expect_err("nothing is there").to_string();
    assert!(
        error.contains("processed: there is no such directory; name the directory that holds MAG240M's"),
        "{error}"
    );
}

fn igb_files() -> Files {
    vec![
        ("paper/node_feat.npy", npy("<f4", "(5, 1)", &le![f32: 0.0, 1.0, 2.0, 3.0, 4.0])),
        ("paper/node_label_19.npy", npy("<f4", "(5,)", &le![f32: 0.0, 1.0, 2.0, 0.0, 1.0])),
        ("paper/node_label_2K.npy", npy("<i8", "(5,)", &le![i64: 7, 6, 5, 4, 3])),
        ("paper/paper_id_index_mapping.npy", vec![1]),
        ("paper__cites__paper/edge_index.npy", npy("<i8", "(2, 2)", &le![i64: 0, 1, 4, 2])),
        ("author/node_feat.npy", npy("<f4", "(2, 3)", &le![f32: 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        ("paper__written_by__author/edge_index.npy", npy("<i4", "(3, 2)", &le![i32: 0, 1, 3, 0, 4, 1])),
    ]
}

fn import_igb(files: &Files, format: IgbOptions, options: &Options) -> Typed {
    let dir = directory(files);
    open(|target| igb::import(dir.path(), target, format, options, &Silent))
}

#[test]
fn igb_is_read() {
    let plain = IgbOptions::default();
    let dataset = import_igb(&igb_files(), plain, &Options::default());
    assert_eq!(node_types(&dataset), [("author", 2), ("paper", 5)]);
    assert_eq!(
        edges(&dataset),
        [
            "paper:3 -written_by-> author:0",
            "paper:0 -written_by-> author:1",
            "paper:4 -written_by-> author:1",
            "paper:0 -cites-> paper:1",
            "paper:4 -cites-> paper:2",
        ]
    );
    assert_eq!(features(&dataset, 0), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3));
    assert_eq!(dataset.labels.as_ref().expect("labels").to_vec(), [-1, -1, 0, 1, 2, 0, 1]);
    // As its loader splits: three fifths of five, one, and the last.
    let splits = &dataset.splits;
    assert_eq!([&*splits.train, &*splits.valid, &*splits.test], [&[2, 3, 4][..], &[5], &[6]]);
    assert!(notes(&dataset).contains("left out: paper/paper_id_index_mapping.npy"), "{}", notes(&dataset));
    let fine = IgbOptions { labels: Some(IgbLabels::Of2K) };
    let options = Options { symmetrise: true, ..Options::default() };
    let dataset = import_igb(&igb_files(), fine, &options);
    assert_eq!(dataset.labels.as_ref().expect("labels")[2..], [7, 6, 5, 4, 3]);
    assert!(edge_types(&dataset).contains(&"author-rev_written_by-paper".to_string()));
    // The same as `processed`, of papers alone.
    let papers: Files = igb_files().into_iter().filter(|(name, _)| !name.contains("author")).collect();
    let dir = tempfile::tempdir().expect("a directory");
    papers.iter().for_each(|(name, bytes)| write(&dir.path().join("processed").join(name), bytes));
    let dataset = open(|target| igb::import(dir.path(), target, plain, &Options::default(), &Silent));
    assert_eq!((node_types(&dataset), edges(&dataset).len()), (vec![("paper", 5)], 2));
}

/// The sets `large` and `full` have numbers without a header, and papers without a label.
#[test]
fn igb_without_headers_is_read() {
    let raw: Vec<u8> = (0..5 * 1024).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut files = with(igb_files(), "paper/node_feat.npy", Some(raw.clone()));
    let nan = f32::NAN;
    files = with(files, "paper/node_label_19.npy", Some(le![f32: 3.0, nan, 2.0, nan, 0.0]));
    let dataset = import_igb(&files, IgbOptions::default(), &Options::default());
    let (values, dim) = features(&dataset, 1);
    assert_eq!((dim, values[1024], values.len()), (1024, 1024.0, 5 * 1024));
    assert_eq!(dataset.labels.as_ref().expect("labels")[2..], [3, -1, 2, -1, 0]);
    let splits = &dataset.splits;
    assert_eq!([&*splits.train, &*splits.valid, &*splits.test], [&[2][..], &[], &[4, 6]]);
    let notes = notes(&dataset);
    assert!(notes.contains("paper/node_feat.npy, paper/node_label_19.npy: without a header"), "{notes}");
    let check = |name: &'static str, bytes: Vec<u8>, expected: &str| {
        let error = refused(&with(files.clone(), name, Some(bytes)), |source, target| {
            igb::import(source, target, IgbOptions::default(), &Options::default(), &Silent)
        });
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    };
    check(
        "paper/node_feat.npy",
        raw[..4100].to_vec(),
        "paper/node_feat.npy: 4100 bytes, neither a npy array nor rows of 1024",
    );
    check("paper/node_feat.npy", Vec::new(), "paper/node_feat.npy: 0 bytes");
    check(
        "paper/node_feat.npy",
        raw[..4096 * 3].to_vec(),
        "paper/node_label_19.npy: 5 rows for the 3 nodes of type \"paper\"",
    );
    check(
        "paper/node_label_19.npy",
        vec![0; 7],
        "paper/node_label_19.npy: 7 bytes, neither a npy array nor rows of 1 numbers",
    );
    check(
        "paper/node_label_19.npy",
        le![f32: 0.5, 0.0, 0.0, 0.0, 0.0],
        "paper/node_label_19.npy, byte 0: the label is 0.5",
    );
}

#[test]
fn faults_of_igb_name_the_file() {
    let check = |name: &'static str, bytes: Option<Vec<u8>>, expected: &str| {
        let error = refused(&with(igb_files(), name, bytes), |source, target| {
            igb::import(source, target, IgbOptions::default(), &Options::default(), &Silent)
        });
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
    };
    check(
        "author/node_feat.npy",
        None,
        "paper__written_by__author: there is no node type \"author\": there are \"paper\"",
    );
    check("fos/x.npy", Some(vec![0]), "fos/node_feat.npy: there is no such file; get it: it says how many nodes");
    check("paper__topic__fos/edge_index.npy", Some(vec![0]), "paper__topic__fos: there is no node type \"fos\"");
    check("paper__topic/x", Some(vec![0]), "paper__topic: a folder that is neither of a node type nor of an edge type");
    let cites = "paper__cites__paper/edge_index.npy";
    check("author__knows__author/README", Some(vec![]), "author__knows__author/edge_index.npy: there is no such file");
    check(
        cites,
        Some(npy("<i8", "(2, 3)", &[0; 48])),
        "paper__cites__paper/edge_index.npy: edges of shape [2, 3], expected [edges, 2]",
    );
    check(
        cites,
        Some(npy("<i8", "(1, 2)", &le![i64: 0, 5])),
        "paper__cites__paper/edge_index.npy, element 0: the target \"5\" is no node",
    );
    check(
        "author/node_label_19.npy",
        Some(npy("<i8", "(2,)", &[0; 16])),
        "paper/node_label_19.npy: labels of a second node type",
    );
    check(
        "paper/node_feat.npy",
        Some(npy("<f4", "(4, 1)", &[0; 16])),
        "paper/node_label_19.npy: 5 rows for the 4 nodes",
    );
    let without = with(igb_files(), "paper/node_label_2K.npy", None);
    let error = refused(&without, |source, target| {
        let format = IgbOptions { labels: Some(IgbLabels::Of2K) };
        igb::import(source, target, format, &Options::default(), &Silent)
    });
    assert!(error.contains("no node type has node_label_2K.npy"), "{error}");
    // Directories of the other set, or of none.
    let error = refused(&mag(), |source, target| {
        igb::import(source, target, IgbOptions::default(), &Options::default(), &Silent)
    });
    assert!(error.contains("this is the directory of MAG240M; read it with `morphgl import mag240m "), "{error}");
    let error = refused(&igb_files(), |source, target| {
        mag240m::import(source, target, Mag240mOptions::default(), &Options::default(), &Silent)
    });
    assert!(error.contains("this is a directory of IGB; read it with `morphgl import igb "), "{error}");
    let error = refused(&vec![("paper/node_feat.npy", vec![0])], |source, target| {
        igb::import(source, target, IgbOptions::default(), &Options::default(), &Silent)
    });
    assert!(error.contains("there is no folder of an edge type, such as paper__cites__paper"), "{error}");
}
