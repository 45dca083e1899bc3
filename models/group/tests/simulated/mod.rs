//! Simulated trainers of unequal speed over mini-batches of skewed work, and divisions among them.
#![allow(dead_code, reason = "the table and the law use different parts")]

use std::sync::Arc;

use morphgl_group::{Balanced, Division, Weights};
use morphgl_registry::{BatchId, SamplerSettings, SeedSet};
use morphgl_sampler_core::Epochs;

/// Random numbers by SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Log-uniform.
    pub(crate) fn log(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// Standard normal.
    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// One trainer: seconds of a share are `(fixed + work / speed) · noise`.
#[derive(Debug, Clone)]
pub(crate) struct Trainer {
    pub(crate) speed: f64,
    pub(crate) fixed: f64,
    /// From this step on it is this many times slower.
    pub(crate) slower: Option<(usize, f64)>,
}

/// A machine, its mini-batches, and what happens in each step.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) trainers: Vec<Trainer>,
    pub(crate) batch_size: usize,
    pub(crate) num_batches: usize,
    pub(crate) ahead: usize,
    /// Estimated work of every node; all nodes are seeds.
    pub(crate) work: Arc<[f32]>,
    /// True work of every node.
    true_work: Vec<f64>,
    /// Deviation of the seconds of a share, relative.
    noise: f64,
    /// Probability of a stall of a trainer in a step, and how many times as long it takes.
    stall: (f64, f64),
    seed: u64,
}

impl Machine {
    /// `size` trainers with speeds log-uniform up to 1:30, fixed costs of 0.1% to 50% of the time of all together, deviations
    /// of 2 to 10%, a stall in 1 of 200 steps, and work of a power law of exponent 1.2 to 3, estimated up to 20% per
    /// seed.
    pub(crate) fn random(seed: u64, size: usize, num_batches: usize, batch_size: usize) -> Self {
        let mut random = Random(seed.wrapping_mul(0xA24B_AED4_963E_E407));
        let mut speeds: Vec<f64> = (0..size).map(|_| random.log(1.0, 30.0)).collect();
        if size == 2 {
            // The ratio itself is log-uniform.
            speeds[0] = 1.0;
        }
        let alpha = random.between(1.2, 3.0);
        let power: Vec<f64> =
            (0..batch_size * num_batches).map(|_| (10.0 * (1.0 - random.unit()).powf(-1.0 / alpha)).min(1e4)).collect();
        let mean: f64 = power.iter().sum::<f64>() / power.len() as f64;
        let together = mean * batch_size as f64 / speeds.iter().sum::<f64>();
        let trainers = speeds.iter().map(|&speed| {
            let fixed = together * random.log(0.001, 0.5);
            Trainer { speed, fixed, slower: None }
        });
        let trainers = trainers.collect();
        let work = power.iter().map(|&w| w as f32).collect();
        let true_work = power.iter().map(|w| (1.0 + w) * (0.2 * random.normal()).exp()).collect();
        Self {
            trainers,
            batch_size,
            num_batches,
            ahead: 2 + (random.unit() * 14.0) as usize,
            work,
            true_work,
            noise: random.between(0.02, 0.1),
            stall: (0.005, random.between(2.0, 10.0)),
            seed: random.0,
        }
    }

    /// The same, sampled so many mini-batches ahead.
    pub(crate) fn with_ahead(self, ahead: usize) -> Self {
        Self { ahead, ..self }
    }

    pub(crate) fn epochs(&self) -> Epochs {
        let nodes: Vec<u32> = (0..self.work.len() as u32).collect();
        let seeds = SeedSet::new("simulated", &nodes, nodes.len()).expect("distinct");
        Epochs::new(&seeds, &SamplerSettings { batch_size: self.batch_size, ..SamplerSettings::default() })
    }

    pub(crate) fn balanced(&self, speeds: &[f64]) -> Balanced {
        Balanced::new(self.epochs(), Arc::clone(&self.work), speeds, self.ahead).expect("valid")
    }

    /// What the trainers need for whole mini-batches, as a profile of five measures it: seconds of each.
    pub(crate) fn profiled(&self) -> Vec<f64> {
        let mut random = Random(self.seed ^ 0x5EED);
        let mean = self.true_work.iter().sum::<f64>() / self.num_batches as f64;
        let seconds = |t: &Trainer| {
            let runs = (0..5).map(|_| (t.fixed + mean / t.speed) * (self.noise * random.normal()).exp());
            runs.sum::<f64>() / 5.0
        };
        self.trainers.iter().map(seconds).collect()
    }

    /// Everything random of an epoch.
    pub(crate) fn epoch(&self, epoch: u32) -> Epoch<'_> {
        let epochs = self.epochs();
        let order = epochs.order(epoch);
        let sums = order.nodes.chunks(self.batch_size).map(|seeds| {
            let mut sum = 0.0;
            let work = seeds.iter().map(|&v| {
                sum += self.true_work[v as usize];
                sum
            });
            [0.0].into_iter().chain(work).collect()
        });
        let sums: Vec<Vec<f64>> = sums.collect();
        let mut random = Random(self.seed ^ (u64::from(epoch) << 32));
        let factor = |step: usize, t: &Trainer, random: &mut Random| {
            let stalled = if random.unit() < self.stall.0 { self.stall.1 } else { 1.0 };
            let step = epoch as usize * self.num_batches + step;
            let slower = t.slower.filter(|(from, _)| step >= *from).map_or(1.0, |(_, times)| times);
            stalled * slower * (self.noise * random.normal()).exp()
        };
        let factors = (0..sums.len()).map(|step| self.trainers.iter().map(|t| factor(step, t, &mut random)).collect());
        let factors = factors.collect();
        Epoch { machine: self, epoch, sums, factors }
    }
}

/// The seconds that an epoch's shares take.
#[derive(Debug)]
pub(crate) struct Epoch<'m> {
    machine: &'m Machine,
    epoch: u32,
    /// Sums of the true work of each mini-batch's first seeds.
    sums: Vec<Vec<f64>>,
    /// How many times as long each trainer takes in each step.
    factors: Vec<Vec<f64>>,
}

impl Epoch<'_> {
    fn seconds(&self, step: usize, rank: usize, seeds: std::ops::Range<usize>) -> f64 {
        if seeds.is_empty() {
            return 0.0;
        }
        let work = self.sums[step][seeds.end] - self.sums[step][seeds.start];
        let Trainer { speed, fixed, .. } = self.machine.trainers[rank];
        (fixed + work / speed) * self.factors[step][rank]
    }

    /// Seeds of a step.
    pub(crate) fn num_seeds(&self, step: usize) -> usize {
        self.sums[step].len() - 1
    }

    /// Seconds of the epoch with shares that end at these positions.
    pub(crate) fn with_ends(&self, ends: impl Fn(usize) -> Vec<usize>) -> f64 {
        let step = |step: usize| {
            let mut start = 0;
            let seconds = ends(step).into_iter().enumerate().map(|(rank, end)| {
                let seeds = start..end;
                start = end;
                self.seconds(step, rank, seeds)
            });
            seconds.fold(0.0, f64::max)
        };
        (0..self.sums.len()).map(step).sum()
    }

    /// Seconds of the epoch by a division, which observes the seconds of each step, and samples as far ahead as it may.
    pub(crate) fn by(&self, division: &dyn Division) -> f64 {
        let size = self.machine.trainers.len();
        let id = |step: usize| BatchId { epoch: self.epoch, index: step as u32 };
        let mut total = 0.0;
        for step in 0..self.sums.len() {
            let furthest = (step + self.machine.ahead - 1).min(self.sums.len() - 1);
            let num_seeds = |step: usize| self.sums[step].len() - 1;
            division.share(id(furthest), num_seeds(furthest), 0).expect("determined");
            let share = |rank| division.share(id(step), num_seeds(step), rank).expect("determined");
            let seconds: Vec<f64> = (0..size).map(|rank| self.seconds(step, rank, share(rank))).collect();
            division.observe(id(step), &seconds).expect("in the epoch");
            total += seconds.iter().copied().fold(0.0, f64::max);
        }
        total
    }

    /// The count ratio of the Unified CPU-GPU protocol's load balancer as its code has it: numbers of seeds in inverse proportion
    /// to the mean of each trainer's seconds per seed, all steps so far weighing the same whatever their work.
    pub(crate) fn published(&self, sums: &mut [(f64, f64)]) -> f64 {
        let mut total = 0.0;
        for step in 0..self.sums.len() {
            let weights: Vec<f64> = sums.iter().map(|(seconds, steps)| steps / seconds).collect();
            let division = Weights::new(&weights).expect("positive");
            let num_seeds = self.sums[step].len() - 1;
            let mut longest = 0f64;
            for (rank, sum) in sums.iter_mut().enumerate() {
                let id = BatchId { epoch: self.epoch, index: step as u32 };
                let seeds = division.share(id, num_seeds, rank).expect("fixed");
                if !seeds.is_empty() {
                    let seconds = self.seconds(step, rank, seeds.clone());
                    longest = longest.max(seconds);
                    *sum = (sum.0 + seconds / seeds.len() as f64, sum.1 + 1.0);
                }
            }
            total += longest;
        }
        total
    }

    /// The best division by fixed numbers of seeds, in hindsight: for two trainers of all of them, for more the best that
    /// moving seeds between any two trainers finds. Seconds of the epoch.
    pub(crate) fn best_static(&self) -> f64 {
        let (size, batch_size) = (self.machine.trainers.len(), self.machine.batch_size);
        let seconds = |counts: &[usize]| {
            self.with_ends(|step| {
                let num_seeds = self.sums[step].len() - 1;
                let mut sum = 0;
                let end = |count: &usize| {
                    sum += count;
                    (sum as f64 / batch_size as f64 * num_seeds as f64).round() as usize
                };
                counts.iter().map(end).collect()
            })
        };
        if size == 2 {
            return (0..=batch_size).map(|first| seconds(&[first, batch_size - first])).fold(f64::INFINITY, f64::min);
        }
        // From shares by speed on.
        let total: f64 = self.machine.trainers.iter().map(|t| t.speed).sum();
        let count = |t: &Trainer| (t.speed / total * batch_size as f64) as usize;
        let mut counts: Vec<usize> = self.machine.trainers.iter().map(count).collect();
        counts[0] += batch_size - counts.iter().sum::<usize>();
        let mut best = seconds(&counts);
        let mut moved = batch_size;
        while moved > 0 {
            let mut better = false;
            for (from, to) in (0..size * size).map(|pair| (pair / size, pair % size)).filter(|(a, b)| a != b) {
                let mut other = counts.clone();
                let seeds = moved.min(other[from]);
                other[from] -= seeds;
                other[to] += seeds;
                let found = seconds(&other);
                if found < best {
                    (best, counts, better) = (found, other, true);
                }
            }
            if !better {
                moved /= 2;
            }
        }
        best
    }

    /// The best division by fixed parts of the true work between two trainers, in hindsight. Seconds of the epoch.
    pub(crate) fn best_by_work(&self) -> f64 {
        let parts = self.machine.batch_size;
        let seconds = |part: usize| {
            self.with_ends(|step| {
                let sums = &self.sums[step];
                let work = sums.last().expect("a seed") * part as f64 / parts as f64;
                vec![sums.partition_point(|&sum| sum <= work).saturating_sub(1), sums.len() - 1]
            })
        };
        (0..=parts).map(seconds).fold(f64::INFINITY, f64::min)
    }
}
