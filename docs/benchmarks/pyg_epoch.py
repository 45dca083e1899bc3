#!/usr/bin/env python3
"""Epochs of PyG on a MorphGL dataset, on a CUDA device or on the CPU: one JSON line.

    pyg_epoch.py DATASET --model sage|gcn|gat [--device cuda] [--threads 16] [--epochs 2] [--seconds 60]

Mini-batches come from NeighborLoader, which samples on the host by pyg-lib or torch-sparse; features stay in their stored
type until they are on the device. Models are those of `morphgl train`: three layers of width 256, GAT with four heads (one in
the last layer), dropout 0.5, Adam.

Where neither sampler is installed, "mode" is "steps": a few mini-batches, made beforehand by PyG's rule, are moved to the
device and trained, and an epoch is as many such steps. That leaves PyG's sampling out: no epoch of PyG's is shorter.

An epoch that is not over after --seconds is cut off, and its seconds are those of its mini-batches so far, scaled up
("measured" says how many of "batches").
"""
import argparse
import importlib.util
import json
import os
import sys
import time

import numpy as np

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("dataset")
parser.add_argument("--model", choices=["sage", "gcn", "gat"], default="sage")
parser.add_argument("--fanouts", default="15,10,5")
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--seconds", type=float, default=60.0, help="of an epoch, at most")
parser.add_argument("--device", default="cuda")
parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch, and the loader's processes")
parser.add_argument("--mode", choices=["auto", "loader", "steps"], default="auto")
args = parser.parse_args()
FANOUTS = [int(k) for k in args.fanouts.split(",")]
STEPS = 8

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_geometric  # noqa: E402
from torch_geometric.nn import GATConv, GCNConv, SAGEConv  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402


def installed():
    """PyG's sampler here, if there is one."""
    known = {"pyg_lib": "WITH_PYG_LIB", "torch_sparse": "WITH_TORCH_SPARSE"}
    for name, flag in known.items():
        if importlib.util.find_spec(name) and getattr(torch_geometric.typing, flag, False):
            return name
    return None


class Graph:
    """The files of a dataset, as they are."""

    def __init__(self, path):
        def read(name, **how):
            return np.load(os.path.join(path, name + ".npy"), **how)

        self.indptr = read("indptr").astype(np.int64)
        self.indices = read("indices").astype(np.int64)
        self.features = torch.from_numpy(read("features"))
        self.labels = torch.from_numpy(read("labels").astype(np.int64))
        self.train = torch.from_numpy(read("train").astype(np.int64))
        self.num_nodes = len(self.indptr) - 1
        with open(os.path.join(path, "graph.json")) as file:
            self.num_classes = json.load(file)["num_classes"]


class Batch:
    """What a step needs of a mini-batch of the loader's."""

    def __init__(self, x, edge_index, y, nodes, edges):
        self.x, self.edge_index, self.y, self.nodes, self.edges = x, edge_index, y, nodes, edges

    def to(self, device):
        def move(tensor):
            return tensor.to(device, non_blocking=True)

        return Batch(move(self.x), move(self.edge_index), move(self.y), self.nodes, self.edges)


def loader(graph):
    """Mini-batches of an epoch, by PyG."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices, targets]))
    data = Data(x=graph.features, y=graph.labels, edge_index=edges, num_nodes=graph.num_nodes)
    graph.indices = targets = None
    made = NeighborLoader(data, num_neighbors=FANOUTS, batch_size=args.batch_size, input_nodes=graph.train, shuffle=True,
                          is_sorted=True, num_workers=args.threads, persistent_workers=args.threads > 0,
                          pin_memory=args.device.startswith("cuda"))

    def epoch():
        for b in made:
            # torch-sparse does not say which nodes a hop found.
            nodes, edges = getattr(b, "num_sampled_nodes", None), getattr(b, "num_sampled_edges", None)
            yield Batch(b.x, b.edge_index, b.y[:b.batch_size], nodes, edges)

    return epoch


def sampled(graph, seeds, generator, local):
    """One mini-batch by PyG's rule: every hop expands the nodes that the one before found."""
    nodes, frontier, sources, targets = [seeds], seeds, [], []
    local[seeds] = np.arange(len(seeds))
    count, first, num_nodes, num_edges = len(seeds), 0, [len(seeds)], []
    for fanout in FANOUTS:
        start, degree = graph.indptr[frontier], graph.indptr[frontier + 1] - graph.indptr[frontier]
        picks, rows = [], []
        few = np.flatnonzero(degree <= fanout)
        rows.append(np.repeat(few, degree[few]))
        within = np.arange(degree[few].sum()) - np.repeat(np.cumsum(degree[few]) - degree[few], degree[few])
        picks.append(np.repeat(start[few], degree[few]) + within)
        # Floyd's method, for all other rows at once.
        many = np.flatnonzero(degree > fanout)
        chosen = np.empty((len(many), fanout), np.int64)
        for j in range(fanout):
            last = degree[many] - fanout + j
            drawn = (generator.random(len(many)) * (last + 1)).astype(np.int64)
            again = (chosen[:, :j] == drawn[:, None]).any(1)
            chosen[:, j] = np.where(again, last, drawn)
        rows.append(np.repeat(many, fanout))
        picks.append((start[many][:, None] + chosen).ravel())
        found = graph.indices[np.concatenate(picks)]
        unknown = found[local[found] < 0]
        fresh = unknown[np.sort(np.unique(unknown, return_index=True)[1])]
        local[fresh] = count + np.arange(len(fresh))
        sources.append(local[found])
        targets.append(first + np.concatenate(rows))
        nodes.append(fresh)
        num_nodes.append(len(fresh))
        num_edges.append(len(found))
        first, count, frontier = count, count + len(fresh), fresh
    nodes = np.concatenate(nodes)
    local[nodes] = -1
    edges = torch.from_numpy(np.stack([np.concatenate(sources), np.concatenate(targets)]))
    x = graph.features[torch.from_numpy(nodes)]
    return Batch(x, edges, graph.labels[torch.from_numpy(seeds)], num_nodes, num_edges)


def steps(graph):
    """The same few mini-batches, again and again, of as many as an epoch has."""
    generator, local = np.random.default_rng(0), np.full(graph.num_nodes, -1, np.int64)
    order = generator.permutation(graph.train.numpy())
    seeds = [order[i:i + args.batch_size] for i in range(0, len(order), args.batch_size)]
    # The last one may be smaller than the others.
    kept = [sampled(graph, s, generator, local) for s in seeds[:STEPS]]
    if args.device.startswith("cuda"):
        for batch in kept:
            batch.x, batch.edge_index, batch.y = (t.pin_memory() for t in (batch.x, batch.edge_index, batch.y))

    def epoch():
        for i in range(len(seeds)):
            yield kept[i % len(kept)]

    return epoch


class Model(torch.nn.Module):
    def __init__(self, dim, num_classes):
        super().__init__()
        dims = [dim] + [args.hidden] * (len(FANOUTS) - 1) + [num_classes]

        def layer(i):
            width, last = dims[i + 1], i == len(FANOUTS) - 1
            if args.model == "sage":
                return SAGEConv(dims[i], width)
            if args.model == "gcn":
                return GCNConv(dims[i], width)
            heads = 1 if last else args.heads
            return GATConv(dims[i], width // heads, heads=heads)

        self.layers = torch.nn.ModuleList([layer(i) for i in range(len(FANOUTS))])

    def forward(self, batch):
        x, edge_index = batch.x.float(), batch.edge_index
        for i, layer in enumerate(self.layers):
            if batch.nodes is not None:
                x, edge_index, _ = trim_to_layer(i, batch.nodes, batch.edges, x, edge_index)
            x = layer(x, edge_index)
            if i + 1 < len(self.layers):
                x = F.dropout(F.relu(x), args.dropout, self.training)
        return x[:len(batch.y)]


def main():
    sampler = installed()
    mode = args.mode if args.mode != "auto" else "loader" if sampler else "steps"
    if mode == "loader" and sampler is None:
        sys.exit("pyg_epoch.py: neither pyg-lib nor torch-sparse is installed, by which PyG samples; give --mode steps")
    device = torch.device(args.device)
    torch.set_num_threads(max(1, args.threads))
    graph = Graph(args.dataset)
    batches = -(-len(graph.train) // args.batch_size)
    model = Model(graph.features.shape[1], graph.num_classes).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    epoch = loader(graph) if mode == "loader" else steps(graph)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds, measured, losses, trimmed = [], [], [], None
    for _ in range(args.epochs):
        start, done, total = time.perf_counter(), 0, torch.zeros((), device=device)
        for batch in epoch():
            trimmed = batch.nodes is not None
            batch = batch.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            done += 1
            if time.perf_counter() - start > args.seconds:
                break
        synchronize()
        seconds.append((time.perf_counter() - start) * batches / done)
        measured.append(done)
        losses.append(float(total) / done)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    print(json.dumps({
        "what": "epoch", "peer": "pyg", "mode": mode, "sampler": sampler if mode == "loader" else None, "model": args.model,
        "device": name, "threads": args.threads, "unit": "s/epoch", "all": seconds, "batches": batches, "measured": measured,
        "loss": losses, "trimmed": trimmed,
        "versions": {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
    }))
    # The loader's processes may still be making mini-batches of an epoch that was cut off.
    sys.stdout.flush()
    os._exit(0)


main()
