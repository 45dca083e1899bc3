#!/usr/bin/env python3
"""Writes the seeds of the fuzz tests: one small file of every kind that the readers take.

    python3 fuzz/seeds.py MORPHGL      (the binary; needs numpy)

Files whose bytes depend on the machine (plan, profile, run) are written by the binary on a dataset of 40 nodes.
The seeds are committed, so this runs only when a format or a reader is added.
"""

import gzip
import io
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import types
import zipfile

import numpy as np

SEEDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")


def write(name, data):
    path = os.path.join(SEEDS, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data if isinstance(data, bytes) else data.encode())


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(**arrays):
    """An archive with dates of zero, so that it is the same at every run."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(array), zipfile.ZIP_DEFLATED)
    return out.getvalue()


# scipy's class by name alone: its pickle is the module, the name and the attributes.
module = types.ModuleType("scipy.sparse.csr")
Csr = type("csr_matrix", (), {"__module__": "scipy.sparse.csr"})
module.csr_matrix = Csr
sys.modules.update({"scipy": types.ModuleType("scipy"), "scipy.sparse": types.ModuleType("scipy.sparse"),
                    "scipy.sparse.csr": module})


def csr(rows, cols, columns):
    """A matrix with a one in each of `columns`, a list of columns per row."""
    matrix = Csr()
    matrix._shape = (rows, cols)
    matrix.indptr = np.cumsum([0] + [len(c) for c in columns]).astype(np.int32)
    matrix.indices = np.array([c for row in columns for c in row], dtype=np.int32)
    matrix.data = np.ones(len(matrix.indices), dtype=np.float32)
    matrix.maxprint = 50
    return matrix


def planetoid():
    nodes, test, dim = 504, 3, 4
    hot = lambda n: np.eye(2, dtype=np.int32)[np.arange(n) % 2]
    features = lambda n: csr(n, dim, [[i % dim] if i < 8 else [] for i in range(n)])
    graph = {0: [1, 2], 1: [0], 2: [0, 505], 505: [2]}
    files = {"y": hot(4), "ally": hot(nodes), "ty": hot(test), "allx": features(nodes), "tx": features(test),
             "graph": graph}
    for name, content in files.items():
        write(f"planetoid/ind.tiny.{name}", pickle.dumps(content, protocol=0 if name == "graph" else 2))
    write("planetoid/ind.tiny.test.index", "505\n504\n507\n")


def archives():
    arrays = dict(
        adj_data=np.ones(4, np.float32), adj_indices=np.array([1, 0, 2, 1], np.int32),
        adj_indptr=np.array([0, 1, 3, 4], np.int32), adj_shape=np.array([3, 3]),
        attr_data=np.array([1, 2], np.float32), attr_indices=np.array([0, 1], np.int32),
        attr_indptr=np.array([0, 1, 2, 2], np.int32), attr_shape=np.array([3, 2]), labels=np.array([0, 1, 0]))
    write("npz/plain.npz", npz(**arrays))
    matrix = np.empty((), object)
    matrix[()] = csr(3, 3, [[1], [0, 2], [1]])
    write("npz/objects.npz", npz(adj_matrix=matrix, attr_matrix=np.eye(3, 2), node_label=np.array([1, 0, 1])))
    numpy = dict(
        edge_index=np.array([[0, 1, 2], [1, 2, 0]]), edge_weight=np.array([1, 2, .5], np.float32),
        x=np.arange(6, dtype=np.float32).reshape(3, 2), y=np.array([0, 1, -1]), train_mask=np.array([1, 0, 0], bool),
        val=np.array([1]), test=np.array([2], np.uint8), node_ids=np.array([5, 9, 7]))
    write("numpy/graph.npz", npz(**numpy))
    rows = dict(indptr=np.array([0, 1, 2, 3]), indices=np.array([1, 2, 0], np.int32), features=np.eye(3, 2, dtype=np.float16))
    write("numpy/rows.npz", npz(**rows))
    write("numpy/scipy.npz", npz(format=np.array(b"coo"), shape=np.array([3, 3]), data=np.array([1.0, 2.0]),
                                 row=np.array([0, 1], np.int32), col=np.array([1, 2], np.int32)))
    write("npy-header/header.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2L), }     \n")
    for name, array in numpy.items():
        write(f"arrays/{name}.npy", npy(array))


def ogb():
    files = {"raw/num-node-list": "4\n", "raw/num-edge-list": "3\n", "raw/edge": "0,1\n1,2\n3,0\n",
             "raw/node-feat": "0.5,1\n-1,2e-3\n0,0\n1,1\n", "raw/node-label": "0\n1\n0\n1\n", "split/by/train": "0\n1\n",
             "split/by/valid": "2\n", "split/by/test": "3\n"}
    for name, text in files.items():
        write(f"ogb/{name}.csv.gz", gzip.compress(text.encode(), mtime=0))
    write("ogb-binary/raw/data.npz", npz(
        num_nodes_list=np.array([2, 2]), num_edges_list=np.array([2, 1]), edge_index=np.array([[0, 1, 1], [1, 0, 0]]),
        node_feat=np.eye(4, 3, dtype=np.float32), node_year=np.array([[1], [2], [3], [4]])))
    write("ogb-binary/raw/node-label.npz", npz(node_label=np.array([[0.0], [1], [np.nan], [1]])))


def torch_archive(arrays):
    """As `torch.save` writes a dict of arrays since torch 1.6."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("part/data.pkl"), pickle.dumps(arrays, 2))
        archive.writestr(zipfile.ZipInfo("part/version"), "3\n")
    return out.getvalue()


def torch_pickles(arrays):
    """As `torch.save` wrote a dict of arrays before torch 1.6."""
    sizes = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
    return b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, sizes, arrays, []))


def ogb_links():
    for name, text in {"num-node-list": "4\n", "num-edge-list": "3\n", "edge": "0,1\n1,2\n3,0\n", "edge_weight": "1\n2.5\n1\n"}.items():
        write(f"ogb-links/raw/{name}.csv.gz", gzip.compress(text.encode(), mtime=0))
    write("ogb-links/split/by/train.pt", torch_archive({"edge": np.array([[0, 1], [1, 2], [3, 0]]), "weight": np.ones(3)}))
    write("ogb-links/split/by/valid.pt", torch_pickles({"edge": np.array([[0, 2]]), "edge_neg": np.array([[1, 3], [3, 2]])}))
    write("ogb-links/split/by/test.pt", torch_pickles(
        {"source_node": np.array([1]), "target_node": np.array([0]), "target_node_neg": np.array([[3, 2]])}))


def folders():
    write("mag240m/meta.pt", torch_pickles({"paper": 3, "author": 2, "num_classes": 2}))
    write("mag240m/split_dict.pt", torch_archive({"train": np.array([2]), "valid": np.array([0]), "test": np.array([1])}))
    for name, array in {
        "paper/node_feat": np.array([[1, 2], [3, 4], [5, 6]], np.float16),
        "paper/node_label": np.array([1, np.nan, 0], np.float32),
        "paper/node_year": np.array([2010, 2012, 2011], np.int16),
        "author___writes___paper/edge_index": np.array([[0, 1, 1], [2, 0, 1]]),
        "paper___cites___paper/edge_index": np.array([[0, 2], [1, 1]], np.int32),
    }.items():
        write(f"mag240m/processed/{name}.npy", npy(array))
    for name, array in {
        "paper/node_feat": np.array([[1, 2], [3, 4], [5, 6]], np.float32),
        "paper/node_label_19": np.array([1, 0, 2], np.float32),
        "author/node_feat": np.array([[1], [2]], np.float16),
        "paper__cites__paper/edge_index": np.array([[0, 2], [1, 1], [2, 0]]),
        "paper__written_by__author/edge_index": np.array([[0, 1], [2, 0]], np.int32),
    }.items():
        write(f"igb/{name}.npy", npy(array))


def text():
    write("edges/plain.txt", "# comment\n0 1\n1 2\n2 0\n")
    write("edges/header.csv", "src,dst,weight\n0,1,0.5\n1,2,1e-3\n2,0,3\n")
    write("edges/quoted.csv", '"src";"dst";"weight"\n"0";"1";"1.5"\n"1";"0";"2"\n')
    write("edges/networkx.txt", "0 1 {'weight': 3.0}\n1 2 {'weight': 1}\n")
    write("edges/bom.tsv", "\ufefffrom\tto\n0\t1\n1\t0\n")
    write("edges/text.csv.gz", gzip.compress(b"0,1\n1,2\n" * 4, mtime=0))
    write("manifest/graph.toml", """name = "shop"
[nodes.person]
file = "people.csv"
id = "key"
features = ["f*"]
time = "at"
label = "kind"
split = "fold"
[nodes.item]
features = "x.npy"
time = { file = "year.csv" }
[nodes.town]
[[edges]]
type = "buys"
file = "buys.tsv"
source = { type = "person", column = "who" }
target = { type = "item", column = 2 }
weight = "n"
time = "day"
features = ["price"]
reverse = true
[[edges]]
type = "in"
file = "towns.txt"
header = false
source = "person"
target = "town"
[[edges]]
type = "like"
file = "like.npy"
source = "item"
target = "item"
features = "likes.csv"
reverse = "like"
""")
    write("manifest/people.csv", "key,f0,f1,at,kind,fold\na,1,2,-5,x,train\n7,3,4,6,y,valid\n\"b,c\",5,6,7,,test\n")
    write("manifest/buys.tsv", "who\twhat\tn\tday\tprice\na\t0\t1\t5\t0.5\n7\t1\t0.5\t-2\t9\na\t0\t2\t5\t-1\n")
    write("manifest/towns.txt", "a Oslo\n7 Rome\n")
    write("manifest/year.csv", "1999\n2001\n")
    write("manifest/x.npy", npy(np.array([[1, 2], [3, 4]], np.float32)))
    write("manifest/like.npy", npy(np.array([[0, 1, 1], [1, 1, 0]], np.int64)))
    write("manifest/likes.csv", "f0,f1\n1,2\n3,4\n5,6\n")
    write("task/graph.toml", """[nodes.person]
file = "people.csv"
id = "key"
features = ["f"]
[nodes.item]
[[edges]]
type = "buys"
file = "buys.tsv"
source = { type = "person", column = "who" }
target = { type = "item", column = 2 }
time = "day"
reverse = true
[task]
file = "rows.csv"
node = { type = "person", column = "who" }
time = "day"
label = "leaves"
targets = ["spends"]
split = { valid = 4, test = 6 }
""")
    write("task/people.csv", "key,f\na,1\n7,3\n")
    write("task/buys.tsv", "who\twhat\tday\na\t0\t5\n7\t1\t-2\n")
    rows = ["a,1,no,0.5,train\n", "a,4,yes,,valid\n", "7,-3,no,2,train\n", "7,9,,1e2,test\n"]
    write("task/rows.csv", "who,day,leaves,spends,fold\n" + "".join(rows))
    for name, of_split in [("train", rows[::2]), ("valid", rows[1:2]), ("test", rows[3:])]:
        write(f"task/{name}.csv", "who,day,leaves,spends,fold\n" + "".join(of_split))
    write("edge-features/header.csv", "src,dst,f0,f1\n0,1,0.5,1\n1,2,-1e-3,2\n0,1,3,4\n")
    write("edge-features/plain.txt", "# c\n0 1 2 3\n1 0 4 5\n2 2 6 7\n")
    write("bipartite/ratings.csv", "source,target,weight\n1,1,5\n2,1,4\n1,7,3\n")
    write("bipartite/konect.txt", "% bip weighted\n% 3 2 3\n1 1 2\n2 3 1\n1 2 5\n")
    write("bipartite/plain.txt", "0 0\n1 0\n4 2\n")
    write("neo4j/movies.csv", "movieId:ID(Movie),title,year:int,:LABEL\nm1,\"A, b\",1999,Movie\nm2,C,2003,Movie;Sequel\n")
    write("neo4j/people-header.csv", "id:ID(Person){id-type:int},old:boolean,:LABEL\n")
    write("neo4j/people-1.csv", "1,true,Actor\n2,false,Director\n")
    write("neo4j/acts.csv", ":START_ID(Person),role,weight:float,:END_ID(Movie),:TYPE\n1,x,2,m1,ACTED_IN\n2,y,1,m2,DIRECTED\n")
    write("triples/tabs.txt", "a b\tlikes\tc\nc\tlikes\ta b\nc\tknows\tc\n")
    write("triples/rdf.nt", '# c\n<a> <p> <b> .\n_:x <p> <a> .\n<a> <q> "l\\"i\\""@en .\n<b> <q> "1"^^<int> .\n')
    for name, text in [("num-node-dict", "author,paper\n2,3\n"), ("triplet-type-list", "author,writes,paper\npaper,cites,paper\n"),
                       ("relations/author___writes___paper/edge", "0,1\n1,2\n"),
                       ("relations/paper___cites___paper/edge", "0,1\n2,0\n"),
                       ("relations/paper___cites___paper/edge-feat", "1,2\n0.5,4\n"),
                       ("node-feat/paper/node-feat", "1,2\n3,4\n5,6\n"), ("node-feat/paper/node_year", "2010\n2011\n2012\n"),
                       ("node-label/paper/node-label", "0\n1\n0\n")]:
        write(f"ogb-typed/raw/{name}.csv.gz", gzip.compress(text.encode(), mtime=0))
    for name, text in [("train", "0\n"), ("valid", "1\n"), ("test", "2\n")]:
        write(f"ogb-typed/split/time/paper/{name}.csv.gz", gzip.compress(text.encode(), mtime=0))
    write("mtx/pattern.mtx", "%%MatrixMarket matrix coordinate pattern symmetric\n% c\n3 3 2\n2 1\n3 2\n")
    write("mtx/real.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 0.5\n2 3 1\n3 1 2e2\n")
    write("metis/plain.graph", "% c\n3 2\n2\n1 3\n2\n")
    write("metis/weighted.graph", "3 2 11 1\n5 2 1.5\n6 1 1.5 3 2\n7 2 2\n")
    write("nodes/edges.csv", "0,1\n1,2\n2,0\n")
    write("nodes/nodes.csv", "id,label,split,f0,f1\n0,a,train,1,2\n1,b,val,3,4\n2,a,test,5,6\n")
    write("nodes/features.csv", "1,2\n3,4\n5,6\n")
    write("nodes/labels.csv", "id label\n0 1\n1 0\n2 1\n")
    write("nodes/train.txt", "0\n2\n")


def own(morphgl):
    """What the program writes itself."""
    with tempfile.TemporaryDirectory() as at:
        def run(*arguments):
            subprocess.run([morphgl, "--quiet", *arguments], cwd=at, check=True, stdout=subprocess.DEVNULL)
        run("generate", "sbm", "-o", "tiny", "--nodes", "40", "--classes", "3", "--dim", "4", "--degree", "3")
        for kind, name in [("sage", "sage"), ("gat", "gat")]:
            run("train", "tiny", "--model", kind, "--epochs", "1", "--hidden", "4", "--fanouts", "2,2", "--batch-size", "8",
                "--profile-seconds", "0.05", "--run", f"run-{kind}", "--threads", "2")
            write(f"model/{name}.safetensors", open(f"{at}/run-{kind}/model.safetensors", "rb").read())
        write("config/sage.toml", open(f"{at}/run-sage/config.toml", "rb").read())
        write("plan/cpu.json", open(f"{at}/run-sage/plan.json", "rb").read())
        run("profile", "tiny", "--fanouts", "2,2", "--batch-size", "8", "--profile-seconds", "0.05", "--save", "p.json",
            "--threads", "2")
        write("profile/cpu.json", open(f"{at}/p.json", "rb").read())
        run("plan", "--durations", "batching-cpu=80ms,workers=4,transferring-pcie=4ms,batching-device=14ms,"
            "transferring-device=4ms,training=10ms,batches=24", "-o", "device.json")
        write("plan/device.json", open(f"{at}/device.json", "rb").read())
        with open(f"{at}/named.csv", "w") as out:
            out.write("src,dst,weight\na,b,1\nb,c,2\nc,a,0.5\n")
        with open(f"{at}/labels.csv", "w") as out:
            out.write("id,label,split\na,x,train\nb,y,valid\nc,x,test\n")
        run("import", "edges", "named.csv", "-o", "named", "--ids", "strings", "--nodes", "labels.csv",
            "--random-features", "3", "--dtype", "f16")
        for name in os.listdir(f"{at}/named"):
            write(f"dataset/{name}", open(f"{at}/named/{name}", "rb").read())
        write("graph-json/graph.json", open(f"{at}/named/graph.json", "rb").read())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    shutil.rmtree(SEEDS, ignore_errors=True)
    planetoid()
    archives()
    ogb()
    ogb_links()
    folders()
    text()
    own(os.path.abspath(sys.argv[1]))
