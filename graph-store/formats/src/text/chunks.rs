//! A text file as a sequence of chunks of whole lines, read ahead by a thread; compression is recognised by its magic.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use morphgl_graph_store::{Error, Position, Result};

use super::{foreign, newlines};
use crate::Progress;
use crate::files::{is_damage, open_file};

/// Whole lines of a file; only the last line of the file may lack its newline.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    start: usize,
    /// Number of the first line, counted from 1.
    pub(crate) line: u64,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// The chunks of one file.
pub(crate) struct Chunks<'p> {
    path: PathBuf,
    chunks: Receiver<Result<Vec<u8>>>,
    current: Chunk,
    progress: ReadProgress<'p>,
}

impl<'p> Chunks<'p> {
    /// Opens `path`; three chunks and the parsed form of one, with scratch, stay within about a quarter of `memory`.
    pub(crate) fn open(path: &Path, stage: &str, memory: u64, progress: &'p dyn Progress) -> Result<Self> {
        let Text { reader, progress, compression } = open_text(path, stage, progress)?;
        let chunk_len = (memory / 64).clamp(4 << 10, 16 << 20) as usize;
        let max_line = (memory / 4).max(64 << 10) as usize;
        let path = path.to_path_buf();
        let mut splitter = Splitter {
            path: path.clone(),
            reader,
            compression,
            chunk_len,
            max_line,
            tail: Vec::new(),
            line: 1,
            at_end: false,
        };
        let (send, chunks) = sync_channel(1);
        std::thread::spawn(move || {
            while let Some(chunk) = splitter.next().transpose() {
                let failed = chunk.is_err();
                // The receiver is dropped after an error of its own.
                if send.send(chunk).is_err() || failed {
                    return;
                }
            }
        });
        Ok(Self { path, chunks, current: Chunk { line: 1, ..Chunk::default() }, progress })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of lines skipped or returned.
    pub(crate) fn lines(&self) -> u64 {
        self.current.line - 1
    }

    /// Makes sure that `current` has bytes; false at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        if !self.current.bytes().is_empty() {
            return Ok(true);
        }
        let line = self.current.line;
        // An error of the channel means that the thread has ended: so has the file.
        let Ok(chunk) = self.chunks.recv() else { return Ok(false) };
        let bytes = chunk?;
        // Some programs begin a file with the byte order mark of UTF-8.
        let start = if line == 1 && bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        self.current = Chunk { bytes, start, line };
        self.progress.report();
        Ok(true)
    }

    /// The next line without its newline, and its number; the line stays unread.
    pub(crate) fn peek_line(&mut self) -> Result<Option<(&[u8], u64)>> {
        if !self.fill()? {
            return Ok(None);
        }
        let line = self.current.bytes().split(|&b| b == b'\n').next().unwrap_or_default();
        Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), self.current.line)))
    }

    /// Skips empty lines and those that begin with one of `comments`, and peeks at the line after them.
    pub(crate) fn peek_content(&mut self, comments: &[u8]) -> Result<Option<(&[u8], u64)>> {
        while let Some((line, _)) = self.peek_line()? {
            if line.trim_ascii_start().first().is_some_and(|byte| !comments.contains(byte)) {
                break;
            }
            self.skip_line();
        }
        self.peek_line()
    }

    /// Skips the line that was peeked at.
    pub(crate) fn skip_line(&mut self) {
        let bytes = self.current.bytes();
        let len = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| i + 1);
        self.current.start += len;
        self.current.line += 1;
    }

    /// The next chunk: what is unread of the current one, or a new one.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>> {
        if !self.fill()? {
            return Ok(None);
        }
        let bytes = self.current.bytes();
        let line = self.current.line + newlines(bytes) + u64::from(!bytes.ends_with(b"\n"));
        Ok(Some(std::mem::replace(&mut self.current, Chunk { line, ..Chunk::default() })))
    }
}

/// Progress of a file in bytes or rows, which a reader counts on any thread.
pub(crate) struct ReadProgress<'p> {
    progress: &'p dyn Progress,
    count: Arc<AtomicU64>,
    reported: u64,
}

impl<'p> ReadProgress<'p> {
    pub(crate) fn new(progress: &'p dyn Progress) -> Self {
        Self { progress, count: Arc::default(), reported: 0 }
    }

    pub(crate) fn count(&self, n: u64) {
        self.count.fetch_add(n, Ordering::Relaxed);
    }

    /// Reports what was counted since the last call.
    pub(crate) fn report(&mut self) {
        let count = self.count.load(Ordering::Relaxed);
        self.progress.advance(count - std::mem::replace(&mut self.reported, count));
    }
}

/// A file that counts the bytes read from it.
struct CountedFile {
    file: File,
    count: Arc<AtomicU64>,
}

impl Read for CountedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// A text file, decompressed as it is read.
pub(crate) struct Text<'p> {
    pub(crate) reader: Box<dyn Read + Send>,
    pub(crate) progress: ReadProgress<'p>,
    /// Name of the compression; empty for none.
    compression: &'static str,
}

/// Opens a text file, plain or compressed, and refuses formats that are not read; the bytes of the file are the progress of `stage`.
pub(crate) fn open_text<'p>(path: &Path, stage: &str, progress: &'p dyn Progress) -> Result<Text<'p>> {
    let Text { reader, progress, compression } = open_any_text(path, stage, progress)?;
    let mut reader = BufReader::with_capacity(64 << 10, reader);
    // After decompression: only there a tar archive can be recognised.
    let head = reader.fill_buf().map_err(|e| unreadable(path, 1, compression, e))?;
    foreign::refuse(path, head)?;
    Ok(Text { reader: Box::new(reader), progress, compression })
}

/// As [`open_text`], of text in any format.
pub(crate) fn open_any_text<'p>(path: &Path, stage: &str, progress: &'p dyn Progress) -> Result<Text<'p>> {
    let io = |e| Error::io(path, e);
    let file = open_file(path, "name the file itself")?;
    progress.stage(stage, Some(file.metadata().map_err(io)?.len()));
    let progress = ReadProgress::new(progress);
    let mut plain = BufReader::with_capacity(1 << 20, CountedFile { file, count: Arc::clone(&progress.count) });
    let compression = match plain.fill_buf().map_err(io)? {
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => "bzip2",
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        _ => "",
    };
    let damaged = |e| unreadable(path, 1, compression, e);
    let decoder: Box<dyn Read + Send> = match compression {
        "gzip" => Box::new(MultiGzDecoder::new(plain)),
        "zstd" => Box::new(zstd::Decoder::with_buffer(plain).map_err(damaged)?),
        "bzip2" => Box::new(MultiBzDecoder::new(plain)),
        "xz" => Box::new(XzReader::new(plain, true)),
        _ => Box::new(plain),
    };
    Ok(Text { reader: decoder, progress, compression })
}

/// The error of text that could not be read or decompressed.
fn unreadable(path: &Path, line: u64, compression: &str, error: io::Error) -> Error {
    if !is_damage(&error) {
        return Error::io(path, error);
    }
    let what = match error.kind() {
        io::ErrorKind::UnexpectedEof => format!("the {compression} data ends early"),
        _ => format!("the {compression} data is damaged ({error})"),
    };
    Error::invalid(path, Position::Line(line), what, "copy or download the file again")
}

/// Cuts a stream of text into chunks of whole lines.
struct Splitter {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    compression: &'static str,
    chunk_len: usize,
    max_line: usize,
    /// Beginning of the line that the last chunk cut off.
    tail: Vec<u8>,
    line: u64,
    at_end: bool,
}

impl Splitter {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut chunk = std::mem::take(&mut self.tail);
        while !self.at_end {
            let old = chunk.len();
            chunk.reserve_exact(self.chunk_len);
            let read = (&mut self.reader).take(self.chunk_len as u64).read_to_end(&mut chunk);
            let read = read.map_err(|e| unreadable(&self.path, self.line + newlines(&chunk), self.compression, e))?;
            self.at_end = read < self.chunk_len;
            if self.at_end {
                break;
            }
            if let Some(end) = chunk[old..].iter().rposition(|&b| b == b'\n') {
                self.tail = chunk.split_off(old + end + 1);
                self.line += newlines(&chunk);
                return Ok(Some(chunk));
            }
            if chunk.len() > self.max_line {
                let what = format!("a line of more than {} bytes", self.max_line);
                let cure = "check that this is a text file, or raise the memory limit";
                return Err(Error::invalid(&self.path, Position::Line(self.line), what, cure));
            }
        }
        Ok(Some(chunk).filter(|c| !c.is_empty()))
    }
}
