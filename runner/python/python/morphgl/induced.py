"""All edges among the nodes of a mini-batch: PyG's induced sub-graphs."""

import numpy as np
import torch


def edges_among(source, nodes):
    """The edges of the graph of a sampler's `source` between `nodes`, arrays of ids by node type: `(row, col, edge, None)` of each edge type, in
    positions among the nodes of the types at its ends, those into a node one after another. A node that repeats is the target of its edges as
    often, and their source at its first position. O(degrees of the nodes, times the logarithm of their number)."""
    graph, typed = source.graph, source.node_types is not None
    counts = [source.num_nodes[name] for name in source.node_types] if typed else [source.num_nodes]
    first = np.cumsum([0, *counts])[:-1]
    whole = np.concatenate([of + start for of, start in zip(nodes, first)])
    local = np.concatenate([np.arange(len(of)) for of in nodes])
    order = np.argsort(whole, kind="stable")
    indptr = graph.indptr
    starts, degrees = indptr[whole], indptr[whole + 1] - indptr[whole]
    before = np.cumsum(degrees) - degrees
    at = np.repeat(starts - before, degrees) + np.arange(degrees.sum())
    neighbours = graph.indices[at]
    place = np.searchsorted(whole[order], neighbours)
    inside = np.flatnonzero(place < len(whole))
    inside = inside[whole[order][place[inside]] == neighbours[inside]]
    rows, targets, at = local[order[place[inside]]], np.repeat(local, degrees)[inside], at[inside]
    numbers = at if source.order is None else np.asarray(source.order)[at]
    if not typed:
        return [made(rows, targets, numbers)]
    types = np.asarray(graph._native.type_of_edges)
    if source.order is None:
        # Positions among the edges of a type.
        numbers = np.empty(len(types), np.int64)
        for number in range(len(source.edge_types)):
            of_type = np.flatnonzero(types == number)
            numbers[of_type] = np.arange(len(of_type))
        numbers = numbers[at]
    parts = [types[at] == number for number in range(len(source.edge_types))]
    return [made(rows[part], targets[part], numbers[part]) for part in parts]


def made(rows, targets, numbers):
    tensor = lambda array: torch.from_numpy(array.astype(np.int64))
    return tensor(rows), tensor(targets), tensor(numbers), None
