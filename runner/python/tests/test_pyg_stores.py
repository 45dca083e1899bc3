"""`morphgl.pyg.FeatureStore` and `GraphStore`: PyG's loaders read datasets through them. Skipped without PyG."""

import pickle
import warnings

import numpy as np
import pytest

torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData, TensorAttr  # noqa: E402
from torch_geometric.loader import LinkLoader, NeighborLoader, NodeLoader  # noqa: E402
from torch_geometric.sampler import NeighborSampler, NodeSamplerInput  # noqa: E402

import morphgl  # noqa: E402
from morphgl import Graph  # noqa: E402
from morphgl.pyg import FeatureStore, GraphStore, Sampler, stores  # noqa: E402


def untyped():
    random = torch.Generator().manual_seed(1)
    mask = torch.rand(100, generator=random) < 0.5
    return Data(x=torch.randn(100, 6, generator=random).bfloat16(), edge_index=torch.randint(95, (2, 800), generator=random),
                y=torch.randint(4, (100,), generator=random), train_mask=mask, test_mask=~mask,
                edge_attr=torch.randn(800, 3, generator=random), edge_weight=torch.rand(800, generator=random), num_nodes=100)


def typed():
    random = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["user"].x = torch.randn(60, 5, generator=random)
    data["item"].x = torch.randn(40, 3, generator=random)
    data["item"].y = torch.randint(3, (40,), generator=random)
    data["user"].time = torch.randint(50, (60,), generator=random)
    data["item"].train_mask = torch.rand(40, generator=random) < 0.5
    for edge_type, ends, count in ((("user", "buys", "item"), (60, 40), 300), (("item", "rev_buys", "user"), (40, 60), 300),
                                   (("item", "like", "item"), (40, 40), 90)):
        data[edge_type].edge_index = torch.stack([torch.randint(end, (count,), generator=random) for end in ends])
        data[edge_type].edge_attr = torch.randn(count, 2, generator=random)
    return data


def graphs(data, folder):
    """The graph in memory, in memory with the source's positions, and mapped."""
    first = Graph.from_pyg(data)
    first.save(folder / "graph")
    return first, folder / "graph"


def test_tensors_are_the_data_s(tmp_path):
    data = untyped()
    for graph in graphs(data, tmp_path):
        features, edges = stores(graph)
        names = {attr.attr_name for attr in features.get_all_tensor_attrs()}
        assert names == {"x", "y", "train_mask", "test_mask"}
        index = torch.tensor([3, 99, 3, 0])
        for name in names:
            expected = data[name]
            for rows in (index, slice(2, 50, 3)):
                assert torch.equal(features.get_tensor(None, name, rows), expected[rows])
            assert torch.equal(features.get_tensor(None, name, None), expected)
            assert torch.equal(features.get_tensor(None, name, 7), expected[7])
            assert features.get_tensor_size(None, name) == tuple(expected.shape)
        made = features.multi_get_tensor([TensorAttr(None, name, index) for name in sorted(names)])
        assert all(torch.equal(one, data[name][index]) for one, name in zip(made, sorted(names)))
        (row, col), (attr,) = edges_of(edges, None), edges.get_all_edge_attrs()
        assert attr.size == (100, 100)
        edge_attr, weight = (features.get_tensor(None, name, None) for name in ("edge_attr", "edge_weight"))
        key = lambda row, col, values: sorted(zip(row.tolist(), col.tolist(), values.tolist()))
        assert key(row, col, edge_attr[:, 0]) == key(*data.edge_index, data.edge_attr[:, 0])
        assert key(row, col, weight) == key(*data.edge_index, data.edge_weight)
        assert features.get_tensor(None, "pos", None) is None
        with pytest.raises(IndexError, match="row 100 does not exist, there are 100"):
            features.get_tensor(None, "x", torch.tensor([100]))


def edges_of(store, edge_type):
    """The edges of a type in COO."""
    found = store.coo()
    return found[:2] if edge_type is None else (found[0][edge_type], found[1][edge_type])


def test_typed_tensors_are_the_data_s(tmp_path):
    data = typed()
    for graph in graphs(data, tmp_path):
        features, edges = stores(graph)
        groups = {(attr.group_name, attr.attr_name) for attr in features.get_all_tensor_attrs()}
        assert {("user", "x"), ("item", "x"), ("item", "y"), ("user", "time"), ("item", "train_mask"),
                (("user", "buys", "item"), "edge_attr")} <= groups and ("user", "y") not in groups
        for group, name in (("user", "x"), ("item", "x"), ("item", "y"), ("user", "time"), ("item", "train_mask")):
            index = torch.tensor([5, 0, 39])
            assert torch.equal(features.get_tensor(group, name, index), data[group][name][index])
            assert torch.equal(features.get_tensor(group, name, None), data[group][name])
        for edge_type in data.edge_types:
            row, col = edges_of(edges, edge_type)
            values = features.get_tensor(edge_type, "edge_attr", None)[:, 0]
            key = lambda row, col, values: sorted(zip(row.tolist(), col.tolist(), values.tolist()))
            assert key(row, col, values) == key(*data[edge_type].edge_index, data[edge_type].edge_attr[:, 0])


def test_pyg_s_loaders_take_stores(tmp_path):
    data = untyped()
    for graph in graphs(data, tmp_path):
        pair = stores(graph)
        row, col = edges_of(pair[1], None)
        for loader in (NodeLoader(pair, node_sampler=Sampler(pair, [4, 2]), input_nodes=data.train_mask, batch_size=16),
                       NeighborLoader(pair, [4, 2], input_nodes=data.train_mask, neighbor_sampler=Sampler(graph, [4, 2]), batch_size=16)):
            for batch in loader:
                assert torch.equal(batch.x, data.x[batch.n_id]) and torch.equal(batch.y, data.y[batch.n_id])
                assert torch.equal(batch.train_mask, data.train_mask[batch.n_id])
                assert (row[batch.e_id] == batch.n_id[batch.edge_index[0]]).all() and (col[batch.e_id] == batch.n_id[batch.edge_index[1]]).all()
    data = typed()
    for graph in graphs(data, tmp_path / "typed"):
        pair = stores(graph)
        loader = NodeLoader(pair, node_sampler=Sampler(pair, [4, 2]), input_nodes=("item", data["item"].train_mask), batch_size=16)
        for batch in loader:
            for name in ("user", "item"):
                assert torch.equal(batch[name].x, data[name].x[batch[name].n_id])
            for edge_type in data.edge_types:
                row, col = edges_of(pair[1], edge_type)
                ids, index = batch[edge_type].e_id, batch[edge_type].edge_index
                assert (row[ids] == batch[edge_type[0]].n_id[index[0]]).all() and (col[ids] == batch[edge_type[2]].n_id[index[1]]).all()
        edge_type = ("user", "buys", "item")
        batch = next(iter(LinkLoader(pair, Sampler(pair, [2]), edge_label_index=(edge_type, None), neg_sampling="binary", batch_size=20)))
        assert batch[edge_type].edge_label_index.shape == (2, 40)


def test_pyg_s_sampler_reads_the_graph(tmp_path):
    """The columns that PyG's own sampler makes of the stores are the graph's."""
    data = untyped()
    for graph in graphs(data, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = NeighborSampler(stores(graph), [3])
        opened = graph if isinstance(graph, Graph) else Graph.open(graph)
        assert (theirs.colptr.numpy() == opened.indptr).all() and theirs.num_nodes == 100
        for node in range(100):
            row = slice(*theirs.colptr[node:node + 2].tolist())
            assert sorted(theirs.row[row].tolist()) == sorted(opened.indices[row].tolist())


def test_times_of_a_dataset():
    graph = Graph.from_pyg(typed())
    sampler = Sampler(graph, [3, 3], time_attr="time")
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(60), input_type="user"))
    times = np.asarray(graph._native.node_times)[graph.nodes("user").start:][:60]
    assert (times[out.node["user"]] <= times[out.batch["user"]]).all()
    with pytest.raises(ValueError, match="time_attr: the graph has no 'when'; give \"time\""):
        Sampler(graph, [3], time_attr="when")
    with pytest.raises(ValueError, match="weight_attr: the graph has no weights 'edge_weight'"):
        Sampler(graph, [3], weight_attr="edge_weight")


def test_stores_of_others_are_sampled():
    """PyG's `Data` is a pair of stores itself."""
    data = untyped()
    sampler = Sampler((data, data), [3, 2])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(20)))
    assert (out.node[out.row] == data.edge_index[0, out.edge]).all() and (out.node[out.col] == data.edge_index[1, out.edge]).all()
    data = typed()
    index = NodeSamplerInput(None, torch.arange(40), torch.full((40,), 60), "item")
    out = Sampler((data, data), [3, 2], time_attr="time").sample_from_nodes(index)
    assert set(out.node) == {"user", "item"} and (data["user"].time[out.node["user"]] <= 60).all()
    with pytest.raises(ValueError, match="time_attr: no tensor of the feature store is named 'then'"):
        Sampler((data, data), [3], time_attr="then")
    with pytest.raises(NotImplementedError, match="weight_attr: the weights of edges in stores are not read"):
        Sampler((data, data), [3], weight_attr="weight")


def test_stores_do_not_change():
    features, edges = stores(Graph.from_pyg(untyped()))
    with pytest.raises(NotImplementedError, match="x: the tensors of a graph do not change"):
        features.put_tensor(torch.ones(100, 1), None, "x", None)
    with pytest.raises(NotImplementedError, match="edge_index: a graph's edges do not change"):
        edges.put_edge_index(torch.ones(2, 1), edge_type=None, layout="coo")
    with pytest.raises(TypeError, match="graph: Data; give a Graph, or the directory of a dataset"):
        FeatureStore(untyped())
    assert isinstance(GraphStore(Graph.from_pyg(untyped())).graph, morphgl.Graph)


def test_stores_are_pickled_with_their_graph(tmp_path):
    graph = morphgl.Graph.from_pyg(typed())
    graph.save(tmp_path / "g")
    for of in (graph, morphgl.Graph.open(tmp_path / "g", mmap=True)):
        features, edges = pickle.loads(pickle.dumps(stores(of)))
        expected = FeatureStore(of)
        for attr in expected.get_all_tensor_attrs():
            name = attr.group_name, attr.attr_name, None
            assert torch.equal(features.get_tensor(*name), expected.get_tensor(*name))
        assert [attr.edge_type for attr in edges.get_all_edge_attrs()] == graph.edge_types
    sampler = Sampler(graph, [2, 2])
    again = pickle.loads(pickle.dumps(sampler))
    index = NodeSamplerInput(None, torch.arange(5), input_type=graph.node_types[0])
    one, other = again.sample_from_nodes(index, draw=3), sampler.sample_from_nodes(index, draw=3)
    assert all(torch.equal(one.node[name], other.node[name]) for name in one.node)
