"""Graphs of pandas and networkx: rows and columns are matched and checked as `morphgl import` does; skipped without the two."""

import json

import numpy as np
import pytest

import morphgl
from morphgl import Graph, NeighborLoader

networkx, pandas = pytest.importorskip("networkx"), pytest.importorskip("pandas")

EDGES = pandas.DataFrame({"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]})
NODES = pandas.DataFrame({"id": [3, 0, 2, 1], "f0": [30.0, 0.0, 20.0, 10.0], "y": [1, 0, 1, 0]})


def pairs(graph):
    """The edges by the ids of the source."""
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return sorted((ids[u], ids[v]) for u, v in zip(graph.indices.tolist(), targets.tolist()))


def rows(graph):
    """Feature and class of each node by its id."""
    ids = list(range(graph.num_nodes)) if graph.node_ids is None else list(graph.node_ids)
    return {id: (x[0], y) for id, x, y in zip(ids, graph.x.tolist(), graph.y.tolist())}


RIGHT = {0: (0, 0), 1: (10, 0), 2: (20, 1), 3: (30, 1)}


@pytest.mark.parametrize(
    "edges, nodes, options, expected",
    [
        (EDGES, NODES, {}, RIGHT),
        (EDGES, NODES.set_index("id"), {}, RIGHT),
        (EDGES, NODES.set_index("id").rename_axis(None), {}, RIGHT),
        (EDGES, NODES.rename(columns={"id": "user"}).set_index("user"), {}, RIGHT),
        (EDGES, NODES.rename(columns={"id": "user"}), {"id": "user", "x": ["f0"]}, RIGHT),
        (EDGES, NODES.sort_values("id").drop(columns="id").reset_index(drop=True), {}, RIGHT),
        (EDGES.rename(columns={"source": "src", "target": "dst"}), NODES, {}, RIGHT),
        (EDGES.rename(columns={"source": "a", "target": "b"}), NODES, {"source": "a", "target": "b"}, RIGHT),
        (EDGES.rename(columns={"source": 0, "target": 1}), NODES, {"source": 0, "target": 1}, RIGHT),
        (EDGES, NODES.rename(columns={"f0": "height", "y": "kind"}), {"x": ["height"], "y": "kind"}, RIGHT),
        (EDGES, NODES.rename(columns={"f0": 7}), {}, RIGHT),
        (EDGES, NODES[NODES.y >= 0].sample(frac=1, random_state=1), {}, RIGHT),
        (EDGES * 10, NODES.assign(id=NODES.id * 10), {}, {10 * id: row for id, row in RIGHT.items()}),
        (EDGES.map("n{}".format), NODES.assign(id=NODES.id.map("n{}".format)), {}, {f"n{id}": row for id, row in RIGHT.items()}),
        (EDGES, NODES.assign(y=["b", "a", "b", "a"]), {}, RIGHT),
    ],
)
def test_rows_are_matched_by_their_ids(edges, nodes, options, expected):
    graph = Graph.from_pandas(edges, nodes, **options)
    assert rows(graph) == expected
    ids = {position: id for position, id in enumerate(sorted(expected))}
    assert pairs(graph) == sorted((ids[u], ids[v]) for u, v in zip(EDGES.source, EDGES.target))


@pytest.mark.parametrize(
    "edges, nodes, options, message",
    [
        (EDGES, NODES.assign(name=list("dacb")), {}, "nodes.csv: .*name.* x="),
        (EDGES, NODES.assign(name=list("dacb")), {"y": "y"}, 'nodes: the columns "?name"? are not known; list the columns of features by x='),
        (EDGES, NODES.assign(f0=[1, np.nan, 2, 3]), {}, "nodes.csv.*the feature of node 0, column 0 is NaN"),
        (EDGES, NODES.assign(f0=[1, np.inf, 2, 3]), {}, "inf"),
        (EDGES, NODES[NODES.id != 2], {}, 'nodes.csv: 1 of 4 nodes have no features: 2; .* alone by unknown_nodes="drop"'),
        (EDGES, NODES.drop(columns="id").sort_index(), {"unknown_nodes": "drop"}, "unknown_nodes=: no file of nodes has a column of ids"),
        (EDGES, None, {"unknown_nodes": "drop"}, "nodes: .*unknown_nodes is about its ids"),
        (EDGES, NODES, {"unknown_nodes": "keep"}, "unknown.nodes"),
        (EDGES, NODES.assign(id=[3, 0, 2, 2]), {}, "nodes.csv.*2"),
        (EDGES, NODES.drop(columns="id").iloc[:3].reset_index(drop=True), {}, "nodes.csv: 3 rows, but the graph has 4 nodes"),
        (EDGES, NODES, {"y": "class"}, "class"),
        (EDGES, NODES, {"source": "from"}, "source: edges has no column 'from'; it has 'source', 'target'"),
        (EDGES, None, {"y": "y"}, "nodes: y, x, targets and id name columns of it"),
        (EDGES, NODES, {"train": [True, False]}, "train_mask: a mask of 2 rows for 4 nodes"),
        (EDGES.assign(weight=[1, 2, -1, 1]), NODES, {}, "edges.csv, line 4.*-1.*drop_weights="),
    ],
)
def test_frames_that_do_not_fit_are_refused_with_the_cure(edges, nodes, options, message):
    with pytest.raises(ValueError, match=message) as refused:
        Graph.from_pandas(edges, nodes, **options)
    assert "/" not in str(refused.value), "no path of a file that was never the caller's"


@pytest.mark.parametrize("of", [int, (1000).__mul__, "n{}".format])
def test_edges_of_unknown_nodes_are_left_out_by_name_of_the_option(of):
    edges = EDGES.sample(frac=1, random_state=5).map(of).assign(weight=[1.0, 2.0, 3.0, 4.0])
    nodes = NODES[NODES.id != 2].assign(id=NODES.id.map(of))
    with pytest.warns(UserWarning, match="2 edges were left out: nodes.csv does not list 1 of their ids: "):
        graph = Graph.from_pandas(edges, nodes, edge_ids=True, unknown_nodes="drop")
    assert rows(graph) == {of(id): row for id, row in RIGHT.items() if id != 2}
    kept = edges[(edges[["source", "target"]] != of(2)).all(axis=1)]
    for batch in NeighborLoader(graph, [-1], 3, output="numpy", edge_ids=True):
        named = [[graph.node_ids[v] for v in batch.n_id[ends]] for ends in batch.edge_index]
        assert [list(column) for column in edges[["source", "target"]].to_numpy()[batch.e_id].T] == named
        assert sorted(batch.e_id) == sorted(edges.index.get_indexer(kept.index))
        assert (edges.weight.to_numpy()[batch.e_id] == batch.edge_weight).all()


def test_frames_bring_weights_splits_names_and_positions():
    edges = EDGES.sample(frac=1, random_state=3).map("n{}".format).assign(weight=[4.0, 3.0, 2.0, 1.0])
    nodes = NODES.assign(id=NODES.id.map("n{}".format), y=["red", "blue", "red", "blue"])
    graph = Graph.from_pandas(edges, nodes, train=["n3", "n1"], valid=np.array([False, True, False, False]), edge_ids=True)
    assert graph.node_ids == ["n0", "n1", "n2", "n3"] and graph.class_names == ["blue", "red"]
    assert graph.split("train").tolist() == [1, 3] and graph.split("valid").tolist() == [0]
    for batch in NeighborLoader(graph, [-1], 4, output="numpy", edge_ids=True):
        named = [[graph.node_ids[v] for v in batch.n_id[ends]] for ends in batch.edge_index]
        assert [list(column) for column in edges[["source", "target"]].to_numpy()[batch.e_id].T] == named
        assert (edges.weight.to_numpy()[batch.e_id] == batch.edge_weight).all()
    with pytest.raises(ValueError, match="edge_ids: the options added or dropped edges"):
        Graph.from_pandas(edges, nodes, edge_ids=True, symmetrise=True)
    with pytest.warns(UserWarning, match='left out: "?when'):
        Graph.from_pandas(edges.assign(when="2020-01-01"), nodes, source="source", target="target", edge_weight="weight")
    done = morphgl.train(graph, "mlp", hidden=4, num_neighbors=[2, 2], epochs=1, evaluation="none")
    predicted = morphgl.predict(graph, done.model, nodes=["n2", "n0"])
    assert predicted.nodes.tolist() == ["n2", "n0"]
    with pytest.raises(ValueError, match="nodes: 'n9' is no node"):
        morphgl.predict(graph, done.model, nodes=["n9"])


def test_a_saved_graph_keeps_its_names(tmp_path):
    """Whatever a graph was made of: classes, columns of features and nodes have the names that they had, also in a copy of the copy,
    and mini-batches stay as they were."""
    nodes = NODES.assign(id=NODES.id.map("n{}".format), y=["red", "blue", "red", "blue"]).rename(columns={"f0": "f_size"})
    frames = Graph.from_pandas(EDGES.map("n{}".format), nodes, id="id", y="y", x=[c for c in nodes if c.startswith("f")])
    ring = networkx.Graph([("b", "ä"), ("ä", "c"), ("c", "Z"), ("Z", "b")])
    networkx.set_node_attributes(ring, {v: "odd" if v in "bc" else "even" for v in ring}, "y")
    numbers = networkx.relabel_nodes(ring, {"b": 70, "ä": 3, "c": 12, "Z": 0})
    arrays = Graph.from_numpy(np.array([[0, 1], [1, 0]]), y=["b", "a"])
    made = {"frames": frames, "ring": Graph.from_networkx(ring, y="y"), "numbers": Graph.from_networkx(numbers, y="y"), "arrays": arrays}
    for name, graph in made.items():
        graph.save(tmp_path / name)
        opened = Graph.open(tmp_path / name)
        opened.save(tmp_path / f"{name}-again")
        for copy in opened, Graph.open(tmp_path / f"{name}-again", mmap=True):
            ids = [None if ids is None else list(ids) for ids in (copy.node_ids, graph.node_ids)]
            assert ids[0] == ids[1] and copy.class_names == graph.class_names and (copy.y == graph.y).all()
            batches = [[(b.n_id.tolist(), b.edge_index.tolist()) for b in NeighborLoader(g, [1, 1], 2, seed=3, output="numpy")] for g in (copy, graph)]
            assert batches[0] == batches[1]
    document = json.loads((tmp_path / "frames" / "graph.json").read_text())["provenance"]
    assert document["feature_names"] == [c for c in nodes if c.startswith("f")] and document["class_names"] == ["blue", "red"]
    tuples = networkx.relabel_nodes(ring, {v: (v, 1) for v in ring})
    with pytest.raises(ValueError, match="node_ids: nodes are known by neither text nor numbers"):
        Graph.from_networkx(tuples).save(tmp_path / "tuples")


def test_a_model_of_a_saved_graph_finds_classes_and_features_by_name(tmp_path):
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 2, 60)
    nodes = pandas.DataFrame({"id": range(60), "f_a": classes + rng.normal(size=60) / 9, "f_b": rng.normal(size=60),
                              "label": np.array(["cat", "dog"])[classes]})
    edges = pandas.DataFrame({"source": rng.integers(0, 60, 200), "target": rng.integers(0, 60, 200)})
    splits = {"train": np.arange(0, 60, 2), "valid": np.arange(1, 60, 4), "test": np.arange(3, 60, 4)}
    Graph.from_pandas(edges, nodes, x=["f_a", "f_b"], **splits).save(tmp_path / "graph")
    done = morphgl.train(tmp_path / "graph", "mlp", hidden=8, num_neighbors=[2, 2], epochs=30, lr=0.05)
    done.model.save(tmp_path / "model.safetensors")
    # The same nodes with the columns in another order, and with classes that the model does not know.
    swapped = {"x": ["f_b", "f_a"], **splits}
    Graph.from_pandas(edges, nodes.replace({"label": {"cat": "wolf", "dog": "ant"}}), **swapped).save(tmp_path / "renamed")
    scores = morphgl.evaluate(tmp_path / "graph", tmp_path / "model.safetensors")
    assert scores["test"].accuracy > 0.8
    Graph.from_pandas(edges, nodes[["id", "f_b", "f_a", "label"]], **swapped).save(tmp_path / "swapped")
    assert (Graph.open(tmp_path / "swapped").x == Graph.open(tmp_path / "graph").x[:, ::-1]).all()
    again = morphgl.evaluate(tmp_path / "swapped", tmp_path / "model.safetensors")
    # Sums of features in another order: equal but for rounding.
    assert again["test"].accuracy == scores["test"].accuracy
    assert again["test"].loss == pytest.approx(scores["test"].loss, rel=1e-4)
    with pytest.raises((ValueError, RuntimeError), match="none of the model's"):
        morphgl.evaluate(tmp_path / "renamed", tmp_path / "model.safetensors")


def test_networkx_attributes_are_matched_by_node():
    karate = networkx.karate_club_graph()
    networkx.set_node_attributes(karate, {v: [float(v), 1.0] for v in karate}, "x")
    graph = Graph.from_networkx(karate, x="x", y="club")
    assert graph.class_names == ["Mr. Hi", "Officer"] and graph.x[:, 0].tolist() == list(range(34)) and graph.node_ids is None
    assert [graph.class_names[c] for c in graph.y] == [karate.nodes[v]["club"] for v in karate]
    named = networkx.Graph([("b", "a"), ("a", "c")])
    networkx.set_node_attributes(named, {"a": 0, "b": 1}, "y")
    graph = Graph.from_networkx(named, y="y")
    assert graph.node_ids == ["b", "a", "c"] and graph.y.tolist() == [1, 0, -1]
    assert pairs(graph) == [("a", "b"), ("a", "c"), ("b", "a"), ("c", "a")]
    for options, message in [
        ({"x": "size"}, "x: the node 'b' has no attribute 'size'; give every node one"),
        ({"y": "kind"}, "y: no node has the attribute 'kind'"),
        ({"edge_weight": "w"}, "edge_weight: the edge from 'b' to 'a' has no attribute 'w'"),
    ]:
        with pytest.raises(ValueError, match=message):
            Graph.from_networkx(named, **options)


def test_columns_of_values_are_targets():
    nodes = NODES.assign(price=[0.5, 1.5, np.nan, 2.5], stock=[1, 0, 0, 1])
    expected = {"price": [1.5, 2.5, np.nan, 0.5], "stock": [0, 1, 0, 1]}
    for options, names, labelled in [
        ({"y": "price"}, ["price"], False),
        ({"y": ["price", "stock"]}, ["price", "stock"], False),
        ({"targets": ["stock", "price"]}, ["stock", "price"], True),
        ({"targets": "price", "y": "stock"}, ["price"], True),
    ]:
        with pytest.warns(UserWarning):
            graph = Graph.from_pandas(EDGES, nodes, x=["f0"], **options)
        assert graph.target_names == names and (graph.y is not None) == labelled
        np.testing.assert_array_equal(graph.targets, np.array([expected[name] for name in names]).T)
    graph = Graph.from_pandas(EDGES, NODES.assign(y=NODES.f0 / 4))
    assert graph.target_names == ["y"] and graph.targets[:, 0].tolist() == [0, 2.5, 5, 7.5]
    with pytest.raises(ValueError, match='no column "cost"'):
        Graph.from_pandas(EDGES, NODES, targets=["cost"])
    with pytest.raises(ValueError, match="nodes: y, x, targets and id name columns of it"):
        Graph.from_pandas(EDGES, targets=["cost"])
    g = networkx.Graph([(0, 1), (1, 2)])
    networkx.set_node_attributes(g, {0: 0.25, 2: 1.5}, "value")
    networkx.set_node_attributes(g, {0: [1, 0], 1: [0, 1]}, "both")
    np.testing.assert_array_equal(Graph.from_networkx(g, y="value").targets, [[0.25], [np.nan], [1.5]])
    np.testing.assert_array_equal(Graph.from_networkx(g, y="both").targets, [[1, 0], [0, 1], [np.nan, np.nan]])
    frame = pandas.DataFrame({"height": [0.5, 1.5], "width": [1.0, 2.0]})
    graph = Graph.from_numpy(np.array([[0], [1]]), targets=frame)
    assert graph.target_names == ["height", "width"] and graph.targets.tolist() == [[0.5, 1.0], [1.5, 2.0]]


def test_pairs_of_links_are_given_by_ids():
    tens = EDGES * 10
    graph = Graph.from_pandas(tens.iloc[:3], train_edges=tens, valid_edges=np.array([[0, 30], [20, 10]]), valid_negatives=tens[["target", "source"]],
                              ids="compact")
    assert graph.node_ids.tolist() == [0, 10, 20, 30] and graph.num_edges == 3
    assert graph.edge_split("train").tolist() == [[0, 1, 2, 3], [1, 2, 3, 0]]
    assert graph.edge_split("valid").tolist() == [[0, 3], [2, 1]]
    assert graph.edge_split("valid_negatives").tolist() == [[0, 1, 2, 3], [1, 2, 3, 0]]
    named = EDGES.map("n{}".format)
    graph = Graph.from_pandas(named, test_edges=named.iloc[1:3])
    assert graph.edge_split("test").tolist() == [[1, 2], [2, 3]]
    with pytest.raises(ValueError, match="valid_edges: no column 'target'"):
        Graph.from_pandas(EDGES, valid_edges=EDGES[["source"]])
    with pytest.raises(ValueError, match=r"valid_edges: its shape is \(3,\)"):
        Graph.from_pandas(EDGES, valid_edges=np.arange(3))
