"""Mini-batches of pairs of nodes, for link prediction."""

import numpy as np

from . import arrays
from .devices import device_of
from .graph import Graph
from .loader import BY_PYG, Loader, by_name, choose, default_output
from .passes import positions

# What follows `num_neighbors` in PyG's signature.
POSITIONAL = ("edge_label_index", "edge_label", "edge_label_time", "replace", "subgraph_type", "disjoint", "temporal_strategy",
              "neg_sampling", "neg_sampling_ratio", "time_attr", "weight_attr", "transform", "transform_sampler_output", "is_sorted",
              "filter_per_worker", "neighbor_sampler", "directed")


class LinkNeighborLoader(Loader):
    """Samples the neighbourhoods of pairs of nodes, in the place of `torch_geometric.loader.LinkNeighborLoader`.

    A mini-batch has `batch_size` pairs and their negatives; its seeds, the first `batch_size` of `n_id`, are their end nodes, each once, by
    first appearance. `edge_label_index` are the pairs in positions of `n_id`, `edge_label` their labels, `input_id` the positions of
    the pairs among those given. The same `seed` gives the same mini-batches, those that
    `morphgl.train(graph, module, task="link")` trains on, whatever the number of threads.

    The arguments are PyG's, in its order; those that are not supported are refused with what to do instead. Besides those of
    :class:`NeighborLoader`, but for `output="dgl"`:

    edge_label_index
        The pairs: `[2, pairs]`, sources then destinations, or "train", "valid" or "test" of the graph; None for all its edges, in the
        order of its source where the graph keeps the positions of its edges (`edge_ids=True`), else in that of its columns.
    edge_label
        Their labels `[pairs, …]`, which mini-batches have the rows of. With negatives of mode "binary", labels from 0 on are raised by
        1, as PyG does, and negatives have 0; without labels pairs have 1.
    neg_sampling
        "binary": negatives follow the pairs in `edge_label_index`. "triplet": mini-batches have `src_index`, `dst_pos_index` and
        `dst_neg_index` instead. Or PyG's `NegativeSampling`, or `(mode, amount)`, of a whole number of negatives per pair. A
        negative keeps the source of its pair in both modes; PyG draws both ends of binary ones.
    neg_sampling_ratio
        As `neg_sampling=("binary", ratio)`.
    negative_distribution
        What the destinations of negatives are drawn from: all nodes ("uniform") or by in-degree^0.75 ("degree"), or the destinations
        of the other pairs of the mini-batch ("in-batch"), or the negatives that the graph has of each pair ("given"), all of them or
        as many as `neg_sampling` says; for pairs of "train", "valid" or "test".
    avoid_edges
        Whether negatives that are edges of the graph are drawn again.
    keep_target_edges
        Whether the pairs of a mini-batch that are edges, and their reverses, are sampled, too, as PyG does. By default they are left
        out, so that no prediction reads its answer.
    """

    REPLACED = ("edge_label_index", "edge_label")
    SEEDS = "edge_label_index"

    def __init__(self, data, num_neighbors=(15, 10, 5), *positional, **options):
        self._make(data, num_neighbors, **by_name(POSITIONAL, ("batch_size", "edge_label_index", "edge_label"), positional, options))

    def _make(self, data, num_neighbors, *, edge_label_index=None, edge_label=None, neg_sampling=None, neg_sampling_ratio=None,
              negative_distribution="uniform", avoid_edges=False, keep_target_edges=False, output=None, **options):
        if hasattr(data, "node_types") and not isinstance(data, Graph):
            raise NotImplementedError(f"data: pairs of several edge types are not sampled by this loader; give it to {BY_PYG}")
        if output == "dgl":
            raise NotImplementedError('output: mini-batches of pairs have no form of DGL\'s; give "torch", whose mini-batches have blocks')
        if (output or default_output(device_of(options.get("device")))) == "dlpack":
            raise NotImplementedError('output: torch picks ends and labels of pairs; give "torch"')
        self._mode, amount = negatives_of(neg_sampling, neg_sampling_ratio)
        choose("negative_distribution", negative_distribution, ("uniform", "degree", "in-batch", "given"))
        if self._mode == "triplet" and edge_label is not None:
            raise ValueError("edge_label: triplets have none; leave it out, or give neg_sampling=\"binary\"")
        pairs = {"negatives": amount, "distribution": negative_distribution, "avoid-edges": bool(avoid_edges),
                 "exclude": not keep_target_edges}
        self._pairs = {"neg_sampling": [self._mode, amount], "negative_distribution": negative_distribution, "avoid_edges": bool(avoid_edges),
                       "keep_target_edges": bool(keep_target_edges)}
        given_of = (lambda graph: given_negatives(graph, edge_label_index)) if negative_distribution == "given" else None
        self._open(data, num_neighbors, lambda graph: pairs_of(graph, edge_label_index), pairs, given_of=given_of, output=output,
                   **options)
        self._edge_label = self._checked(edge_label, edge_label_index is None)

    def _identity(self):
        return {**super()._identity(), **self._pairs}

    def _checked(self, edge_label, of_edges):
        """The labels of the pairs, as mini-batches have them."""
        if edge_label is None:
            return None
        if of_edges and self.graph._edge_order is False:
            raise ValueError("edge_label: the graph did not keep the positions of its edges; give edge_ids=True where it is made, or "
                             "edge_label_index")
        label = edge_label if hasattr(edge_label, "detach") else np.asarray(edge_label)
        if len(label) != len(self._seeds):
            raise ValueError(f"edge_label: {len(label)} labels for {len(self._seeds)} pairs; give one each")
        if self.output != "numpy" and not hasattr(label, "detach"):
            import torch

            label = torch.from_numpy(label)
        elif self.output == "numpy":
            label = arrays.to_numpy("edge_label", label)[0]
        return label + 1 if self._mode == "binary" and len(label) and label.min() == 0 else label

    def _labels(self, order):
        """A function that gives each mini-batch of an epoch in this order its pairs, their labels and positions."""

        def label(made, batch):
            convert = np.asarray
            if self.output != "numpy":
                import torch

                convert = lambda given: torch.from_dlpack(given) if hasattr(given, "__dlpack__") else torch.from_numpy(given)
            ends, count = convert(batch.pairs), batch.num_positives
            if self.device is not None:
                placed = lambda made: made.to(ends.device)
            else:
                placed = lambda made: made.pin_memory() if self.pin_memory and self.output != "numpy" else made
            input_id = convert(positions(order, batch.index * self.batch_size, count))
            made.input_id = input_id if self.device is None else placed(input_id)
            if self._mode == "triplet":
                negatives = ends[1, count:].reshape(count, -1)
                negatives = negatives[:, 0] if negatives.shape[1] == 1 else negatives
                made.src_index, made.dst_pos_index, made.dst_neg_index = placed(ends[0, :count]), placed(ends[1, :count]), placed(negatives)
                return
            made.edge_label_index = placed(ends)
            labels = None if self._edge_label is None else self._edge_label[input_id]
            if self._mode == "binary":
                none = convert(np.zeros(ends.shape[1] - count, np.float32))
                labels = convert(np.ones(count, np.float32)) if labels is None else labels
                labels = joined(labels, none)
            if labels is not None:
                made.edge_label = placed(labels)

        return label


def joined(labels, zeros):
    """The labels, and as many zeros of their type and shape."""
    if not hasattr(labels, "detach"):
        return np.concatenate([labels, np.zeros((len(zeros), *labels.shape[1:]), labels.dtype)])
    import torch

    return torch.cat([labels, labels.new_zeros((len(zeros), *labels.shape[1:]))])


def negatives_of(neg_sampling, ratio):
    """The mode of negatives, None without any, and their number per pair."""
    if ratio:
        if neg_sampling is not None:
            raise ValueError("neg_sampling_ratio: neg_sampling is given, too; give one of them")
        neg_sampling = ("binary", ratio)
    if neg_sampling is None:
        return None, 0
    if isinstance(neg_sampling, str):
        neg_sampling = (neg_sampling, 1)
    if isinstance(neg_sampling, dict):
        given = {"amount": 1, "src_weight": None, "dst_weight": None, **neg_sampling}
    elif isinstance(neg_sampling, (tuple, list)):
        mode, amount = neg_sampling
        given = {"mode": mode, "amount": amount, "src_weight": None, "dst_weight": None}
    else:
        given = {name: getattr(neg_sampling, name, None) for name in ("mode", "amount", "src_weight", "dst_weight")}
    for name in ("src_weight", "dst_weight"):
        if given[name] is not None:
            raise NotImplementedError(f'neg_sampling: {name}; give negative_distribution="degree" or "in-batch", or leave it out')
    mode, amount = getattr(given["mode"], "value", given["mode"]), given["amount"]
    choose("neg_sampling", mode, ("binary", "triplet"))
    if amount != int(amount) or amount < 1:
        raise NotImplementedError(f"neg_sampling: {amount} negatives per pair; give a whole number, at least 1")
    return mode, int(amount)


def given_negatives(graph, split):
    """Destinations of the negatives that the graph has of each pair of a split, uint32."""
    if not isinstance(split, str):
        raise NotImplementedError('negative_distribution: "given" takes the negatives of a split of the graph; give edge_label_index="train"')
    sources, negatives = graph.edge_split(split)[0], graph.edge_split(f"{split}_negatives")
    count = negatives.shape[1] // max(len(sources), 1)
    if not np.array_equal(np.repeat(sources, count), negatives[0]):
        raise ValueError(f'negative_distribution: the negatives of "{split}" are one list for all pairs, not as many for each; give "uniform"')
    return np.ascontiguousarray(negatives[1]).view(np.uint32)


def pairs_of(graph, edge_label_index):
    """Pairs as uint32 `[pairs, 2]`, of what `edge_label_index` names."""
    if isinstance(edge_label_index, str):
        split = choose("edge_label_index", edge_label_index, ("train", "valid", "test"))
        return np.ascontiguousarray(graph.edge_split(split).T).view(np.uint32)
    if isinstance(edge_label_index, tuple) and edge_label_index and isinstance(edge_label_index[0], (str, tuple)):
        raise NotImplementedError("edge_label_index: an edge type; graphs of several edge types are not read; give pairs alone")
    if edge_label_index is not None:
        return arrays.pairs("edge_label_index", edge_label_index)
    targets = np.repeat(np.arange(graph.num_nodes, dtype=np.uint32), np.diff(graph.indptr))
    edges = np.stack([graph.indices.view(np.uint32), targets], axis=1)
    if graph._edge_order is None or graph._edge_order is False:
        return edges
    return edges[np.argsort(np.asarray(graph._edge_order), kind="stable")]
