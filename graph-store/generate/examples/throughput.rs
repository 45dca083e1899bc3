//! Measures generation. Run: `cargo run --release -p morphgl-generate --example throughput [NODES [THREADS [DIR]]]`;
//! with DIR both graphs are written there too, in 2 GiB, and removed.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;
use std::time::Instant;

use morphgl_generate::{DEFAULT_MEMORY, Result, RmatConfig, SbmConfig, rmat, rmat_to_disk, sbm, sbm_to_disk};
use morphgl_graph_store::{Dataset, Dtype, OpenOptions};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let nodes = arguments.next().map_or(50_000, |a| a.parse().expect("NODES is a number"));
    let threads = arguments.next().map_or(2, |a| a.parse().expect("THREADS is a number"));
    let dir = arguments.next();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start");
    pool.install(|| {
        let block = SbmConfig { nodes, ..SbmConfig::default() };
        let kronecker = RmatConfig { nodes, ..RmatConfig::default() };
        let both = RmatConfig { symmetrise: true, ..kronecker.clone() };
        report("sbm in memory", threads, || sbm(&block))?;
        report("rmat in memory", threads, || rmat(&kronecker))?;
        report("rmat both ways in memory", threads, || rmat(&both))?;
        let Some(dir) = dir else { return Ok(()) };
        let (block, both) = (SbmConfig { dtype: Dtype::F16, ..block }, RmatConfig { dtype: Dtype::F16, ..both });
        let target = Path::new(&dir).join("morphgl-generate-throughput");
        report("sbm to disk", threads, || open(sbm_to_disk(&block, &target, DEFAULT_MEMORY, true, &|_, _, _| {})?))?;
        report("rmat to disk", threads, || open(rmat_to_disk(&both, &target, DEFAULT_MEMORY, true, &|_, _, _| {})?))?;
        std::fs::remove_dir_all(&target).map_err(|e| morphgl_graph_store::Error::io(&target, e))?;
        Ok(())
    })
}

fn open(path: std::path::PathBuf) -> Result<Dataset> {
    Ok(Dataset::open(path, OpenOptions { load: morphgl_graph_store::Load::Mmap, verify: false })?)
}

fn report(what: &str, threads: usize, make: impl Fn() -> Result<Dataset>) -> Result<()> {
    let (mut seconds, mut edges, mut rows) = (Vec::new(), 0, 0);
    for _ in 0..3 {
        let start = Instant::now();
        let dataset = make()?;
        seconds.push(start.elapsed().as_secs_f64());
        (edges, rows) = (dataset.topology.num_edges(), dataset.num_nodes());
    }
    seconds.sort_by(f64::total_cmp);
    println!(
        "{what}: {rows} nodes, {edges} edges, {threads} threads: {:.3} s median of 3 ({:.3}..{:.3}), {:.1} M edges/s",
        seconds[1],
        seconds[0],
        seconds[2],
        edges as f64 / seconds[1] / 1e6
    );
    Ok(())
}
