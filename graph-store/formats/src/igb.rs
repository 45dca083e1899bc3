//! IGB, the Illinois Graph Benchmark, of one node type and of several: a directory of `.npy` files by node and edge type.

use std::path::{Path, PathBuf};

use morphgl_graph_store::Result;
use morphgl_platform::excerpt;

use crate::files::{invalid, magic};
use crate::type_folders::TypeFolders;
use crate::typed::{self, ArrayForm, Features, NodeRows, NodeTable, Split, TypeOf, TypedGraph, Values};
use crate::{Format, Options, Progress};

/// Features of a node type.
const FEATURES: &str = "node_feat.npy";
/// Features per node of files without a header.
const DIM: u64 = 1024;
/// Shares of training and validation nodes, as IGB's loader has them.
const SHARES: [f64; 2] = [0.6, 0.2];

/// Options of IGB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IgbOptions {
    /// The labels that are read. Default: those of 19 classes where they are there, else those of 2,983.
    pub labels: Option<IgbLabels>,
}

/// Labels of IGB's papers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgbLabels {
    /// Of 19 classes, `node_label_19.npy`.
    Of19,
    /// Of 2,983 classes, `node_label_2K.npy`.
    Of2K,
}

impl IgbLabels {
    const ALL: [Self; 2] = [Self::Of19, Self::Of2K];

    fn file(self) -> &'static str {
        match self {
            Self::Of19 => "node_label_19.npy",
            Self::Of2K => "node_label_2K.npy",
        }
    }
}

/// Imports IGB from `source`, the directory that holds `paper/` and `paper__cites__paper/`, or has it as `processed/`, into a dataset
/// at `target`.
///
/// `TYPE/node_feat.npy` has the features of a node type, and so its number of nodes; `paper/node_label_19.npy` and
/// `node_label_2K.npy` the classes; `SOURCE__NAME__TARGET/edge_index.npy`, `[edges, 2]`, the edges of a type. In the sets `large` and
/// `full` some files are numbers of f32 without a header, 1,024 features per node. Papers with a label are split in their order, as
/// IGB's loader does: the first 60% train, the next 20% validate, the others test.
///
/// # Errors
///
/// Files that are missing or damaged, arrays of other numbers of rows, ids of nodes that do not exist, each with the file's name.
///
/// # Complexity
///
/// A pass over each array; `options.memory` bytes for the edges, besides labels, splits and ids (4, 4 and 8 bytes per node).
pub fn import(
    source: &Path,
    target: &Path,
    format: IgbOptions,
    options: &Options,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    Format::Igb.refuse_others(source)?;
    let dir = Some(source.join("processed")).filter(|dir| dir.is_dir()).unwrap_or_else(|| source.into());
    if !dir.is_dir() {
        return invalid(dir, "there is no such directory", NAME);
    }
    let folders = TypeFolders::read(&dir, "__")?;
    if folders.nodes.is_empty() {
        return invalid(dir, "there is no folder of a node type", NAME);
    }
    let (mut nodes, mut learned, mut raw) = (Vec::new(), None, Vec::new());
    for (of, name) in folders.nodes.iter().enumerate() {
        let features = dir.join(name).join(FEATURES);
        if !features.is_file() {
            let cure = "get it: it says how many nodes there are of the type; or remove the folder";
            return invalid(features, "there is no such file", cure);
        }
        let mut has_header = |path: &Path| -> Result<bool> {
            let is_npy = magic(path)?.starts_with(b"\x93NUMPY");
            if !is_npy {
                raw.push(format!("{name}/{}", crate::files::file_name(path)));
            }
            Ok(is_npy)
        };
        let features = match has_header(&features)? {
            true => Features::File(features),
            false => Features::Raw(features, DIM),
        };
        let kinds = format.labels.map_or(&IgbLabels::ALL[..], |labels| match labels {
            IgbLabels::Of19 => &IgbLabels::ALL[..1],
            IgbLabels::Of2K => &IgbLabels::ALL[1..],
        });
        let label = match kinds.iter().find_map(|labels| folders.file(name, labels.file())) {
            Some(path) => {
                if learned.replace(of).is_some() {
                    return invalid(path, "labels of a second node type", "leave those of one type");
                }
                Some(if has_header(&path)? { Values::File(path, None) } else { Values::Raw(path) })
            }
            None => None,
        };
        nodes.push(NodeTable {
            rows: NodeRows::Count(None),
            of: TypeOf::Fixed(of),
            space: of,
            id: None,
            features,
            targets: Features::None,
            time: None,
            label,
            split: None,
        });
    }
    if let (Some(labels), None) = (format.labels, learned) {
        let what = format!("no node type has {}", labels.file());
        return invalid(dir, what, "get the file, or read the other labels by --igb-labels");
    }
    let unread = folders.unread(&[FEATURES, IgbLabels::Of19.file(), IgbLabels::Of2K.file()])?;
    let edges = folders.edge_tables(&folders.nodes, ArrayForm::Pairs)?;
    let spaces = (0..nodes.len()).map(Some).collect();
    let split = learned.map(|of| (of, Split::InOrder(SHARES)));
    let graph = TypedGraph { node_types: folders.nodes, spaces, nodes, edges, split, task: None };
    typed::import(source, target, graph, options, progress, |ingest| {
        ingest.provenance("format", "igb");
        if !raw.is_empty() {
            let what = format!("without a header, read as numbers of f32, features {DIM} per node");
            ingest.note(format!("{}: {what}", excerpt(&raw.join(", "), 300)));
        }
        if !unread.is_empty() {
            ingest.note(format!("left out: {}", excerpt(&unread.join(", "), 300)));
        }
    })
}

const NAME: &str = "name the directory of IGB that holds paper/ and paper__cites__paper/, or has it as processed/";
