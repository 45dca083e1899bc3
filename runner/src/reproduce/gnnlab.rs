//! Tables and figures of GNNLab, by the numbers of the survey.

use anyhow::Result;
use morphgl_batching_sim_neighbor::DEVICE_KEY;
use morphgl_hotness::{CachePolicy, PolicyKind, coverage, hottest};
use morphgl_model_core::ModelKind;
use morphgl_plan::{Linear, RolesProblem, Strategy, roles};
use morphgl_registry::{CACHE_HITS, CACHE_REQUESTS, CounterSpec, Sampling, WalkSettings};
use morphgl_row_cache::NodeMap;
use morphgl_sim::MachineDescription;
use morphgl_transferring_sim_copy::GATHER_KEY;

use super::execution::{EXECUTED, Executed};
use super::row::{Figure, How, Row, Shown, Verdict, agrees, differs};
use super::setting::Setting;
use super::stand_in::{PA, PR, StandIn, TW, UK};
use super::workload::{Load, Phases};
use crate::session::{Cache, PlanChoice, Sampled, SessionConfig};

/// Devices of the server.
const DEVICES: usize = 8;
/// PCIe switches of `eight-v100`, which the devices share.
const SWITCHES: f64 = 2.0;
/// Seeds per mini-batch (the survey, Figure 13).
const SEEDS: f64 = 8000.0;
/// Neighbours by layer of GNNLab's GraphSAGE.
const FANOUTS: &str = "25,10";

/// A row of Table VI that DGL runs: seconds of the stages of an epoch, added up over the devices.
struct Stages {
    name: &'static str,
    train: f64,
    /// Sample, extract, train.
    dgl: [f64; 3],
    /// Extraction of T_SOTA and its hit rate in percent.
    shared: (f64, f64),
    /// Graph sampling, marking, copying.
    sampling: [f64; 3],
    /// Extraction of GNNLab and its hit rate in percent.
    own: (f64, f64),
    training: f64,
}

const fn stages(
    name: &'static str,
    train: f64,
    dgl: [f64; 3],
    shared: (f64, f64),
    sampling: [f64; 3],
    own: (f64, f64),
    training: f64,
) -> Stages {
    Stages { name, train, dgl, shared, sampling, own, training }
}

const TABLE_VI: [Stages; 9] = [
    stages("GCN, PR", 197e3, [0.35, 2.81, 1.22], (0.04, 100.0), [0.29, 0.01, 0.09], (0.15, 100.0), 1.18),
    stages("GCN, TW", 417e3, [0.74, 9.44, 1.48], (3.68, 29.0), [0.26, 0.03, 0.08], (0.76, 89.0), 1.51),
    stages("GCN, PA", 1.2e6, [1.20, 10.70, 4.00], (3.64, 38.0), [0.68, 0.10, 0.18], (0.49, 99.0), 3.82),
    stages("GraphSAGE, PR", 197e3, [0.13, 1.92, 0.23], (0.03, 100.0), [0.15, 0.01, 0.04], (0.08, 100.0), 0.24),
    stages("GraphSAGE, TW", 417e3, [0.38, 4.65, 0.44], (0.62, 77.0), [0.11, 0.01, 0.03], (0.41, 89.0), 0.43),
    stages("GraphSAGE, PA", 1.2e6, [0.56, 6.06, 1.25], (1.42, 56.0), [0.31, 0.06, 0.08], (0.28, 99.0), 1.15),
    stages("PinSAGE, PR", 197e3, [0.40, 1.64, 1.75], (0.03, 100.0), [0.15, 0.01, 0.04], (0.08, 100.0), 1.72),
    stages("PinSAGE, TW", 417e3, [0.72, 5.22, 2.59], (1.12, 60.0), [0.21, 0.02, 0.05], (0.51, 86.0), 2.52),
    stages("PinSAGE, PA", 1.2e6, [1.86, 4.85, 5.78], (1.68, 37.0), [0.47, 0.04, 0.09], (0.33, 97.0), 6.01),
];

impl Stages {
    fn sampling(&self) -> f64 {
        self.sampling.iter().sum()
    }

    /// Seconds in which one link moves the features of an epoch without a cache: the line through the extractions of T_SOTA and of
    /// GNNLab by their hit rates. `None` where both have all rows.
    fn uncached(&self) -> Option<f64> {
        let ((slow, few), (fast, many)) = (self.shared, self.own);
        (many - few > 5.0).then(|| fast + (slow - fast) / (many - few) * many)
    }

    /// The same where extraction gains by every device.
    fn dgl_unhindered(&self) -> f64 {
        self.dgl.iter().sum::<f64>() / DEVICES as f64
    }

    /// Seconds of an epoch of DGL on eight devices, by time-sharing: stages of a device one after the other. Devices sample and
    /// train without each other's help; extraction is no faster than the switches move the features. `mean` is DGL's extraction over
    /// the uncached one where that is not known.
    fn dgl(&self, mean: f64) -> f64 {
        let [sample, extract, train] = self.dgl;
        let uncached = self.uncached().unwrap_or(extract / mean);
        let alone = extract / DEVICES as f64;
        (sample + train) / DEVICES as f64 + alone.max(uncached / SWITCHES)
    }

    /// The roles of eight devices.
    fn problem(&self) -> RolesProblem {
        let num_batches = (self.train / SEEDS).ceil() as usize;
        let each = |epoch: f64| Linear { fixed: 0.0, whole: epoch / num_batches as f64 };
        RolesProblem {
            num_batches,
            devices: DEVICES,
            sampling: each(self.sampling()),
            gathering: each(self.own.0),
            standby_gathering: each(self.shared.0),
            training: each(self.training),
            all_reduce: 0.0,
            queue: 16,
            ready: 2,
            switching: 0.0,
            staleness: 0,
        }
    }
}

/// DGL's extraction over the uncached one, on average where both are known.
fn mean_of_extraction() -> f64 {
    let known: Vec<f64> = TABLE_VI.iter().filter_map(|row| Some(row.dgl[1] / row.uncached()?)).collect();
    known.iter().sum::<f64>() / known.len() as f64
}

fn end_to_end(_: &Setting) -> Result<Shown> {
    let (mean, mut executed) = (mean_of_extraction(), Executed::default());
    let (mut figures, mut factors, mut unhindered, mut formula) = (Vec::new(), Vec::new(), Vec::new(), true);
    for row in &TABLE_VI {
        let problem = row.problem();
        let plan = roles(&problem)?;
        let dgl = row.dgl(mean);
        factors.push(dgl / plan.epoch_seconds);
        unhindered.push(row.dgl_unhindered() / plan.epoch_seconds);
        let by_formula = [morphgl_plan::Segment { from: 0, trainers: DEVICES - plan.samplers_by_formula }];
        let with_formula = problem.simulate(&by_formula).expect("a device samples");
        formula &= with_formula <= 1.25 * plan.unswitched_seconds;
        let name = row.name;
        figures.push(Figure::new(format!("{name}: DGL, every device extracts"), "s").predicted(row.dgl_unhindered()));
        figures.push(Figure::new(format!("{name}: DGL, by two switches"), "s").predicted(dgl));
        let ran = executed.run_roles(&problem, plan.unswitched_trainers)?.seconds;
        figures.push(Figure::new(format!("{name}: roles"), "s").predicted(plan.unswitched_seconds).executed(ran));
        figures.push(Figure::new(format!("{name}: roles that change"), "s").predicted(plan.epoch_seconds));
        let samplers = DEVICES - plan.unswitched_trainers;
        figures.push(Figure::new(format!("{name}: samplers"), "devices").predicted(samplers as f64));
    }
    let range = |factors: &[f64]| factors.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), &f| (l.min(f), m.max(f)));
    let ((least, most), (lower, upper)) = (range(&factors), range(&unhindered));
    figures.push(Figure::new("least factor over DGL, every device extracts", "").paper(2.4).predicted(lower));
    figures.push(Figure::new("least factor over DGL, by two switches", "").paper(2.4).predicted(least));
    figures.push(Figure::new("largest factor over DGL, every device extracts", "").paper(9.1).predicted(upper));
    figures.push(Figure::new("largest factor over DGL, by two switches", "").paper(9.1).predicted(most));
    let text = format!("{lower:.1} to {upper:.1} where every device extracts, {least:.1} to {most:.1} by two switches");
    let verdicts = vec![
        Verdict::new(lower > 1.0, text.clone()),
        Verdict::new(lower <= 2.4 && 2.4 <= least && upper <= 9.1 && 9.1 <= most, text.clone()),
        Verdict::new((least / 2.4 - 1.0).abs() < 0.15 && (most / 9.1 - 1.0).abs() < 0.15, text),
        Verdict::new(formula, "in all cells"),
        executed.verdict(),
    ];
    Ok(Shown::new(figures, verdicts))
}

/// Share of the rows, and hit rate, in percent.
type Cached = (f64, f64);

/// A dataset with the share of its rows that T_SOTA and GNNLab cache for GraphSAGE, in percent, and their hit rates.
const CACHED: [(&str, StandIn, [Cached; 2]); 3] = [
    ("TW", TW, [(15.0, 77.0), (32.0, 89.0)]),
    ("PA", PA, [(11.0, 56.0), (25.0, 99.0)]),
    ("UK", UK, [(1.0, 0.0), (18.0, 72.0)]),
];

/// Hits in percent of a static cache of these percentages of the rows, by a policy.
fn hits(sampled: &Sampled, accesses: &[f32], kind: PolicyKind, percents: &[f64]) -> Result<Vec<f64>> {
    let scores = sampled.score(kind)?;
    let rows: Vec<usize> = percents.iter().map(|percent| sampled.rows(*percent)).collect();
    Ok(coverage(accesses, &hottest(&scores.features, usize::MAX), &rows).into_iter().map(|hit| 100.0 * hit).collect())
}

const PRESAMPLE: PolicyKind = PolicyKind::PreSample { epochs: std::num::NonZeroU32::MIN };
const TWO_EPOCHS: PolicyKind = PolicyKind::PreSample { epochs: std::num::NonZeroU32::MIN.saturating_add(1) };

fn table_vi(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("eight-v100")?;
    let (mut figures, mut faster, mut extraction) = (Vec::new(), true, Vec::new());
    let mut of_paper = Vec::new();
    for row in &TABLE_VI[3..6] {
        let [sample, extract, train] = row.dgl;
        let stand_in = if row.name.ends_with("PR") {
            PR
        } else if row.name.ends_with("TW") {
            TW
        } else {
            PA
        };
        let workload = setting.workload(&stand_in, FANOUTS, SEEDS as usize)?;
        let sampled = setting.sampled(&stand_in, FANOUTS, SEEDS as usize)?;
        let accesses = sampled.count(std::num::NonZeroU32::MIN)?.hotness.features;
        let cached = CACHED.iter().find(|(_, cached, _)| cached.name == stand_in.name).map(|c| c.2);
        let epoch = |seconds: f64| seconds * workload.batches as f64;
        let phases = |row_hits: f64| {
            let load = Load { kind: ModelKind::Sage, hidden: 256, value: 4.0, id: 4.0, row_hits, list_hits: 0.0 };
            Phases::of(&workload, &machine, load)
        };
        let own_hits = match cached {
            Some([_, (share, _)]) => hits(&sampled, &accesses, PRESAMPLE, &[share])?[0] / 100.0,
            None => 1.0,
        };
        let (none, own) = (phases(0.0), phases(own_hits));
        let collected = epoch(none.collecting + none.copying);
        figures.push(Figure::new(format!("{}: sample, DGL", row.name), "s").paper(sample));
        figures.push(
            Figure::new(format!("{}: sample, GNNLab", row.name), "s")
                .paper(row.sampling[0])
                .predicted(epoch(own.device_sampling)),
        );
        figures.push(Figure::new(format!("{}: mark", row.name), "s").paper(row.sampling[1]));
        let copying = machine.copying(&machine.devices[0], 4.0 * workload.edges() + 4.0 * workload.inputs());
        figures.push(
            Figure::new(format!("{}: copy samples", row.name), "s").paper(row.sampling[2]).predicted(epoch(copying)),
        );
        figures.push(Figure::new(format!("{}: extract, DGL", row.name), "s").paper(extract).predicted(collected));
        let gathering = epoch(own.gathering);
        figures.push(Figure::new(format!("{}: extract, GNNLab", row.name), "s").paper(row.own.0).predicted(gathering));
        figures.push(Figure::new(format!("{}: train, DGL", row.name), "s").paper(train).predicted(epoch(own.training)));
        figures.push(
            Figure::new(format!("{}: train, GNNLab", row.name), "s").paper(row.training).predicted(epoch(own.training)),
        );
        faster &= gathering < collected;
        extraction.push(collected / epoch(none.device_sampling + none.training));
        of_paper.push(100.0 * extract / (sample + extract + train));
    }
    let dominates = extraction.iter().all(|e| *e > 1.0);
    let text = extraction.iter().map(|e| format!("{e:.1}")).collect::<Vec<_>>().join(", ");
    let marking = TABLE_VI.iter().map(|row| row.sampling[1] + row.sampling[2]).sum::<f64>()
        / TABLE_VI.iter().map(Stages::sampling).sum::<f64>();
    let verdicts = vec![
        Verdict::new(faster, "on three datasets"),
        Verdict::new(dominates, format!("{text} times sampling and training")),
        Verdict::new(marking < 0.5, format!("{:.0}% of sampling in the paper's table", 100.0 * marking)),
    ];
    Ok(Shown::new(figures, verdicts))
}

/// An epoch through a cache on the server, in percent: rows that are cached, and hits as predicted and executed.
struct CachedEpoch {
    rows: f64,
    predicted: f64,
    executed: f64,
}

/// Trains an epoch of GraphSAGE as `set` says with a cache on each device, whose memory is divided by `divisor`.
fn cached_epoch(
    setting: &Setting,
    stand_in: &StandIn,
    (divisor, cache): (f64, Cache),
    set: impl FnOnce(&mut SessionConfig),
) -> Result<CachedEpoch> {
    let mut machine = MachineDescription::named("eight-v100")?;
    machine.devices.iter_mut().for_each(|device| device.memory_gb /= divisor);
    let set = |config: &mut SessionConfig| {
        config.planning.cache = Some(cache);
        // One mini-batch at a time, beside the one in training.
        config.planning.limits.buffer = Some(1);
        set(config);
    };
    let sampler = (FANOUTS, stand_in.seeds(SEEDS as usize));
    let run = setting.session_on_machine(stand_in, sampler, machine, set)?.train()?;
    let cache = &run.json["plan"]["caches"][0];
    let (held, hit_rate) = (cache["bytes"].as_f64().unwrap_or(0.0), cache["hit_rate"].as_f64().unwrap_or(0.0));
    let counters = run.report.counters();
    let sum = |spec: &CounterSpec| counters.values().filter_map(|counted| counted.get(spec.name)).sum::<u64>() as f64;
    Ok(CachedEpoch {
        rows: 100.0 * held / (stand_in.feature_bytes(4.0) / stand_in.scale),
        predicted: 100.0 * hit_rate,
        executed: 100.0 * sum(&CACHE_HITS) / sum(&CACHE_REQUESTS).max(1.0),
    })
}

/// A device that samples, gathers and trains in turn: T_SOTA.
fn time_sharing(config: &mut SessionConfig) {
    config.training.plan = PlanChoice::Strategy(Strategy::Sequential);
    config.planning.batch.batching = Some(DEVICE_KEY);
    config.planning.batch.transferring = Some(GATHER_KEY);
}

fn hit_rates(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut off, mut off_paper, mut of_optimum) = (Vec::new(), 0.0_f64, Vec::new(), f64::INFINITY);
    for (name, stand_in, caches) in &CACHED {
        let sampled = setting.sampled(stand_in, FANOUTS, SEEDS as usize)?;
        let accesses = sampled.count(std::num::NonZeroU32::MIN)?.hotness.features;
        let optimum = hottest(&accesses, usize::MAX);
        let systems = [("T_SOTA", PolicyKind::OutDegree), ("GNNLab", PRESAMPLE)];
        for ((system, policy), (share, paper)) in systems.into_iter().zip(caches) {
            let rows = stand_in.nodes / stand_in.scale;
            let bytes = rows * share / 100.0 * stand_in.dim as f64 * 4.0 + NodeMap::num_bytes_of(rows as usize) as f64;
            let cache = Cache { policy: CachePolicy::By(policy), bytes: Some(bytes as u64) };
            let epoch = cached_epoch(setting, stand_in, (1.0, cache), time_sharing)?;
            let most = 100.0 * coverage(&accesses, &optimum, &[sampled.rows(*share)])[0];
            let figure = Figure::new(format!("{name}, {share}% of the rows as {system}: hits"), "%");
            figures.push(figure.paper(*paper).predicted(epoch.predicted).executed(epoch.executed));
            figures.push(Figure::new(format!("{name}, {share}% of the rows: optimum"), "%").here(most));
            off = off.max((epoch.predicted - epoch.executed).abs());
            off_paper.push((epoch.executed - paper).abs());
            if policy == PRESAMPLE {
                of_optimum = of_optimum.min(epoch.executed / most);
            }
        }
    }
    // What the memory of a device has room for at the paper's size.
    let fitting = (TW.scale, Cache { policy: CachePolicy::By(PRESAMPLE), bytes: None });
    let shared = cached_epoch(setting, &TW, fitting, time_sharing)?;
    let roles = cached_epoch(setting, &TW, fitting, |config| config.training.plan = PlanChoice::Factored)?;
    for (system, epoch, paper) in [("time-sharing", &shared, CACHED[0].2[0]), ("roles", &roles, CACHED[0].2[1])] {
        let (share, hits) = paper;
        figures.push(Figure::new(format!("TW, {system}: rows that fit"), "%").paper(share).predicted(epoch.rows));
        let figure = Figure::new(format!("TW, {system}: hits"), "%");
        figures.push(figure.paper(hits).predicted(epoch.predicted).executed(epoch.executed));
        off = off.max((epoch.predicted - epoch.executed).abs());
    }
    let farthest = off_paper.iter().copied().fold(0.0, f64::max);
    let verdicts = vec![
        Verdict::new(
            roles.rows > 1.5 * shared.rows && roles.executed > shared.executed,
            format!(
                "{:.0}% of the rows beside {:.0}%, hits {:.0}% beside {:.0}%",
                roles.rows, shared.rows, roles.executed, shared.executed
            ),
        ),
        Verdict::new(off < 2.0, format!("off by {off:.1} points at most")),
        Verdict::new(farthest < 10.0, format!("off by {farthest:.0} points at most")),
        Verdict::new(of_optimum > 0.8, format!("at least {of_optimum:.2} of the optimum")),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn table_iv(setting: &Setting) -> Result<Shown> {
    // PR, TW, PA, UK, in percent, by 3 hops and by random walks.
    const PAPER: [[f64; 4]; 2] = [[73.97, 78.89, 91.29, 77.46], [78.16, 72.68, 87.14, 64.40]];
    let (mut figures, mut all) = (Vec::new(), Vec::new());
    for (i, (stand_in, name)) in [PR, TW, PA, UK].iter().zip(["PR", "TW", "PA", "UK"]).enumerate() {
        for (how, paper) in ["3 hops", "walks"].iter().zip(PAPER) {
            let seeds = stand_in.seeds(SEEDS as usize);
            let sampled = match *how {
                "walks" => setting.sampled_by(stand_in, Sampling::Walk(WalkSettings::of_layers(3)), seeds)?,
                _ => setting.sampled_with("15,10,5", stand_in, seeds)?,
            };
            let similarity = similarity(&sampled)?;
            figures.push(Figure::new(format!("{name}, {how}"), "%").paper(paper[i]).here(similarity));
            all.push((*how, name, similarity));
        }
    }
    let least = all.iter().map(|a| a.2).fold(f64::INFINITY, f64::min);
    let of = |how: &str, name: &str| all.iter().find(|a| a.0 == how && *a.1 == *name).map_or(0.0, |a| a.2);
    let highest = ["PR", "TW", "UK"].iter().all(|other| of("3 hops", "PA") > of("3 hops", other));
    let verdicts = vec![
        Verdict::new(least > 60.0, format!("at least {least:.0}%")),
        Verdict::new(highest, format!("PA {:.0}%, TW {:.0}%", of("3 hops", "PA"), of("3 hops", "TW"))),
    ];
    Ok(Shown::new(figures, verdicts))
}

/// Similarity of the footprints of two epochs in percent, as GNNLab has it: of the tenth of the nodes that the first epoch
/// accesses most often, the accesses that the second has in common with the first, over those of the first.
fn similarity(sampled: &Sampled) -> Result<f64> {
    let one = sampled.count(std::num::NonZeroU32::MIN)?.hotness.features;
    let two = sampled.count(std::num::NonZeroU32::MIN.saturating_add(1))?.hotness.features;
    let top = hottest(&one, one.len() / 10);
    let both: f64 =
        top.iter().map(|&v| f64::from(one[v as usize].min(2.0 * two[v as usize] - one[v as usize]).max(0.0))).sum();
    let first: f64 = top.iter().map(|&v| f64::from(one[v as usize])).sum();
    Ok(100.0 * both / first)
}

fn table_v(_: &Setting) -> Result<Shown> {
    // Vertices, edges, values per row, and GB of topology and features.
    const ROWS: [(&str, f64, f64, f64, f64, f64); 4] = [
        ("PR", 2.4e6, 124e6, 100.0, 0.481, 0.934),
        ("TW", 41.7e6, 1.5e9, 256.0, 5.6, 40.0),
        ("PA", 111e6, 1.6e9, 128.0, 6.4, 53.0),
        ("UK", 77.7e6, 3.0e9, 256.0, 11.3, 74.0),
    ];
    let (mut figures, mut off) = (Vec::new(), 0.0_f64);
    let mut fits = Vec::new();
    for (name, nodes, edges, dim, topology, features) in ROWS {
        let gib = |bytes: f64| bytes / 1024_f64.powi(3);
        let ours = [gib(4.0 * (nodes + edges)), gib(4.0 * nodes * dim)];
        figures.push(Figure::new(format!("{name}: topology"), "GB").paper(topology).predicted(ours[0]));
        figures.push(Figure::new(format!("{name}: features"), "GB").paper(features).predicted(ours[1]));
        off = off.max((ours[0] / topology - 1.0).abs()).max((ours[1] / features - 1.0).abs());
        fits.push(ours[0] + ours[1] < 16.0);
    }
    let verdicts = vec![
        Verdict::new(off < 0.12, format!("within {:.0}%", 100.0 * off)),
        Verdict::new(fits == [true, false, false, false], "PR alone"),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_11(setting: &Setting) -> Result<Shown> {
    let workload = setting.workload(&PA, "15,10,5", SEEDS as usize)?;
    let gib = 1024_f64.powi(3);
    let topology = PA.topology_bytes(4.0) / 2.0 / gib;
    let batch = workload.bytes(4.0) / gib;
    // Activations of a step: every layer's output in f32, forward and backward.
    let activations = 2.0 * workload.layers.iter().map(|l| l.destinations * 256.0 * 4.0).sum::<f64>() / gib;
    let cache = (16.0 - topology - batch - activations).max(0.0);
    let figures = vec![
        Figure::new("topology", "GB").predicted(topology),
        Figure::new("mini-batch", "GB").predicted(batch),
        Figure::new("activations", "GB").predicted(activations),
        Figure::new("left for a cache of features", "GB").predicted(cache),
    ];
    let share = 100.0 * (topology + cache) / 16.0;
    let verdicts = vec![Verdict::new(share > 64.0, format!("{share:.0}%"))];
    Ok(Shown::new(figures, verdicts))
}

fn figure_15(setting: &Setting) -> Result<Shown> {
    let sampled = setting.sampled(&PA, "15,10,5", SEEDS as usize)?;
    let accesses = sampled.count(std::num::NonZeroU32::MIN.saturating_add(2))?.hotness.features;
    let shares = [5.0, 10.0, 20.0];
    let of = |name: &str, kind| -> Result<(String, Vec<f64>)> {
        Ok((name.into(), hits(&sampled, &accesses, kind, &shares)?))
    };
    let policies = vec![
        of("random", PolicyKind::Random)?,
        of("degree", PolicyKind::OutDegree)?,
        of("presample:1", PRESAMPLE)?,
        of("presample:2", TWO_EPOCHS)?,
    ];
    let rows: Vec<usize> = shares.iter().map(|share| sampled.rows(*share)).collect();
    let optimal: Vec<f64> =
        coverage(&accesses, &hottest(&accesses, usize::MAX), &rows).into_iter().map(|h| 100.0 * h).collect();
    let paper = |name: &str| match name {
        "random" => Some(5.0),
        "degree" => Some(29.0),
        "presample:1" => Some(96.0),
        _ => None,
    };
    let mut figures = Vec::new();
    for (name, hits) in &policies {
        for (share, hit) in shares.iter().zip(hits) {
            let figure = Figure::new(format!("{name}, {share}% of the rows"), "% hits").here(*hit);
            let at_five = paper(name).filter(|_| *share == 5.0);
            figures.push(at_five.map_or(figure.clone(), |paper| figure.paper(paper)));
        }
    }
    figures.push(Figure::new("optimum, 5% of the rows", "% hits").here(optimal[0]));
    let at = |i: usize| policies[i].1[0];
    // Bytes per mini-batch with a cache of 5 GB, by values per row.
    let inputs = setting.workload(&PA, "15,10,5", SEEDS as usize)?.inputs();
    let mut moved = Vec::new();
    for dim in [100.0, 900.0] {
        let row = 4.0 * dim;
        let share = (100.0 * 5.0 * 1024_f64.powi(3) / (row * PA.nodes)).min(100.0);
        for (name, kind) in [("degree", PolicyKind::OutDegree), ("presample:1", PRESAMPLE)] {
            let hit = hits(&sampled, &accesses, kind, &[share])?[0] / 100.0;
            let bytes = (1.0 - hit) * inputs * row / 1e6;
            figures.push(Figure::new(format!("{name}, {dim} values: moved per mini-batch"), "MB").here(bytes));
            moved.push(bytes);
        }
    }
    let verdicts = vec![
        Verdict::new(at(2) >= 90.0, format!("{:.0}%, of which the optimum has {:.0}%", at(2), optimal[0])),
        Verdict::new(at(2) > 1.5 * at(1), format!("{:.0}% beside {:.0}%", at(2), at(1))),
        Verdict::new(at(1) <= 35.0 && at(0) <= 6.0, format!("degree {:.0}%, random {:.0}%", at(1), at(0))),
        Verdict::new(
            at(2) > 0.9 * optimal[0] && at(3) >= at(2) - 0.5,
            format!("{:.2} of the optimum", at(2) / optimal[0]),
        ),
        Verdict::new(moved[2] > 2.0 * moved[3], format!("{:.0} beside {:.0} MB", moved[2], moved[3])),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_16(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut of_optimum, mut over_degree) = (Vec::new(), Vec::new(), Vec::new());
    for (stand_in, name) in [PR, TW, PA, UK].iter().zip(["PR", "TW", "PA", "UK"]) {
        for how in ["3 hops", "walks"] {
            let seeds = stand_in.seeds(SEEDS as usize);
            let sampled = match how {
                "walks" => setting.sampled_by(stand_in, Sampling::Walk(WalkSettings::of_layers(3)), seeds)?,
                _ => setting.sampled_with("15,10,5", stand_in, seeds)?,
            };
            let accesses = sampled.count(std::num::NonZeroU32::MIN.saturating_add(2))?.hotness.features;
            let rows = [sampled.rows(10.0)];
            let optimal = 100.0 * coverage(&accesses, &hottest(&accesses, usize::MAX), &rows)[0];
            let [degree, counted] = [
                hits(&sampled, &accesses, PolicyKind::OutDegree, &[10.0])?[0],
                hits(&sampled, &accesses, PRESAMPLE, &[10.0])?[0],
            ];
            figures.push(Figure::new(format!("{name}, {how}: degree"), "% hits").here(degree));
            figures.push(Figure::new(format!("{name}, {how}: presample:1"), "% hits").here(counted));
            figures.push(Figure::new(format!("{name}, {how}: optimum"), "% hits").here(optimal));
            of_optimum.push(counted / optimal);
            over_degree.push(counted / degree);
        }
    }
    let least = of_optimum.iter().copied().fold(f64::INFINITY, f64::min);
    let (mean, most) =
        (over_degree.iter().sum::<f64>() / over_degree.len() as f64, over_degree.iter().copied().fold(0.0, f64::max));
    let never_worse = over_degree.iter().copied().fold(f64::INFINITY, f64::min);
    let verdicts = vec![
        Verdict::new(least > 0.9, format!("at least {least:.2} of the optimum")),
        Verdict::new(mean > 1.25, format!("{mean:.2} times on average, up to {most:.2}")),
        Verdict::new(never_worse > 1.0, format!("at least {never_worse:.2} times")),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_12(_: &Setting) -> Result<Shown> {
    let (mut figures, mut balanced) = (Vec::new(), true);
    for row in &TABLE_VI {
        let problem = row.problem();
        let samplers = problem.samplers_by_formula();
        let trainers = (DEVICES - samplers) as f64;
        let slower = row.own.0.max(row.training) / trainers;
        balanced &= row.sampling() / samplers as f64 <= slower * 1.001;
        figures
            .push(Figure::new(format!("{}: samplers by the formula", row.name), "devices").predicted(samplers as f64));
    }
    let verdicts = vec![Verdict::new(balanced, "in nine cells")];
    Ok(Shown::new(figures, verdicts))
}

pub(super) const ROWS: &[Row] = &[
    Row::drawing(
        "G:3",
        "example of the factored design",
        &["sched/plan/src/roles.rs"],
        "`sched/plan/tests/all/roles.rs` has its two samplers and six trainers.",
    ),
    Row::drawing(
        "G:10",
        "sample, extract, train",
        &["registry/src/operator.rs"],
        "Batching is sample, with extract on the host; transferring is extract by the device; training is train.",
    ),
    Row {
        id: "G:11",
        title: "memory of a device by stage",
        how: &[How::Described],
        code: &["sched/plan/src/memory.rs"],
        statements: &[agrees("Topology and cache of features, which epochs share, take more than 64% of 16 GB")],
        note: "Papers100M with edges in one direction, 8,000 seeds, 15,10,5 neighbours, 256 hidden values; activations are each \
layer's output, forward and backward.",
        run: Some(figure_11),
    },
    Row {
        id: "G:12",
        title: "samplers and trainers",
        how: &[How::Predicted],
        code: &["sched/plan/src/roles.rs"],
        statements: &[agrees("By the formula samplers keep up with trainers on eight devices")],
        note: "Seconds of Table VI.",
        run: Some(figure_12),
    },
    Row::drawing(
        "G:14",
        "code of the executors",
        &["sched/execute/src/executor.rs"],
        "Ours has one executor, whose routes name the devices.",
    ),
    Row {
        id: "G:15",
        title: "hit rates by policy and cache ratio, bytes by values per row",
        how: &[How::Counted],
        code: &["caches/hotness/src/presample.rs", "runner/src/cli/cache.rs"],
        statements: &[
            differs(
                "Pre-sampling hits 90% or more by 5% of the rows of Papers100M (96% in the paper)",
                "Three hops of the stand-in leave the community of the training nodes more often than those of the dataset, and the \
optimum itself hits no more than is shown.",
            ),
            agrees("Pre-sampling hits more than 1.5 times as often as degree"),
            agrees("Degree hits less than 35%, random less than 6%, by 5% of the rows (29% and 5% in the paper)"),
            agrees("Pre-sampling is within a tenth of the optimum, and a second epoch adds little"),
            agrees("With 900 values per row degree moves more than twice the bytes of pre-sampling"),
        ],
        note: "Stand-in of Papers100M, 15,10,5 neighbours; the cache of (c) has 5 GB.",
        run: Some(figure_15),
    },
    Row {
        id: "G:16",
        title: "hit rates by dataset and sampling, a tenth of the rows",
        how: &[How::Counted],
        code: &["caches/hotness/src/presample.rs"],
        statements: &[
            agrees("Pre-sampling has more than 0.9 of the optimum's hits"),
            agrees(
                "Pre-sampling hits much more often than degree on average (1.5 times in the paper, here more than 1.25)",
            ),
            differs(
                "Pre-sampling hits more often than degree on each dataset",
                "Where training nodes are anywhere, drawn by degree, the hottest rows are those of the highest degree, and an epoch of \
sampling is a noisier estimate than the degree itself.",
            ),
        ],
        note: "Weighted sampling is left out: the stand-ins have no weights.",
        run: Some(figure_16),
    },
    Row {
        id: "G:IV",
        title: "similarity of the footprints of two epochs",
        how: &[How::Counted],
        code: &["caches/hotness/src/counts.rs"],
        statements: &[
            agrees("Two epochs have more than 60% of the accesses to the hottest tenth in common"),
            differs(
                "By three hops the similarity is highest on Papers100M",
                "Training nodes drawn by degree reach the same hubs in every epoch on the other stand-ins too.",
            ),
        ],
        note: "By three hops and walks; the stand-ins have no weights. Accesses to the tenth of the nodes that the first epoch \
accesses most: those that both epochs have over those of the first.",
        run: Some(table_iv),
    },
    Row {
        id: "G:V",
        title: "datasets and systems",
        how: &[How::Derived],
        code: &["runner/src/reproduce/stand_in.rs"],
        statements: &[
            agrees("Topologies and features take the stated GB (within 12%)"),
            agrees("All of PR fits into a device of 16 GB, and nothing of the others"),
        ],
        note: "Bytes by 4 per vertex, edge and value. The epoch seconds of each system, a table of GNNLab, are not in the survey; \
the factors over DGL are those of G:VI.",
        run: Some(table_v),
    },
    Row {
        id: "G:VI",
        title: "speed over DGL on eight devices, from the stages of an epoch",
        how: &[How::Predicted, How::Executed],
        code: &["sched/plan/src/roles.rs"],
        statements: &[
            agrees("GNNLab's roles are faster than DGL's time-sharing in every cell"),
            agrees("By 2.4 to 9.1 times: both ends lie between DGL's extraction by every device and by two switches"),
            differs(
                "By 2.4 to 9.1 times, by two switches (both ends within 15%)",
                "The largest factor is that of GraphSAGE on TW, whose uncached extraction is extrapolated from hit rates of 77 and 89%; \
the paper does not say how its devices are attached.",
            ),
            agrees("The formula's number of samplers is near the best one (within a quarter)"),
            EXECUTED,
        ],
        note: "Executed: roles that do not change, with mini-batches whose durations vary by 5%. Fitted: durations of all stages to Table \
VI, whose seconds are taken as sums over the devices, as training is the same \
for one trainer and two. Eight devices share two switches (an assumption of `eight-v100`), and DGL's extraction is no faster than \
these move the features: the seconds of one link are the line through the extractions of T_SOTA and GNNLab by their hit rates; on \
PR, where both hit always, DGL's extraction over the mean of the other cells. 8,000 seeds. UK is left out, which DGL cannot run.",
        run: Some(end_to_end),
    },
    Row {
        id: "G:VI-stages",
        title: "seconds of the stages of an epoch, marking and copying apart",
        how: &[How::Described, How::Counted],
        code: &["transfer/sim/src/roofline.rs", "caches/hotness/src/presample.rs"],
        statements: &[
            agrees("With a cache filled by pre-sampling extraction takes less than DGL's collecting and copying"),
            agrees("DGL's extraction takes longer than sampling and training together"),
            agrees("Marking and copying are less than half of sampling"),
        ],
        note: "GraphSAGE of two layers, 25 and 10 neighbours, 8,000 seeds, on `eight-v100`; the cache has the paper's share of the \
rows. Our sampler marks nothing: caches are looked up by the gather.",
        run: Some(table_vi),
    },
    Row {
        id: "G:VI-hits",
        title: "hit rates of devices that share their time and of devices with roles",
        how: &[How::Described, How::Executed, How::Counted],
        code: &["transfer/sim-copy/src/cache.rs", "runner/src/factored/plan.rs"],
        statements: &[
            agrees(
                "A device that only trains has room for more rows than one that samples too (32% beside 15% on TW), and hits more",
            ),
            agrees("Caches hit as predicted (within two points)"),
            differs(
                "By the paper's shares of the rows hits are within ten points of the paper's",
                "On the stand-ins of TW and UK accesses are spread over more rows than on the datasets: the optimum itself hits no more \
than is shown. Degree says less of what is near the training nodes of PA's stand-in than of the dataset's.",
            ),
            agrees("Caches filled by pre-sampling hit as often as the optimum, within a fifth"),
        ],
        note: "GraphSAGE of two layers, 25 and 10 neighbours, 8,000 seeds, trained for an epoch on `eight-v100` in simulated time. First \
caches of the paper's shares of the rows on a device that samples, gathers and trains in turn, filled by degree as T_SOTA's and by \
`presample:1` as GNNLab's; the optimum has the rows that a counted epoch accesses most. Then, on TW and by `presample:1`, of what fits \
into the memory of the devices, divided by the scale of the stand-in, beside two mini-batches in flight.",
        run: Some(hit_rates),
    },
];
