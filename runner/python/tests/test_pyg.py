"""What options of imports and models call PyG's is PyG's, to 1e-6; and PyG's mini-batches have PyG's attributes. Skipped without PyG."""

import numpy as np
import pytest

import morphgl
from morphgl import Graph, NeighborLoader, commands

torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402
from torch_geometric.nn.models import GCN  # noqa: E402
from torch_geometric.transforms import NormalizeFeatures, ToUndirected  # noqa: E402


def imported(folder, data, **options):
    """The dataset that `morphgl import numpy` makes of PyG's data."""
    arrays = {name: value.numpy() for name, value in data if name != "edge_weight"}
    if "edge_weight" in data:
        arrays["weights"] = data.edge_weight.numpy()
    np.savez(folder / "data.npz", **arrays)
    commands.run("import", None, ["numpy", str(folder / "data.npz"), "-o", str(folder / "graph")], {"force": True, **options})
    return Graph.open(folder / "graph")


def edges_of(graph):
    """Sources, targets and weights."""
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), targets])), graph.weights


@pytest.mark.parametrize(
    "x",
    [
        torch.rand(30, 5, generator=torch.Generator().manual_seed(0)),
        torch.randn(30, 5, generator=torch.Generator().manual_seed(1)),
        torch.rand(30, 5, generator=torch.Generator().manual_seed(2)) + 3,
        torch.zeros(30, 5),
        (torch.rand(30, 5, generator=torch.Generator().manual_seed(3)) < 0.2).float(),
        torch.rand(30, 5, generator=torch.Generator().manual_seed(4)) * 1e-3,
        torch.arange(150).view(30, 5).to(torch.uint8),
        torch.full((30, 1), -7.0),
    ],
)
def test_normalized_features_are_pyg_s(x, tmp_path):
    data = Data(x=x, edge_index=torch.tensor([[0, 29], [1, 3]]))
    ours = imported(tmp_path, data, normalize_features="pyg")
    theirs = NormalizeFeatures()(Data(x=x.float())).x.numpy()
    np.testing.assert_allclose(ours.x, theirs, rtol=0, atol=1e-6)


def random_graph(seed, weighted, loops):
    """Edges with repetitions and self-loops, of which a node has one at most, since PyG's GCN forgets all but the last."""
    random = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, 20, (2, 90), generator=random)
    edges = edges[:, edges[0] != edges[1]]
    own = torch.randperm(20, generator=random)[:loops].repeat(2, 1)
    edges = torch.cat([edges, own], 1)
    x = torch.randn(20, 6, generator=random)
    weight = torch.rand(edges.shape[1], generator=random) * 3 + 0.1
    return Data(x=x, edge_index=edges, num_nodes=20, **({"edge_weight": weight} if weighted else {}))


@pytest.mark.parametrize("seed, weighted, loops", [(0, True, 8), (1, True, 20), (2, True, 0), (3, False, 8), (4, False, 0), (5, True, 1)])
def test_undirected_graphs_are_pyg_s(seed, weighted, loops, tmp_path):
    data = random_graph(seed, weighted, loops)
    del data.num_nodes
    graph = imported(tmp_path, data, symmetrise=True, duplicate_weights="add")
    theirs = ToUndirected(reduce="add")(data)
    order = np.lexsort(theirs.edge_index.numpy())
    edges, weights = edges_of(graph)
    assert (edges.numpy() == theirs.edge_index.numpy()[:, order]).all()
    if weighted:
        np.testing.assert_allclose(weights, theirs.edge_weight.numpy()[order], rtol=1e-6)
    first = imported(tmp_path, data, symmetrise=True)
    assert (edges_of(first)[0] == edges).all(), "the default keeps the first weight of the same edges"


@pytest.mark.parametrize("training", ["Training_CPU_Native", "Training_CPU_Burn"])
@pytest.mark.parametrize("seed, weighted, loops", [(0, True, 8), (1, True, 20), (2, True, 0), (3, False, 8), (4, False, 20), (5, False, 0)])
def test_graph_convolutions_with_self_loops_are_pyg_s(seed, weighted, loops, training, tmp_path):
    data = random_graph(seed, weighted, loops)
    torch.manual_seed(seed)
    pyg = GCN(6, 8, 2, 3).eval()
    with torch.no_grad():
        expected = pyg(data.x, data.edge_index, data.get("edge_weight")).softmax(1)
    y = torch.arange(20) % 3
    made = Data(x=data.x, edge_index=data.edge_index, y=y, **({"edge_weight": data.edge_weight} if weighted else {}))
    # With weights, a loop keeps its own: nodes without one get theirs at import. Without, all loops are alike.
    if weighted:
        graph, own = imported(tmp_path, made, add_self_loops=True), {"self_loops": "graph"}
        index, norm = gcn_norm(data.edge_index, data.edge_weight, num_nodes=20)
        edges, weights = edges_of(graph)
        ours = torch.zeros(20, 20).index_put_(tuple(edges), torch.from_numpy(weights.copy()), accumulate=True)
        roots = ours.sum(0).rsqrt()
        theirs = torch.zeros(20, 20).index_put_(tuple(index), norm, accumulate=True)
        torch.testing.assert_close(ours * roots[:, None] * roots, theirs, rtol=0, atol=1e-6)
    else:
        graph, own = imported(tmp_path, made, drop_self_loops=True), {}
    options = {"num_neighbors": [5, 5], "hidden": 8, "training": training}
    graph = Graph.from_numpy(csc=(graph.indptr, graph.indices), x=graph.x, y=graph.y, edge_weight=graph.weights, train=np.arange(20))
    done = morphgl.train(graph, "gcn", init=pyg.state_dict(), epochs=0, evaluation="none", **own, **options)
    predicted = morphgl.predict(graph, done.model)
    np.testing.assert_allclose(predicted.probabilities, expected.max(1).values.numpy(), rtol=0, atol=1e-6)
    assert (predicted.classes == expected.argmax(1).numpy()).all()


def test_self_loops_are_an_option_of_gcn_alone(tmp_path):
    graph = Graph.from_numpy([[0, 1], [1, 0]], np.eye(2, dtype=np.float32), [0, 1], train=[0, 1])
    with pytest.raises((ValueError, RuntimeError), match="--self-loops: a sage adds none"):
        morphgl.train(graph, "sage", self_loops="graph", epochs=1)
    looped = Graph.from_numpy([[0, 1, 1], [1, 0, 1]], np.eye(2, dtype=np.float32), [0, 1], train=[0, 1])
    with pytest.warns(UserWarning, match="the graph has 1 self-loops, and a gcn adds one to every node"):
        morphgl.train(looped, "gcn", num_neighbors=[2], epochs=1, hidden=4, evaluation="none")


@pytest.fixture
def pyg(data):
    random = torch.Generator().manual_seed(1)
    edges = torch.from_numpy(data["edge_index"]).unique(dim=1)
    edges = edges[:, torch.randperm(edges.shape[1], generator=random)]
    mask = torch.from_numpy(data["train"])
    return Data(x=torch.from_numpy(data["x"]), edge_index=edges, y=torch.from_numpy(data["y"]).long(), train_mask=mask, val_mask=~mask,
                edge_attr=torch.randn(edges.shape[1], 4, generator=random), edge_type=torch.arange(edges.shape[1]),
                pos=torch.randn(1000, 2, generator=random), name="a graph", time=torch.arange(1000))


def test_mini_batches_have_all_attributes(pyg):
    for made in (NeighborLoader(pyg, [4, 3], pyg.train_mask, batch_size=64), NeighborLoader(Graph.from_pyg(pyg), [4, 3], batch_size=64)):
        for batch in made:
            assert (batch.pos == pyg.pos[batch.n_id]).all() and (batch.time == batch.n_id).all() and batch.name == "a graph"
            assert (batch.train_mask == pyg.train_mask[batch.n_id]).all() and (batch.val_mask == pyg.val_mask[batch.n_id]).all()
            assert (batch.edge_attr == pyg.edge_attr[batch.e_id]).all() and (batch.edge_type == batch.e_id).all()
            assert (pyg.edge_index[:, batch.edge_type] == batch.n_id[batch.edge_index]).all()
            assert batch.input_id.shape == (batch.batch_size,)
    seeds = pyg.train_mask.nonzero().view(-1)
    for batch in NeighborLoader(pyg, [4, 3], pyg.train_mask, batch_size=64, shuffle=True):
        assert (seeds[batch.input_id] == batch.n_id[:batch.batch_size]).all()
    torch.manual_seed(0)
    conv = geometric.nn.GATConv(12, 8, edge_dim=4)
    batch = next(iter(NeighborLoader(pyg, [-1], pyg.train_mask, batch_size=64)))
    whole = conv(pyg.x, pyg.edge_index, pyg.edge_attr)[batch.n_id[:64]]
    torch.testing.assert_close(conv(batch.x, batch.edge_index, batch.edge_attr)[:64], whole, atol=1e-4, rtol=1e-4)


def test_attributes_that_other_mini_batches_leave_out_are_named(pyg):
    with pytest.warns(UserWarning, match=r'edge_attr.*left out of mini-batches; PyG\'s have them: output="pyg"'):
        NeighborLoader(pyg, [4], output="torch")
    with pytest.warns(UserWarning, match="edge_attr, edge_type: left out of mini-batches, since the edges of walks"):
        NeighborLoader(pyg, [4], sampler="walk", layers=1)
    module = GCN(12, 8, 2, 5)
    with pytest.warns(UserWarning, match="pos.*edge_attr.*left out of the mini-batches that train makes"):
        morphgl.train(pyg, module, num_neighbors=[3, 3], epochs=1, evaluation="none")


def test_weights_are_any_edge_attribute(pyg):
    pyg.strength = (pyg.edge_type % 2).float()
    for batch in NeighborLoader(pyg, [2, 2], batch_size=64, weight_attr="strength"):
        assert (batch.strength == 1).all(), "edges of weight 0 are never picked"
        assert (batch.edge_type % 2 == 1).all() and "edge_weight" not in batch
    with pytest.raises(ValueError, match="weight_attr: the data has no 'power'; it has .*'strength'"):
        NeighborLoader(pyg, [2, 2], weight_attr="power")
    with pytest.raises(TypeError, match=r"x: a sparse tensor; pass x.to_dense\(\)"):
        Graph.from_numpy(pyg.edge_index, pyg.x.to_sparse())


def test_values_and_labels_of_data_are_targets():
    edges = torch.randint(0, 30, (2, 90), generator=torch.Generator().manual_seed(1))
    values = torch.randn(30, 3, generator=torch.Generator().manual_seed(2))
    for y in (values, values[:, 0], values.double(), values.bfloat16(), (values > 0).long(), values > 0):
        graph = Graph.from_pyg(Data(edge_index=edges, y=y, num_nodes=30))
        assert graph.y is None and (graph.targets == y.float().reshape(30, -1).numpy()).all()
    graph = Graph.from_pyg(Data(edge_index=edges, y=torch.arange(30) % 4, num_nodes=30))
    assert graph.targets is None and graph.num_classes == 4


def test_random_link_splits_are_pairs():
    from torch_geometric.transforms import RandomLinkSplit

    torch.manual_seed(3)
    data = Data(edge_index=torch.randint(0, 50, (2, 400)), num_nodes=50)
    train, valid, test = RandomLinkSplit(0.1, 0.2, add_negative_train_samples=False)(data)
    graph = Graph.from_pyg(train, valid=valid, test=test)
    assert (edges_of(graph)[0].shape == train.edge_index.shape) and graph.num_edges == train.edge_index.shape[1]
    assert (graph.edge_split("train") == train.edge_label_index.numpy()).all()
    for name, of in (("valid", valid), ("test", test)):
        assert (graph.edge_split(name) == of.edge_label_index[:, of.edge_label == 1].numpy()).all()
        assert (graph.edge_split(f"{name}_negatives") == of.edge_label_index[:, of.edge_label == 0].numpy()).all()
    done = morphgl.train(graph, "sage", task="link", num_neighbors=[3, 3], batch_size=64, hidden=8, embedding=8, epochs=2)
    assert done.score == "roc-auc" and 0 <= done.test_score <= 1
    torch.manual_seed(3)
    with pytest.warns(UserWarning, match="pairs of label 0 to train on are left out"):
        graph = Graph.from_pyg(RandomLinkSplit()(data)[0])
    assert graph.edge_split("train").shape[1] < graph.num_edges + 1
    # Pairs of classes are labelled edges.
    train.edge_label = torch.arange(train.edge_label_index.shape[1]) % 3
    graph = Graph.from_pyg(train, test=train)
    for name in ("train", "test"):
        assert (graph.edge_split(name) == train.edge_label_index.numpy()).all()
        assert (graph.edge_label(name) == train.edge_label.numpy()).all()
    with pytest.raises(ValueError, match="valid: it has no edge_label_index"):
        Graph.from_pyg(train, valid=data)


def test_a_compiled_module_is_compiled_once_for_padded_mini_batches():
    """`torch_geometric.transforms.Pad` as `transform=`: docs/python.md says so."""
    import torch._dynamo.utils as dynamo
    from torch_geometric.nn import GraphSAGE
    from torch_geometric.transforms import Pad

    torch.manual_seed(3)
    data = Data(x=torch.randn(900, 8), edge_index=torch.randint(0, 900, (2, 4000)), y=torch.randint(0, 4, (900,)))
    options = {"num_neighbors": [4, 3], "batch_size": 50, "input_nodes": torch.arange(300), "threads": 1}
    pad = Pad(max_num_nodes=50 * (1 + 4 + 4 * 3) + 1, max_num_edges=50 * (4 + 4 * 3))
    module = GraphSAGE(8, 16, 2, 4).eval()
    torch._dynamo.reset()
    counts = {}
    with torch.no_grad():
        for transform in (pad, None):
            dynamo.counters.clear()
            compiled = torch.compile(module, backend="eager", dynamic=False)
            sizes = set()
            for batch in morphgl.NeighborLoader(data, transform=transform, **options):
                sizes.add((tuple(batch.x.shape), tuple(batch.edge_index.shape)))
                n_id = batch.n_id
                outputs = compiled(batch.x, batch.edge_index)[:50]
                if transform is not None:
                    real = sum(batch.num_sampled_nodes)
                    edges = batch.edge_index[:, :sum(batch.num_sampled_edges)]
                    torch.testing.assert_close(outputs, module(data.x[n_id[:real]], edges)[:50])
            counts[transform is None] = (len(sizes), dynamo.counters["stats"]["unique_graphs"])
            torch._dynamo.reset()
    # Mini-batches have sizes of their own: padded, there is one, which is compiled once.
    assert counts[False] == (1, 1) and counts[True][0] == 6 and counts[True][1] > 1


def test_a_loader_has_its_data():
    data = Data(x=torch.randn(50, 3), edge_index=torch.randint(0, 50, (2, 200)))
    link = morphgl.LinkNeighborLoader(data, [2], batch_size=20)
    for loader in (NeighborLoader(data, [2]), NeighborLoader(data, [2], disjoint=True), link):
        assert loader.data is data
