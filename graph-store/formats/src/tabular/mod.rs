//! Tables of columns, read in batches: delimited text, Parquet and Arrow IPC (Feather).
//!
//! For node tables and for edges that the fast reader of `text` does not read. A batch holds the chosen columns of some
//! rows; text is parsed as numbers only in columns that hold numbers.

#[cfg(feature = "arrow")]
mod arrow;
mod delimited;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use morphgl_graph_store::{Error, Position, Result};

use crate::text::{Header, open_text, real};
use crate::{Column, Progress};

/// Maximum number of rows in a batch.
const ROWS: usize = 1 << 16;

/// Some rows of the chosen columns.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) columns: Vec<Values>,
    pub(crate) rows: usize,
    /// Number of the first row, from 0.
    pub(crate) first: u64,
    /// Line of each row, where the table is text.
    lines: Vec<u64>,
}

/// Values of a column.
#[derive(Debug)]
#[cfg_attr(not(feature = "arrow"), allow(dead_code, reason = "text has no other columns than of text"))]
pub(crate) enum Values {
    /// Whole numbers, and which of them are missing; `None` if none is.
    Ints(Vec<i64>, Option<Vec<bool>>),
    /// Numbers; missing ones are NaN.
    Reals(Vec<f64>),
    /// Text; missing ones are empty.
    Texts(Texts),
    /// Vectors of one length, as features lie in a column of lists.
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
        &self.bytes[i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl Batch {
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
                text.parse().map(Some).or_else(|_| text.parse().map_or(Err(text.into_owned()), whole))
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
                text => real(text).ok_or_else(|| String::from_utf8_lossy(text).into_owned()),
            },
            Self::Vectors(..) => Err("a list".into()),
        }
    }

    /// Element `i` as text, empty where it is missing.
    pub(crate) fn text(&self, i: usize) -> std::borrow::Cow<'_, [u8]> {
        match self {
            Self::Ints(..) => {
                self.int(i).ok().flatten().map_or_else(String::new, |v| v.to_string()).into_bytes().into()
            }
            Self::Reals(values) if values[i].is_nan() => Vec::new().into(),
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

/// Whether a field says that its value is missing, as pandas reads it.
pub(crate) fn is_missing(text: &[u8]) -> bool {
    matches!(text, b"" | b"NA" | b"N/A" | b"NaN" | b"nan" | b"null" | b"NULL" | b"None" | b"<NA>")
}

/// A format of tables.
trait Source {
    /// Names of the columns; of text, the fields of its first row.
    fn names(&self) -> &[String];

    /// Whether the first row is a header; for text alone, other formats store the names apart.
    fn set_header(&mut self, header: bool);

    /// The next rows of `columns`; `None` at the end.
    fn next(&mut self, columns: &[usize]) -> Result<Option<Batch>>;
}

/// An open table.
pub(crate) struct TableFile<'p> {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    source: Box<dyn Source>,
    progress: &'p dyn Progress,
    /// Bytes read so far of a text file; `None` for other formats, whose progress is counted in rows.
    bytes: Option<Arc<AtomicU64>>,
    told: u64,
}

impl<'p> TableFile<'p> {
    /// Opens `path` and reads its beginning. The first row of text is a header where none of its fields is a number.
    pub(crate) fn open(path: &Path, progress: &'p dyn Progress) -> Result<Self> {
        let mut head = [0; 8];
        let mut file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
        if file.metadata().map_err(|e| Error::io(path, e))?.is_dir() {
            return Err(Error::invalid(path, Position::File, "this is a directory", "name the file itself"));
        }
        let read = file.read(&mut head).map_err(|e| Error::io(path, e))?;
        let (source, bytes): (Box<dyn Source>, _) = match columnar(&head[..read]) {
            #[cfg(feature = "arrow")]
            Some(kind) => {
                let (source, rows) = arrow::open(path, kind)?;
                progress.stage("read", rows);
                (source, None)
            }
            #[cfg(not(feature = "arrow"))]
            Some(kind) => {
                let what = format!("a {kind:?} file, which this build does not read");
                let cure = "build again with `cargo build --release --features arrow`, or write the table as csv";
                return Err(Error::invalid(path, Position::File, what, cure));
            }
            None => {
                let (reader, bytes) = open_text(path, progress)?;
                (Box::new(delimited::Delimited::new(path, reader)?), Some(bytes))
            }
        };
        let mut header = Header::new(source.names().iter().map(String::as_str), true);
        let named = bytes.is_none() || header.names.iter().all(|name| real(name.as_bytes()).is_none());
        header.named = named;
        let mut table = Self { path: path.into(), header, source, progress, bytes, told: 0 };
        table.set_header(named);
        Ok(table)
    }

    /// Whether it is text, whose first row may be a header or data.
    pub(crate) fn is_text(&self) -> bool {
        self.bytes.is_some()
    }

    /// Says whether the first row of text names the columns.
    pub(crate) fn set_header(&mut self, header: bool) {
        self.header.named = header;
        self.source.set_header(header);
    }

    /// The place of a column.
    pub(crate) fn place(&self, column: &Column) -> Result<usize> {
        self.header.place(column).map_err(|(what, cure)| Error::invalid(&self.path, Position::File, what, cure))
    }

    /// The next rows of the columns at `places`; `None` at the end.
    pub(crate) fn next(&mut self, places: &[usize]) -> Result<Option<Batch>> {
        let batch = self.source.next(places)?;
        let rows = batch.as_ref().map_or(0, |batch| batch.rows as u64);
        let done = self.bytes.as_ref().map_or(self.told + rows, |bytes| bytes.load(Ordering::Relaxed));
        self.progress.advance(done - std::mem::replace(&mut self.told, done));
        Ok(batch)
    }
}

/// Files of typed columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columnar {
    Parquet,
    Feather,
}

/// What kind of columnar file begins with `head`, if any.
pub(crate) fn columnar(head: &[u8]) -> Option<Columnar> {
    match head {
        [b'P', b'A', b'R', b'1', ..] => Some(Columnar::Parquet),
        [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Columnar::Feather),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
