#!/usr/bin/env python3
"""Mini-batches per second of Python's loaders, sampling and gathering: one line of JSON. Fanouts 15,10,5, batch size 1024, shuffled.

    loaders.py DATASET --loader morphgl --output pyg --workers 2 --batches 80
    loaders.py DATASET --loader pyg|dgl|graphbolt --workers 0 --batches 20

DATASET is a dataset directory of f32 features. Workers are threads of morphgl's, processes of the others'. The first mini-batch of
each of the three runs is not counted: it waits for processes to start.
"""

import argparse
import json
import statistics
import time

import numpy as np
import torch

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dataset")
parser.add_argument("--loader", choices=["morphgl", "pyg", "dgl", "graphbolt"], required=True)
parser.add_argument("--output", choices=["pyg", "dgl", "torch", "numpy"], default="pyg", help="of morphgl's loader")
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--batches", type=int, default=40)
args = parser.parse_args()

FANOUTS, BATCH_SIZE, NUM_WORKERS = [15, 10, 5], 1024, args.workers
torch.set_num_threads(max(NUM_WORKERS, 1))
load = lambda name: np.load(f"{args.dataset}/{name}.npy")
indptr, indices = load("indptr").astype(np.int64), load("indices")
x, y, train = load("features"), load("labels"), load("train").astype(np.int64)
tensor = lambda array: torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)


def morphgl_loader():
    import morphgl

    graph = morphgl.Graph.from_numpy(csc=(indptr, indices.view(np.int32)), x=x, y=y)
    return morphgl.NeighborLoader(graph, FANOUTS, BATCH_SIZE, train, shuffle=True, threads=NUM_WORKERS, output=args.output)


def pyg_loader():
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    data = Data(x=tensor(x), y=tensor(y), edge_index=tensor(np.stack([indices, targets])))
    return NeighborLoader(data, FANOUTS, tensor(train), batch_size=BATCH_SIZE, shuffle=True, num_workers=NUM_WORKERS, is_sorted=True)


def dgl_loader():
    import dgl

    graph = dgl.graph(("csc", (tensor(indptr), tensor(indices), torch.empty(0, dtype=torch.int64))))
    graph.ndata["feat"], graph.ndata["label"] = tensor(x), tensor(y)
    sampler = dgl.dataloading.NeighborSampler(FANOUTS, prefetch_node_feats=["feat"], prefetch_labels=["label"])
    return dgl.dataloading.DataLoader(graph, tensor(train), sampler, batch_size=BATCH_SIZE, shuffle=True, num_workers=NUM_WORKERS)


def graphbolt_loader():
    import dgl.graphbolt as gb

    graph = gb.fused_csc_sampling_graph(tensor(indptr), tensor(indices))
    features = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(tensor(x))})
    items = gb.ItemSet((tensor(train), tensor(y[train])), names=("seed_nodes", "labels"))
    pipe = gb.ItemSampler(items, batch_size=BATCH_SIZE, shuffle=True).sample_neighbor(graph, FANOUTS)
    return gb.DataLoader(pipe.fetch_feature(features, node_feature_keys=["feat"]), num_workers=NUM_WORKERS)


loader = globals()[f"{args.loader}_loader"]()
rates = []
for _ in range(3):
    batches = iter(loader)
    next(batches)
    start, count = time.perf_counter(), 0
    for batch in batches:
        count += 1
        if count == args.batches:
            break
    rates.append(round(count / (time.perf_counter() - start), 2))
    del batch, batches
print(json.dumps({**vars(args), "torch": torch.__version__, "batches_per_s": statistics.median(rates), "all": rates}))
