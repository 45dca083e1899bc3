#!/usr/bin/env python3
"""`morphgl bench` by two builds in turns: whether something got slower.

    docs/benchmarks/pairs.py --binary target/release/morphgl --before OLD --out FILE [--rounds 5] [--isa LEVEL] COMMAND…

A COMMAND is what follows `morphgl bench`, in one word of the shell: "step cora --model gat". Each round runs both builds
once, in an order that is turned round after each. FILE gets the document of every run, and standard output a line per command:
the median (least to most) of the rounds' ratios new / old. Times are better when lower, rates when higher.
"""
import argparse
import json
import os
import statistics
import subprocess

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--binary", required=True)
parser.add_argument("--before", required=True)
parser.add_argument("--out", required=True)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--isa", help="portable, avx2, avx512 or amx")
parser.add_argument("commands", nargs="+", metavar="COMMAND")
args = parser.parse_args()
environment = {**os.environ, **({"MORPHGL_ISA": args.isa} if args.isa else {})}


def run(binary, command):
    done = subprocess.run([binary, "bench", *command.split(), "--json"], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise SystemExit(f"{binary} bench {command}: {done.stderr.strip()}")
    return json.loads(done.stdout)


with open(args.out, "a") as out:
    for command in args.commands:
        medians = {"new": [], "old": []}
        for turn in range(args.rounds):
            for who in ("new", "old") if turn % 2 else ("old", "new"):
                document = run(args.binary if who == "new" else args.before, command)
                print(json.dumps({"who": who, "round": turn, "isa": args.isa, "command": command, **document}), file=out, flush=True)
                measured = document["median"]
                medians[who].append(measured)
                unit = document["unit"]
        ratios = [new / old for new, old in zip(medians["new"], medians["old"])]
        old, new = (statistics.median(medians[who]) for who in ("old", "new"))
        print(f"{command}: new/old {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), old {old:.4g}, new {new:.4g} {unit}", flush=True)
