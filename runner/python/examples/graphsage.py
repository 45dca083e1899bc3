"""Trains PyG's GraphSAGE on a dataset directory, with MorphGL's loader or PyG's own, and prints accuracy and seconds per epoch.

    morphgl generate sbm -o graph && python graphsage.py graph
    python graphsage.py cora --neighbors 10 10 --batch-size 140 --hidden 64 --epochs 50 --seeds 5
"""

import argparse
import statistics
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import morphgl

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dataset", help="a dataset directory")
parser.add_argument("--loader", choices=["morphgl", "pyg"], default="morphgl")
parser.add_argument("--neighbors", type=int, nargs="+", default=[15, 10, 5])
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batches", type=int, help="mini-batches per epoch, at most")
parser.add_argument("--seeds", type=int, default=1, help="runs, each with a seed of its own")
args = parser.parse_args()

graph = morphgl.Graph.open(args.dataset)


def loaders(seed):
    """Mini-batches to train on, and to test on, sampled alike."""
    splits = ("train", "test")
    if args.loader == "morphgl":
        return [morphgl.NeighborLoader(graph, args.neighbors, args.batch_size, split, shuffle=split == "train", seed=seed,
                                       output="pyg") for split in splits]
    from torch_geometric.loader import NeighborLoader

    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), targets]))
    data = Data(torch.from_numpy(graph.x.copy()), edge_index, y=torch.from_numpy(graph.y.astype(np.int64)))
    nodes = [torch.from_numpy(graph.split(split).astype(np.int64)) for split in splits]
    return [NeighborLoader(data, args.neighbors, nodes[i], batch_size=args.batch_size, shuffle=i == 0, is_sorted=True)
            for i in range(2)]


def run(seed):
    torch.manual_seed(seed)
    train, test = loaders(seed)
    model = GraphSAGE(graph.num_features, args.hidden, len(args.neighbors), graph.num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    seconds = []
    for _ in range(args.epochs):
        model.train()
        start = time.perf_counter()
        for number, batch in enumerate(train):
            optimizer.zero_grad()
            out = model(batch.x.float(), batch.edge_index)[:batch.batch_size]
            cross_entropy(out, batch.y[:batch.batch_size], ignore_index=-1).backward()
            optimizer.step()
            if number + 1 == args.batches:
                break
        seconds.append(time.perf_counter() - start)
    model.eval()
    correct = count = 0
    with torch.no_grad():
        for number, batch in enumerate(test):
            y = batch.y[:batch.batch_size]
            correct += int((model(batch.x.float(), batch.edge_index)[:batch.batch_size].argmax(1) == y).sum())
            count += len(y)
            if args.batches and number + 1 == 4:
                break
    return correct / count, statistics.median(seconds)


results = [run(seed) for seed in range(args.seeds)]
accuracies, seconds = zip(*results)
spread = f" ± {statistics.stdev(accuracies):.4f}" if len(results) > 1 else ""
print(f"{args.loader}: test accuracy {statistics.mean(accuracies):.4f}{spread}, {statistics.median(seconds):.3f} s per epoch")
