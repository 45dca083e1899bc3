"""Graphs in memory with labelled edges and with rows of a task: trained, predicted, saved, pickled, refused by name."""

import pickle

import numpy as np
import pytest

import morphgl
from morphgl import Graph
from morphgl.typed import graph_of

OPTIONS = {"num_neighbors": [10], "batch_size": 50, "lr": 0.02, "epochs": 20, "dropout": 0.0, "hidden": 32, "threads": 2}


def labelled(kind, edges=1500):
    """Edges among 200 nodes whose label is a function of one feature of each end."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((200, 4), dtype=np.float32)
    pairs = rng.integers(0, 200, (2, edges))
    ends = x[pairs[0], 0] + 2 * x[pairs[1], 1]
    label = {"classes": (ends > 0).astype(np.int64), "values": ends, "names": np.where(ends > 0, "up", "down"),
             "ratings": np.clip(np.round(ends + 4), 0, 8).astype(np.int64)}[kind]
    order = rng.permutation(edges)
    part = {"train_edges": order[:1100], "valid_edges": order[1100:1300], "test_edges": np.isin(np.arange(edges), order[1300:])}
    graph = Graph.from_numpy(pairs, x, edge_label_index=pairs, edge_label=label, **part)
    return graph, pairs, label, part


@pytest.mark.parametrize("kind, task, least", [("classes", "classify", 0.85), ("names", "classify", 0.85), ("values", "regress", 0.8),
                                               ("ratings", "regress", 0.8)])
def test_labels_of_edges_are_learned(kind, task, least, tmp_path):
    graph, pairs, label, part = labelled(kind)
    options = {**OPTIONS, **({"score": "r2"} if task == "regress" else {})}
    done = morphgl.train(graph, "sage", task=task, on="edges", embedding=16, **options)
    assert done.test_score > least
    test = pairs[:, part["test_edges"]]
    predicted = morphgl.predict(graph, done.model, edges=test.T)
    assert (predicted.pairs == test.T).all()
    of_test = label[part["test_edges"]]
    if task == "classify":
        names = np.array(["down", "up"]) if kind == "names" else np.arange(2)
        assert (names[predicted.classes] == of_test).mean() > least
        assert (graph._source.get("edge_class_names") == ["down", "up"]) == (kind == "names")
    else:
        assert 1 - ((predicted.outputs[:, 0] - of_test) ** 2).sum() / ((of_test - of_test.mean()) ** 2).sum() > least
    sampled = morphgl.predict(graph, done.model, edges=test.T, evaluation="sampled", num_neighbors=[-1])
    assert np.allclose(sampled.outputs, predicted.outputs, atol=1e-4) if task == "regress" else (sampled.classes == predicted.classes).mean() > 0.99
    for other in (pickle.loads(pickle.dumps(graph)), saved(graph, tmp_path)):
        assert all(np.array_equal(other.edge_split(name), graph.edge_split(name)) for name in ("train", "valid", "test"))
        assert all(np.array_equal(other.edge_label(name), graph.edge_label(name)) for name in ("train", "valid", "test"))
        assert morphgl.evaluate(other, done.model)["test"].loss == morphgl.evaluate(graph, done.model)["test"].loss


def saved(graph, tmp_path):
    graph.save(tmp_path / "saved")
    return Graph.open(tmp_path / "saved")


def test_edges_without_splits_are_trained_on():
    _, pairs, label, _ = labelled("classes")
    graph = Graph.from_numpy(pairs, np.ones((200, 2), np.float32), edge_label_index=pairs, edge_label=label)
    assert np.array_equal(graph.edge_split("train"), pairs) and np.array_equal(graph.edge_label("train"), label)
    assert graph.edge_split("test").shape == (2, 0) and graph.edge_label("test") is None


@pytest.mark.parametrize("options, message", [
    ({"edge_label": None}, "edge_label_index: give it with edge_label"),
    ({"edge_label_index": None}, "edge_label_index: give it with edge_label"),
    ({"edge_label": np.zeros(3, int)}, "edge_label: 3 labels for 1500 pairs"),
    ({"train_edges": np.zeros((2, 5), int)}, "train_edges: pairs, beside edge_label_index"),
    ({"train_edges": [1500]}, "train_edges: pair 1500 of 1500"),
    ({"train_edges": np.ones(7, bool)}, "train_edges: a mask of shape"),
    ({"edge_label_index": np.full((2, 1500), 200)}, "200"),
])
def test_labels_that_fit_no_edges_are_refused(options, message):
    _, pairs, label, _ = labelled("classes")
    with pytest.raises(ValueError, match=message):
        Graph.from_numpy(pairs, num_nodes=200, **{"edge_label_index": pairs, "edge_label": label, **options})


def test_pyg_s_labels_of_edges_are_learned():
    torch = pytest.importorskip("torch")
    data_of = pytest.importorskip("torch_geometric.data").Data
    _, pairs, label, _ = labelled("ratings")
    whole = data_of(x=torch.ones(200, 2), edge_index=torch.from_numpy(pairs), edge_label=torch.from_numpy(label))
    from torch_geometric.transforms import RandomLinkSplit

    parts = RandomLinkSplit(num_val=0.2, num_test=0.1, neg_sampling_ratio=0.0)(whole)
    graph = Graph.from_pyg(parts[0], valid=parts[1], test=parts[2])
    for name, part in zip(("train", "valid", "test"), parts):
        assert np.array_equal(graph.edge_split(name), part.edge_label_index.numpy())
        assert np.array_equal(graph.edge_label(name), part.edge_label.numpy())


def hetero(neg_sampling_ratio=0.0, ratings=True):
    """PyG's data of 60 users and 40 movies, split by its own transform."""
    torch = pytest.importorskip("torch")
    HeteroData = pytest.importorskip("torch_geometric.data").HeteroData
    from torch_geometric.transforms import RandomLinkSplit

    rng = np.random.default_rng(1)
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.randn(60, 8), torch.randn(40, 6)
    index = torch.from_numpy(np.unique(rng.integers([[60], [40]], size=(2, 800)) % [[60], [40]], axis=1))
    data["user", "rates", "movie"].edge_index = index
    data["movie", "rev_rates", "user"].edge_index = index.flip(0)
    if ratings:
        data["user", "rates", "movie"].edge_label = 1 + (index[0] + index[1]) % 5
    split = RandomLinkSplit(num_val=0.2, num_test=0.1, neg_sampling_ratio=neg_sampling_ratio, edge_types=[("user", "rates", "movie")],
                            rev_edge_types=[("movie", "rev_rates", "user")])
    return split(data)


def test_pyg_s_pairs_of_an_edge_type_are_learned():
    train, valid, test = hetero()
    graph = Graph.from_pyg(train, valid=valid, test=test)
    of_type = valid["user", "rates", "movie"]
    assert np.array_equal(graph.edge_split("valid"), of_type.edge_label_index.numpy() + [[0], [60]])
    assert np.array_equal(graph.edge_label("valid"), of_type.edge_label.numpy())
    done = morphgl.train(graph, "rsage", task="regress", on="edges", **{**OPTIONS, "epochs": 2, "num_neighbors": [4, 4]})
    assert morphgl.predict(graph, done.model, edges=[(0, 3)]).outputs.shape == (1, 1)
    train, valid, test = hetero(ratings=False)
    graph = Graph.from_pyg(train, valid=valid, test=test)
    assert graph.edge_label("train") is None and graph.edge_split("valid").shape[1] > 0
    done = morphgl.train(graph, "rsage", task="link", **{**OPTIONS, "epochs": 2, "num_neighbors": [4, 4]})
    assert 0 <= done.test_score <= 1
    copied = pickle.loads(pickle.dumps(graph))
    assert np.array_equal(copied.edge_split("valid"), graph.edge_split("valid"))
    train, valid, test = hetero(1.0, ratings=False)
    with pytest.warns(UserWarning, match="label 0 to train on are left out"), pytest.raises(ValueError, match="neg_sampling_ratio=0.0"):
        Graph.from_pyg(train, valid=valid, test=test)


def churn(rows=900):
    """Customers with a hidden taste and their orders in time, and a task: whether the next order is of a product that shows it."""
    rng = np.random.default_rng(9)
    customers, products, orders = 60, 20, 3000
    taste = rng.integers(2, size=customers)
    of_customer, days = rng.integers(customers, size=orders), np.sort(rng.integers(1000, size=orders))
    kind = rng.integers(2, size=products)
    # A taste is what most orders are of.
    wanted = np.where(rng.random(orders) < 0.9, taste[of_customer], 1 - taste[of_customer])
    of_product = np.array([rng.choice(np.flatnonzero(kind == of)) for of in wanted])
    x = np.eye(2, dtype=np.float32)[kind]
    nodes = {"customer": {"num_nodes": customers}, "product": {"num_nodes": products, "x": x}, "order": {"num_nodes": orders, "time": days}}
    edges = {}
    for name, other, ends in (("by", "customer", of_customer), ("of", "product", of_product)):
        edges["order", name, other] = {"edge_index": np.stack([np.arange(orders), ends])}
        edges[other, f"rev_{name}", "order"] = {"edge_index": np.stack([ends, np.arange(orders)])}
    late = rng.permutation(np.flatnonzero(days > 300))[:rows]
    late = late[np.argsort(days[late])]
    tables = {}
    for split, part in zip(("train", "valid", "test"), np.split(late, [rows * 2 // 3, rows * 5 // 6])):
        tables[split] = {"node": ("customer", of_customer[part]), "time": days[part] - 1, "y": wanted[part]}
    return nodes, edges, tables


def test_rows_of_a_task_are_learned(tmp_path):
    from morphgl.examples import with_task

    nodes, edges, tables = churn()
    graph = with_task(graph_of(nodes, edges), tables)
    assert "600 train" in repr(graph) and graph.y is None and graph.num_classes == 2
    assert {name: table["y"].tolist() for name, table in graph.task.items()} == {name: table["y"].tolist() for name, table in tables.items()}
    assert graph.task["test"]["node"].tolist() == tables["test"]["node"][1].tolist()
    done = morphgl.train(graph, "rsage", **{**OPTIONS, "num_neighbors": [10, 10], "epochs": 10})
    assert done.test_score > 0.8
    predicted = morphgl.predict(graph, done.model, rows="test")
    assert (predicted.classes == tables["test"]["y"]).mean() == pytest.approx(done.test_score, abs=1e-6)
    some = morphgl.predict(graph, done.model, rows=[(node, time) for node, time in zip(predicted.nodes[:5], predicted.times[:5])])
    assert (some.times == tables["test"]["time"][:5]).all()
    for other in (pickle.loads(pickle.dumps(graph)), saved(graph, tmp_path)):
        assert morphgl.evaluate(other, done.model)["test"].loss == morphgl.evaluate(graph, done.model)["test"].loss
    with pytest.raises(ValueError, match="its splits are of rows"):
        graph.split("train")


def test_rows_of_a_graph_without_types_are_learned():
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 100, (2, 600))
    rows = lambda count: {"node": rng.integers(0, 100, count), "time": rng.integers(5, 50, count), "targets": rng.normal(size=count)}
    graph = Graph.from_numpy(ends, np.ones((100, 3), np.float32), time=np.zeros(100, int), edge_time=np.arange(600) % 50,
                             task={"train": rows(80), "test": rows(20)})
    done = morphgl.train(graph, "sage", task="regress", **{**OPTIONS, "epochs": 2, "num_neighbors": [4, 4]})
    assert morphgl.predict(graph, done.model, rows="all").outputs.shape == (100, 1)


def test_rows_are_given_by_the_ids_of_frames():
    pandas = pytest.importorskip("pandas")
    edges = pandas.DataFrame({"source": ["ada", "bob", "cy"], "target": ["bob", "cy", "ada"]})
    table = pandas.DataFrame({"node": ["cy", "ada", "cy"], "time": [3, 4, 5], "y": ["no", "yes", "no"]})
    graph = Graph.from_pandas(edges, task={"train": table})
    assert [graph.node_ids[node] for node in graph.task["train"]["node"]] == ["cy", "ada", "cy"]
    assert graph.class_names == ["no", "yes"] and graph.task["train"]["y"].tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="task train node: there is no node 'dan'"):
        Graph.from_pandas(edges, task={"train": table.assign(node=["dan", "ada", "cy"])})


def test_pyg_s_data_has_rows():
    torch = pytest.importorskip("torch")
    HeteroData = pytest.importorskip("torch_geometric.data").HeteroData
    nodes, edges, tables = churn(90)
    data = HeteroData()
    for name, given in nodes.items():
        for key, value in given.items():
            data[name][key] = torch.from_numpy(value) if hasattr(value, "shape") else value
    for name, given in edges.items():
        data[name].edge_index = torch.from_numpy(given["edge_index"])
    tensors = {split: {"node": ("customer", torch.from_numpy(table["node"][1])), "time": torch.from_numpy(table["time"]),
                       "y": torch.from_numpy(table["y"])} for split, table in tables.items()}
    graph = Graph.from_pyg(data, task=tensors)
    assert graph.task["valid"]["time"].tolist() == tables["valid"]["time"].tolist() and graph.edge_types == list(edges)


TABLE = {"node": [0, 1], "time": [3, 4], "y": [0, 1]}


@pytest.mark.parametrize("task, options, error, message", [
    ({"train": TABLE}, {"y": np.zeros(3, int)}, ValueError, "task: rows of a task are learned in place of nodes"),
    ({"train": TABLE}, {"train": [0]}, ValueError, "task: rows of a task"),
    ({"training": TABLE}, {}, ValueError, "task: 'training' is no split"),
    ({"train": {**TABLE, "label": [0, 1]}}, {}, ValueError, "'label' is no column of a task"),
    ({"train": {"node": [0], "y": [1]}}, {}, ValueError, "give node, time, and y or targets"),
    ({"train": {**TABLE, "time": [3]}}, {}, ValueError, "time has 1 rows, and node 2"),
    ({"train": {**TABLE, "time": [0.5, 1]}}, {}, TypeError, "times are whole numbers"),
    ({"train": {**TABLE, "node": [0, 3]}}, {}, ValueError, "3"),
    ({"train": {**TABLE, "node": ("customer", [0, 1])}}, {}, ValueError, "the graph has no node types"),
    ({"train": TABLE, "valid": {"node": [0], "time": [1], "targets": [0.5]}}, {}, ValueError, "its columns are not those"),
    ([TABLE], {}, TypeError, "task: give a dict of tables"),
])
def test_rows_that_are_none_are_refused(task, options, error, message):
    with pytest.raises(error, match=message):
        Graph.from_numpy(np.array([[0, 1], [1, 2]]), num_nodes=3, task=task, **options)
