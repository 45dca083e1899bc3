//! The whole program on the simulated accelerator: profile, plan, run, report; and operators that fail or hang.

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use morphgl::Checkpoint;
use runs::{Training, last, metrics, newest};
use serde_json::Value;
use support::{Bench, fails};

const MILLIS: &str = "batching-cpu=12ms,transferring-pcie=6ms,batching-device=3ms,transferring-device=1ms,training=2ms";

/// Runs on the simulated accelerator; `extra` is appended to its configuration.
fn run(bench: &Bench, extra: &str, args: &[&str]) -> std::process::Output {
    let sim = format!("{MILLIS}{extra}");
    bench.command(args).env("MORPHGL_SIM", sim).output().expect("the binary starts")
}

/// Four hundred mini-batches, batched by two simulated CPU workers or by the device.
const TRAIN: [&str; 17] = [
    "train",
    "small",
    "--batch-size",
    "1",
    "--layers",
    "1",
    "--fanouts",
    "2",
    "--evaluation",
    "none",
    "--training",
    "Training_SIM_Ledger",
    "--threads",
    "2",
    "--profile-seconds",
    "1",
    "--epochs",
];

#[test]
fn every_plan_runs_as_predicted_and_is_reported_as_simulated() {
    let bench = Bench::new();
    bench.small();
    for plan in ["auto", "sequential", "pipeline", "device", "paper", "interleaved"] {
        let args = [&TRAIN[..], &["1", "--plan", plan, "--run", plan, "--json"]].concat();
        let output = run(&bench, "", &args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{plan}: {errors}");
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let batches = json["epochs"][0]["report"]["batches"].as_u64();
        assert_eq!(batches, json["profile"]["num_batches"].as_u64(), "{plan}");
        let page = std::fs::read_to_string(bench.path().join(plan).join("report.html")).expect("written");
        assert!(page.contains("simulated"), "{plan}: simulated figures are marked");
    }
}

/// Runs on so many simulated devices, of which one alone samples, gathers and trains in 60 ms, and copies from another, gathers and
/// trains in 30; the host's workers are slow. Durations are long beside what a busy machine adds to them.
fn on_devices(bench: &Bench, number: usize, args: &[&str]) -> Value {
    const DURATIONS: &str = "batching-cpu=600ms,transferring-pcie=60ms,batching-device=30ms,transferring-device=10ms,\
        transferring-peer=10ms,training=20ms";
    let sim = format!("{DURATIONS},devices={number}");
    let output = bench.command(args).env("MORPHGL_SIM", sim).output().expect("the binary starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_simulated_device_samples_for_another() {
    const COPY: &str = "Transferring_PCIe+Peer+SIM_SimCopy";
    let bench = Bench::new();
    bench.small();
    let mut train = TRAIN;
    train[3] = "10";
    let args = |run: &'static str| [&train[..], &["2", "--run", run, "--json"]].concat();
    let alone = on_devices(&bench, 1, &args("alone"));
    let both = on_devices(&bench, 2, &args("both"));
    let seconds = |json: &Value| json["plan"]["prediction"]["epoch_seconds"].as_f64().expect("a number");
    assert!(seconds(&both) < 0.8 * seconds(&alone), "{} s and {} s", seconds(&both), seconds(&alone));
    let shares = both["plan"]["schedule"]["shares"].as_array().expect("a list");
    let copies = shares.iter().find(|share| share["keys"]["transferring"] == COPY);
    let copies = copies.unwrap_or_else(|| panic!("no share is sampled by the other device: {}", both["plan"]));
    // As one trainer's route, or as devices with roles: the two are equally fast here.
    let sampler = copies["hardware"]["batching"].as_array().expect("a list");
    assert!(sampler.contains(&"SIM:1".into()), "{sampler:?}");
    for json in [&alone, &both] {
        let epochs = json["epochs"].as_array().expect("epochs");
        assert!(epochs.iter().all(|epoch| epoch["report"]["batches"] == json["profile"]["num_batches"]));
    }
}

/// Order, mini-batches and their content are those of an undisturbed run.
#[test]
fn a_run_on_two_devices_is_resumed_exactly() {
    let bench = Bench::new();
    bench.small();
    let by_other = ["--batching", "Batching_PCIe+SIM_Neighbor", "--transferring", "Transferring_PCIe+Peer+SIM_SimCopy"];
    let args = [&TRAIN[..], &["3", "--plan", "pipeline"], &by_other].concat();
    let output = run(&bench, ",devices=2", &[&args[..], &["--run", "undisturbed"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (expected, killed) = (bench.path().join("undisturbed"), bench.path().join("killed"));
    let (_, json) = killed_three_times(&bench, &killed, &args, ",devices=2");
    assert_eq!(metrics(&killed), metrics(&expected));
    assert_eq!(last(&killed).training, last(&expected).training);
    assert!(json["resumed"]["epoch"].is_number(), "{json:#}");
}

/// Devices of one name and size are alike: of the routes between them, one is measured.
#[test]
fn routes_between_devices_that_are_alike_are_measured_once() {
    let bench = Bench::new();
    bench.small();
    let args = ["plan", "small", "--batch-size", "8", "--layers", "1", "--fanouts", "2", "--profile-seconds", "1"];
    let trained = ["--training", "Training_SIM_Ledger", "--threads", "2", "--json"];
    let json = on_devices(&bench, 3, &[&args[..], &trained].concat());
    let routes = json["profile"]["routes"].as_array().expect("a list");
    let between: Vec<&Value> =
        routes.iter().filter(|r| r["route"]["transferring"] == "Transferring_PCIe+Peer+SIM_SimCopy").collect();
    let places = |r: &&Value| [&r["route"]["batched_at"], &r["route"]["trained_at"]].map(Value::to_string).join(" to ");
    let pairs: Vec<String> = between.iter().map(places).collect();
    let expected = [
        ["sim:1", "sim:0"],
        ["sim:2", "sim:0"],
        ["sim:2", "sim:1"],
        ["sim:0", "sim:1"],
        ["sim:0", "sim:2"],
        ["sim:1", "sim:2"],
    ];
    assert_eq!(pairs, expected.map(|pair| pair.map(|place| format!("\"{place}\"")).join(" to ")));
    for other in &between[1..] {
        assert_eq!(other["transferring"], between[0]["transferring"], "the same samples");
        assert_eq!(other["batching"], between[0]["batching"]);
    }
}

/// Arguments of layer-split training on the simulated accelerator.
const SPLIT: [&str; 21] = [
    "train",
    "small",
    "--batch-size",
    "4",
    "--layers",
    "2",
    "--hidden",
    "8",
    "--fanouts",
    "4,4",
    "--evaluation",
    "none",
    "--training",
    "Training_SIM_Ledger",
    "--threads",
    "1",
    "--profile-seconds",
    "0.5",
    "--allow-staleness",
    "15",
    "--epochs",
];

#[test]
fn layers_are_split_on_the_simulated_accelerator() {
    let bench = Bench::new();
    bench.small();
    let hot = ["--hot-ratio", "0.5"];
    let measured = |name: &'static str| {
        let args = [&SPLIT[..], &["3", "--run", name, "--json"], &hot].concat();
        let output = run(&bench, ",slow=training*10@0:0", &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let split = &json["layer_split"]["plan"]["split"];
        let share = &split["plan"]["schedule"]["shares"][0];
        assert_eq!(share["keys"]["training"], "Training_SIM_Ledger");
        let [exact, given] = [&split["split"]["exact"]["training"], &share["training"]].map(|s| s["mean"].as_f64());
        (name, exact.expect("seconds"), given.expect("seconds"), json)
    };
    // Training takes the configured time without given rows, and less with them, unless other programs took the core meanwhile.
    let is_less = |&(_, exact, given, _): &(&str, f64, f64, Value)| exact >= 0.02 && given < 0.95 * exact;
    let found = ["first", "second", "third"].into_iter().map(measured).find(is_less);
    let (name, .., json) = found.expect("training takes less time with given rows");
    let split = &json["layer_split"]["plan"]["split"];
    let seconds = |of: &Value| of.as_f64().expect("seconds");
    assert!(seconds(&split["first_seconds"]) > seconds(&split["plan"]["prediction"]["epoch_seconds"]));
    // The first epoch has a prediction of its own, as its first super-batch has no given rows.
    let epochs = json["epochs"].as_array().expect("epochs");
    let predicted: Vec<&Value> = epochs.iter().map(|epoch| &epoch["predicted_seconds"]).collect();
    assert_eq!(predicted[0], &split["first_seconds"]);
    assert_eq!(predicted[1..], [&split["plan"]["prediction"]["epoch_seconds"]; 2]);
    let count = |counter: &str| json["counters"]["Transferring_PCIe_SimDma"][counter].as_u64().expect("a number");
    let histogram = json["layer_split"]["staleness"].as_array().expect("a histogram");
    let sum = |of: &str| histogram.iter().map(|stale| stale[of].as_u64().expect("a number")).sum::<u64>();
    assert_eq!((sum("batches"), sum("rows")), (count("given_batches"), count("given_rows")));
    let steps = |stale: &Value| stale["steps"].as_u64().expect("a number");
    assert!(histogram.len() > 1 && histogram.iter().all(|stale| (1..=15).contains(&steps(stale))), "{histogram:?}");
    let page = std::fs::read_to_string(bench.path().join(name).join("report.html")).expect("written");
    assert!(page.contains("<h2>Staleness</h2>") && page.contains("given rows"), "the histogram and the rows' memory");
    // Two runs train on the same mini-batches, given rows included.
    let ledger = last(&bench.path().join(name)).training;
    let text = run(&bench, "", &[&SPLIT[..], &["3", "--run", "again"], &hot].concat());
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("by Training_SIM_Ledger;") && text.contains("memory: given rows "), "{text}");
    assert_eq!(last(&bench.path().join("again")).training, ledger);
}

#[test]
fn the_hot_ratio_follows_measured_times_up_to_its_limit() {
    let bench = Bench::new();
    bench.small();
    // Rows take microseconds, training tens of milliseconds.
    let limits = ["--hot-ratio", "0.1", "--max-hot-ratio", "0.7"];
    let output = run(&bench, "", &[&SPLIT[..], &["3", "--run", "split", "--json"], &limits].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["layer_split"]["hot_ratios"], serde_json::json!([0.1, 0.7]), "{:#}", json["layer_split"]);
    let output = run(&bench, "", &["train", "--resume", "split", "--epochs", "4"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("the hot ratio went from 10.0% to "), "{text}");
}

#[test]
fn a_split_run_on_the_simulated_accelerator_is_resumed_exactly() {
    let bench = Bench::new();
    bench.small();
    for (name, epochs) in [("undisturbed", "2"), ("resumed", "1")] {
        let output = run(&bench, "", &[&SPLIT[..], &[epochs, "--hot-ratio", "0.5", "--run", name]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = run(&bench, "", &["train", "--resume", "resumed", "--epochs", "2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [undisturbed, resumed] = ["undisturbed", "resumed"].map(|name| last(&bench.path().join(name)).training);
    assert_eq!(resumed, undisturbed);
}

#[test]
fn operators_that_fail_or_hang_end_the_program() {
    let bench = Bench::new();
    bench.small();
    for (work, kind, words) in [
        ("training", "panic", ["Training_SIM_Ledger", "fault of the operator"]),
        ("training", "error", ["Training_SIM_Ledger", "simulated"]),
        ("training", "memory", ["Training_SIM_Ledger", "memory"]),
        ("training", "hang", ["Training_SIM_Ledger", "has not answered"]),
    ] {
        // Profiling measures epoch 0; the fault is in epoch 1.
        let fault = format!(",fault={work}:{kind}@1:7");
        let args = [&TRAIN[..], &["2", "--time-limit", "5"]].concat();
        let start = Instant::now();
        let output = run(&bench, &fault, &args);
        fails(&output, &args, &[words[0], words[1], "mini-batch 7 of epoch 1"]);
        assert!(start.elapsed() < Duration::from_secs(600), "{kind}: it ends");
    }
}

/// Starts a run of three epochs, kills it three times, resumes it each time, and lets it end. Returns the position at which it
/// was killed last, and what the last process said.
fn killed_three_times(bench: &Bench, run: &Path, args: &[&str], extra: &str) -> (Checkpoint, Value) {
    let sim = format!("{MILLIS}{extra}");
    let name = run.file_name().and_then(|name| name.to_str()).expect("a name");
    let every = ["--checkpoint-every", "40b"];
    let start = |args: &[&str]| {
        let mut command = bench.command(args);
        command.env("MORPHGL_SIM", &sim);
        Training::start(command, run)
    };
    let mut training = start(&[args, &every, &["--run", name]].concat());
    for _ in 0..3 {
        let next = newest(run).map_or(3, |newest| newest + 3);
        assert!(!training.wait_for_checkpoint(next), "it has three epochs of 180 mini-batches");
        training.kill();
        training = start(&[&["train", "--resume", name, "--json"], &every[..]].concat());
    }
    let at = last(run);
    let (code, stdout, stderr) = training.end();
    assert_eq!(code, Some(0), "{stderr}");
    (at, serde_json::from_str(&stdout).expect("JSON"))
}

/// Two routes by a plan of a file: order, mini-batches and their content are those of an undisturbed run.
#[test]
fn a_plan_of_two_routes_is_resumed_exactly() {
    let bench = Bench::new();
    bench.small();
    let output = run(&bench, "", &[&TRAIN[..], &["3", "--plan", "interleaved", "--run", "undisturbed"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let expected = bench.path().join("undisturbed");
    assert_eq!(last(&expected).position.plan.schedule.shares.len(), 2, "two routes");
    let killed = bench.path().join("killed");
    let args = [&TRAIN[..], &["3", "--plan", "undisturbed/plan.json"]].concat();
    let (_, json) = killed_three_times(&bench, &killed, &args, "");
    assert_eq!(metrics(&killed), metrics(&expected));
    // The parameters of the simulated trainer are its ledger: which mini-batch was trained how often, with which content.
    assert_eq!(last(&killed).training, last(&expected).training);
    assert!(json["resumed"]["epoch"].is_number(), "{json:#}");
}

/// With planning again, times decide when plans change; every mini-batch of every epoch is trained once all the same.
#[test]
fn a_run_that_plans_again_is_resumed_by_the_plan_in_force() {
    let bench = Bench::new();
    bench.small();
    // From the first epoch on, the CPU takes four times as long as when it was profiled.
    let slow = ",slow=batching-cpu*4@0:20";
    let output = run(&bench, "", &[&TRAIN[..], &["3", "--plan", "pipeline", "--run", "undisturbed"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let killed = bench.path().join("killed");
    let args = [&TRAIN[..], &["3", "--plan", "auto"]].concat();
    let (at, json) = killed_three_times(&bench, &killed, &args, slow);
    assert_eq!(last(&killed).training, last(&bench.path().join("undisturbed")).training, "each once");
    let epochs = json["epochs"].as_array().expect("a list");
    let batches: Vec<u64> = epochs.iter().map(|e| e["report"]["batches"].as_u64().expect("a number")).collect();
    assert_eq!(batches, [180; 3]);
    // The last process began with the plan and the durations of the checkpoint, and measured nothing anew.
    let within = at.position.within.as_ref();
    let trained = within.map_or(0, |w| w.part.batches + w.earlier.as_ref().map_or(0, |r| r.batches));
    let resumed = (json["resumed"]["epoch"].as_u64(), json["resumed"]["batches"].as_u64());
    assert_eq!(resumed, (Some(at.progress.epoch.into()), Some(trained as u64)));
    let problem = at.position.problem.as_ref().expect("it plans again");
    let planned = within.map_or(180, |w| w.batches.as_ref().map_or(180, Vec::len));
    assert_eq!(at.position.plan.num_batches(), planned, "{problem:?}");
}

/// A phase that the process was stopped in has not answered late.
#[test]
#[cfg(unix)]
fn time_in_which_the_process_is_stopped_does_not_count() {
    use nix::sys::signal::{Signal, kill};
    let bench = Bench::new();
    bench.small();
    let path = bench.path().join("run");
    let args = [&TRAIN[..], &["1", "--plan", "device", "--run", "run", "--checkpoint-every", "5b"]].concat();
    let mut command = bench.command(&[&args[..], &["--time-limit", "4"]].concat());
    command.env("MORPHGL_SIM", format!("{MILLIS},slow=training*20@0:20"));
    let mut training = Training::start(command, &path);
    assert!(!training.wait_for_checkpoint(6));
    let process = nix::unistd::Pid::from_raw(training.id() as i32);
    kill(process, Signal::SIGSTOP).expect("it runs");
    std::thread::sleep(Duration::from_secs(6));
    kill(process, Signal::SIGCONT).expect("it runs");
    let (code, _, stderr) = training.end();
    assert_eq!(code, Some(0), "{stderr}");
}

/// A step that does not come back is not waited for once a second SIGTERM asks for the end.
#[test]
#[cfg(unix)]
fn a_second_sigterm_ends_a_step_that_hangs() {
    use nix::sys::signal::{Signal, kill};
    let bench = Bench::new();
    bench.small();
    for attempt in 0..20 {
        let name = format!("run{attempt}");
        let path = bench.path().join(&name);
        let options = ["1", "--plan", "pipeline", "--run", &name, "--checkpoint-every", "1b"];
        let mut command = bench.command(&[&TRAIN[..], &options].concat());
        command.env("MORPHGL_SIM", format!("{MILLIS},fault=training:hang@0:150"));
        let mut training = Training::start(command, &path);
        assert!(!training.wait_for_checkpoint(20), "it hangs after that");
        // Where no checkpoint comes for a second, it is at the step that hangs; or not: then it ends gracefully, and is started again.
        let mut before = None;
        while newest(&path) != before {
            before = newest(&path);
            std::thread::sleep(Duration::from_secs(1));
        }
        let process = nix::unistd::Pid::from_raw(training.id() as i32);
        while !training.has_ended() {
            // Its end may come first.
            let _ = kill(process, Signal::SIGTERM);
            std::thread::sleep(Duration::from_millis(1100));
        }
        let (code, stdout, stderr) = training.end();
        if code == Some(1) && stdout.contains("interrupted") {
            continue;
        }
        assert_eq!(code, Some(143), "{stderr}");
        assert!(stderr.contains("error: interrupted"), "{stderr}");
        return;
    }
    panic!("no training came to the step that hangs");
}

#[test]
fn without_the_variable_there_is_no_simulated_accelerator() {
    let bench = Bench::new();
    let json = bench.json(&["ops"]);
    let operators = json["operators"].as_array().expect("a list");
    let simulated =
        operators.iter().filter(|o| o["key"].as_str().is_some_and(|k| k.contains("SIM") || k.contains("Sim")));
    let mut count = 0;
    for operator in simulated {
        count += 1;
        assert_eq!(operator["available"], false);
        // Those in which the host takes part are of described machines alone, but for batching; so is the gather for it.
        let host = operator["hardware"].as_str().is_some_and(|hardware| hardware.starts_with("CPU"))
            || operator["key"] == "Transferring_PCIe+SIM_SimDmaGather";
        let cure = if host && operator["phase"] != "Batching" { "--machine" } else { "MORPHGL_SIM" };
        assert!(operator["reason"].as_str().is_some_and(|r| r.contains(cure)), "{operator}");
    }
    assert_eq!(count, 10);
}
