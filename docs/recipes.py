#!/usr/bin/env python3
"""Runs the recipes of docs/datasets.md ("From other tools") and compares each dataset with the graph that it was made of:
edges in their direction, weights, features, labels, splits and ids.

    python3 docs/recipes.py --binary target/release/morphgl [--need numpy,scipy,pandas,networkx]

A recipe whose packages are missing is left out and named; those of --need must be there. Files that a recipe downloads are
written here in their layout.
"""
import argparse, gzip, importlib.util, io, json, os, pathlib, re, subprocess, sys, tarfile, tempfile

import numpy as np

EDGES = [(0, 1, 2.0), (1, 2, 0.5), (2, 0, 1.0), (3, 1, 4.0), (0, 3, 1.5), (4, 0, 3.0), (2, 5, 1.0)]
N = 6
X = np.arange(12, dtype=np.float32).reshape(6, 2) / 2
Y = np.array([0, 1, 1, 0, 2, 2])
SPLIT = ["train", "train", "valid", "test", "test", "train"]
NAMES = ["eve", "bob", "dan", "ann", "fay", "cid"]


def masks(of=np.array):
    return {f"{name}_mask": of([part == name or part == "valid" and name == "val" for part in SPLIT]) for name in ("train", "val", "test")}


class Expected:
    """A graph: edges, and what else the dataset must have; of links the arrays of pairs by name."""

    def __init__(self, weighted=True, both=False, x=None, y=None, split=None, ids=None, edges=EDGES, n=N, pairs=None):
        w = (lambda w: w) if weighted else (lambda w: None)
        self.edges = sorted({(u, v, w(e)) for u, v, e in edges} | {(v, u, w(e)) for u, v, e in edges if both}, key=str)
        self.x, self.y, self.split, self.ids, self.n, self.pairs = x, y, split, ids, n, pairs or {}


ALL = dict(x=X, y=Y, split=SPLIT)


def tables(ids):
    import pandas as pd

    edges = pd.DataFrame([(ids[u], ids[v], w) for u, v, w in EDGES], columns=["source", "target", "weight"])
    rows = [(ids[v], int(Y[v]), SPLIT[v], *X[v]) for v in reversed(range(N))]
    return {"edges": edges, "nodes": pd.DataFrame(rows, columns=["id", "label", "split", "f0", "f1"])}


def recipe_numpy():
    part = lambda name: np.array([v for v in range(N) if SPLIT[v] == name])
    scope = dict(edge_index=np.array([e[:2] for e in EDGES]).T, x=X, y=Y, train=part("train"), valid=part("valid"), test=part("test"))
    return scope, Expected(weighted=False, **ALL)


def recipe_scipy():
    import scipy.sparse as sp

    u, v, w = map(np.array, zip(*EDGES))
    return dict(adjacency=sp.csr_matrix((w, (u, v)), shape=(N, N)), x=X, y=Y), Expected(x=X, y=Y)


def recipe_pandas():
    return tables(range(N)), Expected(**ALL)


def recipe_pandas_parquet_ids_that_are_text():
    return tables(NAMES), Expected(ids=NAMES, **ALL)


def networkx_graph(ids, **options):
    import networkx as nx

    graph = nx.Graph(**options)
    graph.add_weighted_edges_from((ids[u], ids[v], w) for u, v, w in EDGES)
    return graph


def recipe_networkx():
    return dict(G=networkx_graph(range(N))), Expected(both=True)


def recipe_networkx_nodes_that_are_no_numbers():
    graph = networkx_graph(NAMES)
    kinds = {name: "abc"[label] for name, label in zip(NAMES, Y)}
    for name in NAMES:
        graph.nodes[name]["kind"] = kinds[name]
    return dict(G=graph), Expected(both=True, ids=NAMES, y=Y)


def recipe_pyg():
    import torch
    from torch_geometric.data import Data

    data = Data(x=torch.tensor(X), y=torch.tensor(Y), edge_index=torch.tensor([e[:2] for e in EDGES]).T.contiguous(), **masks(torch.tensor))
    return dict(data=data), Expected(weighted=False, **ALL)


def recipe_dgl():
    import dgl
    import torch

    graph = dgl.graph(([e[0] for e in EDGES], [e[1] for e in EDGES]), num_nodes=N)
    graph.ndata.update(feat=torch.tensor(X), label=torch.tensor(Y), **masks(torch.tensor))
    return dict(g=graph), Expected(weighted=False, **ALL)


def recipe_snap():
    lines = ["# Directed graph: snap.txt", "# FromNodeId\tToNodeId"] + [f"{10 * u + 3}\t{10 * v + 3}" for u, v, _ in EDGES]
    pathlib.Path("snap.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))
    return {}, Expected(weighted=False, ids=[str(10 * v + 3) for v in range(N)])


def archive(name, mode, text):
    with tarfile.open(name, mode) as tar:
        member = tarfile.TarInfo(text[0])
        member.size = len(text[1])
        tar.addfile(member, io.BytesIO(text[1].encode()))


def recipe_konect():
    lines = ["% sym weighted", f"% {len(EDGES)} {N} {N}"] + [f"{u + 1} {v + 1}\t{int(2 * w)} 1082040961" for u, v, w in EDGES]
    archive("konect.tar.bz2", "w:bz2", ("konect/out.konect", "\n".join(lines) + "\n"))
    return {}, Expected(both=True, edges=[(u, v, 2 * w) for u, v, w in EDGES], ids=[str(v + 1) for v in range(N)])


def recipe_konect_two_kinds_of_nodes():
    """Edges from three nodes to four, each counted from 1."""
    pairs = [(1, 1), (1, 2), (2, 1), (2, 4), (3, 3), (3, 4)]
    lines = ["% bip posweighted asc", f"% {len(pairs)} 3 4"] + [f"{u} {v} {u + v} 1082040961" for u, v in pairs]
    archive("konect-bip.tar.bz2", "w:bz2", ("konect-bip/out.konect-bip", "\n".join(lines) + "\n"))
    edges = [(u - 1, v + 2, float(u + v)) for u, v in pairs]
    ids = [f"source:{v + 1}" for v in range(3)] + [f"target:{v + 1}" for v in range(4)]
    return {}, Expected(both=True, edges=edges, n=7, ids=ids)


def recipe_suitesparse():
    lines = ["%%MatrixMarket matrix coordinate real general", f"{N} {N} {len(EDGES)}"] + [f"{u + 1} {v + 1} {w}" for u, v, w in EDGES]
    archive("suitesparse.tar.gz", "w:gz", ("suitesparse/suitesparse.mtx", "\n".join(lines) + "\n"))
    return {}, Expected()


def recipe_ogb():
    root = pathlib.Path("ogbn_arxiv")
    ids = lambda part: "".join(f"{v}\n" for v in range(N) if SPLIT[v] == part)
    files = {
        "raw/edge": "".join(f"{u},{v}\n" for u, v, _ in EDGES),
        "raw/node-feat": "".join(f"{a},{b}\n" for a, b in X),
        "raw/node-label": "".join(f"{y}\n" for y in Y),
        "raw/num-node-list": f"{N}\n",
        "raw/num-edge-list": f"{len(EDGES)}\n",
        **{f"split/time/{part}": ids(part) for part in ("train", "valid", "test")},
    }
    for name, text in files.items():
        path = root / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return {}, Expected(weighted=False, both=True, **ALL)


# Pairs of links, and lists of negatives.
LINKS = {
    "train_edges": [e[:2] for e in EDGES],
    "valid_edges": [(1, 4), (0, 5)],
    "valid_edges_negatives": [(5, 1), (4, 2), (3, 5)],
    "test_edges": [(2, 4)],
    "test_edges_negatives": [(5, 4), (1, 5)],
}


def link_splits():
    of = lambda part, kind: np.array(LINKS[f"{part}_edges{kind}"])
    scored = {part: {"edge": of(part, ""), "edge_neg": of(part, "_negatives")} for part in ("valid", "test")}
    return {"train": {"edge": of("train", ""), "weight": np.array([e[2] for e in EDGES])}, **scored}


def recipe_ogb_links():
    import torch

    raw, split = pathlib.Path("ogbl_collab/raw"), pathlib.Path("ogbl_collab/split/time")
    files = {
        "edge": "".join(f"{u},{v}\n" for u, v, _ in EDGES),
        "edge_weight": "".join(f"{w}\n" for _, _, w in EDGES),
        "edge_year": "2017\n" * len(EDGES),
        "node-feat": "".join(f"{a},{b}\n" for a, b in X),
        "num-node-list": f"{N}\n",
        "num-edge-list": f"{len(EDGES)}\n",
    }
    raw.mkdir(parents=True)
    split.mkdir(parents=True)
    for name, text in files.items():
        (raw / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    for part, arrays in link_splits().items():
        torch.save(arrays, split / f"{part}.pt", _use_new_zipfile_serialization=part != "valid")
    return {}, Expected(both=True, x=X, pairs=LINKS)


def recipe_pairs_that_torch_saved():
    import torch

    tensors = {part: {name: torch.tensor(array) for name, array in arrays.items()} for part, arrays in link_splits().items()}
    torch.save(tensors, "pairs.pt")
    return dict(torch=torch), Expected(weighted=False, pairs=LINKS)


# Packages of each recipe, beside numpy.
PACKAGES = {
    "scipy": ["scipy"],
    "pandas": ["pandas"],
    "pandas, Parquet, ids that are text": ["pandas", "pyarrow"],
    "networkx": ["networkx"],
    "networkx, nodes that are no numbers": ["networkx", "pandas"],
    "PyG": ["torch_geometric"],
    "OGB, links": ["torch"],
    "Pairs that torch saved": ["torch"],
    "DGL": ["dgl"],
}


def recipes(text):
    """The recipes: heading, python code, commands."""
    chapter = text.split("## From other tools")[1].split("\n## ")[0]
    for part in chapter.split("\n### ")[1:]:
        blocks = lambda kind: re.findall(rf"```{kind}\n(.*?)```", part, re.S)
        yield part.split("\n")[0], "".join(blocks("python")), [l[2:] for b in blocks("console") for l in b.splitlines() if l.startswith("$ ")]


def array(path, name):
    file = path / f"{name}.npy"
    return np.load(file) if file.exists() else None


def read(path):
    """What a dataset holds, by the ids of its source."""
    meta = json.loads((path / "graph.json").read_text())
    n = meta["num_nodes"]
    indptr, indices, weights = (array(path, name) for name in ("indptr", "indices", "weights"))
    ids, ends = array(path, "node_ids"), array(path, "node_name_ends")
    if ends is not None:
        names, starts = array(path, "node_names").tobytes(), [0, *ends[:-1]]
        ids = [names[a:b].decode() for a, b in zip(starts, ends)]
    ids = [str(i) for i in (range(n) if ids is None else ids)]
    if meta.get("types") and ends is None:
        names = [of["name"] for of in meta["types"]["nodes"] for _ in range(of["count"])]
        ids = [f"{name}:{i}" for name, i in zip(names, ids)]
    rows = np.repeat(np.arange(n), np.diff(indptr.astype(np.int64)))
    values = [None] * len(rows) if weights is None else [float(w) for w in weights]
    edges = sorted(((ids[u], ids[v], w) for u, v, w in zip(indices, rows, values)), key=str)
    split = [None] * n
    for part in ("train", "valid", "test"):
        for v in array(path, part) if array(path, part) is not None else []:
            split[v] = part
    return ids, edges, array(path, "features"), array(path, "labels"), split


def check(path, expected):
    ids, edges, x, y, split = read(path)
    name = expected.ids or [str(v) for v in range(expected.n)]
    assert sorted(ids) == sorted(name), f"nodes {ids}, expected {name}"
    wanted = sorted(((name[u], name[v], w) for u, v, w in expected.edges), key=str)
    assert edges == wanted, f"edges {edges[:9]}, expected {wanted[:9]}"
    place = [ids.index(i) for i in name] if expected.ids else range(expected.n)
    for what, found, of in (("features", x, expected.x), ("labels", y, expected.y), ("split", split, expected.split)):
        if of is not None:
            found = [found[v] for v in place]
            assert np.array_equal(np.array(found), np.array(of)), f"{what} {found}, expected {of}"
    for what, of in expected.pairs.items():
        assert np.array_equal(array(path, what), np.array(of)), f"{what} {array(path, what)}, expected {of}"


def run(heading, code, commands):
    # The graph is made where the recipe runs.
    function = globals()["recipe_" + re.sub(r"\W+", "_", heading.lower())]
    scope, expected = function()
    exec("import numpy as np\n" + "".join(f"import {p}\n" for p in re.findall(r"\b(scipy\.sparse|networkx|pandas)\b", code)) + code, scope)
    for command in commands:
        words = command.split()
        words = [str(ARGS.binary), *words[1:]] if words[0] == "morphgl" else words
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr.strip()}"
        if words[0] == str(ARGS.binary):
            lines = [line for line in done.stdout.splitlines() if line]
            # Tables of node and edge types come on top.
            most = 20 if any(line.startswith("node type") for line in lines) else 10
            assert len(lines) <= most, f"{command}: a summary of {len(lines)} lines"
            check(pathlib.Path(words[words.index("-o") + 1]), expected)


# Files in formats that are not read, and their edges: the message has the commands that write these and read them.
FOREIGN = {
    "g.gexf": ('<?xml version="1.0"?>\n<gexf xmlns="http://gexf.net/1.3" version="1.3"><graph defaultedgetype="directed"><nodes><node id="a"/>'
               '<node id="b c"/></nodes><edges><edge id="0" source="a" target="b c" weight="2.5"/></edges></graph></gexf>', [("a", "b c", 2.5)]),
    "g.graphml": ('<?xml version="1.0"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" attr.name="weight" '
                  'attr.type="double"/><graph edgedefault="undirected"><node id="a"/><node id="b"/><node id="c d"/><edge source="a" target="b">'
                  '<data key="w">0.5</data></edge><edge source="b" target="c d"/></graph></graphml>',
                  [("a", "b", 0.5), ("b", "a", 0.5), ("b", "c d", 1.0), ("c d", "b", 1.0)]),
    "g.dot": ("// made by hand\ndigraph {\n  a -> b [weight=2.5];\n  b -> c;\n  c -> a [label=x];\n}\n",
              [("a", "b", 2.5), ("b", "c", 1.0), ("c", "a", 1.0)]),
    "undirected.dot": ("graph g {\n 0 -- 1;\n 1 -- 2 [weight=3];\n}\n", [("0", "1", 1.0), ("1", "0", 1.0), ("1", "2", 3.0), ("2", "1", 3.0)]),
    "g.gml": ("graph [\n directed 1\n node [ id 7 ]\n node [ id 9 ]\n edge [ source 7 target 9 weight 0.5 ]\n]\n", [("7", "9", 0.5)]),
    "g.net": ('*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*Edges\n1 2 1\n2 3 2\n', [("a", "b", 1.0), ("b", "a", 1.0), ("b", "c", 2.0), ("c", "b", 2.0)]),
    "g.gdf": ("nodedef>name VARCHAR,label VARCHAR\n0,a\n1,b\nedgedef>node1 VARCHAR,node2 VARCHAR\n0,1\n", [("0", "1", None), ("1", "0", None)]),
    "g.tgf": ("1 one\n2 two\n#\n1 2 e\n2 1 f\n", [("1", "2", None), ("2", "1", None)]),
    "g.col": ("c x\np edge 3 2\ne 1 2\ne 2 3\n", [("1", "2", None), ("2", "1", None), ("2", "3", None), ("3", "2", None)]),
    "g.gr": ("p sp 3 2\na 1 2 7\na 2 3 4\n", [("1", "2", 7.0), ("2", "3", 4.0)]),
    "g.dl": ("dl n=3 format=edgelist1\nlabels:\na,b,c\ndata:\n1 2 1\n2 3 1\n", [("1", "2", 1.0), ("2", "3", 1.0)]),
    "g.nt": ("<http://a> <http://p> <http://b> .\n", [("entity:http://a", "entity:http://b", None)]),
    "g.adjlist": ("0 1\n1 2 3 4\n2 3 0\n3 0 1\n4 2\n", [(u, v, None) for u, v in ("01", "12", "13", "14", "23", "20", "30", "31", "42")]),
    "g.mtx": ("%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 0.5\n2 3 2\n", [("0", "1", 0.5), ("1", "2", 2.0)]),
    "g.graph": ("4 3\n2\n1 3\n2 4\n3\n", [(u, v, None) for u, v in ("01", "10", "12", "21", "23", "32")]),
}


# Packages that the commands of a message use besides networkx.
NEEDED = {".dot": "pydot"}


def conversions():
    """Follows the messages of files in other formats as they are written; returns how many, and those whose packages are missing."""
    missing = {name: package for name in FOREIGN if (package := NEEDED.get(pathlib.Path(name).suffix)) and not importlib.util.find_spec(package)}
    for name, (text, expected) in FOREIGN.items():
        if name in missing:
            continue
        pathlib.Path(name).write_text(text)
        refused = subprocess.run([str(ARGS.binary), "import", "edges", name, "-o", "d"], capture_output=True, text=True)
        assert refused.returncode == 1, f"{name} is not refused"
        commands = re.findall("`([^`]*)`", refused.stderr)
        if not commands[-1].startswith("morphgl"):
            commands.append(f"morphgl import edges {commands[-1].split()[-1]}")
        for command in commands:
            if command.startswith("morphgl"):
                command = f"{ARGS.binary}{command.removeprefix('morphgl')} -o {name}.dataset"
            done = subprocess.run(command, shell=True, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}: {done.stderr.strip()}"
        edges = read(pathlib.Path(f"{name}.dataset"))[1]
        assert edges == sorted(expected, key=str), f"{name}: edges {edges}, expected {expected}"
    return len(FOREIGN) - len(missing), [f"{name} ({package} missing)" for name, package in missing.items()]


def main():
    ran, left = [], []
    if importlib.util.find_spec("networkx") is not None:
        with tempfile.TemporaryDirectory() as directory:
            here = os.getcwd()
            os.chdir(directory)
            # Commands run the python3 of this program, which has its packages.
            os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
            followed, left = conversions()
            os.chdir(here)
        print(f"the messages of {followed} files in other formats give their graphs")
    for heading, code, commands in recipes((pathlib.Path(__file__).parent / "datasets.md").read_text()):
        missing = [p for p in PACKAGES.get(heading, []) if importlib.util.find_spec(p) is None]
        if missing:
            left.append(f"{heading} ({', '.join(missing)} missing)")
            continue
        with tempfile.TemporaryDirectory() as directory:
            here = os.getcwd()
            os.chdir(directory)
            try:
                run(heading, code, commands)
            except Exception as error:
                sys.exit(f"recipe {heading!r}: {type(error).__name__}: {error}")
            finally:
                os.chdir(here)
        ran.append(heading)
    print(f"{len(ran)} recipes give their graph: {'; '.join(ran)}")
    if left:
        print(f"left out: {'; '.join(left)}")
    needed = list(filter(None, ARGS.need.split(",")))
    ran += [package for package in NEEDED.values() if importlib.util.find_spec(package)]
    if lost := [name for name in needed if name not in ran]:
        sys.exit(f"--need: {', '.join(lost)}: not run")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--binary", type=lambda p: pathlib.Path(p).resolve(), required=True)
parser.add_argument("--need", default="", help="recipes that must run, by their headings")
ARGS = parser.parse_args()
if __name__ == "__main__":
    main()
