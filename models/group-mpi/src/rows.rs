//! Feature rows that ranks read from one another, one-sided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use morphgl_group::{GroupError, ReadRows, Result};

use crate::wire::{Pause, Reading, SharedWire, Window};

/// Interval between the library's answers to reads of other ranks, while this rank makes no other call of it.
const ANSWERS: Duration = Duration::from_micros(500);

/// This rank's rows, which all others may read, and the thread that answers them.
///
/// Over TCP the library answers a read only within some call of it, so without the thread a reader would wait while this rank
/// trains.
#[derive(Debug)]
pub(crate) struct Exposed {
    window: Arc<Window>,
    ended: Arc<AtomicBool>,
    answering: JoinHandle<()>,
}

impl Exposed {
    /// Exposes rows. All ranks have to make the call.
    pub(crate) fn new(wire: &SharedWire, rows: Arc<Vec<u8>>) -> Result<Self> {
        let window = Arc::new(wire.lock().expose(rows)?);
        let ended = Arc::new(AtomicBool::new(false));
        let (wire, flag, rows) = (wire.clone(), Arc::clone(&ended), Arc::clone(&window));
        let answer = move || {
            // Others may read as long as the library answers.
            let _rows = rows;
            while !flag.load(Ordering::Relaxed) && wire.lock().progress().is_ok() {
                thread::sleep(ANSWERS);
            }
        };
        let answering = thread::Builder::new().name("rows for other ranks".to_string()).spawn(answer);
        let answering = answering.map_err(|e| GroupError::Engine(format!("a thread cannot be started: {e}")))?;
        Ok(Self { window, ended, answering })
    }

    /// Reader of the other ranks' rows.
    pub(crate) fn reader(&self, wire: &SharedWire, row_bytes: usize, limit: Duration) -> MpiRows {
        MpiRows { wire: wire.clone(), window: Arc::clone(&self.window), row_bytes, limit }
    }

    /// Withdraws the rows. All ranks have to make the call, after their last read.
    pub(crate) fn close(self, wire: &SharedWire) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.answering.join();
        wire.lock().close(&self.window)
    }
}

/// Reads rows that other ranks expose.
#[derive(Debug)]
pub(crate) struct MpiRows {
    wire: SharedWire,
    window: Arc<Window>,
    row_bytes: usize,
    limit: Duration,
}

impl ReadRows for MpiRows {
    fn read(&self, requests: &mut [(usize, &[u32], &mut [u8])]) -> Result<()> {
        let begin = |(rank, rows, _): &(usize, &[u32], &mut [u8])| {
            self.wire.lock().read(&self.window, *rank, rows, self.row_bytes).map(Some)
        };
        let mut reading: Vec<Option<Reading>> = requests.iter().map(begin).collect::<Result<_>>()?;
        let deadline = Instant::now() + self.limit;
        let mut pause = Pause::new();
        loop {
            let mut absent = Vec::new();
            for ((rank, _, out), slot) in requests.iter_mut().zip(&mut reading) {
                let Some(message) = slot else { continue };
                let read = message.take(&mut self.wire.lock())?;
                match read {
                    Some(rows) => {
                        out.copy_from_slice(&rows);
                        *slot = None;
                    }
                    None => absent.push(*rank),
                }
            }
            if absent.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(GroupError::Late { ranks: absent, limit: self.limit });
            }
            pause.sleep();
        }
    }
}

/// Reader of a single rank, which owns all rows: every request is an error.
#[derive(Debug)]
pub(crate) struct SingleRank;

impl ReadRows for SingleRank {
    fn read(&self, requests: &mut [(usize, &[u32], &mut [u8])]) -> Result<()> {
        let ranks = requests.iter().map(|(rank, ..)| rank.to_string()).collect::<Vec<_>>().join(", ");
        Err(GroupError::Engine(format!("rows of rank {ranks} were requested, and there is a single rank")))
    }
}
