"""Mini-batches of PyG's data by `morphgl.pyg.Sampler`: of several node types, in disjoint trees, within times."""

import copy
import hashlib
import struct
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader.utils import get_input_nodes
from torch_geometric.sampler import NodeSamplerInput, SamplerOutput

from .attributes import column, gather
from .passes import digest, order_of, positions
from .pyg_sampler import Sampler


class SampledBatches:
    """The mini-batches of epochs, in order, prepared ahead by threads. A function of the data, the options, `seed`, epoch and index."""

    def __init__(self, data, num_neighbors, input_nodes, *, input_time, batch_size, shuffle, seed, threads, prefetch, pin_memory,
                 transform, transform_sampler_output, **options):
        if not isinstance(data, (Data, HeteroData)):
            raise TypeError(f"data: {type(data).__name__}; sub-graphs in trees, within times or of several types are made of PyG's Data or "
                            "HeteroData; of a dataset give torch_geometric.loader.NodeLoader(morphgl.pyg.stores(graph), "
                            "node_sampler=morphgl.pyg.Sampler(graph, …), …)")
        self.data, self.sampler = data, Sampler(data, num_neighbors, **options)
        self._options = {name: str(getattr(value, "value", value)) for name, value in options.items()}
        if input_time is not None and not self.sampler.is_temporal:
            raise ValueError("input_time: the times of nodes or edges are not known; give time_attr, too")
        node_type, nodes, _ = get_input_nodes(data, seeds_of(input_nodes))
        time = None if input_time is None else torch.as_tensor(input_time)
        if time is not None and time.shape != nodes.shape:
            raise ValueError(f"input_time: its shape is {tuple(time.shape)}; give [{len(nodes)}], a time per seed")
        self.seeds = NodeSamplerInput(torch.arange(len(nodes)), nodes, time, node_type)
        self.batch_size, self.shuffle, self.seed = batch_size, shuffle, seed
        self.threads, self.prefetch, self.pin_memory = threads, prefetch, pin_memory
        self.transform, self.transform_sampler_output = transform, transform_sampler_output
        self._columns = Columns(data)

    def __len__(self):
        """Number of seeds."""
        return len(self.seeds.node)

    def identity(self):
        """What mini-batches depend on, by arguments."""
        time = self.seeds.time
        return {**self._options, "batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed,
                "num_neighbors": str(self.sampler.num_neighbors.values), "node type of input_nodes": self.seeds.input_type,
                "input_nodes": f"{len(self)} {digest(self.seeds.node.numpy())}",
                "input_time": None if time is None else digest(time.numpy())}

    def epoch(self, epoch, first, end, order=None):
        """The mini-batches of an epoch from `first` up to `end`, whose seeds have the positions `order`, by default those of the seeds, shuffled
        if asked for. Its threads end with the iterator."""
        if order is None:
            order = order_of(self.seed, epoch, len(self)) if self.shuffle else np.arange(len(self))
        parts = ((index, torch.from_numpy(positions(order, index * self.batch_size, self.batch_size))) for index in range(first, end))
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="morphgl-loader")
        try:
            waiting = deque()
            while True:
                while len(waiting) < self.threads + self.prefetch and (part := next(parts, None)) is not None:
                    waiting.append(pool.submit(self._made, epoch, *part))
                if not waiting:
                    return
                made = waiting.popleft().result()
                yield made if self.transform is None else self.transform(made)
        finally:
            for future in waiting:
                future.cancel()
            pool.shutdown()

    def _made(self, epoch, index, positions):
        digest = hashlib.blake2b(struct.pack("<QQQ", self.seed % 2**64, epoch, index), digest_size=6).digest()
        out = self.sampler.sample_from_nodes(self.seeds[positions], draw=int.from_bytes(digest, "little"))
        if self.transform_sampler_output is not None:
            out = self.transform_sampler_output(out)
        made = self._columns.batch(out)
        place = made if self.seeds.input_type is None else made[self.seeds.input_type]
        place.input_id, place.seed_time = out.metadata[0], out.metadata[1]
        place.batch_size = len(out.metadata[0])
        return made.pin_memory() if self.pin_memory else made


def seeds_of(input_nodes):
    """Seeds as PyG's functions take them, masks as ids: `input_id` are positions among these."""
    if isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2 and isinstance(input_nodes[0], str):
        return input_nodes[0], None if input_nodes[1] is None else seeds_of(input_nodes[1])
    if input_nodes is None or isinstance(input_nodes, str):
        return input_nodes
    nodes = torch.as_tensor(input_nodes)
    return nodes.nonzero().view(-1) if nodes.dtype == torch.bool else nodes.to(torch.int64)


class Columns:
    """The attributes of PyG's data, and what mini-batches get of them: the rows of nodes and edges, as PyG's `filter_data` and
    `filter_hetero_data`; all else is shared."""

    def __init__(self, data):
        self.data = data
        self.parts = []
        stores = [(None, data._store)] if isinstance(data, Data) else list(zip(data.node_types, data.node_stores)) + \
            list(zip(data.edge_types, data.edge_stores))
        for key, store in stores:
            columns = {}
            for name, value in store.items():
                if name in ("num_nodes", "edge_index", "adj_t"):
                    continue
                level = "node" if store.is_node_attr(name) else "edge" if store.is_edge_attr(name) else None
                if level is not None:
                    dim = data.__cat_dim__(name, value, store)
                    columns[name] = (level, column(value, dim if isinstance(dim, int) else 0))
            self.parts.append((key, columns))

    def batch(self, out):
        """The mini-batch of a sampled sub-graph."""
        made = copy.copy(self.data)
        untyped = isinstance(out, SamplerOutput)
        requests, places = [], []
        for key, columns in self.parts:
            store = made._store if untyped else made[key]
            nodes = out.node if untyped else out.node.get(key) if isinstance(key, str) else None
            edges = out.edge if untyped else None if isinstance(key, str) else (out.edge or {}).get(key)
            if untyped or isinstance(key, tuple):
                row, col = (out.row, out.col) if untyped else (out.row[key], out.col[key])
                store.edge_index = torch.stack([row, col])
                if "adj_t" in store:
                    del store["adj_t"]
            if nodes is not None and "num_nodes" in store:
                store.num_nodes = len(nodes)
            for name, (level, of) in columns.items():
                rows = nodes if level == "node" else edges
                if rows is None:
                    store[name] = None
                else:
                    requests.append((of, rows))
                    places.append((store, name))
            # As PyG, which keeps attributes of these names.
            if nodes is not None and "n_id" not in store:
                store.n_id = nodes
            if edges is not None and "e_id" not in store:
                store.e_id = edges
        for (store, name), values in zip(places, gather(requests)):
            store[name] = values
        if untyped:
            made.batch, made.num_sampled_nodes, made.num_sampled_edges = out.batch, out.num_sampled_nodes, out.num_sampled_edges
            originals = {None: (out.orig_row, out.orig_col)}
        else:
            for name in ("batch", "num_sampled_nodes", "num_sampled_edges"):
                made.set_value_dict(name, getattr(out, name))
            originals = {key: (row, out.orig_col[key]) for key, row in (out.orig_row or {}).items()}
        for key, (row, col) in originals.items():
            if row is not None and col is not None:
                (made if key is None else made[key])._orig_edge_index = torch.stack([row, col])
        return made
