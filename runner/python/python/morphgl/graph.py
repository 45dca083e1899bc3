"""Graphs, from whatever holds one."""

import os
import tempfile

import numpy as np

from . import _morphgl, arrays


class Graph:
    """A graph with its node data, in memory or in mapped files.

    Arrays that fit as they are (int32 ids, int64 offsets, float32/float16/bfloat16/uint8 features, all contiguous) are not copied:
    **do not write to them while the graph or one of its loaders exists.** An edge (u, v) means that v aggregates u.
    """

    def __init__(self, native, edge_order=None):
        self._native, self._edge_order = native, edge_order

    @classmethod
    def open(cls, path, mmap=False, verify=True):
        """Opens the dataset directory `path`, as `morphgl import`, `morphgl generate` and :meth:`save` make it.

        `mmap` leaves the arrays in the files; `verify` compares checksums and looks for NaN, reading all data once.
        """
        return cls(_morphgl.Graph.open(os.fspath(path), mmap, verify))

    @classmethod
    def from_numpy(cls, edge_index=None, x=None, y=None, *, num_nodes=None, csc=None, edge_weight=None,
                   train=None, valid=None, test=None, edge_ids=False):
        """A graph of arrays or tensors.

        `edge_index`: int `[2, edges]`, sources then targets, sorted here; or `csc`: `(indptr, indices)`, offsets `[nodes + 1]` and
        the sources of each node's edges. `x`: `[nodes, features]`. `y`: int `[nodes]`, -1 for none. `edge_weight`: `[edges]`.
        `train`, `valid`, `test`: node ids, or masks `[nodes]`. `num_nodes`: else of `csc`, `x`, `y` or the highest id.
        `edge_ids`: keeps each edge's position in `edge_index`, 4 bytes an edge, for loaders with `edge_ids=True`.
        """
        if (edge_index is None) == (csc is None):
            raise ValueError("edge_index: give it or csc, and not both")
        features, bf16 = (None, False) if x is None else arrays.features("x", x)
        classes = None if y is None else arrays.labels("y", y)
        if csc is not None:
            indptr, indices = arrays.offsets("csc indptr", csc[0]), arrays.ids("csc indices", csc[1])
            if num_nodes is not None and num_nodes != len(indptr) - 1:
                raise ValueError(f"num_nodes: {num_nodes}, but csc has offsets of {len(indptr) - 1} nodes; leave it out")
            num_nodes = len(indptr) - 1
            weights = None if edge_weight is None else arrays.weights("edge_weight", edge_weight, len(indices))
            order = None
        else:
            pair, _ = arrays.to_numpy("edge_index", edge_index)
            if pair.ndim != 2 or pair.shape[0] != 2:
                raise ValueError(f"edge_index: its shape is {pair.shape}; pass [2, edges], sources then targets")
            sources, targets = arrays.ids("edge_index[0]", pair[0]), arrays.ids("edge_index[1]", pair[1])
            if num_nodes is None:
                rows = [len(values) for values in (features, classes) if values is not None]
                ends = [int(nodes.max()) + 1 for nodes in (sources, targets) if len(nodes)]
                num_nodes = max(rows or ends, default=0)
            indptr, indices, order = (np.asarray(part) for part in _morphgl.csc(sources, targets, int(num_nodes)))
            indptr, indices = indptr.view(np.uint64), indices.view(np.uint32)
            weights = None
            if edge_weight is not None:
                weights = arrays.weights("edge_weight", edge_weight, len(sources))[order]
        splits = [arrays.nodes(name, ids, num_nodes) for name, ids in (("train", train), ("valid", valid), ("test", test))]
        native = _morphgl.Graph.from_csc(indptr, indices, weights, features, bf16, classes, *splits)
        # False: the edges were sorted, and their positions are not kept.
        return cls(native, order if edge_ids or order is None else False)

    @classmethod
    def from_pyg(cls, data, edge_ids=False):
        """A graph of a `torch_geometric.data.Data`: `edge_index` or `adj_t`, `x`, `y`, `edge_weight`, and its split masks."""
        given = {"edge_ids": edge_ids, "x": data.get("x"), "y": data.get("y"), "num_nodes": data.num_nodes}
        for name, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
            nodes = data.get(mask)
            if nodes is not None and nodes.dim() == 2:
                raise ValueError(f"{mask}: {nodes.shape[1]} splits; choose one: data.{mask} = data.{mask}[:, 0]")
            given[name] = nodes
        if data.get("edge_index") is not None:
            return cls.from_numpy(data.edge_index, edge_weight=data.get("edge_weight"), **given)
        if data.get("adj_t") is not None:
            # Row v of the transposed adjacency matrix lists the sources of the edges into v.
            indptr, indices, weight = data.adj_t.csr()
            return cls.from_numpy(csc=(indptr, indices), edge_weight=weight, **given)
        raise ValueError("data: it has neither edge_index nor adj_t")

    @classmethod
    def from_dgl(cls, g, x="feat", y="label", edge_weight=None, edge_ids=False):
        """A graph of a homogeneous `dgl.DGLGraph`; `x`, `y` name its node data, `edge_weight` its edge data."""
        sources, targets = g.edges(order="eid")
        data = {name: g.ndata.get(key) for name, key in
                (("x", x), ("y", y), ("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask"))}
        data = {name: None if values is None else values.bool() if name in ("train", "valid", "test") else values
                for name, values in data.items()}
        weight = None if edge_weight is None else g.edata[edge_weight]
        pair = np.stack([arrays.to_numpy("edges", ids)[0] for ids in (sources, targets)])
        return cls.from_numpy(pair, num_nodes=g.num_nodes(), edge_weight=weight, edge_ids=edge_ids, **data)

    @classmethod
    def from_networkx(cls, g, x=None, y=None, edge_weight=None, **splits):
        """A graph of a `networkx` graph; nodes are numbered in its order, edges of an undirected one lead both ways.

        `x`, `y` name node attributes, `edge_weight` an edge attribute; `splits` are as in :meth:`from_numpy`.
        """
        number = {node: i for i, node in enumerate(g)}
        edges = [(number[u], number[v], d.get(edge_weight, 1.0)) for u, v, d in g.edges(data=True)]
        if not g.is_directed():
            edges += [(v, u, w) for u, v, w in edges if u != v]
        pair = np.array([e[:2] for e in edges], np.int64).reshape(-1, 2).T
        weights = None if edge_weight is None else np.array([e[2] for e in edges], np.float32)
        column = lambda name: None if name is None else np.array([g.nodes[node][name] for node in g])
        return cls.from_numpy(pair, column(x), column(y), num_nodes=len(number), edge_weight=weights, **splits)

    @classmethod
    def from_pandas(cls, edges, nodes=None, source="source", target="target", edge_weight=None, y=None, **splits):
        """A graph of data frames: columns `source`, `target` (node numbers) and `edge_weight` of `edges`; `nodes` has a row a node,
        whose column `y` is its class and all other columns are features."""
        pair = np.stack([edges[source].to_numpy(), edges[target].to_numpy()])
        weights = None if edge_weight is None else edges[edge_weight].to_numpy()
        x = labels = None
        if nodes is not None:
            labels = None if y is None else nodes[y].to_numpy()
            columns = [name for name in nodes.columns if name != y]
            x = nodes[columns].to_numpy(np.float32) if columns else None
            splits.setdefault("num_nodes", len(nodes))
        return cls.from_numpy(pair, x, labels, edge_weight=weights, **splits)

    @classmethod
    def from_ogb(cls, path, output=None, **options):
        """A graph of a node property prediction dataset of the Open Graph Benchmark: `path` is its folder, with `raw`, `split` and
        `mapping`, or `raw` alone. `output` is the dataset directory to make, default a temporary one that is read to memory;
        `options` are those of `morphgl import ogb --help`."""
        from . import commands

        with tempfile.TemporaryDirectory() as temporary:
            made = os.path.join(temporary, "graph") if output is None else os.fspath(output)
            commands.run("import", None, ["ogb", os.fspath(path), "-o", made], options)
            return cls.open(made)

    def save(self, path, replace=False):
        """Writes the graph as a dataset directory, which the `morphgl` command and :meth:`open` read."""
        self._native.save(os.fspath(path), replace)

    @property
    def num_nodes(self):
        """Number of nodes."""
        return self._native.num_nodes

    @property
    def num_edges(self):
        """Number of directed edges."""
        return self._native.num_edges

    @property
    def num_classes(self):
        """Number of classes; 0 without labels."""
        return self._native.num_classes

    @property
    def num_features(self):
        """Features a node; 0 without features."""
        features = self._native.features
        return 0 if features is None else features.shape[1]

    @property
    def indptr(self):
        """Offsets of the nodes' lists, int64 `[nodes + 1]`; read-only, not a copy."""
        return np.asarray(self._native.indptr)

    @property
    def indices(self):
        """Sources of the edges into each node, int32 `[edges]`; read-only, not a copy."""
        return np.asarray(self._native.indices)

    @property
    def weights(self):
        """Edge weights in the order of `indices`, float32 `[edges]`, or None."""
        weights = self._native.weights
        return None if weights is None else np.asarray(weights)

    @property
    def x(self):
        """Features `[nodes, features]` in their stored type, or None; bfloat16 as uint16. Read-only, not a copy."""
        features = self._native.features
        return None if features is None else np.asarray(features)

    @property
    def y(self):
        """Classes, int32 `[nodes]`, -1 for none; None without labels."""
        labels = self._native.labels
        return None if labels is None else np.asarray(labels)

    def split(self, name):
        """Nodes of the split `name`: "train", "valid" or "test"; int32."""
        return np.asarray(self._native.split(name))

    def __repr__(self):
        features = "" if self._native.features is None else f", {self.num_features} {self._native.features.dtype} features"
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges{features}, {self.num_classes} classes)"
