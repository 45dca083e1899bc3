#!/usr/bin/env python3
"""Epochs of PyG on a MorphGL dataset, on a CUDA device or on the CPU: one JSON line.

    pyg_epoch.py DATASET --model sage|gcn|gat [--device cuda] [--threads 16] [--epochs 2] [--seconds 60]
                 [--features device] [--csr] [--compile] [--tf32]

Mini-batches come from NeighborLoader, which samples on the host by pyg-lib or torch-sparse; features stay in their stored
type until they are on the device. As it is every step copies the features of its mini-batch; with `--features device` all rows are
on the device, and a step gathers there. Models are those of `morphgl train`: three layers of width 256, GAT with four heads (one
in the last layer), dropout 0.5, Adam.

Where neither sampler is installed, "mode" is "steps": a few mini-batches, made beforehand by PyG's rule, are moved to the
device and trained, and an epoch is as many such steps. That leaves PyG's sampling out: no epoch of PyG's is shorter. With
`--features device` these mini-batches lie on the device, too, as a sampler there would leave them, and a step copies nothing.

An epoch that is not over after --seconds is cut off, and its seconds are those of its mini-batches so far, scaled up
("measured" says how many of "batches").
"""
import importlib.util
import json
import os
import sys
import time

import numpy as np

import peer_batches

parser = peer_batches.arguments(__doc__.split("\n")[0], ["sage", "gcn", "gat"])
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--features", choices=["host", "device"], default="host",
                    help="rows copied to the device in every step, or all of them there from the beginning")
parser.add_argument("--csr", action="store_true", help="adjacency as CSR matrices made beforehand; sage and gcn, with features on the device")
parser.add_argument("--compile", action="store_true", help="the model by torch.compile")
parser.add_argument("--mode", choices=["auto", "loader", "steps"], default="auto")
args = parser.parse_args()
if args.csr and (args.model == "gat" or args.mode == "loader" or args.features == "host"):
    parser.error("--csr: GATConv reads edges, and NeighborLoader makes them; leave it out, or give --mode steps --features device")
FANOUTS = [int(k) for k in args.fanouts.split(",")]
STEPS = 8

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch_geometric  # noqa: E402
from torch_geometric.nn import GATConv, GCNConv, SAGEConv  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402


def installed():
    """PyG's sampler here, if there is one."""
    known = {"pyg_lib": "WITH_PYG_LIB", "torch_sparse": "WITH_TORCH_SPARSE"}
    for name, flag in known.items():
        if importlib.util.find_spec(name) and getattr(torch_geometric.typing, flag, False):
            return name
    return None


class Batch:
    """What a step needs of a mini-batch: its features, or its nodes where features are on the device; and its adjacency, the edges
    or one CSR matrix per layer."""

    FIELDS = "x", "n_id", "edges", "y"

    def __init__(self, x, n_id, edges, y, num_nodes, num_edges, layers=None):
        self.x, self.n_id, self.edges, self.y = x, n_id, edges, y
        self.num_nodes, self.num_edges, self.layers = num_nodes, num_edges, layers

    def to(self, device):
        def move(tensor):
            return None if tensor is None else tensor.to(device, non_blocking=True)

        layers = self.layers and [move(layer) for layer in self.layers]
        return Batch(*(move(getattr(self, name)) for name in self.FIELDS), self.num_nodes, self.num_edges, layers)

    def pin(self):
        for name in self.FIELDS:
            if getattr(self, name) is not None:
                setattr(self, name, getattr(self, name).pin_memory())


def loader(graph):
    """Mini-batches of an epoch, by PyG."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices, targets]))
    x = torch.from_numpy(graph.features) if args.features == "host" else None
    data = Data(x=x, y=torch.from_numpy(graph.labels), edge_index=edges, num_nodes=graph.num_nodes)
    graph.indices = targets = None
    made = NeighborLoader(data, num_neighbors=FANOUTS, batch_size=args.batch_size, input_nodes=torch.from_numpy(graph.train),
                          shuffle=True, is_sorted=True, num_workers=args.threads, persistent_workers=args.threads > 0,
                          pin_memory=args.device.startswith("cuda"))

    def epoch():
        for b in made:
            # torch-sparse does not say which nodes a hop found.
            nodes, edges = getattr(b, "num_sampled_nodes", None), getattr(b, "num_sampled_edges", None)
            n_id = b.n_id if args.features == "device" else None
            yield Batch(b.x, n_id, b.edge_index, b.y[:b.batch_size], nodes, edges)

    return epoch


def csr_layers(batch):
    """The adjacency of each layer, a CSR matrix of its targets by its sources. GCN's has the values of `gcn_norm`, self-loops
    among them; SAGE's has ones. Whoever computes them once per mini-batch spares each layer the work."""
    layers = []
    for i in range(len(FANOUTS)):
        hops = len(FANOUTS) - i
        num_src, num_edges = sum(batch.num_nodes[:hops + 1]), sum(batch.num_edges[:hops])
        num_dst = sum(batch.num_nodes[:hops])
        edges = torch.from_numpy(np.stack([batch.sources[:num_edges], batch.targets[:num_edges]]))
        weights = torch.ones(num_edges)
        if args.model == "gcn":
            edges, weights = gcn_norm(edges, None, num_src, dtype=torch.float32)
            kept = edges[1] < num_dst
            edges, weights = edges[:, kept], weights[kept]
        coo = torch.sparse_coo_tensor(edges.flip(0), weights, (num_dst, num_src))
        layers.append(coo.coalesce().to_sparse_csr())
    return layers


def steps(graph):
    """The same few mini-batches, again and again, of as many as an epoch has."""
    some, count = peer_batches.some(graph, FANOUTS, args.batch_size, STEPS)
    kept = []
    for batch in some:
        n_id = torch.from_numpy(batch.nodes)
        x = torch.from_numpy(graph.features)[n_id] if args.features == "host" else None
        edges = None if args.csr else torch.from_numpy(np.stack([batch.sources, batch.targets]))
        y = torch.from_numpy(graph.labels[batch.nodes[:batch.num_nodes[0]]])
        made = Batch(x, None if args.features == "host" else n_id, edges, y, batch.num_nodes, batch.num_edges,
                     csr_layers(batch) if args.csr else None)
        if args.features == "device":
            made = made.to(torch.device(args.device))
        elif args.device.startswith("cuda"):
            made.pin()
        kept.append(made)

    def epoch():
        for i in range(count):
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
                return GCNConv(dims[i], width, normalize=not args.csr)
            heads = 1 if last else args.heads
            return GATConv(dims[i], width // heads, heads=heads)

        self.layers = torch.nn.ModuleList([layer(i) for i in range(len(FANOUTS))])

    def forward(self, x, edges, num_nodes, num_edges, csr, count):
        x = x.float()
        for i, layer in enumerate(self.layers):
            if csr is not None:
                x = layer((x, x[:csr[i].size(0)]) if args.model == "sage" else x, csr[i])
            else:
                if num_nodes is not None:
                    x, edges, _ = trim_to_layer(i, num_nodes, num_edges, x, edges)
                x = layer(x, edges)
            if i + 1 < len(self.layers):
                x = F.dropout(F.relu(x), args.dropout, self.training)
        return x[:count]


def main():
    sampler = installed()
    mode = args.mode if args.mode != "auto" else "loader" if sampler and not args.csr else "steps"
    if mode == "loader" and sampler is None:
        sys.exit("pyg_epoch.py: neither pyg-lib nor torch-sparse is installed, by which PyG samples; give --mode steps")
    device = torch.device(args.device)
    torch.set_num_threads(max(1, args.threads))
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    graph = peer_batches.Graph(args.dataset)
    features = torch.from_numpy(graph.features).to(device) if args.features == "device" else None
    batches = -(-len(graph.train) // args.batch_size)
    model = Model(graph.features.shape[1], graph.num_classes).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    if args.compile:
        model = torch.compile(model, dynamic=True)
    epoch = loader(graph) if mode == "loader" else steps(graph)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds, measured, losses, trimmed = [], [], [], None
    for _ in range(args.epochs):
        start, done, total = time.perf_counter(), 0, torch.zeros((), device=device)
        for batch in epoch():
            trimmed = batch.num_nodes is not None
            batch = batch.to(device)
            optimizer.zero_grad(set_to_none=True)
            x = batch.x if features is None else features[batch.n_id]
            out = model(x, batch.edges, batch.num_nodes, batch.num_edges, batch.layers, len(batch.y))
            loss = F.cross_entropy(out, batch.y)
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
        "loss": losses, "trimmed": trimmed, "features": args.features, "adjacency": "CSR" if args.csr else "edge list",
        "precision": "TF32" if args.tf32 else "f32", "compiled": "torch.compile" if args.compile else None,
        "versions": {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__},
    }))
    # The loader's processes may still be making mini-batches of an epoch that was cut off.
    sys.stdout.flush()
    os._exit(0)


main()
