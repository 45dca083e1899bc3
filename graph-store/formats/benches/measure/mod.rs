//! Helpers of the ingest benches: clocks, the disk's limits and the table.
#![allow(dead_code, reason = "each bench uses its part")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use morphgl_formats::Progress;
use morphgl_graph_store::{Error, Meta, Result};

/// Ending of the name of a run whose source is read from the disk.
pub(crate) const COLD: &str = " cold";

/// Arguments of the command line.
pub(crate) struct Arguments {
    pub(crate) edges: u64,
    pub(crate) nodes: u64,
    pub(crate) rounds: usize,
    pub(crate) memory: u64,
    pub(crate) formats: Option<Vec<String>>,
    pub(crate) dir: PathBuf,
    pub(crate) json: bool,
}

impl Arguments {
    pub(crate) fn read() -> Self {
        let all: Vec<String> = std::env::args().skip(1).collect();
        let value = |name: &str| all.iter().position(|a| a == name).and_then(|i| all.get(i + 1));
        let number = |name: &str, default: u64| value(name).map_or(default, |v| v.parse().expect("a whole number"));
        Self {
            edges: number("--edges", 10_000_000),
            nodes: number("--nodes", number("--edges", 10_000_000) / 25),
            rounds: number("--rounds", 5) as usize,
            memory: number("--memory", 2048) << 20,
            formats: value("--formats").map(|f| f.split(',').map(str::to_string).collect()),
            dir: value("--dir").map_or_else(std::env::temp_dir, PathBuf::from),
            json: all.iter().any(|a| a == "--json"),
        }
    }
}

/// One import.
pub(crate) struct Run {
    pub(crate) edges: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) peak_rss: u64,
    /// Bytes of the finished dataset.
    pub(crate) written: u64,
    /// Seconds of each stage, in order.
    pub(crate) stages: Vec<(String, f64)>,
}

/// Runs an import and reads the clocks around it.
pub(crate) fn measured(import: impl FnOnce(&dyn Progress) -> Result<PathBuf>) -> Result<Run> {
    let stages = Stages(Mutex::default());
    // Resets the peak to what is resident now; where the kernel refuses, the peak of earlier imports remains.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let (cpu, start) = (cpu_seconds(), Instant::now());
    let target = import(&stages)?;
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let began = stages.0.into_inner().expect("no stage panics");
    let ends = began.iter().skip(1).map(|s| s.1).chain([Instant::now()]);
    let stages = began.iter().zip(ends).map(|((name, at), end)| (name.clone(), (end - *at).as_secs_f64())).collect();
    let edges = Meta::read(&target)?.num_edges;
    let (peak_rss, written) = (peak_rss(), size(&target));
    Ok(Run { edges, seconds, cpu_seconds, peak_rss, written, stages })
}

struct Stages(Mutex<Vec<(String, Instant)>>);

impl Progress for Stages {
    fn stage(&self, name: &str, _total: Option<u64>) {
        self.0.lock().expect("no stage panics").push((name.into(), Instant::now()));
    }

    fn advance(&self, _n: u64) {}
}

/// User and system time of all threads, ended ones included.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("the kernel reports the times");
    let after_name = stat.rsplit(')').next().expect("the name is in brackets");
    let ticks = |field: usize| -> f64 {
        let text = after_name.split_ascii_whitespace().nth(field).expect("a field of stat");
        text.parse().expect("ticks are a number")
    };
    (ticks(11) + ticks(12)) / 100.0
}

fn peak_rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the kernel reports the peak");
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).expect("the kernel reports the peak");
    line.split_ascii_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") << 10
}

/// Empties the page cache; false where the system does not permit it.
pub(crate) fn forget_files() -> bool {
    // Written pages stay in the cache until they are on the disk.
    let sync = std::process::Command::new("sync").status();
    sync.is_ok_and(|s| s.success()) && fs::write("/proc/sys/vm/drop_caches", "1").is_ok()
}

/// Bytes per second.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Sequential reads past the page cache.
    read: f64,
    /// Sequential writes with a sync at their end.
    write: f64,
    /// Reads from the page cache, on all threads.
    cached: f64,
}

/// Measures the disk and the page cache with a file in `dir`.
pub(crate) fn disk_limits(dir: &Path) -> Limits {
    const SIZE: usize = 512 << 20;
    const BLOCK: usize = 8 << 20;
    let path = dir.join("limit");
    let mut space = vec![1u8; BLOCK + 4096];
    let offset = space.as_ptr().align_offset(4096);
    let block = &mut space[offset..offset + BLOCK];
    let start = Instant::now();
    let mut file = File::create(&path).map_err(|e| Error::io(&path, e)).expect("the disk takes the file");
    for _ in 0..SIZE / BLOCK {
        file.write_all(block).expect("the disk takes the file");
    }
    file.sync_all().expect("the disk takes a sync");
    let rate = |start: Instant| SIZE as f64 / start.elapsed().as_secs_f64();
    let write = rate(start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (mut file, mut block) = (File::open(&path).expect("the file was just written"), vec![0; 1 << 20]);
            scope.spawn(move || {
                let share = SIZE / threads;
                file.seek(SeekFrom::Start((thread * share) as u64)).expect("within the file");
                (0..share / block.len()).for_each(|_| file.read_exact(&mut block).expect("the file was just written"));
            });
        }
    });
    let cached = rate(start);
    let start = Instant::now();
    let mut options = File::options();
    options.read(true);
    #[cfg(target_os = "linux")]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, 0x4000); // O_DIRECT
    let read = options.open(&path).and_then(|mut file| (0..SIZE / BLOCK).try_for_each(|_| file.read_exact(block)));
    // A file system without direct reads has no figure.
    let read = read.map_or(f64::NAN, |()| rate(start));
    fs::remove_file(&path).expect("the file was just written");
    Limits { read, write, cached }
}

/// All runs.
pub(crate) struct Report<'a> {
    arguments: &'a Arguments,
    order: Vec<String>,
    runs: BTreeMap<String, (u64, Vec<Run>)>,
    limits: Vec<Limits>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, order: vec![], runs: BTreeMap::new(), limits: vec![] }
    }

    pub(crate) fn add(&mut self, name: &str, source: &Path, run: Run) {
        if !self.runs.contains_key(name) {
            self.order.push(name.into());
        }
        self.runs.entry(name.into()).or_insert_with(|| (size(source), vec![])).1.push(run);
    }

    pub(crate) fn disk(&mut self, limits: Limits) {
        self.limits.push(limits);
    }

    pub(crate) fn print(&self) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let (read, write, cached) = (self.limit(|l| l.read), self.limit(|l| l.write), self.limit(|l| l.cached));
        if !self.arguments.json {
            println!(
                "{threads} threads, memory {} MiB, disk read {read:.0} MB/s, write {write:.0} MB/s, \
                 page cache read {cached:.0} MB/s (medians)",
                self.arguments.memory >> 20
            );
            println!(
                "{:<23} {:>8} {:>22} {:>10} {:>22} {:>6} {:>8} {:>24} {:>15} {:>11}  stages (s)",
                "format",
                "edges M",
                "M edges/s (min-max)",
                "source MB/s",
                "M/s per core (min-max)",
                "CPU s",
                "peak MiB",
                "wall s (min-max)",
                "limit s sum/max",
                "share of it"
            );
        }
        for name in &self.order {
            let (bytes, runs) = &self.runs[name];
            let edges = runs[0].edges as f64 / 1e6;
            let rate = spread(runs.iter().map(|r| edges / r.seconds));
            let core = spread(runs.iter().map(|r| edges / r.cpu_seconds));
            let cpu = spread(runs.iter().map(|r| r.cpu_seconds)).1;
            let source = *bytes as f64 / 1e6 / edges * rate.1;
            let peak = runs.iter().map(|r| r.peak_rss).max().unwrap_or(0);
            // Seconds of reading the source and writing the dataset, one after the other and at the same time.
            let from = if name.ends_with(COLD) { read } else { cached };
            let (reading, writing) = (*bytes as f64 / 1e6 / from, runs[0].written as f64 / 1e6 / write);
            let (serial, parallel) = (reading + writing, reading.max(writing));
            let seconds = spread(runs.iter().map(|r| r.seconds));
            if self.arguments.json {
                let all: Vec<String> = runs.iter().map(|r| format!("{:.4}", edges / r.seconds)).collect();
                let cores: Vec<String> = runs.iter().map(|r| format!("{:.4}", edges / r.cpu_seconds)).collect();
                println!(
                    "{{\"what\":\"ingest {name}\",\"unit\":\"M edges/s\",\"threads\":{threads},\"edges\":{},\
                     \"median\":{:.4},\"all\":[{}],\"per_core_median\":{:.4},\"per_core_all\":[{}],\
                     \"cpu_seconds\":{cpu:.3},\"source_mb_per_s\":{source:.1},\"peak_rss_bytes\":{peak},\
                     \"memory\":{},\"seconds_median\":{:.4},\"written_bytes\":{},\"limit_after_s\":{serial:.4},\
                     \"limit_beside_s\":{parallel:.4},\"page_cache_read_mb_per_s\":{cached:.1},\"disk_read_mb_per_s\":{read:.1},\"disk_write_mb_per_s\":{write:.1}}}",
                    runs[0].edges,
                    rate.1,
                    all.join(","),
                    core.1,
                    cores.join(","),
                    self.arguments.memory,
                    seconds.1,
                    runs[0].written,
                );
                continue;
            }
            let stages: Vec<String> = runs[0].stages.iter().map(|(n, s)| format!("{n} {s:.2}")).collect();
            println!(
                "{name:<23} {edges:>8.2} {:>10.2} ({:.1}-{:.1}) {source:>10.0} {:>10.2} ({:.1}-{:.1}) {cpu:>6.2} {:>8} \
                 {:>10.3} ({:.3}-{:.3}) {serial:>7.3}/{parallel:.3} {:>5.2}/{:.2}  {}",
                rate.1,
                rate.0,
                rate.2,
                core.1,
                core.0,
                core.2,
                peak >> 20,
                seconds.1,
                seconds.0,
                seconds.2,
                serial / seconds.1,
                parallel / seconds.1,
                stages.join(", ")
            );
        }
    }

    fn limit(&self, of: impl Fn(&Limits) -> f64) -> f64 {
        spread(self.limits.iter().map(of)).1 / 1e6
    }
}

/// Minimum, median and maximum.
fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    (sorted[0], sorted[sorted.len() / 2], sorted[sorted.len() - 1])
}

/// Bytes of a file, or of all files below a directory.
fn size(path: &Path) -> u64 {
    let metadata = fs::metadata(path).expect("the source was just written");
    if !metadata.is_dir() {
        return metadata.len();
    }
    let entries = fs::read_dir(path).expect("the source was just written");
    entries.map(|e| size(&e.expect("the source was just written").path())).sum()
}
