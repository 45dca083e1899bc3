#!/usr/bin/env python3
"""Is the planned split of the cores the best one? Every split is tried, in turns, beside the planner's own.

Usage: docs/benchmarks/splits.py --out DIR [--data DIR] [--rounds 5]
Needs a release build (`cargo build --release`), the standard library alone, and a quiet machine.
DIR for data holds gnn-benchmark-npz/ with Coauthor Physics (default: $MORPHGL_TEST_DATA); without it the embedded default
alone is tried. Every round plans once and runs one epoch of every split, so that a change of the machine's pace hits all alike.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import data

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data.add_option(parser)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    raw = open(args.out / "splits.jsonl", "a")

    def morphgl(*words):
        command = [str(args.binary), *words, "--json", "--quiet"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    def name(plan):
        schedule = plan["schedule"]
        share = schedule["shares"][0]
        pool = f"{share['workers']} x {share['threads_per_worker']}"
        return f"{schedule['policy']} {pool} + {schedule['training_threads']}"

    with tempfile.TemporaryDirectory() as directory:
        graphs = [("embedded default", [])]
        physics = data.find("gnn-benchmark-npz/coauthor_phy.npz", args.data)
        if physics:
            path = f"{directory}/physics"
            morphgl("import", "npz", str(physics), "-o", path, "--split", "0.6,0.2,0.2")
            graphs.append(("Coauthor Physics", [path]))
        for graph, dataset in graphs:
            planned = morphgl("plan", *dataset)
            cores = planned["profile"]["machine"]["cores"]
            template = next(p for p in planned["plans"] if p["strategy"] == "pipeline")
            sequential = next(p for p in planned["plans"] if p["strategy"] == "sequential")
            candidates = {}

            def add(plan, policy, workers, threads, training):
                plan = json.loads(json.dumps(plan))
                schedule = plan["schedule"]
                share = schedule["shares"][0]
                share.pop("contention", None)
                share.update(workers=workers, threads_per_worker=threads)
                schedule.update(training_threads=training)
                if policy == "pipeline":
                    schedule.update(ready=workers + 2)
                candidates[name(plan)] = plan

            for workers in range(1, cores + 1):
                for training in range(1, cores + 1):
                    if workers + training <= cores + 1:
                        add(template, "pipeline", workers, 1, training)
            add(template, "pipeline", 1, cores, cores)
            for threads in {1, cores}:
                add(sequential, "sequential", 1, threads, cores)
            seconds = {key: [] for key in candidates}
            chosen, predicted, own, costs = [], [], [], []
            for turn in range(args.rounds):
                run = morphgl("train", *dataset, "--evaluation", "none", "--epochs", "2")
                chosen.append(name(run["plan"]))
                predicted.append(run["predicted_epoch_seconds"])
                own.append(min(e["seconds"] for e in run["epochs"]))
                costs.append(run["profile"]["seconds"])
                raw.write(json.dumps({"graph": graph, "round": turn, "own": run}) + "\n")
                for key, plan in candidates.items():
                    file = pathlib.Path(directory) / "plan.json"
                    file.write_text(json.dumps(plan))
                    words = ["--evaluation", "none", "--epochs", "2", "--profile-seconds", "0.1", "--plan", str(file)]
                    run = morphgl("train", *dataset, *words)
                    seconds[key].append(min(e["seconds"] for e in run["epochs"]))
                    raw.write(json.dumps({"graph": graph, "round": turn, "split": key,
                                          "seconds": [e["seconds"] for e in run["epochs"]]}) + "\n")
                raw.flush()
            median = {key: statistics.median(values) for key, values in seconds.items()}
            best = min(median, key=median.get)
            print(f"\n{graph}: workers x threads each + training threads; the faster of two epochs, s; "
                  f"median (least–most) of {args.rounds} rounds\n")
            print("| split | epoch, s | over the best | planned in rounds |\n|---|---|---|---|")
            for key in sorted(median, key=median.get):
                values = seconds[key]
                rounds = chosen.count(key)
                print(f"| {key} | {median[key]:.2f} ({min(values):.2f}–{max(values):.2f}) | {median[key] / median[best]:.3f} "
                      f"| {rounds or ''} |")
            over = [median[c] / median[best] for c in chosen if c in median]
            print(f"\nplanned: {', '.join(chosen)}; their medians are {', '.join(f'{x:.3f}' for x in over)} of the best. "
                  f"Predicted {', '.join(f'{x:.2f}' for x in predicted)} s, run {', '.join(f'{x:.2f}' for x in own)} s; "
                  f"profiling took {', '.join(f'{x:.2f}' for x in costs)} s.", flush=True)


if __name__ == "__main__":
    main()
