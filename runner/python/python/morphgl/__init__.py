"""Mini-batches of graph neural networks, sampled and gathered by MorphGL's threads, for models in PyTorch, PyG and DGL.

>>> import morphgl
>>> graph = morphgl.Graph.from_pyg(data)
>>> loader = morphgl.NeighborLoader(graph, num_neighbors=[15, 10, 5], batch_size=1024, input_nodes="train", shuffle=True)
>>> for batch in loader:
...     out = model(batch.x, batch.edge_index)[:batch.batch_size]
"""

from ._morphgl import __version__
from .graph import Graph
from .loader import Batch, Block, NeighborLoader

__all__ = ["Batch", "Block", "Graph", "NeighborLoader", "__version__"]
