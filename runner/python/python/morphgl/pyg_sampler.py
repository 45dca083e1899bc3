"""A sampler for PyG's loaders."""

import copy
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, List, Optional

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data import GraphStore as BaseGraphStore
from torch_geometric.data import remote_backend_utils
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from . import _morphgl, typed
from .graph import Graph
from .pyg_stores import GraphStore

# What a sampler is built of, and built again when one of them is set.
SETTINGS = ("num_neighbors", "subgraph_type", "replace", "disjoint", "temporal_strategy")


@dataclass
class Source:
    """A graph to sample from."""

    graph: Graph
    # The caller's number of each edge, uint32, or None for positions in the columns.
    order: Optional[np.ndarray]
    # None of a graph without types.
    node_types: Optional[List[str]]
    edge_types: Optional[List[tuple]]
    num_nodes: Any
    # Times that the graph itself does not have, int64, those of edges in the order of the columns.
    node_times: Optional[np.ndarray] = None
    edge_times: Optional[np.ndarray] = None
    # Times of nodes as PyG's functions take them, of each type that has some.
    node_time: Any = None


class Sampler(BaseSampler):
    """Samples neighbours for PyG's loaders, in the place of `torch_geometric.sampler.NeighborSampler`.

    `NodeLoader(data, node_sampler=…)`, `LinkLoader(data, link_sampler=…)`, `NeighborLoader(…, neighbor_sampler=…)`,
    `LinkNeighborLoader(…, neighbor_sampler=…)` and Lightning's `LightningNodeData(…, node_sampler=…)` take it. A mini-batch is one call
    into native code, on the calling thread and without the interpreter's lock; loaders with `num_workers` call it in their processes. Its
    random numbers follow from one drawn of torch's default generator, so `torch.manual_seed` makes mini-batches repeat.

    Edge ids (`SamplerOutput.edge`, `e_id`) are positions in the `edge_index` of the data, so that there is no permutation of edges.

    data
        A PyG `Data` or `HeteroData`, a :class:`morphgl.Graph`, the directory of a dataset, or PyG's `(FeatureStore, GraphStore)`. Its
        edges are copied into compressed columns, but for a graph's and a directory's.
    num_neighbors
        Neighbours per node at each hop, -1 for all, 0 for none; of typed graphs also a dict by edge type, or `NumNeighbors`.
    subgraph_type
        "directional", "bidirectional", or "induced": all edges among the nodes that were sampled, which no hops are told of
        (`num_sampled_edges` is None).
    disjoint
        Whether each seed has a tree of its own, which shares no node with another; `batch` says whose each node is. Forced by times.
    temporal_strategy
        With times: "uniform" among neighbours no later than the seed, or "last", the latest of them.
    time_attr
        The attribute of times of nodes or of edges, whole numbers. Of a graph or a dataset "time", those of its nodes and edges.
    weight_attr
        The attribute of edges by whose weights neighbours are picked. Of a dataset "edge_weight".
    sample_direction
        "backward" samples the targets of edges in place of their sources; not of a graph or a dataset, nor within times.
    is_sorted, share_memory
        Taken; they change nothing.
    directed
        False is PyG's older name of "induced".
    replace
        Its default is taken, all else is refused.
    """

    def __init__(self, data, num_neighbors, subgraph_type="directional", replace=False, disjoint=False, temporal_strategy="uniform",
                 time_attr=None, weight_attr=None, is_sorted=False, share_memory=False, directed=True, sample_direction="forward"):
        if not directed:
            # PyG's name of old.
            subgraph_type = "induced"
        if sample_direction not in ("forward", "backward"):
            raise ValueError(f"sample_direction: {sample_direction!r}; give 'forward' or 'backward'")
        if sample_direction == "backward" and time_attr is not None:
            raise NotImplementedError("sample_direction: targets are not sampled within times; leave out it or time_attr")
        self.sample_direction = sample_direction
        self._data, self._time_attr, self._weight_attr = data, time_attr, weight_attr
        self._native = None
        # Whether sub-graphs that are made bidirectional keep their directed edges in `orig_row` and `orig_col`, as PyG's samplers.
        self.keep_orig_edges = False
        self._source = source_of(data, time_attr, weight_attr, sample_direction == "backward")
        self.subgraph_type, self.replace, self.disjoint = subgraph_type, replace, disjoint
        self.temporal_strategy, self.num_neighbors = temporal_strategy, num_neighbors
        self._build()

    def __setattr__(self, name, value):
        if name == "num_neighbors":
            value = value if isinstance(value, NumNeighbors) else NumNeighbors(value)
        elif name == "subgraph_type":
            value = SubgraphType(value)
        elif name == "replace" and value:
            raise NotImplementedError("replace: neighbours are sampled without replacement; leave it out")
        elif name == "disjoint":
            value = bool(value) or self._time_attr is not None
        elif name == "temporal_strategy" and value not in ("uniform", "last"):
            raise ValueError(f"temporal_strategy: {value!r}; give 'uniform' or 'last'")
        super().__setattr__(name, value)
        if name in SETTINGS:
            super().__setattr__("_native", None)

    def _build(self):
        """The native sampler of these settings."""
        if self._native is None:
            source = self._source
            if self.subgraph_type == SubgraphType.induced and self.disjoint:
                raise NotImplementedError('subgraph_type: "induced" sub-graphs are no disjoint trees, nor within times; leave out one of them')
            values = self.num_neighbors.get_values(source.edge_types)
            if isinstance(values, dict) != self.is_hetero:
                raise TypeError("num_neighbors: a dict is of several edge types, which the graph does not have; give a list")
            fanouts = [[fanout(number) for number in of_hops] for of_hops in (values.values() if self.is_hetero else [values])]
            self._native = _morphgl.Sampler(source.graph._native, fanouts, self.num_neighbors.num_hops, self._weight_attr is not None,
                                            self.disjoint, self.temporal_strategy if self.is_temporal else None, source.order,
                                            source.node_times, source.edge_times, self.subgraph_type == SubgraphType.induced)
        return self._native

    @property
    def graph(self):
        """The graph that is sampled."""
        return self._source.graph

    @property
    def is_hetero(self):
        """Whether the graph has types."""
        return self._source.node_types is not None

    @property
    def is_temporal(self):
        """Whether trees are bounded by times."""
        return self._time_attr is not None

    @property
    def num_nodes(self):
        """Number of nodes, of a typed graph by node type."""
        return self._source.num_nodes

    @property
    def node_time(self):
        """Times of the nodes, of a typed graph by node type, if they are sampled by."""
        return self._source.node_time

    @property
    def edge_permutation(self):
        """None: edge ids are those of the data."""
        return None

    def sample_from_nodes(self, index, **kwargs):
        """The sub-graph around a `NodeSamplerInput`."""
        return self._directed(node_sample(index, partial(self._sample, **kwargs)))

    def sample_from_edges(self, index, neg_sampling=None):
        """The sub-graph around the ends of an `EdgeSamplerInput`'s edges and of as many negatives as PyG's `NegativeSampling` draws."""
        return self._directed(edge_sample(index, self._sample, self.num_nodes, self.disjoint, self.node_time, neg_sampling))

    def _directed(self, out):
        if self.subgraph_type == SubgraphType.bidirectional:
            return out.to_bidirectional(keep_orig_edges=self.keep_orig_edges)
        return out

    def _sample(self, seed, seed_time=None, draw=None):
        """The sub-graph around seeds, of a typed graph by node type; a function of both and of the number `draw`, by default one of
        torch's."""
        source, native = self._source, self._build()
        if isinstance(seed, dict) != self.is_hetero:
            what = "the graph has node types; give input_nodes=(TYPE, nodes)" if self.is_hetero else "the graph has no node types"
            raise ValueError(f"seeds: {what}")
        of_types = seed if self.is_hetero else {None: seed}
        if seed_time is not None and not self.is_temporal:
            raise ValueError("times of seeds: the sampler has no times; give it time_attr")
        if seed_time is None and self.is_temporal:
            timed = source.node_time if self.is_hetero else {None: source.node_time}
            missing = [name for name in of_types if (timed or {}).get(name) is None]
            if missing:
                raise ValueError("times of seeds: nodes" + (f" of type {missing[0]!r}" if missing[0] else "") + " have none of their own; "
                                 "give input_time, or edge_label_time of links")
        times = None if seed_time is None else [integers(of) for of in (seed_time.values() if self.is_hetero else [seed_time])]
        number = {name: i for i, name in enumerate(source.node_types or [None])}
        seeds = [(number[name], integers(nodes)) for name, nodes in of_types.items()]
        nodes, edges = native.sample(seeds, times, int(torch.randint(1 << 48, ())) if draw is None else draw)
        tensor = torch.from_dlpack
        # An induced sub-graph's edges are of no hop.
        hops = lambda part: None if self.subgraph_type == SubgraphType.induced else part[3]
        edges = [(*map(tensor, part[:3]), hops(part)) for part in edges]
        if self.sample_direction == "backward":
            edges = [(col, row, edge, hops) for row, col, edge, hops in edges]
        if not self.is_hetero:
            (node, batch, node_hops), (row, col, edge, edge_hops) = nodes[0], edges[0]
            return SamplerOutput(node=tensor(node), row=row, col=col, edge=edge,
                                 batch=None if batch is None else tensor(batch), num_sampled_nodes=node_hops, num_sampled_edges=edge_hops)
        nodes, edges = dict(zip(source.node_types, nodes)), dict(zip(source.edge_types, edges))
        column = lambda parts, at: {name: part[at] for name, part in parts.items()}
        tensors = lambda parts: {name: tensor(part) for name, part in parts.items()}
        return HeteroSamplerOutput(
            node=tensors(column(nodes, 0)), row=column(edges, 0), col=column(edges, 1), edge=column(edges, 2),
            batch=tensors(column(nodes, 1)) if self.disjoint else None, num_sampled_nodes=column(nodes, 2),
            num_sampled_edges=None if self.subgraph_type == SubgraphType.induced else column(edges, 3))

    def __copy__(self):
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name not in ("_native", "_source")}

    def __setstate__(self, state):
        self.__dict__.update(state, _native=None)
        self.__dict__["_source"] = source_of(self._data, self._time_attr, self._weight_attr, self.sample_direction == "backward")

    def __repr__(self):
        return f"{type(self).__name__}({self._source.graph!r}, num_neighbors={self.num_neighbors.values})"


def fanout(number):
    """A number of neighbours."""
    if int(number) != number or number < -1:
        raise ValueError(f"num_neighbors: {number}; give a number per hop, 0 for none or -1 for all neighbours")
    return int(number)


def integers(values):
    """A tensor as contiguous int64 of numpy."""
    return values.detach().cpu().to(torch.int64).contiguous().numpy()


def source_of(data, time_attr, weight_attr, backward):
    """The graph of what a sampler is given, with its edges reversed if it samples `backward`."""
    if isinstance(data, Data):
        return of_data(data, time_attr, weight_attr, backward)
    if isinstance(data, HeteroData):
        return of_hetero_data(data, time_attr, weight_attr, backward)
    if isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[1], BaseGraphStore):
        if not isinstance(data[1], GraphStore):
            return of_stores(data, time_attr, weight_attr, backward)
        data = data[1].graph
    if isinstance(data, (str, os.PathLike)):
        data = Graph.open(data)
    if not isinstance(data, Graph):
        raise TypeError(f"data: {type(data).__name__}; give a Data, a HeteroData, a Graph, the directory of a dataset, or stores of both kinds")
    if backward:
        raise NotImplementedError("sample_direction: a graph's columns have the sources of its edges alone; give PyG's Data or HeteroData")
    return of_graph(data, time_attr, weight_attr)


def times_of(name, values):
    """Times as int64."""
    if values.dtype.is_floating_point or values.dtype.is_complex:
        raise TypeError(f"{name}: {values.dtype}; times are whole numbers, give int64")
    return integers(values)


def of_data(data, time_attr, weight_attr, backward):
    node_time = edge_time = None
    if time_attr is not None:
        if data.get(time_attr) is None or not (data.is_node_attr(time_attr) or data.is_edge_attr(time_attr)):
            raise ValueError(f"time_attr: {time_attr!r} is neither an attribute of the nodes nor of the edges; give the name of one")
        if data.is_node_attr(time_attr):
            node_time = data[time_attr]
        else:
            edge_time = data[time_attr]
    weight = None if weight_attr is None else attribute(data, "weight_attr", weight_attr)
    num_nodes = int(data.num_nodes)
    if data.get("edge_index") is None and data.get("adj_t") is not None:
        if backward:
            raise NotImplementedError("sample_direction: adj_t has the sources of its edges alone; give edge_index")
        indptr, indices, _ = data.adj_t.csr()
        graph = Graph.from_numpy(csc=(indptr, indices), edge_weight=weight)
        times = [None if of is None else times_of(time_attr, of) for of in (node_time, edge_time)]
        return Source(graph, None, None, None, num_nodes, *times, node_time)
    index = data.get("edge_index")
    index = torch.zeros(2, 0, dtype=torch.int64) if index is None else torch.Tensor.cpu(index)
    return of_edges(index.flip(0) if backward else index, num_nodes, weight, node_time, edge_time, time_attr)


def of_edges(index, num_nodes, weight, node_time, edge_time, time_attr):
    """The graph without types of these edges. Within times, rows ascend by them, so that the edges within a time are found by bisection."""
    if time_attr is None:
        graph = Graph.from_numpy(index, num_nodes=num_nodes, edge_weight=weight, edge_ids=True)
        return Source(graph, graph._edge_order, None, None, graph.num_nodes)
    node_times, edge_times = (None if of is None else times_of(time_attr, of) for of in (node_time, edge_time))
    edges = {("", "", ""): {"edge_index": index, "weight": weight, "time": edge_times}}
    count = int(index.max()) + 1 if num_nodes is None and index.numel() else num_nodes or 0
    indptr, order, columns = typed.sorted_edges({"": count}, {"": 0}, edges, (node_times, edge_times))
    weight = None if weight is None else weight.detach().cpu().numpy()[order]
    graph = Graph.from_numpy(csc=(indptr, columns["source"]), edge_weight=weight)
    edge_times = None if edge_times is None else np.ascontiguousarray(edge_times[order])
    return Source(graph, order.astype(np.uint32), None, None, count, node_times, edge_times, node_time)


def of_hetero_data(data, time_attr, weight_attr, backward):
    timed = [[time_attr in store for store in stores] for stores in (data.node_stores, data.edge_stores)]
    if time_attr is not None and any(timed[0]) == any(timed[1]):
        both = "an attribute of both nodes and edges" if any(timed[0]) else "neither an attribute of nodes nor of edges"
        raise ValueError(f"time_attr: {time_attr!r} is {both}; give the name of one of nodes or of edges")
    time = lambda store: {"time": torch.as_tensor(times_of(time_attr, store[time_attr]))} if time_attr and time_attr in store else {}
    nodes = {name: {"num_nodes": data[name].num_nodes, **time(data[name])} for name in data.node_types}
    edges = {}
    for edge_type in data.edge_types:
        store = data[edge_type]
        if "edge_index" in store:
            index = store.edge_index.cpu()
        elif "adj_t" in store:
            targets, sources, _ = store.adj_t.coo()
            index = torch.stack([sources, targets])
        else:
            raise ValueError(f"{edge_type}: it has neither edge_index nor adj_t; give it edges, or leave it out")
        edges[edge_type] = {"edge_index": index, "weight": store.get(weight_attr) if weight_attr else None, **time(store)}
    if weight_attr is not None and all(of["weight"] is None for of in edges.values()):
        raise ValueError(f"weight_attr: no edge type has {weight_attr!r}; give the name of an attribute of the edges")
    graph = typed.graph_of(nodes, reversed_edges(edges) if backward else edges, by_time=time_attr is not None)
    source = Source(graph, graph._type_order, list(nodes), list(edges), {name: int(of["num_nodes"]) for name, of in nodes.items()})
    if time_attr is not None and any(timed[0]):
        source.node_time = {name: data[name][time_attr] for name in data.node_types if time_attr in data[name]}
    return source


def of_graph(graph, time_attr, weight_attr):
    native = graph._native
    if weight_attr is not None and (native.weights is None or weight_attr not in ("edge_weight", graph._weight_name)):
        raise ValueError(f'weight_attr: the graph has no weights {weight_attr!r}; give "edge_weight" of a graph with weights')
    times = native.node_times, native.edge_times
    if time_attr is not None and (time_attr != "time" or times == (None, None)):
        raise ValueError(f'time_attr: the graph has no {time_attr!r}; give "time" of a graph with times of nodes or edges')
    node_time = None if time_attr is None or times[0] is None else torch.from_numpy(np.array(times[0]))
    if not graph.node_types:
        order = None if graph._edge_order is False else graph._edge_order
        return Source(graph, order, None, None, graph.num_nodes, node_time=node_time)
    counts = dict(native.node_types)
    if node_time is not None:
        node_time = dict(zip(counts, node_time.split(list(counts.values()))))
    return Source(graph, graph._type_order, list(counts), list(native.edge_types), counts, node_time=node_time)


def of_stores(stores, time_attr, weight_attr, backward):
    """The graph of PyG's or another library's stores."""
    features, edges = stores
    if weight_attr is not None:
        raise NotImplementedError("weight_attr: the weights of edges in stores are not read; give Data, HeteroData, or a morphgl.pyg.GraphStore")
    attrs = edges.get_all_edge_attrs()
    sources, targets, _ = edges.coo()
    times = times_of_stores(features, time_attr)
    if all(attr.edge_type is None for attr in attrs):
        index = torch.stack([targets, sources] if backward else [sources, targets])
        num_nodes = int(max(attrs[0].size)) if attrs[0].size is not None else None
        # Without types nothing but the name tells the times of nodes from those of edges: PyG's rule.
        time = next(iter(times.values()), None)
        node_time, edge_time = (time, None) if time_attr == "time" else (None, time)
        return of_edges(index, num_nodes, None, node_time, edge_time, time_attr)
    names = sorted({name for edge_type in sources for name in (edge_type[0], edge_type[-1])}
                   | {attr.group_name for attr in features.get_all_tensor_attrs() if isinstance(attr.group_name, str)})
    counts = {name: int(remote_backend_utils.num_nodes(features, edges, name)) for name in names}
    time = lambda group: {"time": times[group]} if group in times else {}
    given = {edge_type: {"edge_index": torch.stack([sources[edge_type], targets[edge_type]]), **time(edge_type)} for edge_type in sources}
    graph = typed.graph_of({name: {"num_nodes": count, **time(name)} for name, count in counts.items()},
                           reversed_edges(given) if backward else given, by_time=time_attr is not None)
    node_time = {group: of for group, of in times.items() if isinstance(group, str)} or None
    return Source(graph, graph._type_order, names, list(given), counts, node_time=node_time)


def times_of_stores(features, time_attr):
    """Times by the group that they are of."""
    if time_attr is None:
        return {}
    found = [copy.copy(attr) for attr in features.get_all_tensor_attrs() if attr.attr_name == time_attr]
    if not found:
        raise ValueError(f"time_attr: no tensor of the feature store is named {time_attr!r}; give the name of one of nodes or of edges")
    for attr in found:
        attr.index = None
    if len({isinstance(attr.group_name, tuple) for attr in found}) > 1:
        raise ValueError(f"time_attr: {time_attr!r} is an attribute of both nodes and edges; give the name of one of nodes or of edges")
    return {attr.group_name: torch.as_tensor(of) for attr, of in zip(found, features.multi_get_tensor(found))}


def reversed_edges(edges):
    """Edge types from target to source, in the same order."""
    return {edge_type[::-1]: {**given, "edge_index": given["edge_index"].flip(0)} for edge_type, given in edges.items()}


def attribute(data, argument, name):
    """An attribute of a store that has to exist."""
    if data.get(name) is None:
        raise ValueError(f"{argument}: the data has no {name!r}; it has {', '.join(map(repr, data.keys()))}")
    return data[name]
