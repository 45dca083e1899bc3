//! Every reader of outside data, on its seeds and on 1,000 mutations of each: no panic, no hang, memory within a bound, and what
//! is accepted passes the check of a dataset.
//!
//! `fuzz/README.md` says how to run more of them.

#[path = "../../fuzz/src/counting.rs"]
mod counting;
#[path = "../../fuzz/src/imports.rs"]
mod imports;
#[path = "../../fuzz/src/mutate.rs"]
#[allow(unreachable_pub, reason = "the crate of the fuzz targets exports it")]
mod mutate;
#[path = "../../fuzz/src/readers.rs"]
#[allow(unreachable_pub, reason = "the crate of the fuzz targets exports it")]
mod readers;
#[path = "../../fuzz/src/sandbox.rs"]
#[allow(unreachable_pub, reason = "the crate of the fuzz targets exports it")]
mod sandbox;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use counting::PEAK;
use mutate::{Random, mutated};
use readers::{READERS, Reader};
use sandbox::Outcome;

const MUTATIONS: usize = 1_000;
/// Bytes that two inputs at a time may take: an import's budget is 1 MiB.
const MEMORY: usize = 256 << 20;
/// An input that takes longer hangs: most take less than a millisecond.
const HANG: Duration = Duration::from_secs(60);

/// The input being read: since when, its reader and its bytes.
type Current = Mutex<Option<(Instant, &'static str, Vec<u8>)>>;

/// Ends the process where an input hangs; a thread cannot be ended.
fn watch(current: &[Current], done: &AtomicUsize) {
    while done.load(Relaxed) < current.len() {
        thread::sleep(Duration::from_millis(100));
        for current in current {
            let current = current.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, reader, input)) = current.as_ref().filter(|(since, ..)| since.elapsed() > HANG) {
                #[allow(clippy::print_stderr, reason = "the process ends")]
                {
                    eprintln!("{reader} hangs at {}", input.escape_ascii());
                }
                std::process::abort();
            }
        }
    }
}

/// Reads the seeds, which are all accepted, and the mutations.
fn replay(reader: &'static Reader, current: &Current) {
    let (sandbox, seeds) = (reader.sandbox(), reader.seeds());
    let read = |what: &str, input: &[u8]| {
        *current.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), reader.name, input.to_vec()));
        let read = catch_unwind(AssertUnwindSafe(|| reader.read(&sandbox, input)));
        *current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let peak = PEAK.load(Relaxed);
        assert!(peak < MEMORY, "{} {what}: {peak} bytes for {}", reader.name, input.escape_ascii());
        read.unwrap_or_else(|_| panic!("{} {what}: panics at {}", reader.name, input.escape_ascii()))
    };
    for (i, seed) in seeds.iter().enumerate() {
        assert_eq!(read(&format!("seed {i}"), seed), Outcome::Accepted, "{} seed {i}", reader.name);
    }
    let mut accepted = 0;
    for i in 0..MUTATIONS {
        let input = mutated(&mut Random(i as u64), &seeds, reader.tokens);
        accepted += usize::from(read(&format!("mutation {i}"), &input) == Outcome::Accepted);
    }
    // Mutations that are all refused, or none of them, would test little.
    assert!((1..MUTATIONS).contains(&accepted), "{}: {accepted} of {MUTATIONS} accepted", reader.name);
}

/// One test, since the counters are the process's.
#[test]
fn seeds_and_mutations_of_every_reader() {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(4);
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let current: Vec<Current> = (0..threads).map(|_| Mutex::new(None)).collect();
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for current in &current {
            scope.spawn(|| {
                while let Some(reader) = READERS.get(next.fetch_add(1, Relaxed)) {
                    if let Err(failure) = catch_unwind(AssertUnwindSafe(|| replay(reader, current))) {
                        let text = failure.downcast_ref::<String>().cloned().unwrap_or_else(|| reader.name.to_string());
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                    }
                }
                done.fetch_add(1, Relaxed);
            });
        }
        watch(&current, &done);
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
