//! Several emulated devices train as one, with gradients added over host memory or by a libnccl of our own.
#![cfg(all(feature = "cpu", feature = "cuda"))]

#[path = "../../models/group-nccl/tests/libnccl/library.rs"]
mod library;
#[path = "support/runs.rs"]
mod runs;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use runs::{Training, checkpoints, metrics, newest};
use serde_json::Value;
use support::{Bench, fails, not_tested};
use xxhash_rust::xxh3::xxh3_64;

const DMA: &str = "Transferring_PCIe_Dma";
const TRAINING: &str = "Training_CUDA_Native";
const TRAIN: [&str; 17] = [
    "train",
    "graph",
    "--fanouts",
    "6,4",
    "--hidden",
    "8",
    "--batch-size",
    "400",
    "--epochs",
    "3",
    "--profile-seconds",
    "0.1",
    "--threads=5",
    "--evaluation",
    "sampled",
    "--seed",
    "3",
];

/// The bench with a dataset, and so many emulated devices; `None` where devices are not emulated.
struct Devices {
    bench: Bench,
    number: usize,
}

impl Devices {
    fn new() -> Option<Self> {
        let devices = Self { bench: Bench::with_emulated_devices(), number: 1 };
        let ops = devices.json(&["ops"], &[]);
        let trains = |o: &Value| o["key"] == TRAINING && o["available"] == true;
        let emulated = |a: &Value| a["name"] == "emulated on the CPU";
        let found = ops["machine"]["accelerators"].as_array().is_some_and(|all| all.iter().any(emulated));
        if !(found && ops["operators"].as_array().expect("a list").iter().any(trains)) {
            not_tested("not built for the emulated device: groups of devices are");
            return None;
        }
        let graph = ["generate", "sbm", "-o", "graph", "--nodes", "1500", "--classes", "3", "--dim", "8"];
        devices.bench.text(&[&graph[..], &["--degree", "20"]].concat());
        Some(devices)
    }

    fn with(self, number: usize) -> Self {
        Self { number, ..self }
    }

    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = self.bench.command(args);
        command.env("MORPHGL_EMULATION", format!("devices={}", self.number)).env_remove("MORPHGL_NCCL");
        command.envs(variables.iter().copied()).output().expect("the binary starts")
    }

    fn json(&self, args: &[&str], variables: &[(&str, &str)]) -> Value {
        let output = self.run(&[args, &["--json"]].concat(), variables);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON document")
    }
}

fn epochs(json: &Value) -> &[Value] {
    json["epochs"].as_array().expect("a list")
}

fn losses(json: &Value) -> Vec<f64> {
    epochs(json).iter().map(|e| e["loss"].as_f64().expect("a number")).collect()
}

/// The largest relative distance of losses from those expected.
fn apart(found: &Value, expected: &Value) -> f64 {
    let (found, expected) = (losses(found), losses(expected));
    assert_eq!(found.len(), expected.len(), "epochs");
    found.iter().zip(&expected).map(|(a, e)| (a / e - 1.0).abs()).fold(0.0, f64::max)
}

/// Amounts by trainer, over all epochs.
fn by_trainer(json: &Value, of: impl Fn(&Value) -> u64) -> Vec<u64> {
    let mut sums = Vec::new();
    for epoch in epochs(json) {
        let trainers = epoch["report"]["trainers"].as_array().expect("a list");
        sums.resize(trainers.len(), 0);
        sums.iter_mut().zip(trainers).for_each(|(sum, trainer)| *sum += of(trainer));
    }
    sums
}

fn amount(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Every amount is within a part of the mean.
#[track_caller]
fn balanced(amounts: &[u64], part: f64) {
    let mean = amounts.iter().sum::<u64>() as f64 / amounts.len() as f64;
    let off = amounts.iter().map(|&x| (x as f64 / mean - 1.0).abs()).fold(0.0, f64::max);
    assert!(off <= part, "{amounts:?} are up to {off:.4} off");
}

#[test]
fn devices_train_as_one() {
    let Some(mut devices) = Devices::new() else { return };
    let on_devices = ["--training", TRAINING, "--batching", "Batching_CPU_Neighbor", "--transferring", DMA];
    let alone = devices.json(&[&TRAIN[..], &on_devices].concat(), &[]);
    assert_eq!(alone["unified"], Value::Null);
    let shared = [&TRAIN[..], &on_devices, &["--plan", "unified", "--shares", "equal"]].concat();
    let mut last = Value::Null;
    for number in [2, 4] {
        devices = devices.with(number);
        let group = devices.json(&shared, &[]);
        let apart = apart(&group, &alone);
        assert!(apart < 1e-5, "{number} devices: {apart:e}: {:?}", losses(&group));
        let places = |trainers: &Value| -> Vec<String> {
            let mut places: Vec<String> =
                trainers.as_array().expect("a list").iter().map(|t| t["place"].to_string()).collect();
            places.sort();
            places
        };
        let expected: Vec<String> = (0..number).map(|i| format!("\"cuda:{i}\"")).collect();
        assert_eq!(places(&group["unified"]["trainers"]), expected);
        for epoch in epochs(&group) {
            assert_eq!(places(&epoch["report"]["trainers"]), expected);
        }
        let seeds = by_trainer(&group, |trainer| amount(&trainer["seeds"]));
        let all: u64 = epochs(&alone).iter().map(|e| amount(&e["report"]["seeds"])).sum();
        assert_eq!(seeds.iter().sum::<u64>(), all);
        // The last mini-batch of an epoch may not divide evenly.
        balanced(&seeds, 0.005);
        balanced(&by_trainer(&group, |trainer| amount(&trainer["counters"][DMA]["link_bytes"])), 0.02);
        // Resources have the device's number.
        for trainer in group["unified"]["trainers"].as_array().expect("a list") {
            let place = trainer["place"].as_str().expect("a place").replace("cuda", "CUDA");
            let hardware = &trainer["plan"]["schedule"]["shares"][0]["hardware"];
            let link = format!("PCIe:{}", &place["CUDA:".len()..]);
            assert_eq!((&hardware["training"][0], &hardware["transferring"][0]), (&place.into(), &link.into()));
        }
        last = group;
    }
    // As many seeds for each in every run: the same bits.
    let again = devices.json(&shared, &[]);
    assert_eq!(losses(&again), losses(&last));
    let how = again["exchange"].as_str().expect("an engine");
    assert!(how.starts_with("added over host memory: ") && how.contains("MORPHGL_NCCL"), "{how}");
}

/// Changes the document in a checkpoint: it is a safetensors file with a checksum behind it.
fn edit(checkpoint: &Path, change: impl FnOnce(&mut Value)) {
    const KEY: &str = "morphgl_checkpoint";
    let mut bytes = fs::read(checkpoint).expect("a checkpoint");
    bytes.truncate(bytes.len() - 8);
    let (length, rest) = bytes.split_first_chunk().expect("the length of the header");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).expect("JSON");
    let text = header["__metadata__"][KEY].as_str().expect("a document");
    let mut document = serde_json::from_str(text).expect("JSON");
    change(&mut document);
    header["__metadata__"][KEY] = document.to_string().into();
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut edited = [&(header.len() as u64).to_le_bytes()[..], &header, tensors].concat();
    edited.extend(xxh3_64(&edited).to_le_bytes());
    fs::write(checkpoint, edited).expect("room on the disk");
}

/// A group whose trainers batch by two routes each trains as one trainer, to the bits of a group of one route, and is resumed in
/// mid-epoch to these bits. No plan has two routes here on its own, since all devices are the same cores.
#[test]
fn a_group_of_trainers_with_two_routes_trains_as_one() {
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(2);
    let train = |epochs: &'static str| {
        let small = ["train", "graph", "--fanouts", "6,4", "--hidden", "8", "--batch-size", "50", "--epochs", epochs];
        [&small[..], &["--profile-seconds", "0.1", "--threads=4", "--evaluation", "none", "--training", TRAINING]]
            .concat()
    };
    let group = |epochs, more: &[&'static str]| {
        [&train(epochs)[..], &["--plan", "unified", "--shares", "equal"], more].concat()
    };
    let alone = devices.json(&train("3"), &[]);
    let by_host = ["--batching", "Batching_CPU_Neighbor", "--transferring", DMA];
    let by_device = ["--batching", "Batching_CUDA+PCIe_Neighbor", "--transferring", "Transferring_CUDA+PCIe_ZeroCopy"];
    let [host, device] = [&by_host, &by_device].map(|route| devices.json(&group("3", route), &[]));
    assert!(apart(&host, &alone) < 1e-5, "{:?}", losses(&host));
    assert_eq!(losses(&device), losses(&host));

    let run = devices.bench.path().join("mixed");
    devices.json(&group("1", &["--run", "mixed"]), &[]);
    let of_place = |json: &Value, place: &Value| {
        let trainers = json["unified"]["trainers"].as_array().expect("a list");
        let found = trainers.iter().find(|trainer| trainer["place"] == *place);
        found.expect("the same devices train")["plan"]["schedule"].clone()
    };
    let mut batches = 0;
    edit(checkpoints(&run).last().expect("a checkpoint"), |document| {
        let trainers = document["run"]["unified"]["trainers"].as_array_mut().expect("a list");
        for (i, trainer) in trainers.iter_mut().enumerate() {
            let [mut schedule, other] = [&host, &device].map(|json| of_place(json, &trainer["place"]));
            schedule["resources"] = trainer["plan"]["schedule"]["resources"].clone();
            let mut shares = [schedule["shares"][0].clone(), other["shares"][0].clone()];
            batches = amount(&shares[0]["batches"]);
            // Another division at each trainer.
            let by_host = batches / 2 - i as u64;
            (shares[0]["batches"], shares[1]["batches"]) = (by_host.into(), (batches - by_host).into());
            schedule["shares"] = shares.into();
            for (name, value) in
                [("policy", "interleaved".into()), ("group", 2.into()), ("keep", 0.into()), ("ready", 10.into())]
            {
                schedule[name] = value;
            }
            trainer["plan"]["schedule"] = schedule;
        }
        document["position"]["plan"]["schedule"] = trainers[0]["plan"]["schedule"].clone();
    });
    assert!(batches > 10, "{batches} mini-batches");
    let killed = devices.bench.path().join("killed");
    fs::create_dir_all(killed.join("checkpoints")).expect("room on the disk");
    for file in ["config.toml", "plan.json", "status.json", "metrics.jsonl"] {
        fs::copy(run.join(file), killed.join(file)).expect("a run");
    }
    for checkpoint in checkpoints(&run) {
        fs::copy(&checkpoint, killed.join("checkpoints").join(checkpoint.file_name().expect("a file")))
            .expect("a copy");
    }
    let resume = |name: &'static str| ["train", "--resume", name, "--epochs", "3", "--checkpoint-every", "1b"];
    devices.json(&resume("mixed"), &[]);
    let found: Vec<f64> = metrics(&run).iter().map(|row| row["loss"].as_f64().expect("a number")).collect();
    assert_eq!(found, losses(&host));
    assert!(metrics(&run)[1..].iter().all(|row| row["shares"].as_array().is_some_and(|shares| shares.len() == 2)));

    let mut command = devices.bench.command(&resume("killed"));
    command.env("MORPHGL_EMULATION", "devices=2");
    let next = newest(&killed).expect("a checkpoint") + 5;
    let mut training = Training::start(command, &killed);
    assert!(!training.wait_for_checkpoint(next), "it has two epochs more");
    training.kill();
    let resumed = devices.json(&resume("killed"), &[]);
    assert!(amount(&resumed["resumed"]["batches"]) > 0, "in mid-epoch: {}", resumed["resumed"]);
    // What is counted at the other trainers before a kill is not in a checkpoint of the leading one.
    let trained = |run: &Path| -> Vec<Vec<Value>> {
        let fields = ["epoch", "loss", "train_accuracy", "batches", "score", "shares", "remaining"];
        metrics(run).iter().map(|row| fields.map(|field| row[field].clone()).to_vec()).collect()
    };
    assert_eq!(trained(&killed), trained(&run));
}

/// Trainers whose gathers cache rows on each other's devices read one pool: to the bits of trainers without a cache.
#[test]
fn devices_share_a_pool_of_rows() {
    const GATHER: &str = "Transferring_CUDA+PCIe_DmaGather";
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(2);
    let on_devices = ["--training", TRAINING, "--batching", "Batching_CPU_Neighbor", "--transferring", GATHER];
    let shared = [&TRAIN[..], &on_devices, &["--plan", "unified", "--shares", "equal"]].concat();
    let none = devices.json(&[&shared[..], &["--cache", "none"]].concat(), &[]);
    for replicated in [0, 100] {
        // Room for a sixth of the rows, and tables.
        let words = ["peers=all", "presample=2", "cache_bytes=15000", &format!("replicated={replicated}")]
            .map(|word| format!("{GATHER}.{word}"));
        let set: Vec<&str> = words.iter().flat_map(|word| ["--set", word]).collect();
        let pooled = devices.json(&[&shared[..], &set].concat(), &[]);
        assert_eq!(losses(&pooled), losses(&none), "{replicated} replicated");
        let count = |name: &'static str| by_trainer(&pooled, |t| t["counters"][GATHER][name].as_u64().unwrap_or(0));
        let (requests, hits) = (count("cache_requests"), count("cache_hits"));
        assert!(
            hits.iter().zip(&requests).all(|(hits, requests)| 0 < *hits && hits < requests),
            "{hits:?} {requests:?}"
        );
    }
}

/// Seconds of the bars of a run's trace, and their number: by lane and kind of work.
fn bars(run: &Path) -> BTreeMap<(String, String), (f64, usize)> {
    let trace: Value = serde_json::from_slice(&fs::read(run.join("trace.json")).expect("written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    let of = |event: &Value, name: &str| event["args"][name].as_str().expect("text").to_string();
    let is = |event: &&Value, what: &str| event["name"] == what;
    let measured = events.iter().filter(|e| is(e, "process_name")).find(|e| of(e, "name") == "measured");
    let process = &measured.expect("a measured timeline")["pid"];
    let lanes: BTreeMap<u64, String> = events
        .iter()
        .filter(|e| is(e, "thread_name") && e["pid"] == *process)
        .map(|e| (amount(&e["tid"]), of(e, "name")))
        .collect();
    let mut bars = BTreeMap::<_, (f64, usize)>::new();
    for event in events.iter().filter(|e| e["ph"] == "X" && e["pid"] == *process && e["cat"] != "mark") {
        let lane = lanes[&amount(&event["tid"])].clone();
        let bar = bars.entry((lane, event["cat"].as_str().expect("text").to_string())).or_default();
        (bar.0, bar.1) = (bar.0 + event["dur"].as_f64().expect("microseconds") * 1e-6, bar.1 + 1);
    }
    bars
}

/// Trainers of a run with a plan of groups, whose bars in the trace say the same as the document.
fn trainers_as_traced(devices: &Devices, name: &str, extra: &[&str]) -> Value {
    let group = ["--plan", "unified", "--shares", "equal", "--run", name];
    let json = devices.json(&[&TRAIN[..], &group, extra].concat(), &[]);
    let bars = bars(&devices.bench.path().join(name));
    let trainers = json["trainers"].as_array().expect("a list");
    let places = places_of(&json["trainers"]);
    assert_eq!(places, places_of(&json["unified"]["trainers"]), "in the order of the plan");
    let steps: usize = epochs(&json).iter().map(|e| amount(&e["report"]["batches"]) as usize).sum();
    let seeds: u64 = epochs(&json).iter().map(|e| amount(&e["report"]["seeds"])).sum();
    let all: f64 = trainers.iter().map(|trainer| number(trainer, "seeds_per_epoch")).sum();
    assert!((all * 3.0 / seeds as f64 - 1.0).abs() < 1e-9, "{trainers:?}");
    for (trainer, place) in trainers.iter().zip(places) {
        // A phase that reads over the link has its bar in the link's lane too.
        let is_own = |lane: &str| lane.starts_with(&format!("{place}: ")) && !lane.contains(": PCIe:");
        let own = |kind: &str| {
            let own = bars.iter().filter(|((lane, of), _)| is_own(lane) && of == kind);
            own.fold((0.0, 0), |(seconds, bars), (_, bar)| (seconds + bar.0, bars + bar.1))
        };
        for (kind, name) in [("Batching", "batching"), ("Training", "training")] {
            let (seconds, number_of) = own(kind);
            assert_eq!(number_of, steps, "{place}: {kind}: {bars:?}");
            let said = number(trainer, &format!("{name}_seconds_per_epoch")) * 3.0;
            assert!(
                (seconds / said - 1.0).abs() < 1e-3,
                "{place}: {kind} takes {seconds} in the trace, {said} in JSON"
            );
        }
        // A step all-reduces the one bucket of this small model, and all-gathers the scores.
        let (seconds, number_of) = own("All-reduce");
        assert_eq!(number_of, 2 * steps, "{place}: {bars:?}");
        assert!(
            bars.contains_key(&(format!("{place}: all-reduce"), "All-reduce".to_string())),
            "a lane of its own: {bars:?}"
        );
        let said = number(trainer, "exchange_seconds_per_epoch") * 3.0;
        // Each step is counted in whole microseconds.
        assert!((seconds - said).abs() <= 2e-6 * steps as f64 + 1e-3 * said, "{place}: {seconds} s, {said} s in JSON");
        assert!((0.0..=said).contains(&number(trainer, "exchange_hidden_seconds_per_epoch")), "{trainer}");
        assert_eq!(number(trainer, "imbalance_seconds_per_epoch"), number(&trainers[0], "imbalance_seconds_per_epoch"));
    }
    assert!(number(&trainers[0], "imbalance_seconds_per_epoch") > 0.0);
    json["trainers"].clone()
}

fn number(trainer: &Value, name: &str) -> f64 {
    trainer[name].as_f64().unwrap_or_else(|| panic!("{name}: {trainer}"))
}

/// Each trainer has lanes of its own, with what it batched, transferred, trained and added up; the document and the page say the
/// same.
#[test]
fn each_trainer_has_its_lanes() {
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(2);
    let trainers = trainers_as_traced(&devices, "run", &[]);
    assert_eq!(places_of(&trainers).len(), 3, "the CPU and two devices");
    let page = fs::read_to_string(devices.bench.path().join("run/report.html")).expect("written");
    for text in ["<h2>Trainers</h2>", "The slowest share takes", "All-reduce (A)", "cuda:1: CUDA:1", "host: all-reduce"]
    {
        assert!(page.contains(text), "the page lacks {text:?}");
    }
    // Operators of batching and of transferring that occupy both the device and its link.
    let by_device = ["--batching", "Batching_CUDA+PCIe_Neighbor", "--transferring", "Transferring_CUDA+PCIe_ZeroCopy"];
    let trainers = trainers_as_traced(&devices, "devices", &[&["--training", TRAINING], &by_device[..]].concat());
    assert_eq!(places_of(&trainers).len(), 2);
    // One trainer has neither.
    let alone = devices.json(&[&TRAIN[..], &["--plan", "sequential", "--run", "alone"]].concat(), &[]);
    assert_eq!(alone["trainers"], Value::Null);
    let page = fs::read_to_string(devices.bench.path().join("alone/report.html")).expect("written");
    assert!(!page.contains("<h2>Trainers</h2>") && !page.contains("All-reduce (A)"), "nothing is added up");
}

fn places_of(trainers: &Value) -> Vec<&str> {
    trainers.as_array().expect("a list").iter().map(|t| t["place"].as_str().expect("a place")).collect()
}

#[test]
fn each_device_samples_and_caches_for_itself() {
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(2);
    let train = |batching: &str, gather: &str, extra: &[&str]| {
        // Room for some hundred of the 1,500 rows.
        let set = ["cache_bytes=16384", "presample=2"].map(|option| format!("{gather}.{option}"));
        let route = ["--training", TRAINING, "--batching", batching, "--transferring", gather];
        let set = ["--set", &set[0], "--set", &set[1]];
        devices.json(&[&TRAIN[..], &route, &set, extra].concat(), &[])
    };
    let group = ["--plan", "unified", "--shares", "equal"];
    let (sampler, gather) = ("Batching_CUDA+PCIe_Neighbor", "Transferring_CUDA+PCIe_ZeroCopy");
    let [alone, by_device] = [&[], &group[..]].map(|extra| train(sampler, gather, extra));
    let apart = apart(&by_device, &alone);
    assert!(apart < 1e-5, "{apart:e}: {:?}", losses(&by_device));
    // The gather for mini-batches of the host counts.
    let gather = "Transferring_CUDA+PCIe_DmaGather";
    let by_host = train("Batching_CPU_Neighbor", gather, &group);
    assert_eq!(losses(&by_host), losses(&by_device));
    for name in ["cache_requests", "cache_hits", "link_bytes"] {
        let amounts = by_trainer(&by_host, |trainer| amount(&trainer["counters"][gather][name]));
        assert!(amounts.len() == 2 && amounts[0] > 0, "{name}: {amounts:?}");
        balanced(&amounts, 0.02);
    }
}

/// A device that trains nothing samples for the one that trains: to the bits of one device, and of a run that is interrupted and
/// resumed.
#[test]
fn a_device_samples_for_another() {
    const COPY: &str = "Transferring_CUDA+PCIe+Peer_Copy";
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(2);
    let by_device = ["--training", TRAINING, "--batching", "Batching_CUDA+PCIe_Neighbor", "--transferring"];
    let train = |transferring: &str, extra: &[&str]| {
        devices.json(&[&TRAIN[..], &by_device, &[transferring], extra].concat(), &[])
    };
    let alone = train("Transferring_CUDA+PCIe_ZeroCopy", &["--plan", "sequential"]);
    for plan in ["sequential", "pipeline", "auto"] {
        let both = train(COPY, &["--plan", plan]);
        assert_eq!(losses(&both), losses(&alone), "{plan}");
        let plan = &both["plan"];
        let hardware = &plan["schedule"]["shares"][0]["hardware"];
        let held = ["batching", "transferring", "training"].map(|phase| hardware[phase].to_string());
        let link = "[\"CUDA:0\",\"PCIe:0\",\"Peer:1\",\"Peer:0\"]";
        assert_eq!(held, ["[\"CUDA:1\",\"PCIe:1\"]", link, "[\"CUDA:0\"]"]);
        let memory = &plan["memory"];
        assert!(amount(&memory["sampler"]) > 0 && amount(&memory["device"]) > 0, "{memory}");
        let counters = &both["counters"][COPY];
        assert!(amount(&counters["peer_bytes"]) > 0, "{counters}");
    }
    // Without peer access, through host memory.
    let route = [&TRAIN[..], &by_device, &[COPY, "--plan", "pipeline"]].concat();
    let apart = devices.json(&route, &[("MORPHGL_EMULATION", "devices=2,apart=0-1")]);
    assert_eq!(losses(&apart), losses(&alone));
    let counters = &apart["counters"][COPY];
    assert!(amount(&counters["link_bytes"]) >= 2 * amount(&counters["peer_bytes"]), "{counters}");
    // A single device has no such route.
    let single = [("MORPHGL_EMULATION", "devices=1")];
    let refused = devices.run(&route, &single);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("no route batching"), "{error}");
}

/// A device that trains nothing samples for all trainers of a group, each of which has a worker of one sampler: to the bits of trainers
/// that sample for themselves.
#[test]
fn a_device_samples_for_a_group() {
    const COPY: &str = "Transferring_CUDA+PCIe+Peer_Copy";
    let Some(devices) = Devices::new() else { return };
    let group = ["--plan", "unified", "--shares", "equal", "--training", TRAINING, "--batching"];
    let route =
        |transferring| [&TRAIN[..], &group, &["Batching_CUDA+PCIe_Neighbor", "--transferring", transferring]].concat();
    let own = devices.with(2);
    let alone = own.json(&route("Transferring_CUDA+PCIe_ZeroCopy"), &[]);
    let devices = own.with(3);
    let shared = devices.json(&route(COPY), &[]);
    assert_eq!(losses(&shared), losses(&alone));
    let trainers = shared["unified"]["trainers"].as_array().expect("a list");
    let mut places = places_of(&shared["unified"]["trainers"]);
    places.sort_unstable();
    assert_eq!(places, ["cuda:0", "cuda:1"]);
    for trainer in trainers {
        let hardware = &trainer["plan"]["schedule"]["shares"][0]["hardware"];
        assert_eq!(hardware["batching"], serde_json::json!(["CUDA:2", "PCIe:2"]), "{}", trainer["place"]);
    }
    let copied = by_trainer(&shared, |trainer| amount(&trainer["counters"][COPY]["peer_bytes"]));
    assert!(copied.len() == 2 && copied.iter().all(|&bytes| bytes > 0), "{copied:?}");
}

/// Layers are split where the host samples, where the device that trains does, and where another one does, on one, two and four devices: all
/// to the same bits, and to the losses of the CPU's training with the same split. Without peer access, too.
#[test]
fn split_layers_train_the_same_on_any_device() {
    const COPY: &str = "Transferring_CUDA+PCIe+Peer_Copy";
    let Some(devices) = Devices::new() else { return };
    let small = ["--batch-size=50", "--evaluation=none", "--allow-staleness=31", "--hot-ratio=0.4"];
    let left_out = ["--batch-size", "400", "--evaluation", "sampled"];
    let train: Vec<&str> = TRAIN.iter().copied().filter(|argument| !left_out.contains(argument)).chain(small).collect();
    let on_cpu = devices.json(&[&train[..], &["--training", "Training_CPU_Native"]].concat(), &[]);
    assert!(on_cpu["layer_split"]["given_share"].as_f64() > Some(0.3), "{}", on_cpu["layer_split"]);
    let by_host = ["Batching_CPU_Neighbor", DMA];
    let by_device = ["Batching_CUDA+PCIe_Neighbor", "Transferring_CUDA+PCIe_ZeroCopy"];
    let by_another = ["Batching_CUDA+PCIe_Neighbor", COPY];
    let mut first: Option<Vec<f64>> = None;
    for (number, link, [batching, transferring]) in [
        (1, "", by_host),
        (1, "", by_device),
        (2, "", by_device),
        (2, "", by_another),
        (2, ",apart=0-1", by_another),
        (4, "", by_another),
    ] {
        let route = ["--training", TRAINING, "--batching", batching, "--transferring", transferring];
        let emulation = format!("devices={number}{link}");
        let run = devices.json(&[&train[..], &route].concat(), &[("MORPHGL_EMULATION", &emulation)]);
        let what = format!("{emulation}, {batching}, {transferring}");
        let staleness = run["layer_split"]["staleness"].as_array().expect("a histogram");
        let steps = |stale: &Value| amount(&stale["steps"]);
        assert!(staleness.iter().all(|stale| (1..=31).contains(&steps(stale))), "{what}: {staleness:?}");
        assert!(amount(&run["counters"][transferring]["given_rows"]) > 0, "{what}: {}", run["counters"]);
        let far = apart(&run, &on_cpu);
        assert!(far < 1e-5, "{what}: {far:e}");
        let expected = first.get_or_insert_with(|| losses(&run));
        assert_eq!(&losses(&run), expected, "{what}");
    }
}

/// Layers are split for a group of devices: rows are computed once for all, in the super-batches of one device. While parameters stay, with
/// all neighbours in the first layer, losses are those of one device; else nearly so. Equal shares give the same bits, also resumed at an
/// epoch's beginning and in mid-epoch.
#[test]
fn groups_split_layers() {
    let Some(mut devices) = Devices::new() else { return };
    let small = "train graph --hidden 8 --batch-size 100 --profile-seconds 0.1 --threads=4 --evaluation none --seed 3 \
                 --dropout 0 --allow-staleness 15 --hot-ratio 0.5 --training Training_CUDA_Native";
    let small: Vec<&str> = small.split_whitespace().collect();
    let group = ["--plan", "unified", "--shares", "equal"];
    let trained = ["--fanouts=6,4", "--lr=0.01"];
    let mut last = Value::Null;
    for (number, epochs_trained, more, tolerance) in
        [(4, "2", ["--fanouts=6,-1", "--lr=1e-30"], 1e-6), (2, "3", trained, 1e-2)]
    {
        devices.number = number;
        let args = [&small[..], &["--epochs", epochs_trained], &more].concat();
        let alone = devices.json(&args, &[("MORPHGL_EMULATION", "devices=1")]);
        let shared = devices.json(&[&args[..], &group, &["--run", epochs_trained]].concat(), &[]);
        let far = apart(&shared, &alone);
        assert!(far <= tolerance, "{number} devices, {more:?}: {far:e}");
        let trainers = shared["unified"]["trainers"].as_array().map(Vec::len);
        assert_eq!(trainers, Some(number));
        let [of_group, of_one] = [&shared, &alone].map(|run| &run["layer_split"]);
        assert_eq!(of_group["hot_ratios"], serde_json::json!([0.5, 0.5]));
        let super_batch = |split: &Value| amount(&split["plan"]["split"]["split"]["super_batch"]);
        assert_eq!(super_batch(of_group), super_batch(of_one));
        // Whether the rows of the super-batch after the last epoch are computed depends on when training ends.
        let computed = |split: &Value| amount(&split["super_batches"]);
        assert!(computed(of_group).abs_diff(computed(of_one)) <= 1, "once for all: {of_group}, one device {of_one}");
        let stale = of_group["staleness"].as_array().expect("a histogram");
        assert!(!stale.is_empty() && stale.iter().all(|s| (1..=15).contains(&amount(&s["steps"]))), "{stale:?}");
        let given = by_trainer(&shared, |trainer| {
            let counters = trainer["counters"].as_object().expect("by operator").values();
            counters.filter_map(|of| of["given_rows"].as_u64()).sum()
        });
        assert!(given.len() == number && given.iter().all(|&rows| rows > 0), "given rows: {given:?}");
        let seconds = &of_group["plan"]["split"]["plan"]["prediction"]["epoch_seconds"];
        assert!(seconds.as_f64() > Some(0.0) && seconds == &shared["unified"]["epoch_seconds"], "{seconds}");
        assert_eq!(epochs(&shared)[0]["predicted_seconds"], of_group["plan"]["split"]["first_seconds"]);
        let report = devices.bench.path().join(epochs_trained).join("report.html");
        let page = fs::read_to_string(report).expect("a report");
        assert!(page.contains("<h2>Staleness</h2>") && page.contains("50.0% of the nodes are hot"), "the hot ratio");
        last = shared;
    }

    let train = |epochs: &'static str, more: &[&'static str]| {
        [&small[..], &group, &trained, &["--epochs", epochs], more].concat()
    };
    devices.json(&train("2", &["--run", "begin"]), &[]);
    let resumed = devices.json(&["train", "--resume", "begin", "--epochs", "3"], &[]);
    assert_eq!(losses(&resumed), losses(&last), "at the beginning of an epoch");
    let within = devices.bench.path().join("within");
    let mut command = devices.bench.command(&train("3", &["--run", "within", "--checkpoint-every", "1b"]));
    command.env("MORPHGL_EMULATION", "devices=2");
    let mut training = Training::start(command, &within);
    assert!(!training.wait_for_checkpoint(13), "it has three epochs of nine mini-batches");
    training.kill();
    let resumed = devices.json(&["train", "--resume", "within"], &[]);
    assert!(amount(&resumed["resumed"]["batches"]) > 0, "in mid-epoch: {}", resumed["resumed"]);
    assert_eq!(losses(&resumed), losses(&last), "in mid-epoch");

    let without = ["--hot-ratio", "0.5"];
    for more in [&[][..], &["--hot-ratio=0.2", "--max-hot-ratio=0.5"]] {
        let args: Vec<&str> = small.iter().copied().filter(|a| !without.contains(a)).chain(group).collect();
        let output = devices.run(&[&args[..], more].concat(), &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let says = |words: &str| error.contains(words);
        assert!(!output.status.success() && says("--allow-staleness with --plan unified"), "{error}");
        assert!(says("give --hot-ratio and no --max-hot-ratio"), "{error}");
    }
}

/// Devices with roles: losses of one device, whatever the number of devices; the same bits by the same roles, and after a
/// resumption.
#[test]
fn devices_have_roles() {
    const COPY: &str = "Transferring_CUDA+PCIe+Peer_Copy";
    let Some(mut devices) = Devices::new() else { return };
    let by_device = ["--training", TRAINING, "--batching", "Batching_CUDA+PCIe_Neighbor"];
    let alone = devices.json(&[&TRAIN[..], &by_device, &["--plan", "sequential"]].concat(), &[]);
    let roles = [&TRAIN[..], &by_device, &["--plan", "factored"]].concat();
    for number in [2, 3, 4] {
        devices = devices.with(number);
        let name = format!("roles-{number}");
        let factored = devices.json(&[&roles[..], &["--run", &name]].concat(), &[]);
        let apart = apart(&factored, &alone);
        assert!(apart < 1e-5, "{number} devices: {apart:e}: {:?}", losses(&factored));
        let plan = &factored["factored"];
        assert_eq!(plan["places"].as_array().map(Vec::len), Some(number), "{plan}");
        assert_eq!(plan["keys"]["transferring"], COPY);
        let seeds: u64 = by_trainer(&factored, |trainer| amount(&trainer["seeds"])).iter().sum();
        let all: u64 = epochs(&alone).iter().map(|e| amount(&e["report"]["seeds"])).sum();
        assert_eq!(seeds, all);
        let counters = &factored["counters"][COPY];
        assert!(amount(&counters["peer_bytes"]) > 0, "{counters}");
        // By the same roles, the same bits: those of the first epochs, continued.
        let resumed = devices.json(&["train", "--resume", &name, "--epochs", "4"], &[]);
        assert_eq!(losses(&resumed)[..3], losses(&factored)[..]);
    }
    // Gradients may be stale: other losses, within what three epochs of three steps make of them, and the bound in the result.
    let stale = devices.json(&[&roles[..], &["--allow-staleness", "1"]].concat(), &[]);
    let of = &stale["stale_gradients"];
    let shares: u64 = of["shares"].as_array().expect("a list").iter().map(amount).sum();
    assert!(of["bound"] == 1 && shares > 0, "{of}");
    let apart = apart(&stale, &alone);
    assert!(apart < 0.2, "{apart:e}: {:?}", losses(&stale));
    let refused = devices.with(1).run(&roles, &[]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && error.contains("--plan factored"), "{error}");
}

#[test]
fn the_cpu_and_all_devices_share_every_step() {
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(2);
    let alone = devices.json(&[&TRAIN[..], &["--training", TRAINING]].concat(), &[]);
    let group = devices.json(&[&TRAIN[..], &["--plan", "unified", "--shares", "equal"]].concat(), &[]);
    let apart = apart(&group, &alone);
    assert!(apart < 1e-5, "{apart:e}: {:?}", losses(&group));
    let mut places: Vec<String> =
        group["unified"]["trainers"].as_array().expect("a list").iter().map(|t| t["place"].to_string()).collect();
    places.sort();
    assert_eq!(places, ["\"cuda:0\"", "\"cuda:1\"", "\"host\""]);
    let how = group["exchange"].as_str().expect("an engine");
    assert_eq!(how, "added over host memory: NCCL serves CUDA devices alone, and a trainer is at host");
}

#[test]
fn nccl_adds_the_same_bits() {
    let Some(devices) = Devices::new() else { return };
    let devices = devices.with(4);
    let library = library::build(devices.bench.path());
    let library = [("MORPHGL_NCCL", library.to_str().expect("a path of text"))];
    let train = [&TRAIN[..], &["--training", TRAINING, "--plan", "unified", "--shares", "equal"]].concat();
    let over_host = devices.json(&[&train[..], &["--exchange", "host"]].concat(), &library);
    let by_nccl = devices.json(&[&train[..], &["--exchange", "nccl"]].concat(), &library);
    assert_eq!(
        (&over_host["exchange"], &by_nccl["exchange"]),
        (&"added over host memory".into(), &"added by NCCL 2.21.5".into())
    );
    assert_eq!(losses(&by_nccl), losses(&over_host));
    let sent = by_trainer(&by_nccl, |trainer| amount(&trainer["counters"][TRAINING]["exchange_bytes"]));
    assert!(sent.len() == 4 && sent[0] > 0, "{sent:?}");
    balanced(&sent, 0.0);
    // Where both are there, the faster one adds, and both times are said.
    let how = devices.json(&train, &library)["exchange"].as_str().expect("an engine").to_string();
    assert!(how.contains("NCCL 2.21.5") && how.contains("host memory") && how.contains(" per step"), "{how}");
    let absent = [("MORPHGL_NCCL", "/nowhere/libnccl.so.2")];
    let train = [&train[..], &["--exchange", "nccl"]].concat();
    let refused = devices.run(&train, &absent);
    fails(
        &refused,
        &train,
        &["--exchange nccl: ", "MORPHGL_NCCL names /nowhere/libnccl.so.2, which cannot be loaded", "--exchange host"],
    );
    // A call fails in the first step: each trainer ends, and the failing one is named with the library's message.
    let failing = [library[0], ("MORPHGL_NCCL_FAIL", "100")];
    fails(&devices.run(&train, &failing), &train, &[TRAINING, "unhandled cuda error (nccl", "is made to fail"]);
    let alone = [&TRAIN[..], &["--plan", "sequential", "--exchange", "nccl"]].concat();
    devices.bench.misused(&alone, &["--exchange: one trainer alone adds up no gradients"]);
}
