//! What comes from outside of a command: signals, paths of any bytes, hostile values of options; and the status it ends with.
#![cfg(unix)]

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

use support::Bench;

fn send(signal: &str, child: &std::process::Child) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success(), "{signal}");
}

/// Commands that measure are interrupted while they do: the status is that of the signal, and one line says so.
#[test]
fn measurements_that_are_interrupted() {
    let bench = Bench::new();
    bench.small();
    let commands = [
        "profile small --hidden 8 --profile-seconds 1000 --save out.json",
        "plan small --hidden 8 --profile-seconds 1000 -o out.json",
        "train small --hidden 8 --profile-seconds 1000 --run run --save out.safetensors",
        "bench sample small --repeats 100000",
        "cache small --epochs 1000000 --save out.npy --policies inclusion",
    ];
    for line in commands {
        let args: Vec<&str> = line.split_whitespace().collect();
        for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
            let mut command = bench.command(&args);
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
            let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
            // Once the line about the dataset is there, signal handlers are installed, and the work begins.
            let mut text = String::new();
            stderr.read_line(&mut text).expect("text");
            assert!(text.starts_with("sbm-300:"), "{line}: {text}");
            send(signal, &child);
            text.clear();
            stderr.read_to_string(&mut text).expect("text");
            assert_eq!(child.wait().expect("it ends").code(), Some(status), "{line}: {text}");
            let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
            assert!(errors.len() == 1 && errors[0].starts_with("error: interrupted"), "{line}: {text}");
            assert_eq!(bench.names(), ["small"], "{line}");
        }
    }
}

/// A process that hangs while it holds the lock of stderr is ended by SIGTERM all the same.
#[cfg(target_os = "linux")]
#[test]
fn sigterm_ends_a_process_that_hangs() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let bench = Bench::new();
    bench.small();
    // Nobody reads this stderr, and it is full: the first remark waits for ever.
    let (_reader, mut full) = std::io::pipe().expect("a pipe");
    // SAFETY: the call changes the size of a pipe.
    let size = unsafe { nix::libc::fcntl(full.as_raw_fd(), nix::libc::F_SETPIPE_SZ, 4096) };
    full.write_all(&vec![b'x'; usize::try_from(size).expect("a size")]).expect("as much as fits");
    let mut command = bench.command(&["train", "small", "--epochs", "100000000", "--run", "run"]);
    let mut child = command.stdout(Stdio::null()).stderr(full).spawn().expect("the binary starts");
    let state = format!("/proc/{}/syscall", child.id());
    let mut wait = |what: &str, is_so: &mut dyn FnMut(&mut std::process::Child) -> bool| {
        let start = std::time::Instant::now();
        while !is_so(&mut child) {
            assert!(start.elapsed().as_secs() < 120, "timeout: {what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let writes = || fs::read_to_string(&state).is_ok_and(|call| call.split(' ').nth(1) == Some("0x2"));
    wait("a write to stderr", &mut |_| writes());
    wait("its end", &mut |child| {
        send("-TERM", child);
        std::thread::sleep(std::time::Duration::from_millis(50));
        child.try_wait().expect("it can be waited for").is_some()
    });
    assert_eq!(child.wait().expect("it ended").code(), Some(143));
    assert_eq!(bench.names(), ["small"]);
}

/// `name` with a byte that is no UTF-8.
fn odd(name: &str) -> OsString {
    let mut bytes = b"caf\xe9-".to_vec();
    bytes.extend_from_slice(name.as_bytes());
    OsStr::from_bytes(&bytes).to_os_string()
}

/// Arguments of a line, of which `@name` is an odd path.
fn args(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(|word| word.strip_prefix('@').map_or_else(|| word.into(), odd)).collect()
}

#[track_caller]
fn run(bench: &Bench, line: &str) -> Output {
    let output = bench.command(&[]).args(args(line)).output().expect("the binary starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{line}: {stderr}");
    output
}

#[track_caller]
fn json(bench: &Bench, line: &str) -> serde_json::Value {
    let output = run(bench, &format!("{line} --json"));
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// Files have the true names; JSON has U+FFFD for each byte that is no text.
#[test]
#[cfg(target_os = "linux")]
fn paths_that_are_not_utf_8() {
    let bench = Bench::new();
    let path = |name: &str| bench.path().join(odd(name));
    let made = json(&bench, "generate sbm -o @set --nodes 300 --classes 3 --dim 8 --degree 6");
    assert_eq!(made["path"], "caf\u{fffd}-set");
    assert!(path("set").join("graph.json").exists());
    assert_eq!(json(&bench, "info @set")["num_nodes"], 300);
    fs::write(path("edges.csv"), "src,dst\n0,1\n1,2\n2,0\n").expect("room");
    json(&bench, "import edges @edges.csv -o @imported");
    json(&bench, "import edges @edges.csv -o @imported --force");
    json(&bench, "bench ingest @edges.csv --repeats 1");
    let hot = json(&bench, "reorder @set -o @hot");
    assert_eq!(hot["provenance"]["reordered"][0]["source"], "caf\u{fffd}-set");
    let small = "--layers 2 --hidden 8 --fanouts 5,5 --profile-seconds 0.05";
    let trained = json(&bench, &format!("train @set {small} --epochs 1 --run @run --save @model"));
    assert_eq!((&trained["run"], &trained["dataset"]["path"]), (&"caf\u{fffd}-run".into(), &"caf\u{fffd}-set".into()));
    assert!(path("run").join("report.html").exists() && path("model").exists());
    json(&bench, &format!("train @set {small} --epochs 1 --init @model"));
    json(&bench, "evaluate @model @set");
    fs::write(path("ids"), "1\n2\n").expect("room");
    assert_eq!(json(&bench, "predict @model @set --nodes @ids -o @out.csv")["output"], "caf\u{fffd}-out.csv");
    assert_eq!(fs::read_to_string(path("out.csv")).expect("there").lines().count(), 3);
    json(&bench, "predict @model @set -o @out.npy");
    // config.toml leads back to the dataset.
    json(&bench, "cache --run @run --policies inclusion --save @scores.npy --plot @plot.svg");
    assert!(path("run").join("cache.json").exists() && path("plot.svg").exists() && path("scores.npy").exists());
    json(&bench, "reorder @set -o @hot --force --by random");
    json(&bench, &format!("profile @set {small} --save @profile"));
    json(&bench, "plan --profile @profile --timeline @t.svg --report @r.html -o @plan");
    // Values that are no paths have to be text.
    assert_eq!(run(&bench, "train @set --model @gcn").status.code(), Some(2));
    for missing in ["info @none", "evaluate @none @set", "train @none", "import npz @none -o @n", "predict @none @set"]
    {
        assert_eq!(run(&bench, missing).status.code(), Some(1), "{missing}");
    }
}

/// Hostile values: status 2 and one line that names the option or its value, before the dataset is looked for or anything is
/// written. The options of each line are tried one by one, separated by `|`.
#[test]
fn hostile_values_of_options() {
    let bench = Bench::new();
    bench.small();
    let batch = "--fanouts 0 | --fanouts 5,x | --fanouts= | --batch-size 0 | --batch-size -1 | --sampler none | --threads 0 | \
                 --threads 513 | --seed -1 | --expansion old | --walks 3 | --sampler walk --walks 0 | \
                 --sampler walk --restart 2 | --sampler walk --neighbors 0 | --batching Batching_CPU_None | \
                 --training CPU | --set Training_CPU_Native | --set Training_CPU_Native.none=1 | \
                 --batching Training_CPU_Native | --weighted | --sampler walk --walks 30000 --walk-length 3 | \
                 --set Batching_CPU+Disk_Neighbor.cache=hindsight";
    let model = "--model cnn | --layers 0 | --layers 65 | --hidden 0 | --model gat --heads 0 | --dropout 1 | --dropout nan | \
                 --dropout -0.1 | --lr nan | --lr inf | --lr=-1 | --weight-decay=-1 | --input-dropout 1e9 | --activation tanh | \
                 --normalization l2 | --layers 2 --fanouts 5,5,5";
    let planned = "--profile-seconds 0 | --profile-seconds nan | --profile-seconds 1e300 | --memory 0 | --memory=-1GiB | \
                   --memory 8XB | --memory nan | --device-memory 0 | --buffer 0 | --buffer 65536 | --cache best | \
                   --cache none:1GiB | --cache inclusion:0 | --cache inclusion";
    let train = "--epochs -1 | --epochs 99999999999 | --patience -1 | --evaluation maybe | --evaluate-every 0 | --time-limit 0 | \
                 --time-limit inf | --plan none | --plan device --fanouts 5,5 --layers 2 --hidden 8 --profile-seconds 0.05";
    let amount = "--repeats 0 | --repeats 100001 | --batches 0 | --warm-up -1";
    let table = [
        ("generate ring -o out", ""),
        (
            "generate sbm -o out",
            "--nodes -1 | --nodes 0 | --nodes 1e9 | --nodes 99999999999 | --degree nan | --degree=-3 | --degree inf | \
             --degree 1e300 | --classes 0 | --classes -1 | --dim -1 | --dtype f64 | --homophily 2 | --homophily nan | \
             --signal nan | --signal inf | --split 1,1,1 | --split 1 | --split nan,0,0 | --memory 0 | --memory x | --seed x",
        ),
        ("generate rmat -o out", "--nodes 0 | --degree 0 | --degree nan | --homophily 0.5 | --classes 0"),
        ("import none source -o out", ""),
        (
            "import edges source -o out",
            "--split 2,0,0 | --split 0.5 | --random-features 0 | --random-features -1 | --random-labels 0 | --memory 0 | \
             --dtype i64 | --ids names | --rows sources | --first-id -1 | --num-nodes -1 | --normalize-features | \
             --id-column 1 | --label-column y",
        ),
        ("reorder small -o out", "--by heat | --fanouts 5 | --by inclusion --fanouts 0 | --threads 0 | --by hindsight"),
        ("profile small", batch),
        ("profile small", model),
        ("profile small", planned),
        ("plan small", planned),
        (
            "plan --durations batching-cpu=80ms,transferring-pcie=4ms,training=10ms",
            "--what-if CPU | --what-if CPU*0 | --what-if CPU*nan | --what-if NONE*2 | --buffer 0 | --hidden 8",
        ),
        (
            "plan --durations",
            "training | training=1 | training=-1ms | training=nanms | none=1ms | training=1ms | workers=0",
        ),
        ("train small", batch),
        ("train small", model),
        ("train small", planned),
        ("train small", train),
        ("evaluate none small", "--evaluation none | --memory 0 | --threads 0"),
        ("predict none small", "-o out.txt | -o out | --memory 0 | --nodes"),
        (
            "cache small",
            "--shares 101 | --shares nan | --shares=-1 | --policies heat | --epochs 0 | --epochs -1 | --save out.npy | \
             --policies inclusion --sampler walk | --policies presample:0 | --weighted | --sampler walk --walks 65537",
        ),
        ("bench sample small", amount),
        ("bench sample small", "--weighted | --sampler walk --walk-length 65537"),
        ("bench step small", amount),
        ("bench epoch small", "--repeats 0 | --dropout 2 | --lr nan"),
        ("bench ingest edges.csv", "--threads 0 | --repeats 0 | --format none | -- --split 2,0,0"),
        ("ops", "--threads"),
    ];
    let mut wrong = Vec::new();
    for (command, options) in table {
        for option in options.split('|') {
            let args: Vec<&str> = command.split_whitespace().chain(option.split_whitespace()).collect();
            let output = bench.run(&args);
            let stderr = String::from_utf8_lossy(&output.stderr);
            let errors = stderr.lines().filter(|line| line.starts_with("error:")).count();
            if output.status.code() != Some(2) || errors != 1 || !output.stdout.is_empty() {
                wrong.push(format!("{}: status {:?}: {stderr}", args.join(" "), output.status.code()));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "{}", wrong.join("\n"));
    assert_eq!(bench.names(), ["small"]);
}

/// Names from outside neither command a terminal, nor a spreadsheet where this is asked for; files have them as they are.
#[test]
fn names_from_outside_are_harmless() {
    let bench = Bench::new();
    let write = |name: &str, text: &str| fs::write(bench.path().join(name), text).expect("room");
    let read = |name: &str| fs::read_to_string(bench.path().join(name)).expect("written");
    let (mut edges, mut nodes) = ("src,dst\n".to_string(), "name,label,split,f0\n".to_string());
    let names = ["=1+1", "\x1b[31mred", "-5", "plain", "@x,\"y\"", "\u{9b}2J"]
        .map(|n| format!("\"{}\"", n.replace('"', "\"\"")));
    for (i, name) in names.iter().enumerate() {
        edges += &format!("{name},{}\n", names[(i + 1) % 6]);
        nodes += &format!("{name},{},{},{i}\n", ["+cat", "dog"][i % 2], ["train", "valid", "test"][i % 3]);
    }
    write("e.csv", &edges);
    write("n.csv", &nodes);
    bench.text(&["import", "edges", "e.csv", "-o", "d", "--ids", "strings", "--nodes", "n.csv"]);
    let train = "train d --model mlp --layers 1 --epochs 1 --profile-seconds 0.1 --save m.safetensors --run";
    let train: Vec<&str> = train.split(' ').chain(["it's a run"]).collect();
    bench.text(&train);
    let page = read("it's a run/report.html");
    assert!(page.contains("--run &#39;it&#39;\\&#39;&#39;s a run&#39;"), "words of the shell");

    let output = bench.run(&["predict", "m.safetensors", "d"]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let raw = |text: &str| text.contains(|c: char| c.is_control() && c != '\n');
    assert!(output.status.success() && !raw(&stdout) && !raw(&stderr), "{stdout}{stderr}");
    assert!(stdout.contains("\\u{1b}[31mred,") && stdout.contains("\\u{9b}2J,"), "{stdout}");
    assert!(stderr.contains("--quote-formulas"), "{stderr}");
    bench.text(&["predict", "m.safetensors", "d", "-o", "as-they-are.csv"]);
    let exact = read("as-they-are.csv");
    assert!(["\n=1+1,", "\n\x1b[31mred,", "\n\"@x,\"\"y\"\"\","].iter().all(|cell| exact.contains(cell)), "{exact}");
    let output = bench.run(&["predict", "m.safetensors", "d", "-o", "quoted.csv", "--quote-formulas"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("formula"), "nothing to say");
    let quoted = read("quoted.csv");
    let cells = ["\n'=1+1,", "\n-5,", "\nplain,", "\n\"'@x,\"\"y\"\"\","];
    assert!(cells.iter().all(|cell| quoted.contains(cell)), "{quoted}");
    assert_eq!(quoted.matches(",+cat,").count(), 0, "{quoted}");

    // A graph.json of somebody else's.
    let mut graph: serde_json::Value = serde_json::from_str(&read("d/graph.json")).expect("JSON");
    let name = "evil\x1b]0;title\x07\u{9b}31m\nnodes     9";
    graph["name"] = name.into();
    graph["provenance"]["notes"] = serde_json::json!(["one\r\x1b[2Ktwo\nsize      0"]);
    write("d/graph.json", &graph.to_string());
    let text = bench.text(&["info", "d"]);
    assert!(!raw(&text) && !text.contains("\nnodes     9") && !text.contains("\nsize      0\n"), "{text}");
    let text = bench.text(&["info", "d", "--json"]);
    assert!(!raw(&text), "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["name"], name);
    let output = bench.run(&["evaluate", "m.safetensors", "d"]);
    assert!(output.status.success() && !raw(&String::from_utf8_lossy(&output.stderr)));
}
