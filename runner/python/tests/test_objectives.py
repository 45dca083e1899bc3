"""What torch modules learn: every task and loss as MorphGL's own models have them, functions of the caller's, and decoders; skipped
without torch."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph, LinkNeighborLoader, NeighborLoader
from test_module import Mean, equal
from test_tasks import arrays

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

OPTIONS = {"num_neighbors": [4, 3], "batch_size": 64, "threads": 1, "seed": 5, "plan": "sequential"}


@pytest.fixture(scope="module")
def graph():
    """Ten features; classes, three targets with unknown ones, and pairs."""
    edges, x, values, known, splits = arrays()
    rng = np.random.default_rng(2)
    x = np.concatenate([x, rng.standard_normal((600, 2), dtype=np.float32)], axis=1)
    targets = np.concatenate([known, (values[:, :1] > 0).astype(np.float32)], axis=1)
    pairs = {name: rng.integers(0, 600, (2, count)) for name, count in
             (("valid_edges", 40), ("test_edges", 50), ("valid_negatives", 60), ("test_negatives", 70))}
    classes = np.digitize(values[:, 0], [-1, 0, 1]).astype(np.int32)
    classes[::9] = -1
    return Graph.from_numpy(edges, x, classes, targets=targets, **splits, **pairs)


@pytest.fixture(scope="module")
def labelled(graph):
    targets = np.repeat(np.arange(600), np.diff(graph.indptr))
    return Graph.from_numpy(np.stack([graph.indices, targets]), graph.x, targets=np.where(np.isnan(graph.targets), np.nan, graph.targets > 0),
                            **{name: graph.split(name) for name in ("train", "valid", "test")})


CASES = [
    ("classify", "cross-entropy", {"label_smoothing": 0.2, "class_weights": [1.0, 0.5, 2.0, 3.0]}, ["accuracy", "macro-f1", "roc-auc"]),
    ("multilabel", "bce", {"positive_weight": 3.0}, ["accuracy", "micro-f1", "average-precision"]),
    ("regress", "mse", {}, ["rmse", "r2"]),
    ("regress", "mae", {}, ["mae"]),
    ("regress", "huber", {"delta": 0.3}, ["mae"]),
    ("link", "bce", {"positive_weight": 2.0}, ["accuracy", "roc-auc", "mrr"]),
    ("link", "bpr", {}, ["accuracy", "hits@10"]),
    ("link", "margin", {"margin": 0.5}, ["average-precision"]),
]


@pytest.mark.parametrize("task, loss, settings, scores", CASES)
def test_losses_and_scores_are_those_of_our_own_models(graph, labelled, task, loss, settings, scores):
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GraphSAGE

    graph = labelled if task == "multilabel" else graph
    width = {"classify": 4, "multilabel": 3, "regress": 3, "link": 6}[task]
    options = {"task": task, "loss": loss, "loss_option": settings, **({"embedding": 6} if task == "link" else {})}
    own = morphgl.train(graph, "sage", hidden=16, num_neighbors=[4, 3], epochs=2, threads=1, **options).model
    expected = morphgl.evaluate(graph, own, score=scores)
    for score in scores:
        module = GraphSAGE(10, 16, 2, width)
        module.load_state_dict(own.state_dict())
        done = morphgl.train(graph, module, epochs=0, score=score, **OPTIONS, **options)
        assert done.test_loss == pytest.approx(expected["test"].loss, rel=1e-4)
        assert done.test_score == pytest.approx(expected["test"].scores[score], rel=1e-4)
    # On sampled mini-batches of all neighbours the sums are the same.
    module.load_state_dict(own.state_dict())
    whole = {**OPTIONS, "num_neighbors": [-1, -1], "evaluation": "sampled", "score": "loss"}
    done = morphgl.train(graph, module, epochs=0, **whole, **options)
    assert done.test_loss == pytest.approx(expected["test"].loss, rel=1e-4)


def losses_by_hand(graph, task, loss, settings, module, optimizer, epochs, width):
    """The losses of epochs of a loop in torch."""
    made = {"batch_size": 64, "shuffle": True, "seed": 5, "output": "torch"}
    if task == "link":
        loader = LinkNeighborLoader(graph, [4, 3], edge_label_index="train", neg_sampling=("binary", 2), **made)
    else:
        loader = NeighborLoader(graph, [4, 3], input_nodes="train", **made)
    found = []
    for _ in range(epochs):
        total = count = 0
        for batch in loader:
            out = module(batch.x, batch.edge_index)[:batch.batch_size]
            if task == "link":
                scores = (out[batch.edge_label_index[0]] * out[batch.edge_label_index[1]]).sum(1)
                size = len(batch.input_id)
                ahead = scores[:size, None] - scores[size:].view(size, 2)
                mean = {"bpr": -functional.logsigmoid(ahead), "margin": (settings.get("margin", 1) - ahead).clamp(min=0)}[loss].mean() \
                    if loss != "bce" else functional.binary_cross_entropy_with_logits(scores, batch.edge_label)
                rows = size if loss != "bce" else len(scores)
            elif task == "regress":
                target = batch.targets[:batch.batch_size]
                known = ~target.isnan()
                error = torch.where(known, (out - target.nan_to_num()).abs(), 0.0)
                mean, rows = (error.sum(1) / known.sum(1)).mean(), len(out)
            optimizer.zero_grad()
            mean.backward()
            optimizer.step()
            total, count = total + mean.item() * rows, count + rows
        found.append(total / count)
    return found


@pytest.mark.parametrize("task, loss, settings", [("link", "bce", {}), ("link", "bpr", {}), ("link", "margin", {"margin": 0.5}),
                                                  ("regress", "mae", {})])
def test_training_is_that_of_a_loop_over_the_loaders(graph, task, loss, settings):
    width = 3 if task == "regress" else 5
    ours, theirs = Mean(classes=width), Mean(classes=width)
    options = {"task": task, "loss": loss, "loss_option": settings, **({"negatives": 2, "embedding": 5} if task == "link" else {})}
    optimizers = [torch.optim.Adam(module.parameters(), lr=0.01) for module in (ours, theirs)]
    done = morphgl.train(graph, ours, optimizers[0], epochs=2, evaluation="none", **OPTIONS, **options)
    expected = losses_by_hand(graph, task, loss, settings, theirs, optimizers[1], 2, width)
    assert [epoch.loss for epoch in done.epochs] == pytest.approx(expected, rel=1e-3)
    for name, values in theirs.state_dict().items():
        if values.is_floating_point():
            torch.testing.assert_close(ours.state_dict()[name], values, rtol=1e-2, atol=1e-3)


def nll(logits, y):
    return functional.cross_entropy(logits, y)


def known_squares(outputs, targets):
    known = ~targets.isnan()
    return (((outputs - targets.nan_to_num()) ** 2 * known).sum(1) / known.sum(1)).mean()


def logistic(scores, labels):
    return functional.binary_cross_entropy_with_logits(scores, labels)


@pytest.mark.parametrize("task, loss, function", [("classify", "cross-entropy", nll), ("regress", "mse", known_squares), ("link", "bce", logistic)])
def test_functions_are_losses(graph, task, loss, function):
    width = {"classify": 4, "regress": 3, "link": 5}[task]
    options = {"task": task, "epochs": 2, **({"embedding": 5} if task == "link" else {}), **OPTIONS}
    trained = []
    for given in (loss, function):
        module = Mean(classes=width)
        done = morphgl.train(graph, module, torch.optim.SGD(module.parameters(), lr=0.05), loss=given, **options)
        trained.append((module, done))
    (one, by_name), (other, by_function) = trained
    assert [e.loss for e in by_name.epochs] == pytest.approx([e.loss for e in by_function.epochs], rel=1e-4)
    assert by_name.test_loss == pytest.approx(by_function.test_loss, rel=1e-4)
    assert by_name.test_score == pytest.approx(by_function.test_score, rel=1e-4)
    for name, values in one.state_dict().items():
        if values.is_floating_point():
            torch.testing.assert_close(other.state_dict()[name], values, rtol=1e-3, atol=1e-4)


class Pairwise(torch.nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        torch.manual_seed(3)
        self.lins = torch.nn.ModuleList([torch.nn.Linear(10, 5), torch.nn.Linear(5, outputs)])

    def forward(self, sources, destinations):
        return self.lins[1](self.lins[0](torch.cat([sources, destinations], 1)).relu())


def test_decoders_are_trained_kept_and_resumed(graph, tmp_path):
    graph.save(tmp_path / "graph")
    opened, options = Graph.open(tmp_path / "graph"), {"task": "link", "embedding": 5, "loss": "bpr", "negatives": 2, **OPTIONS}
    def made():
        return Mean(classes=5, dropout=0.5), Pairwise()

    whole, halves, again = made(), made(), made()
    before = {name: values.clone() for name, values in whole[1].state_dict().items()}
    done = morphgl.train(opened, whole[0], decoder=whole[1], epochs=4, **options)
    assert done.score == "roc-auc" and all((whole[1].state_dict()[name] != before[name]).any() for name in before)
    morphgl.train(opened, halves[0], decoder=halves[1], epochs=2, run=tmp_path / "run", **options)
    names = morphgl.Model.load(tmp_path / "run" / "model.safetensors").arrays
    assert {"decoder.lins.0.weight", "decoder.lins.1.bias", "own.0.weight"} <= names.keys()
    with pytest.raises(ValueError, match="decoder: the run was begun with 'Pairwise' of the caller's"):
        morphgl.train(None, made()[0], resume=tmp_path / "run", epochs=4)
    resumed = morphgl.train(None, again[0], decoder=again[1], resume=tmp_path / "run", epochs=4)
    assert [e.loss for e in resumed.epochs] == [e.loss for e in done.epochs]
    assert all(equal(one, other) for one, other in zip(again, whole))
    # MorphGL's own multi-layer decoder, of the same parameters.
    own = morphgl.train(opened, "sage", task="link", decoder="mlp", embedding=5, hidden=16, num_neighbors=[4, 3], epochs=1).model
    decoder = Pairwise()
    decoder.load_state_dict({name.removeprefix("decoder."): values for name, values in own.state_dict().items() if name.startswith("decoder.")})
    geometric = pytest.importorskip("torch_geometric")
    module = geometric.nn.GraphSAGE(10, 16, 2, 5)
    module.load_state_dict({name: values for name, values in own.state_dict().items() if not name.startswith("decoder.")})
    scores = morphgl.evaluate(opened, own, score=["mrr"])["test"]
    done = morphgl.train(opened, module, decoder=decoder, task="link", embedding=5, epochs=0, score="mrr", **OPTIONS)
    assert done.test_loss == pytest.approx(scores.loss, rel=1e-4) and done.test_score == pytest.approx(scores.scores["mrr"], rel=1e-4)


def test_a_decoder_within_the_module_is_its_part(graph):
    class Whole(Mean):
        def __init__(self):
            super().__init__(classes=5)
            self.decoder = Pairwise()

    module = Whole()
    before = module.decoder.lins[1].weight.clone()
    morphgl.train(graph, module, decoder=module.decoder, task="link", embedding=5, epochs=1, **OPTIONS)
    assert (module.decoder.lins[1].weight != before).any()
    with pytest.raises(ValueError, match="decoder: the module has a part of that name"):
        morphgl.train(graph, Whole(), decoder=Pairwise(), task="link", embedding=5, epochs=1, **OPTIONS)
    # Functions without parameters.
    done = morphgl.train(graph, Mean(classes=5), decoder=functional.cosine_similarity, task="link", embedding=5, epochs=1, **OPTIONS)
    assert 0 <= done.test_score <= 1


def test_one_output_may_be_a_vector(graph):
    edges, x, values, _, splits = arrays()
    x = np.concatenate([x, np.zeros((600, 2), np.float32)], axis=1)
    one = Graph.from_numpy(edges, x, values[:, 0], **splits)
    trained = []
    for forward in (lambda module, batch: module(batch.x, batch.edge_index), lambda module, batch: module(batch.x, batch.edge_index)[:, 0]):
        module = Mean(classes=1)
        done = morphgl.train(one, module, torch.optim.Adam(module.parameters(), lr=0.01), forward=forward, task="regress", epochs=15, **OPTIONS)
        assert done.score == "rmse" and done.test_score < 0.8 * values[:, 0].std()
        trained.append(module)
    assert equal(*trained)


@pytest.mark.parametrize("sampler", ["shadow", "neighbor"])
def test_other_tasks_on_subgraphs(labelled, sampler):
    module = Mean(classes=3)
    done = morphgl.train(labelled, module, torch.optim.Adam(module.parameters(), lr=0.02), task="multilabel", sampler=sampler, epochs=15,
                         score="accuracy", **OPTIONS)
    assert done.test_accuracy > 0.4


def test_misfits_are_refused_by_name(graph):
    for options, error, message in [
        ({"task": "link"}, ValueError, "its output has 4 columns for 64 elements of an embedding; give embedding=4"),
        ({"task": "regress"}, ValueError, "its output has 4 columns for 3 values; give the last layer as many"),
        ({"task": "regress", "loss": "bce"}, ValueError, "use one of mse, mae, huber"),
        ({"task": "link", "decoder": "mlp"}, ValueError, "decoder: 'mlp' is one of MorphGL's own models"),
        ({"task": "link", "decoder": 3}, TypeError, "decoder: int is no function"),
        ({"loss": 3}, TypeError, "loss: int is no function"),
        ({"loss": lambda outputs, targets: outputs}, ValueError, r"loss: it gave a tensor of shape \[\d+, 4\]"),
        ({"loss": lambda outputs, targets: 1.0}, ValueError, "loss: it gave float"),
        ({"loss_option": {"class_weights": [1, 2]}}, RuntimeError, "class_weights has 2 numbers for 4 classes"),
        ({"task": "link", "embedding": 4, "decoder": lambda a, b: a}, ValueError, r"decoder: its output has shape \[\d+, 4\]"),
        ({"task": "link", "embedding": 4, "decoder": Pairwise(), "optimizer": "module"}, ValueError, "optimizer: it does not have decoder.lins.0.weight"),
        ({"task": "link", "embedding": 4, "decoder": lambda a, b: (a * b).sum(1), "score": "filtered-mrr"}, RuntimeError,
         "ranks among all nodes are computed by a decoder of MorphGL's"),
    ]:
        module = Mean(classes=4)
        if options.get("optimizer"):
            options = {**options, "optimizer": torch.optim.Adam(module.parameters())}
        with pytest.raises(error, match=message):
            morphgl.train(graph, module, epochs=1, **OPTIONS, **options)
    for name, value in (("loss", nll), ("decoder", Pairwise())):
        with pytest.raises(NotImplementedError, match=f'{name}: "sage" is trained by one by name'):
            morphgl.train(graph, "sage", task="link", epochs=1, **{name: value})
