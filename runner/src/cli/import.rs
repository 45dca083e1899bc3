//! `morphgl import`: other people's formats.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use morphgl_formats::edge_list::{EdgeListOptions, Ids};
use morphgl_formats::numpy::NumpyOptions;
use morphgl_formats::{Options, RandomFeatures, RandomSplit, Rows};
use morphgl_graph_store::{DatasetWriter, Dtype};

use super::show::{Show, Stages};
use super::{Outcome, info};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Planetoid pickles: SOURCE is the common prefix, for example data/ind.cora
    Planetoid,
    /// The gnn-benchmark .npz layout (Coauthor, Amazon)
    Npz,
    /// An OGB node-property directory, with its raw/ and split/
    Ogb,
    /// An edge list: SNAP text, csv or tsv, plain, .gz or .zst, with or without weights
    Edges,
    /// MatrixMarket coordinate file
    Mtx,
    /// METIS graph file
    Metis,
    /// WebGraph BV: SOURCE is the basename without ending (needs a build with --features bv)
    Bv,
    /// A directory or .npz of plain numpy arrays
    Numpy,
}

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl import planetoid data/ind.cora -o cora --normalize-features
  morphgl import npz coauthor_cs.npz -o cs --split 0.6,0.2,0.2
  morphgl import ogb ogbn_products -o products --symmetrise --dtype f16
  morphgl import edges soc-LiveJournal1.txt.gz -o lj --ids compact --random-features 128 --dtype f16 --split 0.01,0.01,0.01
  morphgl import numpy my-arrays/ -o mine

`docs/datasets.md` says what each format holds and how its data sets are brought in.")]
pub(crate) struct Args {
    /// Format of the source
    format: Format,
    /// File, directory or prefix to read
    source: PathBuf,
    /// Directory of the new dataset
    #[arg(short, long, value_name = "DATASET")]
    output: PathBuf,
    /// What to call the dataset [default: the source's name]
    #[arg(long)]
    name: Option<String>,
    /// Add the reverse of every edge, and drop duplicates (planetoid and npz always do)
    #[arg(long)]
    symmetrise: bool,
    /// Drop edges from a node to itself
    #[arg(long)]
    drop_self_loops: bool,
    /// Keep the first of several edges between the same nodes
    #[arg(long)]
    drop_duplicates: bool,
    /// Give every node an edge to itself
    #[arg(long)]
    add_self_loops: bool,
    /// Ignore edge weights
    #[arg(long)]
    drop_weights: bool,
    /// Draw splits anew: shares of training, validation and test nodes
    #[arg(long, value_parser = fractions, value_name = "TRAIN,VALID,TEST")]
    split: Option<[f64; 3]>,
    /// Give a graph without features random ones of this dimension
    #[arg(long, value_name = "DIM")]
    random_features: Option<usize>,
    /// Seed of splits and random features
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stored type of the features: f32, f16, bf16 or u8 [default: the source's]
    #[arg(long)]
    dtype: Option<Dtype>,
    /// Divide each feature row by its sum
    #[arg(long)]
    normalize_features: bool,
    /// edges: what becomes of node ids: kept, or numbered anew without gaps
    #[arg(long, value_enum, default_value = "keep")]
    ids: IdChoice,
    /// edges: the id of the first node, for lists that count from 1
    #[arg(long, default_value_t = 0)]
    first_id: u64,
    /// edges, numpy: number of nodes, for a graph whose last nodes have no edges
    #[arg(long)]
    num_nodes: Option<u64>,
    /// numpy, bv: what row v of the source lists
    #[arg(long, value_enum)]
    rows: Option<RowChoice>,
    /// Memory to stay within, beside a few bytes a node, for example 512MiB; too little is refused
    #[arg(long, value_parser = |s: &str| super::durations::bytes(s), default_value = "2GiB")]
    memory: u64,
    /// Replace a dataset that exists
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IdChoice {
    Keep,
    Compact,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RowChoice {
    /// The sources of the edges into v (CSC)
    Sources,
    /// The targets of the edges out of v (CSR)
    Targets,
}

impl Args {
    /// Refuses what the format would not read: it would be left out without a word.
    fn refuse_unread(&self) -> anyhow::Result<()> {
        let compact = matches!(self.ids, IdChoice::Compact);
        let given = [
            ("--ids", compact, &[Format::Edges][..]),
            ("--first-id", self.first_id != 0, &[Format::Edges]),
            ("--num-nodes", self.num_nodes.is_some(), &[Format::Edges, Format::Numpy]),
            ("--rows", self.rows.is_some(), &[Format::Numpy, Format::Bv]),
        ];
        for (option, given, formats) in given {
            if given && !formats.contains(&self.format) {
                let named = formats.iter().filter_map(|f| f.to_possible_value()).map(|v| v.get_name().to_string());
                let named = named.collect::<Vec<_>>().join(" and ");
                anyhow::bail!("{option}: {named} alone read it; leave it out");
            }
        }
        if compact && self.num_nodes.is_some() {
            anyhow::bail!("--num-nodes: --ids compact leaves no node without an edge; give one of the two");
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    remove_on_ctrl_c(&args.output)?;
    let stages = Stages::new(show);
    let path = import(args, &stages)?;
    stages.finish();
    info::describe(&path)
}

/// Imports as the options say, and gives the path of the new dataset.
pub(crate) fn import(args: &Args, stages: &Stages) -> anyhow::Result<PathBuf> {
    args.refuse_unread()?;
    let (threads, memory) = shares(args.memory)?;
    let options = Options {
        name: args.name.clone(),
        symmetrise: args.symmetrise,
        drop_self_loops: args.drop_self_loops,
        drop_duplicates: args.drop_duplicates,
        add_self_loops: args.add_self_loops,
        drop_weights: args.drop_weights,
        split: args.split.map(|[train, valid, test]| RandomSplit { train, valid, test, seed: args.seed }),
        random_features: args.random_features.map(|dim| RandomFeatures {
            dim,
            dtype: args.dtype.unwrap_or(Dtype::F32),
            seed: args.seed,
        }),
        feature_dtype: args.dtype,
        normalize_features: args.normalize_features,
        memory,
        replace: args.force,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    pool.install(|| read(args, &options, stages))
}

fn read(args: &Args, options: &Options, stages: &Stages) -> anyhow::Result<PathBuf> {
    let (source, target) = (args.source.as_path(), args.output.as_path());
    Ok(match args.format {
        Format::Planetoid => morphgl_formats::planetoid::import(source, target, options, stages)?,
        Format::Npz => morphgl_formats::npz::import(source, target, options, stages)?,
        Format::Ogb => morphgl_formats::ogb::import(source, target, options, stages)?,
        Format::Edges => {
            let ids = match args.ids {
                IdChoice::Keep => Ids::Keep,
                IdChoice::Compact => Ids::Compact,
            };
            let format = EdgeListOptions { ids, first_id: args.first_id, num_nodes: args.num_nodes };
            morphgl_formats::edge_list::import(source, target, format, options, stages)?
        }
        Format::Mtx => morphgl_formats::mtx::import(source, target, options, stages)?,
        Format::Metis => morphgl_formats::metis::import(source, target, options, stages)?,
        Format::Numpy => {
            let format = NumpyOptions { rows: rows(args.rows).unwrap_or(Rows::Sources), num_nodes: args.num_nodes };
            morphgl_formats::numpy::import(source, target, format, options, stages)?
        }
        Format::Bv => import_bv(source, target, rows(args.rows), options, stages)?,
    })
}

fn rows(choice: Option<RowChoice>) -> Option<Rows> {
    choice.map(|c| match c {
        RowChoice::Sources => Rows::Sources,
        RowChoice::Targets => Rows::Targets,
    })
}

#[cfg(feature = "bv")]
fn import_bv(s: &Path, t: &Path, rows: Option<Rows>, options: &Options, stages: &Stages) -> anyhow::Result<PathBuf> {
    Ok(morphgl_formats_bv::import(s, t, rows.unwrap_or(Rows::Targets), options, stages)?)
}

#[cfg(not(feature = "bv"))]
fn import_bv(s: &Path, _: &Path, _: Option<Rows>, _: &Options, _: &Stages) -> anyhow::Result<PathBuf> {
    let cure = "build again with `cargo build --release --features bv`";
    anyhow::bail!("{}: this build does not read WebGraph's BV format; {cure}", s.display())
}

/// Bytes that the allocator of the program keeps for a thread that reads text.
const THREAD: u64 = 6 << 20;

/// Threads, and the bytes that an import may take on them, so that the process stays within `memory`.
fn shares(memory: u64) -> anyhow::Result<(usize, u64)> {
    let fixed = Options::fixed_memory();
    let rest = beside_program(memory, fixed + THREAD + Options::LEAST_MEMORY)? - fixed;
    let threads = (rest / (2 * THREAD)).clamp(1, rayon::current_num_threads() as u64);
    Ok((threads as usize, rest - threads * THREAD))
}

/// Bytes of the process itself: the program, and what it is linked with. Measured: 13 MiB.
const PROGRAM: u64 = 16 << 20;

/// What `memory` leaves beside the process itself, at least `least` bytes.
pub(crate) fn beside_program(memory: u64, least: u64) -> anyhow::Result<u64> {
    let least = least.saturating_add(PROGRAM);
    let (given, mib) = (super::show::bytes(memory), least.div_ceil(1 << 20));
    anyhow::ensure!(memory >= least, "--memory: {given} do not hold what this needs; give at least {mib}MiB");
    Ok(memory - PROGRAM)
}

/// On Ctrl-C, removes the unfinished dataset of `target` and ends the process.
pub(crate) fn remove_on_ctrl_c(target: &Path) -> anyhow::Result<()> {
    let partial = DatasetWriter::partial(target);
    Ok(ctrlc::set_handler(move || {
        // Other threads write on for a moment and may add a file to what is being removed; then it is removed again.
        for _ in 0..10 {
            if std::fs::remove_dir_all(&partial).is_ok() || !partial.exists() {
                break;
            }
        }
        std::process::exit(130);
    })?)
}

/// Reads three shares, for example `0.6,0.2,0.2`.
pub(crate) fn fractions(text: &str) -> Result<[f64; 3], String> {
    let wrong = || "not three shares; write for example 0.6,0.2,0.2".to_string();
    let values: Vec<f64> = text.split(',').map(|t| t.trim().parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    values.try_into().map_err(|_| wrong())
}
