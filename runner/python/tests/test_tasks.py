"""Tasks besides the class of a node: links of a graph in memory."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph


@pytest.fixture(scope="module")
def blocks():
    """Three blocks of 100 nodes, with edges within them alone, in both directions."""
    rng = np.random.default_rng(5)
    block = np.arange(300) // 100
    sources = np.repeat(np.arange(300), 8)
    targets = rng.integers(0, 100, sources.size) + 100 * block[sources]
    edges = np.stack([np.concatenate([sources, targets]), np.concatenate([targets, sources])])
    return Graph.from_numpy(edges, None, None), block


def test_links_of_a_bare_graph_are_learned(blocks):
    graph, block = blocks
    done = morphgl.train(graph, "gcn", task="link", loss="bpr", decoder="distmult", negatives=3, num_neighbors=[5, 5], batch_size=64,
                         hidden=16, dropout=0.0, lr=0.01, epochs=8, threads=2)
    pairs = np.stack([np.arange(100), 299 - np.arange(100)], axis=1)
    near = np.stack([np.arange(100), (np.arange(100) + 7) % 100], axis=1)
    apart, within = (morphgl.score_pairs(graph, done.model, which) for which in (pairs, near))
    assert apart.shape == within.shape == (100,) and apart.dtype == np.float32
    assert within.mean() > apart.mean()
    with pytest.raises(ValueError, match="pass \\[pairs, 2\\]"):
        morphgl.score_pairs(graph, done.model, np.arange(4))
    with pytest.raises(Exception, match="--edges"):
        morphgl.predict(graph, done.model)


def test_a_loss_of_another_task_is_refused(blocks):
    with pytest.raises(Exception, match="use one of bce, bpr, margin"):
        morphgl.train(blocks[0], "gcn", task="link", loss="mse", epochs=1)
