#!/usr/bin/env python3
"""Writes what `speed.py --what rank --rank-sets OUT` ranks: directories of embeddings.npy and pairs.npy.

Usage: docs/benchmarks/tasks/rank_sets.py OUT [--trained EMBEDDINGS.npy PAIRS.npy]
normal-best, normal-median: 100,000 nodes of 64 normal values; the target of a source is the best of 1,000 drawn nodes, or the median of
31. trained: embeddings of `morphgl predict --embeddings`, and pairs of the dataset, as test_edges.npy, in random order.
"""
import argparse
import pathlib

import numpy as np

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("out", type=pathlib.Path)
parser.add_argument("--trained", nargs=2, type=pathlib.Path)
args = parser.parse_args()
random = np.random.default_rng(1)


def write(name, embeddings, pairs):
    (args.out / name).mkdir(parents=True, exist_ok=True)
    np.save(args.out / name / "embeddings.npy", np.ascontiguousarray(embeddings, dtype="<f4"))
    np.save(args.out / name / "pairs.npy", np.ascontiguousarray(pairs, dtype="<u4"))


normal = random.standard_normal((100_000, 64), dtype=np.float32)
for name, drawn, place in [("normal-best", 1_000, 0), ("normal-median", 31, 15)]:
    pairs = []
    for source in random.integers(0, len(normal), 4_096):
        nodes = random.integers(0, len(normal), drawn)
        pairs.append([source, nodes[np.argsort(-(normal[nodes] @ normal[source]))[place]]])
    write(name, normal, pairs)
if args.trained:
    embeddings, pairs = (np.load(path) for path in args.trained)
    write("trained", embeddings, random.permutation(pairs))
