//! Tables and figures of Data Tiering.

use std::num::NonZeroU32;

use anyhow::Result;
use morphgl_hotness::{PolicyKind, coverage, hottest};
use morphgl_model_core::ModelKind;
use morphgl_report::{LineChart, Scale, Series};
use morphgl_sim::MachineDescription;
use morphgl_tiering::{TierBudgets, Tiers, WarpAccess, WarpPattern};

use super::row::{Figure, How, Row, Shown, Verdict, agrees, differs};
use super::setting::Setting;
use super::stand_in::{MAG, PA, StandIn, WIKIKG};
use super::workload::{Load, Phases};

const POLICIES: [(&str, PolicyKind); 3] = [
    ("degree", PolicyKind::OutDegree),
    ("reverse PageRank", PolicyKind::ReversePageRank),
    ("weighted reverse PageRank", PolicyKind::WeightedReversePageRank),
];
const WEIGHTED: PolicyKind = PolicyKind::WeightedReversePageRank;
/// Seeds per mini-batch, which the paper does not state.
const SEEDS: usize = 1024;

/// A dataset with the paper's fanouts and share of rows on the device.
const DATASETS: [(&str, StandIn, &str, f64); 3] =
    [("papers100M", PA, "12,12,12", 10.0), ("MAG240M", MAG, "25,15", 5.0), ("WikiKG90M", WIKIKG, "12,12,12", 10.0)];

/// Shares of the accesses that the hottest rows of these percentages serve, by each policy.
fn served(
    setting: &Setting,
    stand_in: &StandIn,
    fanouts: &str,
    kinds: &[PolicyKind],
    percents: &[f64],
) -> Result<Vec<Vec<f64>>> {
    let sampled = setting.sampled(stand_in, fanouts, SEEDS)?;
    let accesses = sampled.count(NonZeroU32::MIN)?.hotness.features;
    let rows: Vec<usize> = percents.iter().map(|percent| sampled.rows(*percent)).collect();
    let of = |kind: &PolicyKind| -> Result<Vec<f64>> {
        Ok(coverage(&accesses, &hottest(&sampled.score(*kind)?.features, usize::MAX), &rows))
    };
    kinds.iter().map(of).collect()
}

fn figure_7(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut at_ten, mut at_quarter, mut best) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut concentrated = Vec::new();
    let mut charts = Vec::new();
    let percents = [1.0, 5.0, 10.0, 25.0, 50.0];
    for (name, stand_in, fanouts, _) in DATASETS {
        let served = served(setting, &stand_in, fanouts, &POLICIES.map(|p| p.1), &percents)?;
        let graph = setting.graph(&stand_in)?;
        let mut degrees: Vec<u64> = (0..graph.num_nodes() as u32).map(|v| graph.topology.degree(v)).collect();
        degrees.sort_unstable_by(|a, b| b.cmp(a));
        let edges: u64 = degrees[..degrees.len() / 100].iter().sum();
        let share = 100.0 * edges as f64 / graph.topology.num_edges() as f64;
        let paper = [32.0, 46.0, 80.0][concentrated.len()];
        figures.push(Figure::new(format!("{name}: edges of 1% of the nodes"), "%").paper(paper).here(share));
        concentrated.push((share, paper));
        let mut series = Vec::new();
        for ((policy, _), served) in POLICIES.iter().zip(&served) {
            for (percent, share) in percents.iter().zip(served) {
                figures.push(
                    Figure::new(format!("{name}: {policy}, {percent}% of the rows"), "% of accesses")
                        .here(100.0 * share),
                );
            }
            let points = percents.iter().copied().zip(served.iter().copied()).collect();
            series.push(Series { name: policy.to_string(), style: String::new(), points });
            at_ten.push(served[2]);
            at_quarter.push(served[3]);
        }
        best.push((name, served[2][2] >= served[0][2] - 0.005 && served[2][2] >= served[1][2] - 0.005));
        charts.push(LineChart {
            title: format!("{name}: accesses by the hottest rows"),
            x_name: "percent of the rows".into(),
            scale: Scale::Percent,
            from_zero: true,
            series,
            events: Vec::new(),
        });
    }
    let least = |shares: &[f64]| 100.0 * shares.iter().copied().fold(f64::INFINITY, f64::min);
    let wiki = 100.0 * at_ten[6..].iter().copied().fold(f64::INFINITY, f64::min);
    let lost: Vec<&str> = best.iter().filter(|(_, best)| !best).map(|(name, _)| *name).collect();
    let mut shown = Shown::new(
        figures,
        vec![
            Verdict::new(least(&at_ten) >= 35.0, format!("at least {:.0}%", least(&at_ten))),
            Verdict::new(least(&at_quarter) >= 56.0, format!("at least {:.0}%", least(&at_quarter))),
            Verdict::new(
                concentrated.iter().all(|(share, paper)| (share / paper - 1.0).abs() < 0.15),
                concentrated.iter().map(|c| format!("{:.0}%", c.0)).collect::<Vec<_>>().join(", "),
            ),
            Verdict::new(wiki >= 60.0, format!("at least {wiki:.0}% by 10% of the rows")),
            Verdict::new(
                lost.is_empty(),
                if lost.is_empty() { "on three datasets".into() } else { format!("not on {}", lost.join(", ")) },
            ),
        ],
    );
    shown.charts = charts;
    Ok(shown)
}

/// Epoch seconds of a described machine by CPU gathering, by zero copy, and with the hottest rows on the device; the link's bytes
/// of the last two.
fn epochs(setting: &Setting, stand_in: &StandIn, fanouts: &str, hit: f64) -> Result<([f64; 3], [f64; 2])> {
    let machine = MachineDescription::named("tiering-v100")?;
    let workload = setting.workload(stand_in, fanouts, SEEDS)?;
    let of = |row_hits| {
        let load =
            Load { kind: ModelKind::Sage, hidden: 256, value: value(stand_in), id: 8.0, row_hits, list_hits: 0.0 };
        Phases::of(&workload, &machine, load)
    };
    let (none, hot) = (of(0.0), of(hit));
    // Sampling by the cores goes on meanwhile; gathering and training follow each other on the device.
    let sampling = none.host_sampling / machine.host.cores as f64;
    let epoch = |gathering: f64| workload.batches as f64 * (gathering + none.training).max(sampling);
    let seconds = [epoch(none.collecting + none.copying), epoch(none.gathering), epoch(hot.gathering)];
    let bytes = workload.batches as f64 * workload.feature_bytes(value(stand_in));
    Ok((seconds, [bytes, (1.0 - hit) * bytes]))
}

/// Bytes of a value: MAG240M has 16 bits.
fn value(stand_in: &StandIn) -> f64 {
    if stand_in.dim == 768 { 2.0 } else { 4.0 }
}

fn figure_8(setting: &Setting) -> Result<Shown> {
    let (mut figures, mut by_copy, mut by_tiers, mut cuts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (name, stand_in, fanouts, percent) in DATASETS {
        let hit = served(setting, &stand_in, fanouts, &[WEIGHTED], &[percent])?[0][0];
        let (seconds, bytes) = epochs(setting, &stand_in, fanouts, hit)?;
        for (how, seconds) in ["CPU gathering", "zero copy", "tiered"].iter().zip(seconds) {
            figures.push(Figure::new(format!("{name}: {how}"), "s").predicted(seconds));
        }
        for (how, bytes) in ["zero copy", "tiered"].iter().zip(bytes) {
            figures.push(Figure::new(format!("{name}: {how}, over the link"), "GB").here(bytes / 1e9));
        }
        by_copy.push(seconds[0] / seconds[1]);
        by_tiers.push(seconds[1] / seconds[2]);
        cuts.push(100.0 * hit);
    }
    let text = |factors: &[f64]| factors.iter().map(|f| format!("{f:.1}")).collect::<Vec<_>>().join(", ");
    let within = |factors: &[f64], from: f64, to: f64| factors.iter().all(|f| (from..=to).contains(f));
    let verdicts = vec![
        Verdict::new(by_copy.iter().all(|f| *f > 1.0), format!("{} times as fast", text(&by_copy))),
        Verdict::new(within(&by_copy, 2.5, 4.6), text(&by_copy)),
        Verdict::new(by_tiers.iter().all(|f| *f > 1.0), format!("{} times as fast", text(&by_tiers))),
        Verdict::new(within(&by_tiers, 1.6, 2.1), text(&by_tiers)),
        Verdict::new(within(&cuts, 87.0, 95.0), format!("{}%", text(&cuts))),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_9(setting: &Setting) -> Result<Shown> {
    const DEPTHS: [&str; 4] = ["10,10", "10,10,10", "10,10,10,10", "10,10,10,10,10"];
    let (mut figures, mut of) = (Vec::new(), Vec::new());
    for fanouts in DEPTHS {
        let served = served(setting, &PA, fanouts, &[PolicyKind::OutDegree, WEIGHTED], &[10.0])?;
        let [degree, weighted] = [served[0][0], served[1][0]].map(|share| 100.0 * share);
        let deepest = fanouts == DEPTHS[3];
        let figure = Figure::new(format!("{fanouts}: degree"), "% of accesses").here(degree);
        figures.push(if deepest { figure.paper(28.0) } else { figure });
        let figure = Figure::new(format!("{fanouts}: weighted reverse PageRank"), "% of accesses").here(weighted);
        figures.push(if deepest { figure.paper(52.0) } else { figure });
        of.push([degree, weighted]);
    }
    let falls = of.windows(2).all(|pair| pair[1][1] <= pair[0][1] + 0.5);
    let [degree, weighted] = of[3];
    let verdicts = vec![
        Verdict::new(falls, of.iter().map(|o| format!("{:.0}%", o[1])).collect::<Vec<_>>().join(", ")),
        Verdict::new(weighted > 1.5 * degree, format!("{weighted:.0}% beside {degree:.0}%")),
        Verdict::new(weighted > 3.0 * 10.0, format!("{weighted:.0}% by a tenth of the rows")),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_10(setting: &Setting) -> Result<Shown> {
    let percents = [0.0, 1.0, 5.0, 10.0, 25.0];
    let mut by_policy = served(setting, &PA, "12,12,12", &POLICIES.map(|p| p.1), &percents)?;
    let served = by_policy.pop().expect("weighted reverse PageRank is the last one");
    let (mut figures, mut seconds) = (Vec::new(), Vec::new());
    for (percent, hit) in percents.iter().zip(&served) {
        let (epochs, bytes) = epochs(setting, &PA, "12,12,12", *hit)?;
        let cut = Figure::new(format!("{percent}% on the device: less over the link"), "%").here(100.0 * hit);
        figures.push(if *percent == 25.0 { cut.paper(97.0) } else { cut });
        figures.push(Figure::new(format!("{percent}% on the device: over the link"), "GB").here(bytes[1] / 1e9));
        figures.push(Figure::new(format!("{percent}% on the device: epoch"), "s").predicted(epochs[2]));
        seconds.push(epochs[2]);
    }
    for ((policy, _), hits) in POLICIES.iter().zip(&by_policy) {
        for (percent, hit) in percents.iter().zip(hits) {
            let (_, bytes) = epochs(setting, &PA, "12,12,12", *hit)?;
            figures.push(
                Figure::new(format!("{percent}% on the device by {policy}: over the link"), "GB").here(bytes[1] / 1e9),
            );
        }
    }
    let less = |i: usize| 100.0 * (1.0 - seconds[i] / seconds[0]);
    figures.push(Figure::new("5% on the device: less time", "%").paper(33.0).predicted(less(2)));
    figures.push(Figure::new("25% on the device: less time", "%").paper(42.0).predicted(less(4)));
    let verdicts = vec![
        Verdict::new(
            served.is_sorted() && served[2] > 2.0 * (served[4] - served[2]),
            format!("{:.0}% by 5%, {:.0}% by 25%", 100.0 * served[2], 100.0 * served[4]),
        ),
        Verdict::new(served[4] >= 0.93, format!("{:.0}%", 100.0 * served[4])),
        Verdict::new(
            (less(2) - 33.0).abs() <= 10.0 && (less(4) - 42.0).abs() <= 10.0,
            format!("{:.0}% and {:.0}%", less(2), less(4)),
        ),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_11(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("tiering-v100")?;
    let workload = setting.workload(&MAG, "25,15", SEEDS)?;
    let percents = [0.0, 5.0, 10.0, 20.0, 30.0];
    let served = served(setting, &MAG, "25,15", &[WEIGHTED], &percents)?.remove(0);
    let devices = machine.devices.len() as f64;
    let (mut figures, mut by_host, mut by_device) = (Vec::new(), Vec::new(), Vec::new());
    let peers = machine.peer_gb_per_s.expect("NVLink is described") * 1e9;
    let shared = machine.in_use_by_all();
    for (percent, hit) in percents.iter().zip(&served) {
        let load = Load { kind: ModelKind::Sage, hidden: 256, value: 2.0, id: 8.0, row_hits: *hit, list_hits: 1.0 };
        let phases = Phases::of(&workload, &shared, load);
        // Of n devices that hold the rows one by one, a device reads n - 1 of n from its peers.
        let rows = workload.feature_bytes(2.0);
        let peer_bytes = hit * rows * (devices - 1.0) / devices;
        let of_peers = peer_bytes / peers;
        let all = workload.batches as f64 / 1e9;
        for (tier, bytes) in
            [("own memory", hit * rows / devices), ("peers", peer_bytes), ("the host", (1.0 - hit) * rows)]
        {
            figures.push(Figure::new(format!("{percent}% on the devices: read from {tier}"), "GB").here(all * bytes));
        }
        let step = phases.gathering + of_peers + phases.training;
        let host = phases.host_sampling / machine.host.cores as f64;
        let epoch = |per_batch: f64| workload.batches as f64 * per_batch;
        by_host.push(epoch((step / devices).max(host)));
        by_device.push(epoch((step + phases.device_sampling) / devices));
        figures.push(
            Figure::new(format!("{percent}% on the devices: sampling by the host"), "s")
                .predicted(by_host[by_host.len() - 1]),
        );
        figures.push(
            Figure::new(format!("{percent}% on the devices: sampling by devices"), "s")
                .predicted(by_device[by_device.len() - 1]),
        );
    }
    let last = percents.len() - 1;
    let flat = by_host[1] / by_host[last];
    let verdicts = vec![
        Verdict::new(
            by_host[0] > 1.2 * by_host[1] && flat < 1.2,
            format!("{:.1} s, {:.1} s, {:.1} s", by_host[0], by_host[1], by_host[last]),
        ),
        Verdict::new(
            by_device[last] < by_host[last],
            format!("{:.1} s beside {:.1} s", by_device[last], by_host[last]),
        ),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_6(_: &Setting) -> Result<Shown> {
    // 350 GB of rows of 1,536 bytes, on four devices of 32 GB of which 30 are for rows.
    let (rows, row_bytes) = (244_200_000, 1536);
    let budgets = [30_000_000_000; 4];
    let tiers = Tiers::fit(rows, row_bytes, &TierBudgets { devices: &budgets, replicated: 0, host: 400_000_000_000 });
    let division = tiers.division();
    let mut of_device = [0_u64; 4];
    for row in 0..100_000 {
        of_device[tiers.locate(row, 0).device.expect("the hottest rows are on devices") as usize] += 1;
    }
    let figures = vec![
        Figure::new("rows on devices", "%").predicted(100.0 * f64::from(division.interleaved) / f64::from(rows)),
        Figure::new("rows in the host's memory", "%").predicted(100.0 * f64::from(division.host) / f64::from(rows)),
        Figure::new("hottest 100,000 rows on device 0", "").predicted(of_device[0] as f64),
    ];
    let verdicts = vec![
        Verdict::new(of_device.iter().all(|n| *n == 25_000), "a quarter on each device"),
        Verdict::new(division.interleaved > 70_000_000, format!("{} of {rows} rows", division.interleaved)),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_4(_: &Setting) -> Result<Shown> {
    let mut figures = Vec::new();
    let mut shares = Vec::new();
    for row in [512_u64, 1536, 1436, 4096] {
        let (requests, sectors) = WarpPattern::of_values(WarpAccess::Naive).mean(row);
        let share = row as f64 / (32.0 * sectors);
        figures.push(Figure::new(format!("{row} bytes: requests per row"), "").predicted(requests));
        figures.push(Figure::new(format!("{row} bytes: of the bytes read"), "%").predicted(100.0 * share));
        shares.push(share);
    }
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let verdicts =
        vec![Verdict::new(least > 0.8, format!("at least {:.0}% of the bytes read are rows", 100.0 * least))];
    Ok(Shown::new(figures, verdicts))
}

fn figure_2(_: &Setting) -> Result<Shown> {
    // One iteration of reverse PageRank, undamped: node A targets three nodes of score 1 with in-degrees 2, 1 and 4.
    let targets = [2.0, 1.0, 4.0];
    let score: f64 = targets.iter().map(|degree| 1.0 / degree).sum();
    let fewer: f64 = targets[..2].iter().map(|degree| 1.0 / degree).sum();
    let figures = vec![Figure::new("score of a node that targets three", "").predicted(score)];
    let verdicts = vec![Verdict::new(score > fewer, format!("{score:.2} beside {fewer:.2} with two"))];
    Ok(Shown::new(figures, verdicts))
}

fn table_1(_: &Setting) -> Result<Shown> {
    let (mut figures, mut off) = (Vec::new(), Vec::new());
    for (name, stand_in, paper) in [("papers100M", PA, 53.0), ("MAG240M", MAG, 350.0), ("WikiKG90M", WIKIKG, 125.0)] {
        let bytes = stand_in.feature_bytes(value(&stand_in));
        let unit = if name == "papers100M" { 1024_f64.powi(3) } else { 1e9 };
        figures.push(Figure::new(format!("{name}: features"), "GB").paper(paper).predicted(bytes / unit));
        off.push((bytes / unit / paper - 1.0).abs());
    }
    let most = off.iter().copied().fold(0.0, f64::max);
    let verdicts = vec![Verdict::new(most < 0.1, format!("within {:.0}%", 100.0 * most))];
    Ok(Shown::new(figures, verdicts))
}

const HOTNESS: &[&str] = &["caches/hotness/src/page_rank.rs", "caches/hotness/src/order.rs"];
pub(super) const ROWS: &[Row] = &[
    Row {
        id: "T:T1",
        title: "datasets",
        how: &[How::Derived],
        code: &["runner/src/reproduce/stand_in.rs"],
        statements: &[agrees("Features take the stated GB (within a tenth)")],
        note: "Values per row: 128, 768 of 16 bits, and 359, the number that gives WikiKG90M's size, which the table does not state.",
        run: Some(table_1),
    },
    Row::drawing("T:1", "aggregation and prediction", &["models/layers/src/lib.rs"], "Layers over blocks."),
    Row {
        id: "T:2",
        title: "PageRank and reverse PageRank",
        how: &[How::Derived],
        code: HOTNESS,
        statements: &[agrees("A node with more outgoing edges has a higher score")],
        note: "One iteration by hand; the policy is tested by itself.",
        run: Some(figure_2),
    },
    Row::drawing(
        "T:3",
        "reordering of a graph",
        &["caches/tiering/src/reorder.rs"],
        "`morphgl reorder` prints its seconds.",
    ),
    Row {
        id: "T:4",
        title: "placement of hot and cold rows, and how cold ones are read",
        how: &[How::Derived],
        code: &["caches/tiering/src/requests.rs"],
        statements: &[agrees("Rows of 512 bytes to 4 KB are read by a warp with little waste")],
        note: "By the exact model of requests; data tiering's access is the naive one.",
        run: Some(figure_4),
    },
    Row::drawing(
        "T:5",
        "four devices over NVLink",
        &["transfer/sim/machines/tiering-v100.toml"],
        "The machine is described.",
    ),
    Row {
        id: "T:6",
        title: "rows over several devices",
        how: &[How::Derived],
        code: &["caches/tiering/src/tiers.rs", "transfer/cuda-pcie/src/pool.rs"],
        statements: &[
            agrees("Interleaved, hot rows are spread evenly over the devices"),
            agrees("Four devices hold several times what one does"),
        ],
        note: "MAG240M on four devices, 30 of 32 GB for rows.",
        run: Some(figure_6),
    },
    Row {
        id: "T:7",
        title: "accesses by the hottest rows, by score function",
        how: &[How::Counted],
        code: HOTNESS,
        statements: &[
            differs(
                "A tenth of the rows serves at least 35% of the accesses, by any function, on any dataset",
                "By degree it does not on the stand-ins whose training nodes are in one community: the dataset's degrees and its \
training nodes are related more closely.",
            ),
            differs(
                "A quarter of the rows serves at least 56%, by any function, on any dataset",
                "As above: degree alone is below.",
            ),
            differs(
                "1% of the nodes have 32%, 46% and 80% of the edges (within 15%)",
                "Edges of a generated graph are distinct, and so small a graph has too few partners for hubs of the dataset's degrees.",
            ),
            differs("On WikiKG90M degrees alone suffice", "Its stand-in has fewer edges at its hubs than the dataset."),
            agrees("Weighted reverse PageRank predicts best on each dataset"),
        ],
        note: "1,024 seeds, 12,12,12 and 25,15 neighbours.",
        run: Some(figure_7),
    },
    Row {
        id: "T:8",
        title: "epoch seconds by CPU gathering, zero copy and tiering",
        how: &[How::Described, How::Counted],
        code: &["transfer/sim/src/roofline.rs", "transfer/cuda-pcie/src/zero_copy.rs"],
        statements: &[
            agrees("Zero copy is faster than gathering by the CPU"),
            differs(
                "By 2.5 to 4.6 times",
                "The formulas let all cores collect at the host memory's full bandwidth; PyTorch's collecting is several times slower, \
and nothing here is fitted to it.",
            ),
            agrees("Tiering is faster than zero copy alone"),
            differs(
                "By 1.6 to 2.1 times",
                "Gathering takes a larger part of the step in the formulas, whose training is at half of the peak.",
            ),
            differs(
                "The link carries 87 to 95% less",
                "It does on papers100M and, with a percent more, on MAG240M; the stand-in of WikiKG90M has fewer edges at its hubs \
than the dataset (T:7).",
            ),
        ],
        note: "One V100 of the paper's four, GraphSAGE of 256 hidden values; shares of rows as in the paper.",
        run: Some(figure_8),
    },
    Row {
        id: "T:9",
        title: "accesses by the hottest rows, by depth of sampling",
        how: &[How::Counted],
        code: HOTNESS,
        statements: &[
            agrees("Deeper sampling spreads accesses"),
            agrees(
                "With five hops weighted reverse PageRank serves more than 1.5 times what degree does (52 and 28% in the paper)",
            ),
            agrees("With five hops a tenth of the rows still serves more than three times its part"),
        ],
        note: "Stand-in of papers100M.",
        run: Some(figure_9),
    },
    Row {
        id: "T:10",
        title: "bytes over the link and epoch seconds, by share of rows on the device",
        how: &[How::Described, How::Counted],
        code: &["caches/tiering/src/requests.rs", "transfer/sim/src/roofline.rs"],
        statements: &[
            agrees("Bytes fall sharply with the first percents and slowly afterwards"),
            agrees("With a quarter of the rows the link carries 97% less (here 93% or more)"),
            differs(
                "Epochs are 33% shorter with 5% and 42% with 25% (within ten points)",
                "Gathering takes a larger part of the step in the formulas than in the paper.",
            ),
        ],
        note: "Stand-in of papers100M, 12,12,12 neighbours.",
        run: Some(figure_10),
    },
    Row {
        id: "T:11",
        title: "epoch seconds on four devices, by share of rows on them, sampling by host or devices",
        how: &[How::Described, How::Counted],
        code: &["transfer/cuda-pcie/src/pool.rs", "samplers/cuda-neighbor/src/lib.rs"],
        statements: &[
            agrees("Sampled by the host, epochs fall with the first rows and then stay"),
            differs(
                "Sampling by the devices is faster with many rows on them",
                "Forty cores at the speed of our sampler keep up with four devices; DGL's sampler does not.",
            ),
        ],
        note: "Stand-in of MAG240M, 25,15 neighbours; the topology is spread over the devices, which sample at their own speed.",
        run: Some(figure_11),
    },
    Row::drawing(
        "T:12",
        "memory of the host that processes register",
        &["transfer/cuda/src/pinning.rs"],
        "Of the appendix. One process has all devices, and registers the memory once.",
    ),
    Row::drawing(
        "T:13",
        "memory of peers that processes share",
        &["transfer/cuda-pcie/src/pool.rs"],
        "Of the appendix. One process has all devices, so that no handle is exchanged.",
    ),
];
