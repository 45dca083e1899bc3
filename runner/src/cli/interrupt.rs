//! Stopping a command: by Ctrl-C, and on Unix by the SIGTERM of job schedulers and the SIGHUP of a lost terminal.

use std::path::PathBuf;
use std::process::exit;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Stop;

/// Handler of a stop request, called with the exit status of its signal.
type Action = Box<dyn Fn(i32) + Send>;

static ACTION: Mutex<Option<Action>> = Mutex::new(None);
static STOP: OnceLock<Stop> = OnceLock::new();

/// The exit status of a command that Ctrl-C ended.
const CTRL_C: i32 = 130;

/// The flag that a stop sets; a Ctrl-C after that ends the program at once.
pub(crate) fn stop() -> anyhow::Result<Stop> {
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let stop = STOP.get_or_init(Stop::new).clone();
    let requested = stop.clone();
    act(move |status| {
        // A second Ctrl-C does not wait for the running mini-batch. A second SIGTERM or SIGHUP may belong to the first:
        // `timeout` signals the process and its group, a terminal and its shell each send a SIGHUP.
        if status == CTRL_C && requested.is_requested() {
            exit(status);
        }
        requested.request();
    })?;
    Ok(stop)
}

/// Makes a stop request remove this directory and end the process.
pub(crate) fn remove(unfinished: PathBuf) -> anyhow::Result<()> {
    act(move |status| {
        // Other threads may still add files during the removal; then it is repeated.
        for _ in 0..10 {
            if std::fs::remove_dir_all(&unfinished).is_ok() || !unfinished.exists() {
                break;
            }
        }
        exit(status);
    })
}

fn act(action: impl Fn(i32) + Send + 'static) -> anyhow::Result<()> {
    *ACTION.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
    Ok(ctrlc::set_handler(|| handle(CTRL_C))?)
}

fn handle(status: i32) {
    match &*ACTION.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(action) => action(status),
        None => exit(status),
    }
}

/// From here on, SIGTERM and SIGHUP act as Ctrl-C; a signal that the parent process ignores, as `nohup` does, stays ignored.
/// Must be called before other threads start: they inherit the signal mask.
#[cfg(unix)]
pub(crate) fn listen() -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let ignored = ignored();
    let handled = [Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|&s| ignored >> (s as i32 - 1) & 1 == 0);
    let signals: SigSet = handled.collect();
    if signals == SigSet::empty() {
        return Ok(());
    }
    signals.thread_block()?;
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            handle(128 + signal as i32);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// Bit mask of the signals this process inherited as ignored; SIGHUP where the system does not report it.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(1)
}

#[cfg(not(unix))]
pub(crate) fn listen() -> anyhow::Result<()> {
    Ok(())
}
