//! Runs every reader on mutations of its seeds for a given time, on one core, and prints a table.
//!
//!     campaign SECONDS [SEED] [READER…]
//!
//! A fault (a panic, more than a second of processor time, more memory than the bound) is printed with its input, which is kept in `fuzz/faults`.

#[path = "../clock.rs"]
mod clock;
#[path = "../counting.rs"]
mod counting;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use clock::cpu_time;
use counting::{NOW, PEAK};
use morphgl_fuzz::{LIMIT, MEMORY, Outcome, READERS, Random, Reader, mutated, pass_over_decoders};

#[derive(Default)]
struct Tally {
    executions: u64,
    accepted: u64,
    faults: u64,
    slowest: Duration,
    largest: usize,
}

fn main() {
    let mut arguments = env::args().skip(1);
    let number = |text: Option<String>| text.map(|text| text.parse::<u64>().unwrap_or_else(|_| usage()));
    let (seconds, seed) = (number(arguments.next()).unwrap_or_else(|| usage()), number(arguments.next()).unwrap_or(1));
    let named: Vec<String> = arguments.collect();
    let readers: Vec<&Reader> =
        READERS.iter().filter(|r| named.is_empty() || named.iter().any(|n| n == r.name)).collect();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
    one_thread.expect("no pool is built before");
    pass_over_decoders();
    let each = Duration::from_secs(seconds) / readers.len().max(1) as u32;
    println!("| reader | executions | accepted | seconds | a second | slowest | memory | faults |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    let (mut executions, mut faults) = (0, 0);
    for reader in readers {
        let start = Instant::now();
        let tally = run(reader, seed, each);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "| {} | {} | {:.1}% | {seconds:.0} | {:.0} | {:.0} ms | {:.1} MiB | {} |",
            reader.name,
            tally.executions,
            100.0 * tally.accepted as f64 / tally.executions.max(1) as f64,
            tally.executions as f64 / seconds,
            tally.slowest.as_secs_f64() * 1e3,
            tally.largest as f64 / f64::from(1 << 20),
            tally.faults
        );
        executions += tally.executions;
        faults += tally.faults;
    }
    println!("| all | {executions} | | | | | | {faults} |");
    process::exit(i32::from(faults > 0));
}

fn usage() -> ! {
    eprintln!("campaign SECONDS [SEED] [READER…]; readers: {READERS:?}");
    process::exit(2)
}

fn run(reader: &Reader, seed: u64, time: Duration) -> Tally {
    let (sandbox, seeds, mut tally) = (reader.sandbox(), reader.seeds(), Tally::default());
    let end = Instant::now() + time;
    let mut random = Random(seed);
    while Instant::now() < end {
        // Every input is a function of one number, which a fault names.
        let at = random.next();
        let input = mutated(&mut Random(at), &seeds, reader.tokens);
        let (before, start) = (NOW.load(Relaxed), cpu_time());
        PEAK.store(before, Relaxed);
        let read = catch_unwind(AssertUnwindSafe(|| reader.read(&sandbox, &input)));
        let (elapsed, taken) = (cpu_time() - start, PEAK.load(Relaxed) - before);
        tally.executions += 1;
        tally.accepted += u64::from(matches!(read, Ok(Outcome::Accepted)));
        tally.slowest = tally.slowest.max(elapsed);
        tally.largest = tally.largest.max(taken);
        if read.is_err() || elapsed > LIMIT || taken > MEMORY {
            tally.faults += 1;
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults");
            fs::create_dir_all(&dir).expect("room");
            let path = dir.join(format!("{}-{at:016x}", reader.name));
            fs::write(&path, &input).expect("room");
            eprintln!("{}: panicked: {}, {elapsed:?}, {taken} bytes", path.display(), read.is_err());
            // A panic may have left files of an import.
            let _ = fs::remove_dir_all(sandbox.dir.join("imported"));
        }
    }
    tally
}
