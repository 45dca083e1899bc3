//! Training as one rank of an MPI run: what the ranks agree on.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use morphgl_execute::{PhaseSeconds, Stop};
use morphgl_graph_store::Dataset;
use morphgl_group::{Layout, Shards};
use morphgl_hotness::{CachePolicy, hottest};
use morphgl_profile::{RouteProfile, Watch};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{RankPlace, Ranks};
use crate::usage::Usage;
use crate::values::Cache;
use crate::{
    Evaluation, Inferred, Job, JobConfig, MemoryLimit, Plan, Process, Profile, Profiler, Recorder, RunContext,
    TrainReport, examples, median, words,
};

/// A rank's part of a run, an epoch.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    threads: usize,
    bytes_sent_per_epoch: f64,
    exchange_seconds_per_epoch: f64,
    /// The part of these in which the rank's backward went on.
    exchange_hidden_seconds_per_epoch: f64,
    /// By which the slowest rank's share took longer than the mean of all, from step to step: the same at all ranks.
    imbalance_seconds_per_epoch: f64,
    /// Busy seconds of its phases.
    batching_seconds_per_epoch: f64,
    transferring_seconds_per_epoch: f64,
    training_seconds_per_epoch: f64,
    /// Of evaluations with all neighbours; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    inference: Option<Inferred>,
    /// Of divided features; `None` where every rank has all.
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<FeaturePart>,
}

/// A rank's part of the feature rows, and what its mini-batches read of them per epoch.
#[derive(Debug, Serialize, Deserialize)]
struct FeaturePart {
    held_bytes: u64,
    own_rows_per_epoch: f64,
    replicated_rows_per_epoch: f64,
    read_rows_per_epoch: f64,
    read_bytes_per_epoch: f64,
}

/// Joins the other ranks where this process was started as one of several; each wait for others is limited, and gradients are
/// added up in buckets of so many bytes. What `stop` returns ends training at all ranks.
pub(crate) fn enter(
    process: &Process,
    limit: Duration,
    bucket_bytes: Option<u64>,
    stop: impl FnOnce() -> Stop,
) -> anyhow::Result<Option<&Ranks>> {
    let ranks = Ranks::connect(process.own_exchange(), limit, bucket_bytes, process.interrupted(), stop)?;
    ranks.map(|ranks| process.join(ranks)).transpose()
}

/// Refuses options that divided features do not go with.
pub(crate) fn check_shard(context: &RunContext, evaluation: Option<Evaluation>) -> anyhow::Result<()> {
    if evaluation == Some(Evaluation::Full) {
        return Err(Usage::error("--evaluation full: no rank of --shard has all features; give sampled or none"));
    }
    match context.ranks() {
        Some(_) => Ok(()),
        None => Err(usage("features are divided among ranks; start them by mpirun".to_string())),
    }
}

fn usage(what: String) -> anyhow::Error {
    Usage::error(format!("--shard: {what}"))
}

impl Ranks {
    /// How many ranks and hosts there are.
    pub(super) fn in_words(&self) -> String {
        let hosts = self.places().iter().map(|place| &place.host).collect::<BTreeSet<_>>().len() as u64;
        format!("{} on {}", words::plural(self.places().len() as u64, "rank"), words::plural(hosts, "host"))
    }

    /// Keeps the training operators that are the fastest at rank 0: the same at all ranks, so that all take the same steps.
    pub(crate) fn select(
        &self,
        job: &mut Job,
        profiler: &Profiler,
        memory: Option<MemoryLimit<'_>>,
    ) -> anyhow::Result<()> {
        if self.is_first() {
            let stop = job.context.heed_stop();
            let watch = Watch { stop: &|| stop.is_requested(), memory };
            job.select(&profiler.settings, &watch, &mut |_| {})?;
        }
        let keys = |job: &Job| job.operators.trainers.iter().map(|t| t.key.to_string()).collect::<Vec<_>>();
        let chosen = self.group.gather(&keys(job))?.swap_remove(0);
        let operators = &mut job.operators;
        operators.trainers.retain(|t| chosen.contains(&t.key.to_string()));
        operators.routes.retain(|r| chosen.contains(&r.route.training.to_string()));
        if operators.routes.is_empty() {
            let chosen = chosen.join(", ");
            bail!("no route here leads to {chosen}, which rank 0 trains with; name another operator by --training");
        }
        Ok(())
    }

    /// Keeps one route of the job and of its profile: the one with the least predicted epoch at rank 0, and at all others the
    /// best to the same training operator. With one route, mini-batches are trained in the same order at all ranks.
    pub(crate) fn keep_one_route(
        &self,
        job: &mut Job,
        profile: &mut Profile,
        predict: impl Fn(&Profile) -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        let mut predicted = Vec::new();
        for route in &profile.routes {
            let alone = Profile { routes: vec![route.clone()], ..profile.clone() };
            predicted.push((predict(&alone)?, route.clone()));
        }
        predicted.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let training = |(_, route): &(f64, RouteProfile)| route.route.training.to_string();
        let own = predicted.first().map(training).unwrap_or_default();
        let chosen = self.group.gather(&own)?.swap_remove(0);
        let best = predicted.into_iter().find(|route| training(route) == chosen);
        let (_, best) = best.with_context(|| format!("no plan here trains with {chosen}, as rank 0 does"))?;
        job.operators.routes.retain(|r| r.route == best.route);
        job.operators.trainers.retain(|t| t.key == best.route.training && t.place == best.route.trained_at);
        profile.routes = vec![best];
        Ok(())
    }

    /// Makes the predicted epoch that of all ranks: the slowest one's, and at each step an all-reduce of gradients,
    /// measured by all at once. What backward hides of it is not known before training, and not taken off.
    pub(crate) fn predict(&self, job: &mut Job, plan: &mut Plan) -> anyhow::Result<()> {
        let mut num_values = 0;
        for trainer in &mut job.operators.trainers {
            num_values = trainer.operator.gradients()?.tensors.iter().map(|tensor| tensor.values.len()).sum();
        }
        let prediction = &mut plan.prediction;
        let own = [prediction.epoch_seconds, prediction.bound_seconds, self.group.all_reduce_seconds(num_values)?];
        let all = self.group.gather(&own)?;
        let slowest = |i: usize| all.iter().map(|seconds| seconds[i]).fold(0.0, f64::max);
        let added = slowest(2) * plan.schedule.num_batches() as f64;
        (prediction.epoch_seconds, prediction.bound_seconds) = (slowest(0) + added, slowest(1));
        Ok(())
    }

    /// Divides the dataset's feature rows among the ranks; each has copies of the rows that `hot` ranks first, as many as fit in its
    /// bytes.
    pub(crate) fn share_features(
        &self,
        dataset: &Dataset,
        config: &JobConfig,
        hot: Option<Cache>,
    ) -> anyhow::Result<Shards> {
        let matrix = crate::build::features(dataset)?;
        let replicated = match hot {
            None => Vec::new(),
            Some(Cache { policy: CachePolicy::By(kind), bytes: Some(bytes) }) => {
                let policy = kind.policy(config.sampler.seed);
                let policy =
                    policy.ok_or_else(|| usage(format!("{kind} samples per epoch to count; name another policy")))?;
                let pairs = config.pairs.map(|_| dataset.train_pairs());
                let train = || examples::nodes(&dataset.splits.train, dataset);
                let seeds = pairs.as_ref().map_or_else(train, |pairs| Cow::from(pairs.as_flattened()));
                let hotness = policy.score(&dataset.topology, &seeds, &config.sampler)?;
                let rows = bytes / matrix.row_bytes().max(1) as u64;
                hottest(&hotness.features, usize::try_from(rows).unwrap_or(usize::MAX))
            }
            Some(_) => {
                return Err(usage("give the policy and the size of the copies, for example inclusion:1GiB".into()));
            }
        };
        let at = (self.group.rank(), self.group.size());
        let layout = Layout { num_rows: matrix.num_rows(), size: at.1 };
        if let Some(row) = layout.part(at.0).find_map(|rows| matrix.first_invalid(rows)) {
            bail!("{}: row {row} of the features has a value that is not finite; import it again", dataset.name);
        }
        let own = layout.copy(matrix, at.0);
        let owners = self.expose(Arc::clone(&own), matrix.row_bytes())?;
        Ok(Shards::new(matrix, at, own, &replicated, owners))
    }

    /// The evaluation of all ranks: on sampled mini-batches where the memory of one does not suffice for another.
    pub(crate) fn agree_on_evaluation(&self, own: Evaluation) -> anyhow::Result<Evaluation> {
        let all = self.group.gather(&own)?;
        Ok(if all.contains(&Evaluation::Sampled) { Evaluation::Sampled } else { own })
    }

    /// Makes rank 0's timeline that of all ranks.
    pub(crate) fn join_timelines(&self, recorder: &mut Recorder) -> anyhow::Result<()> {
        let all = self.group.gather(&recorder.of_rank())?;
        if self.is_first() {
            recorder.join(all.into_iter().enumerate().map(|(rank, timeline)| (self.name(rank), timeline)).collect());
        }
        Ok(())
    }

    /// The ranks of a run that is done, for its JSON, and in words: of its epochs but the `earlier` ones.
    pub(crate) fn summary(
        &self,
        report: &TrainReport,
        earlier: usize,
        (threads, shards): (usize, Option<&Arc<Shards>>),
    ) -> anyhow::Result<(Value, String)> {
        let rows = report.epochs.get(earlier..).unwrap_or_default();
        let epochs = rows.len().max(1) as f64;
        let of_all = |name: &str| -> f64 {
            let counters = rows.iter().flat_map(|row| row.report.counters.values());
            counters.filter_map(|counters| counters.get(name)).map(|&n| n as f64).sum::<f64>() / epochs
        };
        let busy = |of: fn(&PhaseSeconds) -> f64| rows.iter().map(|row| of(&row.report.busy)).sum::<f64>() / epochs;
        let features = shards.map(|shards| FeaturePart {
            held_bytes: shards.num_bytes(),
            own_rows_per_epoch: of_all("shard_own_rows"),
            replicated_rows_per_epoch: of_all("shard_replicated_rows"),
            read_rows_per_epoch: of_all("shard_read_rows"),
            read_bytes_per_epoch: of_all("shard_read_bytes"),
        });
        let own = Part {
            features,
            inference: Some(self.group.inferred()).filter(|inferred| *inferred != Inferred::default()),
            threads,
            bytes_sent_per_epoch: of_all("exchange_bytes"),
            exchange_seconds_per_epoch: of_all("exchange_micros") / 1e6,
            exchange_hidden_seconds_per_epoch: of_all("exchange_hidden_micros") / 1e6,
            imbalance_seconds_per_epoch: of_all("imbalance_micros") / 1e6,
            batching_seconds_per_epoch: busy(|busy| busy.batching),
            transferring_seconds_per_epoch: busy(|busy| busy.transferring),
            training_seconds_per_epoch: busy(|busy| busy.training),
        };
        let parts = self.group.gather(&own)?;
        let bytes: f64 = parts.iter().map(|part| part.bytes_sent_per_epoch).sum();
        let seconds = median(&parts.iter().map(|part| part.exchange_seconds_per_epoch).collect::<Vec<_>>());
        let hidden = median(&parts.iter().map(|part| part.exchange_hidden_seconds_per_epoch).collect::<Vec<_>>());
        let text = format!(
            "{}: {} sent per epoch by all, {seconds:.3} s per epoch in exchanges, {hidden:.3} s of it behind backward (medians); \
             the slowest share takes {:.3} s per epoch longer than the mean\n",
            self.in_words(),
            words::bytes(bytes as u64),
            parts[0].imbalance_seconds_per_epoch,
        );
        let rank = |(part, place): (&Part, &RankPlace)| {
            let mut rank = json!(part);
            rank["host"] = json!(place.host);
            rank["numa_nodes"] = json!(place.numa_nodes);
            rank
        };
        Ok((parts.iter().zip(self.places()).map(rank).collect(), text))
    }
}
