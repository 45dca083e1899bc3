//! A file that is hashed and written behind its writer's back, by a thread of its own.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use xxhash_rust::xxh3::Xxh3;

use morphgl_platform::Pages;

use crate::writeback;

/// Bytes handed to the thread at a time.
const BUFFER: usize = 512 << 10;
/// Buffers in all: one being filled, the others on their way.
const BUFFERS: usize = 3;
/// Bytes after which the disk is asked to begin, so that the sync at the end finds little left.
const EARLY: u64 = 8 << 20;

/// The bytes of a file, in order. A file of less than a buffer never sees a thread.
///
/// Buffers are pages, since they go from thread to thread: an allocator would keep some for each.
pub(crate) struct Behind {
    buffer: Pages,
    made: usize,
    state: State,
}

enum State {
    Here(Sink),
    There {
        full: SyncSender<Pages>,
        empty: Receiver<Pages>,
        thread: JoinHandle<(Sink, io::Result<()>)>,
    },
    /// An error was told, or the writer is done.
    Gone,
}

/// What the bytes go into.
pub(crate) struct Sink {
    pub(crate) file: File,
    pub(crate) hash: Box<Xxh3>,
    /// Bytes written, and of these the ones the disk was told of.
    at: u64,
    told: u64,
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hash.update(bytes);
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        if self.at - self.told >= EARLY {
            self.tell();
        }
        Ok(())
    }

    /// Asks the disk to begin with all that is written.
    pub(crate) fn tell(&mut self) {
        writeback::start(&self.file, self.told, self.at - self.told);
        self.told = self.at;
    }
}

impl Behind {
    /// Writes to `file` from byte `at` on, where it stands.
    pub(crate) fn new(file: File, at: u64) -> Self {
        let sink = Sink { file, hash: Box::new(Xxh3::new()), at, told: 0 };
        Self { buffer: Pages::new(), made: 0, state: State::Here(sink) }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        if self.made == 0 && !bytes.is_empty() {
            self.buffer = self.make()?;
        }
        while !bytes.is_empty() {
            let old = self.buffer.len();
            let (now, later) = bytes.split_at(bytes.len().min(BUFFER - old));
            self.buffer.resize(old + now.len())[old..].copy_from_slice(now);
            bytes = later;
            if self.buffer.len() == BUFFER {
                self.hand_over()?;
            }
        }
        Ok(())
    }

    /// One more buffer, of which what is written takes memory.
    fn make(&mut self) -> io::Result<Pages> {
        self.made += 1;
        let mut buffer = Pages::zeroed(BUFFER)?;
        buffer.resize(0);
        Ok(buffer)
    }

    /// Gives the full buffer to the thread, and takes an empty one.
    fn hand_over(&mut self) -> io::Result<()> {
        if let State::Here(_) = self.state {
            self.start()?;
        }
        let State::There { full, empty, .. } = &self.state else {
            return Err(io::Error::other("the file could not be written before"));
        };
        if full.send(mem::take(&mut self.buffer)).is_err() {
            return self.join().map(drop);
        }
        if self.made < BUFFERS {
            self.buffer = self.make()?;
            return Ok(());
        }
        match empty.recv() {
            Ok(buffer) => self.buffer = buffer,
            Err(_) => return self.join().map(drop),
        }
        Ok(())
    }

    fn start(&mut self) -> io::Result<()> {
        let State::Here(mut sink) = mem::replace(&mut self.state, State::Gone) else {
            unreachable!("the thread is started once");
        };
        let (full, from_here) = sync_channel::<Pages>(BUFFERS);
        let (to_here, empty) = channel();
        let run = move || {
            for mut buffer in from_here {
                if let Err(e) = sink.write(&buffer) {
                    return (sink, Err(e));
                }
                buffer.resize(0);
                // At the end nobody wants buffers any more.
                let _ = to_here.send(buffer);
            }
            (sink, Ok(()))
        };
        let thread = Builder::new().name("npy-writer".into()).spawn(run)?;
        self.state = State::There { full, empty, thread };
        Ok(())
    }

    /// Waits until all that was handed over is written.
    fn join(&mut self) -> io::Result<Sink> {
        match mem::replace(&mut self.state, State::Gone) {
            State::Here(sink) => Ok(sink),
            State::There { full, thread, .. } => {
                drop(full);
                let (sink, result) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                result.map(|()| sink)
            }
            State::Gone => Err(io::Error::other("the file could not be written before")),
        }
    }

    /// Writes what is left.
    pub(crate) fn finish(mut self) -> io::Result<Sink> {
        let mut sink = self.join()?;
        sink.write(&self.buffer)?;
        Ok(sink)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        // Whoever drops an unfinished file removes it: nothing shall be written to it from now on.
        if let State::There { full, thread, .. } = mem::replace(&mut self.state, State::Gone) {
            drop(full);
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// Pieces of all sizes, around one buffer and around as many as there are.
    #[test]
    fn all_bytes_arrive_in_order_and_are_hashed() {
        let dir = tempfile::tempdir().unwrap();
        for total in [0, 1, BUFFER - 1, BUFFER, BUFFER + 1, 5 * BUFFER + 7, EARLY as usize + 3 * BUFFER] {
            for piece in [4096 + 5, BUFFER, 3 * BUFFER + 1] {
                let bytes: Vec<u8> = (0..total as u64).map(|i| ((i * i) >> 7) as u8).collect();
                let path = dir.path().join("file");
                let mut out = Behind::new(File::create(&path).unwrap(), 0);
                bytes.chunks(piece).for_each(|piece| out.write(piece).unwrap());
                let sink = out.finish().unwrap();
                assert_eq!(sink.hash.digest(), xxh3_64(&bytes), "{total} bytes by {piece}");
                assert!(fs::read(&path).unwrap() == bytes, "{total} bytes by {piece}");
            }
        }
    }

    /// A file that is open for reading alone takes no byte: the thread's error is told, and later calls fail too.
    #[test]
    fn an_error_of_the_thread_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let mut out = Behind::new(File::open(&path).unwrap(), 0);
        let results: Vec<_> = (0..8).map(|_| out.write(&[1; BUFFER]).is_ok()).collect();
        assert!(results[0] && !results[7] && results.is_sorted_by_key(|ok| !ok), "{results:?}");
        assert!(out.finish().is_err());
    }

    #[test]
    fn what_is_dropped_unfinished_is_written_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut out = Behind::new(File::create(&path).unwrap(), 0);
        (0..4).for_each(|_| out.write(&[1; BUFFER]).unwrap());
        drop(out);
        let len = fs::metadata(&path).unwrap().len();
        assert_eq!((len % BUFFER as u64, len), (0, fs::metadata(&path).unwrap().len()));
    }
}
