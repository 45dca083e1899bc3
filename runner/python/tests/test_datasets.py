"""Graphs that ship with other packages; each skipped without its package."""

import sys

import numpy as np
import pytest

import morphgl


def test_the_karate_club_of_networkx():
    pytest.importorskip("networkx")
    graph = morphgl.datasets.karate()
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (34, 156, 34) and sorted(graph.class_names) == ["Mr. Hi", "Officer"]
    assert graph.split("train").tolist() == [0, 33] and len(graph.split("test")) == 32
    # Friendships lead both ways, with the same weight.
    targets = np.repeat(np.arange(34), np.diff(graph.indptr))
    weights = {(u, v): w for u, v, w in zip(graph.indices.tolist(), targets.tolist(), graph.weights.tolist())}
    assert len(weights) == 156 and all(weights[v, u] == w for (u, v), w in weights.items()) and weights[0, 1] == 4
    done = morphgl.train(graph, "gcn", num_neighbors=[-1, -1], hidden=16, lr=0.05, epochs=40, threads=1)
    assert done.test_accuracy > 0.8


def test_characters_of_networkx():
    pytest.importorskip("networkx")
    graph = morphgl.datasets.les_miserables()
    assert (graph.num_nodes, graph.num_edges) == (77, 508) and "Valjean" in graph.node_ids
    assert graph.x is None and graph.y is None and graph.weights.max() == 31


def test_communities_of_torch_geometric():
    datasets = pytest.importorskip("torch_geometric.datasets")
    graph, data = morphgl.datasets.karate_communities(), datasets.KarateClub()[0]
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (34, 156, 4)
    assert graph.y.tolist() == data.y.tolist() and graph.split("train").tolist() == data.train_mask.nonzero().view(-1).tolist()


def test_digits_of_scikit_learn():
    pytest.importorskip("sklearn")
    graph = morphgl.datasets.digits(5)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (1797, 5 * 1797, 64, 10)
    splits = [graph.split(name) for name in ("train", "valid", "test")]
    assert sorted(np.concatenate(splits).tolist()) == list(range(1797)) and (graph.x >= 0).all() and graph.x.max() == 1
    # Sources are nearer than other images.
    of = graph.indices[graph.indptr[7]:graph.indptr[8]]
    distances = np.linalg.norm(graph.x - graph.x[7], axis=1)
    assert distances[of].max() <= np.sort(distances)[6] + 1e-6


@pytest.mark.parametrize("function, name, pip", [("karate", "networkx", "networkx"), ("les_miserables", "networkx", "networkx"),
                                                 ("karate_communities", "torch_geometric", "torch_geometric"), ("digits", "sklearn", "scikit-learn")])
def test_a_package_that_is_missing_is_named(monkeypatch, function, name, pip):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match=rf"morphgl.datasets.{function}: it ships with {name}, .*; pip install {pip}"):
        getattr(morphgl.datasets, function)()
