"""What a graph is, in numbers: the document of `morphgl info --json`."""

from dataclasses import dataclass
from typing import Any, Dict, Optional

import numpy as np

from . import _morphgl
from .brief import Brief

SPLITS = ("train", "valid", "test")


@dataclass(repr=False)
class Info(Brief):
    """A graph in numbers. `degree` is of edges into a node; `document` is that of `morphgl info --json`, where `path`, `version`,
    `arrays` and `provenance` are of a directory alone."""

    name: str
    num_nodes: int
    num_edges: int
    num_classes: int
    feature_dim: int
    feature_dtype: Optional[str]
    self_loops: int
    weighted: bool
    labelled: int
    degree: Dict[str, Any]
    splits: Dict[str, Any]
    types: Optional[Dict[str, Any]]
    bytes: int
    document: Dict[str, Any]


DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "uint8": "u8"}


def described(graph):
    """The document of a graph in memory, which has no task, in O(nodes + edges)."""
    native = graph._native
    n, labels = native.num_nodes, graph.y
    ids = {name: graph.split(name) for name in SPLITS}
    known = None if labels is None else labels >= 0
    pairs, labels_of_edges, draw_keys = _morphgl.rest_of(native)
    arrays = [native.indptr, native.indices, native.weights, native.features, native.labels, native.targets, native.type_of_edges,
              native.node_times, native.edge_times, native.edge_ids, native.node_ids, draw_keys, *native.features_by_type, *native.edge_features,
              *(native.split(name) for name in SPLITS), *pairs]
    typed = bool(native.node_types)
    features = {f"edge_features.{number}" if typed else "edge_features": of.shape[1]
                for number, of in enumerate(native.edge_features) if of is not None}
    dim, dtype = matrix(native.features)
    return {
        "name": native.name, "path": None, "version": None, "num_nodes": n, "num_edges": native.num_edges, "num_classes": native.num_classes,
        "feature_dim": dim, "feature_dtype": dtype, "self_loops": native.num_self_loops, "weighted": native.weights is not None,
        "labelled": 0 if known is None else int(known.sum()),
        "degree": degrees(graph),
        "targets": None if native.targets is None else targets(graph),
        "task": None,
        "splits": {**{name: len(of) for name, of in ids.items()},
                   "labelled": {name: None if known is None else int(known[of].sum()) for name, of in ids.items()},
                   "repeated": int((sum(np.isin(np.arange(n), of).astype(int) for of in ids.values()) - 1).clip(0).sum()),
                   "oversampled": len(ids["train"]) - len(np.unique(ids["train"]))},
        "edge_splits": edge_splits(pairs, labels_of_edges),
        "types": types(graph, ids, known) if typed else None,
        "edge_features": features,
        "times": {"nodes": native.node_times is not None, "edges": native.edge_times is not None},
        "bytes": sum(np.asarray(array).nbytes for array in arrays if array is not None),
        "arrays": None, "provenance": graph._source or {},
    }


def matrix(features):
    """Columns and the name of the type of a matrix of features, or of none."""
    return (0, None) if features is None else (features.shape[1], DTYPES[features.dtype])


def degrees(graph):
    of_nodes = np.sort(np.diff(graph.indptr))
    n = len(of_nodes)
    alone = np.diff(graph.indptr) == 0
    alone[graph.indices] = False
    at = lambda quantile: int(of_nodes[int((n - 1) * quantile)]) if n else 0
    return {"mean": graph.num_edges / max(n, 1), "median": at(0.5), "p99": at(0.99), "max": at(1.0),
            "no_in_edges": int((of_nodes == 0).sum()), "isolated": int(alone.sum())}


def targets(graph):
    known = ~np.isnan(graph.targets)
    return {"dim": known.shape[1], "names": graph.target_names, "nodes": int(known.any(1).sum()),
            "unknown": (len(known) - known.sum(0)).tolist()}


def edge_splits(pairs, labelled):
    """Numbers of pairs, where there are any."""
    counts = [None if of is None else len(np.asarray(of)) for of in pairs]
    if all(count is None for count in counts):
        return None
    train, valid, test, *negatives = counts
    has_labels, dim = labelled or (False, 0)
    return {"train": train, "valid": valid or 0, "test": test or 0,
            **{f"{name}_negatives": count for name, count in zip(SPLITS, negatives)}, "labels": has_labels, "target_dim": dim}


def types(graph, ids, known):
    """Counts by node type and by edge type."""
    native = graph._native
    nodes, counts = [], dict(native.node_types)
    for number, (name, count) in enumerate(native.node_types):
        of_type = graph.nodes(name)
        inside = lambda given: int(((given >= of_type.start) & (given < of_type.stop)).sum())
        dim, dtype = matrix(native.features_by_type[number] if native.features_by_type else native.features)
        nodes.append({"name": name, "nodes": count, "feature_dim": dim, "feature_dtype": dtype,
                      "labelled": 0 if known is None else int(known[of_type.start:of_type.stop].sum()),
                      "splits": {split: inside(of) for split, of in ids.items()}})
    edges = np.bincount(np.asarray(native.type_of_edges), minlength=len(native.edge_types)).tolist()
    mean = lambda count, of_type: count / max(counts[of_type], 1)
    return {"nodes": nodes, "edges": [
        {"source": source, "name": name, "target": target, "edges": count, "mean_out_degree": mean(count, source),
         "mean_in_degree": mean(count, target)} for (source, name, target), count in zip(native.edge_types, edges)]}
