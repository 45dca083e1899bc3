//! `morphgl bench ingest`: imports a file into a temporary directory beside it.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use morphgl_graph_store::Meta;
use serde_json::json;

use super::figures::{Report, fields, median};
use super::load::{Load, cpu_seconds};
use super::{go_on, stop};
use crate::cli::import;
use crate::cli::show::{Show, Stages};
use crate::memory;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench ingest                                 the embedded default graph, as a csv file
  morphgl bench ingest edges.csv.gz --threads 1
  morphgl bench ingest web/cnr-2000 --format bv -- --symmetrise --memory 512MiB

What follows -- are options of `morphgl import`. The file is read once beforehand, so that it is read from memory.
Edges are those of the dataset that is made; bytes those of the source, where it is one file.")]
pub(super) struct Args {
    /// File, directory or prefix to import [default: the embedded default graph, written as a csv edge list]
    source: Option<PathBuf>,
    /// Its format, as `morphgl import` names it
    #[arg(long, default_value = "edges")]
    format: String,
    /// Threads to use [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
    /// How often it is imported; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Options of `morphgl import`
    #[arg(last = true, value_name = "IMPORT OPTIONS")]
    options: Vec<String>,
}

/// A directory that is removed at the end, whatever the end is.
struct Temporary(PathBuf);

impl Temporary {
    fn new(beside: &Path) -> Result<Self> {
        let path = beside.join(format!(".morphgl-bench-{}", std::process::id()));
        let made = fs::create_dir(&path);
        made.with_context(|| format!("{}: cannot be made; make room beside the source", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Nobody is left to be told; its name says whose it is.
        fs::remove_dir_all(&self.0).ok();
    }
}

/// One import.
struct Run {
    seconds: f64,
    cpu_seconds: Option<f64>,
    edges: u64,
    peak_rss_bytes: u64,
}

pub(super) fn run(args: &Args, show: Show) -> Result<Report> {
    let threads = match args.threads {
        Some(threads) => {
            rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global()?;
            threads.into()
        }
        None => crate::registry()?.machine().cores,
    };
    let beside = match &args.source {
        Some(source) => source.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf(),
        None => std::env::temp_dir(),
    };
    let temporary = Temporary::new(&beside)?;
    let source = match &args.source {
        Some(source) => source.clone(),
        None => write_default(&temporary.0)?,
    };
    let target = temporary.0.join("dataset");
    let mut words = vec!["morphgl import".into(), args.format.clone().into(), source.clone().into_os_string()];
    words.extend(["--output".into(), target.clone().into_os_string()]);
    words.extend(args.options.iter().map(Into::into));
    let import = import::Args::try_parse_from(words).unwrap_or_else(|wrong| {
        // The process ends here, and drops nothing.
        fs::remove_dir_all(&temporary.0).ok();
        wrong.exit()
    });
    let stop = stop()?;
    let once = || -> Result<Run> {
        go_on(&stop)?;
        memory::take_peak();
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let stages = Stages::new(show);
        let made = import::import(&import, &stages)?;
        let seconds = start.elapsed().as_secs_f64();
        stages.finish();
        let cpu_seconds = cpu.zip(cpu_seconds()).map(|(before, after)| after - before);
        let edges = Meta::read(&made)?.num_edges;
        fs::remove_dir_all(&made).with_context(|| format!("{}: cannot be removed", made.display()))?;
        Ok(Run { seconds, cpu_seconds, edges, peak_rss_bytes: memory::take_peak() })
    };
    once()?;
    let load = Load::start();
    let runs: Vec<Run> = (0..args.repeats).map(|_| once()).collect::<Result<_>>()?;
    let load = load.end();
    let bytes = fs::metadata(&source).ok().filter(fs::Metadata::is_file).map(|m| m.len());
    let of = |value: &dyn Fn(&Run) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    let cpu = runs[0].cpu_seconds.map(|_| of(&|r| r.cpu_seconds.unwrap_or(f64::NAN)));
    let seconds = of(&|r| r.seconds);
    let mut more = vec![("s", seconds.clone())];
    more.extend(cpu.clone().map(|cpu| ("CPU s", cpu)));
    more.extend(bytes.map(|bytes| ("MB/s", of(&|r| bytes as f64 / r.seconds / 1e6))));
    let edges = runs[0].edges as f64;
    let document = fields(json!({
        "format": args.format, "source_bytes": bytes, "edges": runs[0].edges, "seconds": median(&seconds),
        "cpu_seconds": cpu.as_deref().map(median), "edges_per_cpu_s": cpu.as_deref().map(|cpu| edges / median(cpu)),
        "mb_per_s": bytes.map(|bytes| bytes as f64 / median(&seconds) / 1e6),
        "import_peak_rss_gb": runs.iter().map(|r| r.peak_rss_bytes).max().unwrap_or(0) as f64 / 1e9,
        "options": args.options,
    }));
    let name = source.file_name().map_or(source.display().to_string(), |n| n.to_string_lossy().into_owned());
    Ok(Report {
        what: "ingest",
        data: name,
        threads,
        unit: "edges/s",
        all: of(&|r| r.edges as f64 / r.seconds),
        more,
        with: [std::slice::from_ref(&args.format), &args.options].concat().join(" "),
        load,
        fields: document,
    })
}

/// The embedded default graph as a csv edge list in `directory`.
fn write_default(directory: &Path) -> Result<PathBuf> {
    let graph = crate::default_dataset();
    let path = directory.join("default.csv");
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(fs::File::create(&path)?);
        writeln!(file, "src,dst")?;
        let (indptr, indices) = (graph.topology.indptr(), graph.topology.indices());
        for (target, row) in indptr.windows(2).enumerate() {
            for source in &indices[row[0] as usize..row[1] as usize] {
                writeln!(file, "{source},{target}")?;
            }
        }
        file.flush()
    };
    write().with_context(|| format!("{}: cannot be written; make room", path.display()))?;
    Ok(path)
}
