#!/usr/bin/env python3
"""One system's links, measured on demand: reads a line from standard input, measures one round, prints a line of JSON; ends with it.

Usage: VENV/bin/python docs/benchmarks/tasks/speed_peer.py --peer dgl|pyg|numpy --what sample|step|rank --threads T [--workers W] [--arrays DIR]
DIR holds indptr.npy and indices.npy (in-neighbours of a symmetric graph) and feat_f32.npy. sample: mini-batches of 1024 pairs with 5
negatives of each, fanouts 15,10, the pairs' own edges left out; step: forward, backward and Adam on mini-batches made beforehand, two
layers of GraphSAGE of width 256, embeddings of 64, dot product, binary cross-entropy; rank: 256 pairs at a time against 100,000 nodes,
or those of --rank-set.
PyG's loader leaves no edge out: its mini-batches are those of the whole graph, less work than the others do.
"""
import argparse
import ctypes
import glob
import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--peer", choices=["dgl", "pyg", "numpy"], required=True)
parser.add_argument("--what", choices=["sample", "step", "rank"], required=True)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--arrays")
parser.add_argument("--batches", type=int, default=12)
parser.add_argument("--rank-set", help="directory of rank_sets.py [default: uniform embeddings, random targets]")
parser.add_argument("--fanouts", default="15,10")
args = parser.parse_args()
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = str(args.threads)
os.environ["DGLBACKEND"] = "pytorch"

import numpy as np

BATCH, NEGATIVES, HIDDEN, EMBEDDING = 1024, 5, 256, 64
FANOUTS = [int(k) for k in args.fanouts.split(",")]
versions = {"numpy": np.__version__}


def rank(nodes=100_000, dim=64, num_pairs=1_024, chunk=256):
    """The ranks of models/core/benches/ranking.py or of a directory: the same embeddings and pairs as MorphGL's."""
    def splitmix64(z):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))

    if args.rank_set:
        embeddings, pairs = (np.load(os.path.join(args.rank_set, f"{name}.npy")) for name in ("embeddings", "pairs"))
        pairs = pairs[:4_096].astype(np.int64)
        num_pairs = len(pairs)
    else:
        bits = splitmix64(np.arange(nodes * dim, dtype=np.uint64)) >> np.uint64(40)
        embeddings = (bits.astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)).reshape(nodes, dim)
        ends = splitmix64(np.arange(2 * num_pairs, dtype=np.uint64) + np.uint64(1 << 40)) % np.uint64(nodes)
        pairs = ends.astype(np.int64).reshape(-1, 2)
    # The kernels that OpenBLAS chose, where numpy brings it.
    for library in glob.glob(os.path.join(os.path.dirname(np.__file__), "..", "numpy.libs", "libscipy_openblas64*")):
        name = ctypes.CDLL(library).scipy_openblas_get_corename64_
        name.restype = ctypes.c_char_p
        versions["openblas"] = name().decode()

    def once():
        reciprocal = 0.0
        for start in range(0, num_pairs, chunk):
            source, target = pairs[start:start + chunk].T
            scores = embeddings[source] @ embeddings.T
            own = scores[np.arange(len(target)), target][:, None]
            above, equal = (scores > own).sum(axis=1), (scores == own).sum(axis=1) - 1
            reciprocal += (1 / (1 + above + equal / 2)).sum()
        return {"pairs": num_pairs, "mrr": reciprocal / num_pairs}

    return once, "pairs"


def torch_round():
    import torch
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    versions["torch"] = torch.__version__
    indptr, indices = (np.load(os.path.join(args.arrays, f"{name}.npy")).astype(np.int64) for name in ("indptr", "indices"))
    x = torch.from_numpy(np.load(os.path.join(args.arrays, "feat_f32.npy")))
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    lower = np.flatnonzero(indices < target)
    source, target = torch.from_numpy(indices), torch.from_numpy(target)
    if args.peer == "dgl":
        import dgl
        from dgl.dataloading import DataLoader, NeighborSampler, as_edge_prediction_sampler
        from dgl.dataloading.negative_sampler import PerSourceUniform
        versions["dgl"] = dgl.__version__
        # The pairs' edges first, then their reverses, in the same order.
        a, b = source[lower], target[lower]
        g = dgl.graph((torch.cat([a, b]), torch.cat([b, a])), num_nodes=len(x)).formats(["csc", "coo"])
        half = len(a)
        reverse = torch.cat([torch.arange(half, 2 * half), torch.arange(half)])
        sampler = as_edge_prediction_sampler(NeighborSampler(FANOUTS[::-1]), exclude="reverse_id", reverse_eids=reverse,
                                             negative_sampler=PerSourceUniform(NEGATIVES))
        loader = DataLoader(g, torch.arange(half), sampler, batch_size=BATCH, shuffle=True, num_workers=args.workers)
        conv = lambda a, b: dgl.nn.SAGEConv(a, b, "mean")
        edges = lambda batch: sum(block.num_edges() for block in batch[3])

        def prepared(batch):
            nodes, positive, negative, blocks = batch
            return blocks, x[nodes], positive.edges(), negative.edges()
    else:
        import torch_geometric
        from torch_geometric.data import Data
        from torch_geometric.loader import LinkNeighborLoader
        from torch_geometric.nn import SAGEConv
        versions["pyg"] = torch_geometric.__version__
        data = Data(edge_index=torch.stack([source, target]), num_nodes=len(x))
        loader = LinkNeighborLoader(data, num_neighbors=FANOUTS, edge_label_index=data.edge_index[:, lower], batch_size=BATCH,
                                    shuffle=True, num_workers=args.workers,
                                    neg_sampling=dict(mode="triplet", amount=NEGATIVES))
        conv = SAGEConv
        edges = lambda batch: batch.edge_index.shape[1]

        def prepared(batch):
            repeated = batch.src_index.repeat_interleave(NEGATIVES)
            return ([batch.edge_index] * 2, x[batch.n_id], (batch.src_index, batch.dst_pos_index),
                    (repeated, batch.dst_neg_index.flatten()))

    if args.what == "sample":
        batches = iter(loader)

        def once():
            count = 0
            for _ in range(args.batches):
                count += edges(next(batches))
            return {"batches": args.batches, "edges_per_batch": count / args.batches}

        for _ in range(4):
            next(batches)
        return once, "batches"
    batches = [prepared(batch) for batch, _ in zip(loader, range(4))]
    convs = torch.nn.ModuleList([conv(x.shape[1], HIDDEN), conv(HIDDEN, EMBEDDING)])
    optimizer = torch.optim.Adam(convs.parameters(), lr=0.003)

    def step(graphs, h, positive, negative):
        optimizer.zero_grad()
        h = torch.nn.functional.dropout(convs[0](*arguments(graphs[0], h)).relu(), 0.5)
        h = convs[1](*arguments(graphs[1], h))
        scores = torch.cat([(h[a] * h[b]).sum(1) for a, b in (positive, negative)])
        wanted = torch.cat([torch.ones(len(positive[0])), torch.zeros(len(negative[0]))])
        torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted).backward()
        optimizer.step()

    arguments = (lambda graph, h: (graph, h)) if args.peer == "dgl" else (lambda graph, h: (h, graph))

    def once():
        for batch in batches:
            step(*batch)
        return {"batches": len(batches)}

    once()
    return once, "batches"


once, unit = rank() if args.what == "rank" else torch_round()
print(json.dumps({"ready": versions}), flush=True)
for _ in sys.stdin:
    start, cpu = time.perf_counter(), time.process_time()
    found = once()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    # CPU seconds are those of this process, without its workers.
    print(json.dumps({"rate": found[unit] / seconds, "unit": f"{unit}/s", "cores_own": cpu / seconds, "seconds": seconds,
                      "versions": versions, **found}), flush=True)
