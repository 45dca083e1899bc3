"""Features of edges: models that read them give the values of PyG's layers."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph
from morphgl.typed import graph_of

OPTIONS = {"epochs": 2, "hidden": 8, "layers": 2, "num_neighbors": [5, 5], "lr": 0.02, "threads": 2}


def graph(num_nodes=150, num_edges=900, seed=0):
    """Arrays of a graph with an isolated node, repeated edges and self-loops, whose classes the features of edges tell."""
    rng = np.random.default_rng(seed)
    edge_index = rng.integers(num_nodes - 1, size=(2, num_edges))
    edge_index[1, :20] = edge_index[0, :20]
    edge_index[:, 20:30] = edge_index[:, 30:40]
    y = rng.integers(3, size=num_nodes)
    edge_attr = (np.eye(3)[y[edge_index[1]]] + rng.normal(size=(num_edges, 3)) / 4).astype(np.float32)
    x = rng.normal(size=(num_nodes, 6)).astype(np.float32)
    fold = rng.permutation(num_nodes)
    return edge_index, edge_attr, x, y, dict(zip(("train", "valid", "test"), np.split(fold, [num_nodes // 2, num_nodes * 2 // 3])))


def test_classes_are_learned_from_edges():
    edge_index, edge_attr, x, y, splits = graph(600, 4000)
    with_edges = Graph.from_numpy(edge_index, x, y, edge_attr=edge_attr, **splits)
    options = {"model": "gat", "attention": "gatv2", "layers": 1, "num_neighbors": [10], "dropout": 0.0, "epochs": 60, "lr": 0.05,
               "batch_size": 64, "threads": 2}
    assert morphgl.train(with_edges, **options).test_accuracy > 0.7
    assert morphgl.train(Graph.from_numpy(edge_index, x, y, **splits), **options).test_accuracy < 0.6


def test_a_saved_graph_has_them(tmp_path):
    edge_index, edge_attr, x, y, splits = graph()
    Graph.from_numpy(edge_index, x, y, edge_attr=edge_attr, **splits).save(tmp_path / "first")
    Graph.open(tmp_path / "first").save(tmp_path / "second")
    for name in ("edge_ids.npy", "edge_features.npy"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes(), name
    ids, rows = (np.load(tmp_path / "first" / name) for name in ("edge_ids.npy", "edge_features.npy"))
    indptr, indices = (np.load(tmp_path / "first" / name) for name in ("indptr.npy", "indices.npy"))
    assert (rows == edge_attr).all() and (edge_index[0, ids] == indices).all()
    assert (edge_index[1, ids] == np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.astype(int)))).all()


@pytest.mark.parametrize("edge_attr, message", [
    (np.zeros((3, 2), np.float32), "row"), (np.zeros(900, np.float32), "shape"), (np.full((900, 1), np.nan, np.float32), "NaN"),
])
def test_wrong_features_are_refused(edge_attr, message):
    edge_index, _, x, y, splits = graph()
    with pytest.raises(ValueError, match=message):
        Graph.from_numpy(edge_index, x, y, edge_attr=edge_attr, **splits)


@pytest.mark.parametrize("model, options", [("gat", {"heads": 2}), ("gat", {"heads": 2, "attention": "gatv2"}), ("gin", {"train_eps": True})])
def test_models_are_those_of_pyg(model, options):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn import MLP, GATConv, GATv2Conv, GINEConv

    edge_index, edge_attr, x, y, splits = graph()
    given = Graph.from_numpy(edge_index, x, y, edge_attr=edge_attr, **splits)
    trained = morphgl.train(given, model=model, **OPTIONS, **options)
    predicted = morphgl.predict(given, trained.model, probabilities=True)
    spec, state = trained.model.spec, trained.model.state_dict()
    assert spec["edge_widths"] == [3]
    rows = torch.from_numpy(x)
    with torch.no_grad():
        for layer in range(spec["layers"]):
            last = layer + 1 == spec["layers"]
            width, out = rows.shape[1], spec["num_classes"] if last else spec["hidden"]
            own = {name[len(f"convs.{layer}."):]: values for name, values in state.items() if name.startswith(f"convs.{layer}.")}
            if model == "gin":
                conv = GINEConv(MLP([width, out, out], norm=None), train_eps=True, edge_dim=3)
            else:
                heads = spec["output_heads"] if last else spec["heads"]
                kind = GATv2Conv if options.get("attention") else GATConv
                conv = kind(width, out if last else out // heads, heads, concat=not last, edge_dim=3)
            conv.load_state_dict(own)
            rows = conv(rows, torch.from_numpy(edge_index), torch.from_numpy(edge_attr))
            rows = rows if last else rows.relu()
    assert np.abs(predicted.outputs - rows.softmax(1).numpy()).max() < 1e-5


def test_a_typed_model_is_that_of_pyg():
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from torch_geometric.data import HeteroData
    from torch_geometric.nn import GATConv, HeteroConv

    rng = np.random.default_rng(1)
    y = rng.integers(3, size=80)
    data = HeteroData()
    data["a"].x, data["a"].y = torch.from_numpy(rng.normal(size=(80, 4)).astype(np.float32)), torch.from_numpy(y)
    data["b"].x = torch.from_numpy(rng.normal(size=(40, 5)).astype(np.float32))
    data["a"].train_mask = torch.arange(80) < 50
    data["a"].test_mask = torch.arange(80) >= 50
    ends = {"a": 80, "b": 40}
    widths = {("a", "to", "a"): 2, ("b", "to", "a"): 0, ("a", "rev", "b"): 3}
    for edge_type, width in widths.items():
        index = np.stack([rng.integers(ends[edge_type[end]], size=300) for end in (0, 2)])
        data[edge_type].edge_index = torch.from_numpy(index)
        if width:
            data[edge_type].edge_attr = torch.from_numpy(rng.normal(size=(300, width)).astype(np.float32))
    given = Graph.from_pyg(data)
    trained = morphgl.train(given, model="rgat", heads=2, **OPTIONS)
    predicted = morphgl.predict(given, trained.model, probabilities=True)
    spec, state = trained.model.spec, trained.model.state_dict()
    assert spec["edge_widths"] == list(widths.values())
    linear = torch.nn.functional.linear
    rows = {name: linear(data[name].x, state[f"lin_dict.{name}.weight"], state[f"lin_dict.{name}.bias"]) for name in ends}
    with torch.no_grad():
        for layer in range(spec["layers"]):
            last = layer + 1 == spec["layers"]
            out = spec["num_classes"] if last else spec["hidden"]
            heads = spec["output_heads"] if last else spec["heads"]
            conv = HeteroConv({edge_type: GATConv(spec["hidden"], out if last else out // heads, heads, concat=not last,
                                                  add_self_loops=False, edge_dim=width or None) for edge_type, width in widths.items()})
            own = {name[len(f"convs.{layer}."):]: values for name, values in state.items() if name.startswith(f"convs.{layer}.")}
            conv.load_state_dict({f"convs.<{name.split('.')[0].replace('__', '___')}>.{name.split('.', 1)[1]}": values
                                  for name, values in own.items()})
            attributes = {edge_type: data[edge_type].edge_attr for edge_type, width in widths.items() if width}
            rows = conv(rows, data.edge_index_dict, edge_attr_dict=attributes)
            rows = rows if last else {name: of.relu() for name, of in rows.items()}
    assert np.abs(predicted.outputs[:80] - rows["a"].softmax(1).numpy()).max() < 1e-5
