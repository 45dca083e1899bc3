//! A text file as a sequence of chunks of whole lines, read ahead by a thread; compression is recognised by its magic.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};

use bzip2::bufread::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use morphgl_graph_store::{Error, Position, Result};

use super::{foreign, newlines};
use crate::Progress;

/// Whole lines of a file; only the last line of the file may lack its newline.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    start: usize,
    line: u64,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Number of the first line, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }
}

/// The chunks of one file.
pub(crate) struct Chunks<'p> {
    path: PathBuf,
    received: Receiver<Result<Vec<u8>>>,
    current: Chunk,
    progress: &'p dyn Progress,
    read: Arc<AtomicU64>,
    reported: u64,
}

impl<'p> Chunks<'p> {
    /// Opens `path`; three chunks and the parsed form of one, with scratch, stay within about a quarter of `memory`.
    pub(crate) fn open(path: &Path, memory: u64, progress: &'p dyn Progress) -> Result<Self> {
        let (reader, read) = open_text(path, progress)?;
        let room = (memory / 64).clamp(4 << 10, 16 << 20) as usize;
        let longest = (memory / 4).max(64 << 10) as usize;
        let mut splitter =
            Splitter { path: path.to_path_buf(), reader, room, longest, tail: Vec::new(), line: 1, done: false };
        let (send, received) = sync_channel(1);
        std::thread::spawn(move || {
            // A receiver that is gone has met an error of its own: the thread just ends.
            while let Some(chunk) = splitter.next().transpose() {
                let failed = chunk.is_err();
                if send.send(chunk).is_err() || failed {
                    return;
                }
            }
        });
        let current = Chunk { line: 1, ..Chunk::default() };
        Ok(Self { path: path.to_path_buf(), received, current, progress, read, reported: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that there is something to read in `current`; false at the end of the file.
    fn fill(&mut self) -> Result<bool> {
        if !self.current.bytes().is_empty() {
            return Ok(true);
        }
        let line = self.current.line;
        // An error of the channel means that the thread has ended: so has the file.
        let Ok(chunk) = self.received.recv() else { return Ok(false) };
        self.current = Chunk { bytes: chunk?, start: 0, line };
        let read = self.read.load(Ordering::Relaxed);
        self.progress.advance(read - self.reported);
        self.reported = read;
        Ok(true)
    }

    /// The next line without its newline, and its number; it stays to be read.
    pub(crate) fn peek_line(&mut self) -> Result<Option<(&[u8], u64)>> {
        if !self.fill()? {
            return Ok(None);
        }
        let line = self.current.bytes().split(|&b| b == b'\n').next().unwrap_or_default();
        Ok(Some((line.strip_suffix(b"\r").unwrap_or(line), self.current.line)))
    }

    /// Skips the UTF-8 byte order mark that some programs begin a file with.
    pub(crate) fn skip_byte_order_mark(&mut self) -> Result<()> {
        if self.fill()? && self.current.line == 1 && self.current.bytes().starts_with(b"\xef\xbb\xbf") {
            self.current.start += 3;
        }
        Ok(())
    }

    /// Passes over the line that was peeked at.
    pub(crate) fn skip_line(&mut self) {
        let bytes = self.current.bytes();
        let len = bytes.iter().position(|&b| b == b'\n').map_or(bytes.len(), |i| i + 1);
        self.current.start += len;
        self.current.line += 1;
    }

    /// The next chunk: what the lines taken one by one have left of the current one, or a new one.
    pub(crate) fn next(&mut self) -> Result<Option<Chunk>> {
        if !self.fill()? {
            return Ok(None);
        }
        let line = self.current.line + newlines(self.current.bytes());
        Ok(Some(std::mem::replace(&mut self.current, Chunk { line, ..Chunk::default() })))
    }
}

/// A file that counts what is read of it.
pub(crate) struct Counted {
    pub(crate) file: File,
    pub(crate) read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.read.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Decompressed text, and the number of bytes read from its file so far.
type Text = (Box<dyn Read + Send>, Arc<AtomicU64>);

/// Opens a text file, plain or compressed, and returns a counter of the bytes read from the file with it.
pub(crate) fn open_text(path: &Path, progress: &dyn Progress) -> Result<Text> {
    let io = |e| Error::io(path, e);
    let file = File::open(path).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if metadata.is_dir() {
        return Err(Error::invalid(path, Position::File, "this is a directory", "name the file itself"));
    }
    progress.stage("read", Some(metadata.len()));
    let read = Arc::new(AtomicU64::new(0));
    let mut counted = BufReader::with_capacity(1 << 20, Counted { file, read: Arc::clone(&read) });
    let head = counted.fill_buf().map_err(io)?;
    if compression(head).is_none() {
        foreign::refuse(path, head)?;
        return Ok((Box::new(counted), read));
    }
    let decoder = decompress(counted).map_err(|e| unreadable(path, 1, e))?;
    // A tar archive is recognised after decompression.
    let mut decoder = BufReader::with_capacity(64 << 10, decoder);
    foreign::refuse(path, decoder.fill_buf().map_err(|e| unreadable(path, 1, e))?)?;
    Ok((Box::new(decoder), read))
}

#[derive(Debug, Clone, Copy)]
enum Compression {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// How a file that begins with `head` is compressed.
fn compression(head: &[u8]) -> Option<Compression> {
    match head {
        [0x1f, 0x8b, ..] => Some(Compression::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Compression::Bzip2),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
        _ => None,
    }
}

fn decompress(mut reader: BufReader<Counted>) -> std::io::Result<Box<dyn Read + Send>> {
    Ok(match compression(reader.fill_buf()?) {
        Some(Compression::Gzip) => Box::new(MultiGzDecoder::new(reader)),
        Some(Compression::Zstd) => Box::new(zstd::Decoder::with_buffer(reader)?),
        Some(Compression::Bzip2) => Box::new(MultiBzDecoder::new(reader)),
        Some(Compression::Xz) => Box::new(XzReader::new(reader, true)),
        None => Box::new(reader),
    })
}

/// What went wrong while text was read or decompressed.
fn unreadable(path: &Path, line: u64, error: std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    if !matches!(error.kind(), InvalidData | InvalidInput | Other | UnexpectedEof) {
        return Error::io(path, error);
    }
    let what = format!("the compressed data is damaged ({error})");
    Error::invalid(path, Position::Line(line), what, "copy or download the file again")
}

struct Splitter {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    room: usize,
    longest: usize,
    tail: Vec<u8>,
    line: u64,
    done: bool,
}

impl Splitter {
    fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let mut chunk = std::mem::take(&mut self.tail);
        while !self.done {
            let old = chunk.len();
            chunk.reserve_exact(self.room);
            let read = (&mut self.reader).take(self.room as u64).read_to_end(&mut chunk);
            let read = read.map_err(|e| unreadable(&self.path, self.line, e))?;
            self.done = read < self.room;
            if self.done {
                break;
            }
            if let Some(end) = chunk[old..].iter().rposition(|&b| b == b'\n') {
                self.tail = chunk.split_off(old + end + 1);
                self.line += newlines(&chunk);
                return Ok(Some(chunk));
            }
            if chunk.len() > self.longest {
                let what = format!("a line of more than {} bytes", self.longest);
                let cure = "check that this is a text file, or raise the memory limit";
                return Err(Error::invalid(&self.path, Position::Line(self.line), what, cure));
            }
        }
        Ok(Some(chunk).filter(|c| !c.is_empty()))
    }
}
