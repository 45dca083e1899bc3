//! NeutronOrch's ablation (section 5.4, Fig. 13): layer split, hot reuse and super-batch pipeline, with durations fitted to its
//! tables.
//!
//! Read off the paper, for each of its six graphs:
//! - Baseline, one step after the other: sampling on the GPU, gathering by CPU and PCIe, training. Table 2 gives the seconds of
//!   sampling, feature collection, feature transfer and the total (training is the rest) of DGL, which samples on the CPU; the GPU
//!   samples faster by Table 3's 2.28 : 0.78, which is of Reddit alone.
//! - The bottom layer is 65% of the vertices (section 5.7, of Wikipedia), so that part of sampling and of training, whose forward
//!   pass is taken for half of it. Of the feature transfer, embeddings and aggregates take (feature + hidden) / (3 · feature)
//!   (Table 4, and Fig. 7's 86,175 : 28,706 vertices).
//!
//! Fitted, one number each for all graphs:
//! - seconds of the bottom layer on the CPU, as a multiple of feature collection: to the 1.52 of the layer split (L);
//! - share of the bottom layer's vertices that are hot: to the 1.96 of hot reuse (H).
//!
//! Left over: how much of the CPU's bottom layer remains when each hot vertex is computed once per super-batch. No table says, and
//! it moves the third step most, so the table below has it at 0, 0.02, 0.05 and 0.1. The 1.65 of the super-batch pipeline (S) is
//! predicted by the planner, not fitted. That every step was serial before it is our reading of section 5.4: hiding given rows
//! alone could not gain as much.
#![allow(clippy::print_stdout, reason = "the table is worth reading")]

mod common;

use common::hardware;
use morphgl_plan::{
    Bytes, Candidate, Curve, Durations, Point, Problem, Resource, RouteKeys, Seconds, SplitPoint, SplitProblem,
    Strategy, layer_split, plan,
};

/// Mini-batches of an epoch. Ratios hardly depend on it.
const N: usize = 400;
/// Mini-batches of a super-batch, as in the paper's Fig. 9.
const SUPER_BATCH: usize = 4;
/// The GPU's seconds of sampling over the CPU's: Table 3.
const GPU_SAMPLING: f64 = 0.78 / 2.28;
/// The bottom layer's share of all vertices: section 5.7.
const BOTTOM: f64 = 0.65;

/// Table 2: seconds of an epoch; Table 4: feature and hidden dimension.
struct Graph {
    sample: f64,
    collect: f64,
    transfer: f64,
    total: f64,
    dims: [f64; 2],
}

const GRAPHS: [Graph; 6] = [
    Graph { sample: 2.7, collect: 9.1, transfer: 6.0, total: 23.7, dims: [602.0, 256.0] },
    Graph { sample: 128.8, collect: 384.4, transfer: 252.5, total: 935.3, dims: [400.0, 256.0] },
    Graph { sample: 78.8, collect: 384.3, transfer: 249.1, total: 813.3, dims: [600.0, 160.0] },
    Graph { sample: 209.4, collect: 651.8, transfer: 570.9, total: 1669.1, dims: [600.0, 128.0] },
    Graph { sample: 9.9, collect: 7.2, transfer: 4.1, total: 26.8, dims: [100.0, 64.0] },
    Graph { sample: 11.5, collect: 8.6, transfer: 6.4, total: 36.84, dims: [128.0, 64.0] },
];

/// What is fitted, and what is left over.
#[derive(Debug, Clone, Copy)]
struct Fit {
    /// Seconds of the bottom layer on the CPU over those of feature collection.
    cpu: f64,
    /// Share of the bottom layer's vertices that are hot.
    hot: f64,
    /// Share of the CPU's bottom layer that is left when hot vertices are computed once per super-batch.
    once: f64,
}

/// Seconds of an epoch: sampling, gathering, training, and given rows.
#[derive(Debug, Clone, Copy)]
struct Load {
    phases: [f64; 3],
    rows: f64,
}

impl Graph {
    fn baseline(&self) -> Load {
        let Self { sample, collect, transfer, total, .. } = *self;
        let training = total - sample - collect - transfer;
        Load { phases: [GPU_SAMPLING * sample, collect + transfer, training], rows: 0.0 }
    }

    /// The whole bottom layer on the CPU for each mini-batch; its backward pass stays on the GPU.
    fn layer_split(&self, fit: Fit) -> Load {
        let Load { phases: [sampling, _, training], .. } = self.baseline();
        let [feature, hidden] = self.dims;
        let transfer = self.transfer * (feature + hidden) / (3.0 * feature);
        let phases = [(1.0 - BOTTOM) * sampling, fit.cpu * self.collect + transfer, (1.0 - 0.5 * BOTTOM) * training];
        Load { phases, rows: 0.0 }
    }

    /// Hot vertices once per super-batch on the CPU; the others, and their features, as in the baseline.
    fn hot_reuse(&self, fit: Fit) -> Load {
        let Load { phases: [sampling, gathering, training], .. } = self.baseline();
        let [feature, hidden] = self.dims;
        let cold = 1.0 - BOTTOM * fit.hot;
        let embeddings = fit.once * self.transfer * hidden / (3.0 * feature);
        let phases = [cold * sampling, (1.0 - fit.hot) * gathering + embeddings, cold * training];
        Load { phases, rows: fit.once * fit.cpu * self.collect }
    }
}

impl Load {
    /// Seconds of an epoch without any overlap, given rows included: the sequential plan.
    fn serial(self) -> f64 {
        let plans = plan(&self.problem()).expect("there is memory");
        plans.best_of(Strategy::Sequential).expect("a baseline").prediction.epoch_seconds + self.rows
    }

    /// A GPU that samples and trains, and gathering by the bus, which copies and computes meanwhile.
    fn problem(self) -> Problem {
        let [sampling, gathering, training] = self.phases.map(|s| s / N as f64);
        let route = Candidate {
            keys: RouteKeys {
                batching: "Batching_CUDA_Neighbor".parse().expect("a key"),
                transferring: "Transferring_PCIe_Gather".parse().expect("a key"),
                training: "Training_CUDA_Step".parse().expect("a key"),
            },
            hardware: hardware(&["CUDA"], &["PCIe"], &["CUDA"]),
            in_place: true,
            on_host: false,
            durations: Durations::constant(1, sampling, gathering, training).expect("seconds are valid"),
            bytes: Bytes::default(),
        };
        let resources = vec![Resource::shared("CPU", 48), Resource::exclusive("PCIe"), Resource::exclusive("CUDA")];
        Problem::new(N, resources, vec![route]).expect("the problem is valid")
    }
}

/// The mean over the graphs of one load's seconds over another's.
fn speed_up(before: impl Fn(&Graph) -> f64, after: impl Fn(&Graph) -> f64) -> f64 {
    GRAPHS.iter().map(|g| before(g) / after(g)).sum::<f64>() / GRAPHS.len() as f64
}

/// The `x` between the two at which a falling or rising function is `wanted`.
#[track_caller]
fn solve(mut low: f64, mut high: f64, wanted: f64, f: impl Fn(f64) -> f64) -> f64 {
    let rises = f(high) > f(low);
    assert!((f(low) - wanted) * (f(high) - wanted) < 0.0, "{wanted} is not between {} and {}", f(low), f(high));
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if (f(middle) < wanted) == rises { low = middle } else { high = middle }
    }
    low
}

/// Seconds by the planner: given rows while the super-batch before trains, other phases overlapped.
fn pipelined(graph: &Graph, fit: Fit) -> f64 {
    let hot = graph.hot_reuse(fit);
    let rows = hot.rows * SUPER_BATCH as f64 / N as f64;
    // All cores but the one that collects features.
    let embedding = Curve::new(vec![Point { at: 47, seconds: Seconds::constant(rows) }]).expect("seconds are valid");
    let point = SplitPoint { super_batch: SUPER_BATCH, ratio: 0.2, problem: hot.problem(), embedding };
    let problem = SplitProblem::new(graph.baseline().problem(), vec![point], 2 * SUPER_BATCH - 1).expect("valid");
    let choice = layer_split(&problem).expect("there is memory");
    assert!(choice.chosen().is_some_and(|split| split.late_seconds <= 1e-9), "rows are late: {choice:?}");
    choice.epoch_seconds()
}

#[test]
fn the_ablation_of_neutronorch() {
    let mut thirds = Vec::new();
    println!(
        "| rows left | CPU layer / collection | hot share | L | H | S | S by rows alone | all | GPU training saved |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for once in [0.0, 0.02, 0.05, 0.1] {
        let fit = Fit { cpu: 1.0, hot: 0.0, once };
        let baseline = |g: &Graph| g.baseline().serial();
        let split = |fit: Fit| move |g: &Graph| g.layer_split(fit).serial();
        let reuse = |fit: Fit| move |g: &Graph| g.hot_reuse(fit).serial();
        let cpu = solve(0.1, 2.0, 1.52, |cpu| speed_up(baseline, split(Fit { cpu, ..fit })));
        let fit = Fit { cpu, ..fit };
        let hot = solve(0.1, 0.99, 1.96, |hot| speed_up(split(fit), reuse(Fit { hot, ..fit })));
        let fit = Fit { hot, ..fit };
        let [l, h] = [speed_up(baseline, split(fit)), speed_up(split(fit), reuse(fit))];
        let s = speed_up(reuse(fit), |g| pipelined(g, fit));
        let all = speed_up(baseline, |g| pipelined(g, fit));
        let alone = speed_up(reuse(fit), |g| reuse(fit)(g) - g.hot_reuse(fit).rows);
        let saved = 100.0 * BOTTOM * hot;
        println!("| {once} | {cpu:.2} | {hot:.2} | {l:.2} | {h:.2} | {s:.2} | {alone:.2} | {all:.2} | {saved:.1}% |");
        assert!(alone < 1.2, "given rows alone are {alone}");
        // The hot share that Fig. 15's 36.5% less training on the GPU implies is too low for the paper's H.
        let lower = speed_up(split(fit), reuse(Fit { hot: 0.365 / BOTTOM, ..fit }));
        assert!((1.15..1.33).contains(&lower), "H is {lower}");
        assert!((l - 1.52).abs() < 0.005 && (h - 1.96).abs() < 0.005, "{l} and {h} are fitted");
        thirds.push(s);
    }
    assert!(thirds.is_sorted(), "more work to hide is more to gain: {thirds:?}");
    // The planner's third step encloses the paper's within the open range.
    assert!(thirds[0] < 1.65 && thirds[3] > 1.65 && thirds[3] < 1.85, "{thirds:?}");
}
