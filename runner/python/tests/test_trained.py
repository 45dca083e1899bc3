"""Torch modules that train gave back: evaluated, and used to predict, with all neighbours and on sampled mini-batches."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph

torch = pytest.importorskip("torch")


class Mean(torch.nn.Module):
    """A linear map of a node's features and the mean of its neighbours', without PyG."""

    def __init__(self, width, outputs):
        super().__init__()
        self.linear = torch.nn.Linear(2 * width, outputs)

    def forward(self, x, edge_index):
        sums = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        degrees = torch.bincount(edge_index[1], minlength=len(x)).clamp(min=1)
        return self.linear(torch.cat([x, sums / degrees[:, None]], 1))


OPTIONS = {"num_neighbors": [8], "batch_size": 50, "epochs": 15, "threads": 1, "seed": 3, "layers": 1, "plan": "sequential"}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(2)
    edges = rng.integers(0, 300, (2, 1500))
    x = rng.standard_normal((300, 6), dtype=np.float32)
    order = rng.permutation(300)
    return edges, x, {"train": order[:180], "valid": order[180:240], "test": order[240:]}


def trained(graph, outputs, **options):
    torch.manual_seed(0)
    module = Mean(6, outputs)
    return morphgl.train(graph, module, torch.optim.Adam(module.parameters(), lr=0.05), **{**OPTIONS, **options}), module


def whole(module, graph):
    """Outputs of all nodes, by torch alone."""
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = torch.from_numpy(np.stack([graph.indices.astype(np.int64), targets]))
    with torch.no_grad():
        return module(torch.from_numpy(graph.x.copy()), edges)


def test_a_trained_module_is_evaluated_and_predicts_classes(arrays, tmp_path):
    edges, x, splits = arrays
    graph = Graph.from_numpy(edges, x, (x[:, 0] > 0).astype(int), **splits)
    done, module = trained(graph, 2)
    outputs = whole(module, graph)
    scores = morphgl.evaluate(graph, done.model, score=["macro-f1"], evaluation="full")
    assert scores["test"].accuracy == pytest.approx(done.test_accuracy, abs=1e-6) and scores["test"].nodes == 60
    y = torch.from_numpy(graph.y.astype(np.int64))
    for split in ("train", "valid", "test"):
        of = torch.from_numpy(splits[split])
        assert scores[split].accuracy == pytest.approx(float((outputs[of].argmax(1) == y[of]).float().mean()), abs=1e-6)
        assert scores[split].loss == pytest.approx(float(torch.nn.functional.cross_entropy(outputs[of], y[of])), abs=1e-5)
    assert 0.8 < scores["test"].scores["macro-f1"] <= 1
    predicted = morphgl.predict(graph, done.model, "test", probabilities=True)
    assert (predicted.nodes == splits["test"]).all() and (predicted.classes == outputs.argmax(1).numpy()[splits["test"]]).all()
    assert np.allclose(predicted.outputs, outputs.softmax(1).numpy()[splits["test"]], atol=1e-5)
    # All neighbours are sampled; then fewer, as the module was trained.
    all_sampled = morphgl.predict(graph, done.model, "test", probabilities=True, evaluation="sampled", num_neighbors=[-1])
    assert np.allclose(all_sampled.outputs, predicted.outputs, atol=1e-5)
    few = morphgl.predict(graph, done.model, splits["test"][:7], evaluation="sampled", num_neighbors=[1], probabilities=True)
    assert few.classes.shape == (7,) and not np.allclose(few.outputs, predicted.outputs[:7], atol=1e-3)
    sampled = morphgl.evaluate(graph, done.model, evaluation="sampled", num_neighbors=[-1])
    assert sampled["valid"].accuracy == pytest.approx(scores["valid"].accuracy, abs=1e-6)
    # In another process the module is made anew, and its parameters are read.
    done.model.save(tmp_path / "mean.safetensors")
    again = morphgl.TrainedModule.load(tmp_path / "mean.safetensors", Mean(6, 2), num_neighbors=[8])
    assert morphgl.evaluate(graph, again)["test"].loss == scores["test"].loss
    assert all(torch.equal(values, again.state_dict()[name]) for name, values in done.model.state_dict().items())
    graph.save(tmp_path / "graph")
    assert morphgl.evaluate(str(tmp_path / "graph"), again)["test"].loss == scores["test"].loss


def test_a_trained_module_predicts_values_and_runs_go_on(arrays, tmp_path):
    edges, x, splits = arrays
    graph = Graph.from_numpy(edges, x, targets=x[:, :2] * 3 + 1, **splits)
    done, module = trained(graph, 2, task="regress", loss=lambda outputs, targets: (outputs - targets).abs().mean(), save=str(tmp_path / "m"))
    assert (tmp_path / "m").exists()
    predicted = morphgl.predict(graph, done.model, [5, 9])
    assert np.allclose(predicted.outputs, whole(module, graph)[[5, 9]].numpy(), atol=1e-5) and predicted.classes is None
    scores = morphgl.evaluate(graph, done.model, score="r2")
    assert scores["test"].accuracy is None and scores["test"].scores["r2"] > 0.5
    expected = (whole(module, graph)[splits["test"]] - torch.from_numpy(graph.targets[splits["test"]])).abs().mean()
    assert scores["test"].loss == pytest.approx(float(expected), rel=1e-4)
    with pytest.raises(ValueError, match="loss: the run was begun with"):
        morphgl.evaluate(graph, morphgl.TrainedModule.load(tmp_path / "m", Mean(6, 2)))


def test_a_trained_module_scores_pairs_by_its_decoder(arrays):
    edges, x, _ = arrays
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 300, (2, 40))
    graph = Graph.from_numpy(edges, x, valid_edges=pairs, test_edges=pairs[:, ::-1])
    decoder = torch.nn.Bilinear(8, 8, 1)
    torch.manual_seed(0)
    module = Mean(6, 8)
    done = morphgl.train(graph, module, task="link", embedding=8, decoder=decoder, **{**OPTIONS, "epochs": 3})
    scores = morphgl.score_pairs(graph, done.model, pairs.T)
    rows = whole(module, graph)
    with torch.no_grad():
        expected = decoder(rows[pairs[0]], rows[pairs[1]])[:, 0]
    assert np.allclose(scores, expected.numpy(), atol=1e-4)
    sampled = morphgl.score_pairs(graph, done.model, pairs.T, evaluation="sampled", num_neighbors=[-1])
    assert np.allclose(sampled, scores, atol=1e-4)
    assert morphgl.evaluate(graph, done.model, score="roc-auc")["test"].scores["roc-auc"] == pytest.approx(done.test_score, abs=1e-5)
    with pytest.raises(ValueError, match="--top"):
        morphgl.predict(graph, done.model, "all", top=3)
    with pytest.raises(ValueError, match="morphgl.score_pairs"):
        morphgl.predict(graph, done.model, edges=pairs.T)


def test_what_is_no_trained_module_is_refused(arrays, tmp_path):
    edges, x, splits = arrays
    graph = Graph.from_numpy(edges, x, (x[:, 0] > 0).astype(int), **splits)
    with pytest.raises(TypeError, match="does not say what it was trained for"):
        morphgl.evaluate(graph, Mean(6, 2))
    done, _ = trained(graph, 2, epochs=1)
    done.model.save(tmp_path / "m")
    with pytest.raises(ValueError, match="linear.weight: shape"):
        morphgl.TrainedModule.load(tmp_path / "m", Mean(5, 2))
    with pytest.raises(TypeError, match="lr: no such argument"):
        morphgl.TrainedModule.load(tmp_path / "m", Mean(6, 2), lr=1)
    morphgl.Model({"w": np.ones(3)}).save(tmp_path / "plain")
    with pytest.raises(ValueError, match="does not say what its model was trained for"):
        morphgl.TrainedModule.load(tmp_path / "plain", Mean(6, 2))
