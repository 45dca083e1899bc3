//! Gzipped CSV without a header, as OGB publishes it, parsed in parallel.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Error, Position, Result};

use crate::Ingest;
use crate::elements::Parsed;
use crate::files::{invalid, magic};
use crate::text::{Chunks, LineError, parse_next, real};

const CURE: &str = "the file is damaged or something else: download it again";

/// A gzipped table of numbers.
pub(crate) struct CsvReader<'p>(Chunks<'p>);

impl<'p> CsvReader<'p> {
    /// Opens `path`; its compressed bytes are the progress of the stage `stage`.
    pub(crate) fn open(path: &Path, stage: &str, ingest: &Ingest<'p>) -> Result<Self> {
        if !path.exists() {
            return invalid(
                path,
                "there is no such file",
                "name the directory that holds OGB's raw/ and split/, complete",
            );
        }
        if !magic(path)?.starts_with(&[0x1f, 0x8b]) {
            return Err(Error::invalid(path, Position::Line(1), "the gzip data is damaged", CURE));
        }
        Chunks::open(path, stage, ingest.options().memory, ingest.progress()).map(Self)
    }

    /// Number of lines parsed so far.
    pub(crate) fn lines(&self) -> u64 {
        self.0.lines()
    }

    /// Parses the next lines in pieces of whole lines, in parallel; `None` at the end of the table.
    pub(crate) fn pieces<T: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> std::result::Result<T, LineError> + Sync,
    ) -> Result<Option<Vec<T>>> {
        parse_next(&mut self.0, parse)
    }

    /// Parses the next lines, each into `width` values of `out` (which is cleared); false at the end of the table.
    /// `parse` fills one line's values, or says what is wrong with it.
    pub(crate) fn rows<T: Copy + Default + Send>(
        &mut self,
        width: usize,
        out: &mut Vec<T>,
        parse: impl Fn(&str, &mut [T]) -> Parsed<()> + Sync,
    ) -> Result<bool> {
        out.clear();
        let pieces = self.pieces(|piece| {
            let mut values = Vec::new();
            for (i, line) in (0..).zip(piece.strip_suffix(b"\n").unwrap_or(piece).split(|&b| b == b'\n')) {
                let start = values.len();
                values.resize(start + width, T::default());
                line_text(line).and_then(|text| parse(text, &mut values[start..])).map_err(|e| line_error(i, e))?;
            }
            Ok(values)
        })?;
        pieces.iter().flatten().for_each(|values| out.extend_from_slice(values));
        Ok(pieces.is_some())
    }

    /// Number of values in the first line; `None` when the table is empty.
    pub(crate) fn width(&mut self) -> Result<Option<usize>> {
        Ok(self.0.peek_line()?.map(|(line, _)| line.split(|&b| b == b',').count()))
    }

    /// The error of line `line`, counted from 1.
    pub(crate) fn fault(&self, line: u64, what: impl Into<String>) -> Error {
        Error::invalid(self.0.path(), Position::Line(line), what, CURE)
    }
}

/// The error of line `line` of a piece, counted from 0.
pub(crate) fn line_error(line: u64, what: String) -> LineError {
    LineError { line, what, cure: CURE }
}

/// A line without the carriage return of Windows.
pub(crate) fn line_text(line: &[u8]) -> Parsed<&str> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not text")?;
    Ok(text.trim_end_matches('\r'))
}

/// All lines of a table of one column.
pub(crate) fn column<T: Copy + Default + Send>(
    path: PathBuf,
    ingest: &Ingest<'_>,
    parse: impl Fn(&str) -> Parsed<T> + Sync,
) -> Result<Vec<T>> {
    let stage = path.file_name().unwrap_or_default().to_string_lossy().replace(".csv.gz", "");
    let mut table = CsvReader::open(&path, &stage, ingest)?;
    let (mut all, mut block) = (vec![], vec![]);
    while table.rows(1, &mut block, |line, out| fields(line, out, &parse))? {
        all.extend_from_slice(&block);
    }
    Ok(all)
}

/// Parses as many fields as `out` is long, no more and no fewer.
pub(crate) fn fields<T>(line: &str, out: &mut [T], parse: impl Fn(&str) -> Parsed<T>) -> Parsed<()> {
    for (i, (value, field)) in out.iter_mut().zip(line.split(',')).enumerate() {
        *value = parse(field.trim()).map_err(|what| format!("column {}: {what}", i + 1))?;
    }
    let count = line.split(',').count();
    if count == out.len() { Ok(()) } else { Err(format!("{count} columns, expected {}", out.len())) }
}

/// A count or an id.
pub(crate) fn id(field: &str) -> Parsed<u64> {
    field.parse().map_err(|_| format!("{field:?} is not a whole number of at least 0"))
}

/// A feature value.
pub(crate) fn feature(field: &str) -> Parsed<f32> {
    let value = real(field.as_bytes()).ok_or_else(|| format!("{field:?} is not a number"))?;
    if value.is_finite() { Ok(value) } else { Err(format!("the feature is {field}, not a finite number")) }
}

/// A weight of an edge.
pub(crate) fn weight(field: &str) -> Parsed<f32> {
    let value = real(field.as_bytes()).ok_or_else(|| format!("{field:?} is not a number"))?;
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("the weight is {field}, not a finite number of at least 0"))
    }
}

/// A class number; nothing, NaN and -1 mean "no label" (-1).
pub(crate) fn label(field: &str) -> Parsed<i32> {
    if field.is_empty() || field.eq_ignore_ascii_case("nan") {
        return Ok(-1);
    }
    let whole = field.strip_suffix(".0").unwrap_or(field);
    whole.parse().ok().filter(|&l| l >= -1).ok_or_else(|| format!("the label {field:?} is not a class number"))
}

/// A target; nothing and NaN mean an unknown one.
pub(crate) fn target(field: &str) -> Parsed<f32> {
    if field.is_empty() {
        return Ok(f32::NAN);
    }
    let value = real(field.as_bytes()).ok_or_else(|| format!("{field:?} is not a number"))?;
    if value.is_infinite() { Err(format!("the target is {field}, not finite as f32")) } else { Ok(value) }
}

#[cfg(test)]
mod tests;
