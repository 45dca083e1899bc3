"""Laws of PyG's mini-batches, on random small graphs: every attribute is the one that PyG's own functions take of the same nodes and edges,
and PyG's layers say the same on them."""

import os

import pytest

import morphgl

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.loader.utils import filter_data, filter_hetero_data  # noqa: E402
from torch_geometric.nn import GATConv, RGCNConv  # noqa: E402

# The same examples in every run; MORPHGL_EXAMPLES is their number.
law = settings(max_examples=int(os.environ.get("MORPHGL_EXAMPLES", 60)), deadline=None, derandomize=True, database=None)

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
          torch.complex64]
TIMES = [torch.int16, torch.int32, torch.int64]
# Of which kinds sub-graphs are: by operators of morphgl, and by `morphgl.pyg.Sampler`.
KINDS = [{}, {"replace": False, "subgraph_type": "directional"}, {"sampler": "shadow"}, {"disjoint": True},
         {"subgraph_type": "bidirectional"}, {"subgraph_type": "induced"}]


def values(random, dtype, shape):
    """A random tensor of any type."""
    made = torch.randint(0, 5, shape, generator=random)
    return made.to(dtype) if not dtype.is_floating_point else (made + torch.rand(shape, generator=random)).to(dtype)


@st.composite
def columns(draw, names):
    """Names, types and shapes of some attributes, an element of which is per node or edge."""
    shapes = st.sampled_from([(), (1,), (3,), (2, 2), (0,)])
    return draw(st.dictionaries(st.sampled_from(names), st.tuples(st.sampled_from(DTYPES), shapes), max_size=len(names)))


@st.composite
def untyped(draw):
    """A `Data` with attributes of nodes, of edges and of the graph; repeated edges and self-loops are among its edges."""
    nodes, edges = draw(st.integers(1, 12)), draw(st.integers(0, 40))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    data = Data(edge_index=torch.randint(nodes, (2, edges), generator=random), num_nodes=nodes)
    if draw(st.booleans()):
        data.x = values(random, draw(st.sampled_from([of for of in DTYPES if of not in (torch.bool, torch.complex64)])), (nodes, 3))
    if draw(st.booleans()):
        data.y = values(random, draw(st.sampled_from([torch.int64, torch.int32, torch.float32])), (nodes,))
    if draw(st.booleans()):
        data.pos = values(random, torch.float32, (nodes, 2))
    for name in draw(st.sets(st.sampled_from(["train_mask", "val_mask", "test_mask"]))):
        data[name] = torch.rand(nodes, generator=random) < 0.5
    if draw(st.booleans()):
        data.time = values(random, draw(st.sampled_from(TIMES)), (nodes,))
    for name, (dtype, shape) in draw(columns(["node_level", "node_name"])).items():
        data[name] = values(random, dtype, (nodes, *shape))
    for name, (dtype, shape) in draw(columns(["edge_attr", "edge_type", "edge_level"])).items():
        data[name] = values(random, dtype, (edges, *shape))
    if draw(st.booleans()):
        data.edge_weight = torch.rand(edges, generator=random)
    if draw(st.booleans()):
        data.name, data.scale = "one", 0.5
    return data


@st.composite
def typed(draw):
    """A `HeteroData`, among whose edge types are some without edges, and two between the same node types."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    data, counts = HeteroData(), {name: draw(st.integers(1, 9)) for name in ("a", "b", "c")}
    for name, count in counts.items():
        data[name].num_nodes = count
        for key, (dtype, shape) in draw(columns(["x", "pos", "time", "level"])).items():
            data[name][key] = values(random, dtype, (count, *shape))
        if draw(st.booleans()):
            data[name].train_mask = torch.rand(count, generator=random) < 0.5
    types = [("a", "to", "b"), ("b", "to", "a"), ("b", "of", "a"), ("c", "to", "c"), ("c", "to", "b")]
    for source, name, target in draw(st.lists(st.sampled_from(types), min_size=1, unique=True)):
        count = draw(st.integers(0, 25))
        store = data[source, name, target]
        store.edge_index = torch.stack([torch.randint(counts[end], (count,), generator=random) for end in (source, target)])
        for key, (dtype, shape) in draw(columns(["edge_attr", "time", "level"])).items():
            store[key] = values(random, dtype, (count, *shape))
    return data


def equal(one, other):
    """Whether two values are the same, in type and shape, too."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and one == other


def check_store(ours, theirs, original):
    for name in original.keys():
        assert name in ours and equal(ours[name], theirs[name]), (name, ours.get(name), theirs[name])


fanouts = st.sampled_from([[-1], [2], [1, 3], [-1, -1], [2, 2, 2]])


@given(data=untyped(), fanouts=fanouts, kind=st.sampled_from(KINDS), seed=st.integers(0, 99), by_time=st.booleans())
@law
def test_mini_batches_have_what_filter_data_takes(data, fanouts, kind, seed, by_time):
    options = {**kind, "batch_size": 1 + seed % 5, "shuffle": True, "seed": seed, "threads": 1}
    if "time" in data and by_time and "sampler" not in kind and kind.get("subgraph_type") != "induced":
        options = {**options, "time_attr": "time", "temporal_strategy": ("uniform", "last")[seed % 2], "disjoint": True}
    if data.get("edge_weight") is not None and seed % 2 and "time_attr" not in options:
        options["weight_attr"] = "edge_weight"
    options["edge_ids"] = True
    total = 0
    for batch in morphgl.NeighborLoader(data, fanouts, **options):
        theirs = filter_data(data, batch.n_id, *batch.edge_index, batch.e_id)
        check_store(batch._store, theirs._store, data._store)
        # The edges are those of the graph, and the seeds come first.
        ends = batch.n_id[batch.edge_index]
        if kind.get("subgraph_type") == "bidirectional":
            # An edge and its reverse have the same id.
            assert torch.equal(data.edge_index[:, batch.e_id].sort(0).values, ends.sort(0).values)
        else:
            assert torch.equal(data.edge_index[:, batch.e_id], ends)
        assert torch.equal(batch.n_id[:batch.batch_size], batch.input_id) and batch.num_nodes == len(batch.n_id)
        total += batch.batch_size
    assert total == data.num_nodes


@given(data=typed(), fanouts=fanouts, disjoint=st.booleans(), seed=st.integers(0, 99))
@law
def test_typed_mini_batches_have_what_filter_hetero_data_takes(data, fanouts, disjoint, seed):
    seeds = data.node_types[seed % 3]
    loader = morphgl.NeighborLoader(data, fanouts, input_nodes=seeds, disjoint=disjoint, batch_size=1 + seed % 4, seed=seed, threads=1)
    for batch in loader:
        ids = lambda stores, key: {of: store[key] for of, store in stores}
        nodes = ids(batch.node_items(), "n_id")
        edges = ids(batch.edge_items(), "e_id")
        index = ids(batch.edge_items(), "edge_index")
        theirs = filter_hetero_data(data, nodes, {of: pair[0] for of, pair in index.items()}, {of: pair[1] for of, pair in index.items()}, edges)
        for of, store in [*data.node_items(), *data.edge_items()]:
            check_store(batch[of], theirs[of], store)
        for (source, name, target), pair in index.items():
            ends = torch.stack([nodes[source][pair[0]], nodes[target][pair[1]]])
            assert torch.equal(data[source, name, target].edge_index[:, edges[source, name, target]], ends)
        assert torch.equal(nodes[seeds][:batch[seeds].batch_size], batch[seeds].input_id)


def own_batch(data, batch):
    """PyG's mini-batch of the nodes and edges of one of ours, made of the data alone."""
    place = {node: number for number, node in enumerate(batch.n_id.tolist())}
    ends = data.edge_index[:, batch.e_id]
    return filter_data(data, batch.n_id, *(torch.tensor([place[node] for node in row.tolist()], dtype=torch.int64) for row in ends), batch.e_id)


@st.composite
def learnable(draw):
    """A `Data` with features, and features and types of edges; no edge twice, since layers cannot tell which one was sampled."""
    nodes = draw(st.integers(1, 12))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    edges = torch.randperm(nodes * nodes, generator=random)[:draw(st.integers(0, 40))]
    index = torch.stack([edges // nodes, edges % nodes])
    return Data(x=torch.randn(nodes, 4, generator=random), edge_index=index, edge_attr=torch.randn(index.shape[1], 3, generator=random),
                edge_type=torch.randint(3, (index.shape[1],), generator=random))


@given(data=learnable(), seed=st.integers(0, 99), fanouts=fanouts)
@law
def test_layers_with_features_and_types_of_edges_say_the_same(data, seed, fanouts):
    torch.manual_seed(seed)
    gat = GATConv(4, 5, heads=2, edge_dim=3).eval()
    rgcn = RGCNConv(4, 5, num_relations=3, num_bases=2).eval()
    layers = [lambda of: gat(of.x, of.edge_index, of.edge_attr), lambda of: rgcn(of.x, of.edge_index, of.edge_type)]
    with torch.no_grad():
        whole = [layer(data) for layer in layers]
        for batch in morphgl.NeighborLoader(data, fanouts, batch_size=3, shuffle=True, seed=seed, threads=1):
            theirs = own_batch(data, batch)
            for layer, of_all in zip(layers, whole):
                ours = layer(batch)
                assert torch.equal(ours, layer(theirs))
                if fanouts[0] == -1:
                    # With all neighbours, the seeds' are those of the whole graph.
                    torch.testing.assert_close(ours[:batch.batch_size], of_all[batch.input_id], rtol=1e-5, atol=1e-5)


@given(data=typed(), seed=st.integers(0, 99))
@law
def test_rgcn_says_of_typed_mini_batches_what_it_says_of_pyg_s(data, seed):
    for name in data.node_types:
        for key in list(data[name].keys()):
            if key != "num_nodes":
                del data[name][key]
        data[name].x = torch.randn(data[name].num_nodes, 4, generator=torch.Generator().manual_seed(seed))
    for of in data.edge_types:
        for key in [key for key in data[of].keys() if key != "edge_index"]:
            del data[of][key]
    torch.manual_seed(seed)
    rgcn = RGCNConv(4, 5, num_relations=len(data.edge_types)).eval()
    of = lambda batch: batch.to_homogeneous(add_node_type=True, add_edge_type=True)
    seeds = data.node_types[seed % 3]
    with torch.no_grad():
        whole = rgcn(of(data).x, of(data).edge_index, of(data).edge_type)
        whole = whole[of(data).node_type == data.node_types.index(seeds)]
        for batch in morphgl.NeighborLoader(data, [-1], input_nodes=seeds, batch_size=2, seed=seed, threads=1):
            count = batch[seeds].batch_size
            ids = {name: store.input_id for name, store in batch.node_items() if "input_id" in store}[seeds]
            same = of(batch)
            ours = rgcn(same.x, same.edge_index, same.edge_type)[same.node_type == data.node_types.index(seeds)]
            # Edges of the same type between the same nodes count as often as they are there.
            torch.testing.assert_close(ours[:count], whole[ids], rtol=1e-5, atol=1e-5)
