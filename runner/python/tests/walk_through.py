"""The sampler, the model and the loss of docs/add-an-operator.md in a package that was built with them (feature `walk-through`). Not
collected with the other tests, which are those of the package as it is published: `pytest tests/walk_through.py`."""

import os

import numpy as np
import pytest

import morphgl

SMALL = {"batch_size": 64, "hidden": 8, "threads": 1}
LABOR = {"sampler": "labor", "sampler_option": {"layer_dependency": True}}
GATED = {"model_option": {"aggregation": "mean"}, "loss": "focal", "loss_option": {"gamma": 1.5}}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, 1200)
    same = [rng.choice(np.flatnonzero(y == y[v]), 8) for v in range(1200)]
    edges = np.stack([np.concatenate(same), np.repeat(np.arange(1200), 8)])
    x = rng.standard_normal((1200, 10), dtype=np.float32) + np.eye(4, 10, dtype=np.float32)[y]
    nodes = rng.permutation(1200)
    made = morphgl.Graph.from_numpy(edges, x, y.astype(np.int32), train=nodes[:600], valid=nodes[600:900], test=nodes[900:])
    at = tmp_path_factory.mktemp("walk_through") / "graph"
    made.save(at)
    return morphgl.Graph.open(at)


def test_all_are_listed():
    ops = morphgl.ops()
    assert {"Batching_CPU_Labor", "Training_CPU_Burn"} <= {operator.key for operator in ops.operators}
    names = {what: [entry["name"] for entry in ops.document[what]] for what in ("models", "losses")}
    assert names == {"models": ["gated"], "losses": ["focal"]}


def test_the_sampler_plans_trains_resumes_and_loads(graph, tmp_path):
    options = {**SMALL, **LABOR, "num_neighbors": [5, 5], "training": "Training_CPU_Native"}
    planned = morphgl.plan(graph, "sage", **options)
    assert {share["keys"]["batching"] for share in planned.document["plan"]["schedule"]["shares"]} == {"Batching_CPU_Labor"}
    whole = morphgl.train(graph, "sage", epochs=4, lr=0.03, **options)
    assert whole.epochs[-1].loss < whole.epochs[0].loss
    morphgl.train(graph, "sage", epochs=2, lr=0.03, run=tmp_path / "run", **options)
    resumed = morphgl.train(resume=tmp_path / "run", epochs=4)
    assert all((resumed.model.arrays[name] == values).all() for name, values in whole.model.arrays.items())

    # A source node that several seeds share is drawn for all of them or none: LABOR reads fewer nodes than neighbour sampling.
    def num_nodes(**sampler):
        return sum(len(batch.n_id) for batch in morphgl.NeighborLoader(graph, [5, 5], batch_size=200, shuffle=False, **sampler))

    assert num_nodes(**LABOR) < num_nodes()


def test_the_model_and_the_loss_plan_train_resume_and_predict(graph, tmp_path):
    options = {**SMALL, **GATED, "num_neighbors": [5, 5]}
    planned = morphgl.plan(graph, "gated", **options)
    assert planned.document["plan"]["schedule"]["shares"][0]["keys"]["training"] == "Training_CPU_Burn"
    whole = morphgl.train(graph, "gated", epochs=4, lr=0.03, **options)
    losses = [epoch.valid_loss for epoch in whole.epochs]
    assert losses[-1] < 0.9 * losses[0] and whole.test_accuracy > 0.5
    morphgl.train(graph, "gated", epochs=2, lr=0.03, run=tmp_path / "run", **options)
    resumed = morphgl.train(resume=tmp_path / "run", epochs=4)
    assert all((resumed.model.arrays[name] == values).all() for name, values in whole.model.arrays.items())
    with open(os.path.join(tmp_path, "run", "report.html"), encoding="utf-8") as page:
        text = page.read()
    assert "Mean focal loss" in text and "gated on" in text

    scores = morphgl.evaluate(graph, whole.model)
    assert scores["test"].accuracy == pytest.approx(whole.test_accuracy)
    predicted = morphgl.predict(graph, whole.model, nodes="test")
    assert (graph.y[predicted.nodes] == predicted.classes).mean() == pytest.approx(whole.test_accuracy)
