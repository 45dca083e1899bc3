//! Tables as text: csv with its quotes, by the `csv` crate, or fields with any number of blanks between them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use csv::ByteRecord;
use morphgl_graph_store::{Error, Position, Result};

use super::{Batch, ROWS, Source, Texts, Values};
use crate::files::invalid;
use crate::text::{Separator, fields, separator_of};

type Input = BufReader<Box<dyn Read + Send>>;

/// A table as text.
pub(super) struct Delimited {
    path: PathBuf,
    rows: RowReader,
    /// Number of fields in the first row; 0 until it is read.
    width: usize,
    /// The first row and its line, until it is read as data or skipped as the header.
    first: Option<(ByteRecord, u64)>,
    /// Number of rows read.
    done: u64,
}

/// The reader of rows, and the lines before those that it counts itself.
enum RowReader {
    Csv(Box<csv::Reader<Input>>, u64),
    Blanks(Input, u64),
}

impl Delimited {
    /// Skips a byte order mark, comments and empty lines, and reads the first row; also returns its fields.
    pub(super) fn open(path: &Path, reader: Box<dyn Read + Send>) -> Result<(Self, Vec<String>)> {
        let io = |e| Error::io(path, e);
        let mut input = BufReader::with_capacity(1 << 18, reader);
        let mut lines = 0;
        if input.fill_buf().map_err(io)?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        while matches!(input.fill_buf().map_err(io)?.first(), Some(b'#' | b'%' | b'\n' | b'\r')) {
            input.read_until(b'\n', &mut Vec::new()).map_err(io)?;
            lines += 1;
        }
        let ahead = input.fill_buf().map_err(io)?;
        let line = ahead.split(|&b| b == b'\n').next().unwrap_or_default();
        let rows = match separator_of(line) {
            Separator::Byte(byte) => {
                let mut csv = csv::ReaderBuilder::new();
                csv.has_headers(false).delimiter(byte).comment(Some(b'#')).trim(csv::Trim::All);
                RowReader::Csv(Box::new(csv.from_reader(input)), lines)
            }
            Separator::Blanks => RowReader::Blanks(input, lines),
        };
        let mut table = Self { path: path.into(), rows, width: 0, first: None, done: 0 };
        let mut record = ByteRecord::new();
        let Some(line) = table.record(&mut record)? else {
            return invalid(path, "the table is empty", "check that this is the right file");
        };
        let names = record.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        table.width = record.len();
        table.first = Some((record, line));
        Ok((table, names))
    }

    /// Reads the next row; its line, `None` at the end.
    fn record(&mut self, record: &mut ByteRecord) -> Result<Option<u64>> {
        match &mut self.rows {
            RowReader::Csv(csv, before) => {
                let more = csv.read_byte_record(record).map_err(|e| wrong(&self.path, *before, &e))?;
                let line = record.position().map_or(0, csv::Position::line);
                Ok(more.then_some(*before + line))
            }
            RowReader::Blanks(input, lines) => {
                let mut text = Vec::new();
                loop {
                    text.clear();
                    *lines += 1;
                    if input.read_until(b'\n', &mut text).map_err(|e| Error::io(&self.path, e))? == 0 {
                        return Ok(None);
                    }
                    let line = text.trim_ascii();
                    if !line.is_empty() && !matches!(line[0], b'#' | b'%') {
                        record.clear();
                        fields(line, Separator::Blanks).for_each(|field| record.push_field(field));
                        break;
                    }
                }
                let (count, expected) = (record.len(), self.width);
                if expected > 0 && count != expected {
                    let what = format!("{count} fields, the first row has {expected}");
                    return Err(Error::invalid(&self.path, Position::Line(*lines), what, "correct the line"));
                }
                Ok(Some(*lines))
            }
        }
    }
}

/// Converts an error of the csv crate, which began to read after `before` lines.
fn wrong(path: &Path, before: u64, error: &csv::Error) -> Error {
    let at = error.position().map_or(Position::File, |p| Position::Line(before + p.line()));
    let what = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields, the first row has {expected_len}")
        }
        other => format!("a row that cannot be read ({other:?})"),
    };
    Error::invalid(path, at, what, "correct the line; a field with a separator in it stands in quotes")
}

impl Source for Delimited {
    fn next(&mut self, columns: &[usize], header: bool) -> Result<Option<Batch>> {
        let mut texts = vec![Texts::default(); columns.len()];
        let (mut lines, mut record, first) = (Vec::new(), ByteRecord::new(), self.done);
        self.first.take_if(|_| header);
        while lines.len() < ROWS {
            let line = match self.first.take() {
                Some((row, line)) => {
                    record = row;
                    Some(line)
                }
                None => self.record(&mut record)?,
            };
            let Some(line) = line else { break };
            columns.iter().zip(&mut texts).for_each(|(&column, texts)| texts.push(&record[column]));
            lines.push(line);
        }
        self.done += lines.len() as u64;
        let (rows, texts) = (lines.len(), texts.into_iter().map(Values::Texts));
        Ok((rows > 0).then(|| Batch { columns: columns.iter().copied().zip(texts).collect(), rows, first, lines }))
    }
}
