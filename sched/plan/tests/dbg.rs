//! scratch
use morphgl_plan::*;
#[test]
fn dbg() {
    let (w, c, d, g, x, m) = (6, 0.0028, 0.0787, 0.0049, 0.0036, 0.0113);
    let keys = |b: &str, t: &str| RouteKeys { batching: b.into(), transferring: t.into(), training: "m".into() };
    let hw = |b: &[&str], t: &[&str]| Hardware {
        batching: b.iter().map(|s| s.to_string()).collect(),
        transferring: t.iter().map(|s| s.to_string()).collect(),
        training: vec!["SIM".into()],
    };
    let k = Seconds::constant;
    let resources = vec![Resource::shared("CPU", w), Resource::exclusive("PCIe"), Resource::exclusive("SIM")];
    for (n0, group, keep) in [(168, 6, 1), (168, 6, 0), (160, 6, 1), (168, 7, 1), (160, 7, 1)] {
        let shares = vec![
            Share {
                keys: keys("c", "d"),
                hardware: hw(&["CPU"], &["PCIe"]),
                in_place: false,
                batches: n0,
                workers: w,
                threads_per_worker: 1,
                batching: k(c),
                transferring: k(d),
                training: k(m),
                contention: None,
            },
            Share {
                keys: keys("g", "x"),
                hardware: hw(&["PCIe", "SIM"], &["PCIe", "SIM"]),
                in_place: true,
                batches: 1179 - n0,
                workers: 1,
                threads_per_worker: 1,
                batching: k(g),
                transferring: k(x),
                training: k(m),
                contention: None,
            },
        ];
        let s = Schedule {
            policy: Policy::Interleaved,
            resources: resources.clone(),
            shares,
            training_threads: 0,
            batched: 64,
            ready: 10,
            group,
            keep,
            crowding: 1.1,
        };
        let t = timeline(&s);
        println!("{n0} {group} {keep}: {}", t.seconds);
        if keep == 1 && n0 == 168 && group == 6 {
            for a in t
                .activities
                .iter()
                .filter(|a| !(a.share == 0 && a.phase == Phase::Batching) && a.start > 1.0 && a.start < 1.4)
            {
                println!("{:?} share {} {:.4}..{:.4} #{}", a.phase, a.share, a.start, a.end, a.batch);
            }
        }
    }
}
