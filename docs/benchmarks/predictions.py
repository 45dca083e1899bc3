#!/usr/bin/env python3
"""How well short epochs are predicted: of jobs whose epochs take 1 to 20 ms, measured over predicted seconds, run by run.

    predictions.py BINARY [--runs 20] [--raw predictions.jsonl]

Each run of a job measures, plans and trains anew, 30 epochs without evaluation; "measured" is the median of its epochs. Prints a table
of medians and spreads over the runs; the jobs take turns, so that other work on the machine meets all of them alike."""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

CORA = pathlib.Path(__file__).parents[2] / "testdata" / "planetoid" / "ind.cora"
JOBS = {
    "Cora, GCN of width 256": ["cora", "--model", "gcn", "--fanouts=-1,-1", "--hidden", "256", "--threads", "2"],
    "Cora, GraphSAGE, one thread": ["cora", "--fanouts", "10,5", "--hidden", "256", "--threads", "1"],
    "Cora, GraphSAGE": ["cora", "--fanouts", "10,5", "--hidden", "256", "--threads", "2"],
    "Cora, GAT": ["cora", "--model", "gat", "--fanouts", "10,10", "--hidden", "256", "--threads", "2"],
    "Cora, MLP of width 1024": ["cora", "--model", "mlp", "--layers", "2", "--hidden", "1024", "--threads", "2"],
    "SBM of 3,000 nodes, GraphSAGE": ["sbm3", "--fanouts", "10,5", "--hidden", "64", "--batch-size", "256", "--threads", "2"],
    "SBM of 3,000 nodes, GAT": ["sbm3", "--model", "gat", "--fanouts", "5,5", "--hidden", "32", "--threads", "2"],
    "SBM of 10,000 nodes, GraphSAGE": ["sbm10", "--fanouts", "10,5", "--hidden", "64", "--threads", "2"],
    "SBM of 10,000 nodes, GCN": ["sbm10", "--model", "gcn", "--fanouts", "10,5", "--hidden", "64", "--threads", "2"],
}


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("binary", type=pathlib.Path)
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--raw", type=pathlib.Path, help="file for the figures of every run")
    args = options.parse_args()
    binary = args.binary.resolve()
    raw = []
    with tempfile.TemporaryDirectory() as folder:
        def morphgl(*words):
            done = subprocess.run([binary, *words, "--json", "--quiet"], cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
            return json.loads(done.stdout)

        morphgl("import", "planetoid", CORA, "-o", "cora")
        for thousands in (3, 10):
            morphgl("generate", "sbm", "--nodes", f"{thousands}000", "-o", f"sbm{thousands}")
        for run in range(args.runs):
            for job, words in JOBS.items():
                done = morphgl("train", *words, "--epochs", "30", "--evaluation", "none")
                raw.append({
                    "job": job, "run": run, "predicted": done["predicted_epoch_seconds"],
                    "measured": done["measured_epoch_seconds"], "keys": done["plan"]["schedule"]["shares"][0]["keys"],
                })
    if args.raw:
        args.raw.write_text("".join(json.dumps(row) + "\n" for row in raw))
    print("| job | predicted, ms | measured, ms | measured / predicted: median | least to most |\n|---|---|---|---|---|")
    for job in JOBS:
        rows = [row for row in raw if row["job"] == job]
        predicted, measured = (statistics.median(1e3 * row[name] for row in rows) for name in ("predicted", "measured"))
        ratios = [row["measured"] / row["predicted"] for row in rows]
        print(f"| {job} | {predicted:.2f} | {measured:.2f} | {statistics.median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
