//! Tables V and X of MorphGL, predicted from durations fitted to its two baselines.
//!
//! Assumptions, the same in every cell:
//! - SALIENT is a naive pipeline that waits for the host's workers: all cores but one, which runs the main thread.
//! - DUCATI batches, gathers and trains one mini-batch after the other on the device.
//! - Training takes the device equally long in both. Its share of DUCATI's time is Table VI's GPU utilisation of SALIENT, where
//!   nothing else uses the GPU, times SALIENT's time over DUCATI's: one share for each dataset, from Machine B and GraphSAGE.
//! - A transfer by DMA takes as long on every machine and with every model, as the mini-batches are the same: Table VI's PCIe
//!   utilisation of SALIENT, as a share of time, times SALIENT's time on that machine.
//! - An epoch has as many mini-batches of 1,024 seeds as the training set gives: 1,179 (PA), 407 (TW), 759 (UK).

use std::fmt::Write;

use morphgl_plan::{Policy, Strategy, plan, simulate};

use super::{DEVICE, HOST, TwoRoutes};

/// A cell: epoch seconds of the paper that it was fitted to, and predictions.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) name: String,
    /// Epoch seconds of the paper.
    pub(crate) salient: f64,
    pub(crate) ducati: f64,
    pub(crate) morphgl: f64,
    /// Epoch seconds of our simulator with the fitted durations.
    pub(crate) pipeline: f64,
    pub(crate) device: f64,
    pub(crate) paper: f64,
    pub(crate) ours: f64,
    pub(crate) bound: f64,
    /// Mini-batches of the host's and of the device's.
    pub(crate) split: [usize; 2],
}

/// Where training's share of DUCATI's time comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TrainingShare {
    /// Table VI, for each dataset.
    TableVi,
    /// The same for all.
    Of(f64),
}

struct Dataset {
    name: &'static str,
    n: usize,
    /// GraphSAGE on Machine B: SALIENT's and DUCATI's epoch, SALIENT's utilisation of PCIe and GPU.
    salient: f64,
    ducati: f64,
    pcie: f64,
    gpu: f64,
}

const DATASETS: [Dataset; 3] = [
    Dataset { name: "PA", n: 1179, salient: 53.63, ducati: 20.44, pcie: 0.261, gpu: 0.216 },
    Dataset { name: "TW", n: 407, salient: 19.34, ducati: 14.11, pcie: 0.394, gpu: 0.393 },
    Dataset { name: "UK", n: 759, salient: 33.40, ducati: 30.49, pcie: 0.343, gpu: 0.304 },
];

/// Epoch seconds of SALIENT, DUCATI and MorphGL, for each dataset.
type EpochSeconds = [[f64; 3]; 3];

/// Machine, cores, and the times of each model.
const TABLE_V: [(&str, usize, [EpochSeconds; 3]); 3] = [
    (
        "A",
        12,
        [
            [[29.45, 19.91, 16.94], [10.91, 15.42, 10.14], [18.74, 32.17, 15.42]],
            [[29.12, 22.75, 17.02], [10.89, 16.69, 10.33], [18.62, 35.59, 16.62]],
            [[29.05, 28.30, 21.49], [10.98, 17.85, 10.69], [18.40, 37.12, 16.86]],
        ],
    ),
    (
        "B",
        8,
        [
            [[54.08, 20.72, 19.92], [19.80, 14.17, 10.76], [36.14, 29.02, 23.40]],
            [[53.63, 20.44, 19.40], [19.34, 14.11, 10.14], [33.40, 30.49, 21.24]],
            [[53.50, 28.93, 28.57], [20.56, 16.06, 13.00], [33.43, 36.43, 27.92]],
        ],
    ),
    (
        "C",
        6,
        [
            [[57.51, 28.65, 24.72], [20.54, 21.90, 14.86], [38.44, 41.58, 30.83]],
            [[56.58, 38.30, 31.57], [22.27, 26.04, 19.22], [38.33, 51.47, 34.65]],
            [[62.82, 38.42, 33.97], [23.05, 24.40, 17.66], [36.94, 46.73, 30.54]],
        ],
    ),
];
const MODELS: [&str; 3] = ["GCN", "GraphSAGE", "GAT"];

/// The 27 cells of Table V.
pub(crate) fn table_v(training: TrainingShare) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (machine, cores, models) in TABLE_V {
        for (model, datasets) in MODELS.iter().zip(models) {
            for (dataset, times) in DATASETS.iter().zip(datasets) {
                let share = match training {
                    TrainingShare::TableVi => dataset.gpu * dataset.salient / dataset.ducati,
                    TrainingShare::Of(share) => share,
                };
                let name = format!("{machine}, {model}, {}", dataset.name);
                let dma = dataset.pcie * dataset.salient;
                cells.push(cell(name, dataset.n, cores - 1, times, share * times[1], dma));
            }
        }
    }
    cells
}

/// The three rows of Table X, with `dma` epoch-seconds of transfers, which the paper does not give.
///
/// Batching by the device takes 41.1 epoch-seconds and training 35.3, derived from its first row; n is that of Papers100M.
pub(crate) fn table_x(dma: f64) -> Vec<Cell> {
    let rows = [(12, 69.53, 48.03), (8, 102.51, 56.07), (6, 135.32, 61.61)];
    rows.map(|(cores, salient, morphgl)| {
        cell(format!("E, {cores}:1"), 1179, cores - 1, [salient, 41.1 + 35.3, morphgl], 35.3, dma)
    })
    .to_vec()
}

/// Fits durations to the two baselines, with these epoch-seconds of training and of transfers by DMA, and plans.
fn cell(name: String, n: usize, workers: usize, [salient, ducati, morphgl]: [f64; 3], training: f64, dma: f64) -> Cell {
    let each = |epoch: f64| epoch / n as f64;
    // Batching and gathering by the device are held by the same resources: how they share their time makes no difference.
    let half = each(ducati - training) / 2.0;
    let mut two = TwoRoutes::new(n, workers, [0.0, each(dma), half, half, each(training)]);
    // The pipeline's time grows with the host's: bisection.
    let (mut low, mut high) = (0.0, 2.0 * salient * workers as f64 / n as f64);
    for _ in 0..60 {
        two.host = (low + high) / 2.0;
        *if simulate(&two.single(Policy::Pipeline, HOST)).seconds < salient { &mut low } else { &mut high } = two.host;
    }
    let plans = plan(&two.problem()).expect("there is memory");
    let best = plans.best();
    let shares = &best.schedule.shares;
    let of = |in_place| shares.iter().filter(|s| s.in_place == in_place).map(|s| s.batches).sum();
    Cell {
        name,
        salient,
        ducati,
        morphgl,
        pipeline: simulate(&two.single(Policy::Pipeline, HOST)).seconds,
        device: simulate(&two.single(Policy::Pipeline, DEVICE)).seconds,
        paper: plans.best_of(Strategy::Paper).map_or(f64::NAN, |p| p.prediction.epoch_seconds),
        ours: best.prediction.epoch_seconds,
        bound: best.prediction.bound_seconds,
        split: [of(false), of(true)],
    }
}

/// The mean of our predicted time over MorphGL's.
pub(crate) fn mean_ratio(cells: &[Cell]) -> f64 {
    cells.iter().map(|c| c.ours / c.morphgl).sum::<f64>() / cells.len() as f64
}

/// A Markdown table.
pub(crate) fn markdown(cells: &[Cell]) -> String {
    let mut text = String::from(
        "| cell | SALIENT | simulated | DUCATI | simulated | MorphGL | its algorithm, simulated | ours | host : device | ours / bound | ours / MorphGL |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for c in cells {
        let [host, device] = c.split;
        let (bound, ratio) = (c.ours / c.bound, c.ours / c.morphgl);
        writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | **{:.2}** | {host} : {device} | {bound:.4} | {ratio:.3} |",
            c.name, c.salient, c.pipeline, c.ducati, c.device, c.morphgl, c.paper, c.ours
        )
        .expect("writing to a string does not fail");
    }
    writeln!(text, "\nMean of ours / MorphGL: {:.3}.", mean_ratio(cells)).expect("writing to a string does not fail");
    text
}
