"""Graphs, from whatever holds one."""

import json
import os
import tempfile
import warnings

import numpy as np

from . import _morphgl, arrays, examples

SPLITS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
# Pairs of links by name, as a dataset names their arrays.
PAIRS = {"train": "train_edges", "valid": "valid_edges", "test": "test_edges", "train_negatives": "train_edges_negatives",
         "valid_negatives": "valid_edges_negatives", "test_negatives": "test_edges_negatives"}


class Graph:
    """A graph with its node data, in memory or in mapped files.

    Arrays that fit as they are (int32 ids, int64 offsets, float32/float16/bfloat16/uint8 features, all contiguous) are not copied:
    **do not write to them while the graph or one of its loaders exists.** An edge (u, v) means that v aggregates u.
    """

    def __init__(self, native, edge_order=None, *, node_names=None, source=None, attributes=None):
        self._native, self._edge_order = native, edge_order
        # Of a typed graph in memory: the position of each edge in the source's `edge_index` of its type, in the order of `indices`.
        self._type_order = None
        # What `graph.json` says of the source, such as names of classes; of a graph with a directory it is read when it is asked for.
        self._node_names, self._source = node_names, source
        # Of a PyG `Data`: tensors with a row per node, with one per edge, and all else, by name; gathered for PyG's mini-batches.
        self._attributes = attributes or {"node": {}, "edge": {}, "graph": {}}
        # The dimension along which such a tensor has an element per node or edge, where it is not the first; and features, labels and
        # weights that PyG's mini-batches have in another type or shape than the graph.
        self._dims, self._exact = {}, {"node": {}, "edge": {}}
        self._weight_name = "edge_weight"
        # Whether the targets were given as one number per node, [nodes], as mini-batches then have them.
        self._flat_targets = False
        # Whether a directory was mapped.
        self._mmap = False

    @classmethod
    def open(cls, path, mmap=False, verify=True):
        """Opens the dataset directory `path`, as `morphgl import`, `morphgl generate` and :meth:`save` make it.

        `mmap` leaves the arrays in the files; `verify` compares checksums and looks for NaN, reading all data once.
        """
        graph = cls(_morphgl.Graph.open(os.fspath(path), mmap, verify))
        graph._mmap = bool(mmap)
        return graph

    @classmethod
    def from_numpy(cls, edge_index=None, x=None, y=None, *, num_nodes=None, csc=None, edge_weight=None, targets=None,
                   train=None, valid=None, test=None, train_edges=None, valid_edges=None, test_edges=None, train_negatives=None,
                   valid_negatives=None, test_negatives=None, edge_ids=False, edge_attr=None, edge_label_index=None, edge_label=None,
                   time=None, edge_time=None, task=None):
        """A graph of arrays or tensors.

        `edge_index`: int `[2, edges]`, sources then targets, sorted here; or `csc`: `(indptr, indices)`, offsets `[nodes + 1]` and
        the sources of each node's edges. `x`: `[nodes, features]`, finite. `y`: int `[nodes]`, -1 for none, or names of classes,
        which are numbered in their order; a `y` of several columns or with fractions is `targets`. `targets`: `[nodes]` or
        `[nodes, K]`, real values or several labels as 0 and 1, NaN where unknown. `edge_weight`: `[edges]`, finite and not negative.
        `train`, `valid`, `test`: node ids, or masks `[nodes]`. `num_nodes`: else of `csc`, `x`, `y`, `targets` or the highest id.
        `train_edges`, `valid_edges`, `test_edges`: pairs of links `[2, pairs]`, sources then targets, to train, validate and test on;
        without `train_edges` the graph's edges are trained on. Messages pass along the graph's edges alone. `valid_negatives`,
        `test_negatives`: pairs that do not exist, which those are ranked against: one list for all, or as many of each pair's
        source, in the order of the pairs; without them, drawn ones. `train_negatives`: pairs to train against, as many of each of
        `train_edges`, in their order (`negative_distribution="given"`).
        `edge_attr`: `[edges, features]`, finite, features of the edges, which `gat` and `gin` read (PyG's `edge_dim`).
        `edge_ids`: keeps each edge's position in `edge_index`, 4 bytes per edge, for loaders with `edge_ids=True`.
        `edge_label_index` `[2, pairs]`, `edge_label` `[pairs]` or `[pairs, K]`: edges, in the graph or not, of which a class, labels or values
        are learned (`train(…, on="edges")`). Whole numbers from 0 are classes and values, as the task has it; -1 or NaN is none; names are
        classes. `train_edges`, `valid_edges`, `test_edges` are positions among these pairs then, or masks `[pairs]`; default: all to train on.
        `time`, `edge_time`: int `[nodes]`, `[edges]`, from when on a node or an edge is there.
        `task`: rows that are learned in place of nodes, a table per split: `{"train": {"node": ids, "time": times, "y": labels}, "valid": …,
        "test": …}`, dicts of arrays or data frames, with `targets` as those of nodes; `y`, `targets` and splits of nodes are left out then.
        """
        if (edge_index is None) == (csc is None):
            raise ValueError("edge_index: give it or csc, and not both")
        features, bf16 = (None, False) if x is None else arrays.features("x", x)
        if task is not None and any(given is not None for given in (y, targets, train, valid, test)):
            raise ValueError("task: rows of a task are learned in place of nodes; leave y, targets, train, valid and test out")
        classes, class_names, values, target_names, flat = examples.learned(y, targets)
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
                rows = [len(rows) for rows in (features, classes, values) if rows is not None]
                ends = [int(nodes.max()) + 1 for nodes in (sources, targets) if len(nodes)]
                num_nodes = max(rows or ends, default=0)
            indptr, indices, order = (np.asarray(part) for part in _morphgl.csc(sources, targets, int(num_nodes)))
            indptr, indices = indptr.view(np.uint64), indices.view(np.uint32)
            weights = None
            if edge_weight is not None:
                weights = arrays.weights("edge_weight", edge_weight, len(sources))[order]
        splits = [arrays.nodes(name, ids, num_nodes) for name, ids in (("train", train), ("valid", valid), ("test", test))]
        native = _morphgl.Graph.from_csc(indptr, indices, weights, features, bf16, classes, values, splits)
        negatives = [None if ends is None else arrays.pairs(name, ends) for name, ends in
                     (("train_negatives", train_negatives), ("valid_negatives", valid_negatives), ("test_negatives", test_negatives))]
        of_edges = {"train_edges": train_edges, "valid_edges": valid_edges, "test_edges": test_edges}
        source = {}
        if edge_label_index is not None or edge_label is not None:
            pairs, source = examples.labelled_edges(edge_label_index, edge_label, list(of_edges.values()))
        else:
            pairs = [(None if ends is None else arrays.pairs(name, ends),) for name, ends in of_edges.items()]
        native = examples.with_pairs(native, pairs, negatives)
        if time is not None or edge_time is not None:
            of_edges = None if edge_time is None else arrays.times("edge_time", edge_time, len(indices))
            of_edges = of_edges if order is None or of_edges is None else of_edges[order]
            native = _morphgl.with_rest(native, native.name, native.num_classes, None, None,
                                        None if time is None else arrays.times("time", time, num_nodes), of_edges)
        names = {"class_names": class_names, "target_names": target_names}
        if edge_attr is not None:
            ids = np.arange(len(indices), dtype=np.uint32) if order is None else order.astype(np.uint32)
            native = native.with_edge_features(ids, [arrays.features("edge_attr", edge_attr)])
        # False: the edges were sorted, and their positions are not kept.
        graph = cls(native, order if edge_ids or order is None else False,
                    source={**source, **{key: value for key, value in names.items() if value is not None}})
        graph._flat_targets = flat
        return graph if task is None else examples.with_task(graph, task)

    @classmethod
    def from_pyg(cls, data, edge_ids=False, weight_attr=None, *, valid=None, test=None, task=None):
        """A graph of a `torch_geometric.data.Data`: `edge_index` or `adj_t`, `x`, `y`, its split masks, and as weights `edge_weight` or
        the edge attribute `weight_attr`; an `edge_attr` of fractions, `[edges, features]`, as features of edges. Its other attributes
        (`edge_attr` too, `pos`, masks, …) are kept as they are, for PyG's mini-batches.

        Of `train, valid, test = RandomLinkSplit(…)(data)`, `from_pyg(train, valid=valid, test=test)` has the pairs of `edge_label_index`
        to train, validate and test on: those of `edge_label` 1 and, to validate and test, against those of 0. Messages pass along the
        edges of `data` alone. Where an `edge_label` is another number than 0 and 1, pairs are labelled edges, as of :meth:`from_numpy`.

        Of a `HeteroData`, a graph with its node and edge types: `edge_index`, weights, `edge_attr` and `time` of each edge type; `x`, `time`, and of
        one node type `y` and split masks; pairs of `edge_label_index` as above, each of its edge type. :meth:`nodes` says which ids the nodes of a
        type have.

        `task`: as of :meth:`from_numpy`, of a `HeteroData` with `"node": (type, ids)`, ids within the type; `data.time` is then read, too."""
        if hasattr(data, "node_types") and hasattr(data, "edge_types"):
            from . import typed

            if edge_ids:
                raise ValueError("data: edge_ids is of Data of one node and one edge type alone; leave it out")
            return typed.from_pyg(data, weight_attr, valid, test, task)
        if not hasattr(data, "edge_index"):
            raise TypeError(f"data: {type(data).__name__} is neither Data nor HeteroData")
        weight_attr = weight_attr or "edge_weight"
        if weight_attr != "edge_weight" and data.get(weight_attr) is None:
            raise ValueError(f"weight_attr: the data has no {weight_attr!r}; it has {', '.join(map(repr, data.keys()))}")
        given = {"x": data.get("x"), "y": data.get("y"), "num_nodes": data.num_nodes, **link_splits(data, valid, test)}
        attributes, dims = {"node": {}, "edge": {}, "graph": {}}, {}
        read = ("x", "y", "edge_index", "adj_t", weight_attr, "num_nodes")
        for name, value in data:
            if name not in read and value is not None:
                kind = "node" if data.is_node_attr(name) else "edge" if data.is_edge_attr(name) else "graph"
                attributes[kind][name] = value
                dim = data.__cat_dim__(name, value) if kind != "graph" else 0
                if isinstance(dim, int) and dim:
                    dims[name] = dim
        for name, mask in SPLITS.items():
            nodes = data.get(mask)
            if nodes is not None and nodes.dim() == 2:
                raise ValueError(f"{mask}: {nodes.shape[1]} splits; choose one: data.{mask} = data.{mask}[:, 0]")
            given[name] = nodes
        if task is not None:
            given.update(task=task, time=data.get("time"))
        if data.get("edge_index") is not None:
            # Edges are sorted: attributes of edges are found again by their positions.
            edge_ids = edge_ids or bool(attributes["edge"])
            edge_attr = attributes["edge"].get("edge_attr")
            if edge_attr is not None and (edge_attr.dim() != 2 or not edge_attr.shape[1] or not edge_attr.is_floating_point()):
                edge_attr = None
            graph = cls.from_numpy(data.edge_index, edge_weight=data.get(weight_attr), edge_ids=edge_ids, edge_attr=edge_attr, **given)
        elif data.get("adj_t") is not None:
            # Row v of the transposed adjacency matrix lists the sources of the edges into v.
            indptr, indices, weight = data.adj_t.csr()
            graph = cls.from_numpy(csc=(indptr, indices), edge_weight=weight, **given)
        else:
            raise ValueError("data: it has neither edge_index nor adj_t")
        graph._attributes, graph._dims, graph._weight_name = attributes, dims, weight_attr
        weight = data.get(weight_attr)
        if weight is not None and (weight.dim() != 1 or not is_stored(weight, graph._native.weights)):
            graph._exact["edge"][weight_attr] = weight
        for name, stored in (("x", graph._native.features), ("y", graph._native.labels or graph._native.targets)):
            values = data.get(name)
            if values is not None and not is_stored(values, stored, "int64" if name == "y" and graph._native.labels else None):
                graph._exact["node"][name] = values
        return graph

    @classmethod
    def from_dgl(cls, g, x="feat", y="label", edge_weight=None, edge_ids=False):
        """A graph of a `dgl.DGLGraph`; `x`, `y` name its node data, `edge_weight` its edge data. Node and edge types are kept, where
        there are several; then `time` of nodes and edges is read, too."""
        if len(g.ntypes) > 1 or len(g.canonical_etypes) > 1:
            from . import typed

            if edge_ids:
                raise ValueError("edge_ids: of graphs of one node and one edge type alone; leave it out")
            return typed.from_dgl(g, x, y, edge_weight)
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

        `x`, `y` name node attributes, `edge_weight` an edge attribute. A node without `y` has no class, or unknown targets; one without
        `x`, and an edge without `edge_weight`, are refused. `splits` are as in :meth:`from_numpy`, ids being numbers in the graph's order.
        """
        number = {node: i for i, node in enumerate(g)}
        edges = [(number[u], number[v], d) for u, v, d in g.edges(data=True)]
        for u, v, d in g.edges(data=True):
            if edge_weight is not None and edge_weight not in d:
                raise ValueError(f"edge_weight: the edge from {u!r} to {v!r} has no attribute {edge_weight!r}; give every edge one")
        if not g.is_directed():
            edges += [(v, u, d) for u, v, d in edges if u != v]
        pair = np.array([e[:2] for e in edges], np.int64).reshape(-1, 2).T
        weights = None if edge_weight is None else np.array([e[2][edge_weight] for e in edges], np.float32)
        features = classes = None
        if x is not None:
            for node, d in g.nodes(data=True):
                if x not in d:
                    raise ValueError(f"x: the node {node!r} has no attribute {x!r}; give every node one")
            features = np.array([d[x] for _, d in g.nodes(data=True)])
        if y is not None:
            classes = [d.get(y) for _, d in g.nodes(data=True)]
            if classes and all(label is None for label in classes):
                raise ValueError(f"y: no node has the attribute {y!r}; name the one of the classes")
            lists = [label for label in classes if isinstance(label, (list, tuple, np.ndarray))]
            none = np.nan if not lists else [np.nan] * len(lists[0])
            classes = np.array([none if label is None else label for label in classes], float if lists else object)
        graph = cls.from_numpy(pair, features, classes, num_nodes=len(number), edge_weight=weights, **splits)
        if list(g) != list(range(len(number))):
            names = graph._node_names = list(g)
            # Names are stored in their order, and random numbers take the nodes in the order of their names.
            if all(isinstance(name, str) for name in names):
                keys = np.empty(len(names), np.uint32)
                keys[sorted(range(len(names)), key=lambda node: names[node].encode())] = np.arange(len(names))
                graph._native = graph._native.with_draw_keys(keys.tolist())
        return graph

    @classmethod
    def from_pandas(cls, edges, nodes=None, source=None, target=None, edge_weight=None, y=None, *, x=None, targets=None,
                    id=None, ids=None, train=None, valid=None, test=None, train_edges=None, valid_edges=None, test_edges=None,
                    train_negatives=None, valid_negatives=None, test_negatives=None, edge_ids=False, unknown_nodes=None, task=None, **options):
        """A graph of data frames, read as `morphgl import edges edges.csv --nodes nodes.csv` reads their files.

        `edges` has a row per edge. `source`, `target` and `edge_weight` name its columns; default: by known names, such as `source`,
        `src` or `from`, and `weight`. `nodes` has a row per node: its column of ids, or its index, says of which node; without either,
        row i is node i. `id`, `y` and `x` name its columns of ids, of classes (numbers or names) and the list of those of features;
        default: by known names, such as `id`, `label` and `f0`, `f1`, … Columns that are none of these are refused, unless `x` is given.
        `targets` lists its columns of real values, or of several labels as 0 and 1; a `y` that lists several, or names one of numbers
        with fractions, is `targets`. `train_edges`, `valid_edges`, `test_edges` and `train_negatives`, …: pairs of links as of
        :meth:`from_numpy`, by ids: frames with the columns of `edges`, or `[2, pairs]`.

        `ids`: "keep" numbers as they are, "compact" numbers nodes anew in the order of their ids, "strings" are names. Default:
        "strings" for text, "compact" where nodes have ids, else "keep"; :attr:`node_ids` has them. `train`, `valid`, `test`: ids, or
        masks by row of `nodes`. `unknown_nodes="drop"` leaves out the edges of ids that `nodes` does not list, with a warning that
        counts them; default: refused where nodes have features. `task`: rows as of :meth:`from_numpy`, with ids as `node`. `options` are those of `morphgl import edges --help`: `symmetrise=True`, `split="0.6,0.2,0.2"`, …
        """
        from . import frames

        pairs = {"train_edges": train_edges, "valid_edges": valid_edges, "test_edges": test_edges, "train_negatives": train_negatives,
                 "valid_negatives": valid_negatives, "test_negatives": test_negatives}
        made, order = frames.imported(edges, nodes, source, target, edge_weight, y, x, targets, id, ids,
                                      {"train": train, "valid": valid, "test": test}, pairs, edge_ids, unknown_nodes, options)
        made._edge_order = order
        return made if task is None else examples.with_task(made, task, lambda what, nodes: frames.known(what, made, nodes))

    @classmethod
    def from_ogb(cls, path, output=None, **options):
        """A graph of a node property prediction dataset of the Open Graph Benchmark: `path` is its folder, with `raw`, `split` and
        `mapping`, or `raw` alone. `output` is the dataset directory to make, default a temporary one that is read to memory;
        `options` are those of `morphgl import ogb --help`."""
        from . import commands

        with tempfile.TemporaryDirectory() as temporary:
            made = os.path.join(temporary, "graph") if output is None else os.fspath(output)
            commands.run("import", None, ["ogb", os.fspath(path), "-o", made], options)
            return cls.open(made) if output is not None else cls.open(made)._detached()

    def _detached(self):
        """The graph without its directory, which may be removed, but with what else is read from there."""
        return Graph(self._native.detached(), node_names=self._native.names(), source=provenance(self._native.path))

    def save(self, path, replace=False):
        """Writes the graph as a dataset directory, which the `morphgl` command and :meth:`open` read, with the names of its classes,
        feature columns and nodes. Ids of nodes have to be text or numbers from 0 on."""
        names, numbers = None if self._native.path else self._node_names, None
        if names is not None and not all(isinstance(name, str) for name in names):
            if not all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) and name >= 0 for name in names):
                raise ValueError("node_ids: nodes are known by neither text nor numbers from 0 on, which a dataset cannot hold; "
                                 "name them so first, for example by networkx.relabel_nodes(g, str)")
            names, numbers = None, [int(name) for name in names]
        self._native.save(os.fspath(path), replace, json.dumps(self._source or {}), numbers, names)

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
        """Features per node; 0 without features."""
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

    @property
    def targets(self):
        """Real-valued targets, float32 `[nodes, K]`, NaN where unknown; None without any. Read-only, not a copy."""
        targets = self._native.targets
        return None if targets is None else np.asarray(targets)

    @property
    def node_ids(self):
        """Ids of the nodes in the graph's source, in the order of the nodes: numbers, or a list of names; None where node i has the id i."""
        if self._node_names is None:
            self._node_names = self._native.names()
        if self._node_names is not None:
            return list(self._node_names)
        ids = self._native.node_ids
        return None if ids is None else np.asarray(ids)

    @property
    def class_names(self):
        """Names of the classes, where labels are names; else None."""
        return self._provenance().get("class_names")

    @property
    def target_names(self):
        """Names of the columns of :attr:`targets`, where they have names; else None."""
        return self._provenance().get("target_names")

    @property
    def node_types(self):
        """Names of the node types, in the order of their ids; empty of a graph without types."""
        return [name for name, _ in self._native.node_types]

    @property
    def edge_types(self):
        """The edge types as `(source, name, target)`; empty of a graph without types."""
        return self._native.edge_types

    def nodes(self, node_type):
        """The ids of the nodes of a type, as a range."""
        start = 0
        for name, count in self._native.node_types:
            if name == node_type:
                return range(start, start + count)
            start += count
        raise ValueError(f"nodes: there is no node type {node_type!r}; there are {', '.join(map(repr, self.node_types))}")

    def _split_sizes(self):
        """Number of nodes, or of rows of the task, of each split."""
        task = _morphgl.task_of(self._native)
        return {name: len(np.asarray(self._native.split(name) if task is None else task[-1][at])) for at, name in enumerate(SPLITS)}

    def _provenance(self):
        if self._source is None:
            self._source = provenance(self._native.path) if self._native.path else {}
        return self._source

    @property
    def task(self):
        """Rows of the graph's task, as :meth:`from_numpy` takes them, copied; None of a graph without."""
        return examples.task_of(self._native)

    def edge_label(self, name):
        """Labels of the pairs of :meth:`edge_split` of the split `name`, "train", "valid" or "test": classes, int32 `[pairs]`, -1 for none, or
        values, float32 `[pairs, K]`, NaN where unknown; None without any."""
        _, classes, values = _morphgl.of_pairs(self._native)[examples.SPLITS.index(name)]
        labels = values if classes is None else classes
        return None if labels is None else np.asarray(labels)

    def split(self, name):
        """Nodes of the split `name`: "train", "valid" or "test"; int32."""
        return np.asarray(self._native.split(name))

    def edge_split(self, name):
        """Pairs of links, int32 `[2, pairs]`, sources then targets: those to "train" on, which are the graph's edges where it names none
        (of a symmetric graph each once, without self-loops), to validate ("valid") and to "test" on, "train_negatives",
        "valid_negatives" and "test_negatives"."""
        if name not in PAIRS:
            raise ValueError(f"edge_split: {name!r}; give one of {', '.join(map(repr, PAIRS))}")
        pairs = self._native.pairs(PAIRS[name])
        return np.zeros((2, 0), np.int32) if pairs is None else np.asarray(pairs).T

    def info(self):
        """The graph in numbers, an :class:`~morphgl.info.Info` with the document of `morphgl info --json`: degrees, splits, types, sizes. Of a graph
        in memory it is counted in O(nodes + edges), without the fields of a directory."""
        from . import commands
        from .info import Info

        if self._native.path:
            return commands.of(Info, commands.run("info", None, [self._native.path], {}))
        document = commands.run("info", self, [], {})
        # What Python alone knows of a graph in memory.
        document["provenance"] = self._source or {}
        if document["targets"] is not None:
            document["targets"]["names"] = self.target_names
        return commands.of(Info, document)

    def __reduce__(self):
        """A graph that was opened from a directory is pickled by the name of the directory, and opened again, which fails where the dataset
        is another one; a graph in memory with all its arrays."""
        from .pickled import reduced

        return reduced(self)

    def __copy__(self):
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __deepcopy__(self, memo):
        # What a graph has does not change.
        return self.__copy__()

    def __repr__(self):
        native = self._native
        known = [f"{self.num_nodes} nodes", f"{self.num_edges} edges"]
        counted = lambda names, noun: f"{len(names)} {noun} types ({', '.join(names[:4])}{', …' if len(names) > 4 else ''})"
        if native.node_types:
            known += [counted(self.node_types, "node"), counted(["/".join(of) for of in self.edge_types], "edge")]
        if native.features is not None:
            known.append(f"{self.num_features} {native.features.dtype} features")
        known += [f"{of.shape[1]} {of.dtype} features of {name!r}" for name, of in zip(self.node_types, native.features_by_type) if of is not None]
        known.append(f"{self.num_classes} classes")
        if native.targets is not None:
            known.append(f"{native.targets.shape[1]} targets")
        splits = [f"{count} {name}" for name, count in self._split_sizes().items() if count]
        known += [f"splits {', '.join(splits)}"] if splits else []
        known += [f"at {native.path!r}"] if native.path else []
        return f"Graph({', '.join(known)})"


def is_stored(values, stored, dtype=None):
    """Whether a tensor is what mini-batches have of a buffer, in its type or in another one."""
    name = dtype or stored.dtype
    same = values.dim() == len(stored.shape) or (values.dim() == 1 and stored.shape[1:] == (1,))
    return same and str(values.dtype) == f"torch.{name}"


def link_splits(data, valid, test):
    """Pairs that PyG's `Data` have as `edge_label_index` and `edge_label`, as arguments of `from_numpy`: links, or labelled edges."""
    given, found = {}, {}
    for split, of in (("train", data), ("valid", valid), ("test", test)):
        if of is None or of.get("edge_label_index") is None:
            if of is not None and of is not data:
                raise ValueError(f"{split}: it has no edge_label_index; give the Data of RandomLinkSplit, and masks of nodes in data")
            continue
        pairs, _ = arrays.to_numpy("edge_label_index", of.edge_label_index)
        label = of.get("edge_label")
        found[split] = pairs, np.ones(pairs.shape[1]) if label is None else arrays.to_numpy("edge_label", label)[0]
        if len(found[split][1]) != pairs.shape[1]:
            raise ValueError(f"{split}: {len(found[split][1])} labels in edge_label for {pairs.shape[1]} pairs of edge_label_index")
    # Other labels than that a pair exists or does not.
    if any(label.ndim != 1 or not np.isin(label, (0, 1)).all() for _, label in found.values()):
        ends = np.cumsum([0, *(found[split][0].shape[1] if split in found else 0 for split in examples.SPLITS)])
        positions = {f"{split}_edges": np.arange(*ends[at:at + 2]) for at, split in enumerate(examples.SPLITS)}
        return {"edge_label_index": np.concatenate([pairs for pairs, _ in found.values()], axis=1),
                "edge_label": np.concatenate([label for _, label in found.values()]), **positions}
    for split, (pairs, label) in found.items():
        given[f"{split}_edges"] = pairs[:, label == 1]
        negatives = pairs[:, label == 0]
        if split == "train" and negatives.shape[1]:
            warn_of_negatives(negatives.shape[1])
        elif split != "train" and negatives.shape[1]:
            given[f"{split}_negatives"] = negatives
    return given


def warn_of_negatives(count):
    """Says that negatives to train on are left out, to the caller of `from_pyg`."""
    warnings.warn(f"edge_label: {count} pairs of label 0 to train on are left out, since training draws negatives; "
                  "RandomLinkSplit(add_negative_train_samples=False) makes none", stacklevel=5)


def provenance(path):
    """Where the dataset at `path` came from."""
    with open(os.path.join(path, "graph.json"), encoding="utf-8") as file:
        return json.load(file).get("provenance", {})
