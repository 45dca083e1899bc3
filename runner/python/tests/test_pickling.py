"""Graphs are pickled by the name of their directory, or by value; and described as `morphgl info` does."""

import copy
import json
import multiprocessing
import pickle
import shutil

import numpy as np
import pytest

from morphgl import Graph, NeighborLoader
from morphgl.typed import graph_of


def typed():
    rng = np.random.default_rng(2)
    nodes = {"author": {"num_nodes": 40, "time": np.arange(40)},
             "paper": {"num_nodes": 90, "x": rng.normal(size=(90, 5)).astype(np.float16), "y": rng.integers(3, size=90), "time": np.arange(90),
                       "train_mask": np.arange(90) < 30, "val_mask": (np.arange(90) >= 20) & (np.arange(90) < 50)}}
    edges = {("author", "writes", "paper"): {"edge_index": np.stack([rng.integers(40, size=300), rng.integers(90, size=300)]),
                                             "edge_attr": rng.normal(size=(300, 2)).astype(np.float32), "time": np.arange(300)},
             ("paper", "cites", "paper"): {"edge_index": rng.integers(90, size=(2, 200))}}
    return graph_of(nodes, edges)


def named():
    networkx = pytest.importorskip("networkx")
    made = networkx.DiGraph()
    made.add_edges_from([("c", "a"), ("a", "b"), ("b", "c"), ("c", "b")])
    return Graph.from_networkx(made)


def linked():
    rng = np.random.default_rng(0)
    pairs = lambda: rng.integers(50, size=(2, 12))
    return Graph.from_numpy(rng.integers(50, size=(2, 300)), targets=rng.normal(size=(50, 3)), train=[0, 0, 3, 4], valid=[3, 5], test=[3],
                            edge_weight=rng.random(300), edge_attr=rng.normal(size=(300, 2)), edge_ids=True,
                            train_edges=pairs(), valid_edges=pairs(), test_edges=pairs(), valid_negatives=pairs())


def halves():
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(
        x=torch.randn(30, 4, dtype=torch.bfloat16), edge_index=torch.randint(30, (2, 90)), y=torch.arange(30) % 3, pos=torch.rand(30, 2),
        edge_attr=torch.rand(90), name="small")
    return Graph.from_pyg(data)


def plain():
    return Graph.from_numpy(np.array([[0, 0, 1], [1, 2, 2]]), num_nodes=5)


KINDS = [typed, named, linked, halves, plain]


def everything(graph):
    """All that a graph has, as bytes and numbers."""
    from morphgl.pickled import arrays_of

    flat = {}

    def add(name, value):
        if isinstance(value, (list, tuple)):
            for number, part in enumerate(value):
                add(f"{name}.{number}", part)
        elif isinstance(value, dict):
            for key, part in value.items():
                add(f"{name}.{key}", part)
        elif hasattr(value, "shape"):
            array = value if isinstance(value, np.ndarray) else value.float().numpy()
            flat[name] = (str(value.dtype), array.shape, array.tobytes())
        else:
            flat[name] = value

    add("native", arrays_of(graph._native))
    add("rest", {name: value for name, value in vars(graph).items() if name not in ("_native", "_edge_order")})
    add("order", None if graph._edge_order is None else graph._edge_order if graph._edge_order is False else np.asarray(graph._edge_order))
    return flat


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("make", KINDS)
def test_graphs_in_memory_are_pickled_by_value(make, protocol):
    graph = make()
    again = pickle.loads(pickle.dumps(graph, protocol))
    assert everything(again) == everything(graph) and repr(again) == repr(graph)
    for same in (copy.copy(graph), copy.deepcopy(graph)):
        assert same._native is graph._native and same is not graph


def test_arrays_of_a_pickled_graph_are_not_copied_out_of_band(graph):
    buffers = []
    stream = pickle.dumps(graph, 5, buffer_callback=buffers.append)
    assert len(stream) < 8000 and sum(buffer.raw().nbytes for buffer in buffers) >= graph.x.nbytes + graph.indices.nbytes
    again = pickle.loads(stream, buffers=buffers)
    assert np.shares_memory(again.x, graph.x) and (again.x == graph.x).all()


def first_batch(pickled):
    batch = next(iter(NeighborLoader(pickle.loads(pickled), [4, 3], 32, "train", output="numpy", shuffle=True, seed=0)))
    return batch.n_id.tolist(), batch.edge_index.tolist(), batch.x.sum()


@pytest.mark.parametrize("mmap", [False, True])
def test_graphs_of_directories_are_pickled_by_name(graph, tmp_path, monkeypatch, mmap):
    graph.save(tmp_path / "g")
    monkeypatch.chdir(tmp_path)
    opened = Graph.open("g", mmap=mmap)
    pickled = pickle.dumps(opened)
    assert len(pickled) < 1000
    monkeypatch.chdir("/")
    again = pickle.loads(pickled)
    assert again._mmap == mmap and (again.indices == graph.indices).all() and again._native.path == str(tmp_path / "g")
    # In another process, as workers of spawned pools get it.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(first_batch, (pickled,)) == first_batch(pickle.dumps(graph))
    graph.save(tmp_path / "g", replace=True)
    assert pickle.loads(pickled).num_edges == graph.num_edges, "the same arrays"
    plain().save(tmp_path / "g", replace=True)
    with pytest.raises(ValueError, match="the dataset is another one"):
        pickle.loads(pickled)
    shutil.rmtree(tmp_path / "g")
    with pytest.raises(FileNotFoundError, match="there is no dataset now"):
        pickle.loads(pickled)


@pytest.mark.parametrize("make", KINDS)
def test_info_is_that_of_the_command(make, tmp_path):
    graph = make()
    graph.save(tmp_path / "graph")
    ours, theirs = graph.info(), Graph.open(tmp_path / "graph").info()
    # Names of nodes are in the directory alone.
    saved = theirs.document["arrays"]
    names = sum(saved[name]["shape"][0] * bytes for name, bytes in (("node_names", 1), ("node_name_ends", 8)) if name in saved)
    expected = {**theirs.document, "path": None, "version": None, "arrays": None, "bytes": theirs.bytes - names}
    del expected["provenance"]
    document = {name: value for name, value in ours.document.items() if name != "provenance"}
    assert json.loads(json.dumps(document)) == expected
    assert (ours.num_nodes, ours.num_edges) == (theirs.num_nodes, theirs.num_edges) == (graph.num_nodes, graph.num_edges)
    assert theirs.document["path"] == str(tmp_path / "graph")
    assert repr(ours).startswith("Info(name=") and "\n" not in repr(ours)


def test_a_repr_says_what_a_graph_has(graph, tmp_path):
    assert repr(graph) == f"Graph(1000 nodes, 8000 edges, 12 float32 features, 5 classes, splits {len(graph.split('train'))} train)"
    assert repr(typed()) == ("Graph(130 nodes, 500 edges, 2 node types (author, paper), 2 edge types (author/writes/paper, paper/cites/paper), "
                             "5 float16 features of 'paper', 3 classes, splits 30 train, 30 valid)")
    graph.save(tmp_path / "g")
    assert repr(Graph.open(tmp_path / "g")).endswith(f"at '{tmp_path / 'g'}')")
