//! Which columns of a table of nodes are read, by their names or as the options say.

use morphgl_graph_store::{Error, Position, Result};

use crate::tabular::TableFile;
use crate::{Column, Ingest};

/// What a file was given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    Table,
    Features,
    Labels,
    Split(u8),
}

/// Known names of columns, in lower case.
pub(super) const ID: &[&str] = &["id", "node", "node_id", "nodeid", "name", "n_id"];
const INDEX: &[&str] = &["", "index", "unnamed: 0"];
const LABEL: &[&str] = &["label", "labels", "class", "y", "target", "category"];
const SPLIT: &[&str] = &["split", "fold", "set"];
const MASKS: [&[&str]; 3] = [
    &["train_mask", "train", "is_train"],
    &["val_mask", "valid_mask", "val", "valid", "is_val"],
    &["test_mask", "test", "is_test"],
];

/// Which columns of a table are read.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) id: Option<usize>,
    pub(super) label: Option<usize>,
    pub(super) split: Option<usize>,
    /// Masks of training, validation and test nodes.
    pub(super) masks: [Option<usize>; 3],
    pub(super) features: Vec<usize>,
}

impl Chosen {
    /// Their places in the table, in the order in which batches have them.
    pub(super) fn all(&self) -> Vec<usize> {
        let one = [self.id, self.label, self.split].into_iter().chain(self.masks).flatten();
        one.chain(self.features.iter().copied()).collect()
    }
}

pub(super) fn choose(file: &TableFile<'_>, given: Given, ingest: &Ingest<'_>) -> Result<Chosen> {
    let columns = &ingest.options().nodes.columns;
    let place = |column: &Option<Column>, known: &[&str]| match column {
        Some(column) => file.place(column).map(Some),
        None => Ok(file.header.known(known)),
    };
    let width = file.header.names.len();
    let mut chosen = Chosen { id: place(&columns.id, ID)?.or_else(|| file.header.known(INDEX)), ..Chosen::default() };
    let wanted = || columns.features.iter().flatten().map(|column| file.place(column)).collect::<Result<Vec<_>>>();
    let rest = |chosen: &Chosen| (0..width).filter(|i| !chosen.all().contains(i)).collect::<Vec<_>>();
    let wrong = |what: String, cure: &str| Err(Error::invalid(&file.path, Position::File, what, cure));
    match given {
        Given::Split(part) => {
            let masks = file.header.known(MASKS[usize::from(part)]).filter(|_| width == 1 || chosen.id.is_some());
            match (masks, chosen.id, width) {
                (Some(mask), ..) => chosen.masks[usize::from(part)] = Some(mask),
                (None, Some(_), _) => {}
                (None, None, 1) => chosen.id = Some(0),
                _ => {
                    return wrong(
                        format!("{width} columns, of which none is known to be ids"),
                        "name one by --id-column",
                    );
                }
            }
        }
        Given::Labels => {
            let known = place(&columns.label, LABEL)?;
            chosen.label = known.or_else(|| <[usize; 1]>::try_from(rest(&chosen)).ok().map(|[only]| only));
            if chosen.label.is_none() {
                let what = format!("which column has the labels is not known: there are {}", file.header.list());
                return wrong(what, "name it by --label-column, and that of ids by --id-column");
            }
        }
        Given::Features => {
            chosen.features = match &columns.features {
                Some(_) => wanted()?,
                None => rest(&chosen),
            };
        }
        Given::Table => {
            chosen.label = place(&columns.label, LABEL)?;
            chosen.split = place(&columns.split, SPLIT)?;
            if chosen.split.is_none() {
                chosen.masks = MASKS.map(|names| file.header.known(names));
            }
            let left = rest(&chosen);
            chosen.features = match &columns.features {
                Some(_) => wanted()?,
                None => {
                    left.iter().copied().filter(|&i| file.header.named && is_feature(&file.header.names[i])).collect()
                }
            };
            let asked =
                [&columns.id, &columns.label, &columns.split].iter().any(|c| c.is_some()) || columns.features.is_some();
            let unknown: Vec<usize> = left.into_iter().filter(|i| !chosen.features.contains(i)).collect();
            if !asked && unknown.iter().any(|&i| !INDEX.contains(&file.header.names[i].as_str())) {
                let what = format!("the columns are {}, of which not all are known", file.header.list());
                let cure =
                    "say by --id-column, --label-column, --split-column and --feature-columns which ones are read";
                return wrong(what, cure);
            }
        }
    }
    Ok(chosen)
}

/// Whether a column is one of numbered features: `f0`, `feat_12`, `x3`, `17`.
fn is_feature(name: &str) -> bool {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    word.len() < name.len() && word.chars().all(|c| c.is_alphabetic() || matches!(c, '_' | '-' | '.' | ' '))
}

/// Says which columns were read.
pub(super) fn note_columns(ingest: &mut Ingest<'_>, file: &TableFile<'_>, chosen: &Chosen) {
    let mut parts = Vec::new();
    let name = |i: usize| file.header.describe(i);
    for (what, place) in [("ids", chosen.id), ("labels", chosen.label), ("splits", chosen.split)] {
        parts.extend(place.map(|place| format!("{what} {}", name(place))));
    }
    parts.extend(chosen.masks.into_iter().flatten().map(|place| format!("mask {}", name(place))));
    if !chosen.features.is_empty() {
        parts.push(format!("{} features", chosen.features.len()));
    }
    let read = chosen.all();
    let left: Vec<String> = (0..file.header.names.len()).filter(|i| !read.contains(i)).map(name).collect();
    let left = if left.is_empty() { String::new() } else { format!("; left out: {}", left.join(", ")) };
    let file = file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    ingest.note(format!("{file}: {}{left}", parts.join(", ")));
}
