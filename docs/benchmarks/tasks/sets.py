#!/usr/bin/env python3
"""Writes the data sets of the comparison of tasks, each with its split, as .npy files that every system reads.

Usage: docs/benchmarks/tasks/sets.py --out DIR [--only NAMES] [--data DIR] [--ml-100k FILE] [--blogcatalog FILE]
--data holds planetoid/ and edge-lists/ (docs/datasets.md); --ml-100k is ml-100k.inter of the package recbole, --blogcatalog is
blogcatalog.mat of the repository phanein/deepwalk; grid needs the packages pandapower and numba. A set whose source is not named is
left out, and said so. DIR/SET/graph has edge_index, features, targets and splits; DIR/SET/pairs the pairs of links, of which those to
validate and test on have 100 negatives each, of the same source and no edges of the whole graph.
"""
import argparse
import pathlib

import numpy as np

SEED = 20261128
NEGATIVES = 100


def undirected(edges):
    """Each edge once, its lower end first, without self-loops."""
    edges = np.sort(edges[edges[:, 0] != edges[:, 1]], axis=1)
    return np.unique(edges, axis=0)


def write(directory, part, arrays):
    (directory / part).mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(directory / part / f"{name}.npy", np.ascontiguousarray(array))


def links(directory, edges, num_nodes, features, destinations=None):
    """85% of the edges to train on and pass messages along, 5% to validate, 10% to test."""
    rng = np.random.default_rng(SEED)
    edges = edges[rng.permutation(len(edges))]
    shares = np.split(edges, [int(0.85 * len(edges)), int(0.9 * len(edges))])
    known = set((edges[:, 0].astype(np.int64) * num_nodes + edges[:, 1]).tolist())
    low, high = destinations or (0, num_nodes)

    def negatives(pairs):
        drawn = np.empty((len(pairs), NEGATIVES, 2), np.uint32)
        for i, (source, _) in enumerate(pairs.tolist()):
            found = 0
            while found < NEGATIVES:
                other = int(rng.integers(low, high))
                if other != source and min(source, other) * num_nodes + max(source, other) not in known:
                    drawn[i, found] = source, other
                    found += 1
        return drawn

    train, valid, test = (share.astype(np.uint32) for share in shares)
    both = np.concatenate([train, train[:, ::-1]]).T.astype(np.int64)
    write(directory, "graph", {"edge_index": both, "features": features.astype(np.float32)})
    write(directory, "pairs", {"train": train, "valid": valid, "test": test, "valid_negatives": negatives(valid),
                               "test_negatives": negatives(test)})


def nodes(directory, edges, features, targets, split=None):
    """60% of the nodes to train on, 20% to validate, 20% to test."""
    both = np.concatenate([edges, edges[:, ::-1]]).T.astype(np.int64)
    if split is None:
        order = np.random.default_rng(SEED).permutation(len(features)).astype(np.uint32)
        split = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    train, valid, test = (np.sort(part).astype(np.uint32) for part in split)
    write(directory, "graph", {"edge_index": both, "features": features.astype(np.float32),
                               "targets": targets.astype(np.float32), "train": train, "valid": valid, "test": test})


def random_features(num_nodes, width=64):
    return np.random.default_rng(SEED).uniform(-1, 1, (num_nodes, width))


def cora(directory, args):
    import pickle
    base = str(args.data / "planetoid" / "ind.cora")
    part = {name: pickle.load(open(f"{base}.{name}", "rb"), encoding="latin1") for name in ("allx", "tx", "graph")}
    tested = np.loadtxt(f"{base}.test.index", dtype=np.int64)
    features = np.concatenate([part["allx"].toarray(), part["tx"].toarray()])
    features[tested] = features[np.sort(tested)]
    edges = undirected(np.array([(u, v) for u, to in part["graph"].items() for v in to]))
    links(directory, edges, len(features), features)


def wiki_vote(directory, args):
    lines = np.loadtxt(args.data / "edge-lists" / "wiki-Vote.txt", dtype=np.int64)
    ids, edges = np.unique(lines, return_inverse=True)
    links(directory, undirected(edges.reshape(-1, 2)), len(ids), random_features(len(ids)))


def movielens(directory, args):
    """Every rating is an edge; users come first."""
    rows = np.loadtxt(args.ml_100k, dtype=np.int64, skiprows=1, usecols=(0, 1), delimiter="\t")
    (users, user), (items, item) = (np.unique(column, return_inverse=True) for column in rows.T)
    edges = undirected(np.stack([user, len(users) + item], 1))
    num_nodes = len(users) + len(items)
    links(directory, edges, num_nodes, random_features(num_nodes), (len(users), num_nodes))


def blocks(directory, args):
    """A stochastic block model of 20 overlapping blocks: a node is in one to three, and has the label of each."""
    rng = np.random.default_rng(SEED)
    num_nodes, num_blocks, degree = 10_000, 20, 16
    member = np.zeros((num_nodes, num_blocks), bool)
    for v, count in enumerate(rng.choice([1, 2, 3], num_nodes, p=[0.5, 0.3, 0.2])):
        member[v, rng.choice(num_blocks, count, replace=False)] = True
    inside = [np.flatnonzero(member[:, b]) for b in range(num_blocks)]
    source = rng.integers(0, num_nodes, num_nodes * degree // 2)
    # 80% of the edges stay within a block of the source's.
    block = [rng.choice(np.flatnonzero(member[v])) for v in source]
    target = [rng.choice(inside[b]) if rng.random() < 0.8 else rng.integers(0, num_nodes) for b in block]
    edges = undirected(np.stack([source, np.array(target)], 1))
    features = member @ rng.normal(size=(num_blocks, 32)) * 0.3 + rng.normal(size=(num_nodes, 32))
    nodes(directory, edges, features, member)


def blogcatalog(directory, args):
    """Features are the 64 strongest singular vectors of the adjacency matrix, scaled to deviation 1."""
    import scipy.io
    import scipy.sparse.linalg
    file = scipy.io.loadmat(args.blogcatalog)
    adjacency, labels = file["network"].tocoo(), file["group"].toarray()
    vectors, _, _ = scipy.sparse.linalg.svds(adjacency.tocsr().astype(float), 64, random_state=SEED)
    nodes(directory, undirected(np.stack([adjacency.row, adjacency.col], 1)), vectors / vectors.std(0), labels)


def grid(directory, args):
    """Voltages of IEEE's 118 buses under 200 scenarios of load, by pandapower: per cent above the nominal voltage, of buses without a
    generator, whose voltage is not set. Scenarios are parts of one graph, and of one split."""
    import pandapower
    import pandapower.networks
    net = pandapower.networks.case118()
    rng = np.random.default_rng(SEED)
    buses, scenarios = len(net.bus), 200
    lines = np.concatenate([net.line[["from_bus", "to_bus"]].values, net.trafo[["hv_bus", "lv_bus"]].values])
    edges = undirected(lines)
    set_bus = np.zeros(buses, bool)
    set_bus[net.gen.bus.values] = set_bus[net.ext_grid.bus.values] = True
    load, generation = net.load[["p_mw", "q_mvar"]].values.copy(), net.gen.p_mw.values.copy()
    features, targets = [], []
    for _ in range(scenarios):
        scale = rng.uniform(0.7, 1.2)
        net.load[["p_mw", "q_mvar"]] = load * scale * rng.uniform(0.5, 1.5, (len(load), 1))
        net.gen["p_mw"] = generation * scale * rng.uniform(0.8, 1.2, len(generation))
        pandapower.runpp(net)
        row = np.zeros((buses, 6))
        np.add.at(row[:, :2], net.load.bus.values, net.load[["p_mw", "q_mvar"]].values)
        np.add.at(row[:, 2], net.gen.bus.values, net.gen.p_mw.values)
        row[net.gen.bus.values, 3] = net.gen.vm_pu.values - 1
        row[net.ext_grid.bus.values, 3] = net.ext_grid.vm_pu.values - 1
        np.add.at(row[:, 5], net.shunt.bus.values, net.shunt.q_mvar.values)
        row[:, 4] = set_bus
        features.append(row)
        targets.append(100 * (net.res_bus.vm_pu.values - 1))
    edges = np.concatenate([edges + s * buses for s in range(scenarios)])
    features, free = np.concatenate(features), np.flatnonzero(~set_bus)
    own = [np.concatenate([free + s * buses for s in part])
           for part in np.split(rng.permutation(scenarios), [int(0.6 * scenarios), int(0.8 * scenarios)])]
    scaled = (features - features.mean(0)) / np.maximum(features.std(0), 1e-9)
    nodes(directory, edges, scaled, np.concatenate(targets)[:, None], own)


SETS = {"cora": (cora, "data"), "wiki-vote": (wiki_vote, "data"), "ml-100k": (movielens, "ml_100k"), "blocks": (blocks, None),
        "blogcatalog": (blogcatalog, "blogcatalog"), "grid": (grid, None)}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    for source in ("data", "ml-100k", "blogcatalog"):
        parser.add_argument(f"--{source}", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(SETS))
    args = parser.parse_args()
    for name in args.only.split(","):
        make, source = SETS[name]
        if source and getattr(args, source) is None:
            print(f"{name}: left out, --{source.replace('_', '-')} does not name its source")
            continue
        make(args.out / name, args)
        print(f"{name}: " + ", ".join(f"{file.stem} {list(np.load(file).shape)}" for file in sorted((args.out / name).glob("*/*.npy"))), flush=True)
