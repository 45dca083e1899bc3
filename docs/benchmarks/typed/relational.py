"""Test accuracy by RelBench's recipe on a generated relational database, by MorphGL and by PyG: hops of 128 and 64 neighbours per edge
type no later than the seed, mini-batches of 512, 128 channels, five seeds.

    python docs/benchmarks/typed/relational.py --binary target/release/morphgl > relational.json

Needs torch and torch_geometric; pyg-lib, whose sampler of PyG's reads times, is not needed: a sampler in numpy makes the trees for PyG, one
per seed, with all neighbours of a tree's node no later than the seed, or of more than the fanout a random choice. The model is R-SAGE:
each table's columns projected to the channels, a layer of GraphSAGE per edge type, summed at the destination, no dropout. Each side
starts from initial values of its own with the same distributions, keeps the epoch of the best validation accuracy, and reports that
epoch's test accuracy. `--untimed` also trains on neighbours of any time, which a database does not have when the review is written.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy as np

CHANNELS, BATCH, LR = 128, 512, 0.005


class Database:
    """The dataset's arrays."""

    def __init__(self, path):
        meta = json.load(open(os.path.join(path, "graph.json")))["types"]
        load = lambda name: np.load(os.path.join(path, f"{name}.npy"))
        self.nodes, self.edges = meta["nodes"], meta["edges"]
        self.start = np.cumsum([0, *(node["count"] for node in self.nodes)])
        self.indptr, self.indices = load("indptr").astype(np.int64), load("indices").astype(np.int64)
        self.edge_types, self.times = load("edge_types").astype(np.int64), load("node_times")
        self.features = [load(f"features.{at}").astype(np.float32) for at in range(len(self.nodes))]
        self.labels = load("labels").astype(np.int64)
        self.splits = {name: load(name).astype(np.int64) for name in ("train", "valid", "test")}

    def hop(self, trees, nodes, bounds, fanout, rng):
        """Edges into the nodes of trees: index of the destination, source and edge type of each."""
        counts = self.indptr[nodes + 1] - self.indptr[nodes]
        rows = np.repeat(np.arange(len(nodes)), counts)
        first = np.cumsum(counts) - counts
        edges = np.arange(len(rows)) - first[rows] + self.indptr[nodes][rows]
        known = self.times[self.indices[edges]] <= bounds[trees[rows]]
        rows, edges = rows[known], edges[known]
        types = self.edge_types[edges]
        group = rows * len(self.edges) + types
        order = np.lexsort((rng.random(len(rows)), group))
        group = group[order]
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        rank = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
        kept = np.sort(order[rank < fanout])
        return rows[kept], self.indices[edges[kept]], types[kept]

    def trees(self, seeds, fanouts, rng, timed):
        """Nodes of the trees of seeds, ascending, with their trees; edges as positions among them; positions of the seeds."""
        bounds = self.times[seeds] if timed else np.full(len(seeds), np.iinfo(np.int64).max)
        key = lambda trees, nodes: nodes * len(seeds) + trees
        found = newest = key(np.arange(len(seeds)), seeds)
        edges = []
        for fanout in fanouts:
            trees, nodes = newest % len(seeds), newest // len(seeds)
            rows, sources, types = self.hop(trees, nodes, bounds, fanout, rng)
            sources = key(trees[rows], sources)
            edges.append((sources, newest[rows], types))
            newest = np.setdiff1d(sources, found)
            found = np.union1d(found, newest)
        sources, targets, types = (np.concatenate(part) for part in zip(*edges))
        at = lambda keys: np.searchsorted(found, keys)
        return found // len(seeds), np.stack([at(sources), at(targets)]), types, at(key(np.arange(len(seeds)), seeds))


def by_pyg(path, fanouts, epochs, seed, timed):
    import torch
    from torch import nn
    from torch_geometric.nn import HeteroConv, SAGEConv

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng, data = np.random.default_rng(seed), Database(path)
    names = [node["name"] for node in data.nodes]
    classes = int(data.labels.max()) + 1
    project = nn.ModuleList(nn.Linear(rows.shape[1], CHANNELS) for rows in data.features)
    edge_types = [(edge["source"], edge["name"], edge["target"]) for edge in data.edges]
    widths = [CHANNELS] * len(fanouts) + [classes]
    convs = nn.ModuleList(HeteroConv({of: SAGEConv(a, b) for of in edge_types}, aggr="sum") for a, b in zip(widths, widths[1:]))
    optimizer = torch.optim.Adam([*project.parameters(), *convs.parameters()], lr=LR)
    ends = [[names.index(source), names.index(target)] for source, _, target in edge_types]

    def outputs(seeds):
        nodes, edges, types, at = data.trees(seeds, fanouts, rng, timed)
        bounds = np.searchsorted(nodes, data.start)
        x = {}
        for of, name in enumerate(names):
            rows = nodes[bounds[of]:bounds[of + 1]] - data.start[of]
            x[name] = project[of](torch.from_numpy(data.features[of][rows]))
        index = {}
        for of, edge_type in enumerate(edge_types):
            own = edges[:, types == of]
            index[edge_type] = torch.from_numpy(own - bounds[ends[of]][:, None])
        for layer, conv in enumerate(convs):
            x = conv(x, index)
            if layer + 1 < len(convs):
                x = {name: rows.relu() for name, rows in x.items()}
        of_seeds = at - bounds[names.index("review")]
        return x["review"][torch.from_numpy(of_seeds)], torch.from_numpy(data.labels[seeds])

    def right(split):
        seeds = data.splits[split]
        with torch.no_grad():
            parts = (outputs(seeds[start:start + BATCH]) for start in range(0, len(seeds), BATCH))
            return sum(int((out.argmax(1) == labels).sum()) for out, labels in parts) / len(seeds)

    best = (-1, 0)
    for _ in range(epochs):
        seeds = rng.permutation(data.splits["train"])
        for start in range(0, len(seeds), BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(*outputs(seeds[start:start + BATCH])).backward()
            optimizer.step()
        best = max(best, (right("valid"), right("test")), key=lambda scores: scores[0])
    return best[1]


def by_morphgl(binary, path, fanouts, epochs, seed, timed):
    words = [binary, "train", path, "--model", "rsage", "--layers", len(fanouts), "--fanouts", ",".join(map(str, fanouts)),
             "--batch-size", BATCH, "--hidden", CHANNELS, "--lr", LR, "--dropout", 0, "--epochs", epochs, "--seed", seed,
             "--sampler-option", f"temporal={'uniform' if timed else 'no'}", "--sampler-option", "disjoint=true",
             "--evaluation", "sampled", "--profile-seconds", 0.1, "--threads", 1, "--json", "--quiet"]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["test_accuracy"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", default="morphgl", help="the morphgl binary")
    arguments.add_argument("--nodes", type=int, default=50_000)
    arguments.add_argument("--fanouts", default="128,64", help="a third hop reaches the products of the customer's earlier events")
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--untimed", action="store_true", help="also train on neighbours of any time")
    given = arguments.parse_args()
    fanouts = [int(fanout) for fanout in given.fanouts.split(",")]
    result = {"nodes": given.nodes, "fanouts": fanouts, "epochs": given.epochs, "accuracy": {}}
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "shop")
        subprocess.run([given.binary, "generate", "relational", "-o", path, "--nodes", str(given.nodes), "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        for timed in (True, False) if given.untimed else (True,):
            sides = {"morphgl": lambda seed: by_morphgl(given.binary, path, fanouts, given.epochs, seed, timed),
                     "pyg": lambda seed: by_pyg(path, fanouts, given.epochs, seed, timed)}
            for side, run in sides.items():
                values = [run(seed) for seed in range(given.seeds)]
                deviation = statistics.stdev(values) if given.seeds > 1 else 0.0
                name = f"{side}{'' if timed else ', any time'}"
                result["accuracy"][name] = {"mean": statistics.mean(values), "deviation": deviation, "runs": values}
                print(f"{name:20} {statistics.mean(values):.4f} ± {deviation:.4f}", file=sys.stderr)
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
