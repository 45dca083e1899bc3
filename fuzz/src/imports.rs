//! Importers, and datasets of our own, on files in a sandbox.

use std::fs;
use std::path::{Path, PathBuf};

use morphgl_formats::edge_list::{Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::igb::IgbOptions;
use morphgl_formats::mag240m::Mag240mOptions;
use morphgl_formats::numpy::NumpyOptions;
use morphgl_formats::{NodeFiles, Options, Silent};
use morphgl_graph_store::{Dataset, Load, NodeNames, OpenOptions, Result};

use crate::sandbox::{Outcome, Sandbox, refused};

pub(crate) const PLANETOID: &[&str] = &[
    "ind.tiny.graph",
    "ind.tiny.allx",
    "ind.tiny.ally",
    "ind.tiny.tx",
    "ind.tiny.ty",
    "ind.tiny.y",
    "ind.tiny.test.index",
];
pub(crate) const ARRAYS: &[&str] =
    &["edge_index.npy", "edge_weight.npy", "x.npy", "y.npy", "train_mask.npy", "val.npy", "test.npy", "node_ids.npy"];
pub(crate) const OGB: &[&str] = &[
    "raw/edge.csv.gz",
    "raw/num-node-list.csv.gz",
    "raw/num-edge-list.csv.gz",
    "raw/node-feat.csv.gz",
    "raw/node-label.csv.gz",
    "split/by/train.csv.gz",
    "split/by/valid.csv.gz",
    "split/by/test.csv.gz",
];
pub(crate) const OGB_LINKS: &[&str] = &[
    "raw/edge.csv.gz",
    "raw/edge_weight.csv.gz",
    "raw/num-node-list.csv.gz",
    "raw/num-edge-list.csv.gz",
    "split/by/train.pt",
    "split/by/valid.pt",
    "split/by/test.pt",
];
pub(crate) const OGB_TYPED: &[&str] = &[
    "raw/num-node-dict.csv.gz",
    "raw/triplet-type-list.csv.gz",
    "raw/relations/author___writes___paper/edge.csv.gz",
    "raw/relations/paper___cites___paper/edge.csv.gz",
    "raw/relations/paper___cites___paper/edge-feat.csv.gz",
    "raw/node-feat/paper/node-feat.csv.gz",
    "raw/node-feat/paper/node_year.csv.gz",
    "raw/node-label/paper/node-label.csv.gz",
    "split/time/paper/train.csv.gz",
    "split/time/paper/valid.csv.gz",
    "split/time/paper/test.csv.gz",
];
pub(crate) const MANIFEST: &[&str] =
    &["graph.toml", "people.csv", "buys.tsv", "towns.txt", "year.csv", "x.npy", "like.npy", "likes.csv"];
pub(crate) const TASK: &[&str] =
    &["graph.toml", "people.csv", "buys.tsv", "rows.csv", "train.csv", "valid.csv", "test.csv"];
pub(crate) const MAG240M: &[&str] = &[
    "meta.pt",
    "split_dict.pt",
    "processed/paper/node_feat.npy",
    "processed/paper/node_label.npy",
    "processed/paper/node_year.npy",
    "processed/author___writes___paper/edge_index.npy",
    "processed/paper___cites___paper/edge_index.npy",
];
pub(crate) const IGB: &[&str] = &[
    "paper/node_feat.npy",
    "paper/node_label_19.npy",
    "author/node_feat.npy",
    "paper__cites__paper/edge_index.npy",
    "paper__written_by__author/edge_index.npy",
];
pub(crate) const NEO4J: &[&str] = &["movies.csv", "people-header.csv", "people-1.csv", "acts.csv"];
pub(crate) const NODES: &[&str] = &["nodes.csv", "features.csv", "labels.csv", "train.txt", "edges.csv"];
pub(crate) const DATASET: &[&str] = &[
    "graph.json",
    "indptr.npy",
    "indices.npy",
    "weights.npy",
    "features.npy",
    "labels.npy",
    "train.npy",
    "valid.npy",
    "test.npy",
    "node_names.npy",
    "node_name_ends.npy",
];

/// Directory of the imported dataset.
const TARGET: &str = "imported";

fn options() -> Options {
    Options { memory: Options::LEAST_MEMORY, large: 1 << 20, ..Options::default() }
}

/// Imports into a new directory. A dataset has to pass the check of `morphgl info --check`; a failure leaves nothing.
fn import(sandbox: &Sandbox, read: impl FnOnce(&Path) -> Result<PathBuf>) -> Outcome {
    let target = sandbox.dir.join(TARGET);
    match read(&target) {
        Ok(path) => {
            let open = OpenOptions { load: Load::Mmap, verify: true };
            Dataset::open(&path, open).unwrap_or_else(|e| panic!("imported, and refused: {e}"));
            NodeNames::read(&path).unwrap_or_else(|e| panic!("imported, and its names refused: {e}"));
            fs::remove_dir_all(&path).expect("the dataset is there");
            Outcome::Accepted
        }
        Err(e) => {
            let left = fs::read_dir(&sandbox.dir).expect("there").map(|entry| entry.expect("an entry").file_name());
            let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains(TARGET)).collect();
            assert!(left.is_empty(), "{e} leaves {left:?}");
            refused(&e)
        }
    }
}

pub(crate) fn planetoid(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |path| {
        let prefix = path.with_file_name("ind.tiny");
        import(sandbox, |target| morphgl_formats::planetoid::import(&prefix, target, &options(), &Silent))
    })
}

pub(crate) fn npz(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::npz::import(path, target, &options(), &Silent))
    })
}

pub(crate) fn numpy(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |path| {
        let format = NumpyOptions::default();
        import(sandbox, |target| morphgl_formats::numpy::import(path, target, format, &options(), &Silent))
    })
}

/// Imports the sandbox's directory of single `.npy` files ([`ARRAYS`]).
pub(crate) fn arrays(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |_| {
        let format = NumpyOptions::default();
        import(sandbox, |target| morphgl_formats::numpy::import(&sandbox.dir, target, format, &options(), &Silent))
    })
}

pub(crate) fn ogb(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |_| {
        import(sandbox, |target| morphgl_formats::ogb::import(&sandbox.dir, target, &options(), &Silent))
    })
}

pub(crate) fn ogb_binary(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    ogb(sandbox, number, bytes)
}

/// Numbers above those of the files select how ids are read.
pub(crate) fn edges(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    let ids = [Ids::Keep, Ids::Compact, Ids::Strings][number / 6 % 3];
    let format = EdgeListOptions { ids, ..EdgeListOptions::default() };
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::edge_list::import(path, target, &format, &options(), &Silent))
    })
}

/// Edges with features; numbers above those of the files select how ids are read.
pub(crate) fn edge_features(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    let ids = [Ids::Keep, Ids::Compact, Ids::Strings][number / 2 % 3];
    let features = vec![Column::Name("3-4".into())];
    let format = EdgeListOptions { ids, columns: Columns { features, ..Columns::default() }, ..Default::default() };
    let options = Options { symmetrise: number / 6 % 2 == 1, ..options() };
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::edge_list::import(path, target, &format, &options, &Silent))
    })
}

/// Edges between two kinds of nodes; numbers above those of the files select how ids are read.
pub(crate) fn bipartite(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    let ids = [Ids::Keep, Ids::Compact, Ids::Strings][number / 3 % 3];
    let format = EdgeListOptions { ids, ..EdgeListOptions::default() };
    let options = Options { bipartite: Some(true), symmetrise: number / 9 % 2 == 1, ..options() };
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::edge_list::import(path, target, &format, &options, &Silent))
    })
}

pub(crate) fn nodes(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    let ids = [Ids::Keep, Ids::Compact, Ids::Strings][number / NODES.len() % 3];
    let format = EdgeListOptions { ids, ..EdgeListOptions::default() };
    let file = |name: &str| Some(sandbox.dir.join(name));
    let nodes = match number % NODES.len() {
        0 => NodeFiles { table: file("nodes.csv"), ..NodeFiles::default() },
        1 => NodeFiles { features: file("features.csv"), ..NodeFiles::default() },
        2 => NodeFiles { labels: file("labels.csv"), ..NodeFiles::default() },
        3 => NodeFiles { splits: [file("train.txt"), None, None], ..NodeFiles::default() },
        _ => NodeFiles { labels: file("labels.csv"), splits: [file("train.txt"), None, None], ..NodeFiles::default() },
    };
    let options = Options { nodes, ..options() };
    sandbox.replaced(number, bytes, |_| {
        let edges = sandbox.dir.join("edges.csv");
        import(sandbox, |target| morphgl_formats::edge_list::import(&edges, target, &format, &options, &Silent))
    })
}

/// A manifest and its files.
pub(crate) fn manifest(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |_| {
        let graph = sandbox.dir.join("graph.toml");
        import(sandbox, |target| morphgl_formats::manifest::import(&graph, target, &options(), &Silent))
    })
}

pub(crate) fn neo4j(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |_| {
        import(sandbox, |target| morphgl_formats::neo4j::import(&sandbox.dir, target, &options(), &Silent))
    })
}

pub(crate) fn triples(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::triples::import(path, target, &options(), &Silent))
    })
}

/// Numbers above those of the files take the years, and add the reverse edges.
pub(crate) fn mag240m(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    let format = Mag240mOptions { years: (number / MAG240M.len()).is_multiple_of(2) };
    let options = Options { symmetrise: number / MAG240M.len() % 3 == 1, ..options() };
    sandbox.replaced(number, bytes, |_| {
        import(sandbox, |target| morphgl_formats::mag240m::import(&sandbox.dir, target, format, &options, &Silent))
    })
}

pub(crate) fn igb(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    let options = Options { symmetrise: number / IGB.len() % 2 == 1, ..options() };
    sandbox.replaced(number, bytes, |_| {
        let format = IgbOptions::default();
        import(sandbox, |target| morphgl_formats::igb::import(&sandbox.dir, target, format, &options, &Silent))
    })
}

pub(crate) fn mtx(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::mtx::import(path, target, &options(), &Silent))
    })
}

pub(crate) fn metis(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |path| {
        import(sandbox, |target| morphgl_formats::metis::import(path, target, &options(), &Silent))
    })
}

/// The endings of the graph and its properties select one of two graphs; numbers above those of the files how rows are read.
#[cfg(feature = "bv")]
pub(crate) fn bv(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    use morphgl_formats::RowContent;
    let rows = if (number / 4).is_multiple_of(2) { RowContent::Targets } else { RowContent::Sources };
    sandbox.replaced(number, bytes, |path| {
        let graph = path.with_extension("graph");
        import(sandbox, |target| morphgl_formats_bv::import(&graph, target, rows, &options(), &Silent))
    })
}

/// A dataset with one file replaced: opened with and without checksums, from memory and mapped.
pub(crate) fn dataset(sandbox: &Sandbox, number: usize, bytes: &[u8]) -> Outcome {
    sandbox.replaced(number, bytes, |_| {
        let load = if bytes.len().is_multiple_of(2) { Load::Ram } else { Load::Mmap };
        let verify = number / DATASET.len() == 0 && bytes.len().is_multiple_of(3);
        match Dataset::open(&sandbox.dir, OpenOptions { load, verify }) {
            Ok(dataset) => {
                let nodes = dataset.num_nodes();
                assert!((0..nodes as u32).all(|v| dataset.topology.neighbors(v).iter().all(|&u| (u as usize) < nodes)));
                let repeated = dataset.splits.num_repeated(nodes);
                assert!(repeated <= 2 * nodes, "{repeated} of {nodes}");
                let _ = NodeNames::read(&sandbox.dir).map_err(|e| refused(&e));
                Outcome::Accepted
            }
            Err(e) => refused(&e),
        }
    })
}
