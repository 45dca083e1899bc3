//! Reads scattered blocks of a file without the rest of the project. Run: `cargo run -p morphgl-platform --features direct --example alone-direct-read [FILE]`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Instant;

use morphgl_platform::direct::{DirectFile, Fetch, Reader, Settings, ring_refused};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::temp_dir().join(format!("morphgl-alone-direct-{}", std::process::id()));
    let given = std::env::args().nth(1);
    if given.is_none() {
        std::fs::write(&own, vec![1u8; 32 << 20])?;
    }
    let file = DirectFile::open(given.as_ref().map_or(own.as_path(), |path| path.as_ref()), 4096)?;
    println!("{}: {} bytes, direct: {}", file.path().display(), file.num_bytes(), file.is_direct());
    if let Some(reason) = ring_refused() {
        println!("{reason}");
    }
    let blocks = file.num_bytes() / 4096;
    let fetches: Vec<Fetch> = (0..10_000u64).map(|i| Fetch { element: i * 7919 % blocks, to: 0 }).collect();
    for depth in [1, 8, 64] {
        let mut reader = Reader::new(Settings { depth, ..Settings::default() })?;
        let start = Instant::now();
        reader.read(&file, 0, 4096, &fetches, &mut [0; 4096])?;
        let rate = reader.stats().reads as f64 / start.elapsed().as_secs_f64();
        println!("{depth:>3} in flight: {rate:.0} reads per second by {}", reader.method());
    }
    if given.is_none() {
        std::fs::remove_file(own)?;
    }
    Ok(())
}
