#!/usr/bin/env python3
"""Imports by two binaries in turns, file by file: whether reading got slower, and edges per second.

    docs/benchmarks/ingest.py --binary target/release/morphgl [--before OLD] --data DIR --out FILE [--rounds 5] [--cores 0,1]

Makes a random graph of --edges edges in DIR as csv, csv.gz, npy, Parquet and Feather (the last two want pyarrow), where they
are not there yet. `bv` in --files is the WebGraph BV graph whose basename is --bv; it wants builds with `--features bv`.
OLD is another build of morphgl; what it cannot read is measured by the newer one alone. With --cores both run on these
cores alone (taskset). FILE gets one line per run, and standard output the table. CPU seconds are user and system time: on a
shared machine they spread less than seconds do.
"""
import argparse
import gzip
import json
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import time

import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--binary", type=pathlib.Path, required=True)
parser.add_argument("--before", type=pathlib.Path)
parser.add_argument("--data", type=pathlib.Path, required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--edges", type=int, default=20_000_000)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--cores", help="for example 0, or 0,1")
parser.add_argument("--files", default="csv,gz,npy,parquet,feather")
parser.add_argument("--bv", type=pathlib.Path, help="basename of a BV graph, for bv in --files")
args = parser.parse_args()
args.data.mkdir(parents=True, exist_ok=True)


def make():
    """The graph: ids of about as many digits as a graph of a tenth of as many nodes has."""
    random = np.random.default_rng(1)
    src, dst = random.integers(0, args.edges // 10, (2, args.edges))
    csv, arrays = args.data / "edges.csv", args.data / "npy"
    if not csv.exists():
        np.savetxt(csv, np.stack([src, dst], 1), fmt="%d", delimiter=",")
        with open(csv, "rb") as text, gzip.open(args.data / "edges.csv.gz", "wb", 6) as out:
            shutil.copyfileobj(text, out, 1 << 20)
    if not arrays.exists():
        arrays.mkdir()
        np.save(arrays / "src.npy", src)
        np.save(arrays / "dst.npy", dst)
    if {"parquet", "feather"} & set(args.files.split(",")) and not (args.data / "edges.parquet").exists():
        import pyarrow as pa
        from pyarrow import feather, parquet

        table = pa.table({"src": src, "dst": dst})
        parquet.write_table(table, args.data / "edges.parquet")
        feather.write_feather(table, args.data / "edges.feather")


FILES = {
    "csv": ["edges", "edges.csv"],
    "gz": ["edges", "edges.csv.gz"],
    "npy": ["numpy", "npy"],
    "parquet": ["edges", "edges.parquet"],
    "feather": ["edges", "edges.feather"],
    "bv": ["bv", args.bv],
}


def num_edges(name):
    if name != "bv":
        return args.edges
    properties = args.bv.with_name(args.bv.name + ".properties").read_text()
    return int(re.search(r"(?m)^arcs=(\d+)", properties)[1])


def cpu_seconds():
    """User and system time of all finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(binary, words):
    """Wall and CPU seconds of one import into a dataset that is removed; None where the binary cannot."""
    target = args.data / "dataset"
    pin = ["taskset", "-c", args.cores] if args.cores else []
    command = [*pin, str(binary), "import", words[0], str(args.data / words[1]), "-o", str(target), "--force", "--quiet"]
    start, cpu = time.perf_counter(), cpu_seconds()
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took = time.perf_counter() - start, cpu_seconds() - cpu
    shutil.rmtree(target, ignore_errors=True)
    return took if done.returncode == 0 else None


def main():
    make()
    shown = lambda v: f"{statistics.median(v):.3g} ({min(v):.3g}–{max(v):.3g})"
    print(f"cores {args.cores or 'all'}; medians (min–max) of {args.rounds} rounds, the builds alternating\n")
    print("| file | edges | seconds | M edges/s | before | now / before: seconds | now / before: CPU seconds |\n|---|---|---|---|---|---|---|")
    with open(args.out, "a") as out:
        for name in args.files.split(","):
            edges = num_edges(name)
            runs = {"now": [], "before": []}
            for turn in range(args.rounds + 1):
                order = [("now", args.binary), ("before", args.before)]
                for who, binary in order[:: 1 if turn % 2 else -1]:
                    took = seconds(binary, FILES[name]) if binary else None
                    # The first round finds nothing in the page cache.
                    if took is not None and turn > 0:
                        runs[who].append(took)
                        line = {"file": name, "who": who, "round": turn, "seconds": took[0], "cpu_seconds": took[1], "edges": edges, "cores": args.cores}
                        print(json.dumps(line), file=out, flush=True)
            now, before = runs["now"], runs["before"]
            wall = lambda runs: [r[0] for r in runs]
            ratio = lambda i: shown([a[i] / b[i] for a, b in zip(now, before)]) if before else "–"
            rate = edges / statistics.median(wall(now)) / 1e6
            old = shown(wall(before)) if before else "–"
            print(f"| {name} | {edges / 1e6:.3g} M | {shown(wall(now))} | {rate:.1f} | {old} | {ratio(0)} | {ratio(1)} |", flush=True)


if __name__ == "__main__":
    main()
