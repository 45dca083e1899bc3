"""The ranks of `ranking.rs` with numpy: the same embeddings and pairs, the same MRR.

    OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 python ranking.py [NODES [DIM [PAIRS [ROUNDS]]]]
"""

import statistics
import sys
import time

import numpy as np

given = [int(argument) for argument in sys.argv[1:]]
nodes, dim, num_pairs, rounds = (given + [100_000, 64, 2_000, 5][len(given):])[:4]
CHUNK = 256


def splitmix64(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


bits = splitmix64(np.arange(nodes * dim, dtype=np.uint64)) >> np.uint64(40)
embeddings = (bits.astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)).reshape(nodes, dim)
pairs = (splitmix64(np.arange(2 * num_pairs, dtype=np.uint64) + np.uint64(1 << 40)) % np.uint64(nodes)).astype(np.int64).reshape(-1, 2)


def mrr():
    reciprocal = 0.0
    for start in range(0, num_pairs, CHUNK):
        source, target = pairs[start:start + CHUNK].T
        scores = embeddings[source] @ embeddings.T
        own = scores[np.arange(len(target)), target][:, None]
        above, equal = (scores > own).sum(axis=1), (scores == own).sum(axis=1) - 1
        reciprocal += (1 / (1 + above + equal / 2)).sum()
    return reciprocal / num_pairs


rates = []
for _ in range(rounds + 1):
    start = time.perf_counter()
    value = mrr()
    rates.append(num_pairs / (time.perf_counter() - start))
rates = sorted(rates[1:])
print(f"numpy {np.__version__}: {nodes} nodes of {dim}, {num_pairs} pairs")
print(f"{statistics.median(rates):.0f} pairs/s ({rates[0]:.0f} to {rates[-1]:.0f}), MRR {value:.9f}")
