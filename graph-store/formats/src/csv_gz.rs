//! Gzipped CSV without a header, as OGB publishes it: read as a stream, parsed in parallel by blocks of lines.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use morphgl_graph_store::{Error, Position, Result};
use rayon::prelude::*;

use crate::Progress;
use crate::elements::Said;

/// Text parsed at a time.
const BLOCK: usize = 4 << 20;
/// Longest line: 1 << 20 features of 60 digits.
const MAX_LINE: usize = 64 << 20;

/// A gzipped table of numbers.
pub(crate) struct Table<'p> {
    pub(crate) path: PathBuf,
    reader: MultiGzDecoder<BufReader<Counted<'p>>>,
    /// Text that is not parsed yet: the beginning of a line.
    text: Vec<u8>,
    /// Lines parsed so far.
    lines: u64,
    end: bool,
}

/// A file that tells its progress.
struct Counted<'p> {
    file: File,
    progress: &'p dyn Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(out)?;
        self.progress.advance(n as u64);
        Ok(n)
    }
}

impl<'p> Table<'p> {
    /// Opens `path`; its compressed bytes are the progress of the stage `stage`.
    pub(crate) fn open(path: PathBuf, stage: &str, progress: &'p dyn Progress) -> Result<Self> {
        let file = File::open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                let cure = "name the directory that holds OGB's raw/ and split/, complete";
                Error::invalid(&path, Position::File, "there is no such file", cure)
            }
            _ => Error::io(&path, e),
        })?;
        progress.stage(stage, file.metadata().ok().map(|m| m.len()));
        let reader = MultiGzDecoder::new(BufReader::with_capacity(1 << 17, Counted { file, progress }));
        Ok(Self { path, reader, text: vec![], lines: 0, end: false })
    }

    /// Lines parsed so far.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Parses the next lines, each into `width` values of `out` (which is cleared); false at the end of the table.
    /// `parse` fills one line's values, or says what is wrong with it.
    pub(crate) fn block<T: Copy + Default + Send>(
        &mut self,
        width: usize,
        out: &mut Vec<T>,
        parse: impl Fn(&str, &mut [T]) -> Said<()> + Sync,
    ) -> Result<bool> {
        out.clear();
        self.fill()?;
        let whole =
            if self.end { self.text.len() } else { self.text.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) };
        if whole == 0 {
            return Ok(false);
        }
        let block = self.text[..whole].strip_suffix(b"\n").unwrap_or(&self.text[..whole]);
        let lines: Vec<&[u8]> = block.split(|&b| b == b'\n').collect();
        out.resize(lines.len() * width, T::default());
        let fault = out.par_chunks_exact_mut(width).zip(&lines).enumerate().with_min_len(64).find_map_first(
            |(i, (values, line))| {
                let line = std::str::from_utf8(line).map_err(|_| "the line is not text".to_string());
                line.and_then(|l| parse(l.trim_end_matches('\r'), values)).err().map(|what| (i, what))
            },
        );
        if let Some((i, what)) = fault {
            return self.fail(self.lines + i as u64 + 1, what);
        }
        self.lines += lines.len() as u64;
        self.text.drain(..whole);
        Ok(true)
    }

    /// Values the first line has; `None` when the table is empty.
    pub(crate) fn width(&mut self) -> Result<Option<usize>> {
        self.fill()?;
        let first = self.text.split(|&b| b == b'\n').next().unwrap_or(&[]);
        Ok((!self.text.is_empty()).then(|| first.iter().filter(|&&b| b == b',').count() + 1))
    }

    /// Reads until a block of whole lines is there, or the end.
    fn fill(&mut self) -> Result<()> {
        while !self.end && (self.text.len() < BLOCK || !self.text.contains(&b'\n')) {
            if self.text.len() > MAX_LINE {
                return self.fail(self.lines + 1, format!("a line of more than {MAX_LINE} bytes"));
            }
            let read = (&mut self.reader).take(BLOCK as u64).read_to_end(&mut self.text);
            match read {
                Ok(n) => self.end = n == 0,
                Err(e) => {
                    let line = self.lines + self.text.iter().filter(|&&b| b == b'\n').count() as u64 + 1;
                    return match e.kind() {
                        io::ErrorKind::UnexpectedEof => self.fail(line, "the gzip data ends early"),
                        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                            self.fail(line, "the gzip data is damaged")
                        }
                        _ => Err(Error::io(&self.path, e)),
                    };
                }
            }
        }
        Ok(())
    }

    /// An error on line `line`, counted from 1.
    pub(crate) fn fail<T>(&self, line: u64, what: impl Into<String>) -> Result<T> {
        Err(fault(&self.path, line, what))
    }
}

/// An error on line `line` of the table at `path`.
pub(crate) fn fault(path: &Path, line: u64, what: impl Into<String>) -> Error {
    Error::invalid(path, Position::Line(line), what, "the file is damaged or something else: download it again")
}

/// Parses as many fields as `out` has room for, no more and no fewer.
pub(crate) fn fields<T>(line: &str, out: &mut [T], parse: impl Fn(&str) -> Said<T>) -> Said<()> {
    let mut fields = line.split(',');
    for (i, slot) in out.iter_mut().enumerate() {
        let Some(field) = fields.next() else { break };
        *slot = parse(field.trim()).map_err(|what| format!("column {}: {what}", i + 1))?;
    }
    let found = line.split(',').count();
    if found == out.len() { Ok(()) } else { Err(format!("{found} columns, expected {}", out.len())) }
}

/// A count or an id.
pub(crate) fn id(field: &str) -> Said<u64> {
    field.parse().map_err(|_| format!("{field:?} is not a whole number of at least 0"))
}

/// A feature value.
pub(crate) fn feature(field: &str) -> Said<f32> {
    let value: f32 = field.parse().map_err(|_| format!("{field:?} is not a number"))?;
    if value.is_finite() { Ok(value) } else { Err(format!("the feature is {field}, not a finite number")) }
}

/// A class number; nothing, NaN and -1 mean "no label" (-1).
pub(crate) fn label(field: &str) -> Said<i32> {
    if field.is_empty() || field.eq_ignore_ascii_case("nan") {
        return Ok(-1);
    }
    let whole = field.strip_suffix(".0").unwrap_or(field);
    whole.parse().ok().filter(|&l| l >= -1).ok_or_else(|| format!("the label {field:?} is not a class number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_count_columns_and_name_the_bad_one() {
        let mut out = [0; 3];
        assert_eq!(fields("1, 2,3", &mut out, id), Ok(()));
        assert_eq!(out, [1, 2, 3]);
        assert_eq!(fields("1,2", &mut out, id), Err("2 columns, expected 3".into()));
        assert_eq!(fields("1,2,3,4", &mut out, id), Err("4 columns, expected 3".into()));
        assert_eq!(fields("1,-2,3", &mut out, id), Err("column 2: \"-2\" is not a whole number of at least 0".into()));
    }

    #[test]
    fn numbers_are_read_as_ogb_writes_them() {
        assert_eq!(feature("-0.057943"), Ok(-0.057943));
        assert_eq!(feature("1e-3"), Ok(1e-3));
        assert!(feature("nan").is_err() && feature("inf").is_err() && feature("").is_err());
        assert_eq!((label("nan"), label(""), label("7"), label("7.0")), (Ok(-1), Ok(-1), Ok(7), Ok(7)));
        assert!(label("0.5").is_err() && label("-2").is_err() && label("99999999999").is_err());
    }
}
