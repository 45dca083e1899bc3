//! Tables as text: csv with its quotes, by the `csv` crate, or fields with any number of blanks between them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use csv::ByteRecord;
use morphgl_graph_store::{Error, Position, Result};

use super::{Batch, Source, Texts, Values, batch_rows};
use crate::files::invalid;
use crate::text::{NEIGHBORS, Separator, fields, named_cure, separator_of};

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
    /// Lines before the first row that were left out as comments.
    pub(super) num_comments: u64,
}

/// The reader of rows, and the lines before those that it counts itself.
enum RowReader {
    Csv(Box<csv::Reader<Input>>, u64),
    /// Also whether comments may stand between rows.
    Blanks(Input, u64, bool),
}

impl Delimited {
    /// Skips a byte order mark, comments and empty lines, and reads the first row; also returns its fields. With `text_ids`, no row
    /// after the first is a comment: ids may begin with `#`.
    pub(super) fn open(path: &Path, reader: Box<dyn Read + Send>, text_ids: bool) -> Result<(Self, Vec<String>)> {
        let io = |e| Error::io(path, e);
        let mut input = BufReader::with_capacity(1 << 18, reader);
        let (mut lines, mut num_comments) = (0, 0);
        if input.fill_buf().map_err(io)?.starts_with(b"\xef\xbb\xbf") {
            input.consume(3);
        }
        while matches!(input.fill_buf().map_err(io)?.first(), Some(b'#' | b'%' | b'\n' | b'\r')) {
            num_comments += u64::from(matches!(input.buffer().first(), Some(b'#' | b'%')));
            input.read_until(b'\n', &mut Vec::new()).map_err(io)?;
            lines += 1;
        }
        let ahead = input.fill_buf().map_err(io)?;
        let line = ahead.split(|&b| b == b'\n').next().unwrap_or_default();
        let rows = match separator_of(line) {
            Separator::Byte(byte) => {
                let mut csv = csv::ReaderBuilder::new();
                let comment = Some(b'#').filter(|_| !text_ids);
                csv.has_headers(false).delimiter(byte).comment(comment).trim(csv::Trim::All);
                RowReader::Csv(Box::new(csv.from_reader(input)), lines)
            }
            Separator::Blanks => RowReader::Blanks(input, lines, !text_ids),
        };
        let mut table = Self { path: path.into(), rows, width: 0, first: None, done: 0, num_comments };
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
        let line = match &mut self.rows {
            RowReader::Csv(csv, before) => {
                let more = csv.read_byte_record(record).map_err(|e| wrong(&self.path, *before, &e))?;
                let line = record.position().map_or(0, csv::Position::line);
                more.then_some(*before + line)
            }
            RowReader::Blanks(input, lines, comments) => {
                let mut text = Vec::new();
                loop {
                    text.clear();
                    *lines += 1;
                    if input.read_until(b'\n', &mut text).map_err(|e| Error::io(&self.path, e))? == 0 {
                        return Ok(None);
                    }
                    let line = text.trim_ascii();
                    let is_comment = *comments && matches!(line.first(), Some(b'#' | b'%'));
                    if !line.is_empty() && !is_comment {
                        record.clear();
                        fields(line, Separator::Blanks).for_each(|field| record.push_field(field));
                        break;
                    }
                }
                let (count, expected) = (record.len(), self.width);
                if expected > 0 && count != expected {
                    let what = format!("{count} fields, the first row has {expected}");
                    let cure = named_cure(NEIGHBORS, &self.path);
                    return Err(Error::invalid(&self.path, Position::Line(*lines), what, cure));
                }
                Some(*lines)
            }
        };
        if let Some(line) = line {
            check_encoding(record.as_slice()).map_err(|what| {
                let cure = named_cure("convert it: `iconv -f WINDOWS-1252 -t UTF-8 FILE > utf8.txt`", &self.path);
                Error::invalid(&self.path, Position::Line(line), what, cure)
            })?;
        }
        Ok(line)
    }
}

/// Refuses text that is not UTF-8.
fn check_encoding(text: &[u8]) -> std::result::Result<(), String> {
    let Err(error) = std::str::from_utf8(text) else { return Ok(()) };
    let byte = text[error.valid_up_to()];
    Err(format!("the byte {byte:#04x} is not UTF-8; the text may be in Latin-1 or Windows-1252"))
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
        while lines.len() < batch_rows(columns.len()) {
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
