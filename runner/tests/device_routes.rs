//! Every route to a CUDA device, or to the emulated one, trains the same model: batched by the host with features or without,
//! or by the device.
#![cfg(all(feature = "cpu", feature = "cuda"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use morphgl_graph_store::{Dataset, DatasetWriter, FeatureMatrix, OpenOptions};
use runs::{Training, alike, newest};
use serde_json::{Value, json};
use support::{Bench, not_tested};

const DMA: &str = "Transferring_PCIe_Dma";
const DMA_GATHER: &str = "Transferring_CUDA+PCIe_DmaGather";
const ZERO_COPY: &str = "Transferring_CUDA+PCIe_ZeroCopy";
const HOST_GATHER: &str = "Transferring_CPU+PCIe_HostGather";
const ON_HOST: &str = "Batching_CPU_Neighbor";
const ON_DISK: &str = "Batching_CPU+Disk_Neighbor";
const ON_DEVICE: &str = "Batching_CUDA+PCIe_Neighbor";
const TYPED_ON_DEVICE: &str = "Batching_CUDA+PCIe_Typed";
const TRAIN: [&str; 15] = [
    "train",
    "small",
    "--training",
    "Training_CUDA_Native",
    "--fanouts",
    "4,3",
    "--hidden",
    "8",
    "--batch-size",
    "64",
    "--epochs",
    "2",
    "--profile-seconds",
    "0.1",
    "--threads=2",
];

/// The bench with a dataset, where there is a device.
fn bench() -> Option<Bench> {
    let bench = Bench::with_emulated_devices();
    let ops = bench.json(&["ops"]);
    let trains = |o: &Value| o["key"] == "Training_CUDA_Native" && o["available"] == true;
    if !ops["operators"].as_array().expect("a list").iter().any(trains) {
        not_tested("no CUDA device, and not built for the emulated one: its routes are");
        return None;
    }
    bench.small();
    Some(bench)
}

/// Trains by one route, and returns its epochs.
fn epochs(bench: &Bench, batching: &str, transferring: &str, extra: &[&str]) -> Vec<Value> {
    let route = ["--batching", batching, "--transferring", transferring];
    let json = bench.json(&[&TRAIN[..], &route, extra].concat());
    let keys = &json["plan"]["schedule"]["shares"][0]["keys"];
    assert_eq!((&keys["batching"], &keys["transferring"]), (&batching.into(), &transferring.into()));
    json["epochs"].as_array().expect("a list").clone()
}

fn losses(epochs: &[Value]) -> Vec<f64> {
    epochs.iter().map(|e| e["loss"].as_f64().expect("a number")).collect()
}

fn counter(epoch: &Value, operator: &str, name: &str) -> u64 {
    let counters = &epoch["report"]["counters"];
    counters[operator][name].as_u64().unwrap_or_else(|| panic!("no {name} of {operator}: {counters:#}"))
}

#[test]
fn losses_are_the_same_by_every_route() {
    let Some(bench) = bench() else { return };
    let copied = epochs(&bench, ON_HOST, DMA, &[]);
    assert_eq!(copied.len(), 2);
    let expected = losses(&copied);
    assert!(expected.iter().all(|loss| loss.is_finite() && *loss > 0.0), "{expected:?}");
    assert_eq!(losses(&epochs(&bench, ON_DEVICE, ZERO_COPY, &[])), expected);
    assert_eq!(losses(&epochs(&bench, ON_DEVICE, HOST_GATHER, &[])), expected);
    // Rows of 32 bytes; five words of the bitmap, and an address.
    let options = |cache: u64, access: &str, order: &str| {
        let set = |option: String| ["--set".to_string(), format!("{DMA_GATHER}.{option}")];
        let cache_bytes = if cache == 0 { 0 } else { 5 * 16 + 8 + 32 * cache };
        let [access, order] = [format!("access={access}"), format!("order={order}")];
        [format!("cache_bytes={cache_bytes}"), access, order, "presample=2".into()].map(set).concat()
    };
    let mut link_bytes = Vec::new();
    for (cached, access, order) in [
        (0, "aligned", "nodes"),
        (0, "naive", "pages"),
        (50, "aligned", "pages"),
        (50, "naive", "nodes"),
        (300, "aligned", "auto"),
    ] {
        let options = options(cached, access, order);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let gathered = epochs(&bench, ON_HOST, DMA_GATHER, &options);
        assert_eq!(losses(&gathered), expected, "{cached} rows cached, {access}, by {order}");
        let last = &gathered[1];
        // The choice is reported: auto leaves a small table in the order of the nodes.
        let by_page = last["report"]["counters"][DMA_GATHER]["page_ordered_rows"].as_u64();
        assert_eq!(by_page > Some(0), order == "pages", "{by_page:?}");
        if cached > 0 {
            let [requests, hits] = ["cache_requests", "cache_hits"].map(|name| counter(last, DMA_GATHER, name));
            assert!(0 < hits && (hits < requests) == (cached < 300), "{hits} of {requests}");
        }
        link_bytes.push(counter(last, DMA_GATHER, "link_bytes"));
    }
    // Without a cache as many bytes cross the link as by the copy.
    assert_eq!(link_bytes[..2], [counter(&copied[1], DMA, "link_bytes"); 2]);
    assert!(link_bytes[0] > link_bytes[2] && link_bytes[2] > link_bytes[4], "{link_bytes:?}");
    assert_eq!(link_bytes[2], link_bytes[3]);
}

/// The planner divides the device's memory between cached rows and mini-batches; how much is cached changes no loss.
#[test]
fn the_cache_of_a_device_is_sized_with_the_plan() {
    let Some(bench) = bench() else { return };
    // 4,000 rows of 2 KiB.
    let wide = ["generate", "sbm", "-o", "wide", "--nodes", "4000", "--degree", "8", "--classes", "4", "--dim", "512"];
    bench.text(&[&wide[..], &["--split", "0.5,0.2,0.2"]].concat());
    let train: Vec<&str> = TRAIN.iter().map(|&word| if word == "small" { "wide" } else { word }).collect();
    let run = |route: [&str; 2], extra: &[&str]| {
        let route = ["--batching", route[0], "--transferring", route[1], "--evaluation", "none"];
        let mut command = bench.command(&[&train[..], &route, extra, &["--json"]].concat());
        // Less than twice as much as the rows: they are not cached before accesses are counted.
        let output = command.env("MORPHGL_CUDA_MEMORY", "14000000").output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    for route in [[ON_DEVICE, ZERO_COPY], [ON_HOST, DMA_GATHER]] {
        let planned = run(route, &[]);
        let [cache] = &planned["plan"]["caches"].as_array().expect("a list")[..] else { panic!("{}", planned["plan"]) };
        assert_eq!((&cache["operator"], &cache["memory"]), (&route[1].into(), &"device".into()));
        let (memory, bytes) = (&planned["plan"]["memory"], cache["bytes"].as_u64().expect("bytes"));
        let limit = planned["plan"]["caches"][0]["left_bytes"].as_u64().expect("a limit") + bytes;
        let curve = &planned["profile"]["routes"][0]["device_cache"];
        // A long profile fills the cache.
        let [free, held] = ["free_bytes", "bytes"].map(|name| curve[name].as_u64().expect("bytes"));
        assert_eq!(limit, (free + held) / 10 * 9);
        assert_eq!(memory["device_caches"].as_u64(), Some(bytes));
        assert!(memory["device"].as_u64().expect("bytes") + bytes <= limit, "{memory} of {limit}");
        let cached = |json: &Value, epoch: usize| {
            let counters = &json["epochs"][epoch]["report"]["counters"][route[1]];
            ["cache_requests", "cache_hits"].map(|name| counters[name].as_u64().unwrap_or(0))
        };
        // The first epoch counts accesses; whether rows are worth caching on the emulated device is a matter of its noise.
        let [requests, hits] = cached(&planned, 1);
        assert_eq!((requests > 0, hits > 0), (bytes > 2000, bytes > 2000), "{cache}: {hits} of {requests}");
        assert!(hits <= requests);
        // A size that the user gives is kept, and not planned with.
        let set = format!("{}.cache_bytes=2000000", route[1]);
        let given = run(route, &["--set", &set, "--set", &format!("{}.presample=4", route[1])]);
        let [requests, hits] = cached(&given, 1);
        assert!(0 < hits && hits < requests, "{hits} of {requests}");
        assert_eq!(given["plan"].get("caches"), None);
        let none = run(route, &["--cache", "none"]);
        assert_eq!(none["plan"].get("caches"), None);
        let losses = |json: &Value| losses(json["epochs"].as_array().expect("a list"));
        assert_eq!((losses(&planned), losses(&given)), (losses(&none), losses(&none)));
    }
}

/// The planner divides the device's memory among adjacency lists, rows and mini-batches; how much is cached changes no loss.
#[test]
fn lists_and_rows_of_a_device_are_sized_together() {
    let Some(bench) = bench() else { return };
    // Adjacency lists of 4.8 MB, rows of 4.1 MB.
    let dense =
        ["generate", "sbm", "-o", "dense", "--nodes", "4000", "--degree", "300", "--classes", "4", "--dim", "256"];
    bench.text(&[&dense[..], &["--split", "0.5,0.2,0.2"]].concat());
    let train: Vec<&str> = TRAIN.iter().map(|&word| if word == "small" { "dense" } else { word }).collect();
    let run = |extra: &[&str]| {
        let route = ["--batching", ON_DEVICE, "--transferring", ZERO_COPY, "--evaluation", "none"];
        let mut command = bench.command(&[&train[..], &route, extra, &["--json"]].concat());
        // Less than twice as much as the lists, so that they are cached while the profile is measured.
        let output = command.env("MORPHGL_CUDA_MEMORY", "9000000").output().expect("the binary starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let planned = run(&[]);
    let (caches, memory) = (planned["plan"]["caches"].as_array().expect("a list"), &planned["plan"]["memory"]);
    let operators: Vec<&Value> = caches.iter().map(|cache| &cache["operator"]).collect();
    assert_eq!(operators, [ON_DEVICE, ZERO_COPY]);
    assert!(caches.iter().all(|cache| cache["memory"] == "device"), "{caches:?}");
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}: {planned:#}"));
    let held: u64 = caches.iter().map(|cache| number(&cache["bytes"])).sum();
    assert_eq!(number(&memory["device_caches"]), held, "bytes to the byte");
    let route = &planned["profile"]["routes"][0];
    let curves = [&route["cache"], &route["device_cache"]];
    let free = curves.iter().map(|curve| number(&curve["free_bytes"])).min().expect("two");
    let limit = (free + curves.iter().map(|curve| number(&curve["bytes"])).sum::<u64>()) / 10 * 9;
    assert_eq!(number(&caches[0]["left_bytes"]), limit - held);
    assert!(number(&memory["device"]) + held <= limit, "{memory} of {limit}");
    // A size that the user gives is kept, and the other one is planned.
    let given = run(&["--set", &format!("{ON_DEVICE}.topology_bytes=2000000")]);
    let sizes: Vec<&Value> =
        given["plan"]["caches"].as_array().expect("a list").iter().map(|c| &c["operator"]).collect();
    assert_eq!(sizes, [ZERO_COPY]);
    let losses = |json: &Value| losses(json["epochs"].as_array().expect("a list"));
    let none = run(&["--cache", "none"]);
    assert_eq!(none["plan"].get("caches"), None);
    assert_eq!((losses(&planned), losses(&given)), (losses(&none), losses(&none)));
}

/// Batched by the host and by the device in turns, killed three times and resumed: the bits of an undisturbed run.
#[test]
fn a_run_of_two_routes_is_resumed_exactly() {
    let Some(bench) = bench() else { return };
    let options = ["--epochs", "4", "--batch-size", "8", "--evaluation", "none"];
    let train: Vec<&str> =
        TRAIN.iter().copied().filter(|a| !["--batch-size", "64", "--epochs", "2"].contains(a)).collect();
    // Training takes most of the time on the emulated device, so no plan of both routes is found: half of each is one.
    let planned = |plan: &str| bench.json(&[&train[..], &options, &["--plan", plan]].concat())["plan"].clone();
    let (mut plan, device) = (planned("pipeline"), planned("device"));
    let shares = [&plan, &device].map(|plan| plan["schedule"]["shares"][0].clone());
    plan["schedule"]["shares"] = shares.into();
    (plan["schedule"]["shares"][0]["batches"], plan["schedule"]["shares"][1]["batches"]) = (11.into(), 12.into());
    (plan["schedule"]["policy"], plan["schedule"]["group"]) = ("interleaved".into(), 2.into());
    std::fs::write(bench.path().join("plan.json"), plan.to_string()).expect("room");
    let whole = bench.json(&[&train[..], &options, &["--plan", "plan.json", "--run", "undisturbed"]].concat());
    let shares = whole["epochs"][0]["report"]["shares"].as_array().expect("a list");
    assert_eq!(shares.iter().map(|s| s["batches"].as_u64()).collect::<Vec<_>>(), [Some(11), Some(12)]);
    let run = bench.path().join("run");
    let every = ["--checkpoint-every", "5b"];
    let plan = ["--plan", "plan.json", "--run", "run"];
    let mut training = Training::start(bench.command(&[&train[..], &options, &plan, &every].concat()), &run);
    for _ in 0..3 {
        let next = newest(&run).map_or(2, |newest| newest + 3);
        if training.wait_for_checkpoint(next) {
            break;
        }
        training.kill();
        training = Training::start(bench.command(&[&["train", "--resume", "run"], &every[..]].concat()), &run);
    }
    let (code, _, stderr) = training.end();
    assert_eq!(code, Some(0), "{stderr}");
    alike(&run, &bench.path().join("undisturbed"));
}

#[test]
fn sampled_evaluation_is_the_same_by_every_route() {
    let Some(bench) = bench() else { return };
    bench.text(&[&TRAIN[..], &["--save", "model.safetensors"]].concat());
    let sampled = ["evaluate", "model.safetensors", "small", "--evaluation", "sampled", "--batch-size", "64"];
    let sampled = [&sampled[..], &["--fanouts", "4,3", "--training", "Training_CUDA_Native"]].concat();
    // The key of the sampler, and all else.
    let by = |extra: &[&str]| {
        let mut scores = bench.json(&[&sampled[..], extra].concat());
        (scores["sampled_by"].take(), scores)
    };
    let (host, expected) = by(&["--transferring", DMA]);
    assert_eq!(host, "Batching_CPU_Neighbor");
    assert!(expected["test"]["accuracy"].as_f64().is_some(), "{expected:#}");
    assert_eq!(by(&["--transferring", DMA_GATHER]), (host, expected.clone()));
    let (device, scores) = by(&["--transferring", ZERO_COPY]);
    assert_eq!(device, "Batching_CUDA+PCIe_Neighbor");
    assert_eq!(scores, expected);
    assert_eq!(by(&[]).1, expected);
}

#[test]
fn every_route_is_planned() {
    let Some(bench) = bench() else { return };
    let json = bench.json(&TRAIN);
    let routes = json["profile"]["routes"].as_array().expect("a list");
    let route = |r: &Value| {
        let text = |name: &str| r["route"][name].as_str().expect("text").to_string();
        [text("batching"), text("transferring"), text("gathering")]
    };
    let found: Vec<_> = routes.iter().map(route).collect();
    let expected = [
        [ON_HOST, DMA_GATHER, "Transferring"],
        [ON_HOST, DMA, "Batching"],
        [ON_DEVICE, HOST_GATHER, "Transferring"],
        [ON_DEVICE, ZERO_COPY, "Transferring"],
    ];
    assert_eq!(found, expected);
    // A mini-batch that carries no features is smaller where it was batched; and where it is trained, since all rows are there already.
    let bytes = |i: usize, name: &str| routes[i]["largest"][name].as_u64().expect("a number");
    assert!(bytes(0, "batched_bytes") < bytes(1, "batched_bytes"), "{routes:?}");
    assert!(bytes(0, "ready_bytes") < bytes(1, "ready_bytes"), "{routes:?}");
    // Phases that are all on the device are measured at once, too.
    let at_once = |r: &Value| r["overlapped"]["mean"].as_f64().is_some_and(|seconds| seconds > 0.0);
    assert_eq!(
        routes.iter().map(at_once).collect::<Vec<_>>(),
        [false, false, false, true],
        "{}",
        json["profile"]["skipped"]
    );
}

#[test]
fn a_dataset_left_on_disk_is_copied_unless_the_gather_is_named() {
    let Some(bench) = bench() else { return };
    let copied = epochs(&bench, ON_HOST, DMA, &[]);
    assert_eq!(losses(&epochs(&bench, ON_DISK, DMA, &[])), losses(&copied));
    let json = bench.json(&[&TRAIN[..], &["--batching", ON_DISK]].concat());
    assert_eq!(json["plan"]["schedule"]["shares"][0]["keys"]["transferring"], DMA, "the only route");
    let unbuilt = json["plan"]["schedule"]["shares"].as_array().expect("a list").len();
    assert_eq!(unbuilt, 1, "{}", json["plan"]);
    // Chosen by --transferring, DmaGather reads rows from device memory, host memory and the file. A row takes 32 bytes; the device
    // holds a bitmap and an address besides.
    for (cached, policy) in [(0, "none"), (0, "in-degree"), (50, "in-degree"), (300, "inclusion")] {
        let cache = format!("{DMA_GATHER}.cache_bytes={}", if cached == 0 { 0 } else { 5 * 16 + 8 + 32 * cached });
        let gathered = epochs(&bench, ON_DISK, DMA_GATHER, &["--cache", policy, "--set", &cache, "--memory", "300MiB"]);
        assert_eq!(losses(&gathered), losses(&copied), "{cached} rows cached by {policy}");
        let last = &gathered[1];
        let count = |name: &str| counter(last, DMA_GATHER, name);
        match (cached, policy) {
            (_, "none") => assert_eq!((count("host_rows"), count("disk_reads") > 0), (0, true)),
            (0, _) => assert!(count("host_rows") > 0),
            (50, _) => assert!(
                count("host_rows") > 0 && 0 < count("cache_hits") && count("cache_hits") < count("cache_requests")
            ),
            _ => assert!(count("cache_hits") > 0),
        }
    }
}

/// The graph of `small` with edge weights, a seventh of them 0.
fn weighted(bench: &Bench) {
    let small = Dataset::open(bench.path().join("small"), OpenOptions::default()).expect("sound");
    let mut writer = DatasetWriter::create(bench.path().join("weighted"), false).expect("a fresh path");
    let weights: Vec<f32> = (0..small.topology.num_edges()).map(|e| (e % 7) as f32 * 0.3).collect();
    let Some(FeatureMatrix::F32 { data, dim }) = &small.features else { panic!("f32 features") };
    writer.array("indptr", small.topology.indptr(), None).expect("room");
    writer.array("indices", small.topology.indices(), None).expect("room");
    writer.array("weights", &weights, None).expect("room");
    writer.array("features", data, Some(*dim)).expect("room");
    writer.array("labels", small.labels.as_ref().expect("labels"), None).expect("room");
    writer.array("train", &small.splits.train, None).expect("room");
    writer.array("valid", &small.splits.valid, None).expect("room");
    writer.finish("weighted", small.num_classes, Default::default()).expect("arrays that fit");
}

/// A reordered dataset trains to the losses of the original by both samplers, bit for bit, whatever of its topology is cached.
#[test]
fn a_reordered_dataset_trains_as_the_original() {
    let Some(bench) = bench() else { return };
    weighted(&bench);
    for (data, pick) in [("small", &[][..]), ("weighted", &[]), ("weighted", &["--weighted"])] {
        let hot = format!("{data}-hot");
        bench.text(&["reorder", data, "-o", &hot, "--force"]);
        let scores = |dataset: &str, batching: &str, transferring: &str, extra: &[&str]| {
            let train = TRAIN.map(|word| if word == "small" { dataset } else { word });
            let route = ["--batching", batching, "--transferring", transferring, "--dropout", "0.5"];
            let run = bench.json(&[&train[..], &route, pick, extra].concat());
            let score =
                |e: &Value| ["loss", "train_accuracy", "valid_loss", "valid_accuracy"].map(|name| e[name].clone());
            run["epochs"].as_array().expect("a list").iter().map(score).collect::<Vec<_>>()
        };
        let expected = scores(data, ON_HOST, DMA, &[]);
        assert!(expected.iter().flatten().all(|score| score.is_number()), "{expected:?}");
        assert_eq!(scores(&hot, ON_HOST, DMA, &[]), expected, "{data} {pick:?} by the host");
        assert_eq!(scores(data, ON_DEVICE, ZERO_COPY, &[]), expected, "{data} {pick:?} in its order");
        let cached = ["topology=cached", "topology_bytes=9000"].map(|option| format!("{ON_DEVICE}.{option}"));
        let features = format!("{ZERO_COPY}.cache_bytes=2000");
        for extra in [
            &[][..],
            &["--set", &format!("{ON_DEVICE}.topology=host"), "--cache", "none"],
            &["--set", &cached[0], "--set", &cached[1], "--set", &features, "--cache", "in-degree"],
        ] {
            assert_eq!(scores(&hot, ON_DEVICE, ZERO_COPY, extra), expected, "{data} {pick:?} {extra:?}");
        }
    }
}

/// The graph of `small` with two targets per node, a tenth of which is not known: whether the node's class is even, and below 2. Every
/// fourth edge has a class, whether its ends are of one class, which is not known of some, and two values.
fn labelled(bench: &Bench) {
    let small = Dataset::open(bench.path().join("small"), OpenOptions::default()).expect("sound");
    let labels = small.labels.as_ref().expect("labels");
    let value = |i: usize| match (i % 10, labels[i / 2]) {
        (7, _) => f32::NAN,
        (_, class) => f32::from(u8::from([class % 2 == 0, class < 2][i % 2])),
    };
    let targets: Vec<f32> = (0..2 * small.num_nodes()).map(value).collect();
    let rows = small.topology.indptr().windows(2).enumerate();
    let destinations = rows.flat_map(|(v, row)| std::iter::repeat_n(v as u32, (row[1] - row[0]) as usize));
    let edges = small.topology.indices().iter().copied().zip(destinations).step_by(4);
    let edges: Vec<u32> = edges.flat_map(|(source, target)| [source, target]).collect();
    let class = |(i, ends): (usize, &[u32])| match i % 10 {
        7 => -1,
        _ => i32::from(labels[ends[0] as usize] == labels[ends[1] as usize]),
    };
    let classes: Vec<i32> = edges.chunks_exact(2).enumerate().map(class).collect();
    let values: Vec<f32> = (0..edges.len()).map(|i| if i % 7 == 3 { f32::NAN } else { (i as f32).sin() }).collect();
    let mut writer = DatasetWriter::create(bench.path().join("labelled"), false).expect("a fresh path");
    let Some(FeatureMatrix::F32 { data, dim }) = &small.features else { panic!("f32 features") };
    writer.array("indptr", small.topology.indptr(), None).expect("room");
    writer.array("indices", small.topology.indices(), None).expect("room");
    writer.array("features", data, Some(*dim)).expect("room");
    writer.array("targets", &targets, Some(2)).expect("room");
    writer.array("train_edges", &edges, Some(2)).expect("room");
    writer.array("train_edges_labels", &classes, None).expect("room");
    writer.array("train_edges_targets", &values, Some(2)).expect("room");
    writer.array("valid_edges", &edges[..200], Some(2)).expect("room");
    writer.array("valid_edges_labels", &classes[..100], None).expect("room");
    writer.array("valid_edges_targets", &values[..200], Some(2)).expect("room");
    writer.array("train", &small.splits.train, None).expect("room");
    writer.array("valid", &small.splits.valid, None).expect("room");
    writer.finish("labelled", 0, Default::default()).expect("arrays that fit");
}

/// Every task has the same losses, in training and validation, whatever samples and moves its mini-batches, and those of the CPU but for
/// rounding.
#[test]
fn every_task_is_the_same_by_every_route() {
    let Some(bench) = bench() else { return };
    labelled(&bench);
    for (data, options) in [
        ("small", "--loss-option class_weights=balanced --loss-option label_smoothing=0.1"),
        ("labelled", "--task multilabel --loss-option positive_weight=2.0"),
        ("labelled", "--task regress --loss huber"),
        ("small", "--task link --negatives 2 --decoder distmult"),
        ("small", "--task link --negatives 2 --decoder mlp --loss margin --sampler shadow --evaluation none"),
        ("labelled", "--on edges --task classify --embedding 8 --loss-option label_smoothing=0.1"),
        ("labelled", "--on edges --task regress --embedding 8 --sampler shadow"),
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        let sampler = if options.contains(&"shadow") { "Shadow" } else { "Neighbor" };
        let [on_host, on_device] = ["CPU", "CUDA+PCIe"].map(|hardware| format!("Batching_{hardware}_{sampler}"));
        let run = |training: &str, batching: &str, transferring: &str| {
            let word = |word| match word {
                "small" => data,
                "Training_CUDA_Native" => training,
                word => word,
            };
            let route = ["--batching", batching, "--transferring", transferring];
            let run = bench.json(&[&TRAIN.map(word)[..], &options, &route].concat());
            let epochs = run["epochs"].as_array().expect("a list").iter();
            // Links have no pairs to validate.
            epochs.flat_map(|e| [&e["loss"], &e["valid_loss"]]).filter_map(Value::as_f64).collect::<Vec<_>>()
        };
        let expected = run("Training_CUDA_Native", &on_host, DMA);
        assert_eq!(expected.len(), if options.contains(&"link") { 2 } else { 4 }, "{options:?}: {expected:?}");
        assert_eq!(run("Training_CUDA_Native", &on_host, DMA_GATHER), expected, "{options:?}, gathered by the device");
        assert_eq!(run("Training_CUDA_Native", &on_device, ZERO_COPY), expected, "{options:?}, sampled by the device");
        let on_cpu = run("Training_CPU_Native", &on_host, "Transferring_CPU_Host");
        assert!(apart(&on_cpu, &expected) < 1e-4, "{options:?}: {expected:?}, on the CPU {on_cpu:?}");
    }
}

/// Subgraphs and walks that the device samples train to the losses of those of the host, bit for bit, wherever the topology lies and
/// in another order of the nodes; and the CPU trains on them alike, importance included.
#[test]
fn subgraphs_and_walks_of_the_device_train_as_those_of_the_host() {
    let Some(bench) = bench() else { return };
    bench.text(&["reorder", "small", "-o", "hot"]);
    let of_hops = |word: &&str| !["--fanouts", "4,3", "--training", "Training_CUDA_Native"].contains(word);
    let train: Vec<&str> = TRAIN.iter().copied().filter(of_hops).collect();
    let walk = ["--sampler", "walk", "--walks", "6", "--walk-length", "3", "--restart", "0.3", "--neighbors", "5"];
    for (name, sampler) in [("Shadow", &["--sampler", "shadow", "--fanouts", "4,3"][..]), ("Walk", &walk)] {
        let [on_host, on_device] = ["CPU", "CUDA+PCIe"].map(|hardware| format!("Batching_{hardware}_{name}"));
        let run = |dataset: &str, memory: Option<&str>, extra: &[&str]| {
            let train: Vec<&str> = train.iter().map(|&word| if word == "small" { dataset } else { word }).collect();
            let mut command =
                bench.command(&[&train[..], sampler, extra, &["--evaluation", "sampled", "--json"]].concat());
            let output = command.envs(memory.map(|bytes| ("MORPHGL_CUDA_MEMORY", bytes))).output();
            let output = output.expect("the binary starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
        };
        let scores = |json: &Value| -> Vec<Value> {
            let of = |e: &Value| json!([e["loss"], e["valid_loss"], e["valid_accuracy"]]);
            json["epochs"].as_array().expect("a list").iter().map(of).collect()
        };
        for model in ["sage", "gat"] {
            let model = ["--model", model, "--training", "Training_CUDA_Native"];
            let by = |batching: &str, transferring: &str, dataset: &str, memory: Option<&str>, more: &[&str]| {
                let route = ["--batching", batching, "--transferring", transferring];
                let json = run(dataset, memory, &[&model[..], &route, more].concat());
                assert_eq!(json["plan"]["schedule"]["shares"][0]["keys"]["batching"], batching);
                scores(&json)
            };
            let expected = by(&on_host, DMA, "small", None, &[]);
            assert!(expected.iter().all(|score| score[0].as_f64() > Some(0.0)), "{expected:?}");
            assert_eq!(by(&on_device, ZERO_COPY, "small", None, &[]), expected, "{name} {model:?}");
            assert_eq!(by(&on_device, ZERO_COPY, "hot", None, &["--cache", "in-degree"]), expected, "{name} {model:?}");
            let cached = ["topology=cached", "topology_bytes=9000"].map(|option| format!("{on_device}.{option}"));
            let cached = ["--set", &cached[0], "--set", &cached[1]];
            assert_eq!(by(&on_device, ZERO_COPY, "small", None, &cached), expected, "{name} {model:?}");
            // Less than twice as much as the topology, which then stays on the host.
            let little = by(&on_device, ZERO_COPY, "small", Some("2000000"), &["--cache", "none"]);
            assert_eq!(little, expected, "{name} {model:?} with little memory");
        }
        // Both samplers are among those that plans choose of.
        let planned = run("small", None, &["--training", "Training_CUDA_Native"]);
        let routes = planned["profile"]["routes"].as_array().expect("a list");
        for key in [&on_host, &on_device] {
            assert!(routes.iter().any(|route| route["route"]["batching"] == **key), "{key}: {routes:#?}");
        }
        let losses = |json: &Value| losses(json["epochs"].as_array().expect("a list"));
        let by_cpu = run("small", None, &["--training", "Training_CPU_Native", "--batching", &on_host]);
        let apart = apart(&losses(&planned), &losses(&by_cpu));
        assert!(apart < 1e-5, "{name}: {apart:e}: {:?} and {:?}", losses(&planned), losses(&by_cpu));
    }
}

/// Typed models train on a device to the losses and scores of the CPU, by the copies of mini-batches that are sampled by edge type, and to
/// the same bits by those that the device samples.
#[test]
fn typed_models_have_the_losses_of_the_cpu() {
    let Some(bench) = bench() else { return };
    for name in ["all", "papers"] {
        let args =
            format!("generate typed -o {name} --nodes 1500 --classes 5 --dim 16 --homophily 0.6 --features {name}");
        bench.text(&args.split(' ').collect::<Vec<_>>());
    }
    let train: Vec<&str> =
        TRAIN[2..].iter().copied().filter(|word| !["--training", "Training_CUDA_Native"].contains(word)).collect();
    for (dataset, model) in [
        ("all", &["rsage"][..]),
        ("all", &["rgcn"]),
        ("papers", &["rsage"]),
        ("papers", &["rgcn", "--bases", "2", "--optimizer", "adamw"]),
        ("papers", &["sage", "--sampler", "typed"]),
        ("all", &["rgat", "--heads", "2"]),
        ("papers", &["rgat", "--heads", "4", "--output-heads", "2"]),
    ] {
        let run = |batching: &str, transferring: &str, training: &str| -> Value {
            let route = ["--batching", batching, "--transferring", transferring, "--training", training];
            bench.json(&[&["train", dataset], &train[..], &route, &["--model"], model].concat())
        };
        let of_each = |json: &Value, name: &str| -> Vec<f64> {
            let epochs = json["epochs"].as_array().expect("a list");
            epochs.iter().map(|e| e[name].as_f64().expect("a number")).collect()
        };
        let on_device = run("Batching_CPU_Typed", DMA, "Training_CUDA_Native");
        let on_cpu = run("Batching_CPU_Typed", "Transferring_CPU_Host", "Training_CPU_Native");
        for (name, tolerance) in [("loss", 1e-5), ("valid_loss", 1e-4)] {
            let [found, expected] = [&on_device, &on_cpu].map(|json| of_each(json, name));
            let apart = apart(&found, &expected);
            assert!(apart < tolerance, "{dataset}, {model:?}, {name}: {apart:e}: {found:?}, on the CPU {expected:?}");
        }
        let sampled_there = run(TYPED_ON_DEVICE, ZERO_COPY, "Training_CUDA_Native");
        for name in ["loss", "valid_loss"] {
            let [found, expected] = [&sampled_there, &on_device].map(|json| of_each(json, name));
            assert_eq!(found, expected, "{dataset}, {model:?}, {name}: wherever mini-batches are sampled");
        }
    }
    // Both samplers are among those that plans choose of.
    let planned = [&["train", "all"], &train[..], &["--training", "Training_CUDA_Native", "--model", "rsage"]].concat();
    let planned = bench.json(&planned);
    let routes = planned["profile"]["routes"].as_array().expect("a list");
    for key in ["Batching_CPU_Typed", TYPED_ON_DEVICE] {
        assert!(routes.iter().any(|route| route["route"]["batching"] == key), "{key}: {routes:#?}");
    }
    // What is not trained there is refused by name.
    let refused = |words: &[&str], why: &[&str]| {
        bench.refused(
            &[&["train", "all"], &train[..], &["--training", "Training_CUDA_Native", "--model"], words].concat(),
            why,
        );
    };
    refused(&["hgt"], &["the model hgt", "not trained on CUDA devices"]);
    refused(&["rgat", "--attention", "gatv2"], &["attention gatv2", "not trained on CUDA devices"]);
    refused(&["rgcn", "--diagonal-blocks", "1"], &["diagonal_blocks", "not trained on CUDA devices"]);
}

/// `TRAIN` without a chosen training operator.
fn train_unified(extra: &[&'static str]) -> Vec<&'static str> {
    let free = TRAIN.iter().copied().filter(|a| !["--training", "Training_CUDA_Native"].contains(a));
    free.chain(extra.iter().copied()).collect()
}

/// How far losses are from those expected, as a share of them.
fn apart(losses: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(losses.len(), expected.len(), "epochs");
    losses.iter().zip(expected).map(|(a, e)| (a / e - 1.0).abs()).fold(0.0, f64::max)
}

#[test]
fn the_cpu_and_a_device_share_every_step() {
    let Some(bench) = bench() else { return };
    let alone = bench.json(&TRAIN);
    // Equal shares: by measured speeds the emulated device might get none.
    let unified = bench.json(&train_unified(&["--plan", "unified", "--shares", "equal"]));
    let epochs = |json: &Value| json["epochs"].as_array().expect("a list").clone();
    let (alone, shared) = (epochs(&alone), epochs(&unified));
    let apart = apart(&losses(&shared), &losses(&alone));
    assert!(apart < 1e-5, "{apart:e}: {:?} instead of {:?}", losses(&shared), losses(&alone));
    for epoch in &shared {
        let count = |name: &str| (epoch["report"][name].as_u64(), alone[0]["report"][name].as_u64());
        assert_eq!(count("seeds").0, count("seeds").1);
        counter(epoch, "Training_CUDA_Native", "exchange_micros");
    }
    let trainers = unified["unified"]["trainers"].as_array().expect("a list");
    let key = |t: &Value| t["plan"]["schedule"]["shares"][0]["keys"]["training"].as_str().expect("a key").to_string();
    let mut keys: Vec<String> = trainers.iter().map(key).collect();
    keys.sort();
    assert!(keys.len() == 2 && keys[0].starts_with("Training_CPU_") && keys[1] == "Training_CUDA_Native", "{keys:?}");
    let shares: f64 = trainers.iter().map(|t| t["share"].as_f64().expect("a share")).sum();
    assert!((shares - 1.0).abs() < 1e-12, "{shares}");
    assert!(unified["unified"]["all_reduce_seconds"].as_f64().expect("measured") > 0.0);
    let one = [&TRAIN[..], &["--plan", "unified"]].concat();
    bench.misused(&one, &["--plan unified: one place alone can train here; use --plan auto"]);
}

/// Rows of a task are sampled on the CPU and trained on a device, by it alone and by a group with the CPU; the device's own sampler refuses
/// them by name.
#[test]
fn rows_of_a_task_are_sampled_on_the_cpu() {
    let Some(bench) = bench() else { return };
    let source = morphgl_testdata::path("typed/shop/churn.toml");
    bench.text(&["import", "manifest", source.to_str().expect("a path"), "-o", "churn"]);
    let args = |more: &str| {
        let train =
            "train churn --model rsage --fanouts 4,4 --hidden 8 --batch-size 20 --epochs 2 --profile-seconds 0.1";
        format!("{train} {more}")
    };
    let found = |more: &str| losses_of(&bench.json(&args(more).split_whitespace().collect::<Vec<_>>()));
    let expected = found("--training Training_CPU_Native");
    for more in ["--training Training_CUDA_Native", "--plan unified"] {
        let found = found(more);
        let apart = apart(&found, &expected);
        assert!(apart < 1e-4, "{more}: {apart:e}: {found:?} instead of {expected:?}");
    }
    let named = args(&format!("--training Training_CUDA_Native --batching {TYPED_ON_DEVICE}"));
    let words = [TYPED_ON_DEVICE, "does not take rows of a task", "takes_rows"];
    bench.refused(&named.split_whitespace().collect::<Vec<_>>(), &words);
}

/// `auto` trains with all trainers where they are predicted to be faster together than one alone.
#[test]
fn auto_has_the_group_among_its_candidates() {
    let Some(bench) = bench() else { return };
    let trained = bench.json(&train_unified(&["--evaluation", "none"]));
    if let Some(seconds) = trained["unified"]["epoch_seconds"].as_f64() {
        assert_eq!(trained["predicted_epoch_seconds"].as_f64(), Some(seconds));
    }
    let planned = bench.json(&["plan", "small", "--fanouts", "4,3", "--profile-seconds", "0.1", "--threads=2"]);
    // The emulated device is slow, and left out where its share would be less than half a seed.
    let of = |list: &str| planned["unified"][list].as_array().map_or(0, Vec::len);
    assert_eq!(of("trainers") + of("left_out"), 2, "{}", planned["unified"]);
    let one = bench.json(&["plan", "small", "--training", "Training_CUDA_Native", "--profile-seconds", "0.1"]);
    assert_eq!(one["unified"], Value::Null);
}

/// Interrupted in mid-epoch and killed: all trainers end after the same step, and go on from the same checkpoint.
#[test]
fn unified_training_is_resumed() {
    let Some(bench) = bench() else { return };
    let train: Vec<&str> = train_unified(&["--plan", "unified", "--evaluation", "none"])
        .into_iter()
        .map(|argument| if argument == "64" { "8" } else { argument })
        .collect();
    let whole = bench.json(&train);
    let run = bench.path().join("run");
    let started = [&train[..], &["--run", "run", "--checkpoint-every", "5b"]].concat();
    let mut training = Training::start(bench.command(&started), &run);
    for signal in [Some("-INT"), None] {
        let next = newest(&run).map_or(2, |newest| newest + 2);
        if training.wait_for_checkpoint(next) {
            break;
        }
        match signal {
            None => training.kill(),
            Some(signal) => {
                let id = training.id().to_string();
                std::process::Command::new("kill").args([signal, &id]).status().expect("kill runs");
                let (code, _, stderr) = training.end();
                assert!(code == Some(1) || code == Some(0), "{code:?}: {stderr}");
            }
        }
        training = Training::start(bench.command(&["train", "--resume", "run", "--json"]), &run);
    }
    let (code, stdout, stderr) = training.end();
    assert_eq!(code, Some(0), "{stderr}");
    let resumed: Value = serde_json::from_str(&stdout).expect("JSON");
    let epochs = |json: &Value| json["epochs"].as_array().expect("a list").clone();
    let apart = apart(&losses(&epochs(&resumed)), &losses(&epochs(&whole)));
    assert!(apart < 1e-5, "{apart:e}");
}

/// `TRAIN` in mini-batches so small that an epoch has several super-batches, with these options besides.
fn train_split<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let without = ["--batch-size", "64", "--fanouts", "4,3"];
    let train = TRAIN.iter().copied().filter(|argument| !without.contains(argument));
    let fanouts = if extra.iter().any(|e| e.starts_with("--fanouts")) { "" } else { "--fanouts=4,3" };
    let options = ["--batch-size=4", "--evaluation=none", fanouts].into_iter().filter(|option| !option.is_empty());
    train.chain(options).chain(extra.iter().copied()).collect()
}

fn losses_of(run: &Value) -> Vec<f64> {
    losses(run["epochs"].as_array().expect("a list"))
}

/// The host computes the first layer of hot nodes, whose rows are copied to the device once for several mini-batches, whether the
/// host samples these or the device.
#[test]
fn layers_are_split_beside_the_device() {
    let Some(bench) = bench() else { return };
    let split = ["--allow-staleness=31", "--hot-ratio=0.5"];
    let mut by_route = Vec::new();
    for (batching, transferring) in [(ON_HOST, DMA), (ON_HOST, DMA_GATHER), (ON_DEVICE, ZERO_COPY)] {
        let route = ["--batching", batching, "--transferring", transferring];
        let exact = bench.json(&train_split(&route));
        assert_eq!(exact["layer_split"], Value::Null);
        let run = || bench.json(&train_split(&[&route[..], &split].concat()));
        let [first, second] = [run(), run()];
        assert_eq!(losses_of(&first), losses_of(&second), "two runs have the same bits");
        assert_ne!(losses_of(&first), losses_of(&exact), "rows are stale");
        let plan = &first["layer_split"]["plan"];
        let keys = &plan["split"]["plan"]["schedule"]["shares"][0]["keys"];
        assert_eq!(
            keys,
            &serde_json::json!({"batching": batching, "transferring": transferring, "training": "Training_CUDA_Native"})
        );
        let count = |counter: &str| first["counters"][transferring][counter].as_u64().unwrap_or(0);
        let (batches, staleness) = (count("given_batches"), count("staleness_steps"));
        assert!(batches > 0 && count("given_rows") > 0 && count("computed_rows") > 0, "{}", first["counters"]);
        let most = plan["staleness"].as_u64().expect("steps");
        assert!(most <= 31 && (batches..=most * batches).contains(&staleness), "{staleness} steps in {batches}");
        assert!(first["layer_split"]["given_share"].as_f64() > Some(0.3), "{}", first["layer_split"]);
        let trained = losses_of(&first);
        assert!(trained.iter().all(|loss| loss.is_finite()), "{trained:?}");
        // Without hot nodes training is exact.
        let none = bench.json(&train_split(&[&route[..], &["--allow-staleness=31", "--hot-ratio=0"]].concat()));
        assert_eq!(losses_of(&none), losses_of(&exact));
        by_route.push(trained);
    }
    assert_eq!([&by_route[1], &by_route[2]], [&by_route[0]; 2], "where mini-batches are made changes no bit");

    // Routes are found by what their descriptions say. Resumed, a run has the bits of an undisturbed one.
    bench.json(&train_split(&[&split[..], &["--run", "run"]].concat()));
    let resumed = bench.json(&["train", "--resume", "run", "--epochs", "3"]);
    let whole: Vec<&str> = train_split(&split).into_iter().filter(|a| !["--epochs", "2"].contains(a)).collect();
    let whole = bench.json(&[&whole[..], &["--epochs", "3"]].concat());
    assert_eq!(losses_of(&resumed), losses_of(&whole));
    assert_eq!(losses_of(&whole)[..2], by_route[0][..]);
    assert!(resumed["layer_split"]["super_batches"].as_u64() > Some(0), "{}", resumed["layer_split"]);
}

/// The CPU and a device share steps with given rows, which are computed once for both: with parameters that stay, and all neighbours in
/// the first layer, they have the losses of the CPU alone.
#[test]
fn the_cpu_and_a_device_split_layers_together() {
    let Some(bench) = bench() else { return };
    let split = ["--allow-staleness=31", "--hot-ratio=0.5", "--lr=1e-30", "--fanouts=4,-1"];
    let train = |more: &[&'static str]| {
        let args = train_split(&[&split[..], more].concat());
        let free = args.into_iter().filter(|a| !["--training", "Training_CUDA_Native"].contains(a));
        losses_and_split(&bench.json(&free.collect::<Vec<_>>()))
    };
    let (alone, _) = train(&["--training=Training_CPU_Native"]);
    for shares in ["--shares=equal", "--shares=dynamic"] {
        let (shared, split) = train(&["--plan=unified", shares]);
        let apart = apart(&shared, &alone);
        assert!(apart < 1e-6, "{shares}: {apart:e}: {shared:?} instead of {alone:?}");
        assert!(split["given_share"].as_f64() > Some(0.3) && split["super_batches"].as_u64() > Some(2), "{split}");
    }
}

fn losses_and_split(run: &Value) -> (Vec<f64>, Value) {
    (losses_of(run), run["layer_split"].clone())
}

/// Rows of parameters that do not change are the computed ones, where all neighbours are sampled.
#[test]
fn given_rows_of_unchanged_parameters_give_exact_losses_on_the_device() {
    let Some(bench) = bench() else { return };
    for kind in ["sage", "gcn"] {
        let unchanged = ["--model", kind, "--lr=1e-30", "--fanouts=-1,-1"];
        let exact = losses_of(&bench.json(&train_split(&unchanged)));
        let split = bench.json(&train_split(&[&unchanged[..], &["--allow-staleness=31", "--hot-ratio=1"]].concat()));
        assert!(split["layer_split"]["given_share"].as_f64() > Some(0.5), "{}", split["layer_split"]);
        let apart = apart(&losses_of(&split), &exact);
        assert!(apart < 1e-5, "{kind}, {apart:e}: {:?} instead of {exact:?}", losses_of(&split));
    }
}

/// Systems of the papers are planned and trained by the operators and caches of a device.
#[test]
fn systems_by_name_take_the_operators_and_caches_of_the_device() {
    let Some(bench) = bench() else { return };
    let plan = |name: &'static str| {
        let options = [&["plan"], &TRAIN[1..10], &["--profile-seconds", "0.1", "--threads=2", "--as", name]];
        bench.json(&options.concat())["as"].clone()
    };
    for (name, batching, transferring, cache) in [
        ("dgl", ON_DEVICE, HOST_GATHER, json!("none")),
        ("salient", ON_HOST, DMA, Value::Null),
        ("pagraph", ON_HOST, DMA_GATHER, json!("out-degree")),
        ("ducati", ON_DEVICE, ZERO_COPY, Value::Null),
        ("neutronorch-case-4", ON_DEVICE, ZERO_COPY, json!("presample:1")),
    ] {
        let own = plan(name);
        let sets = &own["sets"];
        let expected = (&batching.into(), &transferring.into(), &cache);
        assert_eq!((&sets["--batching"], &sets["--transferring"], &sets["--cache"]), expected, "{name}");
        assert!(own["left_out"].is_null() && own["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{own}");
    }
    let other = [&TRAIN[..], &["--as", "pagraph", "--cache", "in-degree"]].concat();
    bench.misused(&other, &["--cache with --as pagraph", "out-degree"]);
    let trained = bench.json(&[&TRAIN[..], &["--as", "pagraph", "--cache", "out-degree:1MiB"]].concat());
    assert_eq!(trained["config"]["cache"], "out-degree", "with the size that is given");
    assert_eq!(trained["plan"]["schedule"]["shares"][0]["keys"]["transferring"], DMA_GATHER);
}
