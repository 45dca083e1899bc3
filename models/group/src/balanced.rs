//! A division by work and measured speed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use morphgl_registry::{BatchId, Error, Result};
use morphgl_sampler_core::{Epochs, Order};

use crate::Division;
use crate::cut::cut;
use crate::speed::{Line, Speed};

/// Inverse of the maximum fraction of the time since the last trial by which a trial may lengthen a step.
const TRIAL_COST: f64 = 100.0;
/// Minimum number of steps between two trials.
const TRIAL_STEPS: f64 = 50.0;
/// Minimum seeds per trainer for trials.
const TRIAL_SEEDS: usize = 4;

/// Cuts each mini-batch by the work of its seeds, so that all trainers are predicted to take the same time: a fixed cost and
/// time in proportion to work, both estimated from the seconds of their shares.
///
/// **The shares of a mini-batch depend on the seconds of mini-batches at least `ahead` before it**, in the order of epochs and
/// indices, and on nothing else; so every trainer's copy has the same shares, however far ahead each of them samples. A
/// mini-batch for which these seconds are not known yet is an error. `ahead` is at least the number of mini-batches between the
/// one whose batching begins and the last one before which all were trained.
///
/// A trainer whose fixed cost alone is longer than the others need has empty shares. From time to time it is tried with one
/// seed, which costs the group at most 1% of its time.
#[derive(Debug)]
pub struct Balanced {
    epochs: Epochs,
    /// Work of every node.
    work: Arc<[f32]>,
    ahead: u64,
    state: Mutex<State>,
}

/// State that the next cut depends on.
#[derive(Debug, Clone)]
struct Estimates {
    /// Speed estimates, by trainer.
    speeds: Vec<Speed>,
    /// Mini-batches whose seconds the speeds contain.
    applied: u64,
}

struct State {
    estimates: Estimates,
    order: Option<Order>,
    /// Mini-batches before which all are trained.
    trained: u64,
    /// Those cut and not yet trained, from `trained` on.
    cuts: VecDeque<Cut>,
    /// The last ones before `trained`, up to it: those not applied before the first cut.
    observed: VecDeque<Observed>,
    /// Seconds of mini-batches that were trained before an earlier one.
    early: BTreeMap<u64, Vec<f64>>,
}

/// Division of a mini-batch.
#[derive(Debug, Clone)]
struct Cut {
    /// Ends of the shares.
    ends: Vec<usize>,
    /// Work of the shares.
    work: Vec<f64>,
    /// Speed estimates from which it was cut.
    before: Estimates,
}

/// A trained mini-batch.
#[derive(Debug, Clone)]
struct Observed {
    /// Work of the shares.
    work: Vec<f64>,
    /// Seconds of the shares.
    seconds: Vec<f64>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} mini-batches trained, {} cut ahead)", self.trained, self.cuts.len())
    }
}

impl Balanced {
    /// Divides the mini-batches of `epochs` by the `work` of all nodes (see [`work`](crate::work())), or of all pairs
    /// ([`work_of_pairs`](crate::work_of_pairs)), or rows ([`work_of_rows`](crate::work_of_rows)). `speeds` are work
    /// per second of each trainer, as profiled; until the first observation counts, only their proportion does. A
    /// trainer of speed 0 has no share before a trial.
    ///
    /// # Errors
    ///
    /// Work that is missing or not a finite number of at least 0, speeds that are none, or of which none is above 0, or no
    /// mini-batch ahead.
    pub fn new(epochs: Epochs, work: Arc<[f32]>, speeds: &[f64], ahead: usize) -> Result<Self> {
        let refused = |what: &str| Err(Error::setting("balanced division", what));
        let is_amount = |x: f64| x.is_finite() && x >= 0.0;
        if !work.iter().all(|&w| is_amount(f64::from(w))) {
            return refused(
                "the work of a seed is negative or not finite; give that of the graph's nodes, or of the pairs",
            );
        }
        if epochs.order(0).nodes.iter().any(|&v| v as usize >= work.len()) {
            return refused("a seed has no work; give that of all nodes, or of all pairs");
        }
        if !(speeds.iter().all(|&s| is_amount(s)) && speeds.iter().any(|&s| s > 0.0)) {
            return refused("speeds are finite and not negative, at least one above 0");
        }
        if ahead == 0 {
            return refused("a mini-batch is cut before it is trained; give at least 1 ahead");
        }
        let speeds = speeds.iter().map(|&speed| Speed::new(speed)).collect();
        let state = State {
            estimates: Estimates { speeds, applied: 0 },
            order: None,
            trained: 0,
            cuts: VecDeque::new(),
            observed: VecDeque::new(),
            early: BTreeMap::new(),
        };
        Ok(Self { epochs, work, ahead: ahead as u64, state: Mutex::new(state) })
    }

    /// The same, beginning with this mini-batch instead of the first one.
    pub fn starting_at(self, id: BatchId) -> Self {
        let start = self.position(id);
        let mut state = self.state();
        (state.trained, state.estimates.applied) = (start, start);
        drop(state);
        self
    }

    /// The seconds of a mini-batch's shares, predicted by what was known when it was cut; `None` for one that is not cut, or
    /// was trained.
    pub fn predicted(&self, id: BatchId) -> Option<Vec<f64>> {
        let position = self.position(id);
        let state = self.state();
        let cut = state.cuts.get(usize::try_from(position.checked_sub(state.trained)?).ok()?)?;
        let seconds = |(speed, &work): (&Speed, &f64)| if work > 0.0 { speed.line().at(work) } else { 0.0 };
        Some(cut.before.speeds.iter().zip(&cut.work).map(seconds).collect())
    }

    /// What a checkpoint holds: the same numbers at every trainer after the same step, however far ahead each samples.
    ///
    /// Some 20 numbers per trainer, and two per trainer for each mini-batch ahead.
    pub fn export(&self) -> Vec<f64> {
        let state = self.state();
        let before = state.cuts.front().map_or(&state.estimates, |cut| &cut.before);
        let mut out = vec![before.speeds.len() as f64, before.applied as f64, state.trained as f64];
        before.speeds.iter().for_each(|speed| speed.export(&mut out));
        let unapplied = (state.trained - before.applied) as usize;
        for Observed { work, seconds } in state.observed.range(state.observed.len() - unapplied..) {
            out.extend(work.iter().chain(seconds));
        }
        for (&position, seconds) in &state.early {
            out.push(position as f64);
            out.extend(seconds);
        }
        out
    }

    /// The same, continued from [`Balanced::export`]'s numbers: further shares are those that the exporting one would have
    /// given, if it had been given the same seconds. Another number of mini-batches ahead is allowed.
    ///
    /// # Errors
    ///
    /// The numbers are not of a division among as many trainers.
    pub fn import(self, numbers: &[f64]) -> Result<Self> {
        let size = self.state().estimates.speeds.len();
        let imported = State::import(numbers, size).ok_or_else(|| {
            let what =
                format!("it is not of {size} trainers, or damaged; continue with as many as before, or without it");
            Error::setting("state of the balanced division", what)
        })?;
        *self.state() = imported;
        Ok(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Mini-batches before this one.
    fn position(&self, id: BatchId) -> u64 {
        u64::from(id.epoch) * self.epochs.num_batches() as u64 + u64::from(id.index)
    }

    fn id(&self, position: u64) -> BatchId {
        let num_batches = self.epochs.num_batches() as u64;
        BatchId { epoch: (position / num_batches) as u32, index: (position % num_batches) as u32 }
    }

    /// Cuts the next mini-batch. The seconds that it depends on are known.
    fn cut_next(&self, state: &mut State) -> Result<()> {
        let position = state.trained + state.cuts.len() as u64;
        let before = state.estimates.clone();
        while state.estimates.applied + self.ahead <= position {
            let back = (state.trained - state.estimates.applied) as usize;
            let observed = state.observed[state.observed.len() - back].clone();
            state.estimates.apply(&observed);
        }
        let id = self.id(position);
        let seeds = self.epochs.seeds(id, 0..usize::MAX, &mut state.order)?;
        // A seed is an aggregation itself, so that none is without work.
        let mut sums = Vec::with_capacity(seeds.len() + 1);
        sums.push(0.0);
        let mut sum = 0.0;
        sums.extend(seeds.iter().map(|&v| {
            sum += 1.0 + f64::from(self.work[v as usize]);
            sum
        }));
        let ends = state.estimates.cut(&sums);
        let starts = [0].into_iter().chain(ends.iter().copied());
        let work = starts.zip(&ends).map(|(start, &end)| sums[end] - sums[start]).collect();
        state.cuts.push_back(Cut { ends, work, before });
        Ok(())
    }
}

impl Division for Balanced {
    fn share(&self, id: BatchId, num_seeds: usize, rank: usize) -> Result<Range<usize>> {
        let position = self.position(id);
        let mut state = self.state();
        let refused = |what: String| Err(Error::setting(id, what));
        if position < state.trained {
            return refused("its shares are forgotten, as it was trained; ask for them before".to_string());
        }
        let back = position - state.trained;
        if back >= self.ahead {
            let (known, ahead) = (self.id(state.trained), self.ahead);
            return refused(format!(
                "it is {back} ahead of {known}, the first that is not trained; a division made for less than {ahead} ahead \
                 cannot cut it yet"
            ));
        }
        while (state.cuts.len() as u64) <= back {
            self.cut_next(&mut state)?;
        }
        let ends = &state.cuts[back as usize].ends;
        assert_eq!(ends.last(), Some(&num_seeds), "seeds of {id}");
        Ok(rank.checked_sub(1).map_or(0, |before| ends[before])..ends[rank])
    }

    fn observe(&self, id: BatchId, seconds: &[f64]) -> Result<()> {
        let position = self.position(id);
        let mut state = self.state();
        // Trainers in one process may share a division, which each of them then calls with the same seconds.
        if position < state.trained {
            return Ok(());
        }
        // Impossible seconds are ignored.
        let seconds = seconds.iter().map(|&s| if s.is_finite() && s > 0.0 { s } else { 0.0 });
        state.early.insert(position, seconds.collect());
        loop {
            let next = state.trained;
            let Some(seconds) = state.early.remove(&next) else { return Ok(()) };
            if state.cuts.is_empty() {
                self.cut_next(&mut state)?;
            }
            let Cut { work, .. } = state.cuts.pop_front().expect("cut above");
            state.observed.push_back(Observed { work, seconds });
            state.trained += 1;
            let applied = state.cuts.front().map_or(state.estimates.applied, |cut| cut.before.applied);
            let unapplied = (state.trained - applied) as usize;
            while state.observed.len() > unapplied {
                state.observed.pop_front();
            }
        }
    }
}

/// Margins are within these parts of the predicted seconds.
const MARGINS: [f64; 2] = [-0.2, 0.5];

impl Estimates {
    /// Predicted seconds per trainer as a line over the work of its share, with a safety margin for trainers whose seconds vary.
    ///
    /// A step takes as long as its slowest share. Its expected time is minimal where each trainer is the slowest with a probability in
    /// proportion to its speed: moving a seed then gains as often as it loses. So a slow trainer whose seconds vary gets less work
    /// than would make the means equal: it contributes little to a usual step, and delays all trainers in the others.
    fn lines(&self) -> Vec<Line> {
        let lines = self.speeds.iter().map(Speed::line);
        let total: f64 = lines.clone().map(|line| 1.0 / line.slope).sum();
        let parts: Vec<f64> = lines.clone().map(|line| 1.0 / line.slope / total).collect();
        let mean: f64 = self.speeds.iter().zip(&parts).map(|(speed, part)| part * speed.variance).sum();
        let margin = |(line, (speed, &part)): (Line, (&Speed, &f64))| {
            let others = (mean - part * speed.variance).max(0.0) / (1.0 - part).max(1e-9);
            let deviation = (speed.variance + others).sqrt();
            let margin = if deviation > 0.0 { quantile(1.0 - part) * speed.variance / deviation } else { 0.0 };
            let factor = 1.0 + margin.clamp(MARGINS[0], MARGINS[1]);
            Line { fixed: factor * line.fixed, slope: factor * line.slope }
        };
        lines.zip(self.speeds.iter().zip(&parts)).map(margin).collect()
    }

    /// Updates the speeds with the seconds of the next mini-batch.
    fn apply(&mut self, observed: &Observed) {
        let Observed { work, seconds } = observed;
        let longest = |except: usize| {
            let others = seconds.iter().enumerate().filter(|(rank, _)| *rank != except);
            others.map(|(_, &s)| s).fold(0.0, f64::max)
        };
        for (rank, speed) in self.speeds.iter_mut().enumerate() {
            let others = longest(rank);
            if work[rank] > 0.0 {
                let excess = if speed.on_trial { TRIAL_COST * (seconds[rank] - others) } else { 0.0 };
                speed.rest = excess.max(TRIAL_STEPS * others);
                speed.observe(work[rank], seconds[rank]);
            } else {
                speed.rest -= others;
            }
        }
        self.applied += 1;
    }

    /// Ends of the shares of a mini-batch whose first seeds have these sums of work.
    fn cut(&mut self, sums: &[f64]) -> Vec<usize> {
        let lines = self.lines();
        let mut least = vec![0; lines.len()];
        let ends = cut(sums, &lines, &least);
        let num_seeds = sums.len() - 1;
        if num_seeds < TRIAL_SEEDS * lines.len() {
            return ends;
        }
        let is_empty = |rank: usize| ends[rank] == rank.checked_sub(1).map_or(0, |before| ends[before]);
        let due = |speed: &Speed| speed.rest <= 0.0 && !speed.on_trial;
        let Some(rank) = (0..lines.len()).find(|&rank| is_empty(rank) && due(&self.speeds[rank])) else { return ends };
        least[rank] = 1;
        let with_trial = cut(sums, &lines, &least);
        let start = rank.checked_sub(1).map_or(0, |before| with_trial[before]);
        if sums[with_trial[rank]] - sums[start] > sums[num_seeds] / num_seeds as f64 {
            // A seed with more work than others is left to a later mini-batch.
            return ends;
        }
        self.speeds[rank].on_trial = true;
        with_trial
    }
}

/// Quantile of the standard normal distribution, within 0.05 for probabilities of 0.001 to 0.999 (Tukey's lambda distribution
/// with 1/8). Square roots are the same bits on every processor; logarithms need not be.
fn quantile(p: f64) -> f64 {
    let root = |x: f64| x.max(0.0).sqrt().sqrt().sqrt();
    (root(p) - root(1.0 - p)) / 0.1829
}

impl State {
    fn import(numbers: &[f64], size: usize) -> Option<Self> {
        let whole = |x: f64| (x >= 0.0 && x < 2f64.powi(53) && x.fract() == 0.0).then_some(x as u64);
        if !numbers.iter().all(|&x| x.is_finite()) {
            return None;
        }
        let [trainers, applied, trained, rest @ ..] = numbers else { return None };
        let (applied, trained) = (whole(*applied)?, whole(*trained)?);
        if whole(*trainers)? != size as u64 {
            return None;
        }
        let (speeds, rest) = rest.split_at_checked(size * Speed::NUMBERS)?;
        let speeds: Option<Vec<Speed>> = speeds.chunks_exact(Speed::NUMBERS).map(Speed::import).collect();
        let unapplied = usize::try_from(trained.checked_sub(applied)?).ok()?;
        let (observed, rest) = rest.split_at_checked(unapplied.checked_mul(2 * size)?)?;
        let observed = observed.chunks_exact(2 * size).map(|numbers| {
            let (work, seconds) = numbers.split_at(size);
            Observed { work: work.to_vec(), seconds: seconds.to_vec() }
        });
        let early = rest.chunks(size + 1).map(|numbers| {
            let (&position, seconds) = numbers.split_first()?;
            (seconds.len() == size).then_some((whole(position).filter(|&p| p > trained)?, seconds.to_vec()))
        });
        Some(Self {
            estimates: Estimates { speeds: speeds?, applied },
            order: None,
            trained,
            cuts: VecDeque::new(),
            observed: observed.collect(),
            early: early.collect::<Option<_>>()?,
        })
    }
}
