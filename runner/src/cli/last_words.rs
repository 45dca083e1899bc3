//! The end of a process that may be out of memory, or hang with locks held.

use std::fmt;
use std::io::{Cursor, IsTerminal, Write};

/// Maximum bytes of the line.
const LINE: usize = 512;

/// Writes `error: ` and a line to stderr, and ends the process with `status`. It takes no memory and no lock, for another thread
/// may hold them for ever; a stderr that takes no more is left out.
pub(crate) fn end(status: u8, line: fmt::Arguments<'_>) -> ! {
    let mut buffer = Cursor::new([0; LINE]);
    // Replaces the line of a progress bar.
    let start = if std::io::stderr().is_terminal() { "\r\x1b[2K" } else { "" };
    // A line that is too long is cut.
    let _ = writeln!(buffer, "{start}error: {line}");
    let length = buffer.position() as usize;
    write_and_exit(status, &buffer.into_inner()[..length])
}

#[cfg(unix)]
fn write_and_exit(status: u8, line: &[u8]) -> ! {
    use nix::libc;
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor is polled, and `length` bytes of the line are read; neither call keeps what it was given.
    unsafe {
        if libc::poll(&raw mut stderr, 1, 0) == 1 {
            libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        }
        libc::_exit(status.into())
    }
}

#[cfg(not(unix))]
fn write_and_exit(status: u8, line: &[u8]) -> ! {
    let _ = std::io::stderr().write_all(line);
    std::process::exit(status.into())
}

/// Ends a process whose allocator has no memory, for the global allocators of binaries: the standard library would print a stack
/// on request, for which it allocates once more, and wait for itself.
pub fn out_of_memory(bytes: usize) -> ! {
    end(
        1,
        format_args!(
            "out of memory: the system refuses {bytes} bytes more; free some, raise the limit (ulimit -v, -d, or the \
             container's), or give less --memory"
        ),
    )
}

/// From here on a thread that the system refuses ends the process with one line, wherever it was to be started: the standard
/// library and rayon panic.
pub(crate) fn name_refused_threads() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str().is_some_and(is_refused_thread) {
            morphgl_platform::discard_unfinished();
            end(1, format_args!("no thread can be started: {}", thread_cure()));
        }
        print(panic);
    }));
}

/// Whether a panic quotes the system's refusal of a thread, as `Debug` has it.
fn is_refused_thread(text: &str) -> bool {
    text.contains("thread") && text.contains("kind: WouldBlock")
}

fn thread_cure() -> &'static str {
    #[cfg(unix)]
    let refused = std::io::Error::from_raw_os_error(nix::libc::EAGAIN);
    #[cfg(not(unix))]
    let refused = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
    morphgl_platform::limit_cure(&refused).unwrap_or("end other programs")
}
