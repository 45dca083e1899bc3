"""pyg-lib's sampling of typed graphs, in trees and within times, in plain Python: the other half of the stand-in beside this file."""
import numpy as np
import torch


def hetero_neighbor_sample(node_types, edge_types, rowptr, col, seed, num_neighbors, node_time, edge_time, seed_time, edge_weight, csc,
                           replace, directed, disjoint, temporal_strategy, return_edge_id, random):
    """As `torch.ops.pyg.hetero_neighbor_sample`. Each hop expands what the one before found, edge type by edge type; a node whose time is
    later than its tree's is not sampled."""
    if replace or not directed or not csc or edge_time is not None or edge_weight is not None or temporal_strategy != "uniform":
        raise ValueError("the stand-in for pyg-lib samples directed graphs in CSC form, without replacement and weights, by times of nodes")
    names = {"__".join(edge_type): edge_type for edge_type in edge_types}
    indptr, indices = ({name: of.numpy() for name, of in given.items()} for given in (rowptr, col))
    times = {} if node_time is None else {name: of.numpy() for name, of in node_time.items()}
    nodes, local = {name: [] for name in node_types}, {name: {} for name in node_types}
    until = []

    def place(kind, key):
        at = local[kind].get(key)
        if at is None:
            at = local[kind][key] = len(nodes[kind])
            nodes[kind].append(key)
        return at

    for kind, ids in seed.items():
        bounds = seed_time[kind].tolist() if seed_time is not None else [times[kind][v] for v in ids.tolist()] if kind in times else None
        for number, node in enumerate(ids.tolist()):
            tree = len(until) if disjoint else 0
            if disjoint:
                until.append(None if bounds is None else bounds[number])
            if disjoint or (tree, node) not in local[kind]:
                place(kind, (tree, node))
    first = {name: 0 for name in node_types}
    found = {name: [len(of)] for name, of in nodes.items()}
    edges = {name: ([], [], []) for name in names}
    per_hop = {name: [] for name in names}
    for hop in range(max(map(len, num_neighbors.values()))):
        end = {name: len(of) for name, of in nodes.items()}
        for name, (source, _, target) in names.items():
            rows, cols, ids = edges[name]
            before, fanout = len(rows), num_neighbors[name][hop]
            for at in range(first[target], end[target]):
                tree, node = nodes[target][at]
                picks = np.arange(indptr[name][node], indptr[name][node + 1])
                if disjoint and until[tree] is not None and source in times:
                    picks = picks[times[source][indices[name][picks]] <= until[tree]]
                if 0 <= fanout < len(picks):
                    picks = random.choice(picks, fanout, replace=False)
                for edge in picks.tolist():
                    rows.append(place(source, (tree, int(indices[name][edge]))))
                    cols.append(at)
                    ids.append(edge)
            per_hop[name].append(len(rows) - before)
        first = end
        for kind, of in nodes.items():
            found[kind].append(len(of) - end[kind])
    tensor = lambda values: torch.tensor(values, dtype=torch.int64)
    node = {kind: tensor(of).view(-1, 2) if disjoint else tensor([node for _, node in of]) for kind, of in nodes.items()}
    row, column, edge = ({name: tensor(of[part]) for name, of in edges.items()} for part in range(3))
    return row, column, node, edge if return_edge_id else None, found, per_hop
