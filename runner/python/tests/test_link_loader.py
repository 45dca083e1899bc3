"""Mini-batches of pairs: whose ends they are, their labels, what is left out, and what is refused."""

import numpy as np
import pytest

from morphgl import Graph, LinkNeighborLoader, NeighborLoader


def loader(graph, **options):
    return LinkNeighborLoader(graph, **{"num_neighbors": [4, 3], "batch_size": 50, "output": "numpy", "shuffle": True, "seed": 0, **options})


@pytest.fixture
def pairs(data):
    """Edges, some twice, and pairs that are none."""
    rng = np.random.default_rng(4)
    return np.concatenate([data["edge_index"][:, ::20], data["edge_index"][:, :20], rng.integers(0, 900, (2, 100))], axis=1)


def contents(batch):
    return [batch.n_id.copy(), batch.edge_index.copy(), batch.edge_label_index.copy(), batch.input_id.copy()]


def equal(a, b):
    return len(a) == len(b) and all((u == v).all() for left, right in zip(a, b) for u, v in zip(left, right))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("options", [{}, {"sampler": "shadow"}, {"sampler": "walk", "layers": 1}])
def test_pairs_are_those_given_once_per_epoch(data, graph, pairs, shuffle, options):
    made = loader(graph, edge_label_index=pairs, shuffle=shuffle, **options)
    assert len(made) == -(-pairs.shape[1] // 50) and "LinkNeighborLoader(" in repr(made)
    orders = []
    for _ in range(2):
        seen = []
        for batch in made:
            assert (batch.n_id[batch.edge_label_index] == pairs[:, batch.input_id]).all()
            assert batch.edge_label is None and batch.edge_label_index.dtype == batch.input_id.dtype == np.int64
            # The seeds are the ends, each once, by first appearance.
            ends = batch.edge_label_index.T.reshape(-1)
            assert list(dict.fromkeys(ends.tolist())) == list(range(batch.batch_size)) and batch.num_sampled_nodes[0] == batch.batch_size
            assert len(set(batch.n_id.tolist())) == len(batch.n_id)
            assert (batch.x == data["x"][batch.n_id]).all() and (batch.y == data["y"][batch.n_id]).all()
            seen += batch.input_id.tolist()
        assert sorted(seen) == list(range(pairs.shape[1]))
        orders.append(seen)
    assert (orders[0] == sorted(orders[0])) != shuffle and (orders[0] != orders[1]) == shuffle


def test_mini_batches_depend_on_seed_and_epoch_alone(graph, pairs, tmp_path):
    runs = [[contents(b) for b in loader(graph, edge_label_index=pairs, neg_sampling_ratio=2.0, threads=t)] for t in (1, 3)]
    assert equal(sum(runs[0], []), sum(runs[1], []))
    other = [contents(b) for b in loader(graph, edge_label_index=pairs, neg_sampling_ratio=2.0, seed=1)]
    assert not equal(other[0][:1], runs[0][0][:1])
    graph.save(tmp_path / "g")
    for options in ({}, {"memory": "64MiB"}):
        again = [contents(b) for b in loader(str(tmp_path / "g"), edge_label_index=pairs, neg_sampling_ratio=2.0, **options)]
        assert equal(sum(again, []), sum(runs[0], []))


def test_the_pairs_own_edges_are_left_out(data, graph, pairs):
    edges = set(map(tuple, data["edge_index"].T))
    read = 0
    for keep in (False, True):
        for batch in loader(graph, edge_label_index=pairs, num_neighbors=[-1, -1], keep_target_edges=keep):
            sources, targets = batch.n_id[batch.edge_index]
            sampled = set(zip(sources.tolist(), targets.tolist()))
            own = {(int(u), int(v)) for u, v in batch.n_id[batch.edge_label_index].T}
            own |= {(v, u) for u, v in own}
            assert sampled <= edges
            if keep:
                read += len(sampled & own)
            else:
                assert not sampled & own
    assert read > 100


def test_labels_follow_their_pairs_and_negatives_have_0(graph, pairs):
    count = pairs.shape[1]
    for label, mode, positive in [
        (None, None, None), (np.arange(count), None, np.arange(count)), (None, "binary", np.ones(count)),
        (np.arange(count) % 3, "binary", np.arange(count) % 3 + 1), (np.arange(count) % 3 + 1.5, "binary", np.arange(count) % 3 + 1.5),
        (np.ones((count, 2)), "binary", np.ones((count, 2))),
    ]:
        for batch in loader(graph, edge_label_index=pairs, edge_label=label, neg_sampling=mode):
            if positive is None:
                assert batch.edge_label is None
                continue
            size = len(batch.input_id)
            assert (batch.edge_label[:size] == positive[batch.input_id]).all() and (batch.edge_label[size:] == 0).all()
            assert len(batch.edge_label) == batch.edge_label_index.shape[1] == size * (1 if mode is None else 2)


def test_negatives_keep_their_source(data, graph, pairs):
    edges = set(map(tuple, data["edge_index"].T))
    for options in ({"neg_sampling_ratio": 3}, {"neg_sampling": ("binary", 3), "avoid_edges": True},
                    {"neg_sampling": {"mode": "binary", "amount": 3}, "negative_distribution": "in-batch"}):
        for batch in loader(graph, edge_label_index=pairs, **options):
            size = len(batch.input_id)
            sources, destinations = batch.n_id[batch.edge_label_index]
            assert (sources[size:].reshape(size, 3) == sources[:size, None]).all()
            if options.get("avoid_edges"):
                assert not edges.intersection(zip(sources[size:].tolist(), destinations[size:].tolist()))
            if "negative_distribution" in options and size > 1:
                assert set(destinations[size:].tolist()) <= set(destinations[:size].tolist())
    for amount in (1, 4):
        for batch in loader(graph, edge_label_index=pairs, neg_sampling=("triplet", amount)):
            size = len(batch.input_id)
            assert (batch.n_id[np.stack([batch.src_index, batch.dst_pos_index])] == pairs[:, batch.input_id]).all()
            assert batch.dst_neg_index.shape == ((size,) if amount == 1 else (size, amount))
            assert batch.edge_label_index is None and batch.edge_label is None


def test_negatives_of_the_graph_are_given(data, pairs):
    rng = np.random.default_rng(8)
    given = np.stack([np.repeat(pairs[0], 4), rng.integers(0, 1000, 4 * pairs.shape[1])])
    graph = Graph.from_numpy(**data, train_edges=pairs, train_negatives=given, valid_edges=pairs, valid_negatives=given[:, ::-1])
    for amount in (4, 2):
        for batch in loader(graph, edge_label_index="train", neg_sampling=("triplet", amount), negative_distribution="given"):
            found = batch.n_id[batch.dst_neg_index]
            of_pair = given[1].reshape(-1, 4)[batch.input_id]
            if amount == 4:
                assert (found == of_pair).all()
            else:
                assert all(set(some) <= set(all) for some, all in zip(found.tolist(), of_pair.tolist()))
    options = {"neg_sampling": "triplet", "negative_distribution": "given"}
    with pytest.raises(ValueError, match='the negatives of "valid" are one list for all pairs'):
        loader(graph, edge_label_index="valid", **options)
    with pytest.raises(ValueError, match="edge_label_index: 5 negatives per positive are more than the 4 that are given"):
        loader(graph, edge_label_index="train", neg_sampling=("triplet", 5), negative_distribution="given")
    with pytest.raises(ValueError, match="edge_label_index: there is no pair"):
        loader(graph, edge_label_index="test", **options)
    with pytest.raises(NotImplementedError, match='"given" takes the negatives of a split of the graph'):
        loader(graph, edge_label_index=pairs, **options)
    with pytest.raises(ValueError, match="train_edges_negatives, element 0: 2079 negatives of 520 pairs are not as many for each"):
        Graph.from_numpy(**data, train_edges=pairs, train_negatives=given[:, 1:])


def test_edges_of_the_graph_and_its_splits_are_pairs(data, pairs):
    kept = Graph.from_numpy(**data, edge_ids=True, valid_edges=pairs)
    label = np.arange(8000)
    for batch in loader(kept, edge_label=label, batch_size=1000):
        assert (batch.n_id[batch.edge_label_index] == data["edge_index"][:, batch.input_id]).all()
        assert (batch.edge_label == batch.input_id).all()
    for name, expected in (("valid", pairs), ("train", kept.edge_split("train"))):
        for batch in loader(kept, edge_label_index=name):
            assert (batch.n_id[batch.edge_label_index] == expected[:, batch.input_id]).all()
    # Without positions, edges come in the order of the columns.
    bare = Graph.from_numpy(**data)
    sources, targets = data["edge_index"]
    batches = list(loader(bare, shuffle=False, batch_size=1000))
    found = np.concatenate([batch.n_id[batch.edge_label_index] for batch in batches], axis=1)
    assert (found == data["edge_index"][:, np.lexsort((sources, targets))]).all()
    with pytest.raises(ValueError, match="edge_label: the graph did not keep the positions of its edges"):
        loader(bare, edge_label=label)


def test_edge_ids_and_length(data, pairs):
    graph = Graph.from_numpy(**data, edge_ids=True)
    for batch in loader(graph, edge_label_index=pairs, edge_ids=True):
        assert (batch.n_id[batch.edge_index] == data["edge_index"][:, batch.e_id]).all()
    made = loader(graph, edge_label_index=pairs[:, :120], drop_last=True)
    assert len(made) == 2 and [len(batch.input_id) for batch in made] == [50, 50]
    seen = []
    list(loader(graph, edge_label_index=pairs, transform=lambda batch: seen.append(batch.edge_label_index)))
    assert len(seen) == len(loader(graph, edge_label_index=pairs))


def test_arguments_are_pyg_s_by_position(graph, pairs):
    label = np.arange(pairs.shape[1])
    given = LinkNeighborLoader(graph, [4, 3], pairs, label, None, False, "directional", False, "uniform", None, 1.0, output="numpy")
    batch = next(iter(given))
    assert batch.edge_label_index.shape[1] == 2 * len(batch.input_id) and given.batch_size == 1024
    assert LinkNeighborLoader(graph, [4, 3], 100, pairs, output="numpy").batch_size == 100


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"edge_label_index": np.zeros((3, 2), int)}, ValueError, "edge_label_index: its shape is .*; pass edge_label_index.T"),
        ({"edge_label_index": np.array([[0], [1000]])}, ValueError, "edge_label_index: the pair 0,1000 names a node that does not exist"),
        ({"edge_label_index": np.zeros((2, 0), int)}, ValueError, "edge_label_index: there is no pair"),
        ({"edge_label_index": "all"}, ValueError, "edge_label_index: 'all'; give one of 'train', 'valid', 'test'"),
        ({"edge_label_index": (("a", "to", "b"), None)}, NotImplementedError, "edge_label_index: an edge type"),
        ({"edge_label": np.zeros(3)}, ValueError, "edge_label: 3 labels for 520 pairs"),
        ({"edge_label_time": np.zeros(3)}, NotImplementedError, "edge_label_time: mini-batches are not temporal"),
        ({"neg_sampling": "every"}, ValueError, "neg_sampling: 'every'; give one of 'binary', 'triplet'"),
        ({"neg_sampling_ratio": 0.5}, NotImplementedError, "neg_sampling: 0.5 negatives per pair; give a whole number"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 1.0}, ValueError, "neg_sampling_ratio: neg_sampling is given, too"),
        ({"neg_sampling": {"mode": "binary", "dst_weight": np.ones(3)}}, NotImplementedError, "neg_sampling: dst_weight"),
        ({"neg_sampling": "triplet", "edge_label": np.zeros(520)}, ValueError, "edge_label: triplets have none"),
        ({"negative_distribution": "zipf"}, ValueError, "negative_distribution: 'zipf'"),
        ({"output": "dgl"}, NotImplementedError, "output: mini-batches of pairs have no form of DGL"),
        ({"disjoint": True}, NotImplementedError, "disjoint: "),
        ({"neg_samplin": "binary"}, TypeError, "neg_samplin: no such argument; did you mean neg_sampling?"),
        ({"input_nodes": [1]}, TypeError, "input_nodes: no such argument"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(graph, pairs, options, error, message):
    with pytest.raises(error, match=message):
        loader(graph, **{"edge_label_index": pairs, **options})


def test_targets_of_nodes_are_in_mini_batches(data):
    values = np.random.default_rng(3).standard_normal((1000, 3)).astype(np.float32)
    values[::5, 1] = np.nan
    arrays = {name: data[name] for name in ("edge_index", "x", "train")}
    for given, expected, classes in [(values, values, None), (values[:, 0], values[:, 0], None), (values[:, :1], values[:, :1], None),
                                     (values, values, data["y"])]:
        graph = Graph.from_numpy(**arrays, targets=given, y=classes)
        for made in (NeighborLoader(graph, [3, 2], 64, "train", output="numpy"), loader(graph)):
            for batch in made:
                np.testing.assert_array_equal(batch.targets, expected[batch.n_id])
                np.testing.assert_array_equal(batch.y, (expected if classes is None else classes)[batch.n_id])
                assert batch.targets.dtype == np.float32
