"""MorphGL for Python: mini-batches for models in PyTorch, PyG and DGL, and training by measured plans.

>>> import morphgl
>>> graph = morphgl.Graph.from_pyg(data)
>>> loader = morphgl.NeighborLoader(graph, num_neighbors=[15, 10, 5], batch_size=1024, input_nodes="train", shuffle=True)
>>> for batch in loader:
...     out = model(batch.x, batch.edge_index)[:batch.batch_size]
>>> morphgl.train(graph, model, num_neighbors=[15, 10, 5], epochs=10).test_accuracy
"""

from . import datasets
from ._morphgl import __version__
from .commands import evaluate, ops, plan, predict, profile, score_pairs
from .graph import Graph
from .link_loader import LinkNeighborLoader
from .loader import Batch, Block, NeighborLoader
from .models import Model
from .training import train

__all__ = ["Batch", "Block", "Graph", "LinkNeighborLoader", "Model", "NeighborLoader", "__version__", "datasets", "evaluate", "ops", "plan", "predict", "profile",
           "score_pairs", "train"]


def __getattr__(name):
    # `morphgl.pyg` needs torch_geometric, and `TrainedModule` torch, which take seconds to import.
    if name in ("pyg", "TrainedModule"):
        import importlib

        module = importlib.import_module(".pyg" if name == "pyg" else ".trained", __name__)
        return module if name == "pyg" else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
