//! `--machine`: plans for machines that are described, and training on them in simulated time.

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use morphgl::LinkUse;
use morphgl_profile::{LinkProfile, LinkShare};
use morphgl_report::{Bar, Lane, Timeline, Work};
use morphgl_sim::NAMED;
use serde_json::Value;
use support::Bench;

/// What the first and the last line of a simulated run begin with.
const NOTICE: &str = "simulated: machine ";

fn epoch_seconds(plan: &Value) -> f64 {
    plan["prediction"]["epoch_seconds"].as_f64().expect("seconds")
}

fn both_ends_say(text: &str) {
    let (first, last) = (text.lines().next().expect("a line"), text.lines().last().expect("a line"));
    assert!(first.starts_with(NOTICE) && last.starts_with(NOTICE), "{text}");
}

#[test]
fn every_machine_that_comes_along_is_planned_for() {
    let bench = Bench::new();
    bench.small();
    for (name, _) in NAMED {
        let json = bench.json(&["plan", "small", "--machine", name]);
        let strategies: Vec<&str> =
            json["plans"].as_array().expect("a list").iter().filter_map(|p| p["strategy"].as_str()).collect();
        let devices = json["machine"]["device"].as_array().expect("a list");
        let samples = devices.iter().any(|device| device["sampling_m_edges_per_s"].is_number());
        let expected: &[&str] = match samples {
            true => &["sequential", "pipeline", "device", "paper", "interleaved"],
            false => &["sequential", "pipeline"],
        };
        // A mix of routes is left out where no division of the mini-batches comes near a route alone.
        let (always, _) = expected.split_at(expected.len().min(3));
        assert!(always.iter().all(|strategy| strategies.contains(strategy)), "{name}: {strategies:?}");
        assert!(epoch_seconds(&json["plan"]) > 0.0, "{name}");
        assert_eq!(json["unified"].is_null(), devices.is_empty(), "{name}: the CPU and a device train together");
        assert_eq!(json["profile"]["machine"]["cores"], json["machine"]["host"]["cores"], "{name}");
    }
}

#[test]
fn a_plan_for_eight_devices_has_a_timeline_and_a_report_that_say_what_they_are() {
    let bench = Bench::new();
    let start = Instant::now();
    let text = bench.text(&["plan", "--machine", "eight-v100", "--timeline", "t.svg", "--report", "r.html"]);
    assert!(start.elapsed() < Duration::from_secs(120), "{:?}", start.elapsed());
    both_ends_say(&text);
    assert!(text.contains("trainers together") && text.contains("all-reduce"), "{text}");
    let read = |file: &str| fs::read_to_string(bench.path().join(file)).expect("written");
    assert!(read("t.svg").starts_with("<svg"));
    let page = read("r.html");
    for words in ["simulated machine eight-v100", "nothing was measured", "unified", "NVIDIA V100, simulated"] {
        assert!(page.contains(words), "{words:?} is in the report");
    }
    let links = bench.json(&["plan", "--machine", "eight-v100"])["unified"]["links"].clone();
    for (link, name) in links.as_array().expect("a list").iter().zip(["switch0", "switch1"]) {
        assert_eq!(link["link"]["name"], name, "{links}");
        assert!(link["share"].as_f64().is_some_and(|share| share > 0.0 && share <= 1.0), "{links}");
        assert!(text.contains(&format!("link {name}, shared by sim:")), "{text}");
        assert!(page.contains(&format!("{name}, shared by sim:")), "{name} is among the resources");
    }
    assert_eq!(links.as_array().map(Vec::len), Some(2), "{links}");
    let list = bench.text(&["plan", "--machine", "list"]);
    assert!(NAMED.iter().all(|(name, _)| list.contains(name)), "{list}");
}

const SMALL: [&str; 10] =
    ["small", "--batch-size", "25", "--layers", "2", "--hidden", "16", "--fanouts", "4,4", "--quiet"];

fn train(more: &[&str]) -> Vec<String> {
    [&["train"], &SMALL[..], more].concat().into_iter().map(String::from).collect()
}

#[track_caller]
fn run(bench: &Bench, args: &[String]) -> String {
    bench.text(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn metrics(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("written");
    let mut rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // The only time that is real.
    rows.iter_mut().for_each(|row| row["evaluation_seconds"] = Value::Null);
    rows
}

#[test]
fn training_is_executed_in_simulated_time_as_planned_and_says_so() {
    let bench = Bench::new();
    bench.small();
    for plan in ["auto", "sequential", "pipeline", "device", "unified"] {
        let machine: &[&str] = match plan {
            "auto" => &["laptop"],
            // Every device has as many seeds, which the prediction is of.
            "unified" => &["eight-v100", "--shares", "equal"],
            _ => &["a100"],
        };
        let text = run(&bench, &train(&[&["--plan", plan, "--run", plan, "--machine"], machine].concat()));
        both_ends_say(&text);
        assert!(text.contains("nothing is learned"), "{text}");
        let dir = bench.path().join(plan);
        let rows = metrics(&dir);
        assert_eq!(rows.len(), 3, "the default: nothing is learned in more epochs");
        for row in &rows {
            let seconds = |name: &str| row[name].as_f64().expect("seconds");
            let ratio = seconds("seconds") / seconds("predicted_seconds");
            // Mini-batches differ, and the prediction is that of four of them.
            assert!((0.85..1.15).contains(&ratio), "{plan}: {ratio} of the prediction");
        }
        assert!(!dir.join("model.safetensors").exists(), "nothing was learned");
        let page = fs::read_to_string(dir.join("report.html")).expect("written");
        assert!(page.contains("simulated"), "{plan}: the report is marked");
        if plan == "unified" {
            // Predicted and executed use of each link, which differ as the mini-batches do.
            let (_, of_link) = page.split_once("switch1, shared by sim:4").expect("a link among the resources");
            let digits = |text: &str| text.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect::<String>();
            let values =
                of_link.split(r#"class="value">"#).skip(1).map(|text| digits(text).parse::<f64>().expect("a figure"));
            let [predicted, executed] = values.take(2).collect::<Vec<_>>()[..] else {
                panic!("two figures: {of_link}")
            };
            // These copies are latencies, which the prediction has one after another, and simulated devices beside each other.
            assert!(executed > 0.0 && executed <= predicted + 1.0, "{executed}%, predicted {predicted}%");
        }
    }
}

#[test]
fn runs_repeat_to_the_bit_and_are_resumed_to_the_same_bits() {
    let bench = Bench::new();
    bench.small();
    let unified = ["--machine", "eight-v100", "--plan", "unified"];
    // Dynamic shares follow measured speeds, and these are the same in simulated time.
    let (equal, fixed) = (["--shares", "equal"], ["--shares", "static"]);
    for (name, epochs, shares) in [
        ("b1", "3", &[][..]),
        ("b2", "3", &["--shares", "balanced"]),
        ("one", "3", &equal),
        ("two", "3", &equal),
        ("resumed", "1", &equal),
        ("static-one", "3", &fixed),
        ("static-two", "3", &fixed),
        ("static-resumed", "1", &fixed),
    ] {
        run(&bench, &train(&[&unified[..], shares, &["--epochs", epochs, "--run", name]].concat()));
    }
    let of = |name: &str| metrics(&bench.path().join(name));
    assert_eq!(of("b1"), of("b2"), "dynamic shares have an earlier name");
    assert_eq!(of("one"), of("two"));
    assert_eq!(of("static-one"), of("static-two"));
    for (name, whole) in [("resumed", "one"), ("static-resumed", "static-one")] {
        let text = bench.text(&["train", "--resume", name, "--epochs", "3", "--quiet"]);
        both_ends_say(&text);
        assert_eq!(of(name), of(whole));
    }
    bench.misused(&["evaluate", "one"], &["one", "eight-v100", "learned nothing"]);
}

#[test]
fn faults_of_a_description_are_named_with_file_line_and_cure() {
    let bench = Bench::new();
    let (_, a100) = NAMED.iter().find(|(name, _)| *name == "a100").expect("there");
    let plan = |text: &str| {
        fs::write(bench.path().join("mine.toml"), text).expect("room on the disk");
        ["plan", "--machine", "mine.toml"]
    };
    let args = plan(&a100.replacen("cores =", "coers =", 1));
    bench.misused(&args, &["--machine", "mine.toml, line 6", "coers", "cores", "docs/machines.md"]);
    let args = plan(&a100.replacen("link = \"pcie\"", "link = \"pci\"", 1));
    bench.misused(&args, &["mine.toml, line ", "\"pci\"", "give one of: pcie"]);
    bench.misused(&["plan", "--machine", "none.toml"], &["--machine", "none.toml"]);
    bench.misused(&["plan", "--machine", "v100"], &["v100", "eight-v100", "list"]);
}

#[test]
fn what_has_no_meaning_on_a_described_machine_is_refused_by_name() {
    let bench = Bench::new();
    bench.small();
    for (option, value) in [
        ("--save", Some("m.safetensors")),
        ("--evaluation", Some("full")),
        ("--patience", Some("2")),
        ("--profile-seconds", Some("1")),
        ("--fresh", None),
        ("--allow-staleness", Some("4")),
        ("--exchange", Some("host")),
    ] {
        let plan: &[&str] = if option == "--exchange" { &["--plan", "unified"] } else { &[] };
        let given = [&["train", "small", "--machine", "a100", option][..], value.as_slice(), plan].concat();
        bench.misused(&given, &[option, "--machine"]);
    }
    let batching = ["plan", "small", "--machine", "npu", "--batching", "Batching_PCIe+SIM_Neighbor"];
    bench.refused(&batching, &["Huawei Ascend 910", "does not sample"]);
    let sampler = ["plan", "small", "--machine", "a100", "--sampler", "shadow"];
    bench.refused(&sampler, &["shadow", "neighbor"]);
}

/// The table of docs/machines.md is the one that the files of the machines make.
#[test]
fn the_documents_table_is_that_of_the_files() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/machines.md");
    let text = fs::read_to_string(document).expect("there");
    let table = morphgl_sim::table();
    assert!(text.ends_with(&table), "docs/machines.md has to end with\n{table}");
}

/// Copies by two devices from 0 to 2 and from 1 to 3 of 4 seconds, and other work on the same devices throughout.
#[test]
fn phases_at_once_take_all_of_a_link_at_most() {
    let lane =
        |name: &str, resource: &str| Lane { name: name.to_string(), resource: resource.to_string(), simulated: false };
    let bar = |lane: usize, start: f64, end: f64| Bar {
        work: Work::Transferring,
        batch: 0,
        epoch: 0,
        route: 0,
        start,
        end,
        lanes: vec![lane],
    };
    let lanes = [("cuda:0: PCIe:0", "PCIe:0"), ("cuda:1: PCIe:1", "PCIe:1"), ("cuda:0: CUDA:0", "CUDA:0")];
    let timeline = Timeline {
        lanes: lanes.map(|(name, resource)| lane(name, resource)).to_vec(),
        activities: vec![bar(0, 0.0, 2.0), bar(1, 1.0, 3.0), bar(2, 0.0, 4.0)],
        ..Timeline::default()
    };
    let link = |fraction: f64| {
        let user = |i: u32| LinkShare {
            place: format!("cuda:{i}").parse().expect("a place"),
            resource: format!("PCIe:{i}"),
            fraction,
        };
        LinkUse { link: LinkProfile { name: "switch".to_string(), users: vec![user(0), user(1)] }, share: 0.0 }
    };
    let executed = |fraction: f64| link(fraction).executed(&timeline).expect("it has activities");
    assert!((executed(1.0) - 0.75).abs() < 1e-12, "in use from 0 to 3");
    assert!((executed(0.6) - (0.6 + 1.0 + 0.6) / 4.0).abs() < 1e-12);
    assert_eq!(link(1.0).executed(&Timeline::default()), None);
}

/// A graph of which the caches of [`tight`] hold a part of the rows, and options for it.
fn hot_and_cold(bench: &Bench) -> Vec<&'static str> {
    bench.text(&[
        "generate",
        "sbm",
        "-o",
        "rows",
        "--nodes",
        "6000",
        "--classes",
        "4",
        "--dim",
        "64",
        "--degree",
        "10",
    ]);
    let text = "name = \"tight\"\npeer_gb_per_s = 50\n[host]\ncores = 8\nmemory_gb = 1\nbandwidth_gb_per_s = 60\n\
                sampling_m_edges_per_s = 1\ngflop_per_s = 10\n[[link]]\nname = \"l\"\ngb_per_s = 1\n[[device]]\nname = \"d\"\n\
                count = 3\nlink = \"l\"\nmemory_gb = 0.0022\nbandwidth_gb_per_s = 500\ntflop_per_s = 1\nsampling_m_edges_per_s = 200\n";
    fs::write(bench.path().join("tight.toml"), text).expect("room on the disk");
    let options = "rows --batch-size 50 --layers 2 --hidden 16 --fanouts 5,5 --buffer 2 --quiet --machine tight.toml";
    options.split(' ').collect()
}

/// Hits per request of a run's caches.
fn hit_rate(run: &Value) -> f64 {
    let counters = run["counters"].as_object().expect("counters").values();
    let sum = |name: &str| -> f64 { counters.clone().filter_map(|counted| counted[name].as_f64()).sum() };
    sum("cache_hits") / sum("cache_requests")
}

/// One device that samples and trains, a group, and devices with roles: rows are found as predicted, in memory that is there; a
/// device that only trains caches more of them.
#[test]
fn caches_have_what_memory_leaves_and_hit_as_predicted() {
    let bench = Bench::new();
    let options = hot_and_cold(&bench);
    let number = |value: &Value| value.as_f64().expect("a number");
    let train = |more: &[&'static str]| bench.json(&[&["train", "--epochs", "1"], &options[..], more].concat());
    let alone = train(&["--plan", "device"]);
    let plan = &alone["plan"];
    let cache = &plan["caches"][0];
    assert_eq!(cache["operator"], "Transferring_PCIe+SIM_SimGather", "{plan}");
    let rate = number(&cache["hit_rate"]);
    assert!((0.2..0.98).contains(&rate), "{rate} of the rows are found: a part of them fits");
    assert!((hit_rate(&alone) - rate).abs() < 0.02, "{} executed, {rate} predicted", hit_rate(&alone));
    let limit = number(&alone["plan"]["caches"][0]["left_bytes"]) + number(&cache["bytes"]);
    let used = number(&plan["memory"]["device"]) + number(&plan["memory"]["device_caches"]);
    assert!(used <= limit && limit <= 0.0022e9, "{used} bytes of {limit}");

    let roles = train(&["--plan", "factored"]);
    let caches = &roles["factored"]["caches"];
    let (of_roles, of_alone) = (number(&caches["trainer_bytes"]), number(&cache["bytes"]));
    assert!(of_roles > 1.2 * of_alone, "{of_roles} bytes where the topology is not, {of_alone} where it is");
    let predicted = number(&caches["hit_rate"]);
    assert!(predicted > rate, "{predicted} beside {rate}");
    assert!((hit_rate(&roles) - predicted).abs() < 0.02, "{} executed, {predicted} predicted", hit_rate(&roles));
    assert!(number(&caches["standby_bytes"]) <= of_alone, "{caches}");

    let group = train(&["--plan", "unified", "--shares", "equal"]);
    let rate = number(&group["plan"]["caches"][0]["hit_rate"]);
    assert!((hit_rate(&group) - rate).abs() < 0.03, "{} executed, {rate} predicted", hit_rate(&group));
    let text = bench.text(&[&["plan"], &options[..]].concat());
    assert!(
        text.contains("of rows are predicted to be found") && text.contains("on a device that only trains"),
        "{text}"
    );
}

/// `--cache` and `--device-memory` size the caches, and without them epochs are longer.
#[test]
fn options_size_the_caches_of_described_machines() {
    let bench = Bench::new();
    let options = hot_and_cold(&bench);
    let number = |value: &Value| value.as_f64().expect("a number");
    let plan = |more: &[&'static str]| bench.json(&[&["plan"], &options[..], more].concat());
    let of = |json: &Value| json["plan"]["caches"][0].clone();
    let device = ["--transferring", "Transferring_PCIe+SIM_SimGather"];
    let plan = |more: &[&'static str]| plan(&[&device[..], more].concat());
    let (fitting, none) = (plan(&[]), plan(&["--cache", "none"]));
    assert_eq!(none["plan"]["caches"], Value::Null);
    assert!(epoch_seconds(&fitting["plan"]) < epoch_seconds(&none["plan"]));
    let small = of(&plan(&["--cache", "in-degree:100KiB"]));
    assert!((90_000.0..=102_400.0).contains(&number(&small["bytes"])), "{small}");
    let (little, much) = (of(&plan(&["--device-memory", "1400KiB"])), of(&plan(&["--device-memory", "64MiB"])));
    assert!(number(&little["bytes"]) < number(&of(&fitting)["bytes"]), "{little}");
    assert_eq!((number(&much["bytes"]), number(&much["hit_rate"])), (6000.0 * 64.0 * 4.0, 1.0), "all rows fit");
}

/// With caches of some rows, runs repeat to the bit and are resumed to the same bits.
#[test]
fn runs_with_caches_repeat_and_are_resumed() {
    let bench = Bench::new();
    let options = hot_and_cold(&bench);
    for (mode, more) in [("device", &[][..]), ("factored", &[]), ("unified", &["--shares", "equal"])] {
        let run = |name: &str, epochs: &str| {
            let own = ["--plan", mode, "--run", name, "--epochs", epochs];
            bench.text(&[&["train"], &options[..], &own, more].concat());
            metrics(&bench.path().join(name))
        };
        let [first, second, resumed] = ["first", "second", "resumed"].map(|name| format!("{mode}-{name}"));
        let whole = run(&first, "2");
        assert_eq!(run(&second, "2"), whole, "{mode}");
        run(&resumed, "1");
        bench.text(&["train", "--resume", &resumed, "--epochs", "2", "--quiet"]);
        assert_eq!(metrics(&bench.path().join(&resumed)), whole, "{mode}");
    }
}
