//! scratch
use morphgl_plan::*;
fn main_problem(rng: &mut u64, n: usize) -> (Problem, String) {
    let mut unit = || {
        *rng = rng.wrapping_add(0x9e3779b97f4a7c15);
        let mut x = *rng;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d049bb133111eb);
        x ^= x >> 31;
        (x >> 11) as f64 / (1u64 << 53) as f64
    };
    let w = 1 + (unit() * 16.0) as usize;
    let mut dur = || 1e-3 * 1000f64.powf(unit());
    let (c, d, g, x, m) = (dur(), dur(), dur(), dur(), dur());
    let desc = format!("w={w} cpu={c:.4} dma={d:.4} dev={g:.4}+{x:.4} train={m:.4}");
    let keys = |b: &str, t: &str| RouteKeys { batching: b.into(), transferring: t.into(), training: "m".into() };
    let hw = |b: &[&str], t: &[&str]| Hardware {
        batching: b.iter().map(|s| s.to_string()).collect(),
        transferring: t.iter().map(|s| s.to_string()).collect(),
        training: vec!["SIM".into()],
    };
    let routes = vec![
        Candidate {
            keys: keys("c", "d"),
            hardware: hw(&["CPU"], &["PCIe"]),
            in_place: false,
            on_host: false,
            durations: Durations::constant(w, c, d, m).unwrap(),
            bytes: Bytes::default(),
        },
        Candidate {
            keys: keys("g", "x"),
            hardware: hw(&["PCIe", "SIM"], &["PCIe", "SIM"]),
            in_place: true,
            on_host: false,
            durations: Durations::constant(1, g, x, m).unwrap(),
            bytes: Bytes::default(),
        },
    ];
    let resources = vec![Resource::shared("CPU", w), Resource::exclusive("PCIe"), Resource::exclusive("SIM")];
    (Problem::new(n, resources, routes).unwrap(), desc)
}
#[test]
fn b1() {
    let sets: usize = std::env::var("SETS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
    let n: usize = std::env::var("N").ok().and_then(|s| s.parse().ok()).unwrap_or(1179);
    let mut rng = 7;
    let mut rows = vec![];
    let start = std::time::Instant::now();
    for _ in 0..sets {
        let (p, desc) = main_problem(&mut rng, n);
        let plans = plan(&p).unwrap();
        rows.push((plans.best().prediction.ratio(), desc, plans.to_string()));
        let b = plans.best().prediction.bound_seconds;
        assert!(
            plans.all().iter().all(|q| q.prediction.epoch_seconds >= b * (1.0 - 1e-9)),
            "{} {}",
            rows.last().unwrap().1,
            rows.last().unwrap().2
        );
    }
    let t = start.elapsed().as_secs_f64() / sets as f64;
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mean: f64 = rows.iter().map(|r| r.0).sum::<f64>() / sets as f64;
    println!(
        "mean {mean:.5} p50 {:.5} p90 {:.5} p99 {:.5} max {:.5}; {:.2} ms a plan",
        rows[sets / 2].0,
        rows[sets * 9 / 10].0,
        rows[sets * 99 / 100].0,
        rows[sets - 1].0,
        1e3 * t
    );
    for r in rows.iter().rev().take(8) {
        println!("{:.4} {}\n{}", r.0, r.1, r.2);
    }
}
