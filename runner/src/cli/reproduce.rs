//! `morphgl reproduce`: the tables and figures of the papers beside ours.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use morphgl_platform::replace_file;
use serde_json::{Value, json};

use super::{Invocation, Outcome, show};
use crate::RunContext;
use crate::reproduce::{self, How, PAPERS, Record, Recorded, Row, Setting, Shown, number};
use crate::usage::Usage;
use crate::words::plural;

#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  morphgl reproduce                    every table and figure of the papers, and how ours is made
  morphgl reproduce M:V                Table V of MorphGL beside our predictions
  morphgl reproduce G:VI N:13 U:7      Table VI of GNNLab, figures of NeutronOrch and of the Unified CPU-GPU protocol
  morphgl reproduce --all --out page   all that this build can, and page/papers.html

A row names its paper and the number there: a table by its roman number or T and its number, a figure by its number.
M is MorphGL, N NeutronOrch, U the Unified CPU-GPU protocol, T Data Tiering; P PyTorch-Direct, G GNNLab and D DUCATI have the
numbers of the survey. docs/papers.md says what each row is made of.")]
pub(crate) struct Args {
    /// Rows to run
    #[arg(value_name = "ROW", conflicts_with_all = ["all", "document"])]
    rows: Vec<String>,
    /// Runs every row that can be run
    #[arg(long, conflicts_with = "document")]
    all: bool,
    /// Writes the rows that were run as a page, papers.html, and as papers.json into this directory, and what each took as record.json
    #[arg(long, value_name = "DIR", conflicts_with = "document")]
    out: Option<PathBuf>,
    /// Prints docs/papers.md
    #[arg(long)]
    document: bool,
}

pub(crate) fn run(args: &Args, context: impl FnOnce() -> Result<RunContext>, call: &Invocation<'_>) -> Result<Outcome> {
    if args.document {
        let text = reproduce::document(&PAPERS);
        return Ok(Outcome::new(text.clone(), json!({ "document": text })));
    }
    if args.rows.is_empty() && !args.all {
        if args.out.is_some() {
            return Err(Usage::error("--out: no row is run; name rows, or give --all"));
        }
        return Ok(list());
    }
    let rows = if args.all { reproduce::rows().filter(|row| row.run.is_some()).collect() } else { named(&args.rows)? };
    let context = context()?;
    let memory = context.process().memory();
    let machine = context.registry().machine();
    let mut record = Record { processor: machine.cpu.clone(), cores: machine.cores, ..Record::default() };
    let bar = call.show.bar("{msg:8} {bar:40} {pos}/{len}  {elapsed}", rows.len() as u64);
    let (mut text, mut values, mut pages) = (String::new(), Vec::new(), Vec::new());
    for row in rows {
        bar.set_message(row.id);
        memory.take_peak();
        let begun = Instant::now();
        // Each row generates its own stand-ins, so that it takes as long as by itself.
        let setting = Setting::new(context.clone());
        let shown = row.run.map(|run| run(&setting)).transpose().with_context(|| row.id)?.unwrap_or_default();
        let seconds = begun.elapsed().as_secs_f64();
        drop(setting);
        if row.run.is_some() {
            let memory_gb = memory.take_peak() as f64 / 1e9;
            record.rows.insert(row.id.to_string(), Recorded { seconds, memory_gb });
        }
        text += &in_words(row, &shown, seconds);
        values.push(value(row, &shown, seconds));
        pages.push((row, shown));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let checked: Vec<bool> = pages.iter().flat_map(|(_, shown)| &shown.verdicts).map(|v| v.holds).collect();
    let hold = checked.iter().filter(|holds| **holds).count();
    let all: f64 = record.rows.values().map(|row| row.seconds).sum();
    text += &format!("{} run in {all:.0} s\n", plural(record.rows.len() as u64, "row"));
    text += &format!("{hold} of {} statements hold\n", checked.len());
    let json = json!({ "rows": values, "statements": checked.len(), "hold": hold });
    if let Some(dir) = &args.out {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("{}: cannot be made; choose another directory", dir.display()))?;
        write(&dir.join("papers.html"), &reproduce::page(&pages))?;
        write(&dir.join("papers.json"), &format!("{json:#}\n"))?;
        write(&dir.join("record.json"), &format!("{:#}\n", json!(record)))?;
        text += &format!("page: {}\n", dir.join("papers.html").display());
    }
    Ok(Outcome::new(text, json))
}

fn write(path: &Path, text: &str) -> Result<()> {
    replace_file(path, |out| out.write_all(text.as_bytes()))
        .with_context(|| format!("{}: cannot be written; choose another directory", path.display()))
}

fn named(ids: &[String]) -> Result<Vec<&'static Row>> {
    let row = |id: &String| {
        reproduce::find(id)
            .ok_or_else(|| Usage::error(format!("{id}: no row of this name; `morphgl reproduce` lists them")))
    };
    ids.iter().map(row).collect()
}

fn list() -> Outcome {
    let mut text = String::new();
    let mut values = Vec::new();
    for (letter, title, rows) in PAPERS {
        text += &format!("{letter}: {title}\n");
        let cells =
            |row: &Row| vec![format!("  {}", row.id), row.how(), row.needs(), row.time(), reproduce::name_of(row)];
        let cells: Vec<_> = rows.iter().map(cells).collect();
        text += &show::table(&["  row", "ours", "needs", "time", "shows"], &cells, &[0, 1, 2, 4]);
        values.extend(rows.iter().map(described));
    }
    let runnable = reproduce::rows().filter(|row| row.run.is_some()).count();
    let record = reproduce::record();
    text += &format!(
        "{} rows, of which {runnable} can be run; time and memory by {}, {}\n",
        values.len(),
        record.processor,
        plural(record.cores as u64, "core")
    );
    Outcome::new(text, json!({ "rows": values, "processor": record.processor, "cores": record.cores }))
}

fn described(row: &Row) -> Value {
    json!({
        "id": row.id, "name": row.name(), "title": row.title, "how": row.how, "code": row.code, "note": row.note,
        "runs": row.run.is_some(), "needs": row.needs(), "recorded": row.recorded(),
    })
}

fn value(row: &Row, shown: &Shown, seconds: f64) -> Value {
    let statements = row.statements.iter().zip(&shown.verdicts).map(|(statement, verdict)| {
        json!({ "says": statement.says, "holds": verdict.holds, "ours": verdict.ours, "differs": statement.differs })
    });
    let mut json = described(row);
    json["figures"] = json!(shown.figures);
    json["statements"] = statements.collect();
    json["seconds"] = json!(seconds);
    json
}

fn in_words(row: &Row, shown: &Shown, seconds: f64) -> String {
    let mut text = format!("{}: {}\n", row.id, reproduce::name_of(row));
    if row.run.is_none() {
        let what = if row.how == [How::Drawing] { "a drawing" } else { "not run" };
        return format!("{text}{what}: {}\n\n", row.note);
    }
    let figures = &shown.figures;
    type Column = (&'static str, fn(&reproduce::Figure) -> Option<f64>);
    let columns: [Column; 4] =
        [("paper", |f| f.paper), ("predicted", |f| f.predicted), ("executed", |f| f.executed), ("here", |f| f.here)];
    let present: Vec<Column> = columns.into_iter().filter(|(_, of)| figures.iter().any(|f| of(f).is_some())).collect();
    let header: Vec<&str> = [""].into_iter().chain(present.iter().map(|(name, _)| *name)).chain(["unit"]).collect();
    let cells = |figure: &reproduce::Figure| {
        let values = present.iter().map(|(_, of)| number(of(figure)));
        [figure.name.clone()].into_iter().chain(values).chain([figure.unit.to_string()]).collect()
    };
    let last = header.len() - 1;
    text += &show::table(&header, &figures.iter().map(cells).collect::<Vec<_>>(), &[0, last]);
    for (statement, verdict) in row.statements.iter().zip(&shown.verdicts) {
        let holds = if verdict.holds { "holds" } else { "does not hold" };
        text += &format!("{}: {holds} ({})\n", statement.says, verdict.ours);
        if let Some(why) = statement.differs.filter(|_| !verdict.holds) {
            text += &format!("  {why}\n");
        }
    }
    format!("{text}{}: {}\n{seconds:.1} s\n\n", row.how(), row.note)
}
