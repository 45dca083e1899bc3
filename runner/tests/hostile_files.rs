//! Files made to harm: models, plans and headers with numbers that no program writes, and sizes that would fill memory or disk.
//! Each is refused with one line before it costs anything.

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::fs;

use morphgl_graph_store::DatasetWriter;
use serde_json::{Value, json};
use support::Bench;

/// Trains a tiny model, whose parameters `change` may alter, and returns the path of its file.
fn model(bench: &Bench, change: impl Fn(&mut [f32])) -> &'static str {
    bench.small();
    let train = ["train", "small", "--epochs", "1", "--layers", "2", "--hidden", "8", "--profile-seconds", "0.1"];
    bench.text(&[&train[..], &["--evaluation", "none", "--save", "model.safetensors"]].concat());
    let path = bench.path().join("model.safetensors");
    let (spec, mut parameters) = morphgl_model_core::load_model(&path).expect("just written");
    change(&mut parameters[1].values);
    morphgl_model_core::save_model(&path, &spec, &Default::default(), &parameters).expect("room");
    "model.safetensors"
}

#[test]
fn a_model_with_a_parameter_that_is_no_number() {
    let bench = Bench::new();
    let file = model(&bench, |values| values[3] = f32::NAN);
    let words = [file, "element 3 of", "is NaN", "use an earlier model"];
    bench.refused(&["evaluate", file, "small"], &words);
    bench.refused(&["predict", file, "small", "-o", "out.csv"], &words);
    let init = ["train", "small", "--layers", "2", "--hidden", "8", "--epochs", "1", "--profile-seconds", "0.1"];
    bench.refused(&[&init[..], &["--init", file]].concat(), &words[..3]);
}

#[cfg(unix)]
#[test]
fn a_model_without_an_end() {
    let bench = Bench::new();
    bench.small();
    for path in ["/dev/zero", "/dev/urandom"] {
        bench.refused(&["train", "small", "--init", path], &[path, "this is not a regular file"]);
        bench.refused(&["evaluate", path, "small"], &[path, "this is not a regular file"]);
        let words = ["this is a device, not a regular file"];
        bench.refused(&["plan", "--profile", path], &words);
        bench.misused(&["train", "small", "--plan", path], &words);
    }
}

/// A pipe that nobody writes to would be waited for forever, and a device may have no end: each reader says what its input is,
/// and ends.
#[cfg(unix)]
#[test]
fn inputs_that_are_no_regular_files() {
    use std::os::unix::fs::symlink;

    let bench = Bench::new();
    let file = model(&bench, |_| ());
    let small = "--layers 2 --hidden 8 --epochs 1 --profile-seconds 0.1";
    bench.text(&format!("train small {small} --run run").split(' ').collect::<Vec<_>>());
    fs::write(bench.path().join("e.csv"), "0,1\n1,0\n").expect("room");
    let pipe = bench.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo starts").success());
    // Places in directories that are read by the names of their files.
    let places = [
        "as-features/features.npy",
        "as-graph/graph.json",
        "as-array/src.npy",
        "as-pickle/ind.x.ally",
        "as-config/config.toml",
        "as-metrics/metrics.jsonl",
    ];
    for (place, from) in places.iter().zip(["small", "small", "", "", "run", "run"]) {
        let (dir, name) = place.split_once('/').expect("a file in a directory");
        fs::create_dir(bench.path().join(dir)).expect("room");
        let files = (!from.is_empty()).then(|| fs::read_dir(bench.path().join(from)).expect("there"));
        for entry in files.into_iter().flatten().map(|entry| entry.expect("readable")) {
            let to = bench.path().join(dir).join(entry.file_name());
            if entry.file_name() != name && entry.path().is_file() {
                fs::copy(entry.path(), to).expect("room");
            }
        }
    }
    fs::write(bench.path().join("as-pickle/ind.x.y"), "").expect("room");
    let lines = [
        format!("predict {file} small --nodes INPUT"),
        "evaluate INPUT small".to_string(),
        format!("train small {small} --init INPUT"),
        format!("train small {small} --plan INPUT"),
        "plan --profile INPUT".to_string(),
        "import edges INPUT -o out".to_string(),
        "import edges e.csv -o out --nodes INPUT".to_string(),
        "import edges e.csv -o out --features INPUT".to_string(),
        "import edges e.csv -o out --labels INPUT".to_string(),
        "import edges e.csv -o out --train INPUT".to_string(),
        "import mtx INPUT -o out".to_string(),
        "import metis INPUT -o out".to_string(),
        "import npz INPUT -o out".to_string(),
        "reorder small -o out --order INPUT".to_string(),
        "info as-features".to_string(),
        "info as-features --check".to_string(),
        "info as-graph".to_string(),
        "import numpy as-array -o out".to_string(),
        "train --resume as-config".to_string(),
        "train --resume as-metrics".to_string(),
    ];
    for input in [pipe.to_str().expect("text"), "/dev/zero"] {
        for place in places {
            let path = bench.path().join(place);
            let _ = fs::remove_file(&path);
            symlink(input, path).expect("room");
        }
        let what = if input == "/dev/zero" { "this is a device" } else { "this is a pipe" };
        for line in &lines {
            let line = line.replace("INPUT", input);
            let mut command = std::process::Command::new("timeout");
            command.args(["60", env!("CARGO_BIN_EXE_morphgl")]).args(line.split(' ')).current_dir(bench.path());
            let output = command.output().expect("timeout starts");
            let stderr = String::from_utf8_lossy(&output.stderr);
            let error = stderr.lines().filter(|line| line.starts_with("error:")).collect::<Vec<_>>();
            assert!(matches!(output.status.code(), Some(1 | 2)) && error.len() == 1, "{line}: {stderr}");
            let says = error[0].contains(what) && error[0].contains("not a regular file");
            assert!(says || error[0].contains("this is not a regular file"), "{line}: {stderr}");
            assert!(!bench.path().join("out").exists(), "{line}");
        }
    }
}

#[test]
fn lists_of_nodes_are_read_line_by_line() {
    let bench = Bench::new();
    let file = model(&bench, |_| ());
    let predict = ["predict", file, "small", "--nodes", "ids"];
    let write = |text: &[u8]| fs::write(bench.path().join("ids"), text).expect("room");
    write(b"\xef\xbb\xbf3\r\n\n 7 \n5");
    let text = bench.text(&predict);
    let ids: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(ids, ["3", "7", "5"]);
    write(&[vec![b'1'; 70_000], b"\n".to_vec()].concat());
    bench.refused(&predict, &["ids, line 1", "longer than 65536 bytes", "one id per line"]);
    write(&[b"1\n2\n".to_vec(), vec![b'x'; 5_000]].concat());
    bench.refused(&predict, &["ids, line 3", "is no node"]);
    assert!(String::from_utf8_lossy(&bench.run(&predict).stderr).len() < 1000);
    write(b"1\n\xff\n");
    bench.refused(&predict, &["ids, line 2", "no UTF-8"]);
}

#[test]
fn plans_with_impossible_numbers() {
    let bench = Bench::new();
    bench.small();
    let options = ["--layers", "2", "--hidden", "8", "--profile-seconds", "0.1", "--batch-size", "64"];
    bench.text(&[&["plan", "small", "-o", "plan.json"], &options[..]].concat());
    let good: Value =
        serde_json::from_str(&fs::read_to_string(bench.path().join("plan.json")).expect("there")).expect("JSON");
    let train = [&["train", "small", "--epochs", "1", "--plan", "bad.json"], &options[..]].concat();
    let write = |plan: &Value| fs::write(bench.path().join("bad.json"), plan.to_string()).expect("room");
    for (at, value, says) in [
        ("/schedule/training_threads", json!(i64::MAX), "training_threads: 9223372036854775807 is outside 1 to 1024"),
        ("/schedule/training_threads", json!(0), "training_threads: 0 is outside 1 to 1024"),
        ("/schedule/shares/0/workers", json!(1u64 << 40), "workers: 1099511627776 is outside"),
        ("/schedule/shares/0/workers", json!(0), "workers: 0 is outside"),
        ("/schedule/ready", json!(0), "ready: 0 is outside"),
        ("/schedule/batched", json!(u64::MAX), "batched: 18446744073709551615 is outside"),
        ("/schedule/shares/0/batches", json!(u64::MAX), "more than 2^32 - 1 mini-batches"),
        ("/schedule/shares/0/training/mean", json!(-1.0), "training: a mean of -1 s"),
        ("/schedule/shares", json!([]), "a schedule has 1 to 32"),
        ("/memory/host", json!(u64::MAX), "memory.host"),
        ("/strategy", json!("x".repeat(100_000)), "unknown variant"),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(at).unwrap_or_else(|| panic!("{at} is there")) = value;
        write(&bad);
        bench.misused(&train, &["--plan bad.json", says]);
        let error = String::from_utf8_lossy(&bench.run(&train).stderr).len();
        assert!(error < 2000, "{at}: a message of {error} bytes");
    }
    // A byte order mark is no fault.
    let marked = format!("\u{feff}{good}");
    fs::write(bench.path().join("bad.json"), marked).expect("room");
    bench.text(&train);
}

#[test]
fn headers_that_a_parser_with_backtracking_never_ends_with() {
    let bench = Bench::new();
    bench.small();
    let path = bench.path().join("small/indptr.npy");
    let whole = fs::read(&path).expect("there");
    for nested in ["{".repeat(16), "[".repeat(22), "(".repeat(110), "[".repeat(65_000)] {
        let mut header = nested.into_bytes();
        let bytes = if header.len() < 118 {
            header.resize(117, b' ');
            [&whole[..10], &header, b"\n", &whole[128..]].concat()
        } else {
            let len = (header.len() as u16).to_le_bytes();
            [&whole[..8], &len, &header, &whole[128..]].concat()
        };
        fs::write(&path, bytes).expect("room");
        bench.refused(&["info", "small"], &["small/indptr.npy", "the header has no descr, fortran_order and shape"]);
        let error = String::from_utf8_lossy(&bench.run(&["info", "small"]).stderr).len();
        assert!(error < 1000, "a message of {error} bytes");
    }
}

#[test]
fn sizes_that_dwarf_the_source() {
    let bench = Bench::new();
    fs::write(bench.path().join("two.txt"), "0 1\n1 0\n").expect("room");
    let import = ["import", "edges", "two.txt", "-o", "out"];
    let words = ["two.txt", "GiB, and the source has 8 bytes", "--allow-large"];
    bench.refused(&[&import[..], &["--num-nodes", "4000000000"]].concat(), &words);
    bench.refused(&[&import[..], &["--random-features", "4294967296"]].concat(), &words);
    bench.refused(&[&import[..], &["--random-features", "18446744073709551615"]].concat(), &words);
    let mtx = "%%MatrixMarket matrix coordinate pattern general\n4000000000 4000000000 1\n1 2\n";
    fs::write(bench.path().join("huge.mtx"), mtx).expect("room");
    bench.refused(&["import", "mtx", "huge.mtx", "-o", "out"], &["huge.mtx", "4000000000 nodes", "--allow-large"]);
    fs::write(bench.path().join("huge.graph"), "4000000000 1\n2\n1\n").expect("room");
    bench.refused(&["import", "metis", "huge.graph", "-o", "out"], &["huge.graph", "4000000000 nodes"]);
    assert_eq!(bench.names(), ["huge.graph", "huge.mtx", "two.txt"]);
    // What is small, or confirmed, is imported.
    bench.text(&[&import[..], &["--num-nodes", "100000"]].concat());
    bench.text(&[&import[..], &["--num-nodes", "100000", "--allow-large", "--force"]].concat());
}

/// Nodes in two splits are a remark wherever a dataset is opened, whoever wrote it.
#[test]
fn splits_that_overlap() {
    let bench = Bench::new();
    let mut writer = DatasetWriter::create(bench.path().join("set"), false).expect("a fresh path");
    writer.array("indptr", &[0u64, 1, 2, 2], None).expect("room");
    writer.array("indices", &[1u32, 0], None).expect("room");
    writer.array("features", &[0.5f32; 6], Some(2)).expect("room");
    writer.array("labels", &[0i32, 1, 0], None).expect("room");
    writer.array("train", &[0u32, 1], None).expect("room");
    writer.array("valid", &[1u32, 2], None).expect("room");
    writer.array("test", &[2u32, 1], None).expect("room");
    writer.finish("set", 2, Default::default()).expect("arrays that fit");
    let remark = "3 nodes are in more than one split";
    assert!(bench.text(&["info", "set"]).contains(remark));
    assert_eq!(bench.json(&["info", "set"])["splits"]["repeated"], 3);
    let train = ["train", "set", "--epochs", "1", "--layers", "1", "--hidden", "4", "--profile-seconds", "0.1"];
    let output = bench.run(&train);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.contains(remark), "{stderr}");
}

#[test]
fn far_more_classes_than_labelled_nodes() {
    let bench = Bench::new();
    fs::write(bench.path().join("e.txt"), "0 1\n1 2\n").expect("room");
    fs::write(bench.path().join("labels.csv"), "label\n5\n2000000\n7\n").expect("room");
    let text = bench.text(&["import", "edges", "e.txt", "-o", "out", "--labels", "labels.csv"]);
    assert!(text.contains("2000001 classes for 3 labelled nodes: number them without gaps"), "{text}");
}

/// The edges of a mapped dataset are overwritten in place while a run samples it: it ends with one line that names the file.
#[cfg(all(unix, feature = "cpu"))]
#[test]
fn edges_that_change_while_a_run_reads_them() {
    use std::io::Write;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use runs::Training;

    for sampler in ["neighbor --fanouts 5,5", "shadow --fanouts 2 --layers 2", "walk --layers 2"] {
        let bench = Bench::new();
        let small = bench.small();
        let run = bench.path().join("run");
        let line = format!(
            "train small --mmap --sampler {sampler} --batch-size 8 --hidden 8 --threads 2 --profile-seconds 0.05 --epochs 10000 \
             --training Training_CPU_Native --run run --checkpoint-every 5b"
        );
        let mut training = Training::start(bench.command(&line.split_whitespace().collect::<Vec<_>>()), &run);
        assert!(!training.wait_for_checkpoint(2), "{sampler}");
        let process = Pid::from_raw(training.id() as i32);
        kill(process, Signal::SIGSTOP).expect("it runs");
        let file = small.join("indices.npy");
        let mut bytes = fs::read(&file).expect("written");
        // Ids up to 2^32 - 1, of which hardly any is one of the 300 nodes.
        bytes[128..].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 97 + 13) as u8);
        fs::OpenOptions::new().write(true).open(&file).and_then(|mut file| file.write_all(&bytes)).expect("room");
        kill(process, Signal::SIGCONT).expect("it is stopped");
        let (code, _, stderr) = training.end();
        assert_eq!(code, Some(1), "{sampler}: {stderr}");
        let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error:")).collect();
        let [error] = errors[..] else { panic!("{sampler}: {stderr}") };
        for words in ["small/indices.npy: an edge comes from node", "but there are 300 nodes", "import it again"] {
            assert!(error.contains(words), "{sampler}: {stderr}");
        }
        assert!(!stderr.contains("panicked"), "{sampler}: {stderr}");
    }
}
