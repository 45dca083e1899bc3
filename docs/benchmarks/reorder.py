#!/usr/bin/env python3
"""Reordering of one dataset by MorphGL, scipy and DGL in turns: edges per second, and what it does to sampling and gathering.

    PYTHON docs/benchmarks/reorder.py --binary target/release/morphgl --dataset DATASET --out FILE [--rounds 5] [--cores 0]

PYTHON has numpy, scipy and, where DGL is to be measured, dgl. All systems run on the same cores (taskset; one core by
default) and apply the same order: by in-degree, the hottest first. They move topology and features; MorphGL's seconds are
those of `morphgl reorder --order`, which moves labels, splits and ids too, computes checksums, writes the copy and syncs it
to disk. The peers' are of calls in memory, and, as `saved`, with writing the moved arrays by `numpy.save` and syncing them:

On a machine with other programs CPU seconds, of the same calls, spread less than seconds do.

- scipy: `matrix[order][:, order]` of a CSR matrix, and `features[order]`.
- DGL: `dgl.reorder_graph(node_permute_algo="custom")` of a graph with its features, edges ordered by destination.

FILE gets one line per run, and standard output the table. `--bench N` adds N rounds of `morphgl bench sample` and `gather` on the
dataset and on the copy.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--binary", type=pathlib.Path, required=True)
parser.add_argument("--dataset", type=pathlib.Path, required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--cores", default="0", help="for example 0, or 0,1")
parser.add_argument("--peers", default="scipy,dgl")
parser.add_argument("--bench", type=int, default=0, help="rounds of sampling and gathering")
parser.add_argument("--keep", type=pathlib.Path, help="directory for the copy, which is kept")
parser.add_argument("--peer", help=argparse.SUPPRESS)
args = parser.parse_args()
threads = len(args.cores.split(","))


def arrays(features=True):
    """Offsets, neighbours, features and order of the dataset."""
    load = lambda name: np.load(args.dataset / f"{name}.npy")
    x = load("features") if features and (args.dataset / "features.npy").exists() else None
    indptr = load("indptr")
    return indptr, load("indices"), x, np.argsort(-np.diff(indptr.astype(np.int64)), kind="stable")


def clocks(since=(0, 0)):
    """Seconds of the clock and of the processor."""
    return time.perf_counter() - since[0], time.process_time() - since[1]


def saved(start, *arrays):
    """Writes the arrays, and returns the seconds since `start`."""
    with tempfile.TemporaryDirectory(dir=args.dataset.parent) as directory:
        for number, array in enumerate(arrays):
            if array is not None:
                with open(f"{directory}/{number}.npy", "wb") as out:
                    np.save(out, array)
                    out.flush()
                    os.fsync(out.fileno())
        return clocks(start)


def scipy_run():
    import scipy.sparse

    indptr, indices, x, order = arrays()
    # Values of one byte, which scipy needs and moves; offsets and neighbours of 32 bits, where they fit.
    wide = np.int64 if len(indices) >= 2**31 else np.int32
    n = len(indptr) - 1
    matrix = scipy.sparse.csr_matrix((np.ones(len(indices), np.int8), indices.astype(wide), indptr.astype(wide)), (n, n))
    start = clocks()
    moved = matrix[order][:, order]
    rows = None if x is None else x[order]
    return clocks(start), saved(start, moved.indptr, moved.indices, rows)


def dgl_run():
    import dgl
    import torch

    torch.set_num_threads(threads)
    indptr, indices, x, order = arrays()
    tensor = lambda array: torch.from_numpy(array.astype(np.int64))
    graph = dgl.graph(("csc", (tensor(indptr), tensor(indices), torch.empty(0, dtype=torch.int64))))
    if x is not None:
        graph.ndata["x"] = torch.from_numpy(x)
    config = {"nodes_perm": torch.from_numpy(order)}
    graph.create_formats_()
    start = clocks()
    moved = dgl.reorder_graph(
        graph, node_permute_algo="custom", edge_permute_algo="dst", store_ids=False, permute_config=config
    )
    moved = moved.formats(["csc"])
    moved.create_formats_()
    called = clocks(start)
    indptr, indices, _ = moved.adj_tensors("csc")
    return called, saved(start, indptr.numpy(), indices.numpy(), moved.ndata["x"].numpy() if x is not None else None)


if args.peer:
    print(json.dumps({"scipy": scipy_run, "dgl": dgl_run}[args.peer]()))
    sys.exit()


def run(command):
    """The JSON that a command prints, run on the cores."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = ["taskset", "-c", args.cores, *map(str, command)]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    if process.returncode:
        raise SystemExit(f"{command}: {process.stderr[-2000:]}")
    return json.loads(process.stdout.strip().splitlines()[-1] if "--peer" in command else process.stdout)


num_edges = int(np.load(args.dataset / "indices.npy", mmap_mode="r").shape[0])
scratch = pathlib.Path(tempfile.mkdtemp(dir=args.dataset.parent))
copy = args.keep or scratch / "copy"
np.save(scratch / "order.npy", arrays(features=False)[3])
ours = [args.binary, "reorder", args.dataset, "-o", copy, "--order", scratch / "order.npy", "--json", "--no-verify"]
systems = {"morphgl": ours + ["--threads", threads]}
for peer in filter(None, args.peers.split(",")):
    systems[peer] = [sys.executable, __file__, "--peer", peer, "--binary", args.binary, "--dataset", args.dataset,
                     "--out", args.out, "--cores", args.cores]
lines, seconds, cpus = [], {}, {}
try:
    for number in range(args.rounds):
        for name in list(systems) if number % 2 == 0 else reversed(systems):
            shutil.rmtree(copy, ignore_errors=True)  # Removing the last round's copy is no part of the next one.
            result = run(systems[name])
            if name == "morphgl":
                timed = {name: [result["reorder"]["seconds"], result["reorder"]["cpu_seconds"]]}
            else:
                timed = dict(zip((name, f"{name}, saved"), result))
            for system, (took, cpu) in timed.items():
                seconds.setdefault(system, []).append(took)
                cpus.setdefault(system, []).append(cpu)
                lines.append({"what": "reorder", "system": system, "round": number, "cores": args.cores, "seconds": took,
                              "cpu_seconds": cpu, "edges": num_edges, "edges_per_s": num_edges / took})
    for number in range(args.bench):
        for what in "sample", "gather":
            for name, path in ("original", args.dataset), ("reordered", copy):
                result = run([args.binary, "bench", what, path, "--threads", threads, "--json"])
                lines.append({"what": what, "system": name, "round": number, "cores": args.cores,
                              "median": result["median"], "unit": result["unit"]})
finally:
    shutil.rmtree(scratch)
with open(args.out, "a") as out:
    out.writelines(json.dumps(line) + "\n" for line in lines)

print(f"{args.dataset.name}: {num_edges} edges, cores {args.cores}, median of {args.rounds} (min-max)")
for name, took in seconds.items():
    rates = sorted(num_edges / t / 1e6 for t in took)
    ratio = statistics.median(took) / statistics.median(seconds["morphgl"])
    cpu = statistics.median(cpus[name])
    print(f"  {name:12} {statistics.median(rates):8.1f} M edges/s ({rates[0]:.1f}-{rates[-1]:.1f}), {ratio:.2f} times MorphGL's seconds; "
          f"{num_edges / cpu / 1e6:.1f} M edges per CPU second, {cpu / statistics.median(cpus['morphgl']):.2f} times MorphGL's")
for what in ("sample", "gather") if args.bench else ():
    of = {n: [l["median"] for l in lines if (l["what"], l["system"]) == (what, n)] for n in ("original", "reordered")}
    unit = next(l["unit"] for l in lines if l["what"] == what)
    before, after = (statistics.median(of[n]) for n in ("original", "reordered"))
    print(f"  {what}: {before:.2f} {unit} on the original, {after:.2f} on the copy, {after / before:.2f} times")
