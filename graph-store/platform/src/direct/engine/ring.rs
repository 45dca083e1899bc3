//! Reads by io_uring. The only module that passes memory to the kernel.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, opcode, types};

use super::{IoEngine, Method};
use crate::Pages;
use crate::direct::file::DirectFile;

/// Reads per slot before the slots are registered, which faults in and pins every page of them: a reader of few reads is spared that.
const READS_PER_SLOT: usize = 4;

/// A ring and the buffers of its reads.
pub(crate) struct Ring {
    // Dropped before the slots, and only after every read in flight has completed: see `Drop`.
    ring: IoUring,
    // Invariant: no slot is ever resized, so that its memory keeps its address; and while `files[slot]` is `Some`, the
    // kernel may write to `slots[slot]`, which is neither read nor freed.
    slots: Vec<Pages>,
    /// The file of each read in flight, kept open until the read completes.
    files: Vec<Option<DirectFile>>,
    /// Whether the slots are registered: their pages stay pinned, so no read has to pin them again.
    registered: bool,
    /// Reads until the slots are registered; `None` when that was tried.
    reads_before: Option<usize>,
    /// Reads pushed and not yet submitted.
    queued: usize,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} slots, registered: {})", self.slots.len(), self.registered)
    }
}

impl Ring {
    pub(crate) fn new(depth: usize, slot_bytes: usize) -> io::Result<Self> {
        let entries = u32::try_from(depth.next_power_of_two()).map_err(io::Error::other)?;
        // Cooperative task running: completions are polled only while waiting, so no interrupts are needed.
        let ring = IoUring::builder().setup_coop_taskrun().build(entries).or_else(|_| IoUring::new(entries))?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let slots = (0..depth).map(|_| Pages::zeroed(slot_bytes)).collect::<io::Result<Vec<Pages>>>()?;
        let files = (0..depth).map(|_| None).collect();
        Ok(Self { ring, slots, files, registered: false, reads_before: Some(READS_PER_SLOT * depth), queued: 0 })
    }

    /// Registers the slots, reads in flight or not. Fails where the process may not pin so much memory; each read then pins its own
    /// pages.
    fn register(&mut self) {
        let vectors: Vec<libc::iovec> = self
            .slots
            .iter_mut()
            .map(|slot| libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() })
            .collect();
        // SAFETY: the slots keep their addresses, and are dropped only after the ring (or the kernel keeps their pages).
        self.registered = unsafe { self.ring.submitter().register_buffers(&vectors) }.is_ok();
    }

    fn submit(&mut self, wait: usize) -> io::Result<()> {
        loop {
            match self.ring.submit_and_wait(wait) {
                Ok(_) => {
                    self.queued = 0;
                    return Ok(());
                }
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                // The kernel's queue is full: reads in flight complete on their own.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => std::thread::yield_now(),
                Err(e) => return Err(e),
            }
        }
    }
}

impl IoEngine for Ring {
    fn method(&self) -> Method {
        Method::Ring
    }

    fn start(&mut self, slot: usize, file: &DirectFile, offset: u64, len: usize) {
        assert!(self.files[slot].is_none(), "slot {slot} is free");
        if let Some(reads) = self.reads_before {
            self.reads_before = reads.checked_sub(1);
            if self.reads_before.is_none() {
                self.register();
            }
        }
        let bytes = &mut self.slots[slot];
        assert!(len <= bytes.len(), "{len} bytes fit into a slot of {}", bytes.len());
        let (fd, len) = (types::Fd(file.file().as_raw_fd()), len as u32);
        let read = match self.registered {
            true => opcode::ReadFixed::new(fd, bytes.as_mut_ptr(), len, slot as u16).offset(offset).build(),
            false => opcode::Read::new(fd, bytes.as_mut_ptr(), len).offset(offset).build(),
        };
        self.files[slot] = Some(file.clone());
        // SAFETY: while `files[slot]` is `Some`, the slot's memory is neither read nor freed, and the file stays open.
        let pushed = unsafe { self.ring.submission().push(&read.user_data(slot as u64)) };
        pushed.expect("the queue has an entry per slot");
        self.queued += 1;
    }

    fn wait(&mut self) -> (usize, io::Result<usize>) {
        loop {
            if let Some(done) = self.ring.completion().next() {
                let slot = done.user_data() as usize;
                self.files[slot] = None;
                let read = usize::try_from(done.result()).map_err(|_| io::Error::from_raw_os_error(-done.result()));
                return (slot, read);
            }
            // Any other error of the ring is a bug in its use.
            self.submit(1).unwrap_or_else(|e| panic!("io_uring takes no more reads: {e}"));
        }
    }

    fn bytes(&self, slot: usize) -> &[u8] {
        assert!(self.files[slot].is_none(), "slot {slot} is free");
        &self.slots[slot]
    }

    fn bytes_mut(&mut self, slot: usize) -> &mut [u8] {
        assert!(self.files[slot].is_none(), "slot {slot} is free");
        &mut self.slots[slot]
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Memory that the kernel may still write to is never freed.
        while self.files.iter().any(Option::is_some) {
            if self.ring.completion().next().map(|done| self.files[done.user_data() as usize] = None).is_none()
                && self.submit(1).is_err()
            {
                self.slots.drain(..).for_each(std::mem::forget);
                return;
            }
        }
    }
}
