#!/usr/bin/env python3
"""Trains a recipe with PyG's or DGL's loaders and layers, and prints a JSON line per seed.

Usage: VENV/bin/python docs/benchmarks/tasks/peer.py --peer pyg|dgl --sets DIR --set NAME --seeds 0,1,2 [--threads 1]

Layers are initialised as PyG's (torch's Linear). After every epoch the model is evaluated with all neighbours; the one with the best
validation score, the first of the recipe, is tested. PyG: LinkNeighborLoader with `triplet` negatives or NeighborLoader, one process,
torch-sparse where pyg-lib is not installed; its loader samples the edges that it predicts, so that they and their reverses are taken
out of each mini-batch here. DGL: as_edge_prediction_sampler with exclude="reverse_id" and PerSourceUniform, or NeighborSampler.
"""
import argparse
import json
import os
import pathlib
import time
import warnings

warnings.filterwarnings("ignore")
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--peer", choices=["pyg", "dgl"], required=True)
parser.add_argument("--sets", type=pathlib.Path, required=True)
parser.add_argument("--set", required=True)
parser.add_argument("--seeds", default="0")
parser.add_argument("--threads", type=int, default=1)
args = parser.parse_args()
os.environ.update(OMP_NUM_THREADS=str(args.threads), DGLBACKEND="pytorch")

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score, r2_score, roc_auc_score

from recipes import RECIPES

recipe, here = RECIPES[args.set], args.sets / args.set
torch.set_num_threads(args.threads)
graph = {file.stem: np.load(file) for file in (here / "graph").glob("*.npy")}
pairs = {file.stem: np.load(file).astype(np.int64) for file in (here / "pairs").glob("*.npy")}
x, edge_index = torch.from_numpy(graph["features"]), torch.from_numpy(graph["edge_index"])
is_link, num_nodes = recipe["task"] == "link", len(x)
width = recipe["embedding"] if is_link else graph["targets"].shape[1]
DIMS = [(x.shape[1], recipe["hidden"]), (recipe["hidden"], width)]
targets = None if is_link else torch.from_numpy(graph["targets"])
split = lambda name: torch.from_numpy(graph[name].astype(np.int64))


def loss_of(outputs, wanted):
    if recipe["task"] == "regress":
        return F.mse_loss(outputs, wanted)
    return F.binary_cross_entropy_with_logits(outputs, wanted)


def link_loss(embeddings, positives, negatives):
    scores = [(embeddings[a] * embeddings[b]).sum(1) for a, b in (positives, negatives)]
    wanted = torch.cat([torch.ones(len(scores[0])), torch.zeros(len(scores[1]))])
    return loss_of(torch.cat(scores), wanted)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(CONV(*dims) for dims in DIMS)
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                module.reset_parameters()

    def forward(self, graphs, h):
        for layer, (conv, graph) in enumerate(zip(self.convs, graphs)):
            h = call(conv, graph, h)
            if layer + 1 < len(self.convs):
                h = F.dropout(h.relu(), recipe["dropout"], self.training)
        return h


if args.peer == "pyg":
    import torch_geometric
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
    from torch_geometric.nn import SAGEConv

    versions = {"torch": torch.__version__, "pyg": torch_geometric.__version__}
    CONV, call = SAGEConv, lambda conv, edges, h: conv(h, edges)
    whole, data = [edge_index] * 2, Data(x=x, edge_index=edge_index, y=targets)

    def loader():
        common = dict(num_neighbors=recipe["fanouts"], batch_size=recipe["batch_size"], shuffle=True)
        if is_link:
            wanted = torch.from_numpy(pairs["train"]).T.contiguous()
            sampling = dict(neg_sampling=dict(mode="triplet", amount=recipe["negatives"]))
            return LinkNeighborLoader(data, edge_label_index=wanted, **sampling, **common)
        return NeighborLoader(data, input_nodes=split("train"), **common)

    def loss(model, batch):
        if not is_link:
            outputs = model([batch.edge_index] * 2, batch.x)
            return loss_of(outputs[: batch.batch_size], batch.y[: batch.batch_size])
        source, positive, size = batch.src_index, batch.dst_pos_index, batch.num_nodes
        key = lambda a, b: a * size + b
        predicted = torch.cat([key(source, positive), key(positive, source)])
        edges = batch.edge_index[:, ~torch.isin(key(*batch.edge_index), predicted)]
        negative = batch.dst_neg_index.reshape(len(source), -1)
        repeated = source.repeat_interleave(negative.shape[1])
        return link_loss(model([edges] * 2, batch.x), (source, positive), (repeated, negative.flatten()))
else:
    import dgl
    from dgl.dataloading import DataLoader, NeighborSampler, as_edge_prediction_sampler
    from dgl.dataloading.negative_sampler import PerSourceUniform

    versions = {"torch": torch.__version__, "dgl": dgl.__version__}
    CONV, call = lambda a, b: dgl.nn.SAGEConv(a, b, "mean"), lambda conv, block, h: conv(block, h)
    g = dgl.graph((edge_index[0], edge_index[1]), num_nodes=num_nodes)
    whole = [g] * 2

    def loader():
        sampler = NeighborSampler(recipe["fanouts"][::-1])
        ids = None if is_link else split("train")
        if is_link:
            # The edges come first, then their reverses.
            half = g.num_edges() // 2
            ids, reverse = torch.arange(half), torch.cat([torch.arange(half, 2 * half), torch.arange(half)])
            sampler = as_edge_prediction_sampler(sampler, exclude="reverse_id", reverse_eids=reverse,
                                                 negative_sampler=PerSourceUniform(recipe["negatives"]))
        return DataLoader(g, ids, sampler, batch_size=recipe["batch_size"], shuffle=True)

    def loss(model, batch):
        if is_link:
            nodes, positive, negative, blocks = batch
            return link_loss(model(blocks, x[nodes]), positive.edges(), negative.edges())
        nodes, seeds, blocks = batch
        return loss_of(model(blocks, x[nodes]), targets[seeds])


def ranked(embeddings, name):
    """ROC-AUC of all pairs, and the mean reciprocal rank, of ties the mean rank."""
    score = lambda ends: (embeddings[ends[..., 0]] * embeddings[ends[..., 1]]).sum(-1)
    positives, negatives = score(pairs[name])[:, None], score(pairs[f"{name}_negatives"])
    rank = 1 + (negatives > positives).sum(1) + (negatives == positives).sum(1) / 2
    known = np.concatenate([np.ones(positives.size), np.zeros(negatives.size)])
    return [roc_auc_score(known, np.concatenate([positives.ravel(), negatives.ravel()])), float((1 / rank).mean())]


@torch.no_grad()
def evaluate(model, name):
    model.eval()
    outputs = model(whole, x).numpy()
    if is_link:
        return ranked(outputs, name)
    ids = split(name).numpy()
    wanted, outputs = graph["targets"][ids], outputs[ids]
    if recipe["task"] == "regress":
        return [float(np.sqrt(((outputs - wanted) ** 2).mean())), r2_score(wanted, outputs)]
    return [f1_score(wanted, outputs > 0, average="micro"), roc_auc_score(wanted, outputs)]


for seed in map(int, args.seeds.split(",")):
    torch.manual_seed(seed)
    np.random.seed(seed)
    if args.peer == "dgl":
        dgl.seed(seed)
    model, start, best = Model(), time.perf_counter(), None
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe["lr"])
    lower = recipe["scores"][0] == "rmse"
    batches, losses = loader(), []
    for epoch in range(recipe["epochs"]):
        model.train()
        for batch in batches:
            optimizer.zero_grad()
            value = loss(model, batch)
            value.backward()
            optimizer.step()
            losses.append(float(value.detach()))
        valid = evaluate(model, "valid")
        value = -valid[0] if lower else valid[0]
        if best is None or value > best[0]:
            best = value, epoch, valid, evaluate(model, "test")
    print(json.dumps({
        "system": args.peer, "set": args.set, "seed": seed, "best_epoch": best[1], "valid": dict(zip(recipe["scores"], best[2])),
        "test": dict(zip(recipe["scores"], best[3])), "loss": float(np.mean(losses[-len(losses) // recipe["epochs"]:])),
        "seconds": time.perf_counter() - start, "versions": versions}), flush=True)
