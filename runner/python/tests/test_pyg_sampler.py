"""`morphgl.pyg.Sampler` in PyG's loaders: legal samples, PyG's mini-batches. Skipped without PyG."""

import copy
import gc
import os
import pickle
import threading

import numpy as np
import pytest

torch, geometric = pytest.importorskip("torch"), pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader import LinkLoader, LinkNeighborLoader, NeighborLoader, NodeLoader  # noqa: E402
from torch_geometric.loader.utils import filter_data, filter_hetero_data  # noqa: E402
from torch_geometric.nn import GATConv, HeteroConv, RGCNConv, SAGEConv  # noqa: E402
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402

import morphgl  # noqa: E402
from morphgl.pyg import Sampler  # noqa: E402


def untyped(seed, num_nodes=200, num_edges=1500):
    """A graph with repeated edges, self-loops, isolated nodes, and attributes of many types."""
    random = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes - 20, (2, num_edges), generator=random)
    edges[:, :30] = edges[:, 30:60]
    edges[1, 60:80] = edges[0, 60:80]
    of_nodes = lambda *shape: torch.randn(num_nodes, *shape, generator=random)
    return Data(
        x=of_nodes(7), edge_index=edges, y=torch.randint(4, (num_nodes,), generator=random), pos=of_nodes(3).double(),
        half=of_nodes(2, 3).half(), brain=of_nodes(5).bfloat16(), train_mask=torch.rand(num_nodes, generator=random) < 0.4,
        level=torch.randint(100, (num_nodes,), generator=random).to(torch.int8), complex=of_nodes().to(torch.complex64),
        array=np.arange(num_nodes, dtype=np.int16), edge_attr=torch.randn(num_edges, 3, generator=random),
        edge_type=torch.randint(5, (num_edges,), generator=random), sort_index=torch.arange(2 * num_edges).view(2, -1),
        edge_flag=torch.rand(num_edges, generator=random) < 0.5, edge_weight=torch.rand(num_edges, generator=random),
        edge_time=torch.randint(1000, (num_edges,), generator=random), time=torch.randint(1000, (num_nodes,), generator=random),
        name="a graph", scale=torch.tensor(3.0), num_nodes=num_nodes)


def typed(seed, sizes=(("paper", 150), ("author", 90), ("field", 12))):
    random = torch.Generator().manual_seed(seed)
    sizes = dict(sizes)
    data = HeteroData()
    for name, count in sizes.items():
        if name != "field":
            data[name].x = torch.randn(count, 4 if name == "paper" else 6, generator=random)
        data[name].num_nodes = count
        data[name].place = torch.randn(count, 2, 2, generator=random).double()
    data["paper"].y = torch.randint(3, (sizes["paper"],), generator=random)
    data["paper"].train_mask = torch.rand(sizes["paper"], generator=random) < 0.5
    for edge_type, count in ((("author", "writes", "paper"), 500), (("paper", "cites", "paper"), 700), (("paper", "rev_writes", "author"), 400),
                             (("paper", "has", "field"), 200), (("field", "of", "paper"), 0)):
        index = [torch.randint(sizes[edge_type[end]], (count,), generator=random) for end in (0, 2)]
        data[edge_type].edge_index = torch.stack(index)
        data[edge_type].edge_attr = torch.randn(count, 3, generator=random)
        data[edge_type].kind = torch.arange(count, dtype=torch.int32)
        data[edge_type].strength = torch.rand(count, generator=random) * torch.arange(count).remainder(3)
    data.title = "publications"
    return data


def check_sub_graph(edge_index, node, row, col, edge, seeds, fanouts, hops_of_nodes, hops_of_edges):
    """A legal neighbour sample of an untyped graph: its edges are the graph's, each node of a hop has as many as it can, and hops
    are in order."""
    assert (node[:len(seeds)] == seeds).all()
    assert (node[row] == edge_index[0, edge]).all() and (node[col] == edge_index[1, edge]).all()
    assert len(hops_of_nodes) == len(fanouts) + 1 and len(hops_of_edges) == len(fanouts)
    assert sum(hops_of_nodes) == len(node) and sum(hops_of_edges) == len(row)
    degrees = torch.bincount(edge_index[1], minlength=int(edge_index.max()) + 1 if edge_index.numel() else 1)
    degrees = torch.nn.functional.pad(degrees, (0, max(int(node.max()) + 1 - len(degrees), 0)))
    first_node = first_edge = 0
    for hop, fanout in enumerate(fanouts):
        last_node, last_edge = first_node + hops_of_nodes[hop], first_edge + hops_of_edges[hop]
        targets, ids = col[first_edge:last_edge], edge[first_edge:last_edge]
        counts = torch.bincount(targets, minlength=len(node))
        expected = torch.zeros(len(node), dtype=torch.int64)
        expected[first_node:last_node] = degrees[node[first_node:last_node]]
        if fanout >= 0:
            expected = expected.clamp(max=fanout)
        assert (counts == expected).all(), "each node of the hop has min(fanout, degree) edges, the others none"
        assert len(torch.stack([targets, ids]).unique(dim=1)[0]) == len(ids), "no edge twice in a row"
        # New nodes of the next hop are its neighbours, each of them.
        fresh = torch.arange(last_node, last_node + hops_of_nodes[hop + 1])
        assert (row[first_edge:last_edge] < last_node + hops_of_nodes[hop + 1]).all()
        assert torch.isin(fresh, row[first_edge:last_edge]).all()
        first_node, first_edge = last_node, last_edge


@pytest.mark.parametrize("fanouts", [[5, 3], [-1], [2, -1, 1], [4, 0, 3], [0]])
@pytest.mark.parametrize("seed", range(4))
def test_samples_are_legal(seed, fanouts):
    data = untyped(seed)
    torch.manual_seed(seed)
    sampler = Sampler(data, fanouts)
    # The last nodes are isolated; all seeds are distinct.
    seeds = torch.cat([torch.randperm(180)[:30], torch.tensor([181, 199])])
    out = sampler.sample_from_nodes(NodeSamplerInput(torch.arange(32), seeds))
    check_sub_graph(data.edge_index, out.node, out.row, out.col, out.edge, seeds, fanouts, out.num_sampled_nodes, out.num_sampled_edges)
    assert len(out.node.unique()) == len(out.node) and out.batch is None and sampler.edge_permutation is None
    assert out.orig_row is None and (out.metadata[0] == torch.arange(32)).all() and out.metadata[1] is None


def test_seeds_that_repeat_are_sampled_as_often():
    data = untyped(1)
    seeds = torch.tensor([3, 9, 3, 3, 199, 9])
    out = Sampler(data, [4, 2]).sample_from_nodes(NodeSamplerInput(None, seeds))
    assert (out.node[:6] == seeds).all() and out.num_sampled_nodes[0] == 6
    assert (out.node[out.row] == data.edge_index[0, out.edge]).all() and (out.node[out.col] == data.edge_index[1, out.edge]).all()
    assert len(out.node[6:].unique()) == len(out.node[6:])
    degrees = torch.bincount(data.edge_index[1], minlength=200).clamp(max=4)
    assert (torch.bincount(out.col[:out.num_sampled_edges[0]], minlength=6) == degrees[seeds]).all()


@pytest.mark.parametrize("seed", range(4))
def test_disjoint_samples_are_trees(seed):
    data = untyped(seed)
    seeds = torch.tensor([5, 7, 5, 199, 30])
    out = Sampler(data, [4, 3], disjoint=True).sample_from_nodes(NodeSamplerInput(None, seeds))
    assert (out.batch[:5] == torch.arange(5)).all() and (out.batch[out.row] == out.batch[out.col]).all()
    assert len(torch.stack([out.batch, out.node]).unique(dim=1)[0]) == len(out.node)
    assert (out.node[out.row] == data.edge_index[0, out.edge]).all() and (out.node[out.col] == data.edge_index[1, out.edge]).all()
    check_sub_graph(data.edge_index, out.node, out.row, out.col, out.edge, seeds, [4, 3], out.num_sampled_nodes, out.num_sampled_edges)


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("time_attr", ["time", "edge_time"])
def test_samples_within_times(time_attr, strategy):
    data = untyped(3)
    sampler = Sampler(data, [3, 3], time_attr=time_attr, temporal_strategy=strategy)
    assert sampler.disjoint and sampler.is_temporal
    seeds, times = torch.arange(60), torch.randint(1000, (60,), generator=torch.Generator().manual_seed(1))
    of_edges = data.time[data.edge_index[0]] if time_attr == "time" else data.edge_time
    for given in (times, None):
        if given is None and time_attr == "edge_time":
            with pytest.raises(ValueError, match="times of seeds: nodes have none of their own; give input_time"):
                sampler.sample_from_nodes(NodeSamplerInput(None, seeds))
            continue
        out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds, given))
        bound = (data.time[seeds] if given is None else given)[out.batch]
        assert (of_edges[out.edge] <= bound[out.col]).all()
        for place in range(60):
            valid = of_edges[(data.edge_index[1] == seeds[place]) & (of_edges <= bound[place])]
            picked = of_edges[out.edge[out.col == place]]
            assert len(picked) == min(len(valid), 3)
            if strategy == "last":
                assert (picked.sort().values == valid.sort().values[-3:]).all()


def test_typed_samples_are_legal():
    data = typed(2)
    fanouts = {("author", "writes", "paper"): [3, 2], ("paper", "cites", "paper"): [-1, 1], ("paper", "rev_writes", "author"): [0, 4],
               ("paper", "has", "field"): [2, 2], ("field", "of", "paper"): [1, 1]}
    for given in (fanouts, [3, 2]):
        sampler = Sampler(data, given)
        seeds = torch.randperm(150)[:20]
        out = sampler.sample_from_nodes(NodeSamplerInput(torch.arange(20), seeds, input_type="paper"))
        assert (out.node["paper"][:20] == seeds).all() and list(out.node) == data.node_types and list(out.row) == data.edge_types
        starts = {name: np.cumsum([0, *hops]) for name, hops in out.num_sampled_nodes.items()}
        assert all(starts[name][-1] == len(nodes) == len(nodes.unique()) for name, nodes in out.node.items())
        for edge_type in data.edge_types:
            row, col, edge = (part[edge_type] for part in (out.row, out.col, out.edge))
            index = data[edge_type].edge_index
            assert (out.node[edge_type[0]][row] == index[0, edge]).all() and (out.node[edge_type[2]][col] == index[1, edge]).all()
            degrees = torch.bincount(index[1], minlength=data[edge_type[2]].num_nodes)
            first = 0
            for hop, fanout in enumerate(given[edge_type] if isinstance(given, dict) else given):
                last = first + out.num_sampled_edges[edge_type][hop]
                expected = torch.zeros(len(out.node[edge_type[2]]), dtype=torch.int64)
                rows = slice(*starts[edge_type[2]][hop:hop + 2])
                expected[rows] = degrees[out.node[edge_type[2]][rows]]
                expected = expected.clamp(max=fanout) if fanout >= 0 else expected
                assert (torch.bincount(col[first:last], minlength=len(expected)) == expected).all()
                first = last
            assert first == len(row)


def test_targets_are_sampled_backward():
    data = untyped(4)
    seeds = torch.arange(50)
    out = Sampler(data, [3, 2], sample_direction="backward").sample_from_nodes(NodeSamplerInput(None, seeds))
    check_sub_graph(data.edge_index.flip(0), out.node, out.col, out.row, out.edge, seeds, [3, 2], out.num_sampled_nodes, out.num_sampled_edges)
    data = typed(4)
    out = Sampler(data, [3, 2], sample_direction="backward").sample_from_nodes(NodeSamplerInput(None, seeds, input_type="author"))
    assert list(out.row) == data.edge_types and len(out.edge["author", "writes", "paper"])
    for edge_type in data.edge_types:
        row, col, edge = (part[edge_type] for part in (out.row, out.col, out.edge))
        ends = out.node[edge_type[0]][row], out.node[edge_type[2]][col]
        assert torch.equal(torch.stack(ends), data[edge_type].edge_index[:, edge])
    writes = data["author", "writes", "paper"].edge_index
    first = out.row["author", "writes", "paper"][:out.num_sampled_edges["author", "writes", "paper"][0]]
    assert (torch.bincount(first, minlength=50) == torch.bincount(writes[0], minlength=90)[:50].clamp(max=3)).all()
    with pytest.raises(NotImplementedError, match="sample_direction: a graph's columns"):
        Sampler(morphgl.Graph.from_pyg(untyped(0)), [3], sample_direction="backward")


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and bool((a == b).all())
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_our_mini_batches_are_those_that_pyg_filters(seed, disjoint):
    """For the nodes and edges that were sampled, each attribute is PyG's."""
    data = untyped(seed)
    for batch in morphgl.NeighborLoader(data, [4, 2], data.train_mask, batch_size=16, shuffle=True, seed=seed, disjoint=disjoint, edge_ids=True):
        expected = filter_data(data, batch.n_id, *batch.edge_index, batch.e_id)
        assert set(expected.keys()) <= set(batch.keys())
        for name, value in expected:
            assert equal(value, batch[name]), name
        assert (data.train_mask.nonzero().view(-1)[batch.input_id] == batch.n_id[:batch.batch_size]).all()
        assert batch.get("batch") is None if not disjoint else len(batch.batch) == batch.num_nodes


def test_features_labels_and_weights_have_the_data_s_types():
    data = untyped(3)
    data.x, data.edge_weight = data.x.double(), data.edge_weight.double()
    for y in (data.y[:, None], data.y.int(), data.x[:, 0], data.x[:, :2].float(), data.x[:, :1].float(), (data.x[:, :2] > 0)):
        data.y = y
        for batch in morphgl.NeighborLoader(data, [4, 2], batch_size=64, edge_ids=True):
            expected = filter_data(data, batch.n_id, *batch.edge_index, batch.e_id)
            assert all(equal(value, batch[name]) for name, value in expected), y.dtype


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"subgraph_type": "bidirectional"}, {"weight_attr": "strength"}])
@pytest.mark.parametrize("seed", range(2))
def test_our_typed_mini_batches_are_those_that_pyg_filters(seed, options):
    data = typed(seed)
    made = morphgl.NeighborLoader(data, [4, 2], ("paper", data["paper"].train_mask), batch_size=16, shuffle=True, num_workers=2, **options)
    seeds = data["paper"].train_mask.nonzero().view(-1)
    found = []
    for batch in made:
        names = [name for name in data.edge_types if batch[name].get("e_id") is not None]
        assert options.get("subgraph_type") or names == data.edge_types
        expected = filter_hetero_data(
            data, {name: batch[name].n_id for name in data.node_types}, {name: batch[name].edge_index[0] for name in data.edge_types},
            {name: batch[name].edge_index[1] for name in data.edge_types}, {name: batch[name].get("e_id") for name in data.edge_types})
        for store in expected.stores:
            mine = batch[store._key] if store._key is not None else batch._global_store
            for name, value in store.items():
                assert equal(value, mine[name]), (store._key, name)
        assert (seeds[batch["paper"].input_id] == batch["paper"].n_id[:batch["paper"].batch_size]).all()
        found.append(batch["paper"].input_id)
    assert (torch.cat(found).sort().values == torch.arange(len(seeds))).all() and len(made) == len(found)


def test_mini_batches_are_a_function_of_the_seed():
    data = typed(1)
    contents = lambda **options: [batch["paper"].n_id for batch in morphgl.NeighborLoader(
        data, [3, 3], "paper", batch_size=32, shuffle=True, **{"seed": 0, **options})]
    same = lambda a, b: len(a) == len(b) and all(torch.equal(u, v) for u, v in zip(a, b))
    first = contents(threads=1)
    assert same(first, contents(threads=4, prefetch=0)) and not same(first, contents(seed=1))
    torch.manual_seed(5)
    sampler = Sampler(data, [3, 3])
    index = NodeSamplerInput(None, torch.arange(40), input_type="paper")
    one, other = sampler.sample_from_nodes(index), sampler.sample_from_nodes(index)
    torch.manual_seed(5)
    again = sampler.sample_from_nodes(index)
    assert torch.equal(one.edge["paper", "cites", "paper"], again.edge["paper", "cites", "paper"])
    assert not torch.equal(one.edge["paper", "cites", "paper"], other.edge["paper", "cites", "paper"])


@pytest.mark.parametrize("workers", [0, 2])
def test_pyg_s_node_loaders_take_it(workers):
    data = untyped(5)
    sampler = Sampler(data, [4, 3])
    options = {"input_nodes": data.train_mask, "batch_size": 32, "num_workers": workers}
    for loader in (NodeLoader(data, node_sampler=sampler, **options), NeighborLoader(data, [4, 3], neighbor_sampler=sampler, **options)):
        num_seeds = 0
        for batch in loader:
            assert (batch.x == data.x[batch.n_id]).all() and (batch.edge_attr == data.edge_attr[batch.e_id]).all()
            assert (data.edge_index[:, batch.e_id] == batch.n_id[batch.edge_index]).all()
            assert (batch.input_id == batch.n_id[:batch.batch_size]).all() or (batch.input_id < len(data.train_mask)).all()
            num_seeds += batch.batch_size
        assert num_seeds == int(data.train_mask.sum())
    data = typed(5)
    for loader in (NodeLoader(data, node_sampler=Sampler(data, [4, 3]), input_nodes=("paper", data["paper"].train_mask), batch_size=32,
                              num_workers=workers),):
        for batch in loader:
            for edge_type in data.edge_types:
                assert (batch[edge_type].edge_attr == data[edge_type].edge_attr[batch[edge_type].e_id]).all()
            x, index, _ = trim_to_layer(1, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, batch.collect("place"), batch.edge_index_dict)
            assert all((index[name][1] < len(x[name[2]])).all() for name in index if name in index and index[name].numel())


@pytest.mark.parametrize("mode, amount", [(None, 0), ("binary", 1), ("binary", 2.5), ("triplet", 1), ("triplet", 3)])
@pytest.mark.parametrize("disjoint", [False, True])
def test_pyg_s_link_loaders_take_it(mode, amount, disjoint):
    negatives = NegativeSampling(mode, amount) if mode else None
    data = untyped(6)
    for loader in (LinkLoader(data, Sampler(data, [3, 2], disjoint=disjoint), neg_sampling=negatives, batch_size=50),
                   LinkNeighborLoader(data, [3, 2], neighbor_sampler=Sampler(data, [3, 2], disjoint=disjoint), neg_sampling=negatives,
                                      batch_size=50)):
        for number, batch in enumerate(loader):
            pairs = data.edge_index[:, 50 * number:50 * number + 50]
            assert (batch.input_id == torch.arange(50) + 50 * number).all()
            if mode == "triplet":
                assert (batch.n_id[batch.src_index] == pairs[0]).all() and (batch.n_id[batch.dst_pos_index] == pairs[1]).all()
                assert batch.dst_neg_index.shape == ((50,) if amount == 1 else (50, amount))
            else:
                assert (batch.n_id[batch.edge_label_index[:, :50]] == pairs).all()
                assert batch.edge_label_index.shape == (2, 50 + int(np.ceil(50 * amount)))
            assert (batch.batch < 50).all() if disjoint else batch.get("batch") is None
            if number == 3:
                break
    data = typed(6)
    edge_type = ("author", "writes", "paper")
    loader = LinkLoader(data, Sampler(data, [3, 2], disjoint=disjoint), edge_label_index=(edge_type, None), neg_sampling=negatives, batch_size=50)
    for batch in loader:
        count = len(batch[edge_type].input_id)
        ends = data[edge_type].edge_index[:, batch[edge_type].input_id]
        ids = batch["author"].n_id, batch["paper"].n_id
        if mode == "triplet":
            assert (ids[0][batch["author"].src_index] == ends[0]).all() and (ids[1][batch["paper"].dst_pos_index] == ends[1]).all()
        else:
            label = batch[edge_type].edge_label_index[:, :count]
            assert (ids[0][label[0]] == ends[0]).all() and (ids[1][label[1]] == ends[1]).all()


def test_links_within_times():
    data = untyped(8)
    sampler = Sampler(data, [3], time_attr="time")
    loader = LinkNeighborLoader(data, [3], edge_label_index=data.edge_index, edge_label_time=data.edge_time, neg_sampling="binary",
                                time_attr="time", neighbor_sampler=sampler, batch_size=64)
    batch = next(iter(loader))
    # Seeds may be later than their pair; what is sampled is not.
    assert (data.time[batch.n_id[batch.edge_index[0]]] <= batch.edge_label_time[batch.batch[batch.edge_index[1]] % 64]).all()


def test_layers_give_the_values_of_the_whole_graph():
    """With all neighbours, seeds have the rows that PyG's layers give on the whole graph."""
    data = untyped(9)
    torch.manual_seed(0)
    gat = GATConv(7, 6, heads=2, edge_dim=3)
    rgcn = RGCNConv(7, 6, num_relations=5)
    whole = gat(data.x, data.edge_index, data.edge_attr), rgcn(data.x, data.edge_index, data.edge_type)
    loaders = (NodeLoader(data, node_sampler=Sampler(data, [-1]), batch_size=64), morphgl.NeighborLoader(data, [-1], batch_size=64))
    for loader in loaders:
        for batch in loader:
            seeds = batch.n_id[:batch.batch_size]
            rows = gat(batch.x, batch.edge_index, batch.edge_attr), rgcn(batch.x, batch.edge_index, batch.edge_type)
            for ours, theirs in zip(rows, whole):
                torch.testing.assert_close(ours[:batch.batch_size], theirs[seeds], atol=1e-5, rtol=1e-5)
    data = typed(9)
    used = {name: data[name].edge_index for name in (("author", "writes", "paper"), ("paper", "cites", "paper"))}
    conv = HeteroConv({name: SAGEConv((-1, -1), 5) for name in used})
    whole = conv({"author": data["author"].x, "paper": data["paper"].x}, used)["paper"]
    for loader in (NodeLoader(data, node_sampler=Sampler(data, [-1]), input_nodes="paper", batch_size=64),
                   morphgl.NeighborLoader(data, [-1], "paper", batch_size=64)):
        for batch in loader:
            rows = conv({"author": batch["author"].x, "paper": batch["paper"].x}, {name: batch[name].edge_index for name in used})["paper"]
            size = batch["paper"].batch_size
            torch.testing.assert_close(rows[:size], whole[batch["paper"].n_id[:size]], atol=1e-5, rtol=1e-5)


def test_layers_may_be_trimmed():
    data = untyped(4)
    torch.manual_seed(1)
    convs = [SAGEConv(7, 7) for _ in range(2)]
    for batch in NodeLoader(data, node_sampler=Sampler(data, [5, 3]), batch_size=32):
        x, trimmed, index = batch.x, batch.x, batch.edge_index
        edges = batch.edge_index
        for layer, conv in enumerate(convs):
            x = conv(x, edges)
            trimmed, index, _ = trim_to_layer(layer, batch.num_sampled_nodes, batch.num_sampled_edges, trimmed, index)
            trimmed = conv(trimmed, index)
        torch.testing.assert_close(trimmed[:batch.batch_size], x[:batch.batch_size])


@pytest.mark.parametrize("options", [{"subgraph_type": "induced"}, {"directed": False}, {"subgraph_type": "induced", "sample_direction": "backward"},
                                     {"subgraph_type": "induced", "weight_attr": "edge_weight"}])
def test_induced_sub_graphs_have_all_edges_among_their_nodes(options, tmp_path):
    data = untyped(4)
    sampler = Sampler(data, [3, 2], **options)
    seeds = torch.tensor([5, 9, 100, 5])
    out = sampler.sample_from_nodes(NodeSamplerInput(None, seeds), draw=3)
    assert torch.equal(out.node[:4], seeds) and out.num_sampled_edges is None and sum(out.num_sampled_nodes) == len(out.node)
    assert torch.equal(data.edge_index[:, out.edge], torch.stack([out.node[out.row], out.node[out.col]]))
    # Each edge between two of the nodes as often as the node that is sampled from is there.
    repeats = torch.bincount(out.node, minlength=200)
    end = 0 if "sample_direction" in options else 1
    among = (repeats[data.edge_index] > 0).all(0)
    assert torch.equal(torch.bincount(out.edge, minlength=1500), torch.where(among, repeats[data.edge_index[end]], 0))
    # The nodes are those of directional sub-graphs.
    plain = Sampler(data, [3, 2], **{name: value for name, value in options.items() if name not in ("subgraph_type", "directed")})
    assert torch.equal(plain.sample_from_nodes(NodeSamplerInput(None, seeds), draw=3).node, out.node)


@pytest.mark.parametrize("of", ["data", "graph", "directory"])
def test_induced_typed_sub_graphs_have_all_edges_among_their_nodes(of, tmp_path):
    data = typed(5)
    graph = morphgl.Graph.from_pyg(data)
    graph.save(tmp_path / "g")
    sampler = Sampler({"data": data, "graph": graph, "directory": tmp_path / "g"}[of], [2, 2], subgraph_type="induced")
    out = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(0, 150, 10), input_type="paper"), draw=1)
    for edge_type, edge_index in data.collect("edge_index").items():
        source, _, target = edge_type
        ends = torch.stack([out.node[source][out.row[edge_type]], out.node[target][out.col[edge_type]]])
        inside = torch.isin(edge_index[0], out.node[source]) & torch.isin(edge_index[1], out.node[target])
        assert sorted(map(tuple, ends.t().tolist())) == sorted(map(tuple, edge_index[:, inside].t().tolist()))
        if of != "directory":
            assert torch.equal(edge_index[:, out.edge[edge_type]], ends)
        else:
            assert len(out.edge[edge_type].unique()) == int(inside.sum())


def test_loaders_make_induced_sub_graphs():
    data = untyped(6)
    options = {"num_neighbors": [3, 2], "batch_size": 40, "subgraph_type": "induced"}
    for loader in (NeighborLoader(data, neighbor_sampler=Sampler(data, [3, 2], subgraph_type="induced"), **options),
                   morphgl.NeighborLoader(data, threads=1, **options), morphgl.NeighborLoader(data, [3, 2], batch_size=40, directed=False)):
        for batch in loader:
            among = torch.isin(data.edge_index, batch.n_id).all(0)
            assert torch.equal(batch.e_id.sort().values, among.nonzero().view(-1))
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
            assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])


def test_weights_bias_what_is_picked():
    data = untyped(7)
    data.strength = (torch.arange(1500) % 2).float()
    out = Sampler(data, [3, 3], weight_attr="strength").sample_from_nodes(NodeSamplerInput(None, torch.arange(100)))
    assert (out.edge % 2 == 1).all() and len(out.edge)


def test_bidirectional_sub_graphs_keep_what_was_sampled():
    data = untyped(2)
    sampler = Sampler(data, [3, 2], subgraph_type="bidirectional")
    sampler.keep_orig_edges = True
    loader = NodeLoader(data, node_sampler=sampler, batch_size=20)
    batch = next(iter(loader))
    pairs = set(map(tuple, batch.edge_index.t().tolist()))
    assert all((b, a) in pairs for a, b in pairs) and set(map(tuple, batch._orig_edge_index.t().tolist())) <= pairs


def test_samplers_are_copied_pickled_and_set():
    data = untyped(1)
    sampler = Sampler(data, [3, 2])
    other = copy.copy(sampler)
    other.num_neighbors = [-1]
    index = NodeSamplerInput(None, torch.arange(10))
    assert len(other.sample_from_nodes(index).num_sampled_edges) == 1 and len(sampler.sample_from_nodes(index).num_sampled_edges) == 2
    loaded = pickle.loads(pickle.dumps(sampler))
    assert torch.equal(loaded.sample_from_nodes(index, draw=5).edge, sampler.sample_from_nodes(index, draw=5).edge)


def test_data_without_edges_and_without_nodes():
    out = Sampler(Data(x=torch.ones(4, 1)), [3]).sample_from_nodes(NodeSamplerInput(None, torch.tensor([2, 0])))
    assert out.node.tolist() == [2, 0] and out.row.numel() == 0 and out.num_sampled_nodes == [2, 0]
    with pytest.raises(ValueError, match="it has no nodes"):
        Sampler(Data(edge_index=torch.zeros(2, 0, dtype=torch.int64), num_nodes=0), [3])
    empty = Sampler(untyped(1), [3, 2]).sample_from_nodes(NodeSamplerInput(None, torch.zeros(0, dtype=torch.int64)))
    assert empty.node.numel() == 0 and empty.num_sampled_nodes == [0, 0, 0]


@pytest.mark.parametrize("options, error, message", [
    ({"replace": True}, NotImplementedError, "replace: neighbours are sampled without replacement"),
    ({"directed": False, "disjoint": True}, NotImplementedError, 'subgraph_type: "induced" sub-graphs are no disjoint trees'),
    ({"subgraph_type": "induced", "time_attr": "time"}, NotImplementedError, 'subgraph_type: "induced" sub-graphs are no disjoint trees'),
    ({"sample_direction": "sideways"}, ValueError, "sample_direction: 'sideways'; give 'forward' or 'backward'"),
    ({"sample_direction": "backward", "time_attr": "time"}, NotImplementedError, "sample_direction: .* leave out it or time_attr"),
    ({"temporal_strategy": "first"}, ValueError, "temporal_strategy: 'first'; give 'uniform' or 'last'"),
    ({"time_attr": "when"}, ValueError, "time_attr: 'when' is neither"),
    ({"time_attr": "pos"}, TypeError, "pos: torch.float64; times are whole numbers"),
    ({"weight_attr": "power"}, ValueError, "weight_attr: the data has no 'power'"),
    ({"num_neighbors": [-2]}, ValueError, "num_neighbors: -2"),
    ({"num_neighbors": {("a", "b", "c"): [1]}}, TypeError, "num_neighbors: a dict is of several edge types"),
])
def test_what_is_not_supported_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        Sampler(untyped(0), **{"num_neighbors": [3], **options})


def test_wrong_seeds_are_refused():
    sampler, other = Sampler(untyped(0), [3]), Sampler(typed(0), [3])
    with pytest.raises(IndexError, match="node 200 does not exist, there are 200"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([3, 200])))
    with pytest.raises(ValueError, match=r"seeds: the graph has node types; give input_nodes=\(TYPE, nodes\)"):
        other.sample_from_nodes(NodeSamplerInput(None, torch.tensor([3])))
    with pytest.raises(ValueError, match="times of seeds: the sampler has no times; give it time_attr"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.tensor([3]), torch.tensor([1])))


def test_loaders_refuse_what_they_cannot_do():
    data = untyped(0)
    with pytest.raises(ValueError, match="input_time: .*give time_attr"):
        morphgl.NeighborLoader(data, [3], input_time=torch.zeros(200, dtype=torch.int64))
    with pytest.raises(NotImplementedError, match='sampler: .*leave it out'):
        morphgl.NeighborLoader(data, [3], disjoint=True, sampler="shadow")
    with pytest.raises(TypeError, match="batchsize: no such argument"):
        morphgl.NeighborLoader(typed(0), [3], "paper", batchsize=3)
    with pytest.raises(NotImplementedError, match="replace: "):
        morphgl.NeighborLoader(typed(0), [3], "paper", replace=True)
    with pytest.raises(NotImplementedError, match='output: .*give "pyg"'):
        morphgl.NeighborLoader(typed(0), [3], "paper", output="dgl")
    with pytest.raises(NotImplementedError, match="data: pairs of several edge types.*morphgl.pyg.Sampler"):
        morphgl.LinkNeighborLoader(typed(0), [3])
    with pytest.raises(ValueError, match="num_workers: -1"):
        morphgl.NeighborLoader(data, [3], num_workers=-1)


def test_times_and_transforms_of_our_loader():
    data = typed(3)
    data["paper"].time = torch.randint(100, (150,), generator=torch.Generator().manual_seed(0))
    times = torch.full((150,), 50)
    seen = []
    loader = morphgl.NeighborLoader(
        data, [3, 3], "paper", times, time_attr="time", temporal_strategy="last", batch_size=40, drop_last=True, pin_memory=False,
        transform_sampler_output=lambda out: seen.append(out) or out, transform=lambda batch: (batch, batch["paper"].seed_time))
    assert len(loader) == 3 and "Sampler" in repr(loader)
    for batch, seed_time in loader:
        assert (seed_time == 50).all() and len(batch["paper"].batch) == batch["paper"].num_nodes
        assert (batch["paper"].time[batch["paper", "cites", "paper"].edge_index[0]] <= 50).all()
    assert len(seen) == 3


def test_memory_does_not_grow():
    rss = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    one, other = (Sampler(data, [3, 2], disjoint=True) for data in (untyped(0), typed(0)))
    for number in range(6000):
        if number == 2000:
            before = rss()
        one.sample_from_nodes(NodeSamplerInput(None, torch.arange(8)))
        kept = other.sample_from_nodes(NodeSamplerInput(None, torch.arange(8), input_type="paper"))
    assert rss() - before < 4 << 20
    # A mini-batch is valid when its sampler is gone.
    rows = kept.node["paper"].clone()
    del one, other
    assert torch.equal(rows, kept.node["paper"])


def test_threads_end_with_the_iterator():
    for batch in morphgl.NeighborLoader(typed(0), [3], "paper", batch_size=4, threads=3):
        break
    gc.collect()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("morphgl-loader")]


def test_lightning_takes_it():
    pytest.importorskip("pytorch_lightning")
    from torch_geometric.data.lightning import LightningNodeData

    data = untyped(0)
    module = LightningNodeData(data, input_train_nodes=data.train_mask, loader="custom", node_sampler=Sampler(data, [3]), batch_size=8)
    assert next(iter(module.train_dataloader())).batch_size == 8
