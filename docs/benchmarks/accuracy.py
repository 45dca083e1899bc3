#!/usr/bin/env python3
"""Accuracy on real data: imports it, trains five seeds of each recipe, prints the table.

Usage: docs/benchmarks/accuracy.py [--data DIR] [--out DIR] [--seeds 5] [--only NAME]
Needs a release build (`cargo build --release`) and the standard library alone.
DIR holds gnn-benchmark-npz/ with Coauthor CS and Physics (default: $MORPHGL_TEST_DATA); Cora and Citeseer are in testdata/.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import data

ROOT = pathlib.Path(__file__).resolve().parents[2]

GCN = "--model gcn --layers 2 --hidden 16 --dropout 0.5 --input-dropout 0.5 --lr 0.01 --weight-decay 5e-4 " \
      "--decay-first-layer --fanouts=-1,-1 --epochs 200"
GAT = "--model gat --layers 2 --hidden 64 --heads 8 --output-heads 1 --activation elu --dropout 0.6 --input-dropout 0.6 " \
      "--attention-dropout 0.6 --lr 0.005 --weight-decay 5e-4 --fanouts=-1,-1 --epochs 300 --patience 100"
SAGE = "--model sage --layers 2 --hidden 64 --dropout 0.5 --input-dropout 0.5 --lr 0.01 --weight-decay 5e-4 " \
       "--fanouts=-1,-1 --epochs 200"
SAMPLED = "--model sage --layers 3 --hidden 256 --dropout 0.5 --lr 0.003 --fanouts 15,10,5 --batch-size 1024 --epochs 10"
PUBLIC = "--normalize-features"
RANDOM = "--split 0.6,0.2,0.2 --seed {seed}"

# name, importer, source, import options, training options, accuracy to reach
RECIPES = [
    ("Cora GCN", "planetoid", "planetoid/ind.cora", PUBLIC, GCN, 0.805),
    ("Cora GAT", "planetoid", "planetoid/ind.cora", PUBLIC, GAT, 0.815),
    ("Cora GraphSAGE", "planetoid", "planetoid/ind.cora", PUBLIC, SAGE, 0.785),
    ("Citeseer GCN", "planetoid", "planetoid/ind.citeseer", PUBLIC, GCN, 0.69),
    ("Coauthor CS GraphSAGE (15,10,5)", "npz", "gnn-benchmark-npz/coauthor_cs.npz", RANDOM, SAMPLED, 0.92),
    ("Coauthor Physics GraphSAGE (15,10,5)", "npz", "gnn-benchmark-npz/coauthor_phy.npz", RANDOM, SAMPLED, 0.955),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data.add_option(parser)
    parser.add_argument("--out", type=pathlib.Path, help="keeps every run's JSON here, a line each")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="recipes whose name holds this")
    args = parser.parse_args()

    def morphgl(*words):
        command = [str(args.binary), *words, "--json", "--quiet"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    print("| recipe | to reach | mean | deviation | each | epochs | seconds per epoch |")
    print("|---|---|---|---|---|---|---|", flush=True)
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        for name, importer, source, preparation, recipe, goal in RECIPES:
            if args.only not in name:
                continue
            runs = []
            for seed in range(args.seeds):
                dataset = f"{directory}/{name}-{seed if '{seed}' in preparation else 0}".replace(" ", "_")
                if not pathlib.Path(dataset).exists():
                    options = preparation.format(seed=seed).split()
                    morphgl("import", importer, str(data.need(source, args.data)), "-o", dataset, *options)
                runs.append(morphgl("train", dataset, *recipe.split(), "--seed", str(seed)))
                if args.out:
                    args.out.mkdir(parents=True, exist_ok=True)
                    with open(args.out / "accuracy.jsonl", "a") as lines:
                        runs[-1]["recipe"] = name
                        del runs[-1]["profile"], runs[-1]["dataset"]["path"]
                        for epoch in runs[-1]["epochs"]:
                            del epoch["report"]
                        lines.write(json.dumps(runs[-1]) + "\n")
            test = [run["test_accuracy"] for run in runs]
            mean = statistics.mean(test)
            deviation = statistics.stdev(test) if len(test) > 1 else 0.0
            each = " ".join(f"{a:.4f}" for a in test)
            epochs = statistics.median(len(run["epochs"]) for run in runs)
            seconds = statistics.median(run["measured_epoch_seconds"] for run in runs)
            print(f"| {name} | {goal} | {mean:.4f} | {deviation:.4f} | {each} | {epochs:.0f} | {seconds:.4f} |", flush=True)
            if mean < goal:
                missed.append(name)
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
