//! The data of a report. Every part is optional.

use serde::{Deserialize, Serialize};

use morphgl_plan::Phase;

use crate::{ConfusionMatrix, LineChart, Timeline};

/// The content of a page. Parts that are `None` or empty are left out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The page's heading, such as `GraphSAGE on products-like`.
    pub title: String,
    /// One or two sentences below it.
    pub summary: String,
    /// Time of writing, as shown.
    pub created: String,
    /// The command line that produced it.
    pub command: String,
    /// Whether any hardware in it is simulated; the page says so at its top.
    /// Simulated lanes, resources and memory are labelled one by one too.
    pub simulated: bool,
    /// The chosen plan in words.
    pub plan: String,
    /// Seconds an epoch is predicted to take.
    pub predicted_seconds: Option<f64>,
    /// Seconds an epoch took; if absent, the median of [`Report::epochs`].
    pub measured_seconds: Option<f64>,
    /// The lower bound of an epoch's seconds.
    pub bound_seconds: Option<f64>,
    /// The resource or phase that bounds the plan.
    pub bottleneck: Option<String>,
    /// The phase for which it bounds the plan: it may be busy for a part of the epoch alone, as where one core of two trains.
    pub bottleneck_phase: Option<Phase>,
    /// What the mean loss is of, such as `cross-entropy`; empty where not known.
    pub loss: String,
    /// The score that the best model is chosen by, where it is another than accuracy or loss.
    pub score: Option<String>,
    /// Its value on the test nodes.
    pub test_score: Option<f64>,
    /// Its best value on the validation nodes.
    pub best_valid_score: Option<f64>,
    /// The epoch whose model is kept.
    pub best_epoch: Option<u32>,
    /// Test accuracy, 0 to 1.
    pub test_accuracy: Option<f64>,
    /// Best validation accuracy, 0 to 1; if absent, the best of [`Report::epochs`].
    pub best_valid_accuracy: Option<f64>,
    /// How many nodes of each class are predicted to be of each, by the model that is kept.
    pub confusion: Option<ConfusionMatrix>,
    /// Utilisation of resources, predicted and measured.
    pub utilisation: Vec<Utilisation>,
    /// The epochs that were run, in order.
    pub epochs: Vec<Epoch>,
    /// Durations of the operators, profiled and measured.
    pub operators: Vec<OperatorSeconds>,
    /// Training operators that could have trained, the chosen ones among them.
    pub candidates: Vec<TrainingCandidate>,
    /// The trainers that shared every step, where there were several.
    pub trainers: Vec<Trainer>,
    /// Seconds of an epoch by which the slowest trainer's share took longer than the mean, step by step.
    pub imbalance_seconds: Option<f64>,
    /// All plans considered, the chosen one among them.
    pub baselines: Vec<Baseline>,
    /// What-if results.
    pub what_if: Vec<WhatIf>,
    /// Peak memory by place.
    pub memory: Vec<Memory>,
    /// Caches and their hit rates.
    pub caches: Vec<Cache>,
    /// Hit rates of caches of any size, by policy.
    pub hit_rates: Option<LineChart>,
    /// Mini-batches in the queue between devices that sample and devices that train, over an epoch.
    pub queue: Option<LineChart>,
    /// What operators counted.
    pub counters: Vec<Counted>,
    /// Rows that were given to mini-batches, by how stale they were, in ascending order.
    pub staleness: Vec<Stale>,
    /// Notes in sentences: assumptions, skipped operators, replanning.
    pub notes: Vec<String>,
    /// The dataset, as names and values.
    pub dataset: Vec<(String, String)>,
    /// The machine and the program, as names and values.
    pub machine: Vec<(String, String)>,
    /// The configuration, as names and values.
    pub configuration: Vec<(String, String)>,
    /// The timeline the plan predicts.
    pub predicted: Option<Timeline>,
    /// The timeline that was measured.
    pub measured: Option<Timeline>,
}

/// Utilisation of a resource: the fraction of an epoch in which it is busy, 0 to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Utilisation {
    /// The resource, such as `PCIe`.
    pub resource: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// Predicted utilisation.
    pub predicted: Option<f64>,
    /// Measured utilisation.
    pub measured: Option<f64>,
}

/// One epoch that was run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Epoch {
    /// Its number.
    pub epoch: u32,
    /// Seconds it took.
    pub seconds: Option<f64>,
    /// Predicted seconds, by its plan.
    pub predicted_seconds: Option<f64>,
    /// Mean training loss.
    pub loss: Option<f64>,
    /// Mean validation loss.
    pub valid_loss: Option<f64>,
    /// Training accuracy, 0 to 1.
    pub train_accuracy: Option<f64>,
    /// Validation accuracy, 0 to 1.
    pub valid_accuracy: Option<f64>,
    /// Value of [`Report::score`] on the validation nodes.
    pub valid_score: Option<f64>,
    /// An event in it, such as `re-planned`, or empty. Shown in the epochs' charts and table.
    pub event: String,
}

/// An operator's duration for one mini-batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperatorSeconds {
    /// The phase.
    pub phase: Phase,
    /// The operator's key.
    pub operator: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// Mean seconds in the profile.
    pub profiled: Option<f64>,
    /// Standard deviation in the profile, in seconds.
    pub deviation: Option<f64>,
    /// Mean seconds while training.
    pub measured: Option<f64>,
}

/// A training operator that was compared with others on whole mini-batches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainingCandidate {
    /// The operator's key.
    pub operator: String,
    /// Where it trains, such as `host`.
    pub place: String,
    /// Whether it was chosen.
    pub chosen: bool,
    /// The outcome in words, such as `stopped after 1 step`, or the reason why it cannot train the model.
    pub outcome: String,
    /// Mini-batches that were timed.
    pub steps: usize,
    /// Median seconds of a mini-batch, if any was timed.
    pub seconds: Option<f64>,
    /// Minimum and maximum seconds.
    pub range: Option<(f64, f64)>,
}

/// One of several trainers that share every step; seconds are those of an epoch on average.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trainer {
    /// Its name: a place such as `cuda:0`, or a rank and its host.
    pub name: String,
    /// Its training operator's key.
    pub operator: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// Seeds of its shares per epoch.
    pub seeds: f64,
    /// Seconds of batching, over all workers.
    pub batching: f64,
    /// Seconds of transferring.
    pub transferring: f64,
    /// Seconds of training, without all-reduces.
    pub training: f64,
    /// Seconds in all-reduces of gradients, waiting for other trainers included.
    #[serde(alias = "addition")]
    pub all_reduce: f64,
    /// The part of these in which the trainer's backward went on.
    pub hidden: f64,
}

/// A plan that was considered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// Its policy, such as `sequential` or `dual-buffer`.
    pub policy: String,
    /// The plan in words.
    pub plan: String,
    /// Seconds an epoch is predicted to take.
    pub seconds: f64,
    /// Ratio to the lower bound.
    pub ratio: Option<f64>,
    /// Its bottleneck.
    pub bottleneck: String,
    /// Resources and their predicted utilisation, 0 to 1.
    pub utilisation: Vec<(String, f64)>,
    /// Whether it is the plan that was chosen.
    pub chosen: bool,
}

/// The best plan of a hypothetical machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WhatIf {
    /// What is changed, such as `CPU × 2`.
    pub change: String,
    /// Seconds an epoch would take.
    pub seconds: f64,
    /// How many times faster than the chosen plan.
    pub speed_up: f64,
    /// Its bottleneck.
    pub bottleneck: String,
    /// The plan in words.
    pub plan: String,
}

/// The memory of one place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// The place, such as `Host` or `cuda:0`.
    pub place: String,
    /// Whether it is simulated.
    pub simulated: bool,
    /// Limit in bytes.
    pub budget: Option<u64>,
    /// Peak in bytes.
    pub peak: Option<u64>,
    /// Planned uses.
    pub uses: Vec<MemoryUse>,
}

/// One use of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryUse {
    /// Purpose, such as `features` or `mini-batches in buffers`.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
}

/// A cache.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cache {
    /// Content and hotness policy, such as `features by PreSC`.
    pub name: String,
    /// Its place.
    pub place: String,
    /// Its size, where it is known.
    pub bytes: Option<u64>,
    /// Predicted hit rate, 0 to 1.
    pub predicted_hits: Option<f64>,
    /// Measured hit rate, 0 to 1.
    pub measured_hits: Option<f64>,
}

impl Report {
    /// Seconds an epoch took: as given, else the median of the epochs.
    pub fn epoch_seconds(&self) -> Option<f64> {
        self.measured_seconds.filter(|s| s.is_finite()).or_else(|| {
            let mut all: Vec<f64> = self.epochs.iter().filter_map(|e| e.seconds).filter(|s| s.is_finite()).collect();
            all.sort_by(f64::total_cmp);
            let (low, high) = (all.get(all.len().wrapping_sub(1) / 2)?, all[all.len() / 2]);
            Some((low + high) / 2.0)
        })
    }

    /// Best validation accuracy: as given, else the best of the epochs.
    pub fn valid_accuracy(&self) -> Option<f64> {
        let of_epochs = || self.epochs.iter().filter_map(|e| e.valid_accuracy).filter(|a| a.is_finite());
        self.best_valid_accuracy.filter(|a| a.is_finite()).or_else(|| of_epochs().max_by(f64::total_cmp))
    }

    /// The resources that are simulated, in the order they are first named.
    pub fn simulated_resources(&self) -> Vec<&str> {
        let lanes = self.predicted.iter().chain(&self.measured).flat_map(|t| &t.lanes);
        let of_lanes = lanes.filter(|l| l.simulated).map(|l| l.resource.as_str());
        let mut all: Vec<&str> = Vec::new();
        for name in self.utilisation.iter().filter(|u| u.simulated).map(|u| u.resource.as_str()).chain(of_lanes) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }

    /// Whether anything in it is simulated.
    pub fn is_simulated(&self) -> bool {
        self.simulated
            || !self.simulated_resources().is_empty()
            || self.operators.iter().any(|o| o.simulated)
            || self.memory.iter().any(|m| m.simulated)
    }
}

/// Given rows of one staleness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Stale {
    /// Steps between the parameters that the rows were computed with and those that they were used with.
    pub steps: u64,
    /// Mini-batches with such rows.
    pub batches: u64,
    /// The rows.
    pub rows: u64,
}

/// The sum of a counter of an operator over all mini-batches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// The operator's key.
    pub operator: String,
    /// The counter's name; it ends in `_bytes` where it counts bytes.
    pub counter: String,
    /// The sum.
    pub amount: u64,
    /// Whether the operator is simulated.
    pub simulated: bool,
}
