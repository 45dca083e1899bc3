#!/usr/bin/env python3
"""Whether `auto` picks the fastest training operator: epochs of `--plan auto` beside those of each operator named by hand.

Usage: docs/benchmarks/choice.py --out FILE [--data DIR] [--levels avx2,portable] [--sets NAME,…] [--models sage,gcn,gat]
                                 [--rounds 5] [--far 1.3] [--seconds 2]
Needs a release build (`cargo build --release`) and the standard library alone.
DIR for data holds gnn-benchmark-npz/ with Coauthor Physics (default: $MORPHGL_TEST_DATA); Cora is in testdata/.
Every round trains `auto` and each operator once, in an order that is turned round after each, for about so many seconds;
the figure is the median epoch. An operator that takes more than --far times the fastest one's time in the first round is
left out of the others. Levels are those that the processor has. FILE gets a line of JSON for every run.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import data

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPERATORS = ["Training_CPU_Native", "Training_CPU_NativeAmx", "Training_CPU_Burn"]
# A tenth of the training nodes that is usual: the same mini-batches, in shorter epochs.
ARXIV_LIKE = "generate sbm --nodes 169000 --degree 14 --dim 128 --classes 40 --split 0.06,0.18,0.28"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data.add_option(parser)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--levels", help="default: all there are")
    parser.add_argument("--sets", default="default,arxiv-like,physics,cora")
    parser.add_argument("--models", default="sage,gcn,gat")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--far", type=float, default=1.3)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    args.binary = args.binary.resolve()

    def morphgl(*words, level=None):
        env = os.environ | ({"MORPHGL_ISA": level} if level else {})
        done = subprocess.run([args.binary, *words, "--json", "--quiet"], check=True, stdout=subprocess.PIPE, env=env)
        return json.loads(done.stdout)

    machine = morphgl("ops")["machine"]
    levels = args.levels.split(",") if args.levels else available(args.binary)
    print(f"{machine['cpu']}, {machine['cores']} cores. Epoch in seconds, median (least–most) of the rounds; `auto` beside the "
          "fastest of the others (by their medians) is the median of the rounds' ratios.\n")
    print("| level | graph | model | auto | chosen (rounds) | Native | NativeAmx | Burn | auto / fastest | rounds |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    worst = 0
    with tempfile.TemporaryDirectory() as directory, open(args.out, "a") as raw:
        sets = {name: dataset(name, directory, args.data, morphgl) for name in args.sets.split(",")}
        for level in levels:
            for name, path in sets.items():
                for model in args.models.split(","):
                    ratio, cells = compare(args, raw, lambda *w: morphgl(*w, level=level), (level, name, model), path)
                    worst = max(worst, ratio)
                    print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\nThe greatest ratio is {worst:.3f}.")


def available(binary):
    """The SIMD levels of this processor, as the refusal of an unknown one lists them."""
    refused = subprocess.run([binary, "ops"], capture_output=True, text=True, env=os.environ | {"MORPHGL_ISA": "?"})
    return [level for level in ("portable", "avx2", "avx512", "amx") if re.search(rf"\b{level}\b", refused.stderr)]


def dataset(name, directory, larger, morphgl):
    """Words that name the dataset for `morphgl train`."""
    path = f"{directory}/{name}"
    if name == "default":
        return []
    if name == "arxiv-like":
        words = ARXIV_LIKE.split()
    elif name == "physics":
        words = ["import", "npz", data.need("gnn-benchmark-npz/coauthor_phy.npz", larger), "--split", "0.06,0.2,0.2"]
    else:
        words = ["import", "planetoid", data.need(f"planetoid/ind.{name}", larger)]
    morphgl(*words, "-o", path)
    return [path]


def compare(args, raw, morphgl, key, path):
    """The median ratio of `auto` to the fastest operator, and the cells of a row."""
    here = {operator["key"] for operator in morphgl("ops")["operators"] if operator["available"]}
    operators, epochs, chosen = [o for o in OPERATORS if o in here], 0, []
    seconds = {c: [] for c in ["auto", *OPERATORS]}
    for number in range(args.rounds):
        contestants = ["auto", *operators]
        for contestant in contestants[::-1] if number % 2 else contestants:
            words = ["train", *path, "--model", key[2], "--evaluation", "none"]
            words += [] if contestant == "auto" else ["--training", contestant]
            if not epochs:
                first = morphgl(*words, "--epochs", "2")["measured_epoch_seconds"]
                epochs = min(200, max(5, round(args.seconds / first)))
            try:
                record = morphgl(*words, "--epochs", str(epochs))
            except subprocess.CalledProcessError:
                # It refuses the model or the graph, and has said why; another one has to be able.
                operators.remove(contestant)
                continue
            schedule = record["plan"]["schedule"]
            plan = {"policy": schedule["policy"], "workers": [s["workers"] for s in schedule["shares"]],
                    "training_threads": schedule.get("training_threads"),
                    "predicted": record["plan"]["prediction"]["epoch_seconds"]}
            raw.write(json.dumps({"level": key[0], "graph": key[1], "model": key[2], "round": number, "contestant": contestant,
                                  "plan": plan,
                                  "epoch_seconds": [e["seconds"] for e in record["epochs"]],
                                  "selections": record["profile"]["selections"]}) + "\n")
            raw.flush()
            seconds[contestant].append(record["measured_epoch_seconds"])
            if contestant == "auto":
                chosen.append(record["profile"]["selections"][0]["chosen"])
        if number == 0:
            least = min(seconds[o][0] for o in operators)
            operators = [o for o in operators if seconds[o][0] <= args.far * least]
    fastest = min(operators, key=lambda o: statistics.median(seconds[o]))
    ratios = [auto / best for auto, best in zip(seconds["auto"], seconds[fastest])]

    def spread(values):
        return f"{statistics.median(values):.3g} ({min(values):.3g}–{max(values):.3g})" if values else "–"

    counts = ", ".join(f"{c.split('_')[-1]} {chosen.count(c)}" for c in dict.fromkeys(chosen))
    ratio = statistics.median(ratios)
    return ratio, [*key, spread(seconds["auto"]), counts, *(spread(seconds[o]) for o in OPERATORS),
                   f"{ratio:.3f} ({min(ratios):.3f}–{max(ratios):.3f})", str(len(ratios))]


if __name__ == "__main__":
    main()
