#!/usr/bin/env python3
"""What a first `morphgl train DATASET`, without any option, reaches beside the same model trained to its best.

Usage: docs/benchmarks/first_training.py --out FILE [--data DIR] [--sets NAME,…] [--seeds 5] [--rates 0.001,0.003,0.01]
                                         [--only default|best] [--replay 25,50,100,200]
Needs a release build (`cargo build --release`) and the standard library alone.
DIR for data holds gnn-benchmark-npz/ with Amazon Photo and Coauthor CS (default: $MORPHGL_TEST_DATA); the others are in testdata/.
Planetoid's sets have their public split, the others a random one per seed. The best is that of many epochs (`SETS` says how
many) at each of the learning rates, the model of the best validation accuracy kept; of the rates, the one with the highest
mean test accuracy stands in the table, so the comparison favours it.
--replay says what other patiences, in steps, would have done to the long runs at the default learning rate: the validation
accuracy of the model kept, as a mean of the seeds, and the steps until the stop.
FILE gets a line of JSON for every run; runs that it holds already are not repeated, and the table is of all of its lines.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import tempfile
import time

import data

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT_RATE = "0.003"
RANDOM = "--split 0.6,0.2,0.2 --seed {seed}"

# name: importer, source, import options, epochs of the best
SETS = {
    "Cora": ("planetoid", "planetoid/ind.cora", "", 300),
    "Citeseer": ("planetoid", "planetoid/ind.citeseer", "", 300),
    "cora_ml": ("npz", "gnn-benchmark-npz/cora_ml.npz", RANDOM, 200),
    "Amazon Photo": ("npz", "gnn-benchmark-npz/amazon_photo.npz", RANDOM, 120),
    "Coauthor CS": ("npz", "gnn-benchmark-npz/coauthor_cs.npz", RANDOM, 80),
    "embedded default": (None, None, "", 40),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data.add_option(parser)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", default="0.001,0.003,0.01")
    parser.add_argument("--only", choices=["default", "best"])
    parser.add_argument("--replay", help="patiences in steps; nothing is run")
    args = parser.parse_args()

    args.out.touch()
    lines = [json.loads(line) for line in args.out.read_text().splitlines()]
    if args.replay:
        return print(replay(lines, [int(steps) for steps in args.replay.split(",")]))

    def morphgl(*words):
        done = subprocess.run([args.binary, *words, "--json", "--quiet"], check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    done = {key(line) for line in lines}
    with tempfile.TemporaryDirectory() as directory, open(args.out, "a") as raw:
        for name in args.sets.split(","):
            importer, source, preparation, epochs = SETS[name]
            runs = [] if args.only == "best" else [("default", [])]
            if args.only != "default":
                runs += [(rate, ["--epochs", str(epochs), "--lr", rate]) for rate in args.rates.split(",")]
            for seed in range(args.seeds):
                wanted = [(run, words) for run, words in runs if (name, seed, run) not in done]
                dataset = f"{directory}/{name}-{seed}"
                if wanted and importer:
                    options = preparation.format(seed=seed).split()
                    morphgl("import", importer, str(data.need(source, args.data)), "-o", dataset, *options)
                for run, words in wanted:
                    start = time.monotonic()
                    record = morphgl("train", *([dataset] if importer else []), "--seed", str(seed), *words)
                    line = summary(record, name, seed, run, time.monotonic() - start)
                    raw.write(json.dumps(line) + "\n")
                    raw.flush()
                    lines.append(line)
    print(table(lines))


def key(line):
    return line["set"], line["seed"], line["run"]


def summary(record, name, seed, run, seconds):
    """A line of FILE."""
    epochs = record["epochs"]
    return {
        "set": name, "seed": seed, "run": run, "test_accuracy": record["test_accuracy"],
        "best_valid_accuracy": record["best_valid_accuracy"], "best_epoch": record["best_epoch"], "ended": record["ended"],
        "epochs": len(epochs), "steps": sum(e["report"]["batches"] for e in epochs), "seconds": seconds,
        "evaluation_seconds": sum(e["evaluation_seconds"] for e in epochs),
        "valid": [[e["epoch"], e["valid_accuracy"], e["valid_loss"]] for e in epochs if e["valid_accuracy"] is not None],
    }


def table(lines):
    rows = ["| graph | default, test accuracy | trained to its best | learning rate, epochs of it | difference, points "
            "| epochs of the default | steps | seconds, all of the command |", "|---|---|---|---|---|---|---|---|"]

    def accuracy(runs):
        test = [100 * run["test_accuracy"] for run in runs]
        return statistics.mean(test), f"{statistics.mean(test):.2f} ± {statistics.stdev(test) if len(test) > 1 else 0:.2f}"

    def spread(runs, field, digits):
        values = [run[field] for run in runs]
        return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"

    for name in SETS:
        by_run = {}
        for line in lines:
            if line["set"] == name:
                by_run.setdefault(line["run"], []).append(line)
        first = by_run.pop("default", None)
        if not first or not by_run:
            continue
        rate = max(by_run, key=lambda run: accuracy(by_run[run])[0])
        (mean, shown), (best, best_shown) = accuracy(first), accuracy(by_run[rate])
        rows.append(f"| {name} | {shown} | {best_shown} | {rate}, {by_run[rate][0]['epochs']} | {mean - best:+.2f} "
                    f"| {spread(first, 'epochs', 0)} | {spread(first, 'steps', 0)} | {spread(first, 'seconds', 1)} |")
    return "\n".join(rows)


def replay(lines, patiences):
    """Early stopping with other patiences (at least 4 epochs, evaluated every fifth step), on recorded validation curves."""
    rows = ["| graph | all epochs | " + " | ".join(f"patience {steps}" for steps in patiences) + " |",
            "|---" * (2 + len(patiences)) + "|"]
    for name in SETS:
        runs = [line for line in lines if line["set"] == name and line["run"] == DEFAULT_RATE]
        cells = [stopped(run, math.inf) for run in runs], *([stopped(run, steps) for run in runs] for steps in patiences)
        shown = (f"{100 * statistics.mean(a for a, _ in cell):.2f}, {statistics.mean(n for _, n in cell):.0f} steps"
                 for cell in cells if cell)
        rows.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(rows)


def stopped(run, patience):
    """The best validation accuracy of a run stopped by so many steps without a better one, and the steps until then."""
    per_epoch = run["steps"] / run["epochs"]
    patience, every = max(4, math.ceil(patience / per_epoch) if patience < math.inf else math.inf), math.ceil(5 / per_epoch)
    best, kept = (-1, 0), 0
    for epoch, accuracy, loss in run["valid"]:
        if (epoch + 1) % every == 0:
            if (accuracy, -loss) > best:
                best, kept = (accuracy, -loss), epoch
            if epoch - kept >= patience:
                break
    return best[0], (epoch + 1) * per_epoch


if __name__ == "__main__":
    main()
