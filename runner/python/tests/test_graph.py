"""Graphs: their arrays, what is shared, what is refused."""

import sys

import numpy as np
import pytest

from morphgl import Graph, NeighborLoader


def test_rows_list_the_sources_in_ascending_order(data, graph):
    sources, targets = data["edge_index"]
    order = np.lexsort((sources, targets))
    assert (graph.indices == sources[order]).all()
    assert (np.diff(graph.indptr) == np.bincount(targets, minlength=1000)).all()
    assert graph.num_edges == 8000 and graph.num_nodes == 1000 and graph.num_classes == 5
    assert (graph.split("train") == np.flatnonzero(data["train"])).all()


def test_weights_follow_their_edges(data):
    sources, targets = data["edge_index"]
    weights = np.arange(8000, dtype=np.float64)
    graph = Graph.from_numpy(data["edge_index"], edge_weight=weights)
    assert (graph.weights == weights[np.lexsort((sources, targets))]).all()


def test_arrays_that_fit_are_shared_and_kept(data, graph):
    indptr, indices, x, y = graph.indptr.copy(), graph.indices.copy(), data["x"].copy(), data["y"].copy()
    counts = [sys.getrefcount(x)]
    shared = Graph.from_numpy(csc=(indptr, indices), x=x, y=y)
    assert np.shares_memory(indptr, shared.indptr) and np.shares_memory(indices, shared.indices)
    assert np.shares_memory(x, shared.x) and np.shares_memory(y, shared.y)
    assert not shared.x.flags.writeable and not shared.indices.flags.writeable
    view = shared.x
    del shared
    counts.append(sys.getrefcount(x))
    del view
    counts.append(sys.getrefcount(x))
    assert counts[1] > counts[0], "the view keeps the array"
    assert counts[2] == counts[0], "the graph has let go of it"


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_features_keep_their_type(data, dtype):
    x = (data["x"] * 10).astype(dtype)
    graph = Graph.from_numpy(data["edge_index"], x)
    assert graph.x.dtype == dtype and np.shares_memory(graph.x, x)
    batch = next(iter(NeighborLoader(graph, [3], 50, output="numpy")))
    assert batch.x.dtype == dtype and (batch.x == x[batch.n_id]).all()


def test_a_saved_graph_opens_as_it_was(graph, tmp_path):
    graph.save(tmp_path / "g")
    for mmap in (False, True):
        opened = Graph.open(tmp_path / "g", mmap=mmap)
        for name in ("indptr", "indices", "x", "y"):
            assert (getattr(opened, name) == getattr(graph, name)).all()
        assert (opened.split("train") == graph.split("train")).all()
    with pytest.raises(OSError, match="g"):
        graph.save(tmp_path / "g")
    graph.save(tmp_path / "g", replace=True)
    with pytest.raises(OSError, match="nothing"):
        Graph.open(tmp_path / "nothing")


def test_what_fits_otherwise_just_works(data, graph):
    same = lambda other: all((getattr(graph, n) == getattr(other, n)).all() for n in ("indptr", "indices", "x", "y"))
    assert same(Graph.from_numpy(**{**data, "edge_index": np.asfortranarray(data["edge_index"])})), "not contiguous"
    assert same(Graph.from_numpy(**{**data, "edge_index": data["edge_index"].astype(np.int32)}))
    assert same(Graph.from_numpy(**{**data, "edge_index": data["edge_index"].tolist()}))
    assert same(Graph.from_numpy(**{**data, "x": data["x"].astype(np.float64)}))
    assert same(Graph.from_numpy(**{**data, "x": np.repeat(data["x"], 2, axis=0)[::2]}))
    assert same(Graph.from_numpy(**{**data, "y": data["y"].astype(np.int64)[:, None]}))
    nan = np.where(data["y"] < 0, np.nan, data["y"])
    assert same(Graph.from_numpy(**{**data, "y": nan})), "NaN is no class"


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"edge_index": np.zeros((3, 4), int)}, ValueError, r"edge_index: its shape is \(3, 4\)"),
        ({"edge_index": np.array([[0, -1], [1, 1]])}, ValueError, r"edge_index\[0\]: element 1 is -1"),
        ({"edge_index": np.array([[0, 1], [1, 1000]])}, ValueError, "targets, edge 1: node 1000 does not exist, there are 1000"),
        ({"edge_index": np.array([[0, 1], [1, 2**40]])}, ValueError, r"edge_index\[1\]: element 1 is 1099511627776"),
        ({"edge_index": np.array([[0.5, 1], [1, 1]])}, TypeError, "float64 is no integer type"),
        ({"x": np.zeros((999, 3), np.float32)}, ValueError, r"x: its shape is \[999, 3\], give \[1000, features\]"),
        ({"x": np.zeros(1000, np.float32)}, ValueError, r"x: its shape is \(1000,\)"),
        ({"x": np.zeros((1000, 2), complex)}, TypeError, "x: complex128 is no feature type"),
        ({"x": "features"}, TypeError, "x: "),
        ({"y": np.zeros(999, int)}, ValueError, "y: 999 labels for 1000 nodes"),
        ({"y": np.full(1000, -2)}, ValueError, "y: classes from -2"),
        ({"y": np.full(1000, 0.5), "targets": np.zeros(1000)}, ValueError, "y: float64 with fractions, beside targets"),
        ({"targets": np.zeros((999, 2))}, ValueError, r"targets: their shape is \[999, 2\], give \[1000, targets\]"),
        ({"targets": np.zeros((1000, 2, 2))}, ValueError, r"targets: their shape is \(1000, 2, 2\); pass \[nodes\]"),
        ({"targets": np.zeros((1000, 0))}, ValueError, "targets of no columns"),
        ({"targets": np.full(1000, np.inf)}, ValueError, "targets, element 0: the target is inf"),
        ({"targets": np.full(1000, 1e300)}, ValueError, "targets, element 0: the target is inf"),
        ({"targets": ["high"] * 1000}, TypeError, "targets: "),
        ({"valid_edges": np.zeros((3, 4), int)}, ValueError, r"valid_edges: its shape is \(3, 4\); pass \[2, pairs\]"),
        ({"valid_edges": np.zeros((3, 2), int)}, ValueError, r"valid_edges: its shape is \(3, 2\); pass valid_edges.T"),
        ({"test_edges": np.array([[0, 1], [1, 1000]])}, ValueError, "test_edges, element 3: node 1000 does not exist"),
        ({"test_edges": np.array([[0, 1], [1, -1]])}, ValueError, r"test_edges\[1\]: element 1 is -1"),
        ({"test_negatives": np.array([[0], [1]])}, ValueError, "test_edges_negatives, element 0: negatives of no pairs"),
        ({"train": np.zeros(999, bool)}, ValueError, r"train: a mask of shape \(999,\); pass one of \[1000\]"),
        ({"valid": np.array([5, 6, 5])}, ValueError, "valid, element 2: node 5 is listed twice"),
        ({"train": np.array([1000])}, ValueError, "train, element 0: node 1000 does not exist"),
        ({"edge_weight": np.ones(7999)}, ValueError, "edge_weight: its shape is"),
        ({"csc": (np.array([0]), np.array([0]))}, ValueError, "edge_index: give it or csc"),
    ],
)
def test_wrong_input_is_named_with_its_cure(data, change, error, message):
    with pytest.raises(error, match=message):
        Graph.from_numpy(**{**data, **change})


def test_wrong_csc_is_refused():
    for indptr, indices in (([0, 2, 1], [0]), ([0, 1], [1]), ([1, 1], []), ([], []), ([0, -1], [])):
        with pytest.raises(ValueError):
            Graph.from_numpy(csc=(np.array(indptr, np.int64), np.array(indices, np.int32)))


def test_labels_that_are_text_are_classes_in_their_order():
    edges = np.array([[0, 1], [1, 0]])
    for given, classes, names in [
        (["b", "a", "b", ""], [1, 0, 1, -1], ["a", "b"]),
        (np.array(["b", None, "a", float("nan")], object), [1, -1, 0, -1], ["a", "b"]),
        (np.array([b"x", b"y", b"x", b"z"]), [0, 1, 0, 2], ["x", "y", "z"]),
        (["10", "2", "2", "NA"], [10, 2, 2, -1], None),
        (np.array([[1], [0], [1], [-1]]), [1, 0, 1, -1], None),
        ([True, False, True, False], [1, 0, 1, 0], None),
    ]:
        graph = Graph.from_numpy(edges, y=given)
        assert graph.y.tolist() == classes and graph.class_names == names


def test_targets_are_shared_or_told_from_classes(data, tmp_path):
    edges = data["edge_index"]
    values = np.random.default_rng(1).standard_normal((1000, 3), dtype=np.float32)
    values[::7, 1] = np.nan
    graph = Graph.from_numpy(edges, targets=values, y=data["y"])
    assert np.shares_memory(graph.targets, values) and not graph.targets.flags.writeable
    assert graph.num_classes == 5 and "3 targets" in repr(graph)
    graph.save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    assert np.array_equal(opened.targets, values, equal_nan=True) and (opened.y == data["y"]).all()
    labels = np.arange(3000).reshape(1000, 3) % 2
    for given, expected in [
        (values, values), (values[:, 0], values[:, :1]), (values[:, :1], values[:, :1]), (values.astype(np.float64), values),
        (labels, labels), (labels == 1, labels), (values.tolist(), values), (values[:, 2].astype(object), values[:, 2:]),
    ]:
        for name in ("y", "targets"):
            graph = Graph.from_numpy(edges, **{name: given}, num_nodes=1000)
            assert graph.y is None and graph.num_classes == 0
            np.testing.assert_allclose(graph.targets, expected, rtol=1e-6)
    # Whole numbers of one column are classes, where they are not called targets.
    for given in (np.arange(1000) % 3, (np.arange(1000) % 3).astype(float), ["a", "b"] * 500):
        assert Graph.from_numpy(edges, y=given).targets is None
    assert (Graph.from_numpy(edges, targets=np.arange(1000) % 3).targets[:, 0] == np.arange(1000) % 3).all()
    assert Graph.from_numpy(edges).targets is None and Graph.from_numpy(edges).target_names is None


def test_pairs_of_links_are_kept(data, tmp_path):
    rng = np.random.default_rng(2)
    names = ("train_edges", "valid_edges", "test_edges", "valid_negatives", "test_negatives")
    given = {name: rng.integers(0, 1000, (2, 10 + i)) for i, name in enumerate(names)}
    given["train_negatives"] = np.stack([given["train_edges"][0].repeat(3), rng.integers(0, 1000, 30)])
    graph = Graph.from_numpy(**data, **given)
    graph.save(tmp_path / "g")
    for one in (graph, Graph.open(tmp_path / "g"), Graph.open(tmp_path / "g")._detached()):
        for name, pairs in given.items():
            assert (one.edge_split(name.removesuffix("_edges")) == pairs).all()
    # Without any, the graph's edges are trained on, but for its self-loops.
    graph = Graph.from_numpy(**data)
    sources, targets = data["edge_index"][:, data["edge_index"][0] != data["edge_index"][1]]
    assert (graph.edge_split("train") == np.stack([sources, targets])[:, np.lexsort((sources, targets))]).all()
    assert graph.edge_split("valid").shape == graph.edge_split("test_negatives").shape == (2, 0)
    with pytest.raises(ValueError, match="edge_split: 'all'; give one of 'train', 'valid'"):
        graph.edge_split("all")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_features_are_finite(data, value, dtype):
    x = data["x"].astype(dtype)
    x[17, 2] = value
    with pytest.raises(ValueError, match="x: a feature of node 17 is NaN or infinite; clean the data"):
        Graph.from_numpy(data["edge_index"], x)
    with pytest.raises(ValueError, match="weight"):
        Graph.from_numpy(data["edge_index"], edge_weight=np.where(np.arange(8000) == 9, value, 1))


def test_whole_numbers_that_features_cannot_hold_are_said(data):
    with pytest.warns(UserWarning, match="x: whole numbers above 2\\^24 are rounded to float32"):
        Graph.from_numpy(data["edge_index"], np.full((1000, 1), 2**24 + 1))
