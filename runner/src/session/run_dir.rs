//! A run directory: configuration, plan, status, metrics, checkpoints, trace, report and model of a run.

pub(crate) mod checkpoints;
pub(crate) mod status;

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use morphgl_execute::TrainingState;
use morphgl_graph_store::Dataset;
use morphgl_model_core::output_width;
use morphgl_platform::{Replacement, is_at, lock_holder, open_regular, read_text, replace_file};
use morphgl_registry::{CACHE_HITS, CACHE_REQUESTS};
use morphgl_report::{LineChart, Report, with_hit_rates};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::status::{State, Status};
use crate::task::{self, Examples};
use crate::unwritten::unwritten;
use crate::usage::{OrUsage, Usage};
use crate::{Checkpoint, EpochRow, JobConfig, Plan, Position, Progress, TrainOptions, paths, words};

/// Refuses a model file that could not be written at the end, by creating a temporary one beside it as writing does.
pub(crate) fn refuse_unwritable(path: &Path) -> Result<()> {
    // Writing ends with a rename, which would replace a device.
    if path.exists() && !path.is_file() {
        let what = if path.is_dir() { "a directory" } else { "no regular file" };
        anyhow::bail!("--save {}: this is {what}; name a file", path.display());
    }
    // Dropped, the temporary file is removed.
    Replacement::new(path)
        .and_then(|beside| beside.create().map(drop))
        .with_context(|| format!("--save {}: cannot be written; choose another file", path.display()))
}

/// An open run directory.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    /// `metrics.jsonl`, locked until it is closed: one process at a time writes to a run.
    metrics: File,
    /// Bytes of whole lines in `metrics.jsonl`.
    written: u64,
    /// Lines that are not written yet.
    pending: String,
    /// Number of the last checkpoint.
    checkpoint: u64,
}

/// Maximum bytes of a `config.toml`.
const MAX_CONFIG: u64 = 1 << 20;

/// Maximum bytes of a `report.html`.
const MAX_REPORT: u64 = 1 << 30;

/// Number of checkpoints that are kept.
const KEPT: u64 = 2;

/// The directory of checkpoints, and their file extension; a file's name is the checkpoint's number.
const CHECKPOINTS: (&str, &str) = ("checkpoints", "checkpoint");

fn checkpoint_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(CHECKPOINTS.0).join(format!("{number:06}.{}", CHECKPOINTS.1))
}

/// Numbers of the checkpoints of a run, the newest first. Partial files of a process that was killed are removed.
fn checkpoints(dir: &Path) -> Result<Vec<u64>> {
    let folder = dir.join(CHECKPOINTS.0);
    let cure = || format!("{}: no checkpoints; train again with another --run directory", folder.display());
    let mut numbers = Vec::new();
    for entry in fs::read_dir(&folder).with_context(cure)? {
        let path = entry.with_context(cure)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.contains(".partial-") {
            let _ = fs::remove_file(&path);
        }
        numbers.extend(name.strip_suffix(CHECKPOINTS.1).and_then(|n| n.strip_suffix('.')?.parse::<u64>().ok()));
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    Ok(numbers)
}

/// The content of `config.toml`: dataset and configuration of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Configured {
    #[serde(default, with = "paths::exact", skip_serializing_if = "Option::is_none")]
    pub(crate) dataset: Option<PathBuf>,
    /// Whether the dataset's files are mapped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) mmap: bool,
    /// Whether checksums are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) no_verify: bool,
    #[serde(default, with = "paths::exact", skip_serializing_if = "Option::is_none")]
    pub(crate) init: Option<PathBuf>,
    pub(crate) training: TrainOptions,
    pub(crate) job: JobConfig,
}

impl Configured {
    /// The configuration of a run, where `path` is its directory.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        path.join("config.toml").is_file().then(|| Self::read(path)).transpose()
    }

    /// Reads the `config.toml` of a run.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("config.toml");
        Self::parse(&path)
            .with_context(|| format!("{}: cannot be read; give the --run directory of a training", path.display()))
    }

    /// Reads a file that has the form of a run's `config.toml`.
    pub(crate) fn read_file(path: &Path) -> Result<Self> {
        Self::parse(path).or_usage(format_args!("--config {}: not a config.toml of a run", path.display()))
    }

    fn parse(path: &Path) -> Result<Self> {
        Ok(toml::from_str(&read_text(path, MAX_CONFIG)?)?)
    }

    /// The same job on a dataset, with the threads, the memory and the sampler settings of `here`, which are the run's but for
    /// those given.
    pub(crate) fn job_on(&self, dataset: &Dataset, here: JobConfig) -> JobConfig {
        let mut job = JobConfig {
            threads: here.threads,
            disk_bytes: here.disk_bytes,
            sampler: here.sampler,
            machine: here.machine,
            every_device: false,
            ..self.job.clone()
        };
        let model = &mut job.spec.model;
        model.in_dim = dataset.feature_dim();
        task::set_types(model, dataset);
        // Where edges have no targets the job is refused.
        match (Examples::of(model), output_width(dataset, model.task, model.learns_edges())) {
            (Examples::Nodes, width) => model.num_classes = width,
            (Examples::Edges, width) if width > 0 => model.edge_outputs = width,
            _ => {}
        }
        job
    }

    /// Writes `config.toml`.
    pub(crate) fn write(&self, dir: &Path) -> Result<()> {
        let config = toml::to_string(self)?;
        let path = dir.join("config.toml");
        replace_file(&path, |out| out.write_all(config.as_bytes()))
            .map_err(|e| unwritten(&path, e, "choose another --run directory"))
    }
}

/// The hit rate of the caches of a run over all of its epochs; `None` where nothing was looked up.
pub(crate) fn hit_rate(dir: &Path) -> Result<Option<f64>> {
    let path = dir.join("metrics.jsonl");
    let what = || format!("{}: cannot be read; give the --run directory of a training", path.display());
    let mut sums = [0; 2];
    for line in BufReader::new(open_regular(&path).with_context(what)?).lines() {
        let row: Value = serde_json::from_str(&line.with_context(what)?).with_context(what)?;
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
    let page = read_text(&path, MAX_REPORT).with_context(|| format!("{}: cannot be read; {cure}", path.display()))?;
    let page = with_hit_rates(&page, chart)
        .with_context(|| format!("{}: no report of this program; {cure}", path.display()))?;
    replace(&dir.join("cache.json"), &format!("{result:#}\n"))?;
    replace(&path, &page)
}

fn replace(path: &Path, text: &str) -> Result<()> {
    replace_file(path, |out| out.write_all(text.as_bytes())).map_err(|e| not_written(path, e))
}

impl RunDir {
    /// Refuses a directory with a run.
    pub(crate) fn refuse_existing(path: &Path) -> Result<()> {
        if path.join("config.toml").exists() {
            let status = Status::read(path).map(|status| format!(" ({status})")).unwrap_or_default();
            let path = path.display();
            return Err(Usage::error(format!(
                "--run {path}: it holds a run already{status}; continue it with --resume {path}, or choose another directory"
            )));
        }
        Ok(())
    }

    /// Refuses a directory with a run, and one that another process is about to train into, as far as the system tells:
    /// [`RunDir::create`] refuses it in any case.
    pub(crate) fn refuse_taken(path: &Path) -> Result<()> {
        Self::refuse_existing(path)?;
        match open_regular(&path.join("metrics.jsonl")).ok().and_then(|metrics| lock_holder(&metrics)) {
            Some(process) => Err(taken(path, Some(process))),
            None => Ok(()),
        }
    }

    /// Makes the directory with an empty `metrics.jsonl`. It holds a run once [`RunDir::begin`] was called.
    pub(crate) fn create(path: &Path, remark: &mut dyn FnMut(String)) -> Result<Self> {
        let unwritable = |e| unwritten(path, e, "choose another --run directory");
        Self::refuse_existing(path)?;
        fs::create_dir_all(path.join(CHECKPOINTS.0)).map_err(unwritable)?;
        let at = path.join("metrics.jsonl");
        let metrics = match open_regular(&at) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => File::options().write(true).create(true).truncate(false).open(&at),
        };
        let metrics = metrics.map_err(unwritable)?;
        lock(&metrics, path, remark)?;
        // Another process may have trained between the first look and the lock.
        Self::refuse_existing(path)?;
        metrics.set_len(0).map_err(unwritable)?;
        Ok(Self { path: path.to_path_buf(), metrics, written: 0, pending: String::new(), checkpoint: 0 })
    }

    /// The directory's path, for what is written into it next; an error if its `metrics.jsonl` was removed, and perhaps another
    /// run begun there.
    pub(crate) fn path(&self) -> Result<&Path> {
        if is_at(&self.metrics, &self.path.join("metrics.jsonl")) {
            return Ok(&self.path);
        }
        let dir = self.path.display();
        bail!(
            "{dir}: its files were removed while the run trained: nothing more is written there; leave them until a run has ended"
        )
    }

    /// Marks a directory with its first checkpoint as a run.
    pub(crate) fn begin(&self, config: &Configured) -> Result<()> {
        self.set_status(State::Running)?;
        config.write(self.path()?)
    }

    /// Opens the directory of a run that ended early, at its newest whole checkpoint; what was written after it is removed.
    /// Damaged checkpoints are reported to `remark`.
    pub(crate) fn resume(path: &Path, remark: &mut dyn FnMut(String)) -> Result<(Self, Configured, Checkpoint)> {
        let at = path.join("metrics.jsonl");
        let opened = open_regular(&at).and_then(|_| File::options().write(true).open(&at));
        let opened = opened.map_err(|e| not_written(&at, e));
        // What is no run lacks the configuration, too.
        let metrics = opened.or_else(|e| Configured::read(path).and(Err(e)))?;
        // Before anything is read that another process writes.
        lock(&metrics, path, remark)?;
        let configured = Configured::read(path)?;
        let mut damaged = Vec::new();
        for number in checkpoints(path)? {
            let file = checkpoint_path(path, number);
            let read = Checkpoint::read(&file).and_then(|mut checkpoint| {
                let written = checkpoint.run["metrics_bytes"].as_u64().context("it has no metrics_bytes")?;
                checkpoint.progress.report.epochs = rows(path, written, checkpoint.progress.epoch)?;
                Ok((checkpoint, written))
            });
            match read {
                Ok((checkpoint, written)) => {
                    metrics.set_len(written).map_err(|e| not_written(&at, e))?;
                    damaged.iter().for_each(|file| drop(fs::remove_file(file)));
                    let (path, pending) = (path.to_path_buf(), String::new());
                    let run_dir = Self { path, metrics, written, pending, checkpoint: number };
                    return Ok((run_dir, configured, checkpoint));
                }
                Err(e) => {
                    remark(format!("{}; an older checkpoint is used", words::one_line(&e)));
                    damaged.push(file);
                }
            }
        }
        bail!("{}: no whole checkpoint; train again with another --run directory", path.display())
    }

    /// Writes `status.json`.
    pub(crate) fn set_status(&self, status: State) -> Result<()> {
        Status::write(self.path()?, status)
    }

    /// Writes a checkpoint, and removes those that are not kept. `run` describes the run besides its progress; the length of
    /// `metrics.jsonl` is added to it.
    pub(crate) fn keep(
        &mut self,
        progress: &Progress,
        position: &Position,
        training: &TrainingState,
        run: &mut Value,
    ) -> Result<()> {
        // A checkpoint says which rows there are.
        self.write_metrics()?;
        self.metrics.sync_data().map_err(|e| not_written(&self.path.join("metrics.jsonl"), e))?;
        run["metrics_bytes"] = json!(self.written);
        let number = self.checkpoint + 1;
        let bytes = Checkpoint::encode(progress, position, training, run)?;
        self.write(checkpoint_path(Path::new(""), number), |out| Checkpoint::write(&bytes, out))?;
        self.checkpoint = number;
        // Also what a process left that was killed before it came to this.
        for old in checkpoints(self.path()?).unwrap_or_default().into_iter().filter(|old| old + KEPT <= number) {
            let _ = fs::remove_file(checkpoint_path(&self.path, old));
        }
        Ok(())
    }

    /// Writes `plan.json`.
    pub(crate) fn write_plan(&self, plan: &Plan) -> Result<()> {
        let plan = serde_json::to_value(plan)?;
        self.write("plan.json", |out| writeln!(out, "{plan:#}"))
    }

    /// Appends an epoch to `metrics.jsonl`, after earlier ones that could not be written.
    pub(crate) fn append(&mut self, row: &EpochRow) -> Result<()> {
        self.pending += &serde_json::to_string(row)?;
        self.pending.push('\n');
        self.write_metrics()
    }

    /// Writes the lines that are not in `metrics.jsonl` yet.
    pub(crate) fn write_metrics(&mut self) -> Result<()> {
        self.path()?;
        let end = self.metrics.seek(SeekFrom::Start(self.written));
        if let Err(e) = end.and_then(|_| self.metrics.write_all(self.pending.as_bytes())) {
            // Removes an incomplete line; if that fails, the next try overwrites it.
            let _ = self.metrics.set_len(self.written);
            return Err(not_written(&self.path.join("metrics.jsonl"), e));
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

    /// Replaces a file. Looked at again once its new content has a file, which is removed with the directory and so put in no other.
    fn write(&self, name: impl AsRef<Path>, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
        let path = self.path()?.join(name);
        let write = |out: &mut BufWriter<File>| self.path().map_err(io::Error::other).and_then(|_| write(out));
        replace_file(&path, write).map_err(|e| not_written(&path, e))
    }

    /// Path of the model file.
    pub(crate) fn model(&self) -> Result<PathBuf> {
        Ok(model(self.path()?))
    }
}

/// Path of the model file of the run in `dir`.
pub(crate) fn model(dir: &Path) -> PathBuf {
    dir.join("model.safetensors")
}

/// Locks a run for this process by its open `metrics.jsonl`. Of a file system without locks this is said to `remark`, and
/// the status tells whether a process of this machine trains.
fn lock(metrics: &File, dir: &Path, remark: &mut dyn FnMut(String)) -> Result<()> {
    match metrics.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(taken(dir, lock_holder(metrics))),
        Err(TryLockError::Error(e)) => {
            if let Some(process) = Status::read(dir).as_ref().and_then(Status::running) {
                return Err(taken(dir, Some(process)));
            }
            let dir = dir.display();
            remark(format!("{dir}: its file system has no locks ({e}); train it by one process at a time"));
            Ok(())
        }
    }
}

/// The error of a run that another process writes to.
fn taken(dir: &Path, process: Option<u32>) -> anyhow::Error {
    let process = process.map_or_else(|| "another process".to_string(), |id| format!("process {id}"));
    anyhow!("{}: {process} is training it; wait for it, or interrupt it first", dir.display())
}

fn not_written(path: &Path, error: io::Error) -> anyhow::Error {
    unwritten(path, error, "check the directory's permissions and its disk")
}

/// The rows of the first `epochs` epochs, in the first `written` bytes of `metrics.jsonl`.
pub(crate) fn rows(dir: &Path, written: u64, epochs: u32) -> Result<Vec<EpochRow>> {
    let path = dir.join("metrics.jsonl");
    let damaged = || format!("{}: it lacks rows of the checkpoint", path.display());
    let mut text = Vec::new();
    open_regular(&path).and_then(|file| file.take(written).read_to_end(&mut text)).with_context(damaged)?;
    if text.len() as u64 != written {
        bail!("{}", damaged());
    }
    let rows: Result<Vec<EpochRow>, _> =
        text.split(|&b| b == b'\n').filter(|line| !line.is_empty()).map(serde_json::from_slice).collect();
    let rows = rows.with_context(damaged)?;
    if !(0..epochs).eq(rows.iter().map(|row| row.epoch)) {
        bail!("{}", damaged());
    }
    Ok(rows)
}
