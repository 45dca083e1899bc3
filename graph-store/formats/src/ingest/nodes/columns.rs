//! Choice of the columns of a table of nodes, by their names or by the options.

use morphgl_graph_store::Result;

use crate::files::{file_name, invalid};
use crate::tabular::TableFile;
use crate::{Column, Ingest, NodeColumns};

/// The role of a node file, from the option that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRole {
    /// Any columns.
    Table,
    Features,
    Labels,
    Split(u8),
}

/// Known names of columns, in lower case.
pub(super) const ID: &[&str] = &["id", "node", "node_id", "nodeid", "name", "n_id"];
/// Whether a column of this name has ids.
pub fn is_id_column(name: &str) -> bool {
    ID.contains(&name.trim().to_lowercase().as_str())
}

const INDEX: &[&str] = &["", "index", "unnamed: 0"];
const LABEL: &[&str] = &["label", "labels", "class", "y", "target", "category"];
const SPLIT: &[&str] = &["split", "fold", "set"];
const MASKS: [&[&str]; 3] = [
    &["train_mask", "train", "is_train"],
    &["val_mask", "valid_mask", "val", "valid", "is_val"],
    &["test_mask", "test", "is_test"],
];

/// Indices of the columns of a table of nodes that are read.
#[derive(Debug, Default)]
pub(super) struct TableColumns {
    pub(super) id: Option<usize>,
    pub(super) label: Option<usize>,
    pub(super) split: Option<usize>,
    /// Masks of training, validation and test nodes.
    pub(super) masks: [Option<usize>; 3],
    pub(super) features: Vec<usize>,
}

impl TableColumns {
    pub(super) fn all(&self) -> Vec<usize> {
        let one = [self.id, self.label, self.split].into_iter().chain(self.masks).flatten();
        one.chain(self.features.iter().copied()).collect()
    }
}

pub(super) fn choose(file: &TableFile<'_>, role: FileRole, ingest: &Ingest<'_>) -> Result<TableColumns> {
    let (header, options) = (&file.header, &ingest.options().nodes.columns);
    let index = |column: &Option<Column>, known: &[&str]| match column {
        Some(column) => file.index(column).map(Some),
        None => Ok(header.find(known)),
    };
    let width = header.names.len();
    let id = index(&options.id, ID)?.or_else(|| header.find(INDEX));
    let mut chosen = TableColumns { id, ..TableColumns::default() };
    let others = |chosen: &TableColumns| (0..width).filter(|i| !chosen.all().contains(i)).collect::<Vec<_>>();
    // The named columns of features, or those of the default.
    let features = |default: Vec<usize>| -> Result<Vec<usize>> {
        let Some(columns) = &options.features else { return Ok(default) };
        columns.iter().map(|column| file.index(column)).collect()
    };
    let (what, cure) = match role {
        FileRole::Split(part) => {
            let part = usize::from(part);
            chosen.masks[part] = header.find(MASKS[part]).filter(|_| width == 1 || id.is_some());
            if chosen.masks[part].is_none() && id.is_none() && width == 1 {
                chosen.id = Some(0);
            }
            if chosen.masks[part].is_some() || chosen.id.is_some() {
                return Ok(chosen);
            }
            (format!("{width} columns, of which none is known to be ids"), "name one by --id-column")
        }
        FileRole::Labels => {
            let known = index(&options.label, LABEL)?;
            chosen.label = known.or_else(|| <[usize; 1]>::try_from(others(&chosen)).ok().map(|[only]| only));
            if chosen.label.is_some() {
                return Ok(chosen);
            }
            (
                format!("which column has the labels is not known: there are {}", header.list()),
                "name it by --label-column, and that of ids by --id-column",
            )
        }
        FileRole::Features => {
            chosen.features = features(others(&chosen))?;
            return Ok(chosen);
        }
        FileRole::Table => {
            chosen.label = index(&options.label, LABEL)?;
            chosen.split = index(&options.split, SPLIT)?;
            if chosen.split.is_none() {
                chosen.masks = MASKS.map(|names| header.find(names));
            }
            let numbered = |i: &usize| header.named && is_feature(&header.names[*i]);
            chosen.features = features(others(&chosen).into_iter().filter(numbered).collect())?;
            let any_named = options != &NodeColumns::default();
            let unknown = |i: usize| !INDEX.contains(&header.names[i].as_str());
            if any_named || !others(&chosen).into_iter().any(unknown) {
                return Ok(chosen);
            }
            (
                format!("the columns are {}, of which not all are known", header.list()),
                "say by --id-column, --label-column, --split-column and --feature-columns which ones are read",
            )
        }
    };
    invalid(&file.path, what, cure)
}

/// Whether a column is one of numbered features: `f0`, `feat_12`, `x3`, `17`.
fn is_feature(name: &str) -> bool {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    word.len() < name.len() && word.chars().all(|c| c.is_alphabetic() || matches!(c, '_' | '-' | '.' | ' '))
}

/// Adds a note of the columns that are read.
pub(super) fn note_columns(ingest: &mut Ingest<'_>, file: &TableFile<'_>, chosen: &TableColumns) {
    let mut parts = Vec::new();
    let name = |i: usize| file.header.describe(i);
    for (what, column) in [("ids", chosen.id), ("labels", chosen.label), ("splits", chosen.split)] {
        parts.extend(column.map(|column| format!("{what} {}", name(column))));
    }
    parts.extend(chosen.masks.into_iter().flatten().map(|column| format!("mask {}", name(column))));
    if !chosen.features.is_empty() {
        parts.push(format!("{} features", chosen.features.len()));
    }
    let read = chosen.all();
    let ignored: Vec<String> = (0..file.header.names.len()).filter(|i| !read.contains(i)).map(name).collect();
    let ignored = if ignored.is_empty() { String::new() } else { format!("; left out: {}", ignored.join(", ")) };
    ingest.note(format!("{}: {}{ignored}", file_name(&file.path), parts.join(", ")));
}
