//! Tables and figures of the Unified CPU-GPU protocol.

use anyhow::Result;
use morphgl_batching_sim_neighbor::DEVICE_KEY;
use morphgl_hotness::CachePolicy;
use morphgl_model_core::ModelKind;
use morphgl_plan::{
    Bytes, Candidate, Durations, GroupProblem, GroupTrainer, Hardware, Problem, Resource, RouteKeys, Strategy, group,
};
use morphgl_registry::{Fanouts, Sampling, ShadowSettings};
use morphgl_sim::MachineDescription;
use morphgl_transferring_sim_copy::GATHER_KEY;

use super::execution::{EXECUTED, Executed};
use super::row::{Figure, How, Row, Shown, Verdict, agrees, differs};
use super::setting::Setting;
use super::stand_in::{MAG, PR, REDDIT, StandIn};
use super::workload::{Load, Phases, Workload};
use crate::Shares;
use crate::session::{Cache, PlanChoice, SessionConfig};

/// A sampler of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sampler {
    Neighbor,
    Shadow,
}

const SAMPLERS: [(&str, Sampler); 2] = [("Neighbor", Sampler::Neighbor), ("ShaDow", Sampler::Shadow)];
const MODELS: [(&str, ModelKind); 2] = [("GCN", ModelKind::Gcn), ("GraphSAGE", ModelKind::Sage)];
/// Datasets with seeds per mini-batch.
const DATASETS: [(&str, StandIn, usize); 3] =
    [("Reddit", REDDIT, 4096), ("Products", PR, 4096), ("MAG240M", MAG, 1024)];
/// Epoch seconds of both protocols, by dataset.
type Models = [[f64; 2]; 3];

/// Epoch seconds of the standard and of the unified protocol: Table 3 by platform, sampler, model and dataset.
const TABLE_3: [(&str, &str, [[Models; 2]; 2]); 2] = [
    (
        "A100 (half)",
        "unified-a100",
        [
            [[[3.27, 2.32], [5.20, 3.95], [107.38, 82.54]], [[3.11, 2.41], [4.94, 3.85], [103.03, 77.51]]],
            [[[11.38, 9.32], [41.50, 34.30], [366.39, 265.66]], [[10.59, 9.13], [40.62, 35.76], [445.80, 350.91]]],
        ],
    ),
    (
        "A5000",
        "unified-a5000",
        [
            [[[3.06, 2.43], [4.88, 4.08], [100.32, 84.03]], [[2.82, 2.37], [4.47, 3.78], [93.12, 78.33]]],
            [[[8.96, 8.29], [34.88, 32.56], [375.21, 306.80]], [[9.71, 8.92], [37.34, 34.18], [409.83, 337.07]]],
        ],
    ),
];

/// Mini-batches of a sampler of the paper: 15,10,5 neighbours; ShaDow's subgraphs by the same hops, for five layers.
fn workload(setting: &Setting, stand_in: &StandIn, seeds: usize, sampler: Sampler) -> Result<Workload> {
    let sampling = match sampler {
        Sampler::Neighbor => return setting.workload(stand_in, "15,10,5", seeds),
        Sampler::Shadow => {
            let fanouts: Fanouts = "15,10,5".parse()?;
            Sampling::Shadow(ShadowSettings { hops: fanouts.into(), layers: 5 })
        }
    };
    Workload::count(stand_in, &setting.sampled_by(stand_in, sampling, stand_in.seeds(seeds))?, seeds)
}

/// Seconds of a mini-batch: sampling, moving and training, on the device and on the CPU.
#[derive(Debug, Clone, Copy)]
struct Both {
    batches: usize,
    device: [f64; 3],
    cpu: [f64; 3],
}

impl Both {
    fn of(workload: &Workload, machine: &MachineDescription, kind: ModelKind, hits: f64) -> Self {
        let load = Load { kind, hidden: 128, value: 4.0, id: 8.0, row_hits: hits, list_hits: 0.0 };
        let phases = Phases::of(workload, machine, load);
        let cores = machine.host.cores;
        let step = workload.step(kind, 128);
        Self {
            batches: workload.batches,
            device: [phases.device_sampling, phases.gathering, phases.training],
            cpu: [phases.host_sampling / cores as f64, phases.collecting, machine.host_training(cores, step)],
        }
    }

    /// Seconds of an epoch by the device alone, one phase after the other.
    fn standard(&self) -> f64 {
        self.batches as f64 * self.device.iter().sum::<f64>()
    }

    /// The group of device and CPU, with phases that do not overlap each other within a process.
    fn problem(&self) -> GroupProblem {
        let key = |text: &str| text.parse().expect("a key");
        let trainer = |name: &str, [sampling, moving, training]: [f64; 3]| {
            let hold = || vec![name.to_string()];
            let problem = |share: f64| {
                let route = Candidate {
                    keys: RouteKeys {
                        batching: key(&format!("Batching_{name}_Sample")),
                        transferring: key(&format!("Transferring_{name}_Gather")),
                        training: key(&format!("Training_{name}_Step")),
                    },
                    hardware: Hardware { batching: hold(), transferring: hold(), training: hold() },
                    in_place: true,
                    on_host: false,
                    durations: Durations::constant(1, sampling * share, moving * share, training * share)
                        .expect("valid"),
                    bytes: Bytes::default(),
                };
                Problem::new(BATCHES, vec![Resource::exclusive(name)], vec![route]).expect("valid")
            };
            GroupTrainer { whole: problem(1.0), part: problem(0.5) }
        };
        GroupProblem {
            trainers: vec![trainer("Device", self.device), trainer("Host", self.cpu)],
            part: 0.5,
            links: Vec::new(),
            all_reduce: 0.0,
            single_routes: true,
        }
    }

    /// Seconds of an epoch by both, and the CPU's share of each mini-batch.
    fn unified(&self) -> Result<(f64, f64)> {
        let plan = group(&self.problem())?;
        let share = plan.trainers.iter().find(|t| t.trainer == 1).map_or(0.0, |t| t.share);
        Ok((plan.epoch_seconds * self.batches as f64 / BATCHES as f64, share))
    }
}

/// Mini-batches that are planned with; an epoch's seconds are proportional to their number.
const BATCHES: usize = 60;

fn table_3(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut gains) = (Vec::new(), Vec::new());
    for (platform, machine, samplers) in TABLE_3 {
        let machine = MachineDescription::named(machine)?;
        for ((sampler_name, sampler), models) in SAMPLERS.into_iter().zip(samplers) {
            for (i, (dataset, stand_in, seeds)) in DATASETS.into_iter().enumerate() {
                let workload = workload(setting, &stand_in, seeds, sampler)?;
                for ((model, kind), paper) in MODELS.into_iter().zip(models) {
                    let both = Both::of(&workload, &machine, kind, 0.0);
                    let (standard, (unified, _)) = (both.standard(), both.unified()?);
                    let name = format!("{platform}, {sampler_name}, {model}, {dataset}");
                    figures.push(Figure::new(format!("{name}: standard"), "s").paper(paper[i][0]).predicted(standard));
                    figures.push(Figure::new(format!("{name}: unified"), "s").paper(paper[i][1]).predicted(unified));
                    let gain = standard / unified;
                    figures.push(
                        Figure::new(format!("{name}: gain"), "times").paper(paper[i][0] / paper[i][1]).predicted(gain),
                    );
                    gains.push((platform, gain));
                }
            }
        }
    }
    let most = |platform: &str| gains.iter().filter(|g| g.0 == platform).map(|g| g.1).fold(0.0, f64::max);
    let mean = |platform: &str| {
        let of: Vec<f64> = gains.iter().filter(|g| g.0 == platform).map(|g| g.1).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    let [first, second] = [TABLE_3[0].0, TABLE_3[1].0];
    let least = gains.iter().map(|g| g.1).fold(f64::INFINITY, f64::min);
    let near = |ours: f64, paper: f64| (ours / paper - 1.0).abs() < 0.25;
    let verdicts = vec![
        Verdict::new(least >= 1.0, format!("at least {least:.2}")),
        Verdict::new(near(most(first), 1.41), format!("{:.2}", most(first))),
        Verdict::new(near(most(second), 1.26), format!("{:.2}", most(second))),
        Verdict::new(mean(first) >= mean(second), format!("{:.2} and {:.2} on average", mean(first), mean(second))),
    ];
    Ok(Shown::new(figures, verdicts))
}

/// Parts of sampling, moving and training in a standard epoch, in percent.
fn parts(both: &Both) -> [f64; 3] {
    let all: f64 = both.device.iter().sum();
    both.device.map(|seconds| 100.0 * seconds / all)
}

fn figure_3(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("unified-a5000")?;
    let (mut figures, mut of) = (Vec::new(), Vec::new());
    for (name, sampler) in SAMPLERS {
        let workload = workload(setting, &MAG, 1024, sampler)?;
        for (model, kind) in MODELS {
            let parts = parts(&Both::of(&workload, &machine, kind, 0.0));
            for (stage, part) in ["sampling", "moving", "training"].iter().zip(parts) {
                figures.push(Figure::new(format!("{name}, {model}: {stage}"), "%").predicted(part));
            }
            of.push((sampler, parts));
        }
    }
    let all =
        |of_sampler: Sampler, is: fn(&[f64; 3]) -> bool| of.iter().filter(|o| o.0 == of_sampler).all(|o| is(&o.1));
    let text = |of_sampler: Sampler, i: usize| {
        of.iter().filter(|o| o.0 == of_sampler).map(|o| format!("{:.0}%", o.1[i])).collect::<Vec<_>>().join(" and ")
    };
    let verdicts = vec![
        Verdict::new(all(Sampler::Neighbor, |p| p[1] > 50.0), format!("moving {}", text(Sampler::Neighbor, 1))),
        Verdict::new(all(Sampler::Shadow, |p| p[0] + p[2] > 50.0), format!("moving {}", text(Sampler::Shadow, 1))),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_6(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("unified-a5000")?;
    let (mut figures, mut less) = (Vec::new(), Vec::new());
    for (name, sampler) in SAMPLERS {
        let workload = workload(setting, &MAG, 1024, sampler)?;
        let both = Both::of(&workload, &machine, ModelKind::Gcn, 0.0);
        let (_, share) = both.unified()?;
        let epoch = |seconds: f64| seconds * workload.batches as f64;
        for (i, stage) in ["sampling", "moving", "training"].iter().enumerate() {
            let (standard, unified) = (epoch(both.device[i]), epoch(both.device[i] * (1.0 - share)));
            figures.push(Figure::new(format!("{name}: {stage} on the device, standard"), "s").predicted(standard));
            figures.push(Figure::new(format!("{name}: {stage} on the device, unified"), "s").predicted(unified));
            less.push((sampler, i, standard - unified));
        }
        figures.push(Figure::new(format!("{name}: CPU's share of each mini-batch"), "%").predicted(100.0 * share));
    }
    let largest = |of: Sampler| less.iter().filter(|l| l.0 == of).max_by(|a, b| a.2.total_cmp(&b.2)).map_or(9, |l| l.1);
    let stage = |i: usize| ["sampling", "moving", "training"].get(i).copied().unwrap_or("nothing");
    let verdicts = vec![
        Verdict::new(largest(Sampler::Neighbor) == 1, stage(largest(Sampler::Neighbor))),
        Verdict::new(largest(Sampler::Shadow) == 2, stage(largest(Sampler::Shadow))),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn table_4(setting: &Setting) -> Result<Shown> {
    // CPU and GPU in percent and GB/s of memory, standard and unified: Neighbor-SAGE, Neighbor-GCN, ShaDow-SAGE, ShaDow-GCN.
    const PAPER: [(&str, Sampler, ModelKind, [[f64; 3]; 2]); 4] = [
        ("Neighbor, GraphSAGE", Sampler::Neighbor, ModelKind::Sage, [[2.0, 25.5, 10.1], [25.1, 18.4, 21.2]]),
        ("Neighbor, GCN", Sampler::Neighbor, ModelKind::Gcn, [[1.7, 28.4, 9.0], [25.5, 24.1, 17.1]]),
        ("ShaDow, GraphSAGE", Sampler::Shadow, ModelKind::Sage, [[2.54, 37.37, 12.2], [24.8, 31.05, 36.0]]),
        ("ShaDow, GCN", Sampler::Shadow, ModelKind::Gcn, [[2.34, 35.3, 15.2], [23.9, 31.7, 38.4]]),
    ];
    let machine = MachineDescription::named("unified-a5000")?;
    let (mut figures, mut rises, mut busier) = (Vec::new(), true, true);
    for (name, sampler, kind, paper) in PAPER {
        let workload = workload(setting, &MAG, 1024, sampler)?;
        let both = Both::of(&workload, &machine, kind, 0.0);
        let ((unified, share), standard) = (both.unified()?, both.standard());
        let (epoch, features) = (workload.batches as f64, workload.feature_bytes(4.0));
        let step = workload.step(kind, 128);
        // Bytes of the host's memory: rows that the device reads; rows that the CPU collects, and what its step reads and writes.
        let read = |share: f64| epoch * ((1.0 - share) * features + share * (2.0 * features + step.bytes)) / 1e9;
        let of = |share: f64, seconds: f64| {
            let cpu = 100.0 * share * epoch * both.cpu.iter().sum::<f64>() / seconds;
            let gpu = 100.0 * (1.0 - share) * epoch * (both.device[0] + both.device[2]) / seconds;
            [cpu, gpu, read(share) / seconds]
        };
        let ours = [of(0.0, standard), of(share, unified)];
        for (protocol, (paper, ours)) in ["standard", "unified"].iter().zip(paper.iter().zip(ours)) {
            for ((what, unit), (paper, ours)) in [("CPU busy", "%"), ("GPU computing", "%"), ("host's memory", "GB/s")]
                .iter()
                .zip(paper.iter().zip(ours))
            {
                figures.push(Figure::new(format!("{name}, {protocol}: {what}"), unit).paper(*paper).predicted(ours));
            }
        }
        rises &= ours[1][0] > ours[0][0] + 10.0;
        busier &= ours[1][2] > ours[0][2];
    }
    let verdicts = vec![Verdict::new(rises, "in four cases"), Verdict::new(busier, "in four cases")];
    Ok(Shown::new(figures, verdicts))
}

/// Seconds of an epoch in which the CPU takes so large a part, by number of mini-batches or by their work, over those of perfect
/// balance: each step waits for the slower one.
fn imbalance(sizes: &[f64], share: f64, by_work: bool) -> f64 {
    // Of each ten sub-mini-batches the CPU takes as many as its share says.
    const STEP: usize = 10;
    let for_cpu = ((share * STEP as f64).round() as usize).clamp(1, STEP - 1);
    let (mut took, mut least) = (0.0, 0.0);
    for step in sizes.chunks_exact(STEP) {
        let mut step = step.to_vec();
        let whole: f64 = step.iter().sum();
        let cpu: f64 = if by_work {
            // Sorted, the run of sub-mini-batches whose work is nearest to the share.
            step.sort_by(f64::total_cmp);
            let runs = step.windows(for_cpu).map(|run| run.iter().sum::<f64>());
            runs.min_by(|a, b| (a - share * whole).abs().total_cmp(&(b - share * whole).abs())).unwrap_or(0.0)
        } else {
            step[..for_cpu].iter().sum()
        };
        took += (cpu / share).max((whole - cpu) / (1.0 - share));
        least += whole;
    }
    took / least
}

/// The standard protocol, and the unified one by the rule of its shares.
const PROTOCOLS: [(&str, Option<Shares>); 3] =
    [("standard", None), ("static shares", Some(Shares::Static)), ("dynamic shares", Some(Shares::Dynamic))];

/// Trains GCN without caches: on the device alone with phases in sequence where there are no shares, else on host and devices
/// together.
fn trained_by(config: &mut SessionConfig, shares: Option<Shares>) {
    (config.planning.model.model, config.planning.model.hidden) = (ModelKind::Gcn, Some(128));
    config.planning.cache = Some(Cache { policy: CachePolicy::None, bytes: None });
    config.training.shares = shares;
    config.training.plan = PlanChoice::Unified;
    if shares.is_none() {
        config.training.plan = PlanChoice::Strategy(Strategy::Sequential);
        config.planning.batch.batching = Some(DEVICE_KEY);
        config.planning.batch.transferring = Some(GATHER_KEY);
    }
}

fn figure_7(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("unified-a100")?;
    let (mut figures, mut of) = (Vec::new(), Vec::new());
    for (name, stand_in, seeds) in DATASETS {
        let workload = workload(setting, &stand_in, seeds, Sampler::Neighbor)?;
        let both = Both::of(&workload, &machine, ModelKind::Gcn, 0.0);
        let (standard, (unified, share)) = (both.standard(), both.unified()?);
        let edges: Vec<f64> = workload.sizes.iter().map(|s| s[1]).collect();
        // The nearest tenth, since a step is ten sub-mini-batches.
        let share = ((share * 10.0).round() / 10.0).clamp(0.1, 0.9);
        let [by_number, by_work] = [false, true].map(|by_work| imbalance(&edges, share, by_work));
        let hits = {
            let sampled = setting.sampled(&stand_in, "15,10,5", seeds)?;
            let accesses = sampled.count(std::num::NonZeroU32::MIN)?.hotness.features;
            let cached = 100.0 * (0.5 * machine.devices[0].memory_gb * 1e9 / stand_in.feature_bytes(4.0)).min(1.0);
            let order = morphgl_hotness::hottest(&accesses, usize::MAX);
            morphgl_hotness::coverage(&accesses, &order, &[sampled.rows(cached)])[0]
        };
        let cached = Both::of(&workload, &machine, ModelKind::Gcn, hits).unified()?.0;
        let steps = [standard / (unified * by_number), standard / (unified * by_work), standard / (cached * by_work)];
        for (step, gain) in ["static shares", "dynamic shares", "and a cache of rows"].iter().zip(steps) {
            figures.push(Figure::new(format!("{name}: {step}"), "times the standard").predicted(gain));
        }
        of.push(steps);
    }
    let (mut executed, mut epochs) = (Executed::default(), Vec::new());
    let sampler = ("15,10,5", PR.seeds(4096));
    for (protocol, shares) in PROTOCOLS {
        let [predicted, seconds] =
            setting.executed(&PR, sampler, "unified-a100", |config| trained_by(config, shares))?;
        executed.note(predicted, seconds);
        epochs.push(seconds);
        figures.push(Figure::new(format!("Products, trained: {protocol}"), "s").predicted(predicted).executed(seconds));
    }
    let gain = epochs[0] / epochs[2];
    let dynamic = of.iter().all(|s| s[1] >= s[0] * 0.999);
    let cached = of.iter().all(|s| s[2] >= s[1] * 0.999);
    let degrades = of[0][0] < 1.0 && of[2][0] < 1.0;
    let texts = |i: usize| of.iter().map(|s| format!("{:.2}", s[i])).collect::<Vec<_>>().join(", ");
    let verdicts = vec![
        Verdict::new(degrades, texts(0)),
        Verdict::new(dynamic, format!("{} beside {}", texts(1), texts(0))),
        Verdict::new(cached, texts(2)),
        Verdict::new(of.iter().all(|s| s[1] > 1.0), texts(1)),
        Verdict::new(gain > 1.0, format!("{gain:.2}")),
        executed.verdict(),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn table_1(_: &Setting) -> Result<Shown> {
    let machines = ["unified-a100", "unified-a5000"].map(MachineDescription::named);
    let [first, second] = machines;
    let (first, second) = (first?, second?);
    let cpu = first.host.cores as f64 * first.host.gflop_per_s;
    let figures = vec![
        Figure::new("CPU", "GFLOP/s").paper(537.0).predicted(cpu),
        Figure::new("A100 (half)", "TFLOP/s").paper(8.36).predicted(first.devices[0].tflop_per_s),
        Figure::new("A5000", "TFLOP/s").paper(27.8).predicted(second.devices[0].tflop_per_s),
        Figure::new("CPU's memory", "GB/s").paper(171.0).predicted(first.host.bandwidth_gb_per_s),
    ];
    let ratios = [first.devices[0].tflop_per_s, second.devices[0].tflop_per_s].map(|tflop| 1e3 * tflop / cpu);
    let verdicts =
        vec![Verdict::new(ratios[0] < ratios[1], format!("{:.0} and {:.0} times the CPU", ratios[0], ratios[1]))];
    Ok(Shown::new(figures, verdicts))
}

fn table_2(setting: &Setting) -> Result<Shown> {
    let mut figures = Vec::new();
    let mut off = 0.0_f64;
    for (name, stand_in, edges) in
        [("Reddit", REDDIT, 11_606_919.0), ("ogbn-products", PR, 61_859_140.0), ("MAG240M", MAG, 1_729_762_391.0)]
    {
        let graph = setting.graph(&stand_in)?;
        let degree = graph.topology.num_edges() as f64 / graph.num_nodes() as f64;
        // Products and MAG240M are stored in both directions.
        let wanted = edges * if name == "Reddit" { 1.0 } else { 2.0 } / stand_in.nodes;
        figures.push(Figure::new(format!("{name}: neighbours per node"), "").paper(wanted).here(degree));
        off = off.max((degree / wanted - 1.0).abs());
    }
    let verdicts = vec![Verdict::new(off < 0.1, format!("within {:.0}%", 100.0 * off))];
    Ok(Shown::new(figures, verdicts))
}

const GROUP: &[&str] = &["sched/plan/src/group.rs", "runner/src/unified.rs", "models/group/src/lib.rs"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "U:T1",
        title: "platforms",
        how: &[How::Derived],
        code: &["transfer/sim/machines/unified-a100.toml", "transfer/sim/machines/unified-a5000.toml"],
        statements: &[agrees("The second platform's device outperforms the CPU by more than the first one's")],
        note: "Both are described.",
        run: Some(table_1),
    },
    Row {
        id: "U:T2",
        title: "datasets",
        how: &[How::Counted],
        code: &["runner/src/reproduce/stand_in.rs"],
        statements: &[agrees("Stand-ins have the datasets' neighbours per node (within a tenth)")],
        note: "Reddit has the 11.6 million edges of this table; other papers state ten times as many.",
        run: Some(table_2),
    },
    Row {
        id: "U:T3",
        title: "epoch seconds of the standard and the unified protocol",
        how: &[How::Described, How::Counted],
        code: GROUP,
        statements: &[
            agrees("The unified protocol is at least as fast in each of 24 cells"),
            agrees("At best 1.41 times as fast on Platform 1 (within a quarter)"),
            agrees("At best 1.26 times as fast on Platform 2 (within a quarter)"),
            agrees("The gain is larger on Platform 1, whose device is slower"),
        ],
        note: "128 hidden values, 15,10,5 neighbours; ShaDow by the same hops for five layers. Shares by the planner's group; phases of a \
process follow each other.",
        run: Some(table_3),
    },
    Row {
        id: "U:T4",
        title: "use of CPU, GPU and memory bandwidth",
        how: &[How::Described, How::Counted],
        code: GROUP,
        statements: &[agrees("The CPU is used much more"), agrees("The host's memory moves more bytes per second")],
        note: "MAG240M on Platform 2. The formulas keep a resource busy at its full speed, so that shares of time are higher than \
measured ones. Neither performance counters nor NVML are read.",
        run: Some(table_4),
    },
    Row::drawing("U:1", "the standard protocol", &["runner/src/train.rs"], "One trainer."),
    Row::drawing("U:2", "the platform", &["transfer/sim/src/machine.rs"], "Machines are described."),
    Row {
        id: "U:3",
        title: "sampling, moving and training by sampler",
        how: &[How::Described, How::Counted],
        code: &["transfer/sim/src/roofline.rs", "samplers/cpu/src/shadow.rs"],
        statements: &[
            agrees("By neighbour sampling most of the time moves data"),
            agrees("By ShaDow most of the time computes, in sampling and training"),
        ],
        note: "MAG240M on Platform 2.",
        run: Some(figure_3),
    },
    Row::drawing("U:4", "the unified protocol", GROUP, "`--plan unified`."),
    Row::drawing("U:5", "overview of the system", GROUP, "`--plan unified`."),
    Row {
        id: "U:6",
        title: "epoch by stage, standard and unified",
        how: &[How::Described, How::Counted],
        code: GROUP,
        statements: &[
            agrees("By neighbour sampling the gain is mostly in moving"),
            agrees("By ShaDow the gain is mostly in training"),
        ],
        note: "MAG240M and GCN on Platform 2.",
        run: Some(figure_6),
    },
    Row {
        id: "U:7",
        title: "static shares, dynamic shares, cache of rows",
        how: &[How::Described, How::Executed, How::Counted],
        code: &["models/group/src/lib.rs", "caches/rows/src/cache.rs"],
        statements: &[
            differs(
                "Static shares are slower than the standard protocol on Reddit and MAG240M",
                "The stand-ins' mini-batches vary too little for it: communities are of one size, and a mini-batch averages over \
its seeds.",
            ),
            agrees("Dynamic shares are at least as fast as static ones"),
            agrees("A cache of rows on the device makes the epoch no longer"),
            agrees("Dynamic shares are faster than the standard protocol on each dataset"),
            agrees("So they are on Products, trained"),
            EXECUTED,
        ],
        note: "GCN by neighbour sampling on Platform 1. Ten sub-mini-batches per step, of which the CPU takes its share by number, or by \
edges; the cache has half of the device's memory and the optimum's rows. Our runs divide each mini-batch by its work instead: \
trained is the stand-in of Products for an epoch in simulated time, without caches, with phases that overlap where the plan has them. \
Reddit's mini-batches of 300 MB take minutes to verify; that of MAG240M has two seeds per mini-batch, too few to divide.",
        run: Some(figure_7),
    },
];
