//! A run directory: configuration, plan, metrics, trace, report and model of a run.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use morphgl_platform::{Replacement, read_text, replace_file};
use morphgl_registry::{CACHE_HITS, CACHE_REQUESTS};
use morphgl_report::{LineChart, Report, with_hit_rates};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::paths;
use crate::{EpochRow, JobConfig, Plan, TrainOptions};

/// Maximum bytes of a `config.toml`.
const MAX_CONFIG: u64 = 1 << 20;

/// Refuses a model file that could not be written at the end, by creating a temporary one beside it as writing does.
pub(crate) fn refuse_unwritable(path: &Path) -> Result<()> {
    // Writing ends with a rename, which would replace a device.
    if path.exists() && !path.is_file() {
        let what = if path.is_dir() { "a directory" } else { "no regular file" };
        anyhow::bail!("--save {}: this is {what}; name a file", path.display());
    }
    // Dropped, the temporary file is removed.
    Replacement::new(path)
        .and_then(|beside| File::create(beside.path()).map(drop))
        .with_context(|| format!("--save {}: cannot be written; choose another file", path.display()))
}

/// An open run directory.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    metrics: File,
    /// Bytes of whole lines in `metrics.jsonl`.
    written: u64,
    /// Lines that are not written yet.
    pending: String,
}

#[derive(Serialize)]
struct Config<'a> {
    #[serde(with = "paths::exact", skip_serializing_if = "Option::is_none")]
    dataset: &'a Option<PathBuf>,
    #[serde(with = "paths::exact", skip_serializing_if = "Option::is_none")]
    init: &'a Option<PathBuf>,
    training: &'a TrainOptions,
    job: &'a JobConfig,
}

/// The dataset and the configuration of a finished run.
#[derive(Debug, Deserialize)]
pub(crate) struct Configured {
    #[serde(default, with = "paths::exact")]
    pub(crate) dataset: Option<PathBuf>,
    pub(crate) job: JobConfig,
}

impl Configured {
    /// Reads `config.toml`.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("config.toml");
        let what = || format!("{}: cannot be read; give the --run directory of a training", path.display());
        toml::from_str(&read_text(&path, MAX_CONFIG).with_context(what)?).with_context(what)
    }
}

/// The hit rate of the caches of a run over all of its epochs; `None` where nothing was looked up.
pub(crate) fn hit_rate(dir: &Path) -> Result<Option<f64>> {
    let path = dir.join("metrics.jsonl");
    let what = || format!("{}: cannot be read; give the --run directory of a training", path.display());
    let mut sums = [0; 2];
    for line in fs::read_to_string(&path).with_context(what)?.lines() {
        let row: Value = serde_json::from_str(line).with_context(what)?;
        for counters in row["report"]["counters"].as_object().into_iter().flat_map(|operators| operators.values()) {
            let amount = |name: &str| counters[name].as_u64().unwrap_or(0);
            sums = [sums[0] + amount(CACHE_REQUESTS.name), sums[1] + amount(CACHE_HITS.name)];
        }
    }
    let [requests, hits] = sums;
    Ok((requests > 0).then(|| hits as f64 / requests as f64))
}

/// Puts hit rates into the report of a run, and writes `result`, from which they were drawn, to `cache.json`.
pub(crate) fn write_hit_rates(dir: &Path, chart: &LineChart, result: &Value) -> Result<()> {
    let path = dir.join("report.html");
    let cure = "give the --run directory of a training that has ended";
    let page = fs::read_to_string(&path).with_context(|| format!("{}: cannot be read; {cure}", path.display()))?;
    let page = with_hit_rates(&page, chart)
        .with_context(|| format!("{}: no report of this program; {cure}", path.display()))?;
    replace(&dir.join("cache.json"), &format!("{result:#}\n"))?;
    replace(&path, &page)
}

fn replace(path: &Path, text: &str) -> Result<()> {
    replace_file(path, |out| out.write_all(text.as_bytes())).with_context(|| disk_full(path))
}

impl RunDir {
    /// Refuses a directory with a run.
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
        let unwritable = || format!("{}: cannot be written; choose another --run directory", path.display());
        Self::refuse_existing(path)?;
        fs::create_dir_all(path).with_context(unwritable)?;
        let config = toml::to_string(&Config { dataset, init, training, job })?;
        replace_file(&path.join("config.toml"), |out| out.write_all(config.as_bytes())).with_context(unwritable)?;
        let metrics = File::create(path.join("metrics.jsonl")).with_context(unwritable)?;
        Ok(Self { path: path.to_path_buf(), metrics, written: 0, pending: String::new() })
    }

    /// Writes `plan.json`.
    pub(crate) fn write_plan(&self, plan: &Plan) -> Result<()> {
        let path = self.path.join("plan.json");
        let plan = serde_json::to_value(plan)?;
        replace_file(&path, |out| writeln!(out, "{plan:#}")).with_context(|| disk_full(&path))
    }

    /// Appends an epoch to `metrics.jsonl`, after earlier ones that could not be written.
    pub(crate) fn append(&mut self, row: &EpochRow) -> Result<()> {
        self.pending += &serde_json::to_string(row)?;
        self.pending.push('\n');
        self.write_metrics()
    }

    /// Writes the lines that are not in `metrics.jsonl` yet.
    pub(crate) fn write_metrics(&mut self) -> Result<()> {
        let end = self.metrics.seek(SeekFrom::Start(self.written));
        if let Err(e) = end.and_then(|_| self.metrics.write_all(self.pending.as_bytes())) {
            // Removes an incomplete line; if that fails, the next try overwrites it.
            let _ = self.metrics.set_len(self.written);
            return Err(e).with_context(|| disk_full(&self.path.join("metrics.jsonl")));
        }
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes `trace.json` and `report.html`, each whole or not at all.
    pub(crate) fn write_report(&self, report: &Report) -> Result<()> {
        let timelines = [("measured", &report.measured), ("predicted", &report.predicted)];
        let timelines: Vec<_> = timelines.into_iter().filter_map(|(name, t)| Some((name, t.as_ref()?))).collect();
        let trace = self.write("trace.json", |file| morphgl_report::write_trace(file, &timelines).map(drop));
        let page = self.write("report.html", |file| file.write_all(morphgl_report::html(report).as_bytes()));
        trace.and(page)
    }

    fn write(&self, name: &str, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let path = self.path.join(name);
        replace_file(&path, write).with_context(|| disk_full(&path))
    }

    /// Path of the model file.
    pub(crate) fn model(&self) -> PathBuf {
        self.path.join("model.safetensors")
    }
}

fn disk_full(path: &Path) -> String {
    format!("{}: cannot be written; free some disk space", path.display())
}
