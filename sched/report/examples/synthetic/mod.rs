//! Synthetic runs: nothing in here was measured.

use morphgl_report::{
    Bar, Baseline, Cache, Epoch, Lane, Mark, Memory, MemoryUse, OperatorSeconds, Phase, Report, Timeline, Utilisation,
    WhatIf,
};

const BATCHING: f64 = 0.038;
const DMA: f64 = 0.0042;
const DEVICE_BATCHING: f64 = 0.0145;
const TRAINING: f64 = 0.0081;

/// Numbers around 1, repeatable; exactly 1 without noise.
struct Noise(u64, f64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + self.1 * ((self.0 >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0)
    }
}

/// Epochs of `batches` mini-batches on two routes: overlaps of ten batched by the device and those of `workers` workers.
pub(crate) fn two_routes(workers: usize, batches: u32, epochs: u32, noise: f64) -> Timeline {
    let mut noise = Noise(7, noise);
    let worker = |i| Lane { name: format!("CPU worker {}", i + 1), resource: "CPU".into(), simulated: false };
    let mut lanes: Vec<Lane> = (0..workers).map(worker).collect();
    lanes.extend(["PCIe", "SIM"].map(|name| Lane { name: name.into(), resource: name.into(), simulated: true }));
    let (pcie, sim) = (workers, workers + 1);
    let mut timeline =
        Timeline {
            lanes, routes: vec!["CPU → DMA → SIM".into(), "SIM+PCIe → SIM".into()], ..Timeline::default()
        };
    let mut add = |phase: Phase, route, (epoch, batch), start: f64, seconds: f64, lanes: &[usize]| {
        let end = start + seconds;
        timeline.activities.push(Bar { work: phase.into(), batch, epoch, route, start, end, lanes: lanes.to_vec() });
        end
    };
    let (device_buffer, cpu_buffer) = (10, 6 * workers);
    let mut marks = Vec::new();
    let mut now = 0.0;
    for epoch in 0..epochs {
        marks.push(Mark { name: format!("epoch {epoch}"), start: now, end: now });
        let mut free = vec![now; workers];
        let mut taken = vec![now; cpu_buffer];
        let mut next = 0;
        while next < batches {
            let mut take = |most: usize| {
                let ids: Vec<_> = (next..batches).take(most).map(|b| (epoch, b)).collect();
                next += ids.len() as u32;
                ids
            };
            let (on_device, on_cpu) = (take(device_buffer), take(cpu_buffer));
            let mut device = now;
            for &id in &on_device {
                device = add(Phase::Batching, 1, id, device, DEVICE_BATCHING * noise.next(), &[pcie, sim]);
            }
            let (mut bus, mut queue) = (device, on_device.iter());
            for (i, &id) in on_cpu.iter().enumerate() {
                let by = i % workers;
                let start = free[by].max(taken[i]);
                free[by] = add(Phase::Batching, 0, id, start, BATCHING * noise.next(), &[by]);
                taken[i] = bus.max(free[by]);
                bus = add(Phase::Transferring, 0, id, taken[i], DMA * noise.next(), &[pcie]);
                if let Some(&id) = queue.next() {
                    device = add(Phase::Training, 1, id, device, TRAINING * noise.next(), &[sim]);
                }
                device = add(Phase::Training, 0, id, device.max(bus), TRAINING * noise.next(), &[sim]);
            }
            for &id in queue {
                device = add(Phase::Training, 1, id, device, TRAINING * noise.next(), &[sim]);
            }
            now = device;
        }
        if epochs > 1 {
            marks.push(Mark { name: "evaluation".into(), start: now, end: now + 0.4 });
            now += 0.4;
        }
    }
    timeline.seconds = now;
    timeline.marks = marks;
    timeline
}

/// Epochs of `batches` mini-batches on the cores alone: two workers batch, the others train.
pub(crate) fn cores(batches: u32, epochs: u32) -> Timeline {
    let mut noise = Noise(3, 0.1);
    let lane = |name: &str| Lane { name: name.into(), resource: "CPU".into(), simulated: false };
    let lanes = vec![lane("CPU worker 1"), lane("CPU worker 2"), lane("training, 2 threads")];
    let mut timeline = Timeline { lanes, routes: vec!["CPU".into()], ..Timeline::default() };
    let mut now = 0.0;
    for epoch in 0..epochs {
        timeline.marks.push(Mark { name: format!("epoch {epoch}"), start: now, end: now });
        let (mut free, mut trained) = ([now; 2], vec![now; 3]);
        for batch in 0..batches {
            let by = batch as usize % 2;
            let start = free[by].max(trained[trained.len() - 3]);
            free[by] = start + 0.021 * noise.next();
            let begin = free[by].max(trained[trained.len() - 1]);
            let end = begin + 0.017 * noise.next();
            trained.push(end);
            let of = |phase: Phase, start, end, lane| Bar {
                work: phase.into(),
                batch,
                epoch,
                route: 0,
                start,
                end,
                lanes: vec![lane],
            };
            timeline.activities.push(of(Phase::Batching, start, free[by], by));
            timeline.activities.push(of(Phase::Training, begin, end, 2));
        }
        now = trained[trained.len() - 1] + 0.05;
        timeline.marks.push(Mark { name: "evaluation".into(), start: now - 0.05, end: now });
    }
    timeline.seconds = now;
    timeline
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
}

fn utilisation(predicted: &Timeline, measured: &Timeline) -> Vec<Utilisation> {
    let mean = |timeline: &Timeline, resource: &str| {
        let busy = timeline.utilisation();
        let of: Vec<f64> = timeline.lanes.iter().zip(busy).filter(|l| l.0.resource == resource).map(|l| l.1).collect();
        Some(of.iter().sum::<f64>() / of.len() as f64)
    };
    let mut resources: Vec<&Lane> = Vec::new();
    for lane in &measured.lanes {
        if !resources.iter().any(|l| l.resource == lane.resource) {
            resources.push(lane);
        }
    }
    let of = |lane: &Lane| Utilisation {
        resource: lane.resource.clone(),
        simulated: lane.simulated,
        predicted: mean(predicted, &lane.resource),
        measured: mean(measured, &lane.resource),
    };
    resources.into_iter().map(of).collect()
}

fn epochs(count: u32, seconds: f64) -> Vec<Epoch> {
    let mut noise = Noise(11, 0.02);
    let of = |epoch: u32| {
        let t = f64::from(epoch);
        let slow = if epoch > 5 { 1.11 } else { 1.0 };
        Epoch {
            epoch,
            seconds: Some(seconds * noise.next() * slow),
            predicted_seconds: Some(if epoch > 6 { seconds * 1.1 } else { seconds * 0.995 }),
            loss: Some(0.42 + 2.9 * (-t / 3.0).exp() * noise.next()),
            valid_loss: Some(0.55 + 2.6 * (-t / 2.8).exp() * noise.next()),
            train_accuracy: (epoch % 2 == 1).then(|| 0.915 - 0.61 * (-t / 3.1).exp()),
            valid_accuracy: Some(0.884 - 0.55 * (-t / 2.6).exp() * noise.next()),
            valid_score: None,
            event: if epoch == 7 { "re-planned: batching became slower".into() } else { String::new() },
        }
    };
    (0..count).map(of).collect()
}

fn baseline(policy: &str, plan: &str, seconds: f64, bottleneck: &str, busy: [f64; 3]) -> Baseline {
    Baseline {
        policy: policy.into(),
        plan: plan.into(),
        seconds,
        ratio: Some(seconds / 11.74),
        bottleneck: bottleneck.into(),
        utilisation: ["CPU", "PCIe", "SIM"].map(String::from).into_iter().zip(busy).collect(),
        chosen: policy == "dual-buffer",
    }
}

/// A report of two routes with all its parts.
pub(crate) fn full(batches: u32, run: u32) -> Report {
    let (predicted, measured) = (two_routes(4, batches, 1, 0.0), two_routes(4, batches, run, 0.12));
    let seconds = predicted.seconds;
    let place = |place: &str, budget: u64, peak: u64, uses: &[(&str, u64)]| Memory {
        place: place.into(),
        simulated: place == "sim:0",
        budget: Some(budget << 20),
        peak: Some(peak << 20),
        uses: uses.iter().map(|(what, size)| MemoryUse { what: what.to_string(), bytes: size << 20 }).collect(),
    };
    let operator = |phase, operator: &str, profiled: f64, measured: f64| OperatorSeconds {
        phase,
        operator: operator.into(),
        simulated: operator.contains("SIM") || operator.contains("PCIe"),
        profiled: Some(profiled),
        deviation: Some(profiled * 0.06),
        measured: Some(measured),
    };
    let what_if = |change: &str, speed_up: f64, bottleneck: &str, plan: &str| WhatIf {
        change: change.into(),
        seconds: seconds / speed_up,
        speed_up,
        bottleneck: bottleneck.into(),
        plan: plan.into(),
    };
    Report {
        title: "GraphSAGE on products-like".into(),
        summary: format!("Epochs of {batches} mini-batches on two routes, the accelerator simulated."),
        created: "made up to show what a report looks like".into(),
        command: "morphgl train products-like --model sage --fanouts 15,10,5 --plan auto --epochs 12".into(),
        plan: "Dual buffer: 345 mini-batches batched by SIM, 834 by 4 CPU workers; buffers of 10 on the device, 24 in RAM."
            .into(),
        predicted_seconds: Some(seconds),
        bound_seconds: Some(seconds / 1.006),
        bottleneck: Some("SIM".into()),
        test_accuracy: Some(0.8713),
        utilisation: utilisation(&predicted, &measured),
        epochs: epochs(12, seconds),
        operators: vec![
            operator(Phase::Batching, "Batching_CPU_Neighbor", BATCHING, 0.0391),
            operator(Phase::Batching, "Batching_SIM+PCIe_Neighbor", DEVICE_BATCHING, 0.01449),
            operator(Phase::Transferring, "Transferring_PCIe_Copy", DMA, 0.0044),
            operator(Phase::Training, "Training_SIM_Ledger", TRAINING, 0.0081),
        ],
        baselines: vec![
            baseline("dual-buffer", "345 on SIM, 834 on 4 CPU workers; buffers 10 and 24", 11.81, "SIM", [0.64, 0.72, 0.99]),
            baseline("paper", "Eq. 6 with feedback: 393 on SIM, 786 on CPU", 12.33, "SIM", [0.61, 0.75, 0.98]),
            baseline("pipeline", "all on 4 CPU workers, queue of 8", 13.9, "CPU", [0.97, 0.36, 0.69]),
            baseline("device", "all batched by SIM", 26.65, "SIM", [0.0, 0.64, 1.0]),
            baseline("sequential", "one after the other on 1 CPU worker", 59.3, "CPU", [0.76, 0.08, 0.16]),
        ],
        what_if: vec![
            what_if("CPU × 2", 1.23, "SIM", "all on 8 CPU workers, queue of 12"),
            what_if("PCIe × 2", 1.04, "SIM", "402 on SIM, 777 on 4 CPU workers"),
            what_if("SIM × 2", 1.38, "CPU", "498 on SIM, 681 on 4 CPU workers"),
            what_if("CPU × 2, SIM × 2", 1.97, "CPU", "212 on SIM, 967 on 8 CPU workers"),
        ],
        memory: vec![
            place(
                "Host",
                8192,
                6020,
                &[("topology", 984), ("features", 3810), ("CPU buffer, 24 mini-batches", 1032), ("model and optimizer", 12)],
            ),
            place(
                "sim:0",
                2048,
                1891,
                &[("device buffer, 10 mini-batches", 430), ("feature cache", 1210), ("adjacency cache", 190), ("model", 12)],
            ),
        ],
        caches: vec![
            Cache {
                name: "features by PreSC".into(),
                place: "sim:0".into(),
                bytes: Some(1210 << 20),
                predicted_hits: Some(0.812),
                measured_hits: Some(0.806),
            },
            Cache {
                name: "adjacency by degree".into(),
                place: "sim:0".into(),
                bytes: Some(190 << 20),
                predicted_hits: Some(0.534),
                measured_hits: Some(0.541),
            },
        ],
        notes: vec![
            "Batching_CUDA+PCIe_Neighbor was skipped: no CUDA driver.".into(),
            "After epoch 6 batching took 18% longer than profiled; the plan was computed again.".into(),
        ],
        machine: pairs(&[("CPU", "4 cores"), ("RAM", "16.0 GiB"), ("SIM", "simulated accelerator, 2.00 GiB")]),
        configuration: pairs(&[("model", "sage, 3 layers, hidden 256"), ("fanouts", "15,10,5"), ("batch-size", "1024"), ("seed", "1")]),
        predicted: Some(predicted),
        measured: Some(measured),
        ..Report::default()
    }
}

/// A report of a machine without an accelerator: two short epochs.
pub(crate) fn cpu_only() -> Report {
    let measured = cores(41, 2);
    Report {
        title: "GCN on Coauthor <Physics> & friends".into(),
        summary: "Two epochs on the cores alone.".into(),
        command: "morphgl train coauthor-physics --model gcn --epochs 2".into(),
        plan: "2 batching workers, 2 training threads, queue of 3".into(),
        predicted_seconds: Some(0.731),
        bound_seconds: Some(0.722),
        bottleneck: Some("CPU".into()),
        utilisation: vec![Utilisation {
            resource: "CPU".into(),
            predicted: Some(0.97),
            measured: Some(0.93),
            ..Utilisation::default()
        }],
        epochs: epochs(2, 0.742),
        measured: Some(measured),
        ..Report::default()
    }
}
