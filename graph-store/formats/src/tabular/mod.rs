//! Tables of columns, read in batches: delimited text, Parquet and Arrow IPC (Feather).
//!
//! For node tables and for edges that the fast reader of `text` does not read. A batch holds the chosen columns of some
//! rows; text is parsed as numbers only in columns that hold numbers.

#[cfg(feature = "arrow")]
mod arrow;
mod delimited;
pub(crate) mod lists;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use morphgl_graph_store::{Position, Result};

use crate::files::{file_name, invalid, magic};
use crate::text::{Header, ReadProgress, Text, open_text, real};
use crate::{Column, Progress};

/// Maximum number of rows in a batch, and of fields.
const ROWS: usize = 1 << 16;
const FIELDS: usize = 1 << 19;

/// Rows of a batch of so many columns.
fn batch_rows(columns: usize) -> usize {
    (FIELDS / columns.max(1)).clamp(1, ROWS)
}

/// Some rows of the chosen columns.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Index in the table and values of each column.
    columns: Vec<(usize, Values)>,
    pub(crate) rows: usize,
    /// Number of the first row, from 0.
    pub(crate) first: u64,
    /// Line of each row, where the table is text.
    lines: Vec<u64>,
}

/// Values of a column.
#[derive(Debug)]
#[cfg_attr(not(feature = "arrow"), allow(dead_code, reason = "text and arrays have no reals and no vectors"))]
pub(crate) enum Values {
    /// Whole numbers, and which of them are missing; `None` if none is.
    Ints(Vec<i64>, Option<Vec<bool>>),
    /// Numbers; missing ones are NaN.
    Reals(Vec<f64>),
    /// Text; missing ones are empty.
    Texts(Texts),
    /// Vectors of one length, from a column of lists.
    Vectors(usize, Vec<f32>),
}

/// Strings, concatenated.
#[derive(Debug, Default, Clone)]
pub(crate) struct Texts {
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Texts {
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }

    /// Removes all texts from the `len`-th on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl Batch {
    /// A batch of columns of whole numbers, numbered from 0, whose first row has the number `first`.
    pub(crate) fn of_ints(columns: Vec<Vec<i64>>, first: u64) -> Self {
        let rows = columns.first().map_or(0, Vec::len);
        let columns = columns.into_iter().map(|values| Values::Ints(values, None)).enumerate().collect();
        Self { columns, rows, first, lines: Vec::new() }
    }

    /// A batch of columns of text, numbered from 0, and the line of each row.
    pub(crate) fn of_texts(columns: Vec<Texts>, lines: Vec<u64>) -> Self {
        let columns = columns.into_iter().map(Values::Texts).enumerate().collect();
        Self { columns, rows: lines.len(), first: 0, lines }
    }

    /// The values of a column that was read.
    pub(crate) fn column(&self, index: usize) -> &Values {
        &self.columns.iter().find(|(i, _)| *i == index).expect("the column was read").1
    }

    /// Position of row `i` in the file.
    pub(crate) fn position(&self, i: usize) -> Position {
        self.lines.get(i).map_or(Position::Element(self.first + i as u64), |&line| Position::Line(line))
    }
}

impl Values {
    /// Element `i` as a whole number: `Ok(None)` where it is missing, `Err` with its text where it is no such number.
    pub(crate) fn int(&self, i: usize) -> std::result::Result<Option<i64>, String> {
        match self {
            Self::Ints(values, None) => Ok(Some(values[i])),
            Self::Ints(values, Some(missing)) => Ok((!missing[i]).then_some(values[i])),
            Self::Reals(values) => whole(values[i]),
            Self::Texts(texts) => {
                let text = texts.get(i).trim_ascii();
                if is_missing(text) {
                    return Ok(None);
                }
                let text = String::from_utf8_lossy(text);
                // pandas writes 3.0 where a column has missing values.
                let value = text.parse().map(Some).or_else(|_| text.parse().map_or(Err(String::new()), whole));
                value.map_err(|_| text.into_owned())
            }
            Self::Vectors(..) => Err("a list".into()),
        }
    }

    /// Element `i` as a number, NaN where it is missing.
    pub(crate) fn real(&self, i: usize) -> std::result::Result<f32, String> {
        match self {
            Self::Ints(values, missing) => {
                Ok(if missing.as_ref().is_some_and(|m| m[i]) { f32::NAN } else { values[i] as f32 })
            }
            Self::Reals(values) => Ok(values[i] as f32),
            Self::Texts(texts) => match texts.get(i).trim_ascii() {
                text if is_missing(text) => Ok(f32::NAN),
                text => {
                    let number = real(text).or_else(|| boolean(text).map(f32::from));
                    number.ok_or_else(|| String::from_utf8_lossy(text).into_owned())
                }
            },
            Self::Vectors(..) => Err("a list".into()),
        }
    }

    /// Element `i` as text, empty where it is missing.
    pub(crate) fn text(&self, i: usize) -> Cow<'_, [u8]> {
        match self {
            Self::Ints(..) => self.int(i).ok().flatten().map_or(Vec::new(), |v| v.to_string().into_bytes()).into(),
            Self::Reals(values) if values[i].is_nan() => Cow::default(),
            Self::Reals(values) => values[i].to_string().into_bytes().into(),
            Self::Texts(texts) => texts.get(i).into(),
            Self::Vectors(..) => b"a list"[..].into(),
        }
    }
}

fn whole(value: f64) -> std::result::Result<Option<i64>, String> {
    match value {
        v if v.is_nan() => Ok(None),
        // Up to 2^53 a double holds every whole number.
        v if v.fract() == 0.0 && v.abs() <= 9_007_199_254_740_992.0 => Ok(Some(v as i64)),
        v => Err(v.to_string()),
    }
}

/// Whether a field is one of those that pandas reads as a missing value.
pub(crate) fn is_missing(text: &[u8]) -> bool {
    matches!(text, b"" | b"NA" | b"N/A" | b"NaN" | b"nan" | b"null" | b"NULL" | b"None" | b"<NA>")
}

/// The note of lines that were left out as comments where ids are text.
pub(crate) fn comments_note(path: &Path, count: u64) -> String {
    let (lines, ends) = (lists::counted(count, "line"), if count == 1 { "begins" } else { "begin" });
    format!("{}: {lines} before the first row {ends} with # or %: left out", file_name(path))
}

/// The value of a field that is a boolean.
pub(crate) fn boolean(text: &[u8]) -> Option<bool> {
    let is = |word: &[u8]| text.eq_ignore_ascii_case(word);
    (is(b"true") || is(b"false")).then(|| is(b"true"))
}

/// A format of tables.
trait Source {
    /// The next rows of `columns`; `None` at the end. `header`: whether the first row of text names the columns; other
    /// formats store the names elsewhere.
    fn next(&mut self, columns: &[usize], header: bool) -> Result<Option<Batch>>;
}

/// An open table.
pub(crate) struct TableFile<'p> {
    pub(crate) path: PathBuf,
    /// Of text, `named` may be changed until rows are read.
    pub(crate) header: Header,
    /// Names of the columns as they are spelled; without a header, the first fields.
    pub(crate) names: Vec<String>,
    /// Whether the table is text, whose first row may be a header or data.
    pub(crate) is_text: bool,
    /// Lines before the first row that were left out as comments.
    pub(crate) num_comments: u64,
    source: Box<dyn Source>,
    /// In bytes of a text file, and in rows of other formats.
    progress: ReadProgress<'p>,
}

impl<'p> TableFile<'p> {
    /// Opens `path` and reads its beginning. The first row of text is a header where none of its fields is a number or a boolean.
    pub(crate) fn open(path: &Path, progress: &'p dyn Progress) -> Result<Self> {
        Self::with_ids(path, false, progress)
    }

    /// As [`TableFile::open`]; where ids are text, which may begin with `#`, comments end at the first row.
    pub(crate) fn with_ids(path: &Path, text_ids: bool, progress: &'p dyn Progress) -> Result<Self> {
        let num_comments;
        let (source, names, progress, is_text): (Box<dyn Source>, Vec<String>, _, _) = match columnar(&magic(path)?) {
            #[cfg(feature = "arrow")]
            Some(kind) => {
                let (source, names, rows) = arrow::open(path, kind)?;
                num_comments = 0;
                progress.stage("read", rows);
                (source, names, ReadProgress::new(progress), false)
            }
            #[cfg(not(feature = "arrow"))]
            Some(kind) => {
                let what = format!("a {kind:?} file, which this build does not read");
                let cure = "build again with `cargo build --release --features arrow`, or write the table as csv";
                return invalid(path, what, cure);
            }
            None => {
                let Text { reader, progress, .. } = open_text(path, "read", progress)?;
                let (source, names) = delimited::Delimited::open(path, reader, text_ids)?;
                num_comments = source.num_comments;
                (Box::new(source), names, progress, true)
            }
        };
        let header = Header::new(&names, true);
        let is_value = |name: &String| real(name.as_bytes()).is_some() || boolean(name.as_bytes()).is_some();
        let named = !is_text || !header.names.iter().any(is_value);
        Ok(Self {
            path: path.into(),
            header: Header { named, ..header },
            names,
            is_text,
            num_comments,
            source,
            progress,
        })
    }

    /// The index of a column.
    pub(crate) fn index(&self, column: &Column) -> Result<usize> {
        self.header.index(column).or_else(|(what, cure)| invalid(&self.path, what, cure))
    }

    /// The columns that options name, each once; those that are `taken` are refused, or left out of patterns; `option` is the
    /// command's option that they come from.
    pub(crate) fn select(&self, columns: &[Column], taken: &[usize], option: &'static str) -> Result<Vec<usize>> {
        lists::select(&self.header, columns, taken, option).or_else(|(what, cure)| invalid(&self.path, what, cure))
    }

    /// The next rows of `columns`; `None` at the end.
    pub(crate) fn next(&mut self, columns: &[usize]) -> Result<Option<Batch>> {
        let batch = self.source.next(columns, self.header.named)?;
        if !self.is_text {
            self.progress.count(batch.as_ref().map_or(0, |batch| batch.rows as u64));
        }
        self.progress.report();
        Ok(batch)
    }
}

/// Files of typed columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columnar {
    Parquet,
    Feather,
}

/// The kind of a columnar file that begins with `head`; `None` for other files.
pub(crate) fn columnar(head: &[u8]) -> Option<Columnar> {
    match head {
        [b'P', b'A', b'R', b'1', ..] => Some(Columnar::Parquet),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Columnar::Feather),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
