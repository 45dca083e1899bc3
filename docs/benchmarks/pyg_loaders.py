#!/usr/bin/env python3
"""Mini-batches per second of PyG's loaders, on one thread: sampled by PyG itself (pyg-lib or torch-sparse), by `morphgl.pyg.Sampler` in
PyG's loaders, and by morphgl's loaders of the same names. In one process, in turns; one line of JSON with every round.

    pyg_loaders.py [--what nodes links typed] [--rounds 7] [--batches 10]

Graphs are drawn with degrees by a power law: `nodes` and `links` like ogbn-arxiv (169,000 nodes, 2.3 million edges, 128 features),
`typed` like ogbn-mag at a tenth (four node types, eight edge types with reverses, 4 million edges, 128 features of papers). Batch size
1024 and fanouts 15,10,5 of nodes; 256 pairs, five negatives for each and fanouts 10,5 of links; 1024 papers and fanouts 10,5 by type.
The first mini-batch of each turn is not counted.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader

import morphgl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--what", nargs="+", choices=["nodes", "links", "typed"], default=["nodes", "links", "typed"])
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--batches", type=int, default=10, help="mini-batches of a turn")
args = parser.parse_args()
torch.set_num_threads(1)
rng = np.random.default_rng(1)


def drawn(count, nodes):
    """Nodes, each with probability by the power law of its rank, which is drawn."""
    weights = np.arange(1, nodes + 1) ** -0.6
    return rng.permutation(nodes)[np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(count)).clip(max=nodes - 1)]


def edges(count, sources, targets):
    """Edges, sorted by target, so that no loader sorts them anew."""
    return by_target(np.stack([drawn(count, sources), drawn(count, targets)]).astype(np.int64))


def by_target(pairs):
    # torch counts the edges of each target wrongly where a row of the pairs is not contiguous.
    return torch.from_numpy(np.ascontiguousarray(pairs[:, np.lexsort(pairs)]))


def homogeneous():
    nodes = 169_000
    return Data(x=torch.randn(nodes, 128), y=torch.randint(0, 40, (nodes,)), edge_index=edges(2_300_000, nodes, nodes), num_nodes=nodes)


def heterogeneous():
    counts = {"paper": 74_000, "author": 113_000, "institution": 900, "field": 6_000}
    data = HeteroData()
    for name, count in counts.items():
        data[name].num_nodes = count
    data["paper"].x, data["paper"].y = torch.randn(counts["paper"], 128), torch.randint(0, 349, (counts["paper"],))
    for source, name, target, count in [("paper", "cites", "paper", 540_000), ("author", "writes", "paper", 715_000),
                                        ("author", "affiliated_with", "institution", 104_000), ("paper", "has_topic", "field", 750_000)]:
        pairs = edges(count, counts[source], counts[target])
        data[source, name, target].edge_index = pairs
        data[target, "rev_" + name, source].edge_index = by_target(pairs.flip(0).numpy())
    return data


def loaders(what):
    """The loaders by who samples, PyG first."""
    data = heterogeneous() if what == "typed" else homogeneous()
    if what == "links":
        fanouts, of_pyg, of_ours = [10, 5], LinkNeighborLoader, morphgl.LinkNeighborLoader
        pairs = data.edge_index[:, torch.from_numpy(rng.permutation(data.num_edges)[:100_000])]
        common = {"edge_label_index": pairs, "neg_sampling": {"mode": "triplet", "amount": 5}, "batch_size": 256, "shuffle": True}
    else:
        fanouts, of_pyg, of_ours = [15, 10, 5] if what == "nodes" else [10, 5], NeighborLoader, morphgl.NeighborLoader
        count = data["paper"].num_nodes if what == "typed" else data.num_nodes
        seeds = torch.from_numpy(rng.permutation(count)[:count // 2])
        common = {"input_nodes": ("paper", seeds) if what == "typed" else seeds, "batch_size": 1024, "shuffle": True}
    sampler = morphgl.pyg.Sampler(data, num_neighbors=fanouts)
    return {
        "pyg": of_pyg(data, num_neighbors=fanouts, is_sorted=True, **common),
        "pyg, sampled by morphgl": of_pyg(data, num_neighbors=fanouts, neighbor_sampler=sampler, **common),
        "morphgl": of_ours(data, num_neighbors=fanouts, threads=1, **common),
    }


def rate(loader):
    batches = iter(loader)
    next(batches)
    start = time.perf_counter()
    for _ in range(args.batches):
        next(batches)
    return args.batches / (time.perf_counter() - start)


for what in args.what:
    made = loaders(what)
    rates = {name: [] for name in made}
    for _ in range(args.rounds):
        for name, loader in made.items():
            rates[name].append(round(rate(loader), 2))
    report = {"what": what, "torch": torch.__version__, "rounds": args.rounds, "batches": args.batches, "batches_per_s": rates}
    for name in list(made)[1:]:
        ratios = sorted(ours / theirs for ours, theirs in zip(rates[name], rates["pyg"]))
        report[f"{name}, times pyg"] = [round(ratios[0], 2), round(statistics.median(ratios), 2), round(ratios[-1], 2)]
    print(json.dumps(report), flush=True)
