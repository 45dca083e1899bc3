"""Stands in for pyg-lib where it cannot be installed, so that PyG's loader and layers can be measured at all.

pyg-lib samples for PyG; its wheels are in no package registry. This module gives `torch.ops.pyg.neighbor_sample`, which
PyG and the peers' harness call, in vectorised numpy: the same rule (each hop expands the nodes that the one before added),
the same layout of nodes and edges, and the numbers of both, hop by hop. Needs nothing compiled, so it works with every
version of torch. A call runs on one thread, as pyg-lib's does, but holds Python's lock; nothing measured with it says
anything about PyG's sampling. Training steps do not depend on it; epochs do, by the time that sampling takes.
"""
import threading

import numpy as np
import torch

__version__ = "none, numpy samples"


class ops:
    """None of pyg-lib's other operations: PyG uses torch's own."""


class sampler:
    """What PyG looks at to know the arguments."""

    @staticmethod
    def neighbor_sample(rowptr, col, seed, num_neighbors, node_time=None, edge_time=None, seed_time=None,
                        edge_weight=None, csc=False, replace=False, directed=True, disjoint=False,
                        temporal_strategy="uniform", return_edge_id=True):
        if disjoint or replace or not directed or not csc or any(t is not None for t in (node_time, edge_time, edge_weight)):
            raise ValueError("the stand-in for pyg-lib samples plain directed graphs in CSC form, without replacement, alone")
        indptr, indices, frontier = rowptr.numpy(), col.numpy(), seed.numpy()
        local, random = scratch(indptr.size - 1)
        local[frontier] = np.arange(frontier.size)
        hops, sources, targets, edge_ids = [frontier], [], [], []
        first, total = 0, frontier.size
        for fanout in num_neighbors:
            picked, counts = pick(indptr, frontier, fanout, random)
            source = indices[picked]
            target = np.repeat(np.arange(first, total), counts)
            new = distinct(source[local[source] < 0], local)
            local[new] = np.arange(total, total + new.size)
            sources.append(local[source])
            targets.append(target)
            edge_ids.append(picked)
            hops.append(new)
            frontier, first, total = new, total, total + new.size
        nodes = np.concatenate(hops)
        local[nodes] = -1
        row, col, edge = (torch.from_numpy(np.concatenate(parts)) for parts in (sources, targets, edge_ids))
        return (row, col, torch.from_numpy(nodes), edge if return_edge_id else None,
                [hop.size for hop in hops], [source.size for source in sources])


def pick(indptr, nodes, fanout, random):
    """Ids of the sampled edges, at most `fanout` per node without replacement (Floyd's algorithm), and their number by node."""
    begins = indptr[nodes]
    degrees = indptr[nodes + 1] - begins
    counts = degrees if fanout < 0 else np.minimum(degrees, fanout)
    ends = np.cumsum(counts)
    edges = np.arange(ends[-1] if ends.size else 0) + np.repeat(begins - ends + counts, counts)
    large = np.nonzero(degrees > counts)[0]
    if large.size:
        degree = degrees[large]
        chosen = np.empty((fanout, large.size), np.int64)
        for i in range(fanout):
            last = degree - fanout + i
            draw = (random.random(large.size) * (last + 1)).astype(np.int64)
            taken = np.zeros(large.size, bool)
            for before in chosen[:i]:
                taken |= before == draw
            chosen[i] = np.where(taken, last, draw)
        chosen += begins[large]
        at = ends[large] - fanout
        for i in range(fanout):
            edges[at + i] = chosen[i]
    return edges, counts


def distinct(nodes, local):
    """Removes duplicates; overwrites the nodes' entries in `local`."""
    positions = np.arange(nodes.size)
    local[nodes] = positions
    return nodes[local[nodes] == positions]


own = threading.local()


def scratch(num_nodes):
    """The thread's table of local ids, -1 for nodes outside the mini-batch, and its random number generator."""
    if getattr(own, "local", None) is None or own.local.size != num_nodes:
        own.local = np.full(num_nodes, -1, np.int64)
        own.random = np.random.Generator(np.random.PCG64(torch.initial_seed()))
    return own.local, own.random


library = torch.library.Library("pyg", "DEF")
library.define(
    "neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, Tensor? node_time, Tensor? edge_time, "
    "Tensor? seed_time, Tensor? edge_weight, bool csc, bool replace, bool directed, bool disjoint, "
    "str temporal_strategy, bool return_edge_id) -> (Tensor, Tensor, Tensor, Tensor?, int[], int[])")
library.impl("neighbor_sample", sampler.neighbor_sample, "CPU")
