"""Graphs as pickle keeps them: by the name of their directory, or by value where they have none."""

import hashlib
import os

import numpy as np

from . import _morphgl
from .examples import SPLITS


def reduced(graph):
    """What :meth:`Graph.__reduce__` returns."""
    state = {name: value for name, value in vars(graph).items() if name != "_native"}
    if graph._edge_order is not None and graph._edge_order is not False:
        state["_edge_order"] = np.asarray(graph._edge_order)
    path = graph._native.path
    if path:
        path = os.path.abspath(path)
        return opened, (path, graph._mmap, fingerprint(path), state)
    return of_arrays, (arrays_of(graph._native), state)


def opened(path, mmap, of_graph, state):
    """The graph that was opened from this directory, opened again."""
    from .graph import Graph

    if not os.path.exists(os.path.join(path, "graph.json")):
        raise FileNotFoundError(f"{path}: the graph that was pickled lay there, and there is no dataset now; put it back, or pickle a graph in "
                                "memory")
    if fingerprint(path) != of_graph:
        raise ValueError(f"{path}: the dataset is another one than the one whose graph was pickled; pickle Graph.open({path!r}) again")
    graph = Graph.open(path, mmap, verify=False)
    vars(graph).update(state)
    return graph


def fingerprint(path):
    """Tells datasets apart: their description has the checksum of each array."""
    with open(os.path.join(path, "graph.json"), "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


def arrays_of(native):
    """All that a graph in memory has, as arrays, numbers and text. Nothing is copied."""
    whole = lambda buffer: None if buffer is None else np.asarray(buffer)
    matrix = lambda buffer: None if buffer is None else (np.asarray(buffer), buffer.dtype == "bfloat16")
    pairs, draw_keys = _morphgl.rest_of(native)
    task = _morphgl.task_of(native)
    return {
        "name": native.name,
        "num_classes": native.num_classes,
        "indptr": whole(native.indptr),
        "indices": whole(native.indices),
        "weights": whole(native.weights),
        "features": matrix(native.features),
        "labels": whole(native.labels),
        "targets": whole(native.targets),
        "splits": [whole(native.split(name)) for name in SPLITS] if task is None else [np.zeros(0, np.int32)] * 3,
        "task": None if task is None else [*map(whole, task[:-1]), [whole(rows) for rows in task[-1]]],
        "pairs": [whole(of) for of in pairs],
        "of_pairs": [[whole(of) for of in split] for split in _morphgl.of_pairs(native)],
        "node_types": native.node_types,
        "edge_types": native.edge_types,
        "type_of_edges": whole(native.type_of_edges),
        "features_by_type": [matrix(of) for of in native.features_by_type],
        "node_times": whole(native.node_times),
        "edge_times": whole(native.edge_times),
        "edge_ids": whole(native.edge_ids),
        "edge_features": [matrix(of) for of in native.edge_features],
        "node_ids": whole(native.node_ids),
        "draw_keys": whole(draw_keys),
    }


def of_arrays(given, state):
    """The graph of :func:`arrays_of`, which keeps the arrays."""
    from .graph import Graph

    unsigned = lambda array: None if array is None else np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    features, bf16 = given["features"] or (None, False)
    native = _morphgl.Graph.from_csc(
        unsigned(given["indptr"]), unsigned(given["indices"]), given["weights"], features, bf16, given["labels"], given["targets"],
        [unsigned(of) for of in given["splits"]])
    times = [given["node_times"], given["edge_times"]]
    if given["node_types"]:
        by_type = given["features_by_type"] or [None] * len(given["node_types"])
        native = native.with_types(given["node_types"], given["edge_types"], given["type_of_edges"], by_type, *times)
        times = [None, None]
    if given["edge_ids"] is not None:
        native = native.with_edge_features(unsigned(given["edge_ids"]), given["edge_features"])
    native = _morphgl.with_pairs(native, [unsigned(of) for of in given["pairs"]], *map(list, zip(*given["of_pairs"])))
    if given["task"] is not None:
        nodes, row_times, labels, targets, splits = given["task"]
        native = _morphgl.with_task(native, unsigned(nodes), row_times, labels, targets, [unsigned(of) for of in splits])
    native = _morphgl.with_rest(native, given["name"], given["num_classes"], unsigned(given["node_ids"]), unsigned(given["draw_keys"]), *times)
    graph = Graph(native)
    vars(graph).update(state)
    return graph
