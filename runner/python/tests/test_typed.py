"""Graphs with node and edge types: from PyG and DGL to a trained model."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph
from morphgl.typed import graph_of


def publications(num_papers=240, num_authors=120, seed=0):
    """Papers of four classes, which their authors' papers have, and authors without features."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=num_papers)
    author_class = np.arange(num_authors) % 4
    writes = [(a, p) for p in range(num_papers) for a in rng.choice(np.flatnonzero(author_class == y[p]), 3, replace=False)]
    cites = rng.integers(num_papers, size=(2, 900))
    writes = np.array(writes).T
    fold = rng.permutation(num_papers)
    masks = {name: np.isin(np.arange(num_papers), part)
             for name, part in zip(("train_mask", "val_mask", "test_mask"), np.split(fold, [120, 180]))}
    x = rng.normal(size=(num_papers, 8)).astype(np.float32)
    nodes = {"author": {"num_nodes": num_authors}, "paper": {"num_nodes": num_papers, "x": x, "y": y, **masks}}
    edges = {("author", "writes", "paper"): {"edge_index": writes}, ("paper", "cites", "paper"): {"edge_index": cites},
             ("paper", "rev_writes", "author"): {"edge_index": writes[::-1]}}
    return nodes, edges


def test_rows_are_sorted_by_type():
    nodes, edges = publications()
    graph = graph_of(nodes, edges)
    assert graph.node_types == ["author", "paper"] and graph.edge_types == list(edges)
    assert graph.nodes("author") == range(120) and graph.nodes("paper") == range(120, 360)
    with pytest.raises(ValueError, match="there is no node type 'venue'"):
        graph.nodes("venue")
    expected = {(s + 0 if t[0] == "author" else s + 120, d + (0 if t[2] == "author" else 120), i)
                for i, (t, given) in enumerate(edges.items()) for s, d in given["edge_index"].T.tolist()}
    assert graph.num_edges == sum(given["edge_index"].shape[1] for given in edges.values())
    ends = {(s, d) for s, d, _ in expected}
    found = {(s, d) for d in range(graph.num_nodes) for s in graph.indices[graph.indptr[d]:graph.indptr[d + 1]].tolist()}
    assert found == ends
    assert (graph.y[:120] == -1).all() and graph.split("train").min() >= 120
    assert graph.x is None, "features are of papers alone"


def test_a_saved_graph_is_the_same(tmp_path):
    nodes, edges = publications()
    nodes["paper"]["time"] = np.arange(240)
    graph = graph_of(nodes, edges)
    graph.save(tmp_path / "typed")
    again = Graph.open(tmp_path / "typed")
    assert again.node_types == graph.node_types and again.edge_types == graph.edge_types
    assert (again.indices == graph.indices).all()
    again.save(tmp_path / "again")
    for name in ("edge_types.npy", "features.1.npy", "node_times.npy"):
        assert (tmp_path / "typed" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_a_typed_model_learns_what_authors_say():
    graph = graph_of(*publications())
    options = {"epochs": 12, "hidden": 16, "layers": 2, "num_neighbors": [6, 6], "lr": 0.02, "dropout": 0.2, "batch_size": 40, "threads": 2}
    trained = morphgl.train(graph, model="rsage", **options)
    assert trained.test_accuracy > 0.6, trained.test_accuracy


@pytest.mark.parametrize("change, message", [
    ({("author", "writes", "venue"): {"edge_index": np.zeros((2, 1), int)}}, "there is no node type 'venue'"),
    ({("author", "writes", "paper"): {"edge_index": np.full((2, 1), 500)}}, "node 500 of type 'author', which has 120"),
    ({("author", "writes", "paper"): {"edge_index": np.zeros((2, 3), int), "time": np.zeros(3)}}, "times are whole numbers"),
    ({("author", "writes", "paper"): {"edge_index": np.zeros((3, 3), int)}}, "sources then targets"),
])
def test_wrong_edges_are_refused(change, message):
    nodes, edges = publications()
    with pytest.raises((ValueError, TypeError), match=message):
        graph_of(nodes, {**edges, **change})


def test_classes_are_of_one_node_type():
    nodes, edges = publications()
    nodes["author"]["y"] = np.zeros(120, int)
    with pytest.raises(ValueError, match="'author', 'paper' have classes"):
        graph_of(nodes, edges)


def test_from_hetero_data():
    pytest.importorskip("torch_geometric")
    import torch
    from torch_geometric.data import HeteroData

    nodes, edges = publications()
    data = HeteroData()
    for name, given in nodes.items():
        for key, value in given.items():
            data[name][key] = value if key == "num_nodes" else torch.from_numpy(value)
    for edge_type, given in edges.items():
        data[edge_type].edge_index = torch.from_numpy(np.ascontiguousarray(given["edge_index"]))
    graph, same = Graph.from_pyg(data), graph_of(nodes, edges)
    assert (graph.indices == same.indices).all() and (graph.y == same.y).all() and graph.edge_types == same.edge_types
    data["author"].x = torch.zeros(120, 8)
    assert Graph.from_pyg(data).x.shape == (360, 8), "features of one width are one matrix"


def rows_by_pyg(spec, state, data, edges):
    """Outputs of all papers by PyG's layers with a model's parameters."""
    import torch
    from torch_geometric.nn import GATConv, HGTConv, HeteroConv, RGCNConv, SAGEConv

    kind, layers = spec["kind"], spec["layers"]
    metadata = (["author", "paper"], list(edges))
    linear = torch.nn.functional.linear
    x = {"author": state["emb_dict.author.weight"],
         "paper": linear(data, state["lin_dict.paper.weight"], state["lin_dict.paper.bias"])}
    index = {edge_type: torch.from_numpy(np.ascontiguousarray(given["edge_index"])) for edge_type, given in edges.items()}
    start = {"author": 0, "paper": len(x["author"])}
    whole = torch.cat([pair + torch.tensor([[start[t[0]]], [start[t[2]]]]) for t, pair in index.items()], 1)
    numbers = torch.cat([torch.full((pair.shape[1],), number) for number, pair in enumerate(index.values())])
    for layer in range(layers):
        last = layer + 1 == layers
        out = spec["num_classes"] if last else spec["hidden"]
        heads = spec["output_heads"] if last else spec["heads"]
        own = {name[len(f"convs.{layer}."):]: values for name, values in state.items() if name.startswith(f"convs.{layer}.")}
        if kind == "rgcn":
            conv = RGCNConv(spec["hidden"], out, len(edges), spec.get("bases") or None)
        elif kind == "hgt":
            conv = HGTConv(spec["hidden"], out, metadata, heads)
        else:
            make = (lambda: SAGEConv(spec["hidden"], out)) if kind == "rsage" else \
                (lambda: GATConv(spec["hidden"], out if last else out // heads, heads, concat=not last, add_self_loops=False))
            conv = HeteroConv({edge_type: make() for edge_type in edges}, aggr="sum")
            own = {f"convs.<{name.split('.')[0].replace('__', '___')}>.{name.split('.', 1)[1]}": values for name, values in own.items()}
        conv.load_state_dict(own)
        if kind == "rgcn":
            rows = conv(torch.cat(list(x.values())), whole, numbers)
            x = {"author": rows[:start["paper"]], "paper": rows[start["paper"]:]}
        else:
            x = conv(x, index)
        x = x if last else {name: rows.relu() for name, rows in x.items()}
    return x["paper"]


@pytest.mark.parametrize("model, options", [("rgcn", {}), ("rgcn", {"bases": 2}), ("rsage", {}), ("rgat", {"heads": 2}), ("hgt", {"heads": 2})])
def test_models_are_those_of_pyg(model, options):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    nodes, edges = publications()
    graph = graph_of(nodes, edges)
    trained = morphgl.train(graph, model=model, epochs=3, hidden=8, layers=2, num_neighbors=[5, 5], lr=0.02, threads=2, **options)
    predicted = morphgl.predict(graph, trained.model, probabilities=True)
    with torch.no_grad():
        rows = rows_by_pyg(trained.model.spec, trained.model.state_dict(), torch.from_numpy(nodes["paper"]["x"]), edges)
    expected = rows.softmax(1).numpy()
    assert np.abs(predicted.outputs[120:] - expected).max() < 1e-5
