//! `morphgl import`: datasets of other formats.

use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use morphgl_formats::edge_list::{Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::igb::{IgbLabels, IgbOptions};
use morphgl_formats::mag240m::Mag240mOptions;
use morphgl_formats::numpy::NumpyOptions;
use morphgl_formats::{
    DuplicateWeights, EdgeSplit, FeatureNorm, Format, Options, RandomFeatures, RandomLabels, RandomSplit, RowContent,
    Standardise,
};
use morphgl_graph_store::Dtype;

use super::link_files::LinkArgs;
use super::node_files::NodeArgs;
use super::show::{Show, Stages};
use super::{Outcome, budget, info};
use crate::memory::small_pages;
use crate::usage::Usage;
use crate::values;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl import planetoid data/ind.cora -o cora --normalize-features
  morphgl import npz coauthor_cs.npz -o cs --split 0.6,0.2,0.2
  morphgl import ogb ogbn_products -o products --symmetrise --dtype f16
  morphgl import edges soc-LiveJournal1.txt.gz -o lj --ids compact --random-features 128 --dtype f16 --split 0.01,0.01,0.01
  morphgl import edges trips.csv -o trips --src from_stop --dst to_stop --weight minutes
  morphgl import edges payments.csv -o payments --src from --dst to --edge-feature-columns amount,fee --nodes accounts.csv
  morphgl import edges follows.csv.gz -o people --ids strings --nodes people.csv --split 0.6,0.2,0.2
  morphgl import edges follows.txt -o follows --edge-split 0.85,0.05,0.1
  morphgl import edges ratings.csv -o ratings --src user --dst item --bipartite --symmetrise --edge-target-columns rating --edge-split 0.8,0.1,0.1
  morphgl import mtx graph.mtx -o graph --features x.npy --labels y.npy --train train.txt --valid valid.txt --test test.txt
  morphgl import numpy my-arrays/ -o mine
  morphgl import manifest shop/graph.toml -o shop
  morphgl import neo4j neo4j-export/ -o movies --symmetrise
  morphgl import triples FB15k-237/train.txt -o fb15k --symmetrise
  morphgl import mag240m mag240m_kddcup2021 -o mag240m --symmetrise --years --memory 64GiB
  morphgl import igb igb/tiny -o igb-tiny --symmetrise

`docs/datasets.md` says what each format holds and how to import its data sets, `docs/typed-graphs.md` those of several types.")]
pub(crate) struct Args {
    /// Format of the source
    #[arg(value_parser = values::format())]
    format: Format,
    /// File, directory or prefix to read
    source: PathBuf,
    /// Directory of the new dataset
    #[arg(short, long, value_name = "DATASET")]
    output: PathBuf,
    /// Name of the dataset [default: the source's name]
    #[arg(long)]
    name: Option<String>,
    /// Add the reverse of every edge, and drop duplicates (planetoid and npz always do); typed graphs: as edge types
    /// of their own, rev_NAME
    #[arg(long)]
    symmetrise: bool,
    /// Reverse the direction of every edge
    #[arg(long)]
    reverse: bool,
    /// Drop edges from a node to itself
    #[arg(long)]
    drop_self_loops: bool,
    /// Keep the first of several edges between the same nodes
    #[arg(long)]
    drop_duplicates: bool,
    /// Weight of an edge that --symmetrise or --drop-duplicates keeps of several: the first's, or the sum, as PyG's ToUndirected
    /// and coalesce have it
    #[arg(long, value_name = "HOW", value_enum, default_value = "first")]
    duplicate_weights: WeightChoice,
    /// Give every node an edge to itself
    #[arg(long)]
    add_self_loops: bool,
    /// Ignore edge weights
    #[arg(long)]
    drop_weights: bool,
    /// Draw splits anew: shares of training, validation and test nodes
    #[arg(long, value_parser = values::fractions, value_name = "TRAIN,VALID,TEST")]
    split: Option<[f64; 3]>,
    /// Draw edges to validate and test links on, and take them out of the graph, in both directions where it is symmetric: shares of
    /// training, validation and test edges
    #[arg(long, value_parser = values::fractions, value_name = "TRAIN,VALID,TEST")]
    edge_split: Option<[f64; 3]>,
    /// Give a graph without features random ones of this dimension
    #[arg(long, value_name = "DIM", value_parser = values::at_least_one)]
    random_features: Option<usize>,
    /// Give a graph without labels random ones of this many classes
    #[arg(long, value_name = "K", value_parser = values::at_least_one)]
    random_labels: Option<usize>,
    /// Seed of splits, of nodes and edges, random features and random labels
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Stored type of the features: f32, f16, bf16 or u8 [default: the source's]
    #[arg(long, value_parser = values::feature_dtype)]
    dtype: Option<Dtype>,
    /// Divide each feature row by its sum; pyg: exactly as PyG's NormalizeFeatures, less the lowest value of all, and by 1 where
    /// the sum is less
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "sum", value_enum)]
    normalize_features: Option<NormChoice>,
    /// Standardise each column of features to mean 0 and deviation 1 over the training nodes; or, for new data, by the means and
    /// deviations of a dataset that was imported so
    #[arg(long, value_name = "DATASET", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = values::standardise)]
    standardise: Option<Standardise>,
    /// edges: the column of the source's id, by its name in the first line or its number from 1 [default: by known names]
    #[arg(long, value_name = "COLUMN", value_parser = values::column)]
    src: Option<Column>,
    /// edges: the column of the target's id
    #[arg(long, value_name = "COLUMN", value_parser = values::column)]
    dst: Option<Column>,
    /// edges: the column of the weight
    #[arg(long, value_name = "COLUMN", value_parser = values::column)]
    weight: Option<Column>,
    /// edges: the column of the edge's class, by numbers or names, which `train --on edges` learns; of files of pairs, too
    #[arg(long, value_name = "COLUMN", value_parser = values::column)]
    edge_label_column: Option<Column>,
    /// edges: the columns of values of the edge, or of labels as 0 and 1, which `train --on edges` learns
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', value_parser = values::column)]
    edge_target_columns: Option<Vec<Column>>,
    /// edges: the columns of features of the edge, by names, numbers, ranges of numbers (2-9) and patterns (f*)
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', value_parser = values::column)]
    edge_feature_columns: Option<Vec<Column>>,
    /// edges: names of all columns, for a file whose first line has none
    #[arg(long, value_name = "NAME,NAME,…", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// edges: let lines have any number of fields beside those that are read
    #[arg(long)]
    ignore_columns: bool,
    /// edges, mtx: sources and targets (rows and columns) are two kinds of nodes, whose ids are counted apart; `no`: they are one
    /// kind, whatever names or header say
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true, default_missing_value = "yes", value_parser = values::yes_or_no)]
    bipartite: Option<bool>,
    /// edges: kind of node ids
    #[arg(long, value_enum, default_value = "keep")]
    ids: IdChoice,
    /// edges: the id of the first node, for lists that count from 1 [default: 0, or 1 where the header is KONECT's]
    #[arg(long)]
    first_id: Option<u64>,
    /// edges, numpy: number of nodes, for a graph whose last nodes have no edges
    #[arg(long)]
    num_nodes: Option<u64>,
    /// mag240m: take the years of papers as times of nodes
    #[arg(long)]
    years: bool,
    /// igb: the labels of papers, of 19 or of 2,983 classes [default: 19 where they are there]
    #[arg(long, value_enum, value_name = "CLASSES")]
    igb_labels: Option<IgbLabelChoice>,
    /// numpy, bv: what row v of the source lists
    #[arg(long, value_enum)]
    rows: Option<RowChoice>,
    /// Memory to stay within, beside a few bytes per node, for example 512MiB; too little is refused
    #[arg(long, value_parser = values::bytes, default_value = "2GiB")]
    memory: u64,
    /// Replace a dataset that exists
    #[arg(long)]
    force: bool,
    /// Write arrays that are far larger than the source: random features of many columns, or many nodes without an edge
    #[arg(long)]
    allow_large: bool,
    #[command(flatten)]
    node_files: NodeArgs,
    #[command(flatten)]
    link_files: LinkArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IdChoice {
    /// Numbers, kept
    Keep,
    /// Numbers, which may have gaps: nodes are numbered anew in their order
    Compact,
    /// Text: nodes are numbered in the order of their names
    Strings,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IgbLabelChoice {
    #[value(name = "19")]
    Of19,
    #[value(name = "2983", alias = "2K")]
    Of2K,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum NormChoice {
    Sum,
    Pyg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WeightChoice {
    First,
    Add,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RowChoice {
    /// The sources of the edges into v (CSC)
    Sources,
    /// The targets of the edges out of v (CSR)
    Targets,
}

impl Args {
    fn columns(&self) -> Columns {
        let Self { src, dst, weight, columns, edge_label_column, edge_target_columns, edge_feature_columns, .. } = self;
        Columns {
            src: src.clone(),
            dst: dst.clone(),
            weight: weight.clone(),
            names: columns.clone(),
            label: edge_label_column.clone(),
            targets: edge_target_columns.clone().unwrap_or_default(),
            features: edge_feature_columns.clone().unwrap_or_default(),
        }
    }

    /// Refuses options that the format does not read, instead of ignoring them silently.
    fn refuse_unread(&self) -> anyhow::Result<()> {
        let compact = !matches!(self.ids, IdChoice::Keep);
        let given = [
            ("--ids", compact, &[Format::Edges][..]),
            ("--src", self.src.is_some(), &[Format::Edges]),
            ("--dst", self.dst.is_some(), &[Format::Edges]),
            ("--weight", self.weight.is_some(), &[Format::Edges]),
            ("--columns", self.columns.is_some(), &[Format::Edges]),
            ("--edge-label-column", self.edge_label_column.is_some(), &[Format::Edges]),
            ("--edge-target-columns", self.edge_target_columns.is_some(), &[Format::Edges]),
            ("--edge-feature-columns", self.edge_feature_columns.is_some(), &[Format::Edges]),
            ("--ignore-columns", self.ignore_columns, &[Format::Edges]),
            ("--bipartite", self.bipartite.is_some(), &[Format::Edges, Format::Mtx]),
            ("--first-id", self.first_id.is_some_and(|first| first > 0), &[Format::Edges]),
            ("--num-nodes", self.num_nodes.is_some(), &[Format::Edges, Format::Numpy]),
            ("--years", self.years, &[Format::Mag240m]),
            ("--igb-labels", self.igb_labels.is_some(), &[Format::Igb]),
            ("--rows", self.rows.is_some(), &[Format::Numpy, Format::Bv]),
            ("--unknown-nodes", self.node_files.are_unknown_nodes_treated(), &[Format::Edges]),
        ];
        for (option, given, formats) in given {
            if given && !formats.contains(&self.format) {
                let named = formats.iter().map(|format| format.argument()).collect::<Vec<_>>().join(" and ");
                return Err(Usage::error(format!("{option}: {named} alone read it; leave it out")));
            }
        }
        self.node_files.refuse_unread(matches!(self.format, Format::Numpy))?;
        // Files of these formats have no features.
        let bare = matches!(self.format, Format::Edges | Format::Mtx | Format::Metis | Format::Bv);
        let bare = bare && !self.node_files.may_have_features();
        let refusals = [
            (
                compact && self.num_nodes.is_some(),
                "--num-nodes: --ids compact and strings number the nodes that have an edge or a row; give one of the two",
            ),
            (
                matches!(self.ids, IdChoice::Strings) && self.first_id.is_some_and(|first| first > 0),
                "--first-id: --ids strings have no first one; give one of the two",
            ),
            (
                bare && self.normalize_features.is_some(),
                "--normalize-features: this format has no features; leave it out, or add --features FILE",
            ),
            (
                bare && self.dtype.is_some() && self.random_features.is_none() && self.edge_feature_columns.is_none(),
                "--dtype: this format has no features; leave it out, or add --random-features DIM, --features FILE or --edge-feature-columns",
            ),
            (
                self.normalize_features.is_some() && self.dtype == Some(Dtype::U8),
                "--dtype u8: it does not hold normalised features; use f32, f16 or bf16",
            ),
        ];
        let merges = self.symmetrise || self.drop_duplicates || matches!(self.format, Format::Planetoid | Format::Npz);
        if self.duplicate_weights == WeightChoice::Add && !merges {
            let what = "no edges are merged; add --symmetrise or --drop-duplicates, or leave it out";
            return Err(Usage::error(format!("--duplicate-weights: {what}")));
        }
        if let Some((_, text)) = refusals.into_iter().find(|(refused, _)| *refused) {
            return Err(Usage::error(text));
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Args, show: Show) -> anyhow::Result<Outcome> {
    let stages = Stages::new(show);
    let path = import(args, &stages)?;
    stages.finish();
    info::describe(&path)
}

/// Imports the source, and returns the path of the new dataset.
pub(crate) fn import(args: &Args, stages: &Stages) -> anyhow::Result<PathBuf> {
    args.refuse_unread()?;
    let (threads, memory) = budget::of_import(args.memory)?;
    let _pages = small_pages(args.memory);
    let options = Options {
        name: args.name.clone(),
        symmetrise: args.symmetrise,
        reverse: args.reverse,
        drop_self_loops: args.drop_self_loops,
        drop_duplicates: args.drop_duplicates,
        duplicate_weights: match args.duplicate_weights {
            WeightChoice::First => DuplicateWeights::First,
            WeightChoice::Add => DuplicateWeights::Add,
        },
        add_self_loops: args.add_self_loops,
        drop_weights: args.drop_weights,
        bipartite: args.bipartite,
        split: args.split.map(|[train, valid, test]| RandomSplit { train, valid, test, seed: args.seed }),
        edge_split: args.edge_split.map(|[train, valid, test]| EdgeSplit { train, valid, test, seed: args.seed }),
        links: args.link_files.files(),
        random_features: args.random_features.map(|dim| RandomFeatures {
            dim,
            dtype: args.dtype.unwrap_or(Dtype::F32),
            seed: args.seed,
        }),
        random_labels: args.random_labels.map(|num_classes| RandomLabels { num_classes, seed: args.seed }),
        nodes: args.node_files.files(),
        feature_dtype: args.dtype,
        normalize_features: args.normalize_features.map(|how| match how {
            NormChoice::Sum => FeatureNorm::Sum,
            NormChoice::Pyg => FeatureNorm::Pyg,
        }),
        standardise: args.standardise.clone(),
        memory,
        replace: args.force,
        large: if args.allow_large { u64::MAX } else { Options::default().large },
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
                IdChoice::Strings => Ids::Strings,
            };
            let columns = args.columns();
            let &Args { first_id, ignore_columns, num_nodes, .. } = args;
            let format = EdgeListOptions { columns, ids, first_id, ignore_columns, num_nodes };
            morphgl_formats::edge_list::import(source, target, &format, options, stages)?
        }
        Format::Mtx => morphgl_formats::mtx::import(source, target, options, stages)?,
        Format::Metis => morphgl_formats::metis::import(source, target, options, stages)?,
        Format::Numpy => {
            let format = NumpyOptions { rows: rows(args.rows), num_nodes: args.num_nodes };
            morphgl_formats::numpy::import(source, target, format, options, stages)?
        }
        Format::Manifest => morphgl_formats::manifest::import(source, target, options, stages)?,
        Format::Neo4j => morphgl_formats::neo4j::import(source, target, options, stages)?,
        Format::Triples => morphgl_formats::triples::import(source, target, options, stages)?,
        Format::Mag240m => {
            let format = Mag240mOptions { years: args.years };
            morphgl_formats::mag240m::import(source, target, format, options, stages)?
        }
        Format::Igb => {
            let labels = args.igb_labels.map(|labels| match labels {
                IgbLabelChoice::Of19 => IgbLabels::Of19,
                IgbLabelChoice::Of2K => IgbLabels::Of2K,
            });
            morphgl_formats::igb::import(source, target, IgbOptions { labels }, options, stages)?
        }
        Format::Bv => import_bv(source, target, rows(args.rows), options, stages)?,
    })
}

fn rows(choice: Option<RowChoice>) -> Option<RowContent> {
    choice.map(|c| match c {
        RowChoice::Sources => RowContent::Sources,
        RowChoice::Targets => RowContent::Targets,
    })
}

#[cfg(feature = "bv")]
fn import_bv(
    s: &Path,
    t: &Path,
    rows: Option<RowContent>,
    options: &Options,
    stages: &Stages,
) -> anyhow::Result<PathBuf> {
    Ok(morphgl_formats_bv::import(s, t, rows.unwrap_or(RowContent::Targets), options, stages)?)
}

#[cfg(not(feature = "bv"))]
fn import_bv(s: &Path, _: &Path, _: Option<RowContent>, _: &Options, _: &Stages) -> anyhow::Result<PathBuf> {
    let cure = "build again with `cargo build --release --features bv`";
    anyhow::bail!("{}: this build does not read WebGraph's BV format; {cure}", s.display())
}
