"""Tensors, PyG's mini-batches and layers; skipped without torch or PyG."""

import numpy as np
import pytest

from morphgl import Graph, NeighborLoader

torch = pytest.importorskip("torch")


def tensors(data):
    return {name: torch.from_numpy(values) for name, values in data.items()}


def test_tensors_share_the_loader_s_memory(data):
    graph = Graph.from_numpy(**tensors(data))
    assert np.shares_memory(graph.x, data["x"])
    for batch in NeighborLoader(graph, [3, 2], 64, input_nodes=torch.from_numpy(data["train"]), output="torch"):
        assert batch.x.dtype == torch.float32 and batch.n_id.dtype == torch.int64
        assert (batch.x == torch.from_numpy(data["x"])[batch.n_id]).all()
        batch.x.mul_(2)  # it belongs to the caller
    one = NeighborLoader(graph, [3, 2], 64, output="torch", threads=1)
    addresses = {batch.x.data_ptr() for _ in range(10) for batch in one}
    assert len(addresses) <= 20 < 10 * len(one)


def test_bfloat16_features(data):
    x = torch.from_numpy(data["x"]).bfloat16()
    batch = next(iter(NeighborLoader(Graph.from_numpy(data["edge_index"], x), [3], 10, output="torch")))
    assert batch.x.dtype == torch.bfloat16 and (batch.x == x[batch.n_id]).all()


def test_tensors_elsewhere_are_refused(data):
    with pytest.raises(ValueError, match=r"x: the tensor is on meta; pass x.cpu\(\)"):
        Graph.from_numpy(data["edge_index"], torch.empty(1000, 3, device="meta"))


class Loaded(torch.utils.data.IterableDataset):
    def __init__(self, graph):
        self.graph = graph

    def __iter__(self):
        # A worker of torch's has a generator of its own, of which a loader without a seed draws one.
        for batch in NeighborLoader(self.graph, [3, 2], 64, output="torch", threads=1, seed=0):
            yield batch.n_id.clone()


def test_a_loader_within_a_worker_of_torch_s(graph):
    loader = NeighborLoader(graph, [3, 2], 64, output="torch", threads=1, seed=0)
    here = [batch.n_id.clone() for batch in loader]
    there = list(torch.utils.data.DataLoader(Loaded(graph), batch_size=None, num_workers=1))
    assert len(here) == len(there) and all((a == b).all() for a, b in zip(here, there))


def test_pyg_batches_and_layers(data):
    geometric = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    pyg = geometric.data.Data(
        x=torch.from_numpy(data["x"]), edge_index=torch.from_numpy(data["edge_index"]),
        y=torch.from_numpy(data["y"]).long(), train_mask=torch.from_numpy(data["train"]))
    graph = Graph.from_pyg(pyg)
    assert (graph.split("train") == np.flatnonzero(data["train"])).all()
    # With all neighbours the seeds' outputs are those of the whole graph.
    torch.manual_seed(0)
    for conv in (SAGEConv, GATConv):
        layers = [conv(12, 16), conv(16, 5)]
        forward = lambda x, edges: layers[1](layers[0](x, edges).relu(), edges)
        whole = forward(pyg.x, pyg.edge_index)
        for batch in NeighborLoader(pyg, [-1, -1], 100, input_nodes=pyg.train_mask):
            assert isinstance(batch, geometric.data.Data)
            out = forward(batch.x, batch.edge_index)[:batch.batch_size]
            torch.testing.assert_close(out, whole[batch.n_id[:batch.batch_size]], atol=1e-4, rtol=1e-4)
    gcn = GCNConv(12, 5)
    for batch in NeighborLoader(pyg, [3, 2], 100):
        edges = batch.n_id[batch.edge_index]
        relabelled = torch.searchsorted(batch.n_id.sort().values, edges)
        ordered = batch.n_id.sort().indices
        out = gcn(batch.x[ordered], relabelled)
        torch.testing.assert_close(gcn(batch.x, batch.edge_index)[ordered], out, atol=1e-5, rtol=1e-5)


def pyg_batches(pyg, seeds):
    """PyG's mini-batches with all neighbours of two hops: by its loader, or, where what that needs is not installed, by its utility."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader as PygLoader
    from torch_geometric.utils import k_hop_subgraph

    try:
        return list(PygLoader(pyg, [-1, -1], seeds, batch_size=100))
    except ImportError:
        made = []
        for some in seeds.split(100):
            targets = k_hop_subgraph(some, 1, pyg.edge_index, num_nodes=pyg.num_nodes)[0]
            edges = pyg.edge_index[:, torch.isin(pyg.edge_index[1], targets)]
            nodes = torch.cat([some, edges.flatten()]).unique()
            edges, places = torch.searchsorted(nodes, edges), torch.searchsorted(nodes, some)
            made.append(Data(x=pyg.x[nodes], edge_index=edges, places=places))
        return made


def test_layers_give_what_they_give_on_pyg_s_mini_batches(data):
    geometric = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    pyg = geometric.data.Data(x=torch.from_numpy(data["x"]), edge_index=torch.from_numpy(data["edge_index"]))
    seeds = torch.from_numpy(np.flatnonzero(data["train"]))
    theirs = pyg_batches(pyg, seeds)
    ours = list(NeighborLoader(pyg, [-1, -1], 100, input_nodes=seeds, output="pyg"))
    assert len(ours) == len(theirs)
    torch.manual_seed(0)
    for conv in (SAGEConv, GATConv, GCNConv):
        layers = [conv(12, 16), conv(16, 5)]
        forward = lambda batch: layers[1](layers[0](batch.x, batch.edge_index).relu(), batch.edge_index)
        for a, b in zip(ours, theirs):
            out, places = forward(b), b.get("places")
            expected = out[:a.batch_size] if places is None else out[places]
            torch.testing.assert_close(forward(a)[:a.batch_size], expected, atol=1e-4, rtol=1e-4)


def test_seeds_that_repeat_give_what_they_give_on_pyg_s_mini_batches(data):
    geometric = pytest.importorskip("torch_geometric")
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

    x, y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"]).long()
    pyg = geometric.data.Data(x=x, y=y, edge_index=torch.from_numpy(data["edge_index"]))
    train = torch.from_numpy(np.flatnonzero(data["train"]))
    seeds = torch.cat([train, train[::3], train[::2], train[:40]])
    seeds = seeds[torch.randperm(len(seeds), generator=torch.Generator().manual_seed(3))]
    ours = list(NeighborLoader(pyg, [-1, -1], 100, input_nodes=seeds, output="pyg"))
    assert torch.cat([a.n_id[:a.batch_size] for a in ours]).equal(seeds)
    assert torch.cat([a.input_id for a in ours]).equal(torch.arange(len(seeds)))
    torch.manual_seed(0)
    for conv in (SAGEConv, GATConv, GCNConv):
        layers = [conv(12, 16).double(), conv(16, 5).double()]
        forward = lambda batch: layers[1](layers[0](batch.x.double(), batch.edge_index).relu(), batch.edge_index)
        for a, some in zip(ours, seeds.split(100)):
            # PyG's mini-batch of the same nodes, each once.
            distinct = some.unique()
            (b,) = pyg_batches(pyg, distinct)
            out, places = forward(b), b.get("places")
            rows = out[:len(distinct)] if places is None else out[places]
            expected = rows[torch.searchsorted(distinct, some)]
            torch.testing.assert_close(forward(a)[:a.batch_size], expected, atol=1e-6, rtol=1e-6)
            assert a.y[:a.batch_size].equal(y[some])


def test_dgl_blocks(data, graph):
    dgl = pytest.importorskip("dgl")
    from dgl.nn import SAGEConv

    g = dgl.graph((torch.from_numpy(data["edge_index"][0]), torch.from_numpy(data["edge_index"][1])), num_nodes=1000)
    g.ndata["feat"], g.ndata["label"] = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    g.ndata["train_mask"] = torch.from_numpy(data["train"])
    same = Graph.from_dgl(g)
    assert (same.indices == graph.indices).all() and (same.split("train") == graph.split("train")).all()
    layers = [SAGEConv(12, 16, "mean"), SAGEConv(16, 5, "mean")]
    whole = layers[1](g, layers[0](g, g.ndata["feat"]).relu())
    for n_id, seeds, blocks in NeighborLoader(same, [-1, -1], 100, input_nodes="train", output="dgl"):
        hidden = layers[0](blocks[0], blocks[0].srcdata["feat"]).relu()
        torch.testing.assert_close(layers[1](blocks[1], hidden), whole[seeds], atol=1e-4, rtol=1e-4)
        assert (blocks[-1].dstdata["label"] == g.ndata["label"][seeds]).all() and (n_id[:len(seeds)] == seeds).all()
