//! `--memory` of generate and import: peak memory, and refusals.
#![cfg(target_os = "linux")]

mod support;

use support::Bench;

/// The minimum in the error message for too little memory, in MiB.
fn minimum(bench: &Bench, args: &[&str]) -> u64 {
    let args = [args, &["-o", "out", "--memory", "1KiB"]].concat();
    bench.misused(&args, &["--memory", "1.0 KiB", "give at least", "MiB"]);
    let stderr = String::from_utf8(bench.run(&args).stderr).expect("text");
    let (_, rest) = stderr.split_once("at least ").expect("refused above");
    rest.trim_end().trim_end_matches("MiB").parse().expect("a number of MiB")
}

/// Runs within `mib` MiB; returns the peak memory in bytes.
fn peak(bench: &Bench, args: &[&str], threads: &str, mib: u64) -> u64 {
    let memory = format!("{mib}MiB");
    let mut command = bench.command(args);
    command.args(["-o", "out", "--force", "--quiet", "--memory", &memory]).env("RAYON_NUM_THREADS", threads);
    let (output, peak) = support::peak(&mut command);
    assert!(output.status.success(), "{args:?} in {memory} on {threads} threads: {output:?}");
    peak
}

#[track_caller]
fn check(bench: &Bench, args: &[&str]) {
    // With more threads their buffers count; the limits are lower than without a budget.
    for (threads, more) in [("1", 0), ("4", 8), ("48", 100)] {
        let mib = minimum(bench, args) + more + threads.parse::<u64>().expect("a number");
        let peak = peak(bench, args, threads, mib);
        assert!(peak > 8 << 20, "{peak} bytes: nothing was measured");
        assert!(peak <= mib << 20, "{args:?} on {threads} threads: {peak} bytes in {mib} MiB");
    }
}

#[test]
fn generating_stays_within_the_memory_given() {
    let bench = Bench::new();
    let sbm = ["generate", "sbm", "--nodes", "150000", "--dim", "128"];
    minimum(&bench, &sbm);
    assert_eq!(bench.names(), [""; 0], "refused before anything is written");
    check(&bench, &sbm);
    check(&bench, &["generate", "rmat", "--nodes", "200000", "--dim", "16", "--symmetrise"]);
}

#[test]
fn importing_stays_within_the_memory_given() {
    let bench = Bench::new();
    let edges = |i: u64| format!("{} {}\n", i * 7919 % 50_021, i * 104_729 % 50_023);
    std::fs::write(bench.path().join("edges.txt"), (0..600_000).map(edges).collect::<String>()).expect("room");
    let args = ["import", "edges", "edges.txt", "--symmetrise"];
    minimum(&bench, &args);
    assert_eq!(bench.names(), ["edges.txt"], "refused before anything is written");
    check(&bench, &args);
}
