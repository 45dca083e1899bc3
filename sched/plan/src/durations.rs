//! Durations of a route's phases, per mini-batch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::numbers::{MAX_FACTOR, MAX_THREADS, within};
use crate::{Curve, Invalid, Linear, Point, Seconds};

/// Batching by a pool: steady-state seconds per mini-batch of the pool.
///
/// A worker alone in its pool needs `seconds` for a mini-batch, each of several needs `workers · seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PoolPoint {
    /// Workers, each preparing mini-batches of its own.
    pub workers: usize,
    /// Threads each worker spreads a mini-batch over.
    pub threads: usize,
    /// Seconds per mini-batch of the pool.
    pub seconds: Seconds,
}

/// Durations of the phases of one route, per mini-batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Durations {
    /// Curves over workers, by threads per worker. Invariant: the curve of 1 thread exists and starts at 1 worker.
    pools: BTreeMap<usize, Curve>,
    /// One worker, as a curve over its threads. Invariant: starts at 1 thread.
    solo: Curve,
    transferring: Seconds,
    training: Curve,
    /// Invariant: factors are finite and not below 1, counts are not 0.
    interference: Vec<InterferencePoint>,
    /// Factor to batching and transferring while they overlap training. Invariant: from 0 to 1.
    overlap: f64,
}

/// Interference of two phases on the same cores: how much longer each takes while the other runs. Factors from 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Contention {
    /// Slowdown of batching while training runs.
    pub batching: f64,
    /// Slowdown of training while all workers batch.
    pub training: f64,
}

/// Interference of batching and training, measured at one split of the cores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InterferencePoint {
    /// Batching workers.
    pub workers: usize,
    /// Threads each worker spreads a mini-batch over.
    pub threads: usize,
    /// Threads training used.
    pub training_threads: usize,
    /// The slowdowns.
    pub contention: Contention,
}

#[derive(Serialize, Deserialize)]
struct Unchecked {
    batching: Vec<PoolPoint>,
    transferring: Seconds,
    training: Curve,
    #[serde(alias = "together", default, skip_serializing_if = "Vec::is_empty")]
    interference: Vec<InterferencePoint>,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    overlap: f64,
}

fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(overlap: &f64) -> bool {
    *overlap == 1.0
}

impl Durations {
    /// Takes measured durations: `batching` in any order, `training` as a curve over its threads.
    ///
    /// # Errors
    ///
    /// Batching by one worker of one thread is missing, a count is 0 or there twice, or seconds are negative or not finite.
    pub fn new(batching: &[PoolPoint], transferring: Seconds, training: Curve) -> Result<Self, Invalid> {
        let error = |message: &str| Invalid(format!("batching: {message}"));
        let curve = |points: Vec<Point>| Curve::new(points).map_err(|e| error(&e.0));
        let mut pools: BTreeMap<usize, Vec<Point>> = BTreeMap::new();
        for p in batching {
            if p.threads == 0 {
                return Err(error("a worker of 0 threads; counts start at 1"));
            }
            within("threads of a worker", p.threads, 1, MAX_THREADS).map_err(|e| error(&e.0))?;
            pools.entry(p.threads).or_default().push(Point { at: p.workers, seconds: p.seconds });
        }
        let alone = batching.iter().filter(|p| p.workers == 1);
        let solo: Vec<Point> = alone.map(|p| Point { at: p.threads, seconds: p.seconds }).collect();
        if solo.iter().all(|p| p.at != 1) {
            return Err(error("one worker of one thread is missing; measure it too"));
        }
        let pools = pools.into_iter().map(|(threads, points)| Ok((threads, curve(points)?)));
        Ok(Self {
            pools: pools.collect::<Result<_, _>>()?,
            solo: curve(solo)?,
            transferring: transferring.check(&"transferring")?,
            training,
            interference: Vec::new(),
            overlap: 1.0,
        })
    }

    /// Constant durations: of one worker, of a transfer and of a step; `workers` workers do not slow each other.
    ///
    /// # Errors
    ///
    /// Seconds that are negative or not finite.
    pub fn constant(workers: usize, batching: f64, transferring: f64, training: f64) -> Result<Self, Invalid> {
        let pool =
            |workers: usize| PoolPoint { workers, threads: 1, seconds: Seconds::constant(batching / workers as f64) };
        // The rate is proportional to the workers, and is interpolated between the two.
        let pools: Vec<PoolPoint> = [1].into_iter().chain((workers > 1).then_some(workers)).map(pool).collect();
        let training = Curve::new(vec![Point { at: 1, seconds: Seconds::constant(training) }])?;
        Self::new(&pools, Seconds::constant(transferring), training)
    }

    /// The same with measured interference, in place of any it had.
    ///
    /// # Errors
    ///
    /// A count of 0, or a factor that is not a number from 1 to 10^15.
    pub fn with_interference(mut self, interference: Vec<InterferencePoint>) -> Result<Self, Invalid> {
        let is_valid = |p: &&InterferencePoint| {
            [p.workers, p.threads, p.training_threads].iter().all(|count| (1..=MAX_THREADS).contains(count))
                && [p.contention.batching, p.contention.training].iter().all(|f| (1.0..=MAX_FACTOR).contains(f))
        };
        if let Some(point) = interference.iter().find(|p| !is_valid(p)) {
            return Err(Invalid(format!(
                "batching beside training: {point:?}; counts are from 1 to {MAX_THREADS}, factors from 1"
            )));
        }
        self.interference = interference;
        Ok(self)
    }

    /// The same for a device that computes the work of one phase while it launches another's
    /// ([`Resource::queued`](crate::Resource::queued)): batching and transferring lengthen a step by this share of their own seconds.
    /// 1 where none was given; sequential schedules do not overlap phases, and have all of their seconds.
    ///
    /// # Errors
    ///
    /// A share that is not a number from 0 to 1.
    pub fn with_overlap(mut self, overlap: f64) -> Result<Self, Invalid> {
        if !(0.0..=1.0).contains(&overlap) {
            return Err(Invalid(format!("a share of {overlap} of phases that overlap; shares are from 0 to 1")));
        }
        self.overlap = overlap;
        Ok(self)
    }

    /// The durations of phases that do not overlap.
    pub(crate) fn alone(&self) -> Self {
        Self { overlap: 1.0, ..self.clone() }
    }

    /// Interference of batching and training, where it was measured with these counts.
    pub fn contention(&self, workers: usize, threads: usize, training_threads: usize) -> Option<Contention> {
        let counts = (workers, threads, training_threads);
        let point = self.interference.iter().find(|p| (p.workers, p.threads, p.training_threads) == counts);
        point.map(|p| p.contention)
    }

    /// The durations of each phase, deviations included, times its factor.
    ///
    /// # Panics
    ///
    /// When a factor is negative or not finite.
    pub(crate) fn scaled(&self, batching: f64, transferring: f64, training: f64) -> Self {
        let factors = [batching, transferring, training];
        let valid = factors.iter().all(|f| f.is_finite() && *f >= 0.0);
        assert!(valid, "factors of durations are finite and not negative: {factors:?}");
        Self {
            pools: self.pools.iter().map(|(&threads, curve)| (threads, curve.scaled(batching))).collect(),
            solo: self.solo.scaled(batching),
            transferring: self.transferring.scaled(transferring),
            training: self.training.scaled(training),
            interference: self.interference.clone(),
            overlap: self.overlap,
        }
    }

    /// The durations of a share of a mini-batch, linear between these of whole mini-batches and those of `part`, a share of `of`.
    /// Interference and overlap are those of whole mini-batches.
    pub(crate) fn of_share(&self, part: &Self, of: f64, share: f64) -> Self {
        let between = |whole: Seconds, part: Seconds| {
            let mean = Linear::through(whole.mean, of, part.mean).at(share);
            whole.scaled(if whole.mean > 0.0 { mean / whole.mean } else { 0.0 })
        };
        let curve = |curve: &Curve, part: &dyn Fn(usize) -> Seconds| {
            let point = |p: &Point| Point { at: p.at, seconds: between(p.seconds, part(p.at)) };
            Curve::new(curve.points().iter().map(point).collect()).expect("the counts are those of a curve")
        };
        let pool = |threads: usize, whole: &Curve| curve(whole, &|workers| part.pool(workers, threads));
        Self {
            pools: self.pools.iter().map(|(&threads, whole)| (threads, pool(threads, whole))).collect(),
            solo: curve(&self.solo, &|threads| part.pool(1, threads)),
            transferring: between(self.transferring, part.transferring),
            training: curve(&self.training, &|threads| part.training.at(threads)),
            interference: self.interference.clone(),
            overlap: self.overlap,
        }
    }

    /// The counts of threads per worker that were measured, ascending; 1 is among them.
    pub fn threads_per_worker(&self) -> impl Iterator<Item = usize> + '_ {
        self.pools.keys().copied()
    }

    /// Seconds per mini-batch of a pool of `workers`, each of `threads` threads.
    ///
    /// One worker is read from its curve over threads, several from their curve over workers.
    /// Where no pool of so many threads per worker was measured, the next lower measured count is taken: the other
    /// threads idle.
    pub fn batching(&self, workers: usize, threads: usize) -> Seconds {
        self.pool(workers, threads).scaled(self.overlap)
    }

    /// [`Durations::batching`] of a pool whose work does not overlap training.
    fn pool(&self, workers: usize, threads: usize) -> Seconds {
        if workers <= 1 {
            return self.solo.at(threads);
        }
        let measured = self.pools.range(..=threads.max(1)).next_back();
        let (_, pool) = measured.expect("pools of one thread per worker are always there");
        pool.at(workers)
    }

    /// Minimum seconds per mini-batch of any pool.
    pub(crate) fn min_batching(&self) -> f64 {
        self.overlap * self.pools.values().map(Curve::min).fold(f64::INFINITY, f64::min)
    }

    /// Minimum latency: seconds in which one worker makes a mini-batch.
    pub(crate) fn min_latency(&self) -> f64 {
        self.overlap * self.pools.values().map(Curve::min_work).fold(f64::INFINITY, f64::min)
    }

    /// Minimum core-seconds of batching a mini-batch.
    pub(crate) fn min_batching_work(&self) -> f64 {
        let work = self.pools.iter().map(|(threads, pool)| *threads as f64 * pool.min_work());
        self.overlap * work.fold(f64::INFINITY, f64::min)
    }

    /// Transferring, a mini-batch.
    pub fn transferring(&self) -> Seconds {
        self.transferring.scaled(self.overlap)
    }

    /// Training, over its threads.
    pub fn training(&self) -> &Curve {
        &self.training
    }
}

impl From<Durations> for Unchecked {
    fn from(d: Durations) -> Self {
        let pool = |(&threads, curve): (&usize, &Curve)| -> Vec<PoolPoint> {
            curve.points().iter().map(|p| PoolPoint { workers: p.at, threads, seconds: p.seconds }).collect()
        };
        let batching = d.pools.iter().flat_map(pool).collect();
        let Durations { transferring, training, interference, overlap, .. } = d;
        Self { batching, transferring, training, interference, overlap }
    }
}

impl TryFrom<Unchecked> for Durations {
    type Error = Invalid;

    fn try_from(u: Unchecked) -> Result<Self, Invalid> {
        Self::new(&u.batching, u.transferring, u.training)?.with_interference(u.interference)?.with_overlap(u.overlap)
    }
}
