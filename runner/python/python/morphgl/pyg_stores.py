"""PyG's stores of features and of edges over a graph, in memory or mapped."""

import os
from dataclasses import dataclass
from typing import Any, Callable, Optional, Tuple

import numpy as np
import torch
from torch_geometric.data import FeatureStore as BaseFeatureStore
from torch_geometric.data import GraphStore as BaseGraphStore
from torch_geometric.data import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout

from . import _morphgl
from .graph import SPLITS, Graph


def stores(data):
    """A :class:`FeatureStore` and a :class:`GraphStore` of a graph or of the directory of a dataset, which is mapped: the `data` of
    PyG's loaders."""
    graph = graph_of(data)
    return FeatureStore(graph), GraphStore(graph)


class GraphStore(BaseGraphStore):
    """The edges of a graph, by edge type; without types of the edge type None.

    Where the graph keeps the positions that its edges have in the `edge_index` of its source, they are COO in this order, else CSC, whose
    positions number them. Arrays are made at each request, int64, in O(edges).
    """

    def __init__(self, graph):
        super().__init__()
        self.__dict__["graph"] = graph_of(graph)

    def __reduce__(self):
        return type(self), (self.graph,)

    def _put_edge_index(self, edge_index, edge_attr):
        raise NotImplementedError("edge_index: a graph's edges do not change; make another Graph")

    def _remove_edge_index(self, edge_attr):
        raise NotImplementedError("edge_index: a graph's edges do not change; make another Graph")

    def _get_edge_index(self, edge_attr):
        for number, attr in enumerate(self.get_all_edge_attrs()):
            if (attr.edge_type, attr.layout) == (edge_attr.edge_type, edge_attr.layout):
                break
        else:
            return None
        graph = self.graph
        of_type = edges_of_type(graph, number)
        sources, order = graph.indices, order_of(graph)
        targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)) if of_type is not None or order is not None else None
        if of_type is not None:
            starts = first_nodes(graph)
            sources, targets = sources[of_type] - starts[attr.edge_type[0]], targets[of_type] - starts[attr.edge_type[-1]]
            order = None if order is None else order[of_type]
        if order is None:
            ends = graph.indptr if of_type is None else np.concatenate([[0], np.cumsum(np.bincount(targets, minlength=attr.size[1]))])
            return torch.from_numpy(sources.astype(np.int64)), torch.from_numpy(ends.astype(np.int64))
        row, col = np.empty((2, len(order)), np.int64)
        row[order], col[order] = sources, targets
        return torch.from_numpy(row), torch.from_numpy(col)

    def get_all_edge_attrs(self):
        """The edge types, with their layout and their numbers of source and target nodes."""
        graph = self.graph
        layout = EdgeLayout.CSC if order_of(graph) is None else EdgeLayout.COO
        if not graph.node_types:
            return [EdgeAttr(None, layout, size=(graph.num_nodes, graph.num_nodes))]
        counts = dict(graph._native.node_types)
        return [EdgeAttr(edge_type, layout, size=(counts[edge_type[0]], counts[edge_type[-1]])) for edge_type in graph.edge_types]


@dataclass
class Stored:
    """A tensor of a store."""

    # Its array and the name of its type, made when it is first asked for.
    make: Callable[[], Tuple[Any, str]]
    size: Tuple[int, ...]
    # The row of each of its nodes or edges, where rows are others'.
    rows: Optional[Callable[[], np.ndarray]] = None
    made: Any = None


class FeatureStore(BaseFeatureStore):
    """What a graph has of its nodes and edges, by node type and edge type; without types of the group None.

    Nodes: `x`, `y` (int64, -1 for none; of a graph without labels its targets), `targets`, `time`, `train_mask`, `val_mask`, `test_mask`.
    Edges: `edge_attr`, `edge_weight`, `time`, in the order of the :class:`GraphStore`. Rows are copied by native code, those of all tensors of a
    mini-batch in one call. :meth:`get_all_tensor_attrs` leaves out what edges have in a graph without types, since PyG's loaders would
    take it for nodes'.
    """

    def __init__(self, graph):
        super().__init__()
        self.__dict__["graph"] = graph_of(graph)
        self.__dict__["_stored"] = stored(self.graph)

    def __reduce__(self):
        return type(self), (self.graph,)

    def _put_tensor(self, tensor, attr):
        raise NotImplementedError(f"{attr.attr_name}: the tensors of a graph do not change; make another Graph")

    def _remove_tensor(self, attr):
        raise NotImplementedError(f"{attr.attr_name}: the tensors of a graph do not change; make another Graph")

    def _get_tensor(self, attr):
        return self._multi_get_tensor([attr])[0]

    def _multi_get_tensor(self, attrs):
        found = [self._stored.get((attr.group_name, attr.attr_name)) for attr in attrs]
        requests = []
        for attr, of in zip(attrs, found):
            if of is None:
                continue
            if of.made is None:
                of.made = (*of.make(), None if of.rows is None else of.rows())
            array, dtype, rows = of.made
            index = index_of(attr.index, of.size[0])
            requests.append((array, dtype, index if rows is None else np.ascontiguousarray(rows[index], dtype=np.int64)))
        made = iter(_morphgl.gather(requests))
        tensors = [None if of is None else torch.from_dlpack(next(made)) for of in found]
        # A number is a row without its dimension, as in PyG's own stores.
        return [tensor[0] if tensor is not None and isinstance(attr.index, int) else tensor for tensor, attr in zip(tensors, attrs)]

    def _get_tensor_size(self, attr):
        of = self._stored.get((attr.group_name, attr.attr_name))
        return None if of is None else of.size

    def get_all_tensor_attrs(self):
        """Groups and names of the tensors."""
        typed = bool(self.graph.node_types)
        return [TensorAttr(group, name) for group, name in self._stored if typed or name not in ("edge_attr", "edge_weight", "edge_time")]


def graph_of(graph):
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, (str, os.PathLike)):
        return Graph.open(graph, mmap=True)
    raise TypeError(f"graph: {type(graph).__name__}; give a Graph, or the directory of a dataset")


def order_of(graph):
    """Positions of the edges in the source, where the graph keeps them."""
    if graph.node_types:
        return graph._type_order
    return None if graph._edge_order is None or graph._edge_order is False else np.asarray(graph._edge_order)


def first_nodes(graph):
    """The first id of each node type."""
    return {name: graph.nodes(name).start for name in graph.node_types}


def edges_of_type(graph, number):
    """A mask of the edges of a type; None without types."""
    types = graph._native.type_of_edges
    return None if types is None else np.asarray(types) == number


def stored(graph):
    """The tensors of a graph by group and name."""
    native = graph._native
    groups = dict.fromkeys([None], slice(0, graph.num_nodes))
    if graph.node_types:
        groups = {name: slice(graph.nodes(name).start, graph.nodes(name).stop) for name in graph.node_types}
    made = {}
    targets = native.targets
    for number, (group, nodes) in enumerate(groups.items()):
        count = nodes.stop - nodes.start
        add = lambda name, array, dtype, nodes=nodes, group=group, count=count: made.__setitem__(
            (group, name), Stored(lambda: (np.asarray(array)[nodes], dtype), (count, *array.shape[1:])))
        if native.features is not None:
            add("x", native.features, native.features.dtype)
        elif native.features_by_type and native.features_by_type[number] is not None:
            features = native.features_by_type[number]
            made[group, "x"] = Stored(lambda features=features: (features, features.dtype), tuple(features.shape))
        if native.labels is not None and (group is None or (graph.y[nodes] >= 0).any()):
            made[group, "y"] = Stored(lambda nodes=nodes: (graph.y[nodes].astype(np.int64), "int64"), (count,))
        if targets is not None:
            flat = graph._flat_targets
            name = "y" if native.labels is None else "targets"
            made[group, name] = Stored(
                lambda nodes=nodes, flat=flat: (np.ascontiguousarray(graph.targets[nodes, 0] if flat else graph.targets[nodes]), "float32"),
                (count,) if flat else (count, targets.shape[1]))
        if native.node_times is not None:
            add("time", native.node_times, "int64")
        for split, name in SPLITS.items():
            ids = graph.split(split)
            if ((ids >= nodes.start) & (ids < nodes.stop)).any():
                made[group, name] = Stored(lambda split=split, nodes=nodes: (mask_of(graph, split)[nodes], "bool"), (count,))
    of_types = graph.edge_types if graph.node_types else [None]
    features = native.edge_features or [None] * len(of_types)
    for number, edge_type in enumerate(of_types):
        count = None
        for name, array, matrix in (("edge_attr", native.edge_ids, features[number]), ("edge_weight", native.weights, None),
                                    ("time" if edge_type else "edge_time", native.edge_times, None)):
            if array is None or name == "edge_attr" and matrix is None:
                continue
            if count is None:
                of_type = edges_of_type(graph, number)
                count = graph.num_edges if of_type is None else int(of_type.sum())
            column = lambda array=array, number=number: in_order(graph, number, np.asarray(array))
            if matrix is not None:
                made[edge_type, name] = Stored(lambda matrix=matrix: (matrix, matrix.dtype), (count, matrix.shape[1]), rows=column)
            else:
                made[edge_type, name] = Stored(lambda column=column, array=array: (column(), array.dtype), (count,))
    return made


def mask_of(graph, split):
    """A boolean of each node."""
    mask = np.zeros(graph.num_nodes, bool)
    mask[graph.split(split)] = True
    return mask


def in_order(graph, number, column):
    """The elements of the edges of a type, in the order of the :class:`GraphStore`."""
    of_type, order = edges_of_type(graph, number), order_of(graph)
    if of_type is not None:
        column, order = column[of_type], None if order is None else order[of_type]
    if order is None:
        return column
    made = np.empty_like(column)
    made[order] = column
    return made


def index_of(index, count):
    """Rows as contiguous int64."""
    if index is None:
        return np.arange(count)
    if isinstance(index, slice):
        return np.arange(*index.indices(count))
    if isinstance(index, int):
        return np.array([index + count if index < 0 else index])
    index = index.detach().cpu().numpy() if isinstance(index, torch.Tensor) else np.asarray(index)
    if index.dtype == bool:
        return np.flatnonzero(index)
    return np.ascontiguousarray(index, dtype=np.int64)
