"""Graphs with node and edge types, from PyG's `HeteroData` and DGL's heterogeneous graphs."""

import numpy as np

from . import arrays, examples
from .graph import SPLITS, Graph, warn_of_negatives


def from_pyg(data, weight_attr=None, valid=None, test=None, task=None):
    """The graph of a `HeteroData`, with the pairs that it and others have to train, validate and test on, and the rows of a task."""
    weight_attr = weight_attr or "edge_weight"
    nodes = {name: {"num_nodes": data[name].num_nodes, **present(data[name], ("x", "y", "time", *SPLITS.values()))}
             for name in data.node_types}
    edges = {}
    for edge_type in data.edge_types:
        store = data[edge_type]
        given = present(store, ("edge_index", weight_attr, "time", "edge_attr"))
        if "edge_index" not in given:
            raise ValueError(f"{edge_type}: it has no edge_index; convert adj_t by ToSparseTensor's inverse, or give edge_index")
        edge_attr = given.get("edge_attr")
        if edge_attr is not None and (edge_attr.dim() != 2 or not edge_attr.shape[1] or not edge_attr.is_floating_point()):
            edge_attr = None
        edges[edge_type] = {"edge_index": given["edge_index"], "weight": given.get(weight_attr), "time": given.get("time"),
                            "edge_attr": edge_attr}
    if task is not None:
        nodes = {name: {key: value for key, value in given.items() if key not in ("y", *SPLITS.values())} for name, given in nodes.items()}
    graph = with_pairs(graph_of(nodes, edges), data, valid, test)
    return graph if task is None else examples.with_task(graph, task)


def with_pairs(graph, data, valid, test):
    """Gives a graph the pairs of the `edge_label_index` of each edge type."""
    found = []
    for split, of in (("train", data), ("valid", valid), ("test", test)):
        pairs, labels = [np.zeros((2, 0), np.int64)], [np.zeros(0)]
        types = [np.zeros(0, np.uint16)]
        for number, edge_type in enumerate(data.edge_types):
            store = {} if of is None or edge_type not in of.edge_types else of[edge_type]
            if store.get("edge_label_index") is None:
                continue
            ends, _ = arrays.to_numpy(f"{edge_type} edge_label_index", store["edge_label_index"])
            label = store.get("edge_label")
            label = np.ones(ends.shape[1]) if label is None else arrays.to_numpy(f"{edge_type} edge_label", label)[0]
            firsts = []
            for row, name in zip(ends, (edge_type[0], edge_type[2])):
                if row.size and (row.min() < 0 or row.max() >= len(graph.nodes(name))):
                    raise ValueError(f"{edge_type}: edge_label_index has a node outside the {len(graph.nodes(name))} of type {name!r}")
                firsts.append(graph.nodes(name).start)
            pairs.append(ends + np.array(firsts)[:, None])
            labels.append(label)
            types.append(np.full(ends.shape[1], number, np.uint16))
        if of is not None and of is not data and len(pairs) == 1:
            raise ValueError(f"{split}: it has no edge_label_index; give the HeteroData of RandomLinkSplit")
        found.append([np.concatenate(part, axis=-1) if at == 0 else np.concatenate(part) for at, part in enumerate((pairs, labels, types))])
    if not any(pairs.shape[1] for pairs, _, _ in found):
        return graph
    whole = [np.concatenate(part, axis=-1) for part in zip(*found)]
    ends = np.cumsum([0, *(pairs.shape[1] for pairs, _, _ in found)])
    positions = [np.arange(*ends[at:at + 2]) for at in range(3)]
    if np.isin(whole[1], (0, 1)).all():
        exists = whole[1] == 1
        if not exists[positions[0]].all():
            warn_of_negatives(int((~exists[positions[0]]).sum()))
        if not exists[ends[1]:].all():
            raise ValueError("edge_label: pairs of label 0 belong to no pair of their edge type, and each is ranked against those of its own; "
                             "RandomLinkSplit(neg_sampling_ratio=0.0) makes none, and negatives of the type are drawn")
        positions = [rows[exists[rows]] for rows in positions]
        of_splits = [(arrays.pairs("edge_label_index", whole[0][:, rows]) if len(rows) else None, None, None) for rows in positions]
    else:
        of_splits, source = examples.labelled_edges(*whole[:2], positions)
        graph._source = {**(graph._source or {}), **source}
    of_splits = [(*of, np.ascontiguousarray(whole[2][rows]) if len(rows) else None) for of, rows in zip(of_splits, positions)]
    graph._native = examples.with_pairs(graph._native, of_splits)
    return graph


def from_dgl(g, x, y, edge_weight):
    """The graph of a heterogeneous `DGLGraph`."""
    masks = {"train_mask": "train_mask", "val_mask": "val_mask", "test_mask": "test_mask"}
    names = {"x": x, "y": y, "time": "time", **masks}
    nodes = {}
    for name in g.ntypes:
        data = g.nodes[name].data
        given = {key: data[column] for key, column in names.items() if column in data}
        given.update({mask: given[mask].bool() for mask in masks if mask in given})
        nodes[name] = {"num_nodes": g.num_nodes(name), **given}
    edges = {}
    for edge_type in g.canonical_etypes:
        pair = g.edges(etype=edge_type, order="eid")
        data = g.edges[edge_type].data
        index = np.stack([arrays.to_numpy(str(edge_type), ids)[0] for ids in pair])
        weight = data[edge_weight] if edge_weight is not None and edge_weight in data else None
        edges[edge_type] = {"edge_index": index, "weight": weight, "time": data.get("time")}
    return graph_of(nodes, edges)


def present(store, names):
    """The attributes of these names that a store of `HeteroData` has."""
    return {name: store[name] for name in names if name in store and store[name] is not None}


def graph_of(nodes, edges, by_time=False):
    """The graph of node types, each with `num_nodes` and what else is known, and of edge types with `edge_index`, `weight`, `time`,
    `edge_attr`. Sub-rows ascend by source, or `by_time`: by the times of edges and their sources, so that samplers find those within a
    time by bisection."""
    counts = {name: int(given["num_nodes"]) for name, given in nodes.items()}
    first = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist()))
    num_nodes = sum(counts.values())
    weights = optional(edges, "weight", np.float32, num_edges_of(edges), 1.0)
    edge_times = optional(edges, "time", np.int64, num_edges_of(edges), None)
    node_times = optional(nodes, "time", np.int64, counts, None)
    indptr, order, columns = sorted_edges(counts, first, edges, (node_times, edge_times) if by_time else None)
    given = {"csc": (indptr, columns["source"]), "edge_weight": None if weights is None else weights[order]}
    given["y"], names = labels(nodes, first, num_nodes)
    for split, mask in SPLITS.items():
        of_types = [np.flatnonzero(whole(f"{name} {mask}", of[mask], counts[name])) + first[name]
                    for name, of in nodes.items() if of.get(mask) is not None]
        given[split] = np.concatenate(of_types) if of_types else None
    features = {name: arrays.features(f"{name} x", of["x"]) for name, of in nodes.items() if of.get("x") is not None}
    kinds = {(matrix.shape[1], matrix.dtype, bf16) for matrix, bf16 in features.values()}
    # Rows of one kind for all nodes are one matrix, which the first layer reads as it is.
    if len(features) == len(nodes) and len(kinds) == 1:
        (_, _, bf16), = kinds
        given["x"], features = np.concatenate([features[name][0] for name in nodes]), {}
        if bf16:
            import torch

            given["x"] = torch.from_numpy(given["x"].view(np.int16)).view(torch.bfloat16)
    graph = Graph.from_numpy(**given)
    if names is not None:
        graph._source = {**(graph._source or {}), "class_names": names}
    types = np.ascontiguousarray(columns["type"].astype(np.uint16))
    times = None if edge_times is None else np.ascontiguousarray(edge_times[order])
    graph._native = graph._native.with_types(list(counts.items()), [tuple(edge_type) for edge_type in edges], types,
                                             [features.get(name) for name in nodes], node_times, times)
    counts_of_edges = num_edges_of(edges).values()
    ids = np.concatenate([np.arange(count, dtype=np.uint32) for count in counts_of_edges] or [np.zeros(0, np.uint32)])[order]
    graph._type_order = ids
    if any(of.get("edge_attr") is not None for of in edges.values()):
        matrices = [None if of.get("edge_attr") is None else arrays.features(f"{edge_type} edge_attr", of["edge_attr"])
                    for edge_type, of in edges.items()]
        graph._native = graph._native.with_edge_features(ids, matrices)
    return graph


def num_edges_of(edges):
    """Number of edges of each type."""
    return {edge_type: np.shape(given["edge_index"])[1] for edge_type, given in edges.items()}


def sorted_edges(counts, first, edges, times=None):
    """Offsets of the rows, the order of the edges in which rows ascend by type and source, or by type and the `times` of nodes and edges,
    and their columns in this order."""
    sources, targets, types = [], [], []
    for number, (edge_type, given) in enumerate(edges.items()):
        source, _, target = edge_type
        pair, _ = arrays.to_numpy(f"{edge_type} edge_index", given["edge_index"])
        if pair.ndim != 2 or pair.shape[0] != 2:
            raise ValueError(f"{edge_type}: edge_index has shape {pair.shape}; pass [2, edges], sources then targets")
        for row, name, whole_ids in ((pair[0], source, sources), (pair[1], target, targets)):
            if name not in counts:
                raise ValueError(f"{edge_type}: there is no node type {name!r}")
            if row.size and (row.min() < 0 or row.max() >= counts[name]):
                raise ValueError(f"{edge_type}: edge_index has node {row.max() if row.max() >= counts[name] else row.min()} of type "
                                 f"{name!r}, which has {counts[name]} nodes")
            whole_ids.append(row.astype(np.int64) + first[name])
        types.append(np.full(pair.shape[1], number, np.int64))
    source, target, kind = (np.concatenate(part) if part else np.zeros(0, np.int64) for part in (sources, targets, types))
    order = np.lexsort((source if times is None else edge_times_of(source, *times), kind, target))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=sum(counts.values())))))
    return indptr, order, {"source": source[order], "type": kind[order]}


def edge_times_of(source, node_times, edge_times):
    """Time from which on each edge is known: its own, or that of its source if that is later."""
    of_sources = None if node_times is None else node_times[source]
    if of_sources is None or edge_times is None:
        return edge_times if of_sources is None else of_sources
    return np.maximum(of_sources, edge_times)


def optional(given, name, dtype, counts, missing):
    """The column `name` of all types, one after the other; `None` where no type has it. Types without have `missing`, or are refused."""
    if all(of.get(name) is None for of in given.values()):
        return None
    parts = []
    for of_type, of in given.items():
        if of.get(name) is None:
            if missing is None:
                # Before all others: what has no time is always there.
                parts.append(np.full(counts[of_type], np.iinfo(np.int64).min, dtype))
                continue
            parts.append(np.full(counts[of_type], missing, dtype))
            continue
        column, _ = arrays.to_numpy(f"{of_type} {name}", of[name])
        if column.shape != (counts[of_type],):
            raise ValueError(f"{of_type}: {name} has shape {column.shape}; pass [{counts[of_type]}]")
        if dtype == np.int64 and column.dtype.kind not in "iu":
            raise TypeError(f"{of_type}: {name} is {column.dtype}; times are whole numbers")
        parts.append(column.astype(dtype))
    return np.ascontiguousarray(np.concatenate(parts))


def whole(name, mask, count):
    """A mask of booleans of all nodes of a type."""
    mask, _ = arrays.to_numpy(name, mask)
    if mask.shape != (count,) or mask.dtype != bool:
        raise ValueError(f"{name}: {mask.dtype} of shape {mask.shape}; pass a boolean for each of {count} nodes")
    return mask


def labels(nodes, first, num_nodes):
    """Classes of all nodes, -1 for those of other types than the one that has them, and their names."""
    labelled = [name for name, of in nodes.items() if of.get("y") is not None]
    if not labelled:
        return None, None
    if len(labelled) > 1:
        raise ValueError(f"y: the types {', '.join(map(repr, labelled))} have classes, which would be taken as the same; leave one")
    name, = labelled
    values = nodes[name]["y"]
    if arrays.is_real(f"{name} y", values):
        raise ValueError(f"{name}: y has real values or several labels; give classes, or train on data with one node type")
    classes, names = arrays.labels(f"{name} y", values)
    if len(classes) != int(nodes[name]["num_nodes"]):
        raise ValueError(f"{name}: {len(classes)} labels for {nodes[name]['num_nodes']} nodes; give one per node, -1 for none")
    every = np.full(num_nodes, -1, np.int32)
    every[first[name]:first[name] + len(classes)] = classes
    return every, names
