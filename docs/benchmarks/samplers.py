#!/usr/bin/env python3
"""ShaDow and random-walk sampling beside DGL's and PyG's samplers, in turns.

Usage: docs/benchmarks/samplers.py --python VENV/bin/python --arrays DIR --dataset DIR --out FILE [--binary FILE] [--what shadow,walk]
                                   [--threads 1,2] [--rounds 5] [--batches 24] [--batch-size 1024]
VENV has DGL; for PyG's ShaDowKHopSampler also torch-sparse, else that row is left out and said so. --arrays holds indptr.npy,
indices.npy and train_idx.npy (in-neighbours), --dataset the same graph imported into MorphGL.
ShaDow: two hops of at most 10 neighbours, three layers. Walks: 10 of at most 3 steps, ended with probability 0.5, the 10 most
visited, three layers; DGL's RandomWalkNeighborSampler, the class behind PinSAGESampler, on the same homogeneous graph.
A peer has threads of Python around single-threaded calls, or threads inside a call; the better median counts. Every round
runs all in turns, in an order that is reversed after each. FILE gets a line of JSON for each measurement.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHADOW = ["--sampler", "shadow", "--fanouts", "10,10"]
WALK = ["--sampler", "walk", "--walks", "10", "--walk-length", "3", "--restart", "0.5", "--neighbors", "10"]
PEERS = {"shadow": ["dgl-shadow", "pyg-shadow"], "walk": ["dgl-walk"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help=argparse.SUPPRESS)  # one measurement of a peer, in its own environment
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--python", type=pathlib.Path)
    parser.add_argument("--arrays", type=pathlib.Path, required=True)
    parser.add_argument("--dataset", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--what", default="shadow,walk")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=1024)
    args = parser.parse_args()
    if args.peer:
        return print(json.dumps(peer(args)))
    print("| sampler | threads | MorphGL, mini-batches/s | M edges/s | peer | mini-batches/s | M edges/s | ratio of mini-batches (rounds) | of edges |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for what in args.what.split(","):
        for threads in args.threads.split(","):
            compare(args, what, threads)


def compare(args, what, threads):
    """One sampler on so many threads: a row of the table for each peer."""
    peers = [(name, inside) for name in PEERS[what] for inside in ([False] if threads == "1" else [False, True])]
    runs, missing = {}, set()
    for number in range(args.rounds):
        turns = [("morphgl", False), *peers]
        for name, inside in turns if number % 2 == 0 else turns[::-1]:
            if name in missing:
                continue
            result = morphgl(args, what, threads) if name == "morphgl" else run_peer(args, name, threads, inside)
            if result is None:
                missing.add(name)
                continue
            runs.setdefault((name, inside), []).append(result)
            with open(args.out, "a") as out:
                out.write(json.dumps({"what": what, "threads": threads, "name": name, "inside": inside, **result}) + "\n")
    rate = lambda run, key="batches_per_s": statistics.median(r[key] for r in run)
    ours = runs["morphgl", False]
    for name in PEERS[what]:
        if name in missing:
            print(f"| {what} | {threads} | | | {name} is not installed | | | | |", flush=True)
            continue
        best = max((key for key in runs if key[0] == name), key=lambda key: rate(runs[key]))
        theirs = runs[best]
        ratios = [a["batches_per_s"] / b["batches_per_s"] for a, b in zip(ours, theirs)]
        edges = [a["edges_per_s"] / b["edges_per_s"] for a, b in zip(ours, theirs)]
        print(f"| {what} | {threads} | {rate(ours):.1f} | {rate(ours, 'edges_per_s') / 1e6:.1f} | {name} | {rate(theirs):.2f} | "
              f"{rate(theirs, 'edges_per_s') / 1e6:.2f} | {statistics.median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f}) | "
              f"{statistics.median(edges):.1f} |", flush=True)


def morphgl(args, what, threads):
    command = [args.binary, "bench", "sample", args.dataset, *(SHADOW if what == "shadow" else WALK), "--threads", threads,
               "--batches", str(args.batches), "--batch-size", str(args.batch_size), "--json", "--quiet"]
    done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    # The edges of a subgraph are in each of the three blocks, but for the last, and count once: as many as DGL's.
    return {"batches_per_s": done["median"], "edges_per_s": done["edges_per_s"] / (3 if what == "shadow" else 1)}


def run_peer(args, name, threads, inside):
    command = [args.python, __file__, "--peer", name, "--arrays", args.arrays, "--threads", threads, "--batches",
               str(args.batches), "--batch-size", str(args.batch_size), *(["--inside"] if inside else [])]
    env = os.environ | {"OMP_NUM_THREADS": threads if inside else "1", "DGLBACKEND": "pytorch"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    if done.returncode:
        if "No module named" in done.stderr or "requires" in done.stderr:
            return None
        sys.exit(f"{name}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peer(args):
    """Mini-batches per second of one peer, in this process."""
    import time
    from concurrent.futures import ThreadPoolExecutor

    import numpy
    import torch

    threads = int(args.threads)
    torch.set_num_threads(threads if args.inside else 1)
    indptr, indices, train = (numpy.load(args.arrays / f"{a}.npy") for a in ("indptr", "indices", "train_idx"))
    indptr, indices = torch.from_numpy(indptr.astype("int64")), torch.from_numpy(indices.astype("int64"))
    order = torch.from_numpy(numpy.random.default_rng(1).permutation(train).astype("int64"))
    sample = {"dgl-shadow": dgl_shadow, "dgl-walk": dgl_walk, "pyg-shadow": pyg_shadow}[args.peer](indptr, indices)
    batch = lambda i: order[(start := i * args.batch_size % (len(order) - args.batch_size)):start + args.batch_size]
    sample(batch(0)), sample(batch(1))
    with ThreadPoolExecutor(1 if args.inside else threads) as pool:
        begun = time.perf_counter()
        edges = sum(pool.map(lambda i: sample(batch(i)), range(2, 2 + args.batches)))
        seconds = time.perf_counter() - begun
    return {"batches_per_s": args.batches / seconds, "edges_per_s": edges / seconds}


def dgl_shadow(indptr, indices):
    import dgl

    graph = dgl.graph(("csc", (indptr, indices, [])))
    sampler = dgl.dataloading.ShaDowKHopSampler([10, 10])
    return lambda seeds: sampler.sample(graph, seeds)[2].num_edges()


def dgl_walk(indptr, indices):
    import dgl

    # Walks follow out-edges: those of the reversed graph are our in-neighbours.
    graph = dgl.graph(("csr", (indptr, indices, [])))
    sampler = dgl.sampling.RandomWalkNeighborSampler(graph, 3, 0.5, 10, 10)

    def sample(seeds):
        edges = 0
        for _ in range(3):
            block = dgl.to_block(sampler(seeds), seeds)
            edges += block.num_edges()
            seeds = block.srcdata[dgl.NID]
        return edges

    return sample


def pyg_shadow(indptr, indices):
    from torch_geometric.data import Data
    from torch_geometric.loader import ShaDowKHopSampler
    import torch_sparse

    adjacency = torch_sparse.SparseTensor(rowptr=indptr, col=indices, sparse_sizes=(len(indptr) - 1,) * 2, trust_data=True)
    loader = ShaDowKHopSampler(Data(adj_t=adjacency, num_nodes=len(indptr) - 1), depth=2, num_neighbors=10)
    return lambda seeds: loader.__collate__(seeds.tolist()).adj_t.nnz()


if __name__ == "__main__":
    main()
