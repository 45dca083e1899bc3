//! Reads by blocking threads.

use std::io;
use std::thread::{Builder, JoinHandle};

use crossbeam::channel::{Receiver, Sender, unbounded};

use super::{IoEngine, Method};
use crate::Pages;
use crate::direct::file::DirectFile;

/// Maximum threads; more do not make reads faster.
const MOST_THREADS: usize = 32;

/// Threads, and the slots that are sent to them and back.
#[derive(Debug)]
pub(crate) struct Pool {
    /// `None` while a read into the slot is in flight.
    slots: Vec<Option<Pages>>,
    /// `None` once the threads are to end.
    jobs: Option<Sender<Job>>,
    done: Receiver<Done>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Job {
    slot: usize,
    file: DirectFile,
    offset: u64,
    len: usize,
    buffer: Pages,
}

#[derive(Debug)]
struct Done {
    slot: usize,
    buffer: Pages,
    read: io::Result<usize>,
}

impl Pool {
    pub(crate) fn new(depth: usize, slot_bytes: usize) -> io::Result<Self> {
        let (jobs, taken) = unbounded::<Job>();
        let (finished, done) = unbounded();
        let mut pool = Self {
            slots: (0..depth).map(|_| Pages::zeroed(slot_bytes).map(Some)).collect::<io::Result<_>>()?,
            jobs: Some(jobs),
            done,
            threads: Vec::new(),
        };
        for i in 0..depth.min(MOST_THREADS) {
            let (taken, finished) = (taken.clone(), finished.clone());
            let work = move || {
                for Job { slot, file, offset, len, mut buffer } in taken {
                    let read = file.read(offset, &mut buffer[..len]);
                    if finished.send(Done { slot, buffer, read }).is_err() {
                        break;
                    }
                }
            };
            pool.threads.push(Builder::new().name(format!("read-{i}")).spawn(work)?);
        }
        Ok(pool)
    }
}

impl IoEngine for Pool {
    fn method(&self) -> Method {
        Method::Threads
    }

    fn start(&mut self, slot: usize, file: &DirectFile, offset: u64, len: usize) {
        let buffer = self.slots[slot].take().expect("a read is started into a free slot");
        let job = Job { slot, file: file.clone(), offset, len, buffer };
        let jobs = self.jobs.as_ref().expect("the threads run as long as the pool exists");
        jobs.send(job).expect("the threads run as long as the pool exists");
    }

    fn wait(&mut self) -> (usize, io::Result<usize>) {
        let Done { slot, buffer, read } = self.done.recv().expect("a thread that took a job sends it back");
        self.slots[slot] = Some(buffer);
        (slot, read)
    }

    fn bytes(&self, slot: usize) -> &[u8] {
        self.slots[slot].as_ref().expect("the slot is free")
    }

    fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        self.slots[slot].as_mut().expect("the slot is free")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread does not panic: reading and sending are all it does.
            let _ = thread.join();
        }
    }
}
