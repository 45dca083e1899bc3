"""Where a loader stands: a state goes on with the mini-batches that were left, bit for bit; and orders that samplers draw."""

import json

import numpy as np
import pytest

from morphgl import Graph, LinkNeighborLoader, NeighborLoader


def nodes(graph, **options):
    given = {"num_neighbors": [4, 3], "batch_size": 64, "input_nodes": "train", "output": "numpy", "shuffle": True, "seed": 0}
    return NeighborLoader(graph, **{**given, **options})


def links(graph, **options):
    pairs = np.stack([graph.indices[::16], np.arange(0, graph.num_edges, 16) % 1000])
    return LinkNeighborLoader(graph, **{"num_neighbors": [4, 3], "batch_size": 64, "edge_label_index": pairs, "output": "numpy", "shuffle": True,
                                        "neg_sampling": "triplet", "seed": 0, **options})


def contents(batch):
    """All that a mini-batch has, copied."""
    values = batch.to_dict() if hasattr(batch, "to_dict") else vars(batch)
    flat = {}
    for name, value in values.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        flat.update({(name, key): np.asarray(part).copy() for key, part in parts if hasattr(part, "shape")})
    return flat


def check_equal(some, others):
    some, others = list(map(contents, some)), list(map(contents, others))
    assert len(some) == len(others)
    for one, other in zip(some, others):
        assert one.keys() == other.keys() and one
        assert all(np.array_equal(one[name], other[name]) for name in one)


def check_goes_on(make, at, epochs=2):
    """A loader that is given another one's state goes on as that one does: in this epoch and in the next ones."""
    whole = make()
    expected = [list(whole) for _ in range(epochs)]
    first = make(threads=1)
    next(iter(first))
    first.set_epoch(0)
    for epoch in range(epochs):
        state = first.state_dict()
        assert (state["epoch"], state["index"]) == (epoch, 0)
        passed = iter(first)
        assert first.state_dict() == state
        for index in range(at):
            next(passed)
            state = json.loads(json.dumps(first.state_dict()))
            assert (state["epoch"], state["index"]) == (epoch, index + 1)
        # Mini-batches that threads have made ahead were not given.
        second = make(threads=3, prefetch=1)
        second.load_state_dict(state)
        assert second.state_dict() == state
        check_equal(second, expected[epoch][at:])
        for later in expected[epoch + 1:]:
            check_equal(second, later)
        assert len(list(passed)) == len(whole) - at


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"sampler": "shadow"}, {"sampler": "walk", "layers": 1}, {"drop_last": True}])
@pytest.mark.parametrize("kind", [nodes, links])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_state_goes_on_with_the_mini_batches_that_were_left(graph, kind, options, at):
    check_goes_on(lambda **threads: kind(graph, **options, **threads), at)


@pytest.mark.parametrize("shuffle", [False, True])
def test_seeds_that_repeat_keep_their_positions(graph, shuffle):
    seeds = np.array([5, 7, 5, 900, 7, 5, 3] * 40 + list(range(100)))
    check_goes_on(lambda **threads: nodes(graph, input_nodes=seeds, shuffle=shuffle, **threads), 3)
    ids = np.concatenate([batch.input_id for batch in nodes(graph, input_nodes=seeds, shuffle=shuffle)])
    assert (np.sort(ids) == np.arange(len(seeds))).all()


def test_states_of_graphs_on_disk_and_of_blocks_go_on(graph, tmp_path):
    graph.save(tmp_path / "g")
    check_goes_on(lambda **threads: nodes(str(tmp_path / "g"), memory="1MiB", **threads), 2)
    check_goes_on(lambda **threads: nodes(str(tmp_path / "g"), weighted=False, features=False, **threads), 2)
    # An epoch without mini-batches.
    few = nodes(graph, batch_size=1000, drop_last=True)
    few.load_state_dict(few.state_dict())
    assert len(few) == 0 and list(few) == []


def test_a_pass_stands_behind_its_last_mini_batch_until_the_loop_ends(graph):
    loader, other = nodes(graph), nodes(graph)
    states = [loader.state_dict() for _ in loader]
    assert [(state["epoch"], state["index"]) for state in states] == [(0, index + 1) for index in range(len(loader))]
    other.load_state_dict(states[-1])
    assert list(other) == [] and other.state_dict()["epoch"] == 1
    assert (loader.state_dict()["epoch"], loader.state_dict()["index"]) == (1, 0)
    for index, _ in enumerate(loader):
        if index == 1:
            break
    # The loop was left: the state says where, and the next pass is the next epoch.
    assert (loader.state_dict()["epoch"], loader.state_dict()["index"]) == (1, 2)
    other.set_epoch(2)
    check_equal(loader, other)
    # A transform that fails has not given its mini-batch.
    failing = nodes(graph, transform=lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(iter(failing))
    assert failing.state_dict()["index"] == 0
    # Of two passes at once the later one counts.
    one, two = iter(loader), iter(loader)
    next(two), next(one), next(one)
    assert (loader.state_dict()["epoch"], loader.state_dict()["index"]) == (4, 1)


@pytest.mark.parametrize(
    "kind, options, message",
    [
        (nodes, {"seed": 1}, "seed is 0 of the state's loader and 1 of this one"),
        (nodes, {"batch_size": 32}, "batch_size is 64 of the state's loader and 32 of this one"),
        (nodes, {"shuffle": False}, "shuffle is True"),
        (nodes, {"drop_last": True}, "drop_last is False"),
        (nodes, {"num_neighbors": [4, 4]}, "num_neighbors is '4,3'"),
        (nodes, {"sampler": "shadow"}, "sampler is 'neighbor'"),
        (nodes, {"input_nodes": np.arange(100)}, "input_nodes differs"),
        (nodes, {"sampler": range(300), "shuffle": False}, "order of seeds is None of the state's loader and 'range' of this one"),
        (links, {}, "loader is 'NeighborLoader' of the state's loader and 'LinkNeighborLoader' of this one"),
    ],
)
def test_states_of_other_loaders_are_refused_by_name(graph, kind, options, message):
    state = nodes(graph).state_dict()
    with pytest.raises(ValueError, match=f"state: .*{message}"):
        kind(graph, **options).load_state_dict(state)


def test_states_of_other_pairs_and_what_is_no_state_are_refused(graph):
    state = links(graph).state_dict()
    for options, message in [({"neg_sampling": ("triplet", 2)}, "neg_sampling is"), ({"avoid_edges": True}, "avoid_edges is"),
                             ({"keep_target_edges": True}, "keep_target_edges is False"),
                             ({"edge_label_index": np.zeros((2, 70), int)}, "edge_label_index differs")]:
        with pytest.raises(ValueError, match=f"state: {message}"):
            links(graph, **options).load_state_dict(state)
    loader = nodes(graph)
    good = loader.state_dict()
    for wrong, message in [({}, "not what state_dict"), (None, "not what state_dict"), ({**good, "version": 7}, "version is 7"),
                           ({**good, "index": 500}, "mini-batch 500 of epoch 0; an epoch has 5"), ({**good, "epoch": -1}, "epoch -1")]:
        with pytest.raises(ValueError, match=message):
            loader.load_state_dict(wrong)
    small = Graph.from_numpy(np.array([[0], [1]]), num_nodes=2)
    with pytest.raises(ValueError, match="state: num_"):
        nodes(small, input_nodes=[0]).load_state_dict(good)


class Positions:
    """A sampler as torch's: the positions of each pass in turn."""

    def __init__(self, *passes):
        self.passes, self.calls = passes, 0

    def __len__(self):
        return len(self.passes[0])

    def __iter__(self):
        self.calls += 1
        return iter(self.passes[(self.calls - 1) % len(self.passes)])


@pytest.mark.parametrize("kind", [nodes, links])
def test_a_sampler_draws_the_order_of_each_epoch(graph, kind):
    rng = np.random.default_rng(0)
    count = len(kind(graph).dataset)
    orders = [rng.permutation(count)[:200], rng.integers(count, size=200)]
    loader = kind(graph, sampler=Positions(*orders), shuffle=False)
    assert len(loader) == 4
    for order in orders:
        batches = list(loader)
        assert (np.concatenate([batch.input_id for batch in batches]) == order).all()
        for batch in batches:
            if kind is nodes:
                assert (loader._seeds[batch.input_id] == batch.n_id[:batch.batch_size]).all()
            else:
                ends = np.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]], axis=1)
                assert (loader._seeds[batch.input_id] == ends).all()
    # The mini-batches are those of the seeds in this order.
    given = loader._seeds[orders[0]]
    same = kind(graph, shuffle=False, **{loader.SEEDS: given if kind is nodes else given.T})
    for one, other in zip(kind(graph, sampler=Positions(orders[0]), shuffle=False), same):
        one, other = contents(one), contents(other)
        assert all(np.array_equal(one[name], other[name]) for name in one if name[0] != "input_id")


@pytest.mark.parametrize("kind", [nodes, links])
def test_a_state_keeps_the_order_that_a_sampler_drew(graph, kind):
    count = len(kind(graph).dataset)
    orders = [np.random.default_rng(seed).integers(count, size=200) for seed in (0, 1)]
    make = lambda **threads: kind(graph, sampler=Positions(*orders), shuffle=False, **threads)
    expected = make()
    expected = [list(expected), list(expected)]
    first = make()
    batches = iter(first)
    next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    assert state["order"] == orders[0].tolist()
    # A sampler of its own, which has drawn nothing yet.
    second = kind(graph, sampler=Positions(orders[1], orders[0]), shuffle=False)
    second.load_state_dict(state)
    check_equal(second, expected[0][1:])
    check_equal(second, expected[1])
    with pytest.raises(ValueError, match="lacks the order of its epoch"):
        make().load_state_dict({name: value for name, value in state.items() if name != "order"})


def test_given_negatives_follow_their_pairs(data):
    rng = np.random.default_rng(3)
    pairs, negatives = rng.integers(900, size=(2, 90)), rng.integers(900, size=(90, 2))
    both = np.stack([np.repeat(pairs[0], 2), negatives.reshape(-1)])
    graph = Graph.from_numpy(data["edge_index"], num_nodes=1000, train_edges=pairs, train_negatives=both)
    order = rng.integers(90, size=70)
    loader = links(graph, edge_label_index="train", negative_distribution="given", neg_sampling=("triplet", 2), shuffle=False,
                   sampler=Positions(order))
    for batch in loader:
        assert (batch.n_id[batch.dst_neg_index] == negatives[batch.input_id]).all()


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"sampler": object()}, TypeError, "sampler: object is neither a name nor an iterable of positions with a length"),
        ({"sampler": range(3), "shuffle": True}, ValueError, "shuffle: sampler draws the order"),
        ({"sampler": Positions([[1, 2]])}, TypeError, "sampler: it gives list, which is no position"),
        ({"sampler": Positions([0, 5000])}, ValueError, "sampler: position 5000 does not exist"),
        ({"sampler": Positions([-1])}, ValueError, "sampler: position -1 does not exist"),
    ],
)
def test_wrong_samplers_are_named(graph, options, error, message):
    with pytest.raises(error, match=message):
        list(nodes(graph, **{"shuffle": False, **options}))


def test_samplers_of_nothing_and_of_graphs_on_disk(graph, tmp_path):
    assert list(nodes(graph, shuffle=False, sampler=Positions([]))) == []
    graph.save(tmp_path / "g")
    with pytest.raises(NotImplementedError, match="sampler: a graph left on disk"):
        nodes(str(tmp_path / "g"), memory="1MiB", shuffle=False, sampler=range(9))


@pytest.mark.parametrize("output", ["pyg", "torch", "numpy"])
def test_torch_s_samplers_draw(data, output):
    torch = pytest.importorskip("torch")
    if output == "pyg":
        pytest.importorskip("torch_geometric")
    from torch.utils import data as samplers

    graph = Graph.from_numpy(**data)
    seeds = np.flatnonzero(data["train"])
    count = len(seeds)
    weights = torch.rand(count, generator=torch.Generator().manual_seed(0))
    subset = torch.arange(0, count, 3)
    made = {
        "random": lambda g: samplers.RandomSampler(range(count), generator=g),
        "replaced": lambda g: samplers.RandomSampler(range(count), replacement=True, num_samples=150, generator=g),
        "weighted": lambda g: samplers.WeightedRandomSampler(weights, 150, generator=g),
        "subset": lambda g: samplers.SubsetRandomSampler(subset, generator=g),
        "sequential": lambda g: samplers.SequentialSampler(range(count)),
        "distributed": lambda g: samplers.DistributedSampler(range(count), num_replicas=2, rank=1, seed=5),
    }
    for name, sampler in made.items():
        make = lambda **threads: nodes(graph, output=output, shuffle=False, sampler=sampler(torch.Generator().manual_seed(3)), **threads)
        drawn = list(map(int, sampler(torch.Generator().manual_seed(3))))
        loader = make()
        batches = list(loader)
        assert len(loader) == len(batches) == -(-len(drawn) // 64)
        ids = np.concatenate([np.asarray(batch.input_id) for batch in batches])
        assert ids.tolist() == drawn, name
        for batch in batches:
            chosen = np.asarray(batch.n_id[:batch.batch_size])
            assert (chosen == seeds[np.asarray(batch.input_id)]).all() and (data["y"][chosen] == np.asarray(batch.y[:batch.batch_size])).all()
        first, other = make(), make()
        next(iter(first))
        other.load_state_dict(first.state_dict())
        check_equal(other, batches[1:])


def sampled_data():
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    random = torch.Generator().manual_seed(0)
    for name, count in (("author", 60), ("paper", 150)):
        data[name].x = torch.randn(count, 3, generator=random)
        data[name].time = torch.randint(0, 20, (count,), generator=random)
    index = torch.stack([torch.randint(count, (500,), generator=random) for count in (60, 150)])
    data["author", "writes", "paper"].edge_index = index
    data["paper", "rev_writes", "author"].edge_index = index.flip(0)
    return data


@pytest.mark.parametrize("options", [{}, {"disjoint": True, "shuffle": False}, {"time_attr": "time", "temporal_strategy": "last"}])
def test_states_of_typed_mini_batches(options):
    data = sampled_data()
    make = lambda **more: NeighborLoader(data, [3, 2], **{"input_nodes": "paper", "batch_size": 32, "shuffle": True, "seed": 0, **options, **more})
    check_goes_on(make, 2)
    state = make().state_dict()
    for other, message in [({"seed": 4}, "seed is 0"), ({"batch_size": 8}, "batch_size is 32"),
                           ({"input_nodes": "author"}, "node type of input_nodes is 'paper'"), ({"input_nodes": ("paper", [1, 2])}, "input_nodes differs")]:
        with pytest.raises(ValueError, match=f"state: {message}"):
            make(**other).load_state_dict(state)


def test_a_sampler_draws_the_seeds_of_typed_mini_batches():
    data = sampled_data()
    order = np.random.default_rng(0).integers(150, size=70)
    make = lambda **more: NeighborLoader(data, [3, 2], input_nodes="paper", batch_size=32, sampler=Positions(order), seed=0, **more)
    loader = make()
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert np.concatenate([batch["paper"].input_id for batch in batches]).tolist() == order.tolist()
    for batch in batches:
        assert (batch["paper"].n_id[:batch["paper"].batch_size] == batch["paper"].input_id).all()
    first, second = make(), make()
    next(iter(first))
    second.load_state_dict(first.state_dict())
    check_equal(second, batches[1:])
    with pytest.raises(ValueError, match="shuffle: sampler draws"):
        make(shuffle=True)


@pytest.mark.parametrize("kind", [nodes, links])
def test_the_default_seed_is_drawn_from_torch_s_generator(graph, kind):
    torch = pytest.importorskip("torch")

    def made(seed, **options):
        torch.manual_seed(seed)
        return kind(graph, **{"seed": None, **options})

    first, again, other = made(5), made(5), made(6)
    check_equal(first, again)
    assert not np.array_equal(contents(next(iter(first)))[("n_id", "")], contents(next(iter(other)))[("n_id", "")])
    # As torch's DataLoader, each loader takes a number from the generator.
    torch.manual_seed(5)
    two = [kind(graph, seed=None) for _ in range(2)]
    assert two[0].state_dict()["loader"]["seed"] != two[1].state_dict()["loader"]["seed"]
    # A seed that is given leaves the generator alone.
    before = torch.get_rng_state()
    kind(graph, seed=3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", [nodes, links])
def test_a_state_has_the_seed_that_was_drawn(graph, kind):
    pytest.importorskip("torch")
    whole = kind(graph, seed=None)
    passed = iter(whole)
    next(passed)
    other = kind(graph, seed=None)
    other.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    assert other.state_dict() == whole.state_dict()
    check_equal(other, list(passed))
    check_equal(other, whole)
    drawn = kind(graph, seed=None).state_dict()
    with pytest.raises(ValueError, match="state: seed is"):
        kind(graph, seed=1).load_state_dict(drawn)
    # What is refused for another reason keeps its own seed.
    loader = kind(graph, seed=None, batch_size=32)
    own = loader.state_dict()["loader"]["seed"]
    with pytest.raises(ValueError, match="state: batch_size"):
        loader.load_state_dict(drawn)
    assert loader.state_dict()["loader"]["seed"] == own


def test_without_torch_the_default_seed_is_0(graph, monkeypatch):
    import sys

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    check_equal(nodes(graph, seed=None), nodes(graph, seed=0))
