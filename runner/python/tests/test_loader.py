"""Mini-batches: what is in them, whose memory it is, and when the threads end."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import morphgl
from morphgl import Graph, NeighborLoader


def loader(graph, **options):
    options = {"num_neighbors": [4, 3], "batch_size": 64, "input_nodes": "train", "output": "numpy", "shuffle": True, "seed": 0, **options}
    return NeighborLoader(graph, **options)


def contents(batch):
    return [batch.n_id.copy(), batch.edge_index.copy(), batch.x.copy(), batch.y.copy()]


def equal(a, b):
    return len(a) == len(b) and all((u == v).all() for left, right in zip(a, b) for u, v in zip(left, right))


def num_threads():
    return len(os.listdir("/proc/self/task"))


def threads_fall_to(threads):
    """Whether at most so many threads are left: the system lists a joined one a moment longer."""
    end = time.monotonic() + 10
    while num_threads() > threads and time.monotonic() < end:
        time.sleep(0.01)
    return num_threads() <= threads


@pytest.mark.parametrize("options", [{}, {"sampler": "shadow"}, {"sampler": "walk", "layers": 1}])
@pytest.mark.parametrize("shuffle", [False, True])
def test_seeds_that_repeat_are_seeds_as_often(data, graph, options, shuffle):
    seeds = np.array([5, 7, 5, 900, 7, 5, 3] * 40 + list(range(100)))
    made = loader(graph, input_nodes=seeds, shuffle=shuffle, **options)
    for _ in range(2):
        batches = list(made)
        nodes = np.concatenate([batch.n_id[:batch.batch_size] for batch in batches])
        ids = np.concatenate([batch.input_id for batch in batches])
        assert (np.sort(ids) == np.arange(len(seeds))).all() and (seeds[ids] == nodes).all()
        assert (ids == np.arange(len(seeds))).all() != shuffle
        for batch in batches:
            assert batch.num_sampled_nodes[0] == batch.batch_size
            assert len(set(batch.n_id.tolist())) == len(batch.n_id) - batch.batch_size + len(set(batch.n_id[:batch.batch_size].tolist()))
            assert (batch.x == data["x"][batch.n_id]).all() and (batch.y == data["y"][batch.n_id]).all()
            # Every occurrence has the same edges, which come from first occurrences.
            first = {node: place for place, node in reversed(list(enumerate(batch.n_id.tolist())))}
            assert all(first[batch.n_id[source]] == source for source in batch.edge_index[0].tolist())
            rows = [batch.edge_index[0][batch.edge_index[1] == place].tolist() for place in range(batch.batch_size)]
            assert all(rows[place] == rows[first[node]] for place, node in enumerate(batch.n_id[:batch.batch_size].tolist()))


def test_repeats_of_the_training_split_are_kept(data, tmp_path):
    train = np.array([5, 7, 5, 900, 5])
    graph = Graph.from_numpy(**{**data, "train": train})
    assert graph.split("train").tolist() == train.tolist()
    graph.save(tmp_path / "saved")
    assert Graph.open(tmp_path / "saved").split("train").tolist() == train.tolist()
    (batch,) = loader(graph, shuffle=False)
    assert batch.n_id[:batch.batch_size].tolist() == train.tolist() and batch.input_id.tolist() == [0, 1, 2, 3, 4]


def test_batches_are_sampled_subgraphs(data, graph):
    edges = set(map(tuple, data["edge_index"].T))
    degree = np.bincount(data["edge_index"][1], minlength=1000)
    seeds = []
    for batch in loader(graph):
        assert len(set(batch.n_id.tolist())) == len(batch.n_id)
        assert (batch.x == data["x"][batch.n_id]).all() and (batch.y == data["y"][batch.n_id]).all()
        assert batch.n_id.dtype == batch.edge_index.dtype == batch.y.dtype == np.int64
        assert sum(batch.num_sampled_nodes) == len(batch.n_id) and sum(batch.num_sampled_edges) == batch.edge_index.shape[1]
        assert batch.num_sampled_nodes[0] == batch.batch_size
        sources, targets = batch.n_id[batch.edge_index]
        assert edges.issuperset(zip(sources, targets))
        # A node found by a hop is expanded by the next one, once.
        found = np.bincount(batch.edge_index[1], minlength=len(batch.n_id))
        first, second = np.cumsum(batch.num_sampled_nodes)[:2]
        wanted = np.minimum(degree[batch.n_id], np.where(np.arange(len(batch.n_id)) < first, 4, 3))
        wanted[second:] = 0
        assert (found == wanted).all()
        seeds += batch.n_id[:batch.batch_size].tolist()
    assert sorted(seeds) == np.flatnonzero(data["train"]).tolist()


def test_batches_depend_on_seed_and_epoch_alone(graph, tmp_path):
    runs = [[contents(b) for b in loader(graph, threads=threads, prefetch=ahead)] for threads, ahead in ((1, 0), (3, 5))]
    assert equal(*map(lambda run: sum(run, []), runs))
    again = loader(graph)
    first, second = ([contents(b) for b in again] for _ in range(2))
    assert equal(sum(first, []), sum(runs[0], [])) and not equal(first[0][:1], second[0][:1])
    again.set_epoch(0)
    assert equal(sum(([contents(b) for b in again]), []), sum(first, []))
    assert not equal(contents(next(iter(loader(graph, seed=1))))[:1], first[0][:1])
    graph.save(tmp_path / "g")
    opened = [contents(b) for b in loader(str(tmp_path / "g"))]
    assert equal(sum(opened, []), sum(first, []))


def test_length_and_drop_last(graph):
    whole, cut = loader(graph, batch_size=100), loader(graph, batch_size=100, drop_last=True)
    n = len(graph.split("train"))
    assert n % 100 and len(whole) == len(list(whole)) == n // 100 + 1 and len(cut) == len(list(cut)) == n // 100
    assert all(batch.batch_size == 100 for batch in cut)


def test_other_samplers(data, graph):
    batch = next(iter(loader(graph, sampler="shadow", num_neighbors=[3, 2])))
    inside = np.isin(data["edge_index"], batch.n_id).all(axis=0)
    pairs = sorted(map(tuple, data["edge_index"][:, inside].T))
    assert sorted(map(tuple, batch.n_id[batch.edge_index].T)) == pairs, "all edges among the nodes"
    batch = next(iter(loader(graph, sampler="walk", layers=1)))
    assert batch.edge_weight.shape == batch.edge_index.shape[1:] and (batch.edge_weight > 0).all()
    weighted = Graph.from_numpy(**data, edge_weight=(np.arange(8000) % 2).astype(np.float32))
    batch = next(iter(loader(weighted, weighted=True)))
    assert (batch.edge_weight == 1).all(), "edges of weight 0 are never picked"


def test_arrays_outlive_loader_and_graph(data):
    def first():
        graph = Graph.from_numpy(**data)
        iterator = iter(loader(graph))
        return next(iterator)

    batch = first()
    gc.collect()
    x, n_id = batch.x, batch.n_id
    del batch
    keep = [b.x for b in loader(Graph.from_numpy(**data))]
    assert (x == data["x"][n_id]).all() and len(keep) > 3


def test_memory_is_used_again_once_nothing_views_it(graph):
    seen = set()
    for _ in range(20):
        for batch in loader(graph, threads=1):
            seen.add(batch.x.ctypes.data)
            assert batch.x.base is not None and not batch.x.flags.owndata
    own = loader(graph, threads=1)
    addresses = [batch.x.ctypes.data for _ in range(20) for batch in own]
    assert len(set(addresses)) <= 20 < len(addresses), "about as many as the window and the spares"
    held = list(own)
    assert len({batch.x.ctypes.data for batch in held}) == len(held), "held mini-batches have memory of their own"


def test_threads_end_with_their_epoch(graph):
    before = num_threads()
    for leave in (lambda it: list(it), lambda it: next(it), lambda it: it.close()):
        iterator = iter(loader(graph, threads=3))
        next(iterator)
        assert num_threads() > before
        leave(iterator)
        del iterator
        gc.collect()
        assert threads_fall_to(before)


def test_two_epochs_side_by_side(graph):
    one = loader(graph)
    pairs = [(contents(a), contents(b)) for a, b in zip(loader(graph), one)]
    assert all(equal([a], [b]) for a, b in pairs)
    one.set_epoch(0)
    first = iter(one)
    one.set_epoch(0)
    assert all(equal([contents(a)], [contents(b)]) for a, b in zip(first, one))
    results = []
    threads = [threading.Thread(target=lambda: results.append([contents(b) for b in loader(graph)])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(equal(sum(run, []), sum(results[0], [])) for run in results)


INTERRUPTED = """
import os, time, numpy as np, morphgl
rng = np.random.default_rng(0)
graph = morphgl.Graph.from_numpy(rng.integers(0, 20000, (2, 400000)), rng.random((20000, 8), np.float32))
before = len(os.listdir("/proc/self/task"))
loader = morphgl.NeighborLoader(graph, [-1, -1, -1], 2000, output="numpy")
batch = None
try:
    print("ready", flush=True)
    while True:
        for batch in loader:
            pass
except KeyboardInterrupt:
    del batch
    left = lambda: len(os.listdir("/proc/self/task")) - before
    # The system lists a joined thread a moment longer.
    end = time.monotonic() + 10
    while left() and time.monotonic() < end:
        time.sleep(0.01)
    print("left", left(), flush=True)
"""


def test_ctrl_c_ends_an_epoch_and_its_threads():
    run = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "ready\n"
    time.sleep(0.3)
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=300)[0] == "left 0\n"


def test_a_loader_does_not_cross_a_fork(graph):
    one = loader(graph)
    expected = contents(next(iter(one)))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                iter(one)
                answer = "crossed"
            except RuntimeError as error:
                answer = str(error)
            if equal([contents(next(iter(loader(graph))))], [expected]):
                answer += " equal"
            os.write(write, answer.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    answer = os.read(read, 1000).decode()
    assert "before the process forked" in answer and answer.endswith(" equal")


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"num_neighbors": [0]}, ValueError, "num_neighbors: 0; give a positive number"),
        ({"batch_size": 0}, ValueError, "batch_size: 0; give at least 1"),
        ({"input_nodes": []}, ValueError, "input_nodes: it is empty"),
        ({"input_nodes": [1000]}, ValueError, "input_nodes: node 1000 does not exist"),
        ({"input_nodes": [-1]}, ValueError, "input_nodes: element 0 is -1"),
        ({"input_nodes": "training"}, ValueError, "input_nodes: 'training'; give one of 'train'"),
        ({"input_nodes": np.zeros(3, bool)}, ValueError, r"input_nodes: a mask of shape \(3,\)"),
        ({"sampler": "labor"}, ValueError, "sampler: 'labor'; give one of 'neighbor', 'shadow', 'walk', 'typed'$"),
        ({"sampler_option": {"layer_dependency": True}}, ValueError, "sampler_option: neighbor has none"),
        ({"sampler": "walk"}, ValueError, 'output="dgl"'),
        ({"expansion": "all"}, ValueError, 'output="dgl"'),
        ({"replace": True}, NotImplementedError, "replace"),
        ({"num_workers": -2}, ValueError, "num_workers: -2; give the number of threads"),
        ({"weighted": True}, ValueError, "weight"),
        ({"weight_attr": "w"}, ValueError, "weight_attr: the graph has no weights 'w'"),
        ({"num_neighbors": {"a": [3]}}, NotImplementedError, "num_neighbors: a dict is of several edge types"),
        ({"num_neighbors": 3}, TypeError, "num_neighbors: 3; give a list"),
        ({"input_nodes": ("paper", None)}, NotImplementedError, "input_nodes: a node type"),
        ({"disjoint": True}, NotImplementedError, "disjoint: .*give batch_size=1"),
        ({"subgraph_type": "induced"}, NotImplementedError, 'subgraph_type: .*sampler="shadow"'),
        ({"time_attr": "time"}, NotImplementedError, "time_attr: mini-batches are not temporal"),
        ({"input_time": np.zeros(3)}, NotImplementedError, "input_time: mini-batches are not temporal"),
        ({"transform_sampler_output": print}, NotImplementedError, "transform_sampler_output: .*give transform"),
        ({"transform": "gcn_norm"}, TypeError, "transform: str is no function"),
        ({"collate_fn": print}, NotImplementedError, "collate_fn: .*give transform"),
        ({"worker_init_fn": print}, NotImplementedError, "worker_init_fn: there are no worker processes"),
        ({"generator": object()}, NotImplementedError, "generator: give seed"),
        ({"batchsize": 3}, TypeError, "batchsize: no such argument; did you mean batch_size?"),
    ],
)
def test_wrong_options_are_named_with_their_cure(graph, options, error, message):
    with pytest.raises(error, match=message):
        loader(graph, **options)


def test_arguments_are_pyg_s_by_position_and_by_name(data, graph):
    nodes = np.flatnonzero(data["train"])
    expected = [contents(b) for b in loader(graph)]
    same = {"output": "numpy", "shuffle": True, "seed": 0}
    for made in (
        NeighborLoader(graph, [4, 3], nodes, batch_size=64, **same),
        NeighborLoader(graph, [4, 3], data["train"], None, False, "directional", False, "uniform", None, None, None, batch_size=64, **same),
        NeighborLoader(graph, [4, 3], 64, nodes, **same),
        NeighborLoader(graph, [4, 3], 64, input_nodes="train", **same),
        loader(graph, num_workers=0, persistent_workers=False, is_sorted=True, filter_per_worker=False, sampler=None, directed=True),
        loader(graph, num_workers=2, persistent_workers=True, prefetch_factor=2, timeout=9, in_order=False, multiprocessing_context="spawn"),
    ):
        assert equal(sum(([contents(b) for b in made]), []), sum(expected, [])) and len(made.dataset) == len(nodes)
    assert [b for b in loader(graph, transform=lambda batch: batch.batch_size)] == [b.batch_size for b in loader(graph)]
    with pytest.raises(TypeError, match="input_nodes: it is given by position and by name"):
        NeighborLoader(graph, [4, 3], nodes, input_nodes=nodes)


def test_seeds_have_their_positions(data, graph):
    seeds = np.random.default_rng(1).permutation(1000)[:300]
    positions = []
    for batch in loader(graph, input_nodes=seeds):
        assert (seeds[batch.input_id] == batch.n_id[:batch.batch_size]).all()
        positions += batch.input_id.tolist()
    assert sorted(positions) == list(range(300))
    for batch in loader(graph, input_nodes=None):
        assert (batch.input_id == batch.n_id[:batch.batch_size]).all()


def test_empty_is_not_absent():
    edges = np.array([[0, 1], [1, 0]])
    numbered = Graph.from_numpy(edges, np.eye(4, dtype=np.float32), edge_ids=True, edge_weight=np.ones(2))
    plain = Graph.from_numpy(np.zeros((2, 0), int), np.eye(4, dtype=np.float32), np.full(4, -1), edge_ids=True)
    walk = {"sampler": "walk", "layers": 1}
    for graph, options, first, last in [
        (numbered, {}, 2, 0), (numbered, {"num_neighbors": [-1, -1]}, 2, 0), (numbered, {"sampler": "shadow"}, 2, 0), (plain, {}, 0, 0),
        (plain, {"sampler": "shadow"}, 0, 0),
    ]:
        batches = list(NeighborLoader(graph, **{"num_neighbors": [2], "batch_size": 2, "output": "numpy", "edge_ids": True, "seed": 0, **options}))
        assert [batch.e_id.tolist() == [] for batch in batches] == [first == 0, last == 0]
        assert np.ones((2, 3))[batches[1].e_id].shape == (0, 3) and batches[1].edge_index.shape == (2, 0)
        assert (batches[1].edge_weight is None) == (graph is plain) and (batches[1].y is None) == (graph is numbered)
    for batch in NeighborLoader(plain, [2], 2, output="numpy", **walk):
        assert batch.edge_weight.shape == (0,) and batch.e_id is None


def test_parallel_edges_are_named_as_they_were_sampled():
    # Three edges from node 1 to node 0, each of which is as likely; and the weights tell them apart.
    edges = np.array([[1, 1, 1, 2], [0, 0, 0, 0]])
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    graph = Graph.from_numpy(edges, num_nodes=3, edge_ids=True)
    counts = np.zeros(4)
    one = NeighborLoader(graph, [1], 1, [0], output="numpy", edge_ids=True, threads=1, seed=0)
    for _ in range(400):
        for batch in one:
            assert (edges[0, batch.e_id] == batch.n_id[batch.edge_index[0]]).all()
            counts[batch.e_id] += 1
    assert (counts > 50).all(), counts
    graph = Graph.from_numpy(edges, num_nodes=3, edge_weight=weights, edge_ids=True)
    for options in ({}, {"weighted": True}):
        one = NeighborLoader(graph, [2], 1, [0], output="numpy", edge_ids=True, threads=1, **{"seed": 0, **options})
        for _ in range(30):
            for batch in one:
                assert (weights[batch.e_id] == batch.edge_weight).all()


def test_memory_stays_over_many_batches(graph):
    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    one = NeighborLoader(graph, [2], 8, output="numpy", threads=1, seed=0)
    for _ in range(20):
        list(one)
    before = resident()
    for _ in range(80):
        for batch in one:
            batch.x, batch.edge_index
    assert resident() - before < 4 << 20
    assert morphgl.__version__


def test_edges_are_numbered_as_in_the_source(data, graph):
    numbered = Graph.from_numpy(**data, edge_ids=True)
    for num_neighbors in ([4, 3], [-1, -1]):
        for batch in loader(numbered, num_neighbors=num_neighbors, edge_ids=True):
            assert (data["edge_index"][:, batch.e_id] == batch.n_id[batch.edge_index]).all()
            # Every edge once, parallel ones too.
            hop = batch.e_id[:batch.num_sampled_edges[0]]
            assert len(set(hop.tolist())) == len(hop)
    sources, targets = data["edge_index"]
    columns = Graph.from_numpy(csc=(graph.indptr, graph.indices[::1]), train=graph.split("train"))
    assert next(iter(loader(columns))).e_id is None
    for batch in loader(columns, edge_ids=True):
        assert (graph.indices[batch.e_id] == batch.n_id[batch.edge_index[0]]).all()
    # Rows in another order than an import's.
    flipped = np.concatenate([graph.indices[s:e][::-1] for s, e in zip(graph.indptr, graph.indptr[1:])])
    columns = Graph.from_numpy(csc=(graph.indptr, flipped), train=graph.split("train"))
    for batch in loader(columns, edge_ids=True):
        assert (flipped[batch.e_id] == batch.n_id[batch.edge_index[0]]).all()
    with pytest.raises(ValueError, match="edge_ids: the graph did not keep"):
        loader(graph, edge_ids=True)


def test_memory_does_not_grow(graph):
    rss = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    small = loader(graph, batch_size=1, num_neighbors=[2, 1])
    for epoch in range(70):
        for batch in small:
            pass
        if epoch == 20:
            before = rss()
    # 15,000 mini-batches.
    assert rss() - before < 4 << 20


def test_features_are_where_the_gather_wrote_them(graph):
    native = loader(graph)._native.epoch(0, 0, 1)
    batch = next(native)
    address = lambda array: array.__array_interface__["data"][0]
    assert address(np.asarray(batch.x)) == address(batch.x) == address(np.from_dlpack(batch.x))
    native.close()


def test_graphs_stay_on_disk(graph, tmp_path):
    graph.save(tmp_path / "g")
    expected = [contents(b) for b in loader(graph)]
    for options in ({"memory": "1MiB"}, {"memory": 400_000, "cache": "none"}, {"cache": "in-degree", "threads": 1},
                    {"memory": "1MiB", "cache": "presample:2"}):
        there = loader(str(tmp_path / "g"), **options)
        assert repr(there).endswith("Batching_CPU+Disk_Neighbor)")
        assert equal(sum(([contents(b) for b in there]), []), sum(expected, []))
    for options, message in [({"memory": "much"}, "memory: 'much'; give a number of bytes"), ({"cache": "best"}, "cache"),
                             ({"memory": "1MiB", "sampler": "shadow"}, "shadow does not read from disk")]:
        with pytest.raises(ValueError, match=message):
            loader(str(tmp_path / "g"), **options)
    with pytest.raises(ValueError, match="memory: the graph is no directory on disk"):
        loader(graph, memory="1MiB")
