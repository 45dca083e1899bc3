//! A file that is hashed and written by a background thread.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use xxhash_rust::xxh3::Xxh3;

use morphgl_platform::Pages;

use crate::summary::Summary;
use crate::{Dtype, writeback};

/// Bytes of a buffer.
const BUFFER: usize = 512 << 10;
/// Number of buffers: one being filled, the others queued.
const BUFFERS: usize = 3;
/// Bytes that are hashed, summarised and written together, while they are in the second-level cache.
const PIECE: usize = 128 << 10;
/// Bytes after which write-back is started, to leave little to the final sync.
const EARLY: u64 = 8 << 20;

/// A file written from its first byte to its last; less than a buffer is written without a thread.
///
/// A buffer holds whole elements, from an aligned address on: its length is a multiple of every element's.
/// Buffers are [`Pages`] because they move between threads, and an allocator would cache some for each.
pub(crate) struct BackgroundFile {
    buffer: Pages,
    /// Number of buffers allocated.
    allocated: usize,
    state: State,
}

enum State {
    Inline(Sink),
    Threaded {
        full: SyncSender<Full>,
        empty: Receiver<Pages>,
        thread: JoinHandle<(Sink, io::Result<()>)>,
    },
    /// An error was returned, or the file is finished.
    Closed,
}

/// Bytes to be written, in the order of sending.
enum Full {
    /// A buffer of the file, which is sent back.
    Buffer(Pages),
    /// Memory of the caller, which is dropped.
    Given(Pages),
}

/// The file, and the hash and the summary of the elements written to it.
pub(crate) struct Sink {
    pub(crate) file: File,
    pub(crate) hash: Box<Xxh3>,
    pub(crate) summary: Summary,
    /// Bytes written, and how many of them are being written back.
    written: u64,
    started: u64,
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(PIECE) {
            self.hash.update(piece);
            self.summary.add(piece);
            self.file.write_all(piece)?;
        }
        self.written += bytes.len() as u64;
        if self.written - self.started >= EARLY {
            self.start_writeback();
        }
        Ok(())
    }

    /// Starts the write-back of all bytes written.
    pub(crate) fn start_writeback(&mut self) {
        writeback::start(&self.file, self.started, self.written - self.started);
        self.started = self.written;
    }
}

impl BackgroundFile {
    /// Writes elements of `dtype` to `file`, which has `written` bytes and is at its end.
    pub(crate) fn new(file: File, written: u64, dtype: Dtype) -> Self {
        let sink = Sink { file, hash: Box::new(Xxh3::new()), summary: Summary::new(dtype), written, started: 0 };
        Self { buffer: Pages::new(), allocated: 0, state: State::Inline(sink) }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.allocated == 0 && !bytes.is_empty() {
            self.buffer = self.allocate()?;
        }
        while !bytes.is_empty() {
            let len = self.buffer.len();
            let (head, rest) = bytes.split_at(bytes.len().min(BUFFER - len));
            self.buffer.resize(len + head.len())[len..].copy_from_slice(head);
            bytes = rest;
            if self.buffer.len() == BUFFER {
                self.queue()?;
            }
        }
        Ok(())
    }

    /// Writes all of `pages`, whole elements, which are dropped once they are written; a buffer's bytes or more without a copy.
    pub(crate) fn write_pages(&mut self, pages: Pages) -> io::Result<()> {
        if pages.len() < BUFFER {
            return self.write(&pages);
        }
        if !self.buffer.is_empty() {
            self.queue()?;
        }
        self.send(Full::Given(pages))
    }

    /// A new buffer; it takes memory as it is filled.
    fn allocate(&mut self) -> io::Result<Pages> {
        self.allocated += 1;
        let mut buffer = Pages::zeroed(BUFFER)?;
        buffer.resize(0);
        Ok(buffer)
    }

    /// Queues the buffer, and takes an empty one.
    fn queue(&mut self) -> io::Result<()> {
        let buffer = mem::take(&mut self.buffer);
        self.send(Full::Buffer(buffer))?;
        let State::Threaded { empty, .. } = &self.state else { return Ok(()) };
        if self.allocated < BUFFERS {
            self.buffer = self.allocate()?;
        } else if let Ok(buffer) = empty.recv() {
            self.buffer = buffer;
        } else {
            // The thread ended: its error is returned.
            self.join()?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: Full) -> io::Result<()> {
        if let State::Inline(_) = self.state {
            self.start()?;
        }
        let State::Threaded { full, .. } = &self.state else {
            return Err(io::Error::other("the file could not be written before"));
        };
        match full.send(bytes) {
            Ok(()) => Ok(()),
            Err(_) => self.join().map(drop),
        }
    }

    fn start(&mut self) -> io::Result<()> {
        let State::Inline(mut sink) = mem::replace(&mut self.state, State::Closed) else {
            unreachable!("the thread is started once");
        };
        let (full, received) = sync_channel::<Full>(BUFFERS);
        let (written, empty) = channel();
        let run = move || {
            for bytes in received {
                let (Full::Buffer(pages) | Full::Given(pages)) = &bytes;
                if let Err(e) = sink.write(pages) {
                    return (sink, Err(e));
                }
                if let Full::Buffer(mut buffer) = bytes {
                    buffer.resize(0);
                    // At the end the receiver is dropped: no more buffers are needed.
                    let _ = written.send(buffer);
                }
            }
            (sink, Ok(()))
        };
        let thread = Builder::new().name("npy-writer".into()).spawn(run)?;
        self.state = State::Threaded { full, empty, thread };
        Ok(())
    }

    /// Waits until all queued buffers are written.
    fn join(&mut self) -> io::Result<Sink> {
        match mem::replace(&mut self.state, State::Closed) {
            State::Inline(sink) => Ok(sink),
            State::Threaded { full, thread, .. } => {
                drop(full);
                let (sink, result) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result.map(|()| sink)
            }
            State::Closed => Err(io::Error::other("the file could not be written before")),
        }
    }

    /// Writes the last buffer.
    pub(crate) fn finish(mut self) -> io::Result<Sink> {
        let mut sink = self.join()?;
        sink.write(&self.buffer)?;
        Ok(sink)
    }
}

impl Drop for BackgroundFile {
    fn drop(&mut self) {
        // An unfinished file is removed by its owner, so the thread ends first.
        if let State::Threaded { full, thread, .. } = mem::replace(&mut self.state, State::Closed) {
            drop(full);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
