//! Scores of pairs, and the best partners of nodes.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use indicatif::HumanCount;
use serde_json::{Value, json};

use super::csv::write_node;
use super::{Args, write_npy};
use crate::RunContext;
use crate::cli::Outcome;
use crate::paths::lossy;
use crate::session::{PairScores, Partners, Trained};
use crate::usage::Usage;
use morphgl_platform::replace_file;

const HEADER: &str = "source,target,score";
/// What is said beside a file of scores.
const COMPARED: &str = "scores are compared with one another: a higher one is a likelier link";

/// Scores the pairs of a file.
pub(super) fn score(edges: &Path, args: &Args, trained: &mut Trained, context: &RunContext) -> anyhow::Result<Outcome> {
    if args.probabilities {
        return Err(Usage::error("--probabilities: a model of links gives pairs one score; leave it out"));
    }
    let PairScores { ids, scores } = trained.score_pairs(edges)?;
    let csv = |out: &mut dyn Write| -> io::Result<()> {
        writeln!(out, "{HEADER}")?;
        ids.iter().zip(&scores).try_for_each(|([source, target], &score)| row(out, source, target, score, args))
    };
    let count = ids.len();
    let Some(path) = &args.output else {
        return Ok(Outcome::new(text(csv)?, json!({ "pairs": ids, "scores": scores })));
    };
    match path.extension().is_some_and(|e| e == "npy") {
        true => write_npy(path, &scores, None)?,
        false => write(path, csv)?,
    }
    context.remark(COMPARED);
    let text = format!("{} pairs scored, written to {}\n", HumanCount(count as u64), path.display());
    Ok(Outcome::new(text, json!({ "pairs": count, "output": lossy(path) })))
}

/// The best partners of nodes.
pub(super) fn best(k: usize, args: &Args, trained: &mut Trained, context: &RunContext) -> anyhow::Result<Outcome> {
    if let Some(path) = args.output.as_ref().filter(|path| path.extension().is_some_and(|e| e == "npy")) {
        let path = path.display();
        return Err(Usage::error(format!(
            "--output {path}: partners are rows of source, target and score; name a .csv"
        )));
    }
    let nodes = trained.nodes(args.nodes())?;
    let Partners { ids, partners, scores } =
        trained.best_partners(&nodes, k, args.include_edges, args.edge_type.as_deref())?;
    let csv = |out: &mut dyn Write| -> io::Result<()> {
        writeln!(out, "{HEADER}")?;
        for (source, (partners, scores)) in ids.iter().zip(partners.iter().zip(&scores)) {
            for (target, &score) in partners.iter().zip(scores) {
                row(out, source, target, score, args)?;
            }
        }
        Ok(())
    };
    let Some(path) = &args.output else {
        return Ok(Outcome::new(text(csv)?, json!({ "nodes": ids, "partners": partners, "scores": scores })));
    };
    write(path, csv)?;
    context.remark(COMPARED);
    let count = HumanCount(partners.iter().map(|partners| partners.len() as u64).sum());
    let text = format!("{count} partners of {} nodes, written to {}\n", HumanCount(ids.len() as u64), path.display());
    Ok(Outcome::new(text, json!({ "nodes": ids.len(), "output": lossy(path) })))
}

fn row(out: &mut dyn Write, source: &Value, target: &Value, score: f32, args: &Args) -> io::Result<()> {
    for node in [source, target] {
        write_node(out, node, args.quote_formulas)?;
        out.write_all(b",")?;
    }
    writeln!(out, "{score:.6}")
}

fn text(csv: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<String> {
    let mut text = Vec::new();
    csv(&mut text)?;
    Ok(String::from_utf8(text)?)
}

fn write(path: &Path, csv: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    let failed = || format!("{}: cannot be written; check directory and disk space", path.display());
    replace_file(path, |out| csv(out)).with_context(failed)
}
