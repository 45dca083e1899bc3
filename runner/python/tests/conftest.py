import sys

import numpy as np
import pytest

import morphgl


@pytest.fixture(autouse=True)
def torch_seed():
    """Loaders without a seed draw theirs of torch's generator: the same in every run of a test."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def data():
    """Edges, features, labels and a training mask of a random graph with repeated edges and nodes without any."""
    rng = np.random.default_rng(7)
    edge_index = rng.integers(0, 900, (2, 8000))
    return {
        "edge_index": edge_index,
        "x": rng.standard_normal((1000, 12), dtype=np.float32),
        "y": rng.integers(-1, 5, 1000).astype(np.int32),
        "train": rng.random(1000) < 0.3,
    }


@pytest.fixture
def graph(data):
    return morphgl.Graph.from_numpy(**data)
