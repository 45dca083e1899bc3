//! Stopping a command: by Ctrl-C, and on Unix by the SIGTERM of job schedulers and the SIGHUP of a lost terminal.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use morphgl_platform::discard_unfinished;

use super::last_words;
use crate::Stop;

/// Handler of a stop request, called with the exit status of its signal.
type Action = Box<dyn Fn(u8) + Send>;

/// What signals have asked this process, and what they do.
struct Interrupt {
    /// `None` ends the process at once.
    action: Mutex<Option<Action>>,
    /// Exit status of the last signal; 0 before any.
    status: AtomicU8,
    is_ending: AtomicBool,
}

/// A signal's handler is given nothing: what it says and does is the process's.
static INTERRUPT: Interrupt =
    Interrupt { action: Mutex::new(None), status: AtomicU8::new(0), is_ending: AtomicBool::new(false) };

/// The exit statuses of commands that Ctrl-C and SIGTERM ended.
const CTRL_C: u8 = 130;
const TERM: u8 = 143;

/// A SIGTERM so long after the one before is another request: `timeout` signals the process and then its group.
const AGAIN: Duration = Duration::from_secs(1);

/// From now on, signals request `stop`; a Ctrl-C or a SIGTERM after that ends the process at once.
pub(crate) fn heed(stop: &Stop) {
    let requested = stop.clone();
    let first = OnceLock::new();
    let action = move |status| {
        // A second request does not wait for the running mini-batch. A terminal and its shell each send a SIGHUP.
        let is_second = match status {
            CTRL_C => requested.is_requested(),
            TERM => first.get().is_some_and(|first: &Instant| first.elapsed() >= AGAIN),
            _ => false,
        };
        if is_second {
            end(status);
        }
        first.get_or_init(Instant::now);
        requested.request();
    };
    *INTERRUPT.action.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
}

/// The exit status of the signal that asked this command to stop.
pub(crate) fn status() -> Option<u8> {
    Some(INTERRUPT.status.load(Ordering::SeqCst)).filter(|&status| status != 0)
}

/// Whether a signal has asked this command to stop.
pub(crate) fn is_requested() -> bool {
    status().is_some()
}

/// Does not return if a signal is ending the process: what the command says then is about files that are being removed.
pub(crate) fn wait_if_ending() {
    while INTERRUPT.is_ending.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

fn handle(status: u8) {
    INTERRUPT.status.store(status, Ordering::SeqCst);
    match &*INTERRUPT.action.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(action) => action(status),
        None => end(status),
    }
}

/// Removes outputs that are not finished, says that the command was interrupted, and ends the process.
fn end(status: u8) -> ! {
    INTERRUPT.is_ending.store(true, Ordering::SeqCst);
    discard_unfinished();
    last_words::end(status, format_args!("interrupted; outputs that were not finished are as they were"))
}

/// From here on, Ctrl-C, SIGTERM and SIGHUP end the command, or ask it to stop; a SIGTERM or SIGHUP that the parent process
/// ignores, as `nohup` does, stays ignored. A file that grows beyond `ulimit -f` is an error of its write. Must be called before other threads start: they inherit the signal mask.
pub(crate) fn listen() -> anyhow::Result<()> {
    #[cfg(unix)]
    listen_unix()?;
    let set = ctrlc::set_handler(|| handle(CTRL_C)).map_err(|e| match e {
        ctrlc::Error::System(e) => e.into(),
        e => anyhow::Error::new(e),
    });
    set.context("no thread can be started for signals")
}

#[cfg(unix)]
fn listen_unix() -> anyhow::Result<()> {
    use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
    // SAFETY: no handler is installed.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn)? };
    let ignored = ignored();
    let handled = [Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|&s| ignored >> (s as i32 - 1) & 1 == 0);
    let signals: SigSet = handled.collect();
    if signals == SigSet::empty() {
        return Ok(());
    }
    signals.thread_block()?;
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            handle(128 + signal as u8);
        }
    };
    let started = std::thread::Builder::new().name("signals".into()).spawn(wait);
    started.map(drop).context("no thread can be started for signals")
}

/// Bit mask of the signals this process inherited as ignored; SIGHUP where the system does not report it.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(1)
}
