//! Runs that are killed, interrupted, damaged and resumed give bit for bit what undisturbed ones give.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use morphgl_graph_store::{Dataset, DatasetWriter, FeatureMatrix, OpenOptions};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runs::{Training, alike, checkpoints, metrics, newest, status};
use support::{Bench, fails};

/// 23 mini-batches per epoch. The operator that trains is given: which one is faster is measured.
const TRAIN: [&str; 16] = [
    "train",
    "small",
    "--training=Training_CPU_Native",
    "--threads",
    "2",
    "--hidden",
    "16",
    "--fanouts",
    "5,5",
    "--batch-size",
    "8",
    "--profile-seconds",
    "0.1",
    "--evaluate-every",
    "3",
    "--epochs",
];

fn bench() -> Bench {
    let bench = Bench::new();
    bench.small();
    bench
}

/// A run without interruption, in the directory `undisturbed`.
fn undisturbed(bench: &Bench, epochs: &str) -> PathBuf {
    bench.json(&[&TRAIN[..], &[epochs, "--run", "undisturbed"]].concat());
    bench.path().join("undisturbed")
}

fn signal(training: &Training, signal: Signal) {
    kill(Pid::from_raw(training.id() as i32), signal).expect("it runs");
}

/// Starts a run that keeps a checkpoint every 5 mini-batches, and kills it once it has `number` checkpoints.
fn killed(bench: &Bench, epochs: &str, run: &str, number: u64) -> PathBuf {
    let path = bench.path().join(run);
    let args = [&TRAIN[..], &[epochs, "--run", run, "--checkpoint-every", "5b"]].concat();
    let mut training = Training::start(bench.command(&args), &path);
    assert!(!training.wait_for_checkpoint(number), "it has more mini-batches than that");
    training.kill();
    path
}

#[test]
fn a_run_that_is_killed_again_and_again_gives_the_same_bits() {
    let bench = bench();
    let expected = undisturbed(&bench, "20");
    assert_eq!(status(&expected), "done");
    let run = killed(&bench, "20", "run", 2);
    for _ in 0..6 {
        assert_eq!(status(&run), "running");
        let command = bench.command(&["train", "--resume", "run", "--checkpoint-every", "5b"]);
        let mut training = Training::start(command, &run);
        let next = newest(&run).expect("a checkpoint") + 9;
        if training.wait_for_checkpoint(next) {
            break;
        }
        training.kill();
        assert!(checkpoints(&run).len() <= 3, "the last two are kept, and one that is just written");
    }
    let json = bench.json(&["train", "--resume", "run"]);
    assert_eq!(status(&run), "done");
    alike(&run, &expected);
    assert_eq!(json["epochs"].as_array().map(Vec::len), Some(20));
    assert!(json["test_accuracy"].is_number() && json["resumed"]["epoch"].is_number(), "{:#}", json["resumed"]);
    assert!(checkpoints(&run).len() <= 2);
    let page = fs::read_to_string(run.join("report.html")).expect("a report");
    assert!(page.contains("resumed in epoch"), "the report says where its timeline begins");
}

#[test]
fn signals_keep_a_checkpoint_first() {
    let bench = bench();
    let expected = undisturbed(&bench, "30");
    for (name, sig) in [("int", Signal::SIGINT), ("term", Signal::SIGTERM)] {
        let run = bench.path().join(name);
        let args = [&TRAIN[..], &["30", "--run", name, "--checkpoint-every", "30b"]].concat();
        let mut training = Training::start(bench.command(&args), &run);
        assert!(!training.wait_for_checkpoint(3));
        let before = newest(&run);
        signal(&training, sig);
        let (code, stdout, stderr) = training.end();
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stdout.contains("interrupted"), "{stdout}");
        assert_eq!(status(&run), "interrupted");
        assert!(newest(&run) > before);
        bench.misused(&[&TRAIN[..], &["1", "--run", name]].concat(), &["(interrupted)", "--resume", "choose another"]);
        let text = bench.run(&["train", "--resume", name]);
        assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
        alike(&run, &expected);
    }
}

#[test]
fn of_a_damaged_checkpoint_the_older_one_is_used() {
    let bench = bench();
    let expected = undisturbed(&bench, "12");
    for (i, damage) in ["a bit", "cut", "empty"].into_iter().enumerate() {
        let name = format!("run{i}");
        let run = killed(&bench, "12", &name, 12);
        let paths = checkpoints(&run);
        let path = paths.last().expect("two");
        let mut bytes = fs::read(path).expect("readable");
        match damage {
            "a bit" => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            "cut" => bytes.truncate(bytes.len() - 100),
            _ => bytes.clear(),
        }
        fs::write(path, bytes).expect("room");
        let output = bench.run(&["train", "--resume", &name]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{damage}: {stderr}");
        let file = path.file_name().expect("a name").to_str().expect("text");
        assert!(stderr.contains(file) && stderr.contains("no whole checkpoint"), "{damage}: {stderr}");
        assert!(stderr.contains("an older checkpoint is used"), "{damage}: {stderr}");
        alike(&run, &expected);
    }
    let run = killed(&bench, "12", "lost", 5);
    checkpoints(&run).iter().for_each(|path| fs::write(path, "nothing").expect("room"));
    bench.refused(&["train", "--resume", "lost"], &["lost", "no whole checkpoint", "another --run directory"]);
}

#[test]
fn epochs_may_be_raised() {
    let bench = bench();
    let expected = undisturbed(&bench, "9");
    bench.json(&[&TRAIN[..], &["6", "--run", "run"]].concat());
    let run = bench.path().join("run");
    let output = bench.run(&["train", "--resume", "run", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains("the run is done"), "{stderr}");
    assert_eq!(metrics(&run).len(), 6);
    bench.json(&["train", "--resume", "run", "--epochs", "9"]);
    alike(&run, &expected);
    let config = fs::read_to_string(run.join("config.toml")).expect("there");
    assert!(config.contains("epochs = 9"), "{config}");
    bench.misused(&["train", "--resume", "run", "--epochs", "8"], &["--epochs 8", "9 epochs already"]);
}

/// A number of epochs takes the place of early stopping: the run goes on, to the bits of one that never stopped early.
#[test]
fn epochs_may_be_raised_after_early_stopping() {
    let bench = bench();
    let early = [&TRAIN[..], &["500", "--lr", "0.2", "--patience", "1", "--run", "run"]].concat();
    let json = bench.json(&early);
    assert_eq!(json["ended"], "patience");
    let trained = json["epochs"].as_array().map_or(0, Vec::len);
    let more = (trained + 4).to_string();
    let output = bench.run(&["train", "--resume", "run"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the run is done (stopped early") && stderr.contains("--epochs trains longer"), "{stderr}");
    bench.misused(&["train", "--resume", "run", "--epochs", "1"], &["--epochs 1", "epochs already"]);
    let json = bench.json(&["train", "--resume", "run", "--epochs", &more]);
    assert_eq!((&json["ended"], json["epochs"].as_array().map(Vec::len)), (&"epochs".into(), Some(trained + 4)));
    bench.json(&[&TRAIN[..], &[&more, "--lr", "0.2", "--run", "undisturbed"]].concat());
    alike(&bench.path().join("run"), &bench.path().join("undisturbed"));
}

#[test]
fn what_may_not_differ_is_refused() {
    let bench = bench();
    let run = killed(&bench, "40", "run", 3);
    for options in [
        &["small"][..],
        &["--lr", "0.1"],
        &["--seed", "0"],
        &["--threads", "1"],
        &["--run", "other"],
        &["--plan", "auto"],
        &["--patience", "3"],
        &["--memory", "4GiB"],
        &["--init", "x"],
    ] {
        let name = if options[0] == "small" { "DATASET" } else { options[0] };
        let args = [&["train", "--resume", "run"], options].concat();
        bench.misused(&args, &[name, "a resumed run takes it from its directory"]);
    }
    bench.misused(&["train", "--checkpoint-every", "5b"], &["--checkpoint-every", "--run"]);
    bench.refused(&["train", "--resume", "nowhere"], &["nowhere", "config.toml"]);
    // The same settings on other data.
    fs::rename(bench.path().join("small"), bench.path().join("kept")).expect("renamed");
    let other = ["generate", "sbm", "-o", "small", "--nodes", "300", "--classes", "3", "--dim", "8", "--seed", "9"];
    bench.text(&other);
    bench.refused(&["train", "--resume", "run"], &["small", "not the dataset", "restore it"]);
    fs::remove_dir_all(bench.path().join("small")).expect("removed");
    fs::rename(bench.path().join("kept"), bench.path().join("small")).expect("renamed");
    // Another SIMD level is no error, and is said.
    let output =
        bench.command(&["train", "--resume", "run"]).env("MORPHGL_ISA", "portable").output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let capped = bench.json(&["ops"])["isa"] == "portable";
    assert!(capped || stderr.contains("SIMD level portable") || stderr.contains("this is portable"), "{stderr}");
    assert_eq!(metrics(&run).len(), 40);
}

#[test]
fn a_run_is_trained_by_one_process() {
    let bench = bench();
    let run = bench.path().join("run");
    let args = [&TRAIN[..], &["2000", "--run", "run", "--checkpoint-every", "50b"]].concat();
    let mut training = Training::start(bench.command(&args), &run);
    assert!(!training.wait_for_checkpoint(2));
    let words = ["run", "is training it", "interrupt it first"];
    fails(&bench.run(&["train", "--resume", "run"]), &["train", "--resume", "run"], &words);
    training.kill();
}

/// Of two processes that are started together on one directory, one trains and the other is refused, whether they begin a run or
/// continue it; so every line of `metrics.jsonl` is whole.
#[test]
fn of_two_processes_one_trains() {
    let bench = bench();
    let begin = "train small --layers 1 --hidden 2 --fanouts 2 --batch-size 300 --evaluation none --threads 1 --quiet \
                 --training Training_CPU_Native --profile-seconds 0.01";
    let together = |line: &str, run: &str| {
        let args: Vec<&str> = line.split_whitespace().chain([run]).collect();
        let [a, b] = [(); 2].map(|()| Training::start(bench.command(&args), &bench.path().join(run)));
        [a.id(), b.id()].into_iter().zip([a.end(), b.end()]).collect::<Vec<_>>()
    };
    let mut refused = 0;
    for pair in 0..50 {
        let run = format!("run{pair}");
        for (line, epochs, late) in [
            (format!("{begin} --epochs 2 --run"), 2, (2, "it holds a run already (")),
            // Nothing is trained again where the other process has come to the end already.
            ("train --epochs 12 --resume".to_string(), 12, (0, "the run is done (")),
        ] {
            let mut trained = 0;
            let ended = together(&line, &run);
            for (i, (_, (code, _, stderr))) in ended.iter().enumerate() {
                // The number of a process that ends meanwhile is no longer found.
                let other = [format!("process {}", ended[1 - i].0), "another process".to_string()]
                    .map(|other| format!("{run}: {other} is training it; wait for it, or interrupt it first"));
                match code {
                    Some(1) if other.iter().any(|other| stderr.contains(other)) => refused += 1,
                    code if *code == Some(late.0) && stderr.contains(late.1) => {}
                    Some(0) => trained += 1,
                    _ => panic!("{line} {run}: {code:?}: {stderr}"),
                }
            }
            assert_eq!(trained, 1, "{line} {run}: {ended:?}");
            assert_eq!(metrics(&bench.path().join(&run)).len(), epochs, "{line} {run}");
            assert_eq!(status(&bench.path().join(&run)), "done");
        }
    }
    assert!(refused > 0, "no two processes met");
}

/// A run whose directory is removed writes nothing to another run that is begun there, and says so; what it saves elsewhere is
/// written.
#[test]
fn a_run_directory_that_another_run_takes() {
    let bench = bench();
    let run = bench.path().join("run");
    let read = |dir: PathBuf| {
        let mut files: Vec<_> =
            fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files.into_iter().map(|file| (fs::read(&file).unwrap_or_default(), file)).collect::<Vec<_>>()
    };
    // The process is stopped anywhere in its writing.
    for (round, whole) in [true, false, true, false].into_iter().enumerate() {
        let save = format!("saved-{round}.safetensors");
        let args = [&TRAIN[..], &["12", "--run", "run", "--checkpoint-every", "5b", "--save", &save]].concat();
        let mut training = Training::start(bench.command(&args), &run);
        assert!(!training.wait_for_checkpoint(3));
        signal(&training, Signal::SIGSTOP);
        // `rm -rf run`, and `rm -rf run/*`.
        if whole {
            fs::remove_dir_all(&run).expect("it can be removed");
        } else {
            for entry in fs::read_dir(&run).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
                    .expect("it can be removed");
            }
        }
        bench.json(&[&TRAIN[..], &["2", "--run", "run", "--checkpoint-every", "5b"]].concat());
        let other = [run.clone(), run.join("checkpoints")].map(read);
        signal(&training, Signal::SIGCONT);
        let (code, _, stderr) = training.end();
        assert_eq!(code, Some(1), "{stderr}");
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        assert!(errors.len() == 1 && errors[0].starts_with("error: run: its files were removed while"), "{stderr}");
        for (now, then) in [run.clone(), run.join("checkpoints")].map(read).iter().zip(&other) {
            let names = |files: &[(Vec<u8>, PathBuf)]| files.iter().map(|file| file.1.clone()).collect::<Vec<_>>();
            assert_eq!(names(now), names(then));
            assert!(now == then, "{:?} have other contents", names(now));
        }
        assert!(bench.path().join(&save).is_file(), "{stderr}");
        fs::remove_dir_all(&run).expect("it can be removed");
    }
}

/// A run reads the dataset that it has opened, whatever another process puts into its place: left on disk, where each evaluation
/// opens the files anew, mapped, and in memory.
#[test]
fn a_dataset_that_is_replaced() {
    let bench = bench();
    let at = bench.path().join("small");
    let original = Dataset::open(&at, OpenOptions::default()).expect("just written");
    // Of the same shape, and with the classes of other nodes.
    let replace = |shift: i32| {
        let Dataset { topology, labels, splits, features, num_classes, .. } = &original;
        let mut writer = DatasetWriter::create(&at, true).expect("a dataset");
        writer.array("indptr", topology.indptr(), None).expect("room");
        writer.array("indices", topology.indices(), None).expect("room");
        let Some(FeatureMatrix::F32 { data, dim }) = features else { panic!("features of f32") };
        let values: Vec<f32> = data.iter().map(|x| if shift == 0 { *x } else { -x }).collect();
        writer.array("features", &values, Some(*dim)).expect("room");
        let classes = *num_classes as i32;
        let labels: Vec<i32> = labels.iter().flat_map(|l| l.iter()).map(|l| (l + shift) % classes).collect();
        writer.array("labels", &labels, None).expect("room");
        for (name, nodes) in [("train", &splits.train), ("valid", &splits.valid), ("test", &splits.test)] {
            writer.array(name, nodes, None).expect("room");
        }
        writer.finish("small", *num_classes, Default::default()).expect("a dataset");
    };
    let modes =
        [&["--batching", "Batching_CPU+Disk_Neighbor"][..], &["--mmap"], &["--batching", "Batching_CPU_Neighbor"]];
    for (i, mode) in modes.into_iter().enumerate() {
        let train = |run: &str, more: &[&str]| {
            let args = [&TRAIN[..], &["12", "--evaluation", "sampled", "--run", run], mode, more];
            bench.command(&args.concat())
        };
        let [expected, run] = ["expected", "run"].map(|name| format!("{name}{i}"));
        let output = train(&expected, &[]).output().expect("it starts");
        assert!(output.status.success(), "{mode:?}: {}", String::from_utf8_lossy(&output.stderr));
        let path = bench.path().join(&run);
        let mut training = Training::start(train(&run, &["--checkpoint-every", "5b"]), &path);
        assert!(!training.wait_for_checkpoint(3), "{mode:?}");
        signal(&training, Signal::SIGSTOP);
        replace(1);
        signal(&training, Signal::SIGCONT);
        let (code, _, stderr) = training.end();
        assert_eq!(code, Some(0), "{mode:?}: {stderr}");
        alike(&path, &bench.path().join(&expected));
        // What is resumed has to be the dataset that the run was trained on.
        let longer = ["train", "--resume", &run, "--epochs", "14"];
        bench.refused(&longer, &["small", "not the dataset", "restore it"]);
        replace(0);
        bench.json(&longer);
    }
}

/// A full disk costs checkpoints, and not the run.
#[test]
fn a_checkpoint_that_does_not_fit_is_left_out() {
    let bench = bench();
    let script = format!("ulimit -f 64; exec {} ", env!("CARGO_BIN_EXE_morphgl"));
    let train =
        "train small --fanouts 5,5 --profile-seconds 0.1 --hidden 512 --epochs 3 --run run --checkpoint-every 1b";
    let output = Command::new("bash").args(["-c", &(script + train)]).current_dir(bench.path()).output();
    let output = output.expect("bash starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("goes on without this checkpoint").count(), 1, "{stderr}");
    assert_eq!(metrics(&bench.path().join("run")).len(), 3);
    assert_eq!(checkpoints(&bench.path().join("run")), Vec::<PathBuf>::new());
    let left = fs::read_dir(bench.path().join("run/checkpoints")).expect("a folder").count();
    assert_eq!(left, 0, "no partial file");
}

/// Time in which the process is stopped is not the operator's.
#[test]
fn a_process_that_was_stopped_goes_on() {
    let bench = bench();
    let run = bench.path().join("run");
    let args = [&TRAIN[..], &["150", "--run", "run", "--checkpoint-every", "20b", "--time-limit", "4"]].concat();
    let mut training = Training::start(bench.command(&args), &run);
    assert!(!training.wait_for_checkpoint(2));
    signal(&training, Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(6));
    signal(&training, Signal::SIGCONT);
    let (code, _, stderr) = training.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(metrics(&run).len(), 150);
}

/// `config.toml` holds every seed: a run with the largest one goes on alike.
#[test]
fn the_largest_seed_is_kept() {
    let bench = bench();
    let seed = u64::MAX.to_string();
    let train = |epochs, run| bench.json(&[&TRAIN[..], &[epochs, "--seed", &seed, "--run", run]].concat());
    train("6", "whole");
    let json = train("3", "run");
    assert_eq!(json["config"]["seed"], u64::MAX);
    bench.json(&["train", "--resume", "run", "--epochs", "6"]);
    alike(&bench.path().join("run"), &bench.path().join("whole"));
}

/// The document says what checkpoints cost: one at each end, and those between.
#[test]
fn the_cost_of_checkpoints_is_reported() {
    let bench = bench();
    let json = bench.json(&[&TRAIN[..], &["2", "--run", "run", "--checkpoint-every", "10b"]].concat());
    let costs = &json["checkpoints"];
    assert_eq!(costs["ends"]["kept"], 2, "{costs}");
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    assert!(number(&costs["due"]["kept"]) >= 4, "46 mini-batches: {costs}");
    assert!(costs["due"]["seconds"].as_f64() > Some(0.0), "{costs}");
    assert!(bench.json(&[&TRAIN[..], &["1"]].concat())["checkpoints"].is_null());
}

#[test]
fn no_epochs_write_the_initial_model() {
    let bench = bench();
    bench.json(&[&TRAIN[..], &["0", "--save", "initial.safetensors"]].concat());
    bench.json(&[&TRAIN[..], &["0", "--run", "run"]].concat());
    let read = |path: &str| fs::read(bench.path().join(path)).expect("a model");
    assert_eq!(read("initial.safetensors"), read("run/model.safetensors"));
    // Training from it is training from the seed.
    let trained = |extra: &[&str]| bench.json(&[&TRAIN[..], &["1"], extra].concat())["epochs"][0]["loss"].clone();
    assert_eq!(trained(&["--init", "initial.safetensors"]), trained(&[]));
}

/// `--config` trains as the run that wrote it did, on its dataset or another one.
#[test]
fn a_configuration_is_trained_again() {
    let bench = bench();
    bench.json(&[&TRAIN[..], &["4", "--lr", "0.05", "--seed", "9", "--run", "run"]].concat());
    let json = bench.json(&["train", "--config", "run/config.toml", "--run", "again"]);
    assert_eq!(json["dataset"]["name"], "sbm-300");
    alike(&bench.path().join("again"), &bench.path().join("run"));
    let config = |run: &str| fs::read_to_string(bench.path().join(run).join("config.toml")).expect("written");
    assert_eq!(config("again"), config("run"));
    let json = bench.json(&["train", "--config", "run/config.toml", "--epochs", "2"]);
    assert_eq!(json["epochs"].as_array().map(Vec::len), Some(2));
    let other = ["generate", "sbm", "-o", "other", "--nodes", "200", "--classes", "4", "--dim", "5", "--seed", "3"];
    bench.text(&other);
    let json = bench.json(&["train", "other", "--config", "run/config.toml"]);
    assert_eq!((&json["dataset"]["num_nodes"], &json["config"]["spec"]["model"]["in_dim"]), (&200.into(), &5.into()));
    for option in [&["--lr", "0.1"][..], &["--seed", "1"], &["--model", "gcn"], &["--patience", "3"]] {
        let args = [&["train", "--config", "run/config.toml"], option].concat();
        bench.misused(&args, &[option[0], "--config says it"]);
    }
    // Options of the sampler replace the run's, one by one, and are said.
    let args = ["train", "--config", "run/config.toml", "--batch-size", "16", "--expansion", "new", "--json"];
    let output = bench.run(&args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("samples as the run did, but for --batch-size, --expansion"), "{stderr}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let sampler = &json["config"]["sampler"];
    assert_eq!((&sampler["batch_size"], &sampler["expansion"]), (&16.into(), &"new".into()), "{sampler}");
    assert_eq!((&sampler["fanouts"], &sampler["seed"]), (&"5,5".into(), &9.into()), "{sampler}");
    bench.misused(&["train", "--config", "run/config.toml", "--fanouts", "5"], &["fanouts", "layers"]);
    bench.misused(&["train", "--config", "run/config.toml", "--walks", "5"], &["--walks: --sampler neighbor"]);
    bench.misused(&["train", "--config", "run/metrics.jsonl"], &["--config run/metrics.jsonl", "config.toml of a run"]);
}
