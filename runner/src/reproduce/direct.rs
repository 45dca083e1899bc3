//! Tables and figures of PyTorch-Direct (UVA), by the numbers of the survey.

use anyhow::Result;
use morphgl_model_core::ModelKind;
use morphgl_sim::MachineDescription;
use morphgl_tiering::{WarpAccess, WarpPattern};

use super::row::{Figure, How, Row, Shown, Verdict, agrees, differs};
use super::setting::Setting;
use super::stand_in::{PA, StandIn, WIKI};
use super::workload::{Load, Phases};

const NAIVE: WarpPattern = WarpPattern::of_values(WarpAccess::Naive);
const SHIFTED: WarpPattern = WarpPattern::of_values(WarpAccess::Shifted);
/// Bytes of a packet's header (the survey, Section V-B: 12 to 16).
const HEADER: f64 = 16.0;

fn figure_5(_: &Setting) -> Result<Shown> {
    let [aligned, off] = [0, 32].map(|address| NAIVE.reads(address, 128).requests);
    let figures = vec![
        Figure::new("requests of an aligned warp", "").paper(1.0).predicted(aligned as f64),
        Figure::new("requests of a misaligned warp", "").paper(2.0).predicted(off as f64),
    ];
    Ok(Shown::new(figures, vec![Verdict::new((aligned, off) == (1, 2), format!("{aligned} and {off}"))]))
}

fn figure_6(_: &Setting) -> Result<Shown> {
    // The second row of 480 bytes.
    let [naive, shifted] = [NAIVE, SHIFTED].map(|pattern| pattern.reads(480, 480).requests);
    let figures = vec![
        Figure::new("requests by the naive access", "").paper(8.0).predicted(naive as f64),
        Figure::new("requests by the circular shift", "").paper(5.0).predicted(shifted as f64),
    ];
    Ok(Shown::new(figures, vec![Verdict::new((naive, shifted) == (8, 5), format!("{naive} and {shifted}"))]))
}

/// Bytes of rows over bytes on the link, headers included, of block copies' 128 bytes by packet.
fn efficiency(pattern: WarpPattern, row: u64) -> f64 {
    let (requests, sectors) = pattern.mean(row);
    let of_blocks = 128.0 / (128.0 + HEADER);
    row as f64 / (32.0 * sectors + HEADER * requests) / of_blocks
}

fn figure_8(_: &Setting) -> Result<Shown> {
    let (mut figures, mut of) = (Vec::new(), Vec::new());
    for row in (1024..=1044).step_by(4) {
        let [naive, shifted] = [NAIVE, SHIFTED].map(|pattern| 100.0 * efficiency(pattern, row));
        figures.push(Figure::new(format!("{row} bytes: naive"), "% of block copies").predicted(naive));
        figures.push(Figure::new(format!("{row} bytes: shifted"), "% of block copies").predicted(shifted));
        of.push([naive, shifted]);
    }
    let off = &of[1..];
    let range = |i: usize| {
        let (least, most) = off.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), o| (l.min(o[i]), m.max(o[i])));
        (least, most)
    };
    let (naive, shifted) = (range(0), range(1));
    let machine = MachineDescription::named("direct-3090")?;
    let bandwidths = [machine.links[0].gb_per_s, machine.host.bandwidth_gb_per_s];
    // A block copy waits for the gather: reading and writing the host's memory.
    let copied = 1.0 / (1.0 / bandwidths[0] + 2.0 / bandwidths[1]);
    figures.push(
        Figure::new("gather by the CPU and block copy", "% of block copies").predicted(100.0 * copied / bandwidths[0]),
    );
    let verdicts = vec![
        Verdict::new(of[0][0] == of[0][1] && of[0][0] > 95.0, format!("{:.0}%", of[0][0])),
        Verdict::new(naive.0 >= 73.0 && naive.1 <= 87.0, format!("{:.0} to {:.0}%", naive.0, naive.1)),
        Verdict::new(shifted.0 >= 83.0 && shifted.1 <= 98.0, format!("{:.0} to {:.0}%", shifted.0, shifted.1)),
        Verdict::new(copied / bandwidths[0] < 0.7, format!("{:.0}%", 100.0 * copied / bandwidths[0])),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn figure_9(setting: &Setting) -> Result<Shown> {
    let machine = MachineDescription::named("direct-3090")?;
    let (mut figures, mut gains, mut scaling, mut slower) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // Rows of 1,036 bytes, which are no whole lines.
    for (name, stand_in) in [("wikipedia", StandIn { dim: 259, ..WIKI }), ("papers100M", StandIn { dim: 259, ..PA })] {
        let workload = setting.workload(&stand_in, "15,10,5", 1024)?;
        let load = Load { kind: ModelKind::Sage, hidden: 256, value: 4.0, id: 8.0, row_hits: 0.0, list_hits: 0.0 };
        let phases = Phases::of(&workload, &machine, load);
        let row = 4 * stand_in.dim as u64;
        let [naive, shifted] = [NAIVE, SHIFTED]
            .map(|pattern| workload.feature_bytes(4.0) / (efficiency(pattern, row) * machine.links[0].gb_per_s * 1e9));
        let cores = machine.host.cores;
        let cpu =
            machine.host_training(cores, workload.step(ModelKind::Sage, 256)) + phases.host_sampling / cores as f64;
        for devices in [1.0, 2.0] {
            // Both devices' gathers share the host's memory, and their transfers have links of their own.
            let copied = phases.collecting * devices + phases.copying;
            let step = |transfer: f64| {
                transfer.max(phases.training).max(phases.host_sampling * devices / cores as f64) / devices
            };
            let [copied, naive, shifted, resident] = [copied, naive, shifted, 0.0].map(step);
            let epoch = |seconds: f64| seconds * workload.batches as f64;
            for (how, seconds) in
                [("DMA", copied), ("naive zero-copy", naive), ("zero-copy", shifted), ("all on the device", resident)]
            {
                figures.push(Figure::new(format!("{name}, {devices} devices: {how}"), "s").predicted(epoch(seconds)));
            }
            if devices == 1.0 {
                figures.push(Figure::new(format!("{name}: CPU alone"), "s").predicted(epoch(cpu)));
                slower.push(cpu / copied);
            }
            gains.push((devices, 100.0 * (copied / shifted - 1.0), naive / shifted));
            scaling.push((devices, copied));
        }
    }
    let of = |devices: f64| gains.iter().filter(move |g| g.0 == devices).map(|g| g.1).collect::<Vec<_>>();
    let text = |gains: &[f64]| gains.iter().map(|g| format!("{g:.0}%")).collect::<Vec<_>>().join(", ");
    let (one, two) = (of(1.0), of(2.0));
    let grows = one.iter().zip(&two).all(|(one, two)| two > one);
    let by_second: Vec<f64> = scaling.chunks(2).map(|pair| 100.0 * (pair[0].1 / pair[1].1 - 1.0)).collect();
    let verdicts = vec![
        Verdict::new(slower.iter().all(|s| *s > 1.0), format!("{:.1} and {:.1} times", slower[0], slower[1])),
        Verdict::new(one.iter().all(|g| (16.0..=44.0).contains(g)), text(&one)),
        Verdict::new(two.iter().all(|g| (65.0..=92.0).contains(g)), text(&two)),
        Verdict::new(grows, format!("{} and {}", text(&one), text(&two))),
        Verdict::new(by_second.iter().all(|g| (21.0..=27.0).contains(g)), text(&by_second)),
        Verdict::new(gains.iter().all(|g| g.2 >= 1.0), format!("{:.2} times", gains[0].2)),
    ];
    Ok(Shown::new(figures, verdicts))
}

fn table_i(_: &Setting) -> Result<Shown> {
    let (multiprocessors, threads, warp, outstanding) = (82.0_f64, 1536.0, 32.0, 768.0);
    let per = threads / warp;
    let upper = 100.0 * (outstanding / per) / multiprocessors;
    let in_flight = 25.8e9 / 128.0 * 1.5e-6;
    // The survey's figure divides 25.8 GB/s by lines of 128 bytes, with a giga of 2^30 and a round trip of 1.5 us.
    let in_flight_binary = 25.8 * 1024_f64.powi(3) / 128.0 * 1.5e-6;
    let lower = 100.0 * (in_flight / per) / multiprocessors;
    let figures = vec![
        Figure::new("multiprocessors for 768 requests", "%").paper(19.5).predicted(upper),
        Figure::new("requests in flight for 25.8 GB/s", "").paper(324.6).predicted(in_flight_binary),
        Figure::new("the same with 10^9 bytes", "").predicted(in_flight),
        Figure::new("multiprocessors for these", "%").paper(8.2).predicted(lower),
    ];
    let verdicts = vec![
        Verdict::new((upper - 19.5).abs() < 0.1, format!("{upper:.1}%")),
        Verdict::new((lower / 8.2 - 1.0).abs() < 0.1, format!("{lower:.1}%")),
    ];
    Ok(Shown::new(figures, verdicts))
}

const REQUESTS: &[&str] = &["caches/tiering/src/requests.rs", "transfer/cuda-pcie/src/zero_copy.rs"];

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "P:I",
        title: "RTX 3090, and the multiprocessors that zero-copy needs",
        how: &[How::Derived],
        code: &["transfer/cuda-pcie/src/options.rs"],
        statements: &[
            agrees("At most 19.5% of the multiprocessors fill the link's requests"),
            agrees("8.2% of them do so with requests of whole lines (within a tenth)"),
        ],
        note: "Option `lines` of the zero-copy gather bounds the lines in flight.",
        run: Some(table_i),
    },
    Row::drawing("P:II", "the machine", &["transfer/sim/machines/direct-3090.toml"], "It is described."),
    Row {
        id: "P:III",
        title: "datasets",
        how: &[How::Absent],
        code: &[],
        statements: &[],
        note: "The table has no text in the survey.",
        run: None,
    },
    Row::drawing(
        "P:2",
        "features of neighbours are scattered in memory",
        &["samplers/core/src/hops.rs"],
        "An illustration.",
    ),
    Row::drawing("P:4", "work of the CPU by DMA and by zero-copy", REQUESTS, "P:9 has the seconds."),
    Row {
        id: "P:5",
        title: "requests of aligned and misaligned warps",
        how: &[How::Derived],
        code: REQUESTS,
        statements: &[agrees("A misaligned warp makes two requests in place of one")],
        note: "By the exact model of requests.",
        run: Some(figure_5),
    },
    Row {
        id: "P:6",
        title: "the circular shift",
        how: &[How::Derived],
        code: REQUESTS,
        statements: &[agrees("The second row of 480 bytes takes 5 requests in place of 8")],
        note: "By the exact model of requests. Our gather reads whole lines instead.",
        run: Some(figure_6),
    },
    Row::drawing(
        "P:7",
        "flow of training with zero-copy",
        &["transfer/cuda-pcie/src/gather.rs"],
        "Streams of one process in place of processes under MPS.",
    ),
    Row {
        id: "P:8",
        title: "bandwidth by bytes per row",
        how: &[How::Derived],
        code: REQUESTS,
        statements: &[
            agrees("Rows of whole lines are read at more than 95% of the speed of block copies"),
            agrees("Misaligned, naive access reaches 78 to 82% (within five points)"),
            agrees("The circular shift reaches 88 to 93% (within five points)"),
            agrees("Gathered by the CPU, block copies reach about half of it (here below 70%)"),
        ],
        note: "Bytes of rows over bytes of sectors and headers on the link; the CPU's gather at the memory's peak.",
        run: Some(figure_8),
    },
    Row {
        id: "P:9",
        title: "epoch seconds by CPU, DMA, zero-copy and all on the device",
        how: &[How::Described, How::Counted],
        code: &["transfer/sim/src/roofline.rs", "caches/tiering/src/requests.rs"],
        statements: &[
            agrees("The CPU alone is slower than DMA"),
            agrees("With one device zero-copy is 16 to 44% faster than DMA"),
            agrees("With two devices zero-copy is 65 to 92% faster than DMA"),
            agrees("The gain is larger with two devices"),
            differs(
                "A second device helps DMA by 21 to 27%",
                "The formulas let the CPU collect for both devices at the full bandwidth of its memory.",
            ),
            agrees("The circular shift is no slower than naive access"),
        ],
        note: "Rows of 1,036 bytes, which are no whole lines; transfers overlap training, collecting and copying follow each other, \
and both devices share the host's memory.",
        run: Some(figure_9),
    },
];
