//! The labels of a table of nodes or edges: class numbers, or names of classes.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};

use crate::Ingest;
use crate::tabular::{Batch, Texts, Values, boolean, is_missing};
use crate::text::{has_comma, real};

/// What labels are of, for messages and for the provenance.
#[derive(Debug)]
pub(crate) struct Labelled {
    /// Key of the provenance that has the names of classes.
    names: &'static str,
    /// Cure for labels that are no classes.
    none: &'static str,
    /// Cure for labels that are quantities.
    quantities: &'static str,
}

impl Labelled {
    /// Nodes of a typed graph, whose columns its description names.
    pub(crate) const TYPED: Self = Self {
        names: "class_names",
        none: "number the classes, or name another column as the label; -1 or nothing stands for a node without a label",
        quantities: "classes are no quantities",
    };
    /// Rows of a task, whose columns its description names.
    pub(crate) const ROWS: Self = Self {
        names: "class_names",
        none: "number the classes, or name another column as the label; -1 or nothing stands for a row without a label",
        quantities: "give quantities as targets",
    };
    pub(in crate::ingest) const NODES: Self = Self {
        names: "class_names",
        none: "number the classes, or name another column by --label-column; -1 or nothing stands for a node without a label",
        quantities: "give quantities as targets, by --targets FILE or --target-columns",
    };
    pub(in crate::ingest) const EDGES: Self = Self {
        names: "edge_class_names",
        none: "number the classes, or name another column by --edge-label-column; -1 or nothing stands for an edge without a label",
        quantities: "give quantities as targets, by --edge-target-columns",
    };
}

/// Labels, row by row.
pub(crate) struct Labels {
    of: Labelled,
    numbers: Vec<i32>,
    /// Rows whose label is a number spelled otherwise than by its digits (`007`, `3.0`), and its text; in case labels are names.
    spellings: Vec<(usize, Vec<u8>)>,
    /// All labels as text, from the first one on that is not a whole number.
    classes: Option<Texts>,
    /// The first label that is no class unless labels are names, below -1 or not whole, and where it is.
    fault: Option<(PathBuf, Position, String)>,
}

impl Labels {
    /// No rows yet.
    pub(crate) fn new(of: Labelled) -> Self {
        Self { of, numbers: Vec::new(), spellings: Vec::new(), classes: None, fault: None }
    }

    /// Appends the labels of a batch; errors name `path`.
    pub(crate) fn read(&mut self, path: &Path, batch: &Batch, column: &Values) -> Result<()> {
        if let Values::Vectors(..) = column {
            return Err(Error::invalid(path, batch.position(0), "a label that is a list", self.of.none));
        }
        for row in 0..batch.rows {
            if let Some(classes) = &mut self.classes {
                classes.push(column.text(row).trim_ascii());
                continue;
            }
            match column.int(row) {
                Ok(label) => {
                    let Ok(label) = i32::try_from(label.unwrap_or(-1)) else {
                        let what = format!("the label {} is no class", label.unwrap_or(-1));
                        return Err(Error::invalid(path, batch.position(row), what, self.of.none));
                    };
                    if label < -1 && self.fault.is_none() {
                        self.fault = Some((path.into(), batch.position(row), label.to_string()));
                    }
                    if let Values::Texts(texts) = column {
                        let text = texts.get(row).trim_ascii();
                        let plain = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || !text.starts_with(b"0"));
                        if label >= 0 && !plain {
                            self.spellings.push((self.numbers.len(), text.to_vec()));
                        }
                    }
                    self.numbers.push(label);
                }
                Err(name) => {
                    self.fault = Some((path.into(), batch.position(row), name.clone()));
                    self.become_names().push(name.as_bytes());
                }
            }
        }
        Ok(())
    }

    /// From the first label on that is not a number all labels are class names, those before it too.
    fn become_names(&mut self) -> &mut Texts {
        let (mut classes, mut spellings) = (Texts::default(), self.spellings.drain(..).peekable());
        for (row, label) in self.numbers.drain(..).enumerate() {
            match spellings.next_if(|(at, _)| *at == row) {
                Some((_, text)) => classes.push(&text),
                None => classes.push(if label == -1 { String::new() } else { label.to_string() }.as_bytes()),
            }
        }
        self.classes.insert(classes)
    }

    /// The class of each row, -1 for none; names of classes become a part of the provenance.
    pub(crate) fn finish(self, ingest: &mut Ingest<'_>) -> Result<Vec<i32>> {
        let is_number = |name: &[u8]| is_missing(name) || real(name).is_some() || has_comma(name);
        let are_numbers = self.classes.as_ref().is_none_or(|classes| classes.iter().all(is_number));
        match (self.fault, self.classes) {
            (Some((path, position, label)), _) if are_numbers => {
                let what = format!("the label {label} is no class: classes are whole numbers from 0, or names");
                let cure = match label.parse::<f64>() {
                    Ok(value) if value.fract() != 0.0 => format!("{}; {}", self.of.quantities, self.of.none),
                    _ => self.of.none.to_string(),
                };
                Err(Error::invalid(path, position, what, cure))
            }
            (_, Some(classes)) => Ok(numbered(ingest, &classes, self.of.names)),
            (_, None) => Ok(self.numbers),
        }
    }
}

/// Numbers the classes in the order of their names, and adds the names to the provenance.
fn numbered(ingest: &mut Ingest<'_>, classes: &Texts, key: &str) -> Vec<i32> {
    let named = || classes.iter().filter(|name| !is_missing(name));
    // All spellings of booleans, and the numbers that they are, are two classes.
    let flag =
        |name: &[u8]| boolean(name).or_else(|| [&b"0"[..], b"1"].iter().position(|n| *n == name).map(|n| n == 1));
    if named().all(|name| flag(name).is_some()) {
        ingest.note("the labels are booleans: false = 0, true = 1");
        ingest.provenance(key, ["false", "true"].map(String::from).to_vec());
        return classes.iter().map(|name| flag(name).map_or(-1, i32::from)).collect();
    }
    let mut names: Vec<&[u8]> = named().collect();
    names.sort_unstable();
    names.dedup();
    let texts: Vec<String> = names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let few = texts.iter().take(4).enumerate().map(|(i, name)| format!("{name} = {i}")).collect::<Vec<_>>().join(", ");
    let more = if texts.len() > 4 { ", …" } else { "" };
    ingest.note(format!("the labels are names, numbered in their order: {few}{more}"));
    let mut folded: Vec<String> = texts.iter().map(|name| name.to_lowercase()).collect();
    folded.sort_unstable();
    if let Some([name, _]) = folded.array_windows().find(|[a, b]| a == b) {
        ingest.note(format!(
            "classes differ in upper and lower case alone, {name:?} for one: correct them if they are the same"
        ));
    }
    ingest.provenance(key, texts);
    let class = |name: &[u8]| names.binary_search(&name).map_or(-1, |i| i as i32);
    classes.iter().map(class).collect()
}
