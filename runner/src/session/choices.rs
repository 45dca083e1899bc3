//! Training operators that runs on a dataset chose by measurement, kept in its directory: where two are equally fast, the next run
//! chooses as the last one did, and so has the same bits.

use std::io::Write;
use std::path::PathBuf;

use morphgl_model_core::ModelSpec;
use morphgl_platform::{SimdLevel, read_text, replace_file};
use morphgl_profile::Selection;
use morphgl_registry::{Key, Place, SamplerSettings};
use serde::{Deserialize, Serialize};

use crate::Job;

/// The file's name, and its maximum length.
const FILE: (&str, u64) = ("choices.json", 1 << 20);
/// Choices that are kept, the last ones.
const KEPT: usize = 100;

/// What a choice depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Circumstances {
    version: String,
    cpu: String,
    isa: String,
    threads: usize,
    model: ModelSpec,
    sampler: SamplerSettings,
}

/// The training operator that was chosen at a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Choice {
    place: Place,
    training: Key,
    circumstances: Circumstances,
}

/// The choices of earlier runs on a dataset.
#[derive(Debug)]
pub(crate) struct Choices {
    /// `None` for a dataset without a directory.
    path: Option<PathBuf>,
    circumstances: Circumstances,
    all: Vec<Choice>,
}

impl Choices {
    /// Reads those of the job's dataset; a file that cannot be read has none.
    pub(crate) fn of(job: &Job) -> Self {
        let directory = Some(&job.dataset.path).filter(|path| !path.as_os_str().is_empty());
        let path = directory.map(|path| path.join(FILE.0));
        let text = path.as_ref().and_then(|path| read_text(path, FILE.1).ok());
        let circumstances = Circumstances {
            version: env!("CARGO_PKG_VERSION").to_string(),
            cpu: job.registry().machine().cpu.clone(),
            isa: SimdLevel::current().name().to_string(),
            threads: job.threads(),
            model: job.config.spec.model.clone(),
            // Which mini-batches there are does not matter, but how large they are.
            sampler: SamplerSettings { seed: 0, ..job.config.sampler.clone() },
        };
        Self { path, circumstances, all: text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default() }
    }

    /// The operators that the last run in these circumstances chose.
    pub(crate) fn preferred(&self) -> Vec<Key> {
        let same = self.all.iter().filter(|choice| choice.circumstances == self.circumstances);
        same.map(|choice| choice.training.clone()).collect()
    }

    /// Keeps what was measured. A directory that cannot be written to keeps nothing: the run is what matters.
    pub(crate) fn keep(&mut self, selections: &[Selection]) {
        let before = self.all.clone();
        for selection in selections.iter().filter(|selection| selection.candidates.iter().any(|c| c.first.is_some())) {
            let (place, training) = (selection.place.clone(), selection.chosen.clone());
            let choice = Choice { place, training, circumstances: self.circumstances.clone() };
            match self.all.iter_mut().find(|c| c.place == choice.place && c.circumstances == choice.circumstances) {
                Some(kept) => *kept = choice,
                None => self.all.push(choice),
            }
        }
        self.all.drain(..self.all.len().saturating_sub(KEPT));
        if let (Some(path), Ok(json)) = (&self.path, serde_json::to_string_pretty(&self.all))
            && self.all != before
        {
            let _ = replace_file(path, |out| writeln!(out, "{json}"));
        }
    }

    /// What another run may choose otherwise, a line each.
    pub(crate) fn remarks(&self, selections: &[Selection]) -> Vec<String> {
        let preferred = self.preferred();
        let remark = |selection: &Selection| {
            let rival = &selection.rivals().next()?.training;
            let chosen = &selection.chosen;
            let how = match &self.path {
                Some(_) if preferred.contains(chosen) => {
                    "is kept from the last run on this dataset (--fresh measures anew)"
                }
                Some(_) => "is kept for the next runs on this dataset",
                None => "may not be chosen by the next run, whose last digits then differ (--training KEY fixes it)",
            };
            Some(format!("{rival} is as fast within the noise of measurement: {chosen} {how}"))
        };
        selections.iter().filter_map(remark).collect()
    }
}
