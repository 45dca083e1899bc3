#!/usr/bin/env python3
"""Throughput of this machine: batching, training steps and epochs, as a table.

Usage: docs/benchmarks/throughput.py --out DIR [--data DIR] [--repeats 5]
Needs a release build (`cargo build --release`) and the standard library alone.
DIR for data holds gnn-benchmark-npz/ with Coauthor Physics (default: $MORPHGL_TEST_DATA);
without it the generated graphs alone are measured.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import data

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATED = {
    "embedded default": "sbm",
    "arxiv-like": "sbm --nodes 169000 --degree 14 --dim 128 --classes 40 --split 0.54,0.18,0.28",
    "products-like, a quarter": "sbm --nodes 600000 --degree 51 --dim 100 --classes 47 --split 0.08,0.02,0.9",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data.add_option(parser)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    raw = open(args.out / "throughput.jsonl", "a")

    def morphgl(*words):
        command = [str(args.binary), *words, "--json", "--quiet"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def spread(values, digits):
        return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"

    machine = morphgl("ops")["machine"]
    print(f"{machine['cpu']}, {machine['cores']} cores. Median (least–most) of {args.repeats} runs of the profiler and")
    print("of as many epochs; GraphSAGE, 3 layers of 256, fanouts 15,10,5, batch 1024. Batching is sampling and gathering.\n")
    print("| graph | batching, M edges/s, 1 worker | all cores | batching, batches/s, 1 worker | all cores "
          "| training step, ms, 1 thread | all cores | epoch, s | predicted | plan |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        graphs = []
        for name, recipe in GENERATED.items():
            path = f"{directory}/{len(graphs)}"
            morphgl("generate", *recipe.split(), "-o", path)
            graphs.append((name, path))
        physics = data.find("gnn-benchmark-npz/coauthor_phy.npz", args.data)
        if physics:
            path = f"{directory}/physics"
            morphgl("import", "npz", str(physics), "-o", path, "--split", "0.6,0.2,0.2")
            graphs.append(("Coauthor Physics", path))
        for name, path in graphs:
            profiles = [morphgl("profile", path, "--profile-seconds", "10")["profile"]["routes"][0] for _ in range(args.repeats)]
            train = morphgl("train", path, "--epochs", str(args.repeats), "--evaluation", "none")
            del train["dataset"]["path"]
            for record in profiles + [train]:
                raw.write(json.dumps({"graph": name, **record}) + "\n")

            def batching(profile, workers):
                points = [p for p in profile["batching"] if p["threads"] == 1]
                point = min(points, key=lambda p: abs(p["workers"] - workers))
                return 1 / point["seconds"]["median"]

            def step(profile, threads):
                point = min(profile["training"], key=lambda p: abs(p["threads"] - threads))
                return 1e3 * point["seconds"]["median"]

            cells = [name]
            for workers in (1, machine["cores"]):
                cells.append(spread([batching(p, workers) * p["edges_per_batch"] / 1e6 for p in profiles], 1))
            for workers in (1, machine["cores"]):
                cells.append(spread([batching(p, workers) for p in profiles], 1))
            for threads in (1, machine["cores"]):
                cells.append(spread([step(p, threads) for p in profiles], 0))
            cells.append(spread([e["seconds"] for e in train["epochs"]], 2))
            schedule = train["plan"]["schedule"]
            cells.append(f"{train['predicted_epoch_seconds']:.2f}")
            share = schedule["shares"][0]
            cells.append(f"{schedule['policy']}, {share['workers']} x {share['threads_per_worker']} "
                         f"+ {schedule['training_threads']}")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
