//! A run directory: what was trained, how, and what came of it.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use morphgl_report::{Report, Timeline};
use serde::Serialize;

use crate::{EpochRow, JobConfig, Plan, TrainOptions};

/// Refuses a model's file that could not be written in the end: by making one beside it, as writing it does.
pub(crate) fn refuse_unwritable(path: &Path) -> Result<()> {
    // Writing ends with a rename: a device would be gone.
    if path.exists() && !path.is_file() {
        let what = if path.is_dir() { "a directory" } else { "no regular file" };
        anyhow::bail!("--save {}: this is {what}; name a file", path.display());
    }
    let beside = morphgl_model_spec::partial_path(path);
    File::create(&beside)
        .and_then(|_| fs::remove_file(&beside))
        .with_context(|| format!("--save {}: cannot be written; choose another file", path.display()))
}

/// An open run directory.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    metrics: File,
    /// Bytes of `metrics.jsonl` that are whole lines.
    whole: u64,
    /// Lines that are not there yet.
    waiting: String,
}

#[derive(Serialize)]
struct Config<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    dataset: &'a Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    init: &'a Option<PathBuf>,
    training: &'a TrainOptions,
    job: &'a JobConfig,
}

impl RunDir {
    /// Refuses a directory that holds a run, before any work is done for it.
    pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
        if path.join("config.toml").exists() {
            anyhow::bail!("{}: it holds a run already; choose another --run directory", path.display());
        }
        Ok(())
    }

    /// Makes the directory with `config.toml` and an empty `metrics.jsonl`.
    pub(crate) fn create(
        path: &Path,
        dataset: &Option<PathBuf>,
        init: &Option<PathBuf>,
        job: &JobConfig,
        training: &TrainOptions,
    ) -> Result<Self> {
        let named = || format!("{}: cannot be written; choose another --run directory", path.display());
        Self::refuse_existing(path)?;
        fs::create_dir_all(path).with_context(named)?;
        let config = toml::to_string(&Config { dataset, init, training, job })?;
        fs::write(path.join("config.toml"), config).with_context(named)?;
        let metrics = File::create(path.join("metrics.jsonl")).with_context(named)?;
        Ok(Self { path: path.to_path_buf(), metrics, whole: 0, waiting: String::new() })
    }

    /// Writes `plan.json`.
    pub(crate) fn write_plan(&self, plan: &Plan) -> Result<()> {
        let path = self.path.join("plan.json");
        fs::write(&path, format!("{:#}\n", serde_json::to_value(plan)?))
            .with_context(|| format!("{}: cannot be written; free some disk space", path.display()))
    }

    /// Appends an epoch to `metrics.jsonl`, and the epochs before that did not fit.
    pub(crate) fn append(&mut self, row: &EpochRow) -> Result<()> {
        self.waiting += &serde_json::to_string(row)?;
        self.waiting.push('\n');
        self.write_metrics()
    }

    /// Writes the lines that are not in `metrics.jsonl` yet.
    pub(crate) fn write_metrics(&mut self) -> Result<()> {
        let there = self.metrics.seek(SeekFrom::Start(self.whole));
        if let Err(e) = there.and_then(|_| self.metrics.write_all(self.waiting.as_bytes())) {
            // Half a line is worse than none; one that cannot be cut is written over by the next try.
            let _ = self.metrics.set_len(self.whole);
            let path = self.path.display();
            return Err(e).with_context(|| format!("{path}/metrics.jsonl: cannot be written; free some disk space"));
        }
        self.whole += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    /// Writes `trace.json` and `report.html`; one that cannot be written whole is not left.
    pub(crate) fn write_report(&self, report: &Report) -> Result<()> {
        let trace = self.write_trace(report).inspect_err(|_| self.remove("trace.json"));
        let path = self.path.join("report.html");
        let page = fs::write(&path, morphgl_report::html(report)).with_context(|| full(&path));
        trace.and(page.inspect_err(|_| self.remove("report.html")))
    }

    fn remove(&self, name: &str) {
        // That it cannot be written is what is told.
        let _ = fs::remove_file(self.path.join(name));
    }

    fn write_trace(&self, report: &Report) -> Result<()> {
        let path = self.path.join("trace.json");
        let timelines: Vec<(&str, &Timeline)> = [("measured", &report.measured), ("predicted", &report.predicted)]
            .into_iter()
            .filter_map(|(name, timeline)| Some((name, timeline.as_ref()?)))
            .collect();
        let file = File::create(&path).map(BufWriter::new).with_context(|| full(&path))?;
        let mut file = morphgl_report::write_trace(file, &timelines).with_context(|| full(&path))?;
        file.flush().with_context(|| full(&path))
    }

    /// Where the model goes.
    pub(crate) fn model(&self) -> PathBuf {
        self.path.join("model.safetensors")
    }
}

fn full(path: &Path) -> String {
    format!("{}: cannot be written; free some disk space", path.display())
}
