"""Tasks besides the class of a node: labels, values and links of a graph in memory."""

import os
import subprocess

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


def arrays(nodes=600):
    """A random graph, features, and two linear functions of the features of a node and the mean of its neighbours', of which a tenth
    is unknown."""
    rng = np.random.default_rng(11)
    edges = rng.integers(0, nodes, (2, 6 * nodes))
    x = rng.standard_normal((nodes, 8), dtype=np.float32)
    sums, degree = np.zeros_like(x), np.maximum(np.bincount(edges[1], minlength=nodes), 1)
    np.add.at(sums, edges[1], x[edges[0]])
    values = x[:, :2] + 2 * (sums / degree[:, None])[:, 2:4]
    known = np.where(rng.random(values.shape) < 0.1, np.nan, values).astype(np.float32)
    order = rng.permutation(nodes)
    splits = {"train": order[:400], "valid": order[400:500], "test": order[500:]}
    return edges, x, values, known, splits


OPTIONS = {"num_neighbors": [20], "batch_size": 50, "lr": 0.01, "epochs": 30, "dropout": 0.0, "threads": 2}


@pytest.mark.parametrize("loss, options", [("mse", {}), ("mae", {}), ("huber", {"delta": 0.5})])
def test_values_are_learned(loss, options):
    edges, x, values, known, splits = arrays()
    graph = Graph.from_numpy(edges, x, targets=known, **splits)
    done = morphgl.train(graph, "sage", task="regress", loss=loss, loss_option=options, score="r2", **OPTIONS)
    assert done.score == "r2" and done.test_score > 0.9
    predicted = morphgl.predict(graph, done.model, "test")
    assert predicted.classes is None and predicted.outputs.shape == (100, 2) and predicted.columns == ["0", "1"]
    expected = values[splits["test"]]
    # The unknown ones are predicted, too.
    r2 = 1 - ((predicted.outputs - expected) ** 2).sum() / ((expected - expected.mean(0)) ** 2).sum()
    assert r2 > 0.9
    scores = morphgl.evaluate(graph, done.model, score=["r2", "rmse", "mae"])
    assert scores["test"].scores["r2"] == pytest.approx(done.test_score, abs=1e-5) and scores["test"].accuracy is None


def test_one_value_is_learned_as_it_is_given():
    edges, x, values, _, splits = arrays()
    graph = Graph.from_numpy(edges, x, values[:, 0], **splits)
    done = morphgl.train(graph, "sage", task="regress", score="r2", **OPTIONS)
    assert done.test_score > 0.9 and morphgl.predict(graph, done.model).outputs.shape == (600, 1)


def test_labels_are_learned():
    edges, x, values, known, splits = arrays()
    labels = np.where(np.isnan(known), np.nan, values > 0)
    graph = Graph.from_numpy(edges, x, labels, **splits)
    done = morphgl.train(graph, "sage", task="multilabel", loss_option={"positive_weight": 1.5}, **{**OPTIONS, "lr": 0.05})
    assert done.score == "micro-f1" and done.test_score > 0.85
    predicted = morphgl.predict(graph, done.model, splits["test"])
    right = (predicted.outputs > 0.5) == (values[splits["test"]] > 0)
    assert right.mean() > 0.85
    # One label: whether a node has it.
    binary = Graph.from_numpy(edges, x, targets=(values[:, 0] > 0).astype(int), **splits)
    done = morphgl.train(binary, "sage", task="multilabel", score="roc-auc", **OPTIONS)
    assert done.test_score > 0.9
    with pytest.raises(RuntimeError, match="--task multilabel learns labels of 0 and 1"):
        morphgl.train(Graph.from_numpy(edges, x, values, **splits), "sage", task="multilabel", **OPTIONS)


def test_classes_are_weighted():
    edges, x, values, _, splits = arrays()
    classes = (values[:, 0] > 1).astype(int)
    graph = Graph.from_numpy(edges, x, classes, **splits)
    trained = [morphgl.train(graph, "sage", loss_option={"class_weights": weights, "label_smoothing": 0.1}, score="macro-f1", **OPTIONS)
               for weights in ([1.0, 20.0], np.array([20.0, 1.0]), "balanced")]
    # The heavier class is predicted more often.
    counts = [(morphgl.predict(graph, done.model).classes == 1).sum() for done in trained]
    assert counts[0] > counts[2] > counts[1] and trained[2].test_score > 0.7


def test_links_are_scored_by_the_pairs_that_are_given(blocks):
    graph, block = blocks
    rng = np.random.default_rng(1)
    def pairs(same, count):
        u, v = rng.integers(0, 300, (2, 50 * count))
        return np.stack([u, v])[:, (block[u] == block[v]) == same][:, :count]

    targets = np.repeat(np.arange(300), np.diff(graph.indptr))
    given = {"valid_edges": pairs(True, 50), "test_edges": pairs(True, 60), "valid_negatives": pairs(False, 70),
             "test_negatives": pairs(False, 80)}
    graph = Graph.from_numpy(np.stack([graph.indices, targets]), **given)
    done = morphgl.train(graph, "sage", task="link", negatives=2, avoid_edges=True, embedding=16, hidden=16, num_neighbors=[5, 5],
                         batch_size=64, dropout=0.0, lr=0.01, epochs=8, threads=2)
    assert done.score == "roc-auc" and done.test_score > 0.9
    positives, negatives = (morphgl.score_pairs(graph, done.model, given[name].T) for name in ("test_edges", "test_negatives"))
    auc = (positives[:, None] > negatives).mean() + (positives[:, None] == negatives).mean() / 2
    assert auc == pytest.approx(done.test_score, abs=1e-4)
    scores = morphgl.evaluate(graph, done.model, score=["mrr", "hits@10"])
    assert scores["test"].nodes == 60 and 0 < scores["test"].scores["mrr"] <= 1
    # Other pairs to train on than the graph's edges: those between blocks.
    apart = Graph.from_numpy(np.stack([graph.indices, targets]), train_edges=pairs(False, 900), **given)
    done = morphgl.train(apart, "sage", task="link", decoder="mlp", embedding=16, hidden=16, num_neighbors=[5, 5], batch_size=64,
                         dropout=0.0, lr=0.01, epochs=20, threads=2, evaluation="none")
    assert morphgl.evaluate(apart, done.model, score=["roc-auc"])["test"].scores["roc-auc"] < 0.3


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
    with pytest.raises(ValueError, match="use morphgl.score_pairs"):
        morphgl.predict(graph, done.model, edges=pairs)


def test_a_loss_of_another_task_is_refused(blocks):
    with pytest.raises(Exception, match="use one of bce, bpr, margin"):
        morphgl.train(blocks[0], "gcn", task="link", loss="mse", epochs=1)


def imported(tmp_path, *arguments):
    """The directory of a dataset that `morphgl import` writes."""
    binary = os.environ.get("MORPHGL_BINARY")
    if not binary:
        pytest.skip("MORPHGL_BINARY names no morphgl command")
    subprocess.run([binary, "import", *arguments, "-o", tmp_path / "graph", "--quiet"], check=True, cwd=tmp_path)
    return str(tmp_path / "graph")


SMALL = {"batch_size": 32, "hidden": 8, "dropout": 0.0, "epochs": 2, "threads": 1, "profile_seconds": 0.1}


def test_rows_of_a_task_are_predicted(tmp_path):
    shop = os.path.join(os.path.dirname(__file__), "../../../testdata/typed/shop/churn.toml")
    graph = imported(tmp_path, "manifest", shop)
    done = morphgl.train(graph, "rsage", task="classify", num_neighbors=[4, 4], **SMALL)
    every = morphgl.predict(graph, done.model, probabilities=True)
    assert every.nodes.shape == every.times.shape == every.classes.shape == (200,) and every.times.dtype == np.int64
    assert every.outputs.shape == (200, 2) and every.pairs is None
    test = morphgl.predict(graph, done.model, rows="test")
    assert (test.times >= 360).all() and len(test.times) == (every.times >= 360).sum()
    given = [(every.nodes[3], every.times[3]), (every.nodes[190], 1)]
    some = morphgl.predict(graph, done.model, rows=given)
    assert some.nodes.tolist() == [node for node, _ in given] and some.times.tolist() == [every.times[3], 1]
    again = morphgl.predict(graph, done.model, rows=np.array(given, object))
    assert (again.probabilities == some.probabilities).all()
    with pytest.raises(ValueError, match="nodes and rows: pass one of them"):
        morphgl.predict(graph, done.model, "test", rows="test")
    with pytest.raises(ValueError, match="rows: pass pairs, of a node and a time"):
        morphgl.predict(graph, done.model, rows=[1, 2, 3])


def test_edges_are_predicted(tmp_path):
    rng = np.random.default_rng(3)
    source, target = rng.integers(0, 60, 600), rng.integers(0, 60, 600)
    lines = [f"{s},{t},{(s + t) % 2}" for s, t in zip(source, target)]
    (tmp_path / "edges.csv").write_text("src,dst,kind\n" + "\n".join(lines) + "\n")
    graph = imported(tmp_path, "edges", "edges.csv", "--edge-label-column", "kind", "--edge-split", "0.6,0.2,0.2", "--random-features", "8")
    done = morphgl.train(graph, "sage", on="edges", num_neighbors=[4, 4], **SMALL)
    pairs = [(5, 7), (12, 3), (5, 7)]
    predicted = morphgl.predict(graph, done.model, edges=pairs)
    assert predicted.nodes is None and predicted.pairs.tolist() == [list(pair) for pair in pairs]
    assert predicted.classes.shape == (3,) and predicted.probabilities[0] == predicted.probabilities[2]
    with pytest.raises(ValueError, match="use morphgl.predict"):
        morphgl.score_pairs(graph, done.model, pairs)
