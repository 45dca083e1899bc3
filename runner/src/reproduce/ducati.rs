//! Tables and figures of DUCATI, by the numbers of the survey.

use std::num::NonZeroU32;

use anyhow::Result;
use morphgl_dual_cache::{Kind, allocate};
use morphgl_hotness::{PolicyKind, coverage, hottest};
use morphgl_model_core::ModelKind;
use morphgl_sim::MachineDescription;

use super::row::{Figure, How, Row, Shown, Verdict, agrees, differs};
use super::setting::Setting;
use super::stand_in::{PA, StandIn, TW, UK, UU};
use super::workload::{Load, Phases, Workload};

/// Seeds per mini-batch. An assumption: the survey gives seconds per iteration without the batch size.
const SEEDS: usize = 1024;
const PRESAMPLE: PolicyKind = PolicyKind::PreSample { epochs: NonZeroU32::MIN };
/// Bytes of a device's read of one random edge.
const EDGE_READ: f64 = 32.0;

/// Neighbours, values per row, and milliseconds of DGL, SOTA and DUCATI.
type Iteration = (&'static str, usize, [f64; 3]);

/// Milliseconds of an iteration by DGL, SOTA and DUCATI: Table VIII by dataset, neighbours and values per row.
const TABLE_VIII: [(&str, StandIn, [Iteration; 4]); 4] = [
    (
        "PA",
        PA,
        [
            ("2,2,2", 128, [16.05, 13.40, 10.65]),
            ("2,2,2", 256, [18.48, 12.75, 10.13]),
            ("15,10,5", 128, [49.24, 28.39, 18.45]),
            ("15,10,5", 256, [71.79, 31.16, 21.59]),
        ],
    ),
    (
        "UK",
        UK,
        [
            ("2,2,2", 128, [18.54, 15.58, 11.62]),
            ("2,2,2", 256, [23.63, 18.79, 14.35]),
            ("15,10,5", 128, [61.41, 35.72, 27.64]),
            ("15,10,5", 256, [99.61, 61.56, 46.37]),
        ],
    ),
    (
        "TW",
        TW,
        [
            ("2,2,2", 128, [17.81, 15.63, 13.85]),
            ("2,2,2", 256, [19.86, 15.44, 13.22]),
            ("15,10,5", 128, [71.74, 33.06, 24.30]),
            ("15,10,5", 256, [119.89, 53.43, 40.03]),
        ],
    ),
    (
        "UU",
        UU,
        [
            ("2,2,2", 128, [18.47, 15.95, 11.90]),
            ("2,2,2", 256, [23.56, 19.87, 14.63]),
            ("15,10,5", 128, [62.83, 39.95, 29.21]),
            ("15,10,5", 256, [100.00, 66.95, 49.11]),
        ],
    ),
];

/// A graph's accesses with what a hit saves on DUCATI's machine, and how one budget is divided.
struct Cached {
    workload: Workload,
    machine: MachineDescription,
    /// Expected accesses by pre-sampling, and those of the next epochs.
    expected: [Vec<f32>; 2],
    accesses: [Vec<f32>; 2],
    degrees: Vec<u64>,
    dim: usize,
    fanout: f64,
}

/// Hits of rows and of lists, and the bytes of each at the paper's size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Divided {
    hits: [f64; 2],
    bytes: [f64; 2],
}

impl Cached {
    fn of(setting: &Setting, stand_in: &StandIn, fanouts: &str, dim: usize) -> Result<Self> {
        let stand_in = StandIn { dim, ..*stand_in };
        let sampled = setting.sampled(&stand_in, fanouts, SEEDS)?;
        let (counted, expected) = (sampled.count(NonZeroU32::MIN)?.hotness, sampled.score(PRESAMPLE)?);
        let topology = &sampled.dataset.topology;
        let degrees = (0..topology.num_nodes() as u32).map(|v| topology.degree(v)).collect();
        let sizes: Vec<f64> = fanouts.split(',').map(|f| f.parse().expect("a number")).collect();
        Ok(Self {
            workload: setting.workload(&stand_in, fanouts, SEEDS)?,
            machine: MachineDescription::named("ducati-2080ti")?,
            expected: [expected.features.to_vec(), expected.rows.to_vec()],
            accesses: [counted.features.to_vec(), counted.rows.to_vec()],
            degrees,
            dim,
            fanout: sizes.iter().sum::<f64>() / sizes.len() as f64,
        })
    }

    /// Bytes of a node's row, and of its list of ids of 64 bits.
    fn bytes(&self, node: u32) -> [u64; 2] {
        [4 * self.dim as u64, 8 * self.degrees[node as usize] + 8]
    }

    /// Seconds that a hit of a row and of a list saves by the formulas: what the link need not move, less sampling from the device's
    /// own memory.
    fn saved(&self, node: u32) -> [f64; 2] {
        let per_byte = 1.0 / (self.machine.links[0].gb_per_s * 1e9);
        let edges = (self.degrees[node as usize] as f64).min(self.fanout);
        let rate = self.machine.devices[0].sampling_m_edges_per_s.expect("it samples") * 1e6;
        [4.0 * self.dim as f64 * per_byte, edges * (EDGE_READ * per_byte - 1.0 / rate).max(0.0)]
    }

    /// Divides a budget in GB; `[rows, lists]` says which kinds may be cached.
    fn divide(&self, gigabytes: f64, kinds: [bool; 2]) -> Divided {
        let budget = (gigabytes * 1e9 / self.workload.stand_in.scale) as u64;
        let saving = |kind: usize| {
            move |v: u32| if kinds[kind] { self.expected[kind][v as usize] * self.saved(v)[kind] as f32 } else { 0.0 }
        };
        let (rows, lists) = (saving(0), saving(1));
        let [row_bytes, list_bytes] = [0, 1].map(|kind: usize| move |v: u32| self.bytes(v)[kind]);
        let shares = allocate(
            self.degrees.len() as u32,
            [
                Kind { saving: &rows, bytes: &row_bytes, tables: 0 },
                Kind { saving: &lists, bytes: &list_bytes, tables: 0 },
            ],
            budget,
        );
        let hits = [0, 1].map(|kind: usize| {
            let all: f64 = self.accesses[kind].iter().map(|a| f64::from(*a)).sum();
            let hit = |v: &u32| shares[kind].as_ref().is_some_and(|s| s.map.get(*v).is_some());
            let served = (0..self.degrees.len() as u32)
                .filter(hit)
                .map(|v| f64::from(self.accesses[kind][v as usize]))
                .sum::<f64>();
            served / all
        });
        let bytes = [0, 1]
            .map(|kind: usize| shares[kind].as_ref().map_or(0.0, |s| s.bytes as f64) * self.workload.stand_in.scale);
        Divided { hits, bytes }
    }

    fn with(&self, [row_hits, list_hits]: [f64; 2]) -> Phases {
        let load = Load { kind: ModelKind::Sage, hidden: 256, value: 4.0, id: 8.0, row_hits, list_hits };
        Phases::of(&self.workload, &self.machine, load)
    }

    /// Seconds of sampling and of gathering with these hits of rows and of lists.
    fn phases(&self, hits: [f64; 2]) -> [f64; 2] {
        let phases = self.with(hits);
        [phases.device_sampling, phases.gathering]
    }

    /// Seconds of an iteration with these hits.
    fn iteration(&self, hits: [f64; 2]) -> f64 {
        let [sampling, gathering] = self.phases(hits);
        sampling + gathering + self.with(hits).training
    }

    /// GB of the device beside a mini-batch and its activations.
    fn budget(&self) -> f64 {
        let activations = 2.0 * self.workload.layers.iter().map(|l| l.destinations * 256.0 * 4.0).sum::<f64>();
        (self.machine.devices[0].memory_gb - (2.0 * self.workload.bytes(4.0) + activations) / 1e9 - 1.0).max(0.0)
    }
}

fn table_viii(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut over_dgl, mut over_sota, mut by_size) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, stand_in, settings) in TABLE_VIII {
        for (fanouts, dim, paper) in settings {
            let cached = Cached::of(setting, &stand_in, fanouts, dim)?;
            let budget = cached.budget();
            let [rows, both] = [[true, false], [true, true]].map(|kinds| cached.divide(budget, kinds));
            let ours = [[0.0; 2], rows.hits, both.hits].map(|hits| 1e3 * cached.iteration(hits));
            for ((system, paper), ours) in ["DGL", "rows alone", "rows and lists"].iter().zip(paper).zip(ours) {
                figures.push(
                    Figure::new(format!("{name}, {fanouts}, {dim}: {system}"), "ms").paper(paper).predicted(ours),
                );
            }
            over_dgl.push(ours[0] / ours[2]);
            over_sota.push(ours[1] / ours[2]);
            by_size.push((fanouts, dim, ours[0] / ours[2]));
        }
    }
    let mean = |factors: &[f64]| factors.iter().sum::<f64>() / factors.len() as f64;
    let least = over_sota.iter().chain(&over_dgl).copied().fold(f64::INFINITY, f64::min);
    let of = |fanouts: &str, dim: usize| {
        let some: Vec<f64> = by_size.iter().filter(|s| s.0 == fanouts && s.1 == dim).map(|s| s.2).collect();
        mean(&some)
    };
    figures.push(Figure::new("mean over DGL", "").paper(2.07).predicted(mean(&over_dgl)));
    figures.push(Figure::new("mean over rows alone", "").paper(1.32).predicted(mean(&over_sota)));
    let verdicts = vec![
        Verdict::new(least >= 0.999, format!("at least {least:.3} times")),
        Verdict::new((mean(&over_dgl) / 2.07 - 1.0).abs() < 0.15, format!("{:.2}", mean(&over_dgl))),
        Verdict::new((mean(&over_sota) / 1.32 - 1.0).abs() < 0.15, format!("{:.2}", mean(&over_sota))),
        Verdict::new(
            of("15,10,5", 256) > of("2,2,2", 128),
            format!("{:.2} beside {:.2}", of("15,10,5", 256), of("2,2,2", 128)),
        ),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_13(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("ducati-2080ti")?;
    let (mut figures, mut shares) = (Vec::new(), Vec::new());
    for (name, stand_in) in [("PA", PA), ("TW", TW)] {
        for fanouts in ["2,2,2", "5,5,5", "15,10,5", "10,10,10"] {
            let workload = setting.workload(&StandIn { dim: 128, ..stand_in }, fanouts, 8000)?;
            let load = Load { kind: ModelKind::Sage, hidden: 256, value: 4.0, id: 8.0, row_hits: 0.0, list_hits: 0.0 };
            let phases = Phases::of(&workload, &machine, load);
            let share = 100.0 * phases.device_sampling / (phases.device_sampling + phases.gathering);
            figures.push(Figure::new(format!("{name}, {fanouts}: sampling, of both"), "%").predicted(share));
            shares.push(share);
        }
    }
    let (least, most) = shares.iter().fold((100.0_f64, 0.0_f64), |(l, m), s| (l.min(*s), m.max(*s)));
    let range = format!("{least:.0}% to {most:.0}%");
    let verdicts = vec![Verdict::new(most > 1.2 * least, range.clone()), Verdict::new(most > 50.0, range)];
    Ok(Shown::new(figures, verdicts))
}

fn figure_18(setting: &Setting) -> Result<Shown> {
    let sizes = [0.5, 1.0, 2.5, 5.0, 8.0];
    let mut figures = Vec::new();
    let sampled = setting.sampled(&PA, "15,10,5", SEEDS)?;
    let accesses = sampled.count(NonZeroU32::MIN)?.hotness.features;
    let order = hottest(&sampled.score(PRESAMPLE)?.features, usize::MAX);
    let rows: Vec<usize> = sizes.iter().map(|gb| sampled.rows(100.0 * gb * 1e9 / PA.feature_bytes(4.0))).collect();
    let hits = coverage(&accesses, &order, &rows);
    let cached = Cached::of(setting, &PA, "15,10,5", 128)?;
    let seconds = |hit: f64| 1e3 * cached.iteration([hit, 0.0]);
    for (size, hit) in sizes.iter().zip(&hits) {
        figures.push(Figure::new(format!("{size} GB: hits"), "%").here(100.0 * hit));
        figures.push(Figure::new(format!("{size} GB: iteration"), "ms").predicted(seconds(*hit)));
    }
    let (early, late) = (seconds(0.0) - seconds(hits[2]), seconds(hits[2]) - seconds(hits[4]));
    let verdicts = vec![
        Verdict::new(late < 0.25 * early, format!("{early:.1} ms by the first 2.5 GB, {late:.1} ms by the next 5.5")),
        Verdict::new(hits[2] >= 0.9, format!("{:.0}% by 2.5 GB", 100.0 * hits[2])),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_19(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut never_worse, mut shares) = (Vec::new(), true, Vec::new());
    let mut adapts = Vec::new();
    for (name, stand_in, fanouts) in [("PA", PA, "15,10,5"), ("TW", TW, "15,10,5")] {
        for dim in [16, 256] {
            let cached = Cached::of(setting, &stand_in, fanouts, dim)?;
            for hits in [0.0, 0.25, 0.5, 0.75, 1.0] {
                let [sampling, gathering] = cached.phases([hits, hits]).map(|seconds| 1e3 * seconds);
                let of = format!("{name}, {dim} values, {:.0}% hits", 100.0 * hits);
                figures.push(Figure::new(format!("{of}: sampling"), "ms").predicted(sampling));
                figures.push(Figure::new(format!("{of}: gathering"), "ms").predicted(gathering));
            }
            for gigabytes in [1.0, 4.0] {
                let [rows, lists, both] =
                    [[true, false], [false, true], [true, true]].map(|kinds| cached.divide(gigabytes, kinds));
                let [alone, with_lists, divided] = [rows, lists, both].map(|d| cached.iteration(d.hits));
                never_worse &= divided <= alone.min(with_lists) * 1.01;
                let share = 100.0 * both.bytes[1] / both.bytes.iter().sum::<f64>();
                figures.push(
                    Figure::new(format!("{name}, {dim} values, {gigabytes} GB: lists' part"), "%").predicted(share),
                );
                figures.push(
                    Figure::new(format!("{name}, {dim} values, {gigabytes} GB: iteration"), "ms")
                        .predicted(1e3 * divided),
                );
                shares.push(share);
            }
            adapts.push(shares[shares.len() - 1]);
        }
    }
    let verdicts = vec![
        Verdict::new(never_worse, "in eight cases (within 1%)"),
        Verdict::new(
            adapts[0] > adapts[1] && adapts[2] > adapts[3],
            format!("{:.0}% and {:.0}% on PA, {:.0}% and {:.0}% on TW", adapts[0], adapts[1], adapts[2], adapts[3]),
        ),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn table_vii(_: &Setting) -> Result<Shown> {
    // Nodes, edges, GB of the adjacency matrix, GB of features of 128 values.
    const ROWS: [(&str, f64, f64, f64, f64); 4] = [
        ("PA", 111e6, 1.6e9, 12.9, 54.0),
        ("UK", 77.7e6, 3.0e9, 11.3, 38.0),
        ("TW", 41.7e6, 1.5e9, 22.7, 20.0),
        ("UU", 134e6, 5.5e9, 42.0, 65.0),
    ];
    let (mut figures, mut features, mut wrong) = (Vec::new(), 0.0_f64, Vec::new());
    for (name, nodes, edges, adjacency, stated) in ROWS {
        let gib = |bytes: f64| bytes / 1024_f64.powi(3);
        let ours = [gib(8.0 * (nodes + edges)), gib(4.0 * nodes * 128.0)];
        figures.push(Figure::new(format!("{name}: lists"), "GB").paper(adjacency).predicted(ours[0]));
        figures.push(Figure::new(format!("{name}: features of 128 values"), "GB").paper(stated).predicted(ours[1]));
        features = features.max((ours[1] / stated - 1.0).abs());
        if (ours[0] / adjacency - 1.0).abs() > 0.12 {
            wrong.push(name);
        }
    }
    let verdicts = vec![
        Verdict::new(features < 0.12, format!("within {:.0}%", 100.0 * features)),
        Verdict::new(
            wrong.is_empty(),
            if wrong.is_empty() { "all".into() } else { format!("not {}", wrong.join(", ")) },
        ),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_1(setting: &Setting) -> Result<Shown> {
    let cached = Cached::of(setting, &PA, "15,10,5", 128)?;
    let budget = cached.budget();
    let lists = |d: Divided| cached.iteration(d.hits);
    let uva = cached.iteration([0.0; 2]);
    let [single, dual] = [[true, false], [true, true]].map(|kinds| lists(cached.divide(budget, kinds)));
    let few = cached.divide(0.7, [false, true]);
    let figures = vec![
        Figure::new("UVA", "ms").predicted(1e3 * uva),
        Figure::new("UVA and a cache of rows", "ms").predicted(1e3 * single),
        Figure::new("UVA and caches of rows and lists", "ms").predicted(1e3 * dual),
        Figure::new("accesses to lists by 0.7 GB of them", "%").paper(98.0).here(100.0 * few.hits[1]),
    ];
    let verdicts = vec![
        Verdict::new(
            dual < single && single < uva,
            format!("{:.1}, {:.1} and {:.1} ms", 1e3 * uva, 1e3 * single, 1e3 * dual),
        ),
        Verdict::new(few.hits[1] >= 0.9, format!("{:.0}%", 100.0 * few.hits[1])),
    ];
    Ok(Shown::new(figures, verdicts))
}

const DUAL: &[&str] = &["caches/dual/src/allocate.rs", "caches/dual/src/slopes.rs"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "D:1",
        title: "UVA, one cache, two caches",
        how: &[How::Described, How::Counted],
        code: DUAL,
        statements: &[
            agrees("Two caches are faster than one, and one is faster than none"),
            agrees("0.7 GB of lists serve 98% of the accesses to lists of Papers100M (here 90% or more)"),
        ],
        note: "Stand-in of Papers100M on `ducati-2080ti`, 1,024 seeds, 15,10,5 neighbours.",
        run: Some(figure_1),
    },
    Row {
        id: "D:13",
        title: "sampling beside gathering, by dataset and neighbours",
        how: &[How::Described],
        code: &["transfer/sim/src/roofline.rs"],
        statements: &[
            agrees("The part of sampling varies with dataset and neighbours"),
            differs(
                "Sampling can take longer than gathering",
                "The formulas know one read of 32 bytes per edge; a sampler's kernels, hash tables and synchronisation, which make it \
slower where mini-batches are small, they leave out.",
            ),
        ],
        note: "8,000 seeds, 128 values per row as in the paper; the fanouts of its bars are not in the survey's text.",
        run: Some(figure_13),
    },
    Row::drawing(
        "D:17",
        "overview of DUCATI",
        DUAL,
        "The sampler measures what a hit saves, and the planner divides the budget.",
    ),
    Row {
        id: "D:18",
        title: "gain by a cache of rows, by its size",
        how: &[How::Described, How::Counted],
        code: &["caches/hotness/src/order.rs"],
        statements: &[
            agrees("Beyond 2.5 GB a cache of rows gains little: less than a quarter of what the first 2.5 GB do"),
            agrees("2 GB of rows have 95% of the accesses to Papers100M (here 90% by 2.5 GB)"),
        ],
        note: "Stand-in of Papers100M, 15,10,5 neighbours.",
        run: Some(figure_18),
    },
    Row {
        id: "D:19",
        title: "seconds by hits, and the division that follows",
        how: &[How::Described, How::Counted],
        code: DUAL,
        statements: &[
            agrees("The division is never slower than rows alone or lists alone"),
            agrees("The shorter rows are, the larger the part of the lists"),
        ],
        note: "Slopes are those of the formulas, seconds that the link need not work; on devices the operators measure them. No \
GPU was there to draw the lines of the figure.",
        run: Some(figure_19),
    },
    Row {
        id: "D:VII",
        title: "datasets",
        how: &[How::Derived],
        code: &["runner/src/reproduce/stand_in.rs"],
        statements: &[
            agrees("Features take the stated GB (within 12%)"),
            differs(
                "Adjacency lists of 64-bit ids take the stated GB (within 12%)",
                "The table's sizes of UK and TW fit if they are exchanged: 3.0 billion edges take 22.9 GB, 1.5 billion 11.5 GB.",
            ),
        ],
        note: "Bytes by nodes, edges and values.",
        run: Some(table_vii),
    },
    Row {
        id: "D:VIII",
        title: "milliseconds of an iteration by DGL, one cache and two",
        how: &[How::Described, How::Counted],
        code: DUAL,
        statements: &[
            agrees("Two caches are at least as fast as one and as none in every setting"),
            differs(
                "2.07 times as fast as DGL on average (within 15%)",
                "By 2,2,2 neighbours a mini-batch of the formulas moves little, and its launches bound it.",
            ),
            differs(
                "1.32 times as fast as one cache on average (within 15%)",
                "Sampling is a small part of an iteration in the formulas (D:13), and so is what a cache of lists can save.",
            ),
            agrees("The larger neighbours and rows, the more is gained over DGL"),
        ],
        note: "1,024 seeds and GraphSAGE of 256 hidden values are assumptions; the budget is what mini-batch and activations leave of \
11 GB, less 1 GB.",
        run: Some(table_viii),
    },
];
