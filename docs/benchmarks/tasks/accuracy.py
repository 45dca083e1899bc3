#!/usr/bin/env python3
"""Scores of MorphGL's tasks beside PyG and DGL: the same model, options, split and negatives; mean and deviation of seeds.

Usage: docs/benchmarks/tasks/accuracy.py --sets DIR --out FILE [--python VENV/bin/python] [--systems morphgl,pyg,dgl]
                                         [--only NAMES] [--seeds 0,1,2,3,4] [--threads 1] [--binary FILE] [--table]
DIR is what sets.py wrote, FILE gets a line of JSON per run, and --table prints the table of FILE without running anything.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from recipes import RECIPES

HERE = pathlib.Path(__file__).resolve().parent


def morphgl(args, name, directory):
    """Imports the set, trains each seed and evaluates the best model."""
    recipe, here = RECIPES[name], args.sets / name
    is_link = recipe["task"] == "link"

    def run(*words):
        done = subprocess.run([str(args.binary), *map(str, words), "--json", "--quiet"], stdout=subprocess.PIPE)
        return json.loads(done.stdout) if done.returncode == 0 else sys.exit(f"morphgl {words} failed")

    data = f"{directory}/{name}"
    files = {"train-edges": "train", "valid-edges": "valid", "test-edges": "test", "valid-negatives": "valid_negatives",
             "test-negatives": "test_negatives"} if is_link else {}
    run("import", "numpy", here / "graph", "-o", data, *(word for option, file in files.items()
                                                      for word in (f"--{option}", here / "pairs" / f"{file}.npy")))
    options = f"--task {recipe['task']} --model sage --hidden {recipe['hidden']} --dropout {recipe['dropout']} --lr {recipe['lr']} " \
              f"--fanouts {','.join(map(str, recipe['fanouts']))} --batch-size {recipe['batch_size']} --epochs {recipe['epochs']} " \
              f"--score {recipe['scores'][0]} --threads {args.threads}"
    options += f" --embedding {recipe['embedding']} --negatives {recipe['negatives']}" if is_link else ""
    for seed in args.seeds.split(","):
        model = f"{directory}/{name}-{seed}.safetensors"
        trained = run("train", data, *options.split(), "--seed", seed, "--save", model)
        scored = run("evaluate", model, data, *(word for score in recipe["scores"] for word in ("--score", score)))
        of = lambda split: {score: scored[split]["scores"][score] for score in recipe["scores"]}
        yield {"system": "morphgl", "set": name, "seed": int(seed), "best_epoch": trained["best_epoch"], "valid": of("valid"),
               "test": of("test"), "loss": trained["epochs"][-1]["loss"], "training": trained["plan"]["schedule"]["shares"][0]["keys"]
               ["training"] if isinstance(trained["plan"], dict) and "schedule" in trained["plan"] else None,
               "seconds": sum(epoch["seconds"] + (epoch["evaluation_seconds"] or 0) for epoch in trained["epochs"])}


def peer(args, name, system):
    command = [args.python, HERE / "peer.py", "--peer", system, "--sets", args.sets, "--set", name, "--seeds", args.seeds,
               "--threads", str(args.threads)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield from map(json.loads, process.stdout)
    if process.wait() != 0:
        print(f"{name}, {system}: failed", file=sys.stderr)


def table(file):
    runs = [json.loads(line) for line in open(file)]
    systems = [system for system in ("morphgl", "pyg", "dgl") if any(run["system"] == system for run in runs)]
    print("| set | score | " + " | ".join(systems) + " | within noise |")
    print("|---|---|" + "---|" * len(systems) + "---|")
    for name, recipe in RECIPES.items():
        for score in recipe["scores"]:
            of = {s: [run["test"][score] for run in runs if (run["system"], run["set"]) == (s, name)] for s in systems}
            if not of[systems[0]]:
                continue
            mean = {s: statistics.mean(v) for s, v in of.items() if v}
            dev = {s: statistics.stdev(v) if len(v) > 1 else 0.0 for s, v in of.items() if v}
            cells = [f"{mean[s]:.4f} ± {dev[s]:.4f}" if s in mean else "" for s in systems]
            words = []
            for s in mean:
                if s != "morphgl" and "morphgl" in mean:
                    # Welch's t: the difference of the means over its standard error.
                    error = (dev["morphgl"] ** 2 / len(of["morphgl"]) + dev[s] ** 2 / len(of[s])) ** 0.5
                    t = (mean["morphgl"] - mean[s]) / error if error else 0.0
                    words.append(f"{s}: t = {t:+.1f}")
            print(f"| {name} | {score} | " + " | ".join(cells) + " | " + ", ".join(words) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--python")
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parents[2] / "target/release/morphgl")
    parser.add_argument("--systems", default="morphgl,pyg,dgl")
    parser.add_argument("--only", default=",".join(RECIPES))
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for name in [] if args.table else args.only.split(","):
            for system in args.systems.split(","):
                for run in morphgl(args, name, directory) if system == "morphgl" else peer(args, name, system):
                    with open(args.out, "a") as out:
                        print(json.dumps(run), file=out)
                    print(name, system, run["seed"], run["test"], f"{run['seconds']:.0f} s", file=sys.stderr, flush=True)
    table(args.out)
