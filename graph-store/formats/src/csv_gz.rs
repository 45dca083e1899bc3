//! Gzipped CSV without a header, as OGB publishes it: read as a stream, parsed in parallel by blocks of lines.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use flate2::bufread::MultiGzDecoder;
use morphgl_graph_store::{Error, Position, Result};
use rayon::prelude::*;

use crate::Progress;
use crate::elements::Parsed;
use crate::text::{Counted, newlines, pieces, real};

/// Text parsed at a time.
const BLOCK: usize = 4 << 20;
/// Longest line: 1 << 20 features of 60 digits.
const MAX_LINE: usize = 64 << 20;

/// A gzipped table of numbers, decompressed ahead by a thread.
pub(crate) struct Table<'p> {
    pub(crate) path: PathBuf,
    decompressed: Receiver<io::Result<Vec<u8>>>,
    progress: &'p dyn Progress,
    read: Arc<AtomicU64>,
    reported: u64,
    /// Text that is not parsed yet: the beginning of a line.
    text: Vec<u8>,
    /// Lines parsed so far.
    lines: u64,
    end: bool,
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
        let read = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, read: Arc::clone(&read) };
        let mut reader = MultiGzDecoder::new(BufReader::with_capacity(1 << 17, counted));
        let (send, decompressed) = sync_channel(1);
        std::thread::spawn(move || {
            loop {
                let mut block = Vec::with_capacity(BLOCK);
                let read = (&mut reader).take(BLOCK as u64).read_to_end(&mut block);
                // What came before an error tells its line. A receiver that is gone has met an error of its own.
                let sent = match read {
                    Ok(n) => send.send(Ok(block)).is_ok() && n > 0,
                    Err(e) => {
                        let _ = (block.is_empty() || send.send(Ok(block)).is_ok()) && send.send(Err(e)).is_ok();
                        false
                    }
                };
                if !sent {
                    return;
                }
            }
        });
        Ok(Self { path, decompressed, progress, read, reported: 0, text: vec![], lines: 0, end: false })
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
        parse: impl Fn(&str, &mut [T]) -> Parsed<()> + Sync,
    ) -> Result<bool> {
        out.clear();
        let values = self.pieces(|piece| {
            let piece = piece.strip_suffix(b"\n").unwrap_or(piece);
            let mut values = Vec::new();
            for (i, line) in piece.split(|&b| b == b'\n').enumerate() {
                let at = values.len();
                values.resize(at + width, T::default());
                let text = std::str::from_utf8(line).map_err(|_| "the line is not text".to_string());
                text.and_then(|text| parse(text.trim_end_matches('\r'), &mut values[at..]))
                    .map_err(|what| (i as u64, what))?;
            }
            Ok(values)
        })?;
        values.iter().for_each(|values| out.extend_from_slice(values));
        Ok(!values.is_empty())
    }

    /// Parses the next lines in pieces of whole lines, side by side; nothing at the end of the table. `parse` says what
    /// is wrong with which line of its piece.
    pub(crate) fn pieces<T: Send>(
        &mut self,
        parse: impl Fn(&[u8]) -> std::result::Result<T, (u64, String)> + Sync,
    ) -> Result<Vec<T>> {
        self.fill()?;
        let whole =
            if self.end { self.text.len() } else { self.text.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1) };
        let pieces = pieces(&self.text[..whole]);
        let parsed: Vec<_> = pieces.par_iter().map(|piece| (parse(piece), newlines(piece))).collect();
        let mut out = Vec::with_capacity(parsed.len());
        for (parsed, lines) in parsed {
            match parsed {
                Ok(parsed) => out.push(parsed),
                Err((line, what)) => return self.fail(self.lines + line + 1, what),
            }
            self.lines += lines;
        }
        // The table's last line may lack its newline.
        self.lines += u64::from(whole > 0 && self.text[whole - 1] != b'\n');
        self.text.drain(..whole);
        Ok(out)
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
            // The channel ends only behind an empty block, which ends this loop, or behind an error.
            let read = self.decompressed.recv().unwrap_or_else(|_| Ok(vec![]));
            let done = self.read.load(Ordering::Relaxed);
            self.progress.advance(done - self.reported);
            self.reported = done;
            match read {
                Ok(block) => {
                    self.end = block.is_empty();
                    if self.text.is_empty() {
                        self.text = block;
                    } else {
                        self.text.extend_from_slice(&block);
                    }
                }
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
pub(crate) fn fields<T>(line: &str, out: &mut [T], parse: impl Fn(&str) -> Parsed<T>) -> Parsed<()> {
    let mut fields = line.split(',');
    for (i, slot) in out.iter_mut().enumerate() {
        let Some(field) = fields.next() else { break };
        *slot = parse(field.trim()).map_err(|what| format!("column {}: {what}", i + 1))?;
    }
    let found = line.split(',').count();
    if found == out.len() { Ok(()) } else { Err(format!("{found} columns, expected {}", out.len())) }
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

/// A class number; nothing, NaN and -1 mean "no label" (-1).
pub(crate) fn label(field: &str) -> Parsed<i32> {
    if field.is_empty() || field.eq_ignore_ascii_case("nan") {
        return Ok(-1);
    }
    let whole = field.strip_suffix(".0").unwrap_or(field);
    whole.parse().ok().filter(|&l| l >= -1).ok_or_else(|| format!("the label {field:?} is not a class number"))
}

#[cfg(test)]
mod tests;
