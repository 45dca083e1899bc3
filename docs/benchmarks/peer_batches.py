"""Graphs of MorphGL datasets and mini-batches by PyG's rule, for the programs of peers beside this file. Needs numpy alone."""
import argparse
import json
import os

import numpy as np


def arguments(description, models):
    """The options of a program that trains, those of `morphgl train` by their names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("dataset")
    parser.add_argument("--model", choices=models, default="sage")
    parser.add_argument("--fanouts", default="15,10,5")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=60.0, help="of an epoch, at most")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch, and of a loader's processes")
    parser.add_argument("--tf32", action="store_true", help="GEMMs in TF32")
    return parser


class Graph:
    """The files of a dataset, as they are."""

    def __init__(self, path):
        def read(name):
            return np.load(os.path.join(path, name + ".npy"))

        self.indptr = read("indptr").astype(np.int64)
        self.indices = read("indices").astype(np.int64)
        self.features = read("features")
        self.labels = read("labels").astype(np.int64)
        self.train = read("train").astype(np.int64)
        self.num_nodes = len(self.indptr) - 1
        with open(os.path.join(path, "graph.json")) as file:
            self.num_classes = json.load(file)["num_classes"]


class Sampled:
    """A mini-batch: its nodes, those of each hop after those of the hop before, and its edges, by positions among the nodes."""

    def __init__(self, nodes, sources, targets, num_nodes, num_edges):
        self.nodes, self.sources, self.targets, self.num_nodes, self.num_edges = nodes, sources, targets, num_nodes, num_edges


def sampled(graph, seeds, fanouts, generator, local):
    """One mini-batch by PyG's rule: every hop expands the nodes that the one before found."""
    nodes, frontier, sources, targets = [seeds], seeds, [], []
    local[seeds] = np.arange(len(seeds))
    count, first, num_nodes, num_edges = len(seeds), 0, [len(seeds)], []
    for fanout in fanouts:
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
    return Sampled(nodes, np.concatenate(sources), np.concatenate(targets), num_nodes, num_edges)


def some(graph, fanouts, batch_size, count):
    """The first mini-batches of an epoch, and how many the epoch has."""
    generator, local = np.random.default_rng(0), np.full(graph.num_nodes, -1, np.int64)
    order = generator.permutation(graph.train)
    seeds = [order[i:i + batch_size] for i in range(0, len(order), batch_size)]
    # The last one may be smaller than the others.
    return [sampled(graph, s, fanouts, generator, local) for s in seeds[:count]], len(seeds)
