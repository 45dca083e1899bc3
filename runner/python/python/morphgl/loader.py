"""Mini-batches, prepared ahead by threads."""

import difflib
import importlib.util
import inspect
import json
import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any, List, Optional

import numpy as np

from . import _morphgl, arrays
from .attributes import column, gather
from .brief import Brief
from .devices import device_of, found_routes, refuse_on_device
from .graph import Graph
from .passes import Passes, checked_sampler, digest, order_of, positions


@dataclass(repr=False)
class Block(Brief):
    """One hop in compressed sparse columns: `indices[indptr[v]:indptr[v + 1]]` are the local sources of destination `v`."""

    indptr: Any
    indices: Any
    weights: Optional[Any]
    num_src: int
    num_dst: int


@dataclass(repr=False)
class Batch(Brief):
    """A mini-batch with the names of PyG's; arrays are numpy's or torch's.

    The first `batch_size` of the nodes `n_id` are the seeds, each as often as it is given. `edge_index` is int64 `[2, edges]` in
    positions of `n_id`; edges from a seed that repeats name its first position. `y` are the nodes' classes, int64; of a graph without
    labels their `targets`, float32 `[nodes, K]`, or `[nodes]` where the graph was given them so. The last five are those of
    :class:`LinkNeighborLoader`.
    """

    x: Optional[Any]
    edge_index: Optional[Any]
    y: Optional[Any]
    n_id: Any
    batch_size: int
    num_sampled_nodes: List[int]
    num_sampled_edges: List[int]
    edge_weight: Optional[Any] = None
    e_id: Optional[Any] = None
    input_id: Optional[Any] = None
    blocks: List[Block] = field(default_factory=list)
    targets: Optional[Any] = None
    edge_label_index: Optional[Any] = None
    edge_label: Optional[Any] = None
    src_index: Optional[Any] = None
    dst_pos_index: Optional[Any] = None
    dst_neg_index: Optional[Any] = None


OUTPUTS = ("pyg", "torch", "numpy", "dgl", "dlpack")

# What to give for sub-graphs that threads of a loader do not sample.
BY_PYG = "torch_geometric.loader's loaders with neighbor_sampler=morphgl.pyg.Sampler(…)"
TEMPORAL = f"mini-batches are not temporal; give NeighborLoader a PyG Data or HeteroData, or {BY_PYG}"
# Arguments of PyG's and torch's loaders whose defaults alone are supported: the default, and what to do instead.
UNSUPPORTED = {
    "input_time": (None, TEMPORAL),
    "edge_label_time": (None, TEMPORAL),
    "replace": (False, "neighbours are sampled without replacement; leave it out"),
    "subgraph_type": ("directional", 'edges are those that were sampled; for induced subgraphs give sampler="shadow"'),
    "disjoint": (False, f"the seeds of a mini-batch share their neighbours; for one tree per seed give batch_size=1, or {BY_PYG}"),
    "temporal_strategy": ("uniform", TEMPORAL),
    "time_attr": (None, TEMPORAL),
    "transform_sampler_output": (None, "sampling and gathering are one step; give transform, which takes the mini-batch"),
    "neighbor_sampler": (None, 'operators sample; choose one by sampler="neighbor", "shadow", "walk" or that of an operator crate, or give '
                               "it to torch_geometric.loader.NeighborLoader"),
    "directed": (True, 'edges are those that were sampled; for induced subgraphs give sampler="shadow"'),
    "batch_sampler": (None, "give the seeds in their order as input_nodes, and batch_size"),
    "collate_fn": (None, "mini-batches are not lists of samples; give transform, which takes the mini-batch"),
    "generator": (None, "give seed, a number; without one it is drawn from torch's default generator"),
    "worker_init_fn": (None, "there are no worker processes, threads prepare mini-batches; leave it out"),
}
# Hints to PyG and torch that change no mini-batch: they are of worker processes, which threads take the place of.
HINTS = ("is_sorted", "filter_per_worker", "persistent_workers", "multiprocessing_context", "timeout", "pin_memory_device", "in_order")
# Arguments that only sub-graphs of PyG's samplers have, with their defaults.
OF_SAMPLERS = {"input_time": None, "disjoint": False, "time_attr": None, "temporal_strategy": "uniform", "transform_sampler_output": None}
# Arguments that settings of samplers come from, where their names differ.
ARGUMENTS = {"fanouts": "num_neighbors", "pick": "weighted", "length": "walk_length", "settings": "sampler_option"}
# What follows `num_neighbors` in PyG's signature.
POSITIONAL = ("input_nodes", "input_time", "replace", "subgraph_type", "disjoint", "temporal_strategy", "time_attr", "weight_attr",
              "transform", "transform_sampler_output", "is_sorted", "filter_per_worker", "neighbor_sampler", "directed")


class Loader(Passes):
    """What loaders of nodes and of pairs share."""

    # Attributes of the graph's source that mini-batches have anew.
    REPLACED = ()
    # The argument that the seeds come from.
    SEEDS = "input_nodes"
    # The device that mini-batches are delivered to, and `(operators, seconds per mini-batch, why not)` of each way there.
    device, routes = None, ()

    def _open(self, data, num_neighbors, seeds_of, pairs, *, given_of=None, weight_attr=None, transform=None, batch_size=1024, output=None,
              shuffle=False, drop_last=False, seed=None, threads=None, prefetch=2, expansion=None, weighted=False, sampler=None,
              layers=None, walks=10, walk_length=3, restart=0.5, neighbors=10, sampler_option=None, features=True, edge_ids=False,
              memory=None, cache=None, pin_memory=False, num_workers=0, prefetch_factor=None, device=None, route=None, device_memory=None,
              **others):
        """Makes the operator and its threads. `seeds_of(graph)` are the nodes, or the pairs `[pairs, 2]` that `pairs` has settings of;
        `given_of(graph)` the destinations of negatives that come with them."""
        refuse_unsupported(others, type(self))
        # What was given, as PyG's loaders have it: mini-batches are not told of what is done to it later.
        self.data = data
        num_neighbors = hops_of(num_neighbors)
        checked_transform(transform)
        self.device = device_of(device)
        self.output = choose("output", output or default_output(self.device), OUTPUTS)
        refuse_on_device(self.device, self.output, edge_ids=edge_ids, memory=memory, cache=cache, route=route, device_memory=device_memory)
        self._sampler = None
        if not isinstance(sampler, (str, type(None))):
            self._sampler, sampler = checked_sampler(sampler, shuffle), None
            if memory is not None or cache is not None:
                raise NotImplementedError("sampler: a graph left on disk has its seeds in an order of ours; leave memory and cache out, or "
                                          "give shuffle=True")
        sampler = "neighbor" if sampler is None else sampler
        graph = graph_of(data, memory is not None or cache is not None, edge_ids, weight_attr)
        weighted = weighted or weight_attr is not None
        if edge_ids and graph._edge_order is False:
            raise ValueError("edge_ids: the graph did not keep the positions of its edges; give edge_ids=True where it is made, too")
        self.graph = graph
        samplers = dict(_morphgl.samplers())
        choose("sampler", sampler, samplers)
        ours = sampler in ("neighbor", "shadow", "walk")
        if sampler_option and ours:
            raise ValueError(f"sampler_option: {sampler} has none; leave it out")
        blocks = self.output == "dgl"
        if not samplers[sampler] and not blocks and (layers or len(num_neighbors)) > 1:
            what = "walks" if sampler == "walk" else sampler
            raise ValueError(f'sampler: the hops of {what} have edges of their own; give output="dgl", or layers=1')
        expansion = choose("expansion", expansion or ("all" if blocks else "new"), ("all", "new"))
        if expansion == "all" and not blocks and samplers[sampler] and sampler != "shadow":
            raise ValueError('expansion: hops that expand all nodes have edges of their own; give output="dgl", or expansion="new"')
        seeds = seeds_of(graph)
        self._draws_seed, (self.batch_size, self._seed) = seed is None, checked_sizes(batch_size, seed)
        self.drop_last, self.pin_memory, self._shuffle = drop_last, pin_memory, bool(shuffle)
        fanouts = ",".join(str(fanout(n)) for n in num_neighbors)
        hops = {"fanouts": fanouts, "expansion": expansion, "pick": "weighted" if weighted else "uniform"}
        layers = layers or len(num_neighbors)
        other = {**(hops if samplers[sampler] else {}), "layers": layers, "settings": dict(sampler_option or {})}
        settings = other if not ours else {
            "neighbor": hops,
            "shadow": {**hops, "layers": layers},
            "walk": {"layers": layers, "walks": walks, "length": walk_length, "restart": restart, "neighbors": neighbors},
        }[sampler]
        self._transform, self._sampled = transform, None
        self._attributes = self._gathered(sampler, features)
        if self.device is not None and self._attributes["edge"]:
            raise NotImplementedError(f"device: {', '.join(self._attributes['edge'])} are attributes of edges, which have no numbers on a "
                                      "device; leave device out, or give data without them")
        edge_ids = edge_ids or bool(self._attributes["edge"])
        settings = {"sampler": sampler, **settings, "batch_size": self.batch_size, "seed": self._seed, "shuffle": self._shuffle}
        threads, prefetch = threads_of(threads, prefetch, num_workers, prefetch_factor)
        gather = features and graph._native.features is not None
        self._given = None if given_of is None else given_of(graph)
        order = None if graph._edge_order is False else graph._edge_order
        disk = disk_options(graph, memory, cache)
        device_memory = None if device_memory is None else num_bytes("device_memory", device_memory)
        self._operator = lambda settings, route: _morphgl.Loader(
            graph._native, seeds, None if pairs is None else json.dumps(pairs), self._given, json.dumps(settings),
            "blocks" if blocks else "edges", bool(gather), int(threads), int(prefetch), bool(edge_ids), order, disk,
            None if self.device is None else (self.device, route, device_memory))
        route = [route] if isinstance(route, str) else list(route or ())
        drawn = {name: value for name, value in settings.items() if name not in ("seed", "shuffle")}
        asked = (drawn, pairs, weight_attr, self.output, bool(gather), self.device, device_memory, route)
        found, key = ({}, None) if self.device is None else found_routes(data, *asked)
        operators, routes = found.get(key, (route, None))
        self._native = self._operator(settings, operators)
        # Measured once for all loaders of this graph by these settings.
        self.routes = self._native.routes if routes is None else routes
        found[key] = (self._native.operators, self.routes)
        self._count = self._batches_of(len(seeds if self._sampler is None else self._sampler))
        self._settings = settings
        # As of PyG's loader: positions among the seeds, which `input_id` refers to.
        self.dataset, self._seeds = range(len(seeds)), seeds

    def _draw_by(self, seed):
        if self._sampled is not None:
            self._sampled.seed = seed
        elif seed != self._seed:
            self._seed, self._settings = seed, {**self._settings, "seed": seed}
            self._native = self._operator(self._settings, self._native.operators)

    def _identity(self):
        if self._sampled is not None:
            named = self._sampled.identity()
        else:
            named = {ARGUMENTS.get(name, name): value for name, value in self._settings.items()}
            named[self.SEEDS] = f"{len(self._seeds)} {digest(self._seeds)}"
        drawn_by = None if self._sampler is None else type(self._sampler).__name__
        return {**named, "loader": type(self).__name__, "drop_last": self.drop_last, "num_nodes": self.graph.num_nodes,
                "num_edges": self.graph.num_edges, "order of seeds": drawn_by}

    def _pass(self, epoch, first, order):
        if self._sampled is not None:
            return self._sampled.epoch(epoch, first, self._batches_of(None if order is None else len(order)), order)
        native = self._native
        if order is None:
            count, order = self._count, order_of(self._seed, epoch, len(self._seeds)) if self._shuffle else None
        elif not len(order):
            return (batch for batch in ())
        else:
            count = self._batches_of(len(order))
            given = None if self._given is None else np.ascontiguousarray(self._given.reshape(len(self._seeds), -1)[order].reshape(-1))
            native = native.with_seeds(np.ascontiguousarray(self._seeds[order]), given)
        return self._batches(native.epoch(epoch, first, count), self._labels(order))

    def _gathered(self, sampler, features):
        """The attributes of the graph's source that mini-batches get; a warning names those that they do not get."""
        attributes = {kind: {name: value for name, value in some.items() if name not in self.REPLACED}
                      for kind, some in self.graph._attributes.items()}
        names = [name for some in attributes.values() for name in some]
        if names and self.output != "pyg":
            warnings.warn(f'{", ".join(names)}: left out of mini-batches; PyG\'s have them: output="pyg"', stacklevel=5)
            return {"node": {}, "edge": {}, "graph": {}}
        if attributes["edge"] and sampler == "walk":
            warnings.warn(f"{', '.join(attributes['edge'])}: left out of mini-batches, since the edges of walks are no edges of the graph; "
                          "choose another sampler", stacklevel=5)
            attributes["edge"] = {}
        if self.output == "pyg":
            for kind, exact in self.graph._exact.items():
                names = [name for name in exact if (name != "x" or features) and (kind != "edge" or sampler != "walk")]
                attributes[kind].update({name: exact[name] for name in names})
        for kind in ("node", "edge"):
            attributes[kind] = {name: column(value, self.graph._dims.get(name, 0)) for name, value in attributes[kind].items()}
        return attributes

    def _batches(self, native, label):
        make = {"pyg": as_pyg, "torch": as_torch, "numpy": as_numpy, "dgl": as_dgl, "dlpack": as_dlpack}[self.output]
        # Tensors on a device lie in no host memory.
        pin_memory = self.pin_memory and self.device is None
        try:
            for batch in native:
                made = make(batch, pin_memory, self.graph._flat_targets)
                if self.output == "pyg":
                    self._gather(made)
                if self.output != "dgl":
                    label(made, batch)
                yield made if self._transform is None else self._transform(made)
        finally:
            native.close()

    def _gather(self, batch):
        """Gives a mini-batch the rows of its nodes and edges of the source's other attributes."""
        if self.graph._weight_name != "edge_weight" and "edge_weight" in batch:
            batch[self.graph._weight_name] = batch.edge_weight
            del batch.edge_weight
        names = [(kind, name) for kind in ("node", "edge") for name in self._attributes[kind]]
        # They are gathered in host memory, for which a mini-batch on a device is waited for.
        rows = {"node": batch.n_id.cpu() if names else None, "edge": batch.get("e_id")}
        gathered = gather([(self._attributes[kind][name], rows[kind]) for kind, name in names])
        for (_, name), values in zip(names, gathered):
            if hasattr(values, "pin_memory"):
                values = values.to(batch.n_id.device) if self.device else values.pin_memory() if self.pin_memory else values
            batch[name] = values
        for name, value in self._attributes["graph"].items():
            batch[name] = value

    def __repr__(self):
        by = self._native.operator if self._sampled is None else self._sampled.sampler
        return f"{type(self).__name__}({self.graph!r}, {len(self)} mini-batches of {self.batch_size}, {by})"


class NeighborLoader(Loader):
    """Samples neighbourhoods and gathers features, in the place of `torch_geometric.loader.NeighborLoader`.

    The same `seed` gives the same mini-batches, bit for bit those of the `morphgl` command, whatever the number of threads. Every
    pass over the loader is the next epoch.

    The arguments are PyG's, in its order; those that are not supported are refused with what to do instead. A number in the third
    place is the batch size, and seeds may follow it.

    data
        A :class:`Graph`, a PyG `Data` or `HeteroData`, or the directory of a dataset.
    num_neighbors
        Neighbours per node at each hop, the seeds' own first; -1 for all. Of a `HeteroData` also a dict by edge type, and 0 for none.
    input_nodes
        The seeds: node ids, a mask, "train", "valid" or "test"; None for all nodes. Of a `HeteroData` a node type, or `(type, nodes)`. An
        id given several times (oversampling) is a seed as often in an epoch: it has so many of the first `batch_size` rows of
        mini-batches.
    disjoint, time_attr, temporal_strategy, input_time, subgraph_type, transform_sampler_output
        Of a PyG `Data` or `HeteroData`: as PyG's, sampled by :class:`morphgl.pyg.Sampler`. Such mini-batches are PyG's alone and have
        edge ids; arguments from `expansion` on are not theirs.
    weight_attr
        The edge attribute of a PyG `Data` that neighbours are picked by; as `weighted`.
    transform
        A function of each mini-batch, whose value is given in its place.
    batch_size
        Seeds per mini-batch.
    output
        "pyg": `torch_geometric.data.Data`. "torch", "numpy": :class:`Batch`. "dgl": `(input_nodes, output_nodes, blocks)`, features in
        `blocks[0].srcdata["feat"]`, classes in `blocks[-1].dstdata["label"]`, or targets; where there are both, targets in `"target"`.
        Default: PyG's if it is installed, else torch's, else numpy's.
    shuffle
        Whether each epoch permutes the seeds.
    drop_last
        Whether a last mini-batch with fewer seeds is left out.
    seed
        Of permutation and sampling. Default: drawn from torch's default generator as the loader is made, so that `torch.manual_seed`
        before repeats its mini-batches; 0 where torch is not imported. :meth:`state_dict` keeps it.
    threads
        Threads that prepare mini-batches, one each; default all cores.
    prefetch
        Mini-batches that may wait besides those that threads are at.
    num_workers, prefetch_factor
        torch's, in the place of `threads` (0 for all cores) and `prefetch` (per thread). Its arguments of worker processes are taken
        and change nothing.
    expansion
        "new": a hop expands the nodes that the hop before found (PyG); "all": all found so far (DGL). Default as `output` has it.
    weighted
        Whether neighbours are picked by edge weight.
    sampler
        "neighbor", "shadow" (all edges among the nodes that the hops find, `layers` blocks) or "walk" (random walks: `walks` from
        each node of at most `walk_length` steps, ended with probability `restart`, the `neighbors` most visited, `layers` hops);
        or a kind of an operator crate that the package links, by fanouts or with `layers` blocks. Or one of torch's samplers, or another
        iterable of positions with a length, which draws the order of an epoch's seeds as each pass begins; then neighbours are sampled.
    sampler_option
        Settings of such a kind by name.
    features
        Whether features are gathered.
    edge_ids
        Whether mini-batches have `e_id`: positions of their edges in the `edge_index` of the graph's source, in DGL's blocks
        `edata["_ID"]`. Of parallel edges as many are named as were sampled. A graph of compressed columns has its own positions.
    memory, cache
        Leaves the graph's directory on disk: memory of offsets and caches (bytes, or text such as "2GiB"), and what ranks the cached
        rows ("auto", "none" or a policy of `morphgl cache`). Default: the graph as it is.
    pin_memory
        Whether tensors are copied to pinned memory.
    device
        A CUDA device, "cuda" or "cuda:1", whose memory the tensors lie in. Where nodes are sampled and how features come there is
        measured as the first such loader of `data` is made, in some seconds, and `routes` says how long each route takes: sampled on the
        host or on the device; features gathered on the host and copied, or gathered by the device out of its cache and the host's memory.
        Work that torch's current stream is given before the tensors are gone may read them; other streams have to be waited for by that
        one. Without edge ids. For `output="dlpack"` the arrays of a :class:`Batch` have `__dlpack__`, for cupy or jax, and `to_host()`.
    route
        The name of an operator, or of several, that mini-batches come by: of those routes the fastest.
    device_memory
        What graph and features may take of the device's memory, bytes or text such as "2GiB". Default: a quarter of what is free as the
        loader is made. Mini-batches come on top; MORPHGL_CUDA_MEMORY limits all that the process takes beside torch.
    """

    def __init__(self, data, num_neighbors=(15, 10, 5), *positional, **options):
        self._make(data, num_neighbors, **by_name(POSITIONAL, ("batch_size", "input_nodes"), positional, options))

    def _make(self, data, num_neighbors, *, input_nodes=None, **options):
        if is_of_sampler(data, options):
            return self._sample(data, num_neighbors, input_nodes, **{**OF_SAMPLERS, **options})
        if isinstance(input_nodes, tuple) and input_nodes and isinstance(input_nodes[0], str):
            raise NotImplementedError("input_nodes: a node type; graphs of several node types are not read; give ids, or a mask")
        self._open(data, num_neighbors, lambda graph: seeds_of(graph, input_nodes), None, **options)

    def _sample(self, data, num_neighbors, input_nodes, *, input_time, disjoint, time_attr, temporal_strategy, transform_sampler_output,
                replace=False, subgraph_type="directional", directed=True, weight_attr=None, transform=None, batch_size=1024, output=None,
                shuffle=False, drop_last=False, seed=None, threads=None, prefetch=2, num_workers=0, prefetch_factor=None, pin_memory=False,
                edge_ids=True, **others):
        """Makes the loader of sub-graphs of several types, in trees, or within times, which have edge ids always."""
        from .sampled import SampledBatches

        ours = [*inspect.signature(self._open).parameters]
        refuse_unsupported({name: value for name, value in others.items() if name not in ours}, type(self))
        what = "sub-graphs of several types, in trees or within times"
        drawn_by = others.get("sampler")
        self._sampler = None if isinstance(drawn_by, (str, type(None))) else checked_sampler(drawn_by, shuffle)
        for name in ours:
            if others.get(name) is not None and (name != "sampler" or self._sampler is None):
                raise NotImplementedError(f"{name}: {what} do not have it; leave it out")
        if output not in (None, "pyg"):
            raise NotImplementedError(f'output: {output!r}; {what} are PyG\'s alone, give "pyg"')
        self._draws_seed, (batch_size, seed) = seed is None, checked_sizes(batch_size, seed)
        threads, prefetch = threads_of(threads, prefetch, num_workers, prefetch_factor)
        self._sampled = SampledBatches(
            data, num_neighbors, input_nodes, input_time=input_time, batch_size=batch_size, shuffle=bool(shuffle), seed=seed,
            threads=threads, prefetch=prefetch, pin_memory=pin_memory, transform=checked_transform(transform),
            transform_sampler_output=transform_sampler_output, replace=replace, subgraph_type=subgraph_type, directed=directed,
            disjoint=disjoint, time_attr=time_attr, temporal_strategy=temporal_strategy, weight_attr=weight_attr)
        count, self.data = len(self._sampled), data
        self.graph, self.output = self._sampled.sampler.graph, "pyg"
        self.batch_size, self.drop_last, self.pin_memory = batch_size, drop_last, pin_memory
        self._count = self._batches_of(count if self._sampler is None else len(self._sampler))
        self.dataset = range(count)

    def _labels(self, order):
        """A function that gives each mini-batch of an epoch in this order the positions of its seeds."""

        def label(made, batch):
            input_id = positions(order, batch.index * self.batch_size, made.batch_size)
            if self.device is not None or self.output == "dlpack":
                made.input_id = input_id if self.output == "dlpack" else on_device(input_id, made.n_id)
                return
            nodes = made.n_id[:made.batch_size]
            if not np.array_equal(self._seeds[input_id], np.asarray(nodes)):
                raise RuntimeError(f"{self._native.operator}: the seeds of mini-batch {batch.index} are not those of its epoch's order")
            if hasattr(nodes, "detach"):
                import torch

                input_id = torch.from_numpy(input_id)
            made.input_id = input_id

        return label


def seeds_of(graph, input_nodes):
    """Nodes as uint32, of what `input_nodes` names."""
    if isinstance(input_nodes, str):
        return graph.split(choose("input_nodes", input_nodes, ("train", "valid", "test"))).view(np.uint32)
    if input_nodes is None:
        return np.arange(graph.num_nodes, dtype=np.uint32)
    return arrays.nodes("input_nodes", input_nodes, graph.num_nodes)


def by_name(names, of_number, positional, options):
    """Arguments in PyG's order by their names. A number in the place of the seeds is the batch size, which `of_number` begins with."""
    number = positional and isinstance(positional[0], (int, np.integer)) and not isinstance(positional[0], bool)
    names = of_number if number else names
    if len(positional) > len(names):
        raise TypeError(f"{len(positional) + 2} arguments by position; give those after {names[-1]} by name")
    given = dict(zip(names, positional))
    twice = given.keys() & options.keys()
    if twice:
        raise TypeError(f"{min(twice)}: it is given by position and by name; give it once")
    return {**given, **options}


def refuse_unsupported(others, loader):
    """Refuses arguments by name, unless they have the values that change nothing."""
    for name, value in others.items():
        if name in UNSUPPORTED:
            default, cure = UNSUPPORTED[name]
            value = getattr(value, "value", value) if name == "subgraph_type" else value
            if value is not None and (default is None or value != default):
                raise NotImplementedError(f"{name}: {cure}")
        elif name not in HINTS:
            taken = [*inspect.signature(loader._make).parameters, *inspect.signature(loader._open).parameters]
            close = difflib.get_close_matches(name, [*UNSUPPORTED, *HINTS, *taken], 1)
            raise TypeError(f"{name}: no such argument" + (f"; did you mean {close[0]}?" if close else f"; see help({loader.__name__})"))


def hops_of(num_neighbors):
    """Neighbours per hop as a list."""
    if isinstance(num_neighbors, dict):
        raise NotImplementedError("num_neighbors: a dict is of several edge types, which are not read; give a list, a number per hop")
    try:
        return list(num_neighbors)
    except TypeError:
        raise TypeError(f"num_neighbors: {num_neighbors!r}; give a list, a number per hop") from None


def graph_of(data, on_disk, edge_ids, weight_attr):
    """The graph that a loader is made for."""
    if isinstance(data, Graph):
        if weight_attr not in (None, data._weight_name) or weight_attr is not None and data.weights is None:
            raise ValueError(f"weight_attr: the graph has no weights {weight_attr!r}; give it where the graph is made, "
                             f"Graph.from_pyg(data, weight_attr={weight_attr!r}), or as edge_weight")
        return data
    if hasattr(data, "num_nodes"):
        return Graph.from_pyg(data, edge_ids, weight_attr)
    if weight_attr is not None:
        raise ValueError("weight_attr: a dataset has its weights; give weighted=True")
    if not isinstance(data, (str, os.PathLike)):
        raise TypeError(f"data: {type(data).__name__}; give a Graph, a PyG Data, or the directory of a dataset")
    # What stays on disk is mapped meanwhile.
    return Graph.open(data, on_disk, not on_disk)


def checked_transform(transform):
    if transform is not None and not callable(transform):
        raise TypeError(f"transform: {type(transform).__name__} is no function; give one that takes a mini-batch")
    return transform


def checked_sizes(batch_size, seed):
    """Batch size and seed, as integers. Without a seed it is drawn from torch's default generator, where torch is imported, and else 0."""
    if batch_size < 1:
        raise ValueError(f"batch_size: {batch_size}; give at least 1")
    if seed is None:
        torch = sys.modules.get("torch")
        # As torch's DataLoader draws its own.
        seed = 0 if torch is None else torch.empty((), dtype=torch.int64).random_().item()
    if seed < 0:
        raise ValueError(f"seed: {seed}; give at least 0")
    return int(batch_size), int(seed)


def threads_of(threads, prefetch, num_workers, prefetch_factor):
    """Numbers of threads and of mini-batches that wait: torch's worker processes are threads."""
    if num_workers < 0:
        raise ValueError(f"num_workers: {num_workers}; give the number of threads, or 0 for all cores")
    threads = int(threads or num_workers or len(os.sched_getaffinity(0)))
    return threads, int(prefetch if prefetch_factor is None else prefetch_factor * threads)


def is_of_sampler(data, options):
    """Whether mini-batches are sub-graphs that `morphgl.pyg.Sampler` samples: of PyG's data of several types, in trees, or within times."""
    if isinstance(data, Graph) or not hasattr(data, "num_nodes"):
        return False
    subgraph_type = options.get("subgraph_type", "directional")
    changed = lambda given, default: given is not None and not (isinstance(given, (bool, str)) and given == default)
    return (hasattr(data, "node_types") or getattr(subgraph_type, "value", subgraph_type) in ("bidirectional", "induced")
            or options.get("directed") is False
            or any(changed(options.get(name), default) for name, default in OF_SAMPLERS.items()))


def disk_options(graph, memory, cache):
    """Options of the operator that reads from disk; None for a graph in memory."""
    if memory is None and cache is None:
        return None
    if not graph._native.path:
        raise ValueError("memory: the graph is no directory on disk; save it with graph.save(directory), and give that")
    options = {"memory_bytes": None if memory is None else num_bytes("memory", memory), "cache": cache}
    return json.dumps({name: value for name, value in options.items() if value is not None})


def num_bytes(name, value):
    match = re.fullmatch(r"([0-9.]+)\s*([KMGT]i?B)?", str(value))
    if match is None:
        raise ValueError(f"{name}: {value!r}; give a number of bytes, or text such as '2GiB'")
    digits, unit = match.groups()
    base = 1 if unit is None else (1024 if "i" in unit else 1000) ** ("KMGT".index(unit[0]) + 1)
    return int(float(digits) * base)


def choose(name, value, among):
    if value not in among:
        raise ValueError(f"{name}: {value!r}; give one of {', '.join(map(repr, among))}")
    return value


def fanout(neighbors):
    if int(neighbors) != neighbors or (neighbors < 1 and neighbors != -1):
        raise ValueError(f"num_neighbors: {neighbors}; give a positive number per hop, or -1 for all neighbours")
    return int(neighbors)


def default_output(device=None):
    installed = lambda name: importlib.util.find_spec(name) is not None
    without_torch = "numpy" if device is None else "dlpack"
    return without_torch if not installed("torch") else "pyg" if installed("torch_geometric") else "torch"


def fields(batch, convert, flat):
    """PyG's names and their values. `flat` is whether targets have a number per node."""
    converted = lambda buffer: None if buffer is None else convert(buffer)
    targets = converted(batch.targets)
    targets = targets[:, 0] if flat and targets is not None else targets
    return {
        "x": converted(batch.x),
        "edge_index": converted(batch.edge_index),
        "y": targets if batch.y is None else convert(batch.y),
        "n_id": convert(batch.n_id),
        "edge_weight": converted(batch.edge_weight),
        "e_id": converted(batch.e_id),
        "batch_size": batch.batch_size,
        "num_sampled_nodes": batch.num_sampled_nodes,
        "num_sampled_edges": batch.num_sampled_edges,
        "targets": targets,
    }


def blocks(batch, convert):
    return [Block(convert(indptr), convert(indices), None if weights is None else convert(weights), num_src, num_dst)
            for indptr, indices, weights, num_src, num_dst in batch.blocks]


def as_dlpack(batch, pin_memory, flat=False):
    as_it_is = lambda buffer: buffer
    return Batch(**fields(batch, as_it_is, False), blocks=blocks(batch, as_it_is))


def on_device(values, like):
    """A numpy array as a tensor on the device of another one."""
    import torch

    return torch.from_numpy(values).to(like.device)


def as_numpy(batch, pin_memory, flat=False):
    return Batch(**fields(batch, np.asarray, flat), blocks=blocks(batch, np.asarray))


def tensor(pin_memory):
    import torch

    return lambda buffer: torch.from_dlpack(buffer).pin_memory() if pin_memory else torch.from_dlpack(buffer)


def as_torch(batch, pin_memory, flat=False):
    convert = tensor(pin_memory)
    return Batch(**fields(batch, convert, flat), blocks=blocks(batch, convert))


def as_pyg(batch, pin_memory, flat=False):
    from torch_geometric.data import Data

    values = fields(batch, tensor(pin_memory), flat)
    if values["y"] is values["targets"]:
        # PyG's have them as `y` alone.
        del values["targets"]
    data = Data(**{name: value for name, value in values.items() if value is not None})
    data.num_nodes = values["n_id"].shape[0]
    return data


def as_dgl(batch, pin_memory, flat=False):
    import dgl

    convert = tensor(pin_memory)
    made, start = [], 0
    ids = None if batch.e_id is None else convert(batch.e_id)
    for block in blocks(batch, convert):
        edges = ("csc", (block.indptr, block.indices, block.indices[:0]))
        made.append(dgl.create_block(edges, num_src_nodes=block.num_src, num_dst_nodes=block.num_dst))
        if block.weights is not None:
            made[-1].edata["weight"] = block.weights
        if ids is not None:
            made[-1].edata[dgl.EID] = ids[start:start + len(block.indices)]
            start += len(block.indices)
    values = fields(batch, convert, flat)
    n_id, x, y, targets = (values[name] for name in ("n_id", "x", "y", "targets"))
    if x is not None:
        made[0].srcdata["feat"] = x
    for name, of_nodes in (("label", y), ("target", None if targets is y else targets)):
        if of_nodes is not None:
            made[-1].dstdata[name] = of_nodes[:batch.batch_size]
    return n_id, n_id[:batch.batch_size], made
