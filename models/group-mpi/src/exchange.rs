//! Collectives of a group whose trainers are the ranks of an MPI run.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use morphgl_group::{Exchange, GroupError, ReadRows, Result};

use crate::reason::{decode, encode};
use crate::rows::{Exposed, SingleRank};
use crate::wire::{Pause, Receiving, Sending, SharedWire, Tag, Wire};

/// How long a rank that leaves waits for its message to be on its way.
const LEAVING: Duration = Duration::from_millis(200);

/// `u32` words before the values of a message: the number of values that its sender adds, low word first.
const HEADER: usize = 2;

/// This process's end of a group of all ranks of an MPI run. There is one per process.
///
/// Dropping it neither notifies the other ranks nor ends the MPI library: call [`MpiExchange::end`] last.
pub struct MpiExchange {
    wire: SharedWire,
    rank: usize,
    size: usize,
    host: String,
    /// The rows that others read.
    rows: Option<Exposed>,
    limit: Duration,
    sent: u64,
    /// The first failure: this rank takes part in no exchange any more.
    failed: Option<GroupError>,
    /// Whether the failure has been reported to the other ranks, or need not be.
    reported: bool,
    /// Whether MPI is finalized.
    ended: bool,
    /// Called while an exchange waits, about every 200 µs, with the ranks that it waits for.
    waiting: Option<Waiting>,
}

/// Hook that is called with the ranks that an exchange waits for.
type Waiting = Box<dyn FnMut(&[usize]) + Send>;

/// Messages to and from one other rank in an exchange.
struct Swap<T: Pod> {
    to: Sending,
    from: Option<Receiving<T>>,
    received: Option<Vec<T>>,
}

impl MpiExchange {
    /// Initializes MPI, and joins the group of all ranks. A rank that does not come to an exchange within `limit` ends it.
    ///
    /// # Errors
    ///
    /// MPI is initialized already, or lacks `MPI_THREAD_SERIALIZED`.
    pub fn start(limit: Duration) -> Result<Self> {
        let wire = Wire::start()?;
        let (rank, size, host) = (wire.rank, wire.size, wire.host.clone());
        let wire = SharedWire::new(wire);
        let (rows, failed, waiting) = (None, None, None);
        Ok(Self { wire, rank, size, host, rows, limit, sent: 0, failed, reported: false, ended: false, waiting })
    }

    /// The name of this machine, as MPI knows it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Exposes this rank's `rows` of `row_bytes` bytes each to reads of the others, and returns what reads theirs. All ranks make
    /// the call, once.
    ///
    /// A thread answers reads while this rank computes, about every 500 µs.
    ///
    /// # Errors
    ///
    /// A rank does not come in time, or the library fails.
    pub fn expose(&mut self, rows: Arc<Vec<u8>>, row_bytes: usize) -> Result<Box<dyn ReadRows>> {
        // Open MPI 4.1 has no windows of a single process.
        if self.size == 1 {
            return Ok(Box::new(SingleRank));
        }
        // The library's call waits for all ranks without a limit: see first that all are there.
        let has_rows = self.all_gather(&[u8::from(!rows.is_empty())])?;
        let exposed = Exposed::new(&self.wire, rows)?;
        let reader = exposed.reader(&self.wire, row_bytes, self.limit);
        // Over TCP the first read from a rank blocks within the library, beyond any limit, until that rank answers. So make it now,
        // while all ranks answer; a read of zero rows would not block, and would leave that to the next one.
        let owners: Vec<usize> = self.others().filter(|&rank| has_rows[rank] == [1]).collect();
        let mut first_rows = vec![0; owners.len() * row_bytes];
        let mut reads: Vec<(usize, &[u32], &mut [u8])> = owners
            .iter()
            .zip(first_rows.chunks_mut(row_bytes.max(1)))
            .map(|(&rank, row)| (rank, &[0][..], row))
            .collect();
        reader.read(&mut reads)?;
        self.all_gather(&[])?;
        self.rows = Some(exposed);
        Ok(Box::new(reader))
    }

    /// Sets the time limit.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// Sets what is called while an exchange waits, with the ranks it waits for.
    pub fn on_wait(&mut self, waiting: impl FnMut(&[usize]) + Send + 'static) {
        self.waiting = Some(Box::new(waiting));
    }

    /// Ends this rank's part in the MPI run, when it has printed what it has to say; `status` is its exit status. Waits until
    /// all others are there too. Where one does not come in time, or has been late before, all processes of the run are
    /// ended, this one included.
    ///
    /// By the thread that called [`MpiExchange::start`]. A second call does nothing; exchanges after it are errors.
    pub fn end(&mut self, status: u8) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let late = match &self.failed {
            Some(GroupError::Late { ranks, .. }) => ranks.clone(),
            _ => Vec::new(),
        };
        match self.await_others(&late) {
            Ok(true) if late.is_empty() => {
                // What fails now fails for all, and nothing is lost by it.
                let _ = self.rows.take().map(|rows| rows.close(&self.wire));
                self.wire.lock().finalize();
            }
            _ => self.wire.lock().abort(if status == 0 { 1 } else { status }),
        }
        self.failed = Some(GroupError::Engine("the MPI run has ended".to_string()));
    }

    /// Waits until all other ranks but the `late` ones have called [`MpiExchange::end`]; whether they have in time.
    fn await_others(&mut self, late: &[usize]) -> Result<bool> {
        let others: Vec<usize> = self.others().filter(|rank| !late.contains(rank)).collect();
        let nothing = Arc::new(Vec::<u8>::new());
        let mut sending = Vec::new();
        for &rank in &others {
            sending.push(self.wire.lock().send(rank, Tag::Done, &nothing, 0..0)?);
        }
        let mut absent = others;
        let mut receiving = Vec::new();
        let mut pause = Pause::new();
        let deadline = Instant::now() + self.limit;
        loop {
            let mut still = Vec::new();
            for rank in absent {
                let arrived = self.wire.lock().arrived(Some(rank), Tag::Done)?;
                match arrived {
                    Some((_, bytes)) => receiving.push(self.wire.lock().receive::<u8>(rank, Tag::Done, bytes)?),
                    None => still.push(rank),
                }
            }
            absent = still;
            let mut pending = !absent.is_empty();
            for message in &mut sending {
                pending |= !message.is_done(&mut self.wire.lock())?;
            }
            let mut left = Vec::new();
            for mut message in receiving {
                if message.take(&mut self.wire.lock())?.is_none() {
                    left.push(message);
                }
            }
            receiving = left;
            if !pending && receiving.is_empty() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            pause.sleep();
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.size).filter(move |&rank| rank != own)
    }

    /// Runs an exchange unless one has failed; its failure is that of all further ones.
    fn exchange<R>(&mut self, exchange: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let done = exchange(self);
        if let Err(error) = &done {
            self.fail(error.clone());
        }
        done
    }

    /// Takes part in no exchange any more. The failure is reported to the others, unless they find the same.
    fn fail(&mut self, error: GroupError) {
        if matches!(error, GroupError::Late { .. } | GroupError::Engine(_)) {
            self.report(&error);
        } else {
            self.reported = true;
        }
        self.failed = Some(error);
    }

    /// Sends a part of `content` to every other rank, and receives one message from each: by rank, with this one's own empty.
    fn swap<T: Pod + Send + Sync>(
        &mut self,
        tag: Tag,
        content: Vec<T>,
        part: impl Fn(usize) -> Range<usize>,
    ) -> Result<Vec<Vec<T>>> {
        let content = Arc::new(content);
        let mut swaps: Vec<Option<Swap<T>>> = (0..self.size).map(|_| None).collect();
        for rank in self.others() {
            let to = self.wire.lock().send(rank, tag, &content, part(rank))?;
            self.sent += to.bytes;
            swaps[rank] = Some(Swap { to, from: None, received: None });
        }
        let deadline = Instant::now() + self.limit;
        let mut pause = Pause::new();
        loop {
            let mut absent = Vec::new();
            for (rank, swap) in swaps.iter_mut().enumerate() {
                if let Some(swap) = swap
                    && !swap.advance(&mut self.wire.lock(), rank, tag)?
                {
                    absent.push(rank);
                }
            }
            if absent.is_empty() {
                let received = |swap: Option<Swap<T>>| swap.and_then(|swap| swap.received).unwrap_or_default();
                return Ok(swaps.into_iter().map(received).collect());
            }
            // After what has arrived: a rank may leave after it has sent its part.
            self.check_departures()?;
            if Instant::now() >= deadline {
                return Err(GroupError::Late { ranks: absent, limit: self.limit });
            }
            if let Some(waiting) = &mut self.waiting {
                waiting(&absent);
            }
            pause.sleep();
        }
    }

    /// Returns the reason of a rank that has left as an error.
    fn check_departures(&mut self) -> Result<()> {
        let Some((rank, bytes)) = self.wire.lock().arrived(None, Tag::Left)? else { return Ok(()) };
        let mut message = self.wire.lock().receive::<u8>(rank, Tag::Left, bytes)?;
        let deadline = Instant::now() + self.limit;
        let mut pause = Pause::new();
        while Instant::now() < deadline {
            if let Some(content) = message.take(&mut self.wire.lock())? {
                return Err(decode(rank, &content));
            }
            pause.sleep();
        }
        Err(GroupError::Left { rank, why: "its reason has not arrived".to_string() })
    }

    /// Reports a failure to all other ranks, as far as that is possible at once.
    fn report(&mut self, error: &GroupError) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        let content = Arc::new(encode(error));
        let mut messages: Vec<Sending> = Vec::new();
        for rank in self.others() {
            messages.extend(self.wire.lock().send(rank, Tag::Left, &content, 0..content.len()));
        }
        let deadline = Instant::now() + LEAVING;
        let mut pause = Pause::new();
        while messages.iter_mut().any(|m| !m.is_done(&mut self.wire.lock()).unwrap_or(true))
            && Instant::now() < deadline
        {
            pause.sleep();
        }
    }
}

impl<T: Pod> Swap<T> {
    /// Whether both messages are done.
    fn advance(&mut self, wire: &mut Wire, rank: usize, tag: Tag) -> Result<bool> {
        if self.received.is_none() && self.from.is_none() {
            let arrived = wire.arrived(Some(rank), tag)?;
            self.from = arrived.map(|(_, bytes)| wire.receive(rank, tag, bytes)).transpose()?;
        }
        if let Some(from) = &mut self.from
            && let Some(content) = from.take(wire)?
        {
            (self.received, self.from) = (Some(content), None);
        }
        Ok(self.to.is_done(wire)? && self.received.is_some())
    }
}

/// The part of `len` values that rank `rank` of `size` adds.
fn part(len: usize, rank: usize, size: usize) -> Range<usize> {
    len * rank / size..len * (rank + 1) / size
}

impl Exchange for MpiExchange {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange(|this| {
            let mut all = this.swap(Tag::Gather, mine.to_vec(), |_| 0..mine.len())?;
            all[this.rank] = mine.to_vec();
            Ok(all)
        })
    }

    /// Reduce-scatter, then all-gather: two messages to every other rank, each of `n / size` values.
    fn all_reduce(&mut self, values: &mut [f32]) -> Result<()> {
        self.exchange(|this| {
            let (rank, size) = (this.rank, this.size);
            let len = values.len();
            let part = |rank| part(len, rank, size);
            // Every part has its own header, as each is a message.
            let count = [values.len() as u32, (values.len() as u64 >> 32) as u32];
            let mut pieces = Vec::with_capacity(values.len() + HEADER * size);
            for rank in 0..size {
                pieces.extend_from_slice(&count);
                pieces.extend(values[part(rank)].iter().map(|value| value.to_bits()));
            }
            let at = |rank: usize| part(rank).start + HEADER * rank..part(rank).end + HEADER * (rank + 1);
            let pieces = this.swap(Tag::Values, pieces, at)?;
            let length = |other: usize| match other == rank {
                true => values.len(),
                false => pieces[other].iter().take(HEADER).rev().fold(0, |sum, &word| sum << 32 | word as usize),
            };
            let lengths: Vec<usize> = (0..size).map(length).collect();
            if let Some(rank) = (0..size).find(|&rank| lengths[rank] != lengths[0]) {
                let what =
                    format!("it adds {} values, trainer 0 {}; give all the same model", lengths[rank], lengths[0]);
                return Err(GroupError::Differs { rank, what });
            }
            let own = part(rank);
            let mut sums: Vec<f32> = vec![0.0; own.len()];
            for (other, piece) in pieces.iter().enumerate() {
                let add = |(i, sum): (usize, &mut f32)| {
                    let value = if other == rank { values[own.start + i] } else { f32::from_bits(piece[HEADER + i]) };
                    *sum = if other == 0 { value } else { *sum + value };
                };
                sums.iter_mut().enumerate().for_each(add);
            }
            values[own.clone()].copy_from_slice(&sums);
            let sums = this.swap(Tag::Sums, sums, |_| 0..own.len())?;
            for (other, sums) in sums.iter().enumerate().filter(|(other, _)| *other != rank) {
                let added = part(other);
                if sums.len() != added.len() {
                    let what = format!("it sends {} sums of {}", sums.len(), added.len());
                    return Err(GroupError::Differs { rank: other, what });
                }
                values[added].copy_from_slice(sums);
            }
            Ok(())
        })
    }

    fn bytes_sent(&self) -> u64 {
        self.sent
    }

    fn leave(&mut self, why: &str) {
        if self.failed.is_none() {
            self.report(&GroupError::Engine(why.to_string()));
            self.failed = Some(GroupError::Left { rank: self.rank, why: why.to_string() });
        }
    }
}

impl fmt::Debug for MpiExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiExchange(rank {} of {} on {})", self.rank, self.size, self.host)
    }
}
