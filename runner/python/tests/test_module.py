"""`Training_CPU_Torch`: torch modules trained by MorphGL's plans; skipped without torch."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph, NeighborLoader
from test_training import learnable  # noqa: F401

torch = pytest.importorskip("torch")

OPTIONS = {"num_neighbors": [4, 3], "batch_size": 64, "threads": 1, "seed": 5, "evaluation": "none", "plan": "sequential"}


class Mean(torch.nn.Module):
    """Two layers of GraphSAGE in plain torch."""

    def __init__(self, width=12, dropout=0.0, classes=4):
        super().__init__()
        torch.manual_seed(1)
        # No bias before the normalization, which takes it away: its gradient would be noise.
        self.own = torch.nn.ModuleList([torch.nn.Linear(10, width, bias=False), torch.nn.Linear(width, classes)])
        self.neighbours = torch.nn.ModuleList([torch.nn.Linear(10, width, bias=False), torch.nn.Linear(width, classes, bias=False)])
        self.norm = torch.nn.BatchNorm1d(width)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x, edge_index):
        for layer, (own, neighbours) in enumerate(zip(self.own, self.neighbours)):
            sums = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
            degrees = torch.zeros(len(x)).index_add(0, edge_index[1], torch.ones(edge_index.shape[1]))
            x = own(x) + neighbours(sums / degrees.clamp(min=1)[:, None])
            if layer == 0:
                x = self.dropout(self.norm(x).relu())
        return x


def equal(a, b):
    return all((a.state_dict()[name] == values).all() for name, values in b.state_dict().items())


def by_hand(graph, module, optimizer, epochs):
    losses = []
    loader = NeighborLoader(graph, [4, 3], 64, "train", shuffle=True, seed=5, output="torch")
    for _ in range(epochs):
        total = count = 0
        for batch in loader:
            out = module(batch.x, batch.edge_index)[:batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[:batch.batch_size], reduction="sum")
            optimizer.zero_grad()
            (loss / batch.batch_size).backward()
            optimizer.step()
            total, count = total + loss.item(), count + batch.batch_size
        losses.append(total / count)
    return losses


@pytest.mark.parametrize("make", [
    lambda p: torch.optim.Adam(p, lr=0.01), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1)])
def test_training_is_that_of_a_loop_in_torch(learnable, make):
    ours, theirs = Mean(), Mean()
    done = morphgl.train(learnable, ours, make(ours.parameters()), epochs=3, **OPTIONS)
    losses = by_hand(learnable, theirs, make(theirs.parameters()), 3)
    assert [epoch.loss for epoch in done.epochs] == pytest.approx(losses, rel=1e-4)
    for name, values in theirs.state_dict().items():
        if values.is_floating_point():
            torch.testing.assert_close(ours.state_dict()[name], values, rtol=1e-3, atol=1e-4)
    # Profiling left neither parameters nor the optimizer's state behind.
    assert done.plan.schedule["shares"][0]["keys"]["training"] == "Training_CPU_Torch"


def test_mini_batches_are_the_loader_s(learnable):
    seen = {}

    def forward(module, batch):
        if module.training:
            key = tuple(batch.n_id[:batch.batch_size].tolist())
            seen[key] = [batch.n_id.clone(), batch.edge_index.clone(), batch.x.clone()]
        return module(batch.x, batch.edge_index)

    morphgl.train(learnable, Mean(), forward=forward, epochs=1, **OPTIONS)
    count = 0
    for batch in NeighborLoader(learnable, [4, 3], 64, "train", shuffle=True, seed=5, output="torch", threads=2):
        n_id, edge_index, x = seen[tuple(batch.n_id[:batch.batch_size].tolist())]
        assert (batch.n_id == n_id).all() and (batch.edge_index == edge_index).all() and (batch.x == x).all()
        count += 1
    assert count == 10


def test_dropout_is_a_function_of_the_seed(learnable):
    modules = [Mean(dropout=0.5) for _ in range(3)]
    options = [{**OPTIONS, "plan": "auto", "threads": threads, "seed": seed} for threads, seed in ((1, 5), (2, 5), (1, 6))]
    for module, chosen in zip(modules, options):
        state = torch.random.get_rng_state()
        morphgl.train(learnable, module, epochs=2, **chosen)
        assert (torch.random.get_rng_state() == state).all()
    for name, values in modules[0].state_dict().items():
        torch.testing.assert_close(modules[1].state_dict()[name], values, rtol=1e-4, atol=1e-5)
    assert not equal(modules[0], modules[2])


def test_the_best_model_is_kept_and_evaluated(learnable):
    for evaluation in ("full", "sampled"):
        module = Mean()
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        done = morphgl.train(learnable, module, optimizer, epochs=8, **{**OPTIONS, "evaluation": evaluation})
        assert done.test_accuracy > 0.7 and done.model.module is module
    done = morphgl.train(learnable, module, epochs=0, **{**OPTIONS, "evaluation": "full"})
    module.eval()
    targets = np.repeat(np.arange(1200), np.diff(learnable.indptr))
    edges = torch.from_numpy(np.stack([learnable.indices.astype(np.int64), targets]))
    right = module(torch.from_numpy(learnable.x.copy()), edges).argmax(1).numpy() == learnable.y
    assert done.test_accuracy == pytest.approx(right[learnable.split("test")].mean())


def test_a_run_of_a_module_is_resumed(learnable, tmp_path):
    learnable.save(tmp_path / "graph")
    graph, options = Graph.open(tmp_path / "graph"), {**OPTIONS, "evaluation": None}
    whole, halves = Mean(dropout=0.5), Mean(dropout=0.5)
    losses = [epoch.loss for epoch in morphgl.train(graph, whole, epochs=6, **options).epochs]
    morphgl.train(graph, halves, epochs=3, run=tmp_path / "run", **options)
    again = Mean(dropout=0.5)
    resumed = morphgl.train(None, again, resume=tmp_path / "run", epochs=6)
    assert resumed.ended == "epochs" and [epoch.loss for epoch in resumed.epochs] == losses and equal(again, whole)
    assert {"report.html", "trace.json", "model.safetensors"} <= set(p.name for p in (tmp_path / "run").iterdir())
    assert morphgl.Model.load(tmp_path / "run" / "model.safetensors").spec["kind"] == "custom"


def test_errors_of_a_module_are_its_own(learnable):
    class Wrong(Mean):
        def forward(self, x, edge_index):
            raise KeyError("no such layer")

    with pytest.raises(KeyError, match="no such layer") as error:
        morphgl.train(learnable, Wrong(), epochs=1, **OPTIONS)
    assert any(entry.name == "forward" for entry in error.traceback)
    for module, message in [
        (Mean(classes=3), "its output has 3 columns, a seed is of class 3; widen the last layer"),
        (Mean().double(), "is float64; call module.float()"),
        (Mean().requires_grad_(False), "no parameter of the module requires a gradient"),
    ]:
        with pytest.raises(ValueError, match=message):
            morphgl.train(learnable, module, epochs=1, **OPTIONS)
    with pytest.raises(RuntimeError, match="the loss is not a number"):
        module = Mean()
        module.own[0].weight.data.fill_(float("nan"))
        morphgl.train(learnable, module, epochs=1, **OPTIONS)
    with pytest.raises(ValueError, match=r"its output has shape \[4\]"):
        morphgl.train(learnable, Mean(), forward=lambda module, batch: torch.zeros(4), epochs=1, **OPTIONS)
    # After a failure a command runs as before.
    assert len(morphgl.train(learnable, Mean(), epochs=1, **OPTIONS).epochs) == 1


def test_modules_on_subgraphs_and_stored_halves(learnable):
    half = Graph.from_numpy(csc=(learnable.indptr, learnable.indices), x=learnable.x.astype(np.float16), y=learnable.y,
                            train=learnable.split("train"), valid=learnable.split("valid"), test=learnable.split("test"))
    for graph, options in [(half, {}), (learnable, {"sampler": "shadow"})]:
        module = Mean()
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
        done = morphgl.train(graph, module, optimizer, epochs=8, **{**OPTIONS, "evaluation": None, **options})
        assert done.test_accuracy > 0.7


def test_own_models_are_pyg_s(learnable):
    geometric = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GCN, GraphSAGE

    targets = np.repeat(np.arange(1200), np.diff(learnable.indptr))
    edges = torch.from_numpy(np.stack([learnable.indices.astype(np.int64), targets]))
    assert geometric
    module = GraphSAGE(10, 16, 2, 4).eval()
    done = morphgl.train(learnable, "sage", num_neighbors=[5, 5], hidden=16, epochs=3)
    module.load_state_dict(done.model.state_dict())
    logits = module(torch.from_numpy(learnable.x.copy()), edges)
    predicted = morphgl.predict(learnable, done.model)
    assert (logits.argmax(1).numpy() == predicted.classes).mean() > 0.999
    # And back.
    module = GraphSAGE(10, 16, 2, 4).eval()
    given = morphgl.Model(module.state_dict(), done.model.spec)
    expected = module(torch.from_numpy(learnable.x.copy()), edges).softmax(1).max(1).values.detach().numpy()
    np.testing.assert_allclose(morphgl.predict(learnable, given).probabilities, expected, atol=1e-5)
    # PyG's own modules train, too.
    module = GCN(10, 16, 2, 4)
    done = morphgl.train(learnable, module, torch.optim.Adam(module.parameters(), lr=0.01), output="pyg", epochs=8,
                         **{**OPTIONS, "evaluation": None})
    assert done.test_accuracy > 0.7


def test_dgl_s_modules_train(learnable):
    pytest.importorskip("dgl")
    from dgl.nn import SAGEConv

    class Blocks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([SAGEConv(10, 16, "mean"), SAGEConv(16, 4, "mean")])

        def forward(self, blocks, x):
            return self.layers[1](blocks[1], self.layers[0](blocks[0], x).relu())

    module = Blocks()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    for evaluation in ("full", "sampled"):
        done = morphgl.train(learnable, module, optimizer, output="dgl", epochs=8, **{**OPTIONS, "evaluation": evaluation})
        assert done.test_accuracy > 0.7
