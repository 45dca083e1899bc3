//! Choice of the columns of a table of nodes, by their names or by the options.

use std::collections::HashMap;

use morphgl_graph_store::Result;

use super::{FeatureColumns, targets};
use crate::files::{file_name, invalid};
use crate::tabular::lists::{listed, numbers, split_number};
use crate::tabular::{TableFile, boolean};
use crate::{Column, Ingest, NodeColumns};

/// The role of a node file, from the option that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileRole {
    /// Any columns.
    Table,
    Features,
    Labels,
    Targets,
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
pub(super) const MASKS: [&[&str]; 3] = [
    &["train_mask", "train", "is_train"],
    &["val_mask", "valid_mask", "val", "valid", "is_val"],
    &["test_mask", "test", "is_test"],
];

/// Words of columns that are no features though a number follows: of ids, labels, splits, masks, weights and times.
const NO_FEATURE: &str = "id ids nid uid gid pid nodeid node_id label labels class classes y target targets category \
    categories truth answer split splits fold folds cv train training val valid validation dev test testing mask masks \
    weight weights time times timestamp timestamps timeset date dates datetime year month day hour";
/// Such words, unless another follows: a `node` is an id, and a `node_feature` is not.
const NO_LAST_WORD: &str = "node nodes name names index idx key set t n w";
/// Of these, the letters by which vectors are named, too: `w0 … w1432` are words. One or two such columns are weights or times.
const VECTORS: &str = "t n w";
/// Minimum number of columns of a vector named by such a letter.
const VECTOR_LEN: usize = 3;
/// Ends of such words, which are written without a separator: `nodelabel`.
const NO_END: &str = "nodeid label labels class target mask timestamp";

/// Indices of the columns of a table of nodes that are read.
#[derive(Debug, Default)]
pub(super) struct TableColumns {
    pub(super) id: Option<usize>,
    pub(super) label: Option<usize>,
    pub(super) split: Option<usize>,
    /// Masks of training, validation and test nodes.
    pub(super) masks: [Option<usize>; 3],
    pub(super) features: Vec<usize>,
    pub(super) targets: Vec<usize>,
    /// Names of the targets, where columns have names.
    pub(super) target_names: Option<Vec<String>>,
    /// Names of the features.
    pub(super) feature_columns: Option<FeatureColumns>,
    /// Whether the only column of a split's file has no name that says what it holds: ids or a mask.
    pub(super) is_lone: bool,
}

impl TableColumns {
    /// Columns that are read as something other than features.
    fn others(&self) -> Vec<usize> {
        let single = [self.id, self.label, self.split].into_iter().chain(self.masks).flatten();
        single.chain(self.targets.iter().copied()).collect()
    }

    pub(super) fn all(&self) -> Vec<usize> {
        let mut all = self.others();
        all.extend_from_slice(&self.features);
        all
    }

    /// Columns of a table of `width` that are not read.
    fn unread(&self, width: usize) -> Vec<usize> {
        let mut is_read = vec![false; width];
        self.all().into_iter().for_each(|column| is_read[column] = true);
        (0..width).filter(|&column| !is_read[column]).collect()
    }
}

/// Chooses the columns of a table; what is unclear is an error.
pub(super) fn choose(file: &TableFile<'_>, role: FileRole, ingest: &Ingest<'_>) -> Result<TableColumns> {
    let (header, options) = (&file.header, &ingest.options().nodes.columns);
    // Then --target-columns are those of that file.
    let has_targets = ingest.options().nodes.targets.is_some();
    let index = |column: &Option<Column>, known: &[&str]| match column {
        Some(column) => file.index(column).map(Some),
        None => Ok(header.find(known)),
    };
    let width = header.names.len();
    let id = index(&options.id, ID)?.or_else(|| header.find(INDEX));
    let mut chosen = TableColumns { id, ..TableColumns::default() };
    match role {
        FileRole::Split(part) => {
            let part = usize::from(part);
            let is_mask = if header.named { header.find(MASKS[part]).is_some() } else { is_boolean(file) };
            if width == 1 && is_mask {
                chosen.masks[part] = Some(0);
            } else if width == 1 && id.is_none() {
                (chosen.id, chosen.is_lone) = (Some(0), true);
            } else if id.is_some() {
                chosen.masks[part] = header.find(MASKS[part]);
            } else {
                let what = format!("{width} columns, of which none is known to be ids");
                return invalid(&file.path, what, "name one by --id-column");
            }
        }
        FileRole::Labels => {
            let known = index(&options.label, LABEL)?;
            chosen.label = known.or_else(|| <[usize; 1]>::try_from(chosen.unread(width)).ok().map(|[only]| only));
            if chosen.label.is_none() {
                let what = format!("which column has the labels is not known: there are {}", columns_of(file));
                return invalid(&file.path, what, "name it by --label-column, and that of ids by --id-column");
            }
        }
        FileRole::Features => chosen.features = features(file, options, &chosen, |_| true)?,
        FileRole::Targets => {
            chosen.targets = match &options.targets {
                Some(columns) => file.select(columns, &chosen.others(), targets::OPTION)?,
                None => chosen.unread(width),
            };
            if chosen.targets.is_empty() {
                let what = format!("no column of targets: there are {}", columns_of(file));
                return invalid(&file.path, what, "name them by --target-columns, and that of ids by --id-column");
            }
        }
        FileRole::Table => {
            let columns = options.targets.as_ref().filter(|_| !has_targets);
            let taken: Vec<usize> = chosen.id.into_iter().collect();
            chosen.targets = columns.map_or(Ok(vec![]), |columns| file.select(columns, &taken, targets::OPTION))?;
            // A column of targets may have a name that labels have.
            let is_label = |&i: &usize| LABEL.contains(&header.names[i].as_str()) && !chosen.targets.contains(&i);
            chosen.label = match &options.label {
                Some(column) => Some(file.index(column)?),
                None => (0..width).filter(|_| header.named).find(is_label),
            };
            chosen.split = index(&options.split, SPLIT)?;
            if chosen.split.is_none() {
                chosen.masks = MASKS.map(|names| header.find(names));
            }
            let is_vector = vectors(&header.names);
            let is_default = |i: usize| header.named && (is_feature(&header.names[i]) || is_vector[i]);
            chosen.features = features(file, options, &chosen, is_default)?;
            let unknown = chosen.unread(width);
            let is_index = |i: &usize| header.named && INDEX.contains(&header.names[*i].as_str());
            let mut named = options.clone();
            named.targets.take_if(|_| has_targets);
            if named == NodeColumns::default() && !unknown.iter().all(is_index) {
                return refuse(file, &chosen, &unknown);
            }
        }
    }
    let name = |&i: &usize| if header.named { file.names[i].trim().to_string() } else { (i + 1).to_string() };
    let names = chosen.features.iter().map(name).collect();
    chosen.target_names = header.named.then(|| chosen.targets.iter().map(name).collect());
    chosen.feature_columns = Some(FeatureColumns { names, are_named: header.named });
    Ok(chosen)
}

/// Feature columns: those that the options name; without such an option, the remaining columns for which `is_default`
/// holds.
fn features(
    file: &TableFile<'_>,
    options: &NodeColumns,
    chosen: &TableColumns,
    is_default: impl Fn(usize) -> bool,
) -> Result<Vec<usize>> {
    match &options.features {
        Some(columns) => file.select(columns, &chosen.others(), "--feature-columns"),
        None => Ok(chosen.unread(file.header.names.len()).into_iter().filter(|&i| is_default(i)).collect()),
    }
}

/// Refuses a table with columns that are not known, and says how to read it.
fn refuse(file: &TableFile<'_>, chosen: &TableColumns, unknown: &[usize]) -> Result<TableColumns> {
    let width = file.header.names.len();
    if !file.header.named {
        let what = format!("the first line has no names of its columns, which are {width}");
        let example = match width {
            1 | 2 => format!("--id-column 1 --label-column {width}"),
            3 => "--id-column 1 --feature-columns 2 --label-column 3".to_string(),
            _ => format!("--id-column 1 --feature-columns 2-{} --label-column {width}", width - 1),
        };
        return invalid(&file.path, what, format!("say by their numbers which ones are read, for example {example}"));
    }
    let what =
        format!("the columns are {}, of which not all are known: {}", columns_of(file), listed(&file.header, unknown));
    let mut cure =
        "say by --id-column, --label-column, --split-column, --target-columns and --feature-columns which ones are read"
            .to_string();
    let known = numbers(&chosen.features);
    if !known.is_empty() && known.len() < 40 {
        cure += &format!("; --feature-columns {known} leaves the others out");
    }
    invalid(&file.path, what, cure)
}

/// The columns of a table, for messages.
fn columns_of(file: &TableFile<'_>) -> String {
    let all: Vec<usize> = (0..file.header.names.len()).collect();
    let listed = listed(&file.header, &all);
    if file.header.named { listed } else { format!("{listed}, without names") }
}

/// Whether the first row of a table without a header is a boolean.
fn is_boolean(file: &TableFile<'_>) -> bool {
    boolean(file.header.names[0].as_bytes()).is_some()
}

/// Whether a column is one of numbered features: `f0`, `feat_12`, `x3`, `17`; names such as `label_2` are of something else.
fn is_feature(name: &str) -> bool {
    let (word, number) = split_number(name);
    let is_separator = |c: char| matches!(c, '_' | '-' | '.' | ' ');
    if word.len() == name.len() || number.is_none() || !word.chars().all(|c| c.is_alphabetic() || is_separator(c)) {
        return false;
    }
    let has = |list: &str, word: &str| list.split(' ').any(|known| known == word);
    let words: Vec<&str> = word.split(is_separator).filter(|word| !word.is_empty()).collect();
    let is_known = |word: &&str| has(NO_FEATURE, word) || NO_END.split(' ').any(|end| word.ends_with(end));
    !words.iter().any(is_known) && !words.last().is_some_and(|last| has(NO_LAST_WORD, last))
}

/// Which columns are those of a vector that a letter and numbers name: `w0, w1, w2, …` or `w_0, w_1, …`.
fn vectors(names: &[String]) -> Vec<bool> {
    let stem = |name: &String| {
        let (word, number) = split_number(name);
        let letter = word.trim_end_matches(['_', '-', '.', ' ']);
        (number.is_some() && VECTORS.split(' ').any(|known| known == letter)).then(|| word.to_string())
    };
    let stems: Vec<Option<String>> = names.iter().map(stem).collect();
    let mut lens: HashMap<&String, usize> = HashMap::new();
    stems.iter().flatten().for_each(|stem| *lens.entry(stem).or_default() += 1);
    stems.iter().map(|stem| stem.as_ref().is_some_and(|stem| lens[stem] >= VECTOR_LEN)).collect()
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
        let (families, count) = (listed(&file.header, &chosen.features), chosen.features.len());
        parts.push(format!("{families}: {count} feature{}", if count == 1 { "" } else { "s" }));
    }
    if !chosen.targets.is_empty() {
        let (families, count) = (listed(&file.header, &chosen.targets), chosen.targets.len());
        parts.push(format!("{families}: {count} target{}", if count == 1 { "" } else { "s" }));
    }
    let unread = chosen.unread(file.header.names.len());
    let unread =
        if unread.is_empty() { String::new() } else { format!("; left out: {}", listed(&file.header, &unread)) };
    let unnamed = if file.header.named { "" } else { "columns without names, " };
    ingest.note(format!("{}: {unnamed}{}{unread}", file_name(&file.path), parts.join(", ")));
}
