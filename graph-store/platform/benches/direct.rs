//! Random reads of a file by depth, block and method: `cargo bench -p morphgl-platform --features direct -- FILE [--json]`.
#![allow(clippy::print_stdout, reason = "a bench prints its table")]

use std::time::{Duration, Instant};

use morphgl_platform::direct::{DirectFile, Fetch, Method, Reader, Settings, ring_refused};

/// Duration of a measurement.
const DURATION: Duration = Duration::from_millis(700);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let json = arguments.iter().any(|a| a == "--json");
    let Some(path) = arguments.iter().find(|a| !a.starts_with("--")) else {
        println!("name a file to read: cargo bench -p morphgl-platform --features direct -- FILE [--json]");
        return;
    };
    if let Some(reason) = ring_refused() {
        println!("{reason}");
    }
    if !json {
        println!("{:>20} {:>6} {:>8} {:>10} {:>8}", "method", "depth", "bytes", "reads/s", "MB/s");
    }
    for block in [512, 4096] {
        let file = DirectFile::open(path, block).expect("the file opens");
        for most in [block, 16 << 10, 64 << 10] {
            for method in [Method::Ring, Method::Threads] {
                for depth in [1, 4, 16, 32, 64, 128, 256] {
                    if method == Method::Threads && (depth > 64 || most != block) || block == 512 && most != 512 {
                        continue;
                    }
                    point(&file, most, method, depth, json);
                }
            }
        }
    }
}

fn point(file: &DirectFile, most: usize, method: Method, depth: usize, json: bool) {
    let settings = Settings { depth, most: most + file.block(), gap: 0, method: Some(method) };
    let Ok(mut reader) = Reader::new(settings) else { return };
    let blocks = file.num_bytes() / most as u64;
    let mut out = vec![0; most];
    let (start, mut state) = (Instant::now(), 1u64);
    while start.elapsed() < DURATION {
        let fetches: Vec<Fetch> = (0..4 * depth)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                Fetch { element: (state >> 20) % blocks, to: 0 }
            })
            .collect();
        reader.read(file, 0, most, &fetches, &mut out).expect("the disk reads");
    }
    let seconds = start.elapsed().as_secs_f64();
    let stats = reader.stats();
    let (reads, bytes) = (stats.reads as f64 / seconds, stats.bytes as f64 / seconds);
    if json {
        println!(
            r#"{{"what":"random reads","unit":"reads/s","method":"{method}","depth":{depth},"bytes":{most},"median":{reads:.0}}}"#
        );
    } else {
        println!("{:>20} {depth:>6} {most:>8} {reads:>10.0} {:>8.0}", method.to_string(), bytes / 1e6);
    }
}
