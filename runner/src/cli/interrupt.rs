//! What stops a command: Ctrl-C, and on Unix the SIGTERM of job schedulers and the SIGHUP of a lost terminal.

use std::path::PathBuf;
use std::process::exit;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Stop;

/// What is done when a stop is asked for, by the exit status that says who asked.
type Action = Box<dyn Fn(i32) + Send>;

static ACTION: Mutex<Option<Action>> = Mutex::new(None);
static STOP: OnceLock<Stop> = OnceLock::new();

/// The exit status of a command that Ctrl-C ended.
const CTRL_C: i32 = 130;

/// The flag that a stop sets; a Ctrl-C after that ends the program at once.
///
/// # Errors
///
/// The system refuses the handler.
pub(crate) fn stop() -> anyhow::Result<Stop> {
    if let Some(stop) = STOP.get() {
        return Ok(stop.clone());
    }
    let stop = STOP.get_or_init(Stop::new).clone();
    let asked = stop.clone();
    act(move |status| {
        // Who presses twice does not want to wait for the mini-batch under way. A second SIGTERM is no such wish:
        // `timeout` sends one to the process and one to its group, a terminal and its shell each send a SIGHUP.
        if status == CTRL_C && asked.is_requested() {
            exit(status);
        }
        asked.request();
    })?;
    Ok(stop)
}

/// When a stop is asked for, removes this directory and ends the process.
///
/// # Errors
///
/// The system refuses the handler.
pub(crate) fn remove(unfinished: PathBuf) -> anyhow::Result<()> {
    act(move |status| {
        // Other threads write on for a moment and may add a file to what is being removed; then it is removed again.
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
    Ok(ctrlc::set_handler(|| asked(CTRL_C))?)
}

fn asked(status: i32) {
    match &*ACTION.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(action) => action(status),
        None => exit(status),
    }
}

/// From here on, SIGTERM and SIGHUP do as Ctrl-C does; one that whoever started the process ignores, as `nohup` does,
/// stays ignored. To be called while there is no other thread: those to come inherit that the signals wait for one alone.
///
/// # Errors
///
/// The system refuses the mask or the thread.
#[cfg(unix)]
pub(crate) fn listen() -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let ignored = ignored();
    let heard = [Signal::SIGTERM, Signal::SIGHUP].into_iter().filter(|&s| ignored >> (s as i32 - 1) & 1 == 0);
    let signals: SigSet = heard.collect();
    if signals == SigSet::empty() {
        return Ok(());
    }
    signals.thread_block()?;
    let wait = move || {
        while let Ok(signal) = signals.wait() {
            asked(128 + signal as i32);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait)?;
    Ok(())
}

/// The signals this process was started to ignore, as bits. Where the system does not tell, SIGHUP is left alone.
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
