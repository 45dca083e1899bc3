"""Test accuracy of typed models by MorphGL and by PyG, on a generated graph of publications: the same layers, widths, optimizer and
epochs, all nodes in one mini-batch, five seeds.

    python docs/benchmarks/typed/accuracy.py --binary target/release/morphgl > accuracy.json

Needs torch and torch_geometric. Each side starts from initial values of its own with the same distributions, keeps the epoch of the
best validation accuracy, and reports that epoch's test accuracy.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import GATConv, HeteroConv, RGCNConv, SAGEConv

HIDDEN, LAYERS, HEADS, BASES, LR, DROPOUT = 32, 2, 4, 4, 0.01, 0.5


class Inputs(nn.Module):
    """Projected features, and learned embeddings of types without."""

    def __init__(self, counts, features):
        super().__init__()
        self.lin = nn.ModuleDict({name: nn.Linear(x.shape[1], HIDDEN) for name, x in features.items()})
        self.emb = nn.ParameterDict({name: nn.Parameter((torch.rand(count, HIDDEN) * 2 - 1) * (3 / HIDDEN) ** 0.5)
                                     for name, count in counts.items() if name not in features})

    def forward(self, features):
        return {**{name: self.lin[name](x) for name, x in features.items()}, **dict(self.emb.items())}


class Hetero(nn.Module):
    """A layer per edge type, summed at the destination."""

    def __init__(self, kind, edge_types, classes):
        super().__init__()
        self.convs = nn.ModuleList()
        for layer in range(LAYERS):
            last = layer + 1 == LAYERS
            out = classes if last else HIDDEN
            make = {"rsage": lambda: SAGEConv(HIDDEN, out),
                    "rgat": lambda: GATConv(HIDDEN, out if last else out // HEADS, 1 if last else HEADS, add_self_loops=False)}[kind]
            self.convs.append(HeteroConv({edge_type: make() for edge_type in edge_types}, aggr="sum"))

    def forward(self, x, edges, typed):
        for layer, conv in enumerate(self.convs):
            x = conv(x, edges)
            if layer + 1 < LAYERS:
                x = {name: nn.functional.dropout(rows.relu(), DROPOUT, self.training) for name, rows in x.items()}
        return x["paper"]


class Relational(nn.Module):
    """RGCNConv with bases, on all nodes numbered through."""

    def __init__(self, edge_types, classes):
        super().__init__()
        widths = [HIDDEN] * LAYERS + [classes]
        self.convs = nn.ModuleList(RGCNConv(a, b, len(edge_types), BASES) for a, b in zip(widths, widths[1:]))

    def forward(self, x, edges, typed):
        edge_index, edge_type, papers = typed
        rows = torch.cat(list(x.values()))
        for layer, conv in enumerate(self.convs):
            rows = conv(rows, edge_index, edge_type)
            if layer + 1 < LAYERS:
                rows = nn.functional.dropout(rows.relu(), DROPOUT, self.training)
        return rows[papers]


def read(path):
    """The dataset's arrays as PyG has them."""
    types = json.load(open(os.path.join(path, "graph.json")))["types"]
    load = lambda name: np.load(os.path.join(path, f"{name}.npy"))
    indptr, indices, edge_types = load("indptr").astype(np.int64), load("indices").astype(np.int64), load("edge_types")
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    counts = {node["name"]: node["count"] for node in types["nodes"]}
    start = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist()))
    edges = {}
    for number, edge in enumerate(types["edges"]):
        of_type = edge_types == number
        pair = np.stack([indices[of_type] - start[edge["source"]], targets[of_type] - start[edge["target"]]])
        edges[(edge["source"], edge["name"], edge["target"])] = torch.from_numpy(pair)
    features = {node["name"]: torch.from_numpy(load(f"features.{at}").astype(np.float32)) for at, node in enumerate(types["nodes"])
                if os.path.exists(os.path.join(path, f"features.{at}.npy"))}
    papers = slice(start["paper"], start["paper"] + counts["paper"])
    typed = torch.from_numpy(np.stack([indices, targets])), torch.from_numpy(edge_types.astype(np.int64)), papers
    splits = {name: torch.from_numpy(load(name).astype(np.int64) - start["paper"]) for name in ("train", "valid", "test")}
    return counts, features, edges, typed, torch.from_numpy(load("labels").astype(np.int64))[papers], splits


def by_pyg(kind, path, epochs, seed):
    counts, features, edges, typed, labels, splits = read(path)
    torch.manual_seed(seed)
    classes = int(labels.max()) + 1
    model = Relational(list(edges), classes) if kind == "rgcn" else Hetero(kind, list(edges), classes)
    inputs = Inputs(counts, features)
    optimizer = torch.optim.Adam([*inputs.parameters(), *model.parameters()], lr=LR)
    best = (-1, 0)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        out = model(inputs(features), edges, typed)
        nn.functional.cross_entropy(out[splits["train"]], labels[splits["train"]]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(inputs(features), edges, typed).argmax(1) == labels
        valid, test = (right[splits[name]].float().mean().item() for name in ("valid", "test"))
        best = max(best, (valid, test), key=lambda scores: scores[0])
    return best[1]


def by_morphgl(binary, kind, path, epochs, seed):
    words = [binary, "train", path, "--json", "--model", kind, "--seed", seed, "--epochs", epochs, "--hidden", HIDDEN, "--layers", LAYERS,
             "--lr", LR, "--dropout", DROPOUT, "--fanouts", ",".join(["-1"] * LAYERS), "--batch-size", 10**9, "--plan", "sequential",
             "--profile-seconds", 0.1, "--quiet"]
    words += {"rgcn": ["--bases", BASES], "rgat": ["--heads", HEADS]}.get(kind, [])
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["test_accuracy"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", default="morphgl", help="the morphgl binary")
    arguments.add_argument("--nodes", type=int, default=10_000)
    arguments.add_argument("--epochs", type=int, default=60)
    arguments.add_argument("--seeds", type=int, default=5)
    given = arguments.parse_args()
    result = {"nodes": given.nodes, "epochs": given.epochs, "accuracy": {}}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "publications")
        subprocess.run([given.binary, "generate", "typed", "-o", path, "--nodes", str(given.nodes), "--quiet", "--signal", "0.2",
                        "--homophily", "0.5"], check=True, stdout=subprocess.DEVNULL)
        for kind in ("rgcn", "rsage", "rgat"):
            runs = {"morphgl": [by_morphgl(given.binary, kind, path, given.epochs, seed) for seed in range(given.seeds)],
                    "pyg": [by_pyg(kind, path, given.epochs, seed) for seed in range(given.seeds)]}
            result["accuracy"][kind] = {side: {"mean": statistics.mean(values), "deviation": statistics.stdev(values), "runs": values}
                                        for side, values in runs.items()}
            for side, values in runs.items():
                print(f"{kind:6} {side:8} {statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}", file=sys.stderr)
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
