//! `docs/benchmarks/gpu.sh`, which runs on machines that are there for minutes: on a build whose programs are scripts, all of it runs
//! here.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::root;

/// Programs of a build. `FAKE_DEVICE` is the reason why there is no device; with `FAKE_FULL` the disk is.
const MORPHGL: &str = r#"#!/bin/sh
case "$*" in
  *DmaGather.cache_bytes*) echo "error: --set Transferring_CUDA+PCIe_DmaGather: no plan here uses it, so its options are not read"; exit 2 ;;
esac
case "$1 $2" in
  "ops --json") [ -z "$FAKE_DEVICE" ] && found=true || found=false
    echo "{\"operators\": [{\"key\": \"Training_CUDA_Native\", \"available\": $found, \"reason\": \"$FAKE_DEVICE\"}]}" ;;
  "generate sbm") [ -z "$FAKE_FULL" ] || { echo "no space left" >&2; exit 4; }; mkdir "$5"; touch "$5/graph.json" ;;
  "train "*) epoch='{"seconds": 0.25, "report": {"batches": 10, "busy": {"training": 0.1}, "counters": {"X": {"link_bytes": 1}},
    "resources": [{"resource": "CPU", "share": 0.5}]}}'
    echo "{\"predicted_epoch_seconds\": 0.5, \"epochs\": [$epoch, $epoch]}" ;;
esac
"#;
const BENCH: &str = "#!/bin/sh\necho '{\"what\": \"bench\", \"median\": 1.5}'\n";
/// Some results, then a line that is cut off, and a failure.
const TRANSLATION: &str = r#"#!/bin/sh
echo '{"what": "translation memory", "memory": "on_node", "bytes": 5, "block_copy_gb_per_s": [1.0, 2.0]}'
echo '{"what": "translation", "memory": "on_node", "row_bytes": 200, "table": 4194304, "order": "sorted", "blocks": 24, "median": 8.5}'
echo '{"what": "transl'
exit 3
"#;

/// Says where the programs of its arguments are, as cargo does: all of them are `new/morphgl`.
const CARGO: &str = r#"#!/bin/sh
program() { echo "{\"reason\": \"compiler-artifact\", \"target\": {\"name\": \"$1\"}, \"executable\": \"$PWD/new/morphgl\"}"; }
echo '{"reason": "compiler-artifact", "target": {"name": "a-library"}, "executable": null}'
case "$1" in
  build) program morphgl ;;
  test) program conformance; program kernels ;;
  bench) while [ "$1" != --bench ]; do shift; done; program "$2" ;;
esac
"#;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        for (build, name, text) in [
            ("old", "morphgl", MORPHGL),
            ("old", "benches/gather", BENCH),
            ("old", "benches/step", BENCH),
            ("old", "tests/a-conformance", "#!/bin/sh\n"),
            ("new", "morphgl", MORPHGL),
            ("new", "benches/gather", BENCH),
            ("new", "benches/step", BENCH),
            ("new", "benches/translation", TRANSLATION),
            ("new", "tests/a-conformance", "#!/bin/sh\n"),
            ("new", "tests/a-new", "#!/bin/sh\n"),
            // Runs what follows its option.
            ("bin", "cargo", CARGO),
            ("bin", "strip", "#!/bin/sh\n"),
            ("bin", "compute-sanitizer", "#!/bin/sh\nshift 2\nexec \"$@\"\n"),
        ] {
            let path = folder.path().join(build).join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("disk space");
            fs::write(&path, text).expect("disk space");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        // The interpreter itself, where python3 is a script that chooses one.
        let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        let python = String::from_utf8(python.expect("python3 is there").stdout).expect("UTF-8");
        symlink(python.trim(), folder.path().join("bin/python3")).expect("disk space");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs gpu.sh in the folder, with these variables; returns the table.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let said = self.bash(root().join("docs/benchmarks/gpu.sh"), arguments, variables);
        let table = fs::read_to_string(self.path("out/table.md")).unwrap_or_else(|e| panic!("no table: {e}; {said}"));
        assert!(fs::metadata(self.path("out/results.tar.gz")).is_ok_and(|file| file.len() > 100), "{said}");
        table
    }

    /// Runs a script in the folder; returns what it prints.
    fn bash(&self, script: PathBuf, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").expect("there"));
        let mut command = Command::new("bash");
        command.arg(script).args(arguments).current_dir(self.0.path());
        let given =
            [("PATH", &*path), ("OUT", "out"), ("GRIDS", "lines=96"), ("MORPHGL_CUBLAS", "x"), ("MORPHGL_NVRTC", "x")];
        let output = command.envs(given).envs(variables.iter().copied()).output().expect("bash is there");
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?} {variables:?}: {said}");
        said
    }
}

#[track_caller]
fn has(table: &str, lines: &[&str]) {
    for line in lines {
        assert!(table.contains(line), "no {line:?} in the table:\n{table}");
    }
}

#[test]
fn quarter_runs_every_part_and_no_failure_ends_another() {
    let machine = Machine::new();
    let table = machine.run(&["quarter", "old", "new"], &[("MODELS", "gcn")]);
    let script = text("gpu_quarter.sh");
    for part in words(&script, "QUARTER=\"") {
        has(&table, &[&format!("- part {part}: ended after ")]);
    }
    has(
        &table,
        &[
            "- bench translation: failed (status 3): {\"what\": \"transl",
            "| on_node | 200 | 4 | sorted | 8.5 |",
            "block copy 2.0 GB/s",
            "| grid old | products | sage |",
            ".lines=96` | 0.250 0.250 |",
            "| gcn | 0.250 | 0.250 | 1.000 |",
            "| 2 | 0.250 | 0.250 | 0.250 | 0.250 | 1.000 | 0.500 |",
            "- bench step-old: passed",
            "- suite a-conformance: passed",
            "- memcheck a-new: passed",
            "- peer torch_epoch.py gcn: ",
            "- rule new products gcn ",
            "- wholegraph: skipped: ",
        ],
    );
    assert!(!table.contains("cannot be shown"), "{table}");
    // Another call goes on: nothing that has ended runs again.
    let runs = |table: &str| table.lines().filter(|line| line.starts_with("- turn ")).count();
    let again = machine.run(&["quarter", "old", "new"], &[("PARTS", "turns"), ("MODELS", "gcn")]);
    assert_eq!((runs(&table), runs(&again)), (4, 4), "{again}");
    assert_eq!(again.matches("| turn 1 old | products | gcn |").count(), 1, "{again}");
}

#[test]
fn quarter_without_a_device_a_disk_or_time_says_so_and_ends() {
    let machine = Machine::new();
    let table = machine.run(&["quarter", "old", "new"], &[("FAKE_DEVICE", "no CUDA driver found")]);
    has(&table, &["- quarter: skipped: no CUDA driver found"]);
    assert!(!table.contains("- part "), "{table}");
    let table = machine.run(&["quarter", "-", "new"], &[("FAKE_FULL", "yes"), ("PARTS", "turns benches")]);
    has(&table, &["- graph products: failed (status 4): no space left", "- bench gather-new: passed", "none is given"]);
    let table = machine.run(&["quarter", "gone", "new"], &[("MINUTES", "0"), ("PARTS", "translation")]);
    has(&table, &["- old build: skipped: gone has no program morphgl", "- bench translation: skipped: no time left"]);
}

#[test]
fn pack_makes_an_archive_that_runs_where_it_is_unpacked() {
    let machine = Machine::new();
    let said = machine.bash(root().join("docs/benchmarks/gpu.sh"), &["pack", "it.tar.xz"], &[]);
    // One program of tests per crate: that of the kernels needs their sources.
    let crates = words(&text("gpu.sh"), "CRATES=(").len();
    assert!(said.contains(&format!("it.tar.xz: 0 MB, {crates} test programs")), "{said}");
    fs::create_dir(machine.path("there")).expect("disk space");
    let mut unpack = Command::new("tar");
    unpack.arg("-xJf").args([machine.path("it.tar.xz"), "-C".into(), machine.path("there")]);
    assert!(unpack.status().expect("tar is there").success());
    for bench in words(&text("gpu.sh"), "BENCHES=(") {
        assert!(machine.path("there/benches").join(bench.split_once(':').expect("a bench").1).exists(), "no {bench}");
    }
    let no_device = [("FAKE_DEVICE", "no CUDA driver found")];
    for arguments in [&["quarter", "old", "there"][..], &["run", "out", "smoke"]] {
        let said = machine.bash(machine.path("there/gpu.sh"), arguments, &no_device);
        assert!(said.contains("skipped: no CUDA driver found"), "{arguments:?}: {said}");
    }
}

fn text(name: &str) -> String {
    let path = root().join("docs/benchmarks").join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The words between a mark and the character that closes it.
fn words<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let rest = text.split_once(mark).unwrap_or_else(|| panic!("no {mark}")).1;
    rest.split(['"', ')']).next().expect("it is closed").split_whitespace().collect()
}

#[test]
fn gpu_sh_names_stages_parts_crates_benches_and_files_that_exist() {
    let (script, quarter) = (text("gpu.sh"), text("gpu_quarter.sh"));
    for stage in words(&script, "STAGES=\"") {
        assert!(script.contains(&format!("\n{stage}() {{")), "gpu.sh has no stage {stage}");
        assert!(script.contains(&format!("\n#   {stage} ")), "gpu.sh does not describe the stage {stage}");
    }
    for part in words(&quarter, "QUARTER=\"") {
        assert!(quarter.contains(&format!("\nquarter_{part}() {{")), "gpu_quarter.sh has no part {part}");
        let limit = quarter.split_once(&format!(" {part}) echo ")).and_then(|(_, rest)| rest.split_once(' '));
        let seconds: f64 = limit.expect("a limit").0.parse().expect("a number of seconds");
        let described = quarter.lines().find_map(|line| line.strip_prefix(&format!("#   {part} ")));
        let minutes: f64 = described.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("minutes");
        assert!((seconds / 60.0 - minutes).abs() <= 0.05, "{part}: {seconds} s, described as {minutes} minutes");
    }
    for file in words(&script, "FILES=(") {
        assert!(Path::new(&root().join("docs/benchmarks").join(file)).exists(), "{file} is packed, and not there");
    }
    let manifests: Vec<(PathBuf, String)> = super::crates()
        .into_iter()
        .map(|folder| (folder.clone(), fs::read_to_string(folder.join("Cargo.toml")).expect("there")))
        .collect();
    let of = |name: &str| {
        let found = manifests.iter().find(|(_, text)| text.contains(&format!("\nname = \"{name}\"\n")));
        found.unwrap_or_else(|| panic!("gpu.sh names {name}, which is no crate")).0.clone()
    };
    words(&script, "CRATES=(").into_iter().for_each(|name| drop(of(name)));
    for bench in words(&script, "BENCHES=(") {
        let (name, bench) = bench.split_once(':').expect("crate and bench");
        assert!(of(name).join(format!("benches/{bench}.rs")).exists(), "{name} has no bench {bench}");
    }
    for name in ["gpu.sh", "gpu_quarter.sh"] {
        let checked = Command::new("bash").arg("-n").arg(root().join("docs/benchmarks").join(name)).output();
        let checked = checked.expect("bash is there");
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// The raw runs of a directory of benchmarks, by the paths in its archive.
fn raw_runs(folder: &Path) -> Vec<String> {
    let listed = Command::new("tar").arg("-tJf").arg(folder.join("raw.tar.xz")).output().expect("tar is there");
    assert!(listed.status.success(), "{}: {}", folder.display(), String::from_utf8_lossy(&listed.stderr));
    String::from_utf8_lossy(&listed.stdout).lines().map(str::to_string).collect()
}

#[test]
fn raw_runs_that_a_table_names_are_in_its_archive() {
    let folders =
        fs::read_dir(root().join("docs/benchmarks")).expect("there").map(|entry| entry.expect("readable").path());
    let mut names = 0;
    for folder in folders.filter(|folder| folder.join("raw.tar.xz").exists()) {
        let raw = raw_runs(&folder);
        let readme = fs::read_to_string(folder.join("README.md")).expect("there");
        let quoted = readme.split('`').skip(1).step_by(2);
        for name in
            quoted.filter(|word| word.ends_with(".jsonl") && !word.starts_with('.') && !word.contains([' ', '*', '$']))
        {
            let found = raw.iter().any(|path| path == name);
            assert!(found, "{}: {name} is named, and not in raw.tar.xz: {raw:?}", folder.display());
            names += 1;
        }
    }
    assert!(names > 0, "no table names a raw run");
}
