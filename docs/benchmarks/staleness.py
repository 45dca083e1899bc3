#!/usr/bin/env python3
"""Accuracy of layer-split training beside exact training, and against staleness and hot ratio.

Usage: docs/benchmarks/staleness.py [--data DIR] [--out FILE] [--seeds 5] [--only NAME] [--binary FILE]
Needs a release build (`cargo build --release`) and the standard library alone. DIR as for accuracy.py;
a data set products-like (`morphgl generate`, see throughput.py) is used where --products names it.
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
      "--decay-first-layer --fanouts=-1,-1 --batch-size 16 --epochs 60"
SAMPLED = "--model sage --layers 3 --hidden 256 --dropout 0.5 --lr 0.003 --fanouts 15,10,5 --batch-size 1024 --epochs 10"
# Name, importer, source, import options, training options, allowed staleness.
RECIPES = [
    ("Cora GCN, mini-batches of 16", "planetoid", "planetoid/ind.cora", "--normalize-features", GCN, 13),
    ("Coauthor Physics GraphSAGE", "npz", "gnn-benchmark-npz/coauthor_phy.npz", "--split 0.6,0.2,0.2 --seed 0", SAMPLED, 31),
    ("default", None, None, "", "--epochs 3", 31),
    ("products-like", None, "products", "", "--epochs 2 --evaluation sampled --evaluate-every 2", 31),
]
# Of Coauthor Physics: staleness and hot ratio.
CURVE = [(n, ratio) for n in (13, 19, 39) for ratio in (0.25, 0.5, 1.0)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data.add_option(parser)
    parser.add_argument("--products", type=pathlib.Path, help="a data set like ogbn-products")
    parser.add_argument("--out", type=pathlib.Path, help="appends every run here, a line each")
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="recipes whose name holds this")
    args = parser.parse_args()

    def train(name, dataset, options, seed, split):
        command = [str(args.binary), "train", *dataset, *options.split(), "--seed", str(seed), "--json", "--quiet",
                   "--profile-seconds", "0.5", "--training", "Training_CPU_Native", *split]
        run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        row = {"recipe": name, "seed": seed, "split": split, "test_accuracy": run["test_accuracy"],
               "seconds": statistics.median(e["seconds"] for e in run["epochs"]),
               "given": (run.get("layer_split") or {}).get("given_share")}
        if args.out:
            with args.out.open("a") as out:
                out.write(json.dumps(row) + "\n")
        return row

    def mean(rows):
        accuracies = [row["test_accuracy"] for row in rows]
        return statistics.mean(accuracies), statistics.pstdev(accuracies)

    print("| recipe | staleness | hot ratio | rows given | test accuracy | exact | difference |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        for name, importer, source, preparation, options, staleness in RECIPES:
            if args.only not in name or source == "products" and not args.products:
                continue
            dataset = [str(args.products)] if source == "products" else []
            if importer:
                dataset = [f"{directory}/{name.split()[0]}-{name.split()[1]}"]
                command = [str(args.binary), "import", importer, str(data.need(source, args.data)), "-o", dataset[0], "--quiet"]
                subprocess.run([*command, *preparation.split()], check=True, stdout=subprocess.DEVNULL)
            seeds = range(args.seeds)
            exact, exact_spread = mean([train(name, dataset, options, seed, []) for seed in seeds])
            points = [(staleness, ratio) for ratio in (0.25, 0.5, 1.0)]
            if "Physics" in name:
                points += CURVE
            for steps, ratio in points:
                split = ["--allow-staleness", str(steps), "--hot-ratio", str(ratio)]
                rows = [train(name, dataset, options, seed, split) for seed in seeds]
                accuracy, spread = mean(rows)
                given = statistics.mean(row["given"] for row in rows)
                print(f"| {name} | {steps} | {ratio} | {given:.1%} | {accuracy:.4f} ± {spread:.4f} "
                      f"| {exact:.4f} ± {exact_spread:.4f} | {100 * (accuracy - exact):+.2f} points |", flush=True)


if __name__ == "__main__":
    main()
