//! `morphgl bench ingest`: imports a file into a temporary directory beside it.

use std::ffi::OsString;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use morphgl_graph_store::Meta;
use morphgl_platform::{ReplacementDir, discard_unfinished};
use morphgl_registry::Machine;
use serde_json::json;

use super::check;
use super::measurement::Measurement;
use crate::cli::show::Stages;
use crate::cli::{Invocation, import};
use crate::load::{Load, cpu_seconds};
use crate::median;
use crate::unwritten::unwritten;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl bench ingest                                 the embedded default graph, as a csv file
  morphgl bench ingest edges.csv.gz --threads 1
  morphgl bench ingest web/cnr-2000 --format bv -- --symmetrise --memory 512MiB

Arguments after -- are options of `morphgl import`. One import beforehand warms the page cache.
Edges are counted in the new dataset, bytes in the source, where it is one file.")]
pub(super) struct Args {
    /// File, directory or prefix to import [default: the embedded default graph, written as a csv edge list]
    source: Option<PathBuf>,
    /// Its format, as `morphgl import` names it
    #[arg(long, default_value = "edges")]
    format: String,
    /// Threads to use [default: all cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=512))]
    threads: Option<u16>,
    /// Number of repeats; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeats: u32,
    /// Options of `morphgl import`
    #[arg(last = true, value_name = "IMPORT OPTIONS")]
    options: Vec<String>,
}

/// One import.
struct Run {
    seconds: f64,
    cpu_seconds: Option<f64>,
    edges: u64,
    peak_rss_bytes: u64,
}

pub(super) fn run(args: &Args, call: &Invocation<'_>) -> Result<Measurement> {
    let threads = match args.threads {
        Some(threads) => {
            rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global()?;
            threads.into()
        }
        None => Machine::probe().cores,
    };
    let beside = match &args.source {
        Some(source) => source.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf(),
        None => std::env::temp_dir(),
    };
    // It never replaces anything, and is removed when it is dropped.
    let beside = beside.join("morphgl-bench");
    let temporary = ReplacementDir::new(&beside)
        .with_context(|| format!("{}: cannot be created beside the source", beside.display()))?;
    let source = match &args.source {
        Some(source) => source.clone(),
        None => write_default(temporary.path())?,
    };
    let target = temporary.path().join("dataset");
    let mut words: Vec<OsString> = vec!["morphgl import".into(), args.format.clone().into(), source.clone().into()];
    words.extend(["--output".into(), target.into()]);
    words.extend(args.options.iter().map(Into::into));
    let import = import::Args::try_parse_from(words).unwrap_or_else(|error| {
        // `exit` runs no destructor.
        discard_unfinished();
        error.exit()
    });
    call.observer().heeds(call.stop);
    let stop = call.stop;
    let once = || -> Result<Run> {
        check(stop)?;
        call.process.memory().take_peak();
        let (start, cpu) = (Instant::now(), cpu_seconds());
        let stages = Stages::new(call.show);
        let dataset = import::import(&import, &stages)?;
        let seconds = start.elapsed().as_secs_f64();
        stages.finish();
        let cpu_seconds = cpu.zip(cpu_seconds()).map(|(before, after)| after - before);
        let edges = Meta::read(&dataset)?.num_edges;
        fs::remove_dir_all(&dataset).with_context(|| format!("{}: cannot be removed", dataset.display()))?;
        Ok(Run { seconds, cpu_seconds, edges, peak_rss_bytes: call.process.memory().take_peak() })
    };
    once()?;
    let load = Load::now();
    let runs: Vec<Run> = (0..args.repeats).map(|_| once()).collect::<Result<_>>()?;
    let load = load.busy_cores();
    let bytes = fs::metadata(&source).ok().filter(fs::Metadata::is_file).map(|m| m.len() as f64);
    let edges = runs[0].edges;
    let seconds: Vec<f64> = runs.iter().map(|r| r.seconds).collect();
    let cpu_seconds: Option<Vec<f64>> = runs.iter().map(|r| r.cpu_seconds).collect();
    let cpu_median = cpu_seconds.as_deref().map(median);
    let fields = json!({
        "format": args.format, "source_bytes": bytes.map(|bytes| bytes as u64), "edges": edges,
        "seconds": median(&seconds), "cpu_seconds": cpu_median,
        "edges_per_cpu_s": cpu_median.map(|cpu| edges as f64 / cpu),
        "mb_per_s": bytes.map(|bytes| bytes / median(&seconds) / 1e6),
        "import_peak_rss_gb": runs.iter().map(|r| r.peak_rss_bytes).max().unwrap_or(0) as f64 / 1e9,
        "options": args.options,
    });
    let mb_per_s = bytes.map(|bytes| seconds.iter().map(|s| bytes / s / 1e6).collect());
    let name = source.file_name().map_or(source.display().to_string(), |n| n.to_string_lossy().into_owned());
    let mut other_units = vec![("s", seconds)];
    other_units.extend(cpu_seconds.map(|cpu| ("CPU s", cpu)));
    other_units.extend(mb_per_s.map(|rates| ("MB/s", rates)));
    Ok(Measurement {
        what: "ingest",
        data: name,
        threads,
        unit: "edges/s",
        values: runs.iter().map(|r| r.edges as f64 / r.seconds).collect(),
        other_units,
        settings: [std::slice::from_ref(&args.format), &args.options].concat().join(" "),
        load,
        details: String::new(),
        fields: vec![fields],
    })
}

/// The embedded default graph as a csv edge list in `directory`.
fn write_default(directory: &Path) -> Result<PathBuf> {
    let graph = crate::default_dataset();
    let path = directory.join("default.csv");
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(fs::File::create(&path)?);
        writeln!(file, "src,dst")?;
        for target in 0..graph.num_nodes() as u32 {
            for source in graph.topology.neighbors(target) {
                writeln!(file, "{source},{target}")?;
            }
        }
        file.flush()
    };
    write().map_err(|e| unwritten(&path, e, "choose another directory"))?;
    Ok(path)
}
