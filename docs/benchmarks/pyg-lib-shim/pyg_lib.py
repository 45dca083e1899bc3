"""Stands in for pyg-lib where it cannot be installed, so that PyG's layers can be measured at all.

pyg-lib samples for PyG; its wheels are in no package registry. This module gives `torch.ops.pyg.neighbor_sample`, which
PyG and the peers' harness call, by torch-sparse's sampler, PyG's own older one: the same rule, the same order of nodes and
edges, and the numbers of nodes and edges hop by hop, which are counted from its result. Sampling is far slower than
pyg-lib's, so nothing measured with it says anything about PyG's sampling; training steps do not depend on it.
"""
import torch

__version__ = "none, torch-sparse samples"


class ops:
    """None of pyg-lib's other operations: PyG uses torch's own."""


class sampler:
    """What PyG looks at to know the arguments."""

    @staticmethod
    def neighbor_sample(rowptr, col, seed, num_neighbors, node_time=None, edge_time=None, seed_time=None,
                        edge_weight=None, csc=False, replace=False, directed=True, disjoint=False,
                        temporal_strategy="uniform", return_edge_id=True):
        if disjoint or not directed or not csc or any(t is not None for t in (node_time, edge_time, edge_weight)):
            raise ValueError("torch-sparse samples plain directed graphs in CSC form alone")
        node, row, col, edge = torch.ops.torch_sparse.neighbor_sample(rowptr, col, seed, num_neighbors, replace, True)
        nodes, edges = [seed.numel()], []
        found = seed.numel()
        for _ in num_neighbors:
            # Edges come hop by hop, their targets ascending: those of this hop end in nodes found before it.
            first = sum(edges)
            end = int(torch.searchsorted(col, found)) if col.numel() else 0
            edges.append(end - first)
            before, newest = found, int(row[first:end].max()) + 1 if end > first else 0
            found = max(found, newest)
            nodes.append(found - before)
        return row, col, node, edge, nodes, edges


_library = torch.library.Library("pyg", "DEF")
_library.define(
    "neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, Tensor? node_time, Tensor? edge_time, "
    "Tensor? seed_time, Tensor? edge_weight, bool csc, bool replace, bool directed, bool disjoint, "
    "str temporal_strategy, bool return_edge_id) -> (Tensor, Tensor, Tensor, Tensor, int[], int[])")
_library.impl("neighbor_sample", sampler.neighbor_sample, "CPU")

# Registers torch.ops.torch_sparse. Last, because it looks at this module while it is imported.
import torch_sparse  # noqa: E402, F401
