"""Mini-batches, prepared ahead by threads."""

import importlib.util
import json
import os
import re
from dataclasses import dataclass, field
from typing import Any, List, Optional

import numpy as np

from . import _morphgl, arrays
from .graph import Graph


@dataclass
class Block:
    """One hop in compressed sparse columns: `indices[indptr[v]:indptr[v + 1]]` are the local sources of destination `v`."""

    indptr: Any
    indices: Any
    weights: Optional[Any]
    num_src: int
    num_dst: int


@dataclass
class Batch:
    """A mini-batch with the names of PyG's; arrays are numpy's or torch's.

    The first `batch_size` of the nodes `n_id` are the seeds. `edge_index` is int64 `[2, edges]` in positions of `n_id`.
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
    blocks: List[Block] = field(default_factory=list)


OUTPUTS = ("pyg", "torch", "numpy", "dgl")
SAMPLERS = ("neighbor", "shadow", "walk")


class NeighborLoader:
    """Samples neighbourhoods and gathers features, in the place of `torch_geometric.loader.NeighborLoader`.

    The same `seed` gives the same mini-batches, bit for bit those of the `morphgl` command, whatever the number of threads. Every
    pass over the loader is the next epoch.

    graph
        A :class:`Graph`, a PyG `Data`, or the directory of a dataset.
    num_neighbors
        Neighbours a node at each hop, the seeds' own first; -1 for all.
    batch_size
        Seeds a mini-batch.
    input_nodes
        The seeds: node ids, a mask, "train", "valid" or "test"; None for all nodes.
    output
        "pyg": `torch_geometric.data.Data`. "torch", "numpy": :class:`Batch`. "dgl": `(input_nodes, output_nodes, blocks)`, features in
        `blocks[0].srcdata["feat"]`, classes in `blocks[-1].dstdata["label"]`. Default: PyG's if it is installed, else torch's, else
        numpy's.
    shuffle
        Whether each epoch permutes the seeds.
    drop_last
        Whether a last mini-batch with fewer seeds is left out.
    seed
        Of permutation and sampling.
    threads
        Threads that prepare mini-batches, one each; default all cores.
    prefetch
        Mini-batches that may wait besides those that threads are at.
    replace, directed, subgraph_type
        PyG's; only their defaults are supported.
    expansion
        "new": a hop expands the nodes that the hop before found (PyG); "all": all found so far (DGL). Default as `output` has it.
    weighted
        Whether neighbours are picked by edge weight.
    sampler
        "neighbor", "shadow" (all edges among the nodes that the hops find, `layers` blocks) or "walk" (random walks: `walks` from
        each node of at most `walk_length` steps, ended with probability `restart`, the `neighbors` most visited, `layers` hops).
    features
        Whether features are gathered.
    edge_ids
        Whether mini-batches have `e_id`: positions of their edges in the `edge_index` of the graph's source, in DGL's blocks
        `edata["_ID"]`. Of parallel edges the first are named. A graph of compressed columns has its own positions.
    memory, cache
        Leaves the graph's directory on disk: memory of offsets and caches (bytes, or text such as "2GiB"), and what ranks the cached
        rows ("auto", "none" or a policy of `morphgl cache`). Default: the graph as it is.
    pin_memory
        Whether tensors are copied to pinned memory.
    """

    def __init__(self, graph, num_neighbors=(15, 10, 5), batch_size=1024, input_nodes=None, *, output=None, shuffle=False,
                 drop_last=False, seed=0, threads=None, prefetch=2, replace=False, directed=True,
                 subgraph_type="directional", expansion=None, weighted=False, sampler="neighbor", layers=None, walks=10,
                 walk_length=3, restart=0.5, neighbors=10, features=True, edge_ids=False,
                 memory=None, cache=None, pin_memory=False, num_workers=None):
        if replace:
            raise NotImplementedError("replace: neighbours are sampled without replacement; leave it out")
        if not directed or str(getattr(subgraph_type, "value", subgraph_type)) != "directional":
            raise NotImplementedError('subgraph_type: edges are those that were sampled; for induced subgraphs give sampler="shadow"')
        if num_workers:
            raise ValueError("num_workers: there are no worker processes; give threads, or leave it out for all cores")
        if not isinstance(graph, Graph):
            # What stays on disk is mapped meanwhile.
            on_disk = memory is not None or cache is not None
            graph = Graph.from_pyg(graph, edge_ids) if hasattr(graph, "num_nodes") else Graph.open(graph, on_disk, not on_disk)
        if edge_ids and graph._edge_order is False:
            raise ValueError("edge_ids: the graph did not keep the positions of its edges; give edge_ids=True where it is made, too")
        self.graph = graph
        self.output = choose("output", output or default_output(), OUTPUTS)
        choose("sampler", sampler, SAMPLERS)
        blocks = self.output == "dgl"
        if sampler == "walk" and not blocks and (layers or len(num_neighbors)) > 1:
            raise ValueError('sampler: the hops of walks have edges of their own; give output="dgl", or layers=1')
        expansion = choose("expansion", expansion or ("all" if blocks else "new"), ("all", "new"))
        if expansion == "all" and not blocks and sampler == "neighbor":
            raise ValueError('expansion: hops that expand all nodes have edges of their own; give output="dgl", or expansion="new"')
        if isinstance(input_nodes, str):
            seeds = graph.split(choose("input_nodes", input_nodes, ("train", "valid", "test"))).view(np.uint32)
        elif input_nodes is None:
            seeds = np.arange(graph.num_nodes, dtype=np.uint32)
        else:
            seeds = arrays.nodes("input_nodes", input_nodes, graph.num_nodes)
        if batch_size < 1:
            raise ValueError(f"batch_size: {batch_size}; give at least 1")
        if seed < 0:
            raise ValueError(f"seed: {seed}; give at least 0")
        self.batch_size, self.drop_last, self.pin_memory = int(batch_size), drop_last, pin_memory
        fanouts = ",".join(str(fanout(n)) for n in num_neighbors)
        hops = {"fanouts": fanouts, "expansion": expansion, "pick": "weighted" if weighted else "uniform"}
        layers = layers or len(num_neighbors)
        settings = {
            "neighbor": hops,
            "shadow": {**hops, "layers": layers},
            "walk": {"layers": layers, "walks": walks, "length": walk_length, "restart": restart, "neighbors": neighbors},
        }[sampler]
        settings = {"sampler": sampler, **settings, "batch_size": self.batch_size, "seed": int(seed), "shuffle": bool(shuffle)}
        threads = threads or len(os.sched_getaffinity(0))
        gather = features and graph._native.features is not None
        self._native = _morphgl.Loader(graph._native, seeds, json.dumps(settings), "blocks" if blocks else "edges",
                                       bool(gather), int(threads), int(prefetch), bool(edge_ids),
                                       None if graph._edge_order is False else graph._edge_order, disk_options(graph, memory, cache))
        self._count = len(seeds) // self.batch_size if drop_last else self._native.num_batches
        self._epoch = 0

    def __len__(self):
        """Mini-batches an epoch."""
        return self._count

    def set_epoch(self, epoch):
        """The next pass is epoch `epoch`."""
        self._epoch = int(epoch)

    def __iter__(self):
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._batches(self._native.epoch(epoch, self._count))

    def _batches(self, native):
        make = {"pyg": as_pyg, "torch": as_torch, "numpy": as_numpy, "dgl": as_dgl}[self.output]
        try:
            for batch in native:
                yield make(batch, self.pin_memory)
        finally:
            native.close()

    def __repr__(self):
        return f"NeighborLoader({self.graph!r}, {len(self)} mini-batches of {self.batch_size}, {self._native.operator})"


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
        raise ValueError(f"num_neighbors: {neighbors}; give a positive number a hop, or -1 for all neighbours")
    return int(neighbors)


def default_output():
    installed = lambda name: importlib.util.find_spec(name) is not None
    return "numpy" if not installed("torch") else "pyg" if installed("torch_geometric") else "torch"


def fields(batch, convert):
    """PyG's names and their values."""
    converted = lambda buffer: None if buffer is None else convert(buffer)
    return {
        "x": converted(batch.x),
        "edge_index": converted(batch.edge_index),
        "y": converted(batch.y),
        "n_id": convert(batch.n_id),
        "edge_weight": converted(batch.edge_weight),
        "e_id": converted(batch.e_id),
        "batch_size": batch.batch_size,
        "num_sampled_nodes": batch.num_sampled_nodes,
        "num_sampled_edges": batch.num_sampled_edges,
    }


def blocks(batch, convert):
    return [Block(convert(indptr), convert(indices), None if weights is None else convert(weights), num_src, num_dst)
            for indptr, indices, weights, num_src, num_dst in batch.blocks]


def as_numpy(batch, pin_memory):
    return Batch(**fields(batch, np.asarray), blocks=blocks(batch, np.asarray))


def tensor(pin_memory):
    import torch

    return lambda buffer: torch.from_dlpack(buffer).pin_memory() if pin_memory else torch.from_dlpack(buffer)


def as_torch(batch, pin_memory):
    convert = tensor(pin_memory)
    return Batch(**fields(batch, convert), blocks=blocks(batch, convert))


def as_pyg(batch, pin_memory):
    from torch_geometric.data import Data

    values = fields(batch, tensor(pin_memory))
    data = Data(**{name: value for name, value in values.items() if value is not None})
    data.num_nodes = values["n_id"].shape[0]
    return data


def as_dgl(batch, pin_memory):
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
    n_id, x, y = convert(batch.n_id), batch.x, batch.y
    if x is not None:
        made[0].srcdata["feat"] = convert(x)
    if y is not None:
        made[-1].dstdata["label"] = convert(y)[:batch.batch_size]
    return n_id, n_id[:batch.batch_size], made
