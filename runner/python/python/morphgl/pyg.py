"""PyG's own interfaces: a sampler for its loaders, and stores over datasets.

>>> from torch_geometric.loader import NodeLoader
>>> sampler = morphgl.pyg.Sampler(data, num_neighbors=[15, 10, 5])
>>> loader = NodeLoader(data, node_sampler=sampler, input_nodes=data.train_mask, batch_size=1024, shuffle=True)

Needs `torch_geometric`, and neither `pyg-lib` nor `torch-sparse`.
"""

from .pyg_sampler import Sampler
from .pyg_stores import FeatureStore, GraphStore, stores

__all__ = ["FeatureStore", "GraphStore", "Sampler", "stores"]
