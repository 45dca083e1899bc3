//! `morphgl info`: what a dataset holds.

use std::path::{Path, PathBuf};

use clap::Parser;
use morphgl_graph_store::{Dataset, Load, Meta, OpenOptions};
use serde_json::json;

use super::{Outcome, show};

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl info cora
  morphgl info papers100M --check      compare every array with its checksum, look for NaN features
  morphgl info cora --json | jq .degree")]
pub(crate) struct Args {
    /// Directory of the dataset
    dataset: PathBuf,
    /// Reads all data and compares it with its checksums
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.check {
        Dataset::open(&args.dataset, OpenOptions { load: Load::Mmap, verify: true })?;
    }
    let mut outcome = describe(&args.dataset)?;
    if args.check {
        outcome.text += "checked: every checksum holds, structure and features are sound\n";
        outcome.json["checked"] = true.into();
    }
    Ok(outcome)
}

/// Describes the dataset at `path`.
pub(crate) fn describe(path: &Path) -> anyhow::Result<Outcome> {
    let dataset = Dataset::open(path, OpenOptions { load: Load::Mmap, verify: false })?;
    let meta = Meta::read(path)?;
    let n = dataset.num_nodes();
    let mut degrees: Vec<u64> = (0..n as u32).map(|v| dataset.topology.degree(v)).collect();
    degrees.sort_unstable();
    let quantile = |q: f64| degrees.get(((n.max(1) - 1) as f64 * q) as usize).copied().unwrap_or(0);
    let isolated = degrees.partition_point(|&d| d == 0);
    let mean = dataset.topology.num_edges() as f64 / n.max(1) as f64;
    let labelled = dataset.labels.as_ref().map_or(0, |l| l.iter().filter(|&&l| l >= 0).count());
    let sizes: Vec<(String, u64)> = meta
        .arrays
        .iter()
        .map(|(name, a)| (name.clone(), a.shape.iter().product::<u64>() * a.dtype.size() as u64))
        .collect();
    let total: u64 = sizes.iter().map(|(_, b)| b).sum();
    let splits = [&dataset.splits.train, &dataset.splits.valid, &dataset.splits.test].map(|s| s.len() as u64);

    let mut text = format!("{} at {}\n", meta.name, path.display());
    text += &format!("nodes     {}\n", show::number(n as u64));
    text += &format!(
        "edges     {} directed; in-degree mean {mean:.1}, median {}, 99% {}, max {}; {} nodes without\n",
        show::number(dataset.topology.num_edges()),
        quantile(0.5),
        quantile(0.99),
        show::number(quantile(1.0)),
        show::number(isolated as u64)
    );
    text += &match &dataset.features {
        Some(f) => format!("features  {} x {}, {} a row\n", f.dim(), f.dtype(), show::bytes(f.row_bytes() as u64)),
        None => "features  none\n".to_string(),
    };
    text += &match &dataset.labels {
        Some(_) => {
            format!("labels    {} classes, {} nodes labelled\n", meta.num_classes, show::number(labelled as u64))
        }
        None => "labels    none\n".to_string(),
    };
    text += &format!(
        "splits    train {}, valid {}, test {}\n",
        show::number(splits[0]),
        show::number(splits[1]),
        show::number(splits[2])
    );
    let weights = if dataset.topology.weights().is_some() { "with edge weights" } else { "no edge weights" };
    text += &format!("size      {} in {} arrays, {weights}\n", show::bytes(total), sizes.len());

    let json = json!({
        "name": meta.name, "path": path, "version": meta.version,
        "num_nodes": n, "num_edges": dataset.topology.num_edges(), "num_classes": meta.num_classes,
        "feature_dim": dataset.feature_dim(),
        "feature_dtype": dataset.features.as_ref().map(|f| f.dtype()),
        "weighted": dataset.topology.weights().is_some(),
        "labelled": labelled,
        "degree": { "mean": mean, "median": quantile(0.5), "p99": quantile(0.99), "max": quantile(1.0), "isolated": isolated },
        "splits": { "train": splits[0], "valid": splits[1], "test": splits[2] },
        "bytes": total,
        "arrays": meta.arrays, "provenance": meta.provenance,
    });
    Ok(Outcome::new(text, json))
}
