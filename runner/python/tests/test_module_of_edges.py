"""Torch modules that learn classes, labels and values of edges; skipped without torch."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph, LinkNeighborLoader
from test_module import Mean, equal
from test_objectives import OPTIONS, Pairwise, known_squares, nll

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

WIDTHS = {"classify": 3, "multilabel": 3, "regress": 2}


def labelled(task):
    """Edges among 600 nodes whose class, labels or values follow from features of both ends; some are unknown."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((600, 10), dtype=np.float32)
    pairs = rng.integers(0, 600, (2, 900))
    ends = x[pairs[0], :3] + 2 * x[pairs[1], 3:6]
    label = {"classify": np.digitize(ends[:, 0], [-1, 1]), "multilabel": (ends > 0).astype(np.float32), "regress": ends[:, :2]}[task]
    if task == "classify":
        label[::9] = -1
    else:
        label[::7, 1] = np.nan
    parts = {"train_edges": np.arange(600), "valid_edges": np.arange(600, 740), "test_edges": np.arange(740, 900)}
    return Graph.from_numpy(rng.integers(0, 600, (2, 3000)), x, edge_label_index=pairs, edge_label=label, **parts)


CASES = [
    ("classify", "cross-entropy", {"label_smoothing": 0.2, "class_weights": [1.0, 0.5, 2.0]}, ["accuracy", "macro-f1"]),
    ("multilabel", "bce", {"positive_weight": 3.0}, ["micro-f1", "average-precision"]),
    ("regress", "huber", {"delta": 0.3}, ["rmse", "r2"]),
]


@pytest.mark.parametrize("task, loss, settings, scores", CASES)
def test_scores_and_predictions_are_those_of_our_own_models(task, loss, settings, scores):
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GraphSAGE

    graph = labelled(task)
    options = {"task": task, "on": "edges", "loss": loss, "loss_option": settings, "embedding": 5}
    own = morphgl.train(graph, "sage", hidden=16, num_neighbors=[4, 3], epochs=2, threads=1, **options).model
    of_decoder = {name.removeprefix("decoder."): values for name, values in own.state_dict().items() if name.startswith("decoder.")}
    of_layers = {name: values for name, values in own.state_dict().items() if not name.startswith("decoder.")}
    expected, edges = morphgl.evaluate(graph, own, score=scores), graph.edge_split("test").T
    module, decoder = GraphSAGE(10, 16, 2, 5), Pairwise(WIDTHS[task])
    module.load_state_dict(of_layers)
    decoder.load_state_dict(of_decoder)
    given = morphgl.train(graph, module, decoder=decoder, epochs=0, score=scores[1], **OPTIONS, **options)
    assert given.test_loss == pytest.approx(expected["test"].loss, rel=1e-4)
    assert given.test_score == pytest.approx(expected["test"].scores[scores[1]], rel=1e-4)
    # The decoder by default is of the same form.
    default = morphgl.train(graph, module, epochs=0, **OPTIONS, **options)
    default.model.decoder.load_state_dict(of_decoder)
    for model in (given.model, default.model):
        for how in ({}, {"evaluation": "sampled", "num_neighbors": [-1, -1]}):
            found = morphgl.evaluate(graph, model, score=scores, **how)
            for split in ("train", "valid", "test"):
                assert found[split].loss == pytest.approx(expected[split].loss, rel=1e-4)
                assert list(found[split].scores.values()) == pytest.approx(list(expected[split].scores.values()), rel=1e-3)
        predicted, ours = morphgl.predict(graph, model, edges=edges, probabilities=True), morphgl.predict(graph, own, edges=edges, probabilities=True)
        assert (predicted.pairs == edges).all() and np.allclose(predicted.outputs, ours.outputs, atol=1e-5)
        assert task != "classify" or (predicted.classes == ours.classes).all()


@pytest.mark.parametrize("task, loss", [("classify", nll), ("regress", known_squares)])
def test_training_is_that_of_a_loop_over_a_loader(task, loss):
    """By name, and by a function, which is given the outputs and the labels of the edges that have one."""
    graph, (epochs, width) = labelled(task), (2, WIDTHS[task])
    trained = []
    for given in (None, loss):
        module, decoder = Mean(classes=5), Pairwise(width)
        optimizer = torch.optim.Adam([*module.parameters(), *decoder.parameters()], lr=0.01)
        done = morphgl.train(graph, module, optimizer, task=task, on="edges", embedding=5, decoder=decoder, loss=given, epochs=epochs,
                             evaluation="none", **OPTIONS)
        trained.append((module, decoder, [epoch.loss for epoch in done.epochs]))
    module, decoder = Mean(classes=5), Pairwise(width)
    optimizer = torch.optim.Adam([*module.parameters(), *decoder.parameters()], lr=0.01)
    label = graph.edge_label("train").copy()
    loader = LinkNeighborLoader(graph, [4, 3], edge_label_index="train", edge_label=label, batch_size=64, shuffle=True, seed=5, output="torch")
    torch.set_num_threads(1)
    expected = []
    for _ in range(epochs):
        total = count = 0
        for batch in loader:
            out = module(batch.x, batch.edge_index)
            out, y = decoder(*out[batch.edge_label_index]), batch.edge_label
            known = y >= 0 if task == "classify" else ~y.isnan().all(1)
            mean = loss(out[known], y[known].long() if task == "classify" else y[known])
            optimizer.zero_grad()
            mean.backward()
            optimizer.step()
            total, count = total + mean.item() * int(known.sum()), count + int(known.sum())
        expected.append(total / count)
    for ours, of_edges, losses in trained:
        assert losses == pytest.approx(expected, rel=1e-4)
        for one, other in ((ours, module), (of_edges, decoder)):
            for name, values in other.state_dict().items():
                if values.is_floating_point():
                    torch.testing.assert_close(one.state_dict()[name], values, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("sampler", ["neighbor", "shadow"])
def test_edges_are_learned_by_default(sampler):
    graph, module = labelled("classify"), Mean(width=32, classes=16)
    done = morphgl.train(graph, module, torch.optim.Adam(module.parameters(), lr=0.02), on="edges", embedding=16, epochs=25, sampler=sampler,
                         **OPTIONS)
    assert done.test_accuracy > 0.7
    assert done.document["training"]["evaluation"] == ("sampled" if sampler == "shadow" else "full")


def test_the_default_decoder_is_trained_kept_and_resumed(tmp_path):
    graph = labelled("multilabel")
    graph.save(tmp_path / "graph")
    opened, options = Graph.open(tmp_path / "graph"), {"task": "multilabel", "on": "edges", "embedding": 5, **OPTIONS}

    def made():
        module = Mean(classes=5, dropout=0.5)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        return module, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    module = made()[0]
    state = torch.get_rng_state()
    first = morphgl.train(opened, module, epochs=0, **options).model.decoder.state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    (whole, one, of_one), (half, other, of_other), (again, third, of_third) = made(), made(), made()
    sizes = len(one.param_groups[0]["params"])
    done = morphgl.train(opened, whole, one, scheduler=of_one, epochs=4, **options)
    assert all((values != first[name]).any() for name, values in done.model.decoder.state_dict().items())
    # The optimizer is left as it was given, but for its state.
    assert len(one.param_groups) == 1 and len(one.param_groups[0]["params"]) == sizes == len(one.state)
    morphgl.train(opened, half, other, scheduler=of_other, epochs=2, run=tmp_path / "run", **options)
    resumed = morphgl.train(None, again, third, scheduler=of_third, resume=tmp_path / "run", epochs=4)
    assert [e.loss for e in resumed.epochs] == [e.loss for e in done.epochs]
    assert equal(again, whole) and equal(resumed.model.decoder, done.model.decoder)
    done.model.save(tmp_path / "edges.safetensors")
    loaded = morphgl.TrainedModule.load(tmp_path / "edges.safetensors", Mean(classes=5), num_neighbors=[4, 3])
    assert morphgl.evaluate(opened, loaded)["test"].loss == morphgl.evaluate(opened, done.model)["test"].loss
    assert equal(loaded.decoder, done.model.decoder)


def test_a_single_output_may_be_a_vector():
    graph = labelled("regress")
    one = Graph.from_numpy(np.stack([graph.indices, np.repeat(np.arange(600), np.diff(graph.indptr))]), graph.x,
                           edge_label_index=graph.edge_split("train"), edge_label=graph.edge_label("train")[:, 0])
    trained = []
    for decoder in (lambda sources, destinations: (sources * destinations).sum(1), lambda sources, destinations: (sources * destinations).sum(1, True)):
        module = Mean(classes=5)
        morphgl.train(one, module, decoder=decoder, task="regress", on="edges", embedding=5, epochs=2, **OPTIONS)
        trained.append(module)
    assert equal(*trained)


def test_misfits_are_refused_by_name():
    graph = labelled("classify")
    options = {"on": "edges", "embedding": 5, "epochs": 1, **OPTIONS}
    for given, error, message in [
        ({"embedding": 4}, ValueError, "its output has 5 columns for 4 elements of an embedding; give embedding=5"),
        ({"decoder": "dot"}, ValueError, "decoder: 'dot' is one of MorphGL's own models; give \"mlp\""),
        ({"decoder": functional.cosine_similarity}, ValueError, r"decoder: its output has shape \[\d+\] for \d+ pairs; give \[pairs, 3\], the classes of each"),
        ({"decoder": Pairwise(2)}, ValueError, r"decoder: its output has shape \[\d+, 2\] for \d+ pairs"),
        ({"loss": lambda outputs, targets: outputs}, ValueError, r"loss: it gave a tensor of shape \[\d+, 3\]"),
        ({"task": "regress", "loss": "bce"}, ValueError, "use one of mse, mae, huber"),
        ({"plan": "unified"}, ValueError, "one place alone can train"),
    ]:
        with pytest.raises(error, match=message):
            morphgl.train(graph, Mean(classes=5), **{**options, **given})
    module, decoder = Mean(classes=5), Pairwise(3)
    with pytest.raises(ValueError, match="optimizer: it does not have decoder.lins.0.weight"):
        morphgl.train(graph, module, torch.optim.Adam(module.parameters()), decoder=decoder, **options)
    with pytest.raises(ValueError, match="optimizer: Adagrad has state"):
        morphgl.train(graph, module, torch.optim.Adagrad(module.parameters()), **options)
    done = morphgl.train(graph, module, decoder=decoder, **options)
    with pytest.raises(ValueError, match="use morphgl.predict"):
        morphgl.score_pairs(graph, done.model, [[0, 1]])
