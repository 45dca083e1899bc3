"""Small real graphs that ship with other Python packages: nothing is downloaded.

>>> graph = morphgl.datasets.digits()
>>> morphgl.train(graph, "gcn", num_neighbors=[10, 10]).test_accuracy

Each function reads its package, which has to be installed, and returns a :class:`~morphgl.Graph` in memory.
"""

import importlib

import numpy as np

from .graph import Graph


def karate():
    """Zachary's karate club, of networkx: 34 members, 156 edges (each friendship both ways) weighted by the occasions that two met at, and the
    club that each joined as class. A member's features are a one-hot of the member; the two leaders are the training split, all
    others the test split."""
    g = package("karate", "networkx").karate_club_graph()
    for member in g:
        g.nodes[member]["x"] = np.eye(len(g), dtype=np.float32)[member]
    leaders = [0, 33]
    return Graph.from_networkx(g, x="x", y="club", edge_weight="weight", train=leaders, test=[member for member in g if member not in leaders])


def les_miserables():
    """Characters of the novel, of networkx: 77 of them, by name (`graph.node_ids`), and 508 edges weighted by the chapters that two are in
    together. There are no features and no classes: for link prediction and embeddings."""
    return Graph.from_networkx(package("les_miserables", "networkx").les_miserables_graph(), edge_weight="weight")


def karate_communities():
    """Zachary's karate club, of torch_geometric (`KarateClub`): 34 members, 156 edges, 4 communities by modularity as classes, a one-hot of
    the member as features, and one training node per community."""
    package("karate_communities", "torch_geometric")
    return Graph.from_pyg(importlib.import_module("torch_geometric.datasets").KarateClub()[0])


def digits(neighbors=10):
    """Handwritten digits, of scikit-learn: 1,797 images of 8 x 8 pixels (0 to 1) as nodes, an edge from each of the `neighbors` nearest images
    by Euclidean distance, and the digit as class. The splits are 60%, 20% and 20% of the images, drawn once and for all."""
    package("digits", "sklearn", "scikit-learn")
    data = importlib.import_module("sklearn.datasets").load_digits()
    x = (data.data / 16).astype(np.float32)
    graph = importlib.import_module("sklearn.neighbors").kneighbors_graph(x, neighbors)
    train, valid, test = np.split(np.random.RandomState(0).permutation(len(x)), [len(x) * 6 // 10, len(x) * 8 // 10])
    # Row v lists the neighbours of v: the sources of the edges into it.
    return Graph.from_numpy(csc=(graph.indptr, graph.indices), x=x, y=data.target, train=train, valid=valid, test=test)


def package(function, name, pip=None):
    """The package that a data set ships with."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        pip = pip or name
        raise ModuleNotFoundError(f"morphgl.datasets.{function}: it ships with {name}, which is not installed; pip install {pip}",
                                  name=name) from None
