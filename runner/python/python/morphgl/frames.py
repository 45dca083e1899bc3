"""Data frames, read as `morphgl import edges` reads their files: one reader decides what columns are and which node a row is of."""

import os
import re
import tempfile
import warnings

import numpy as np

from . import _morphgl, arrays, commands
from .graph import SPLITS, Graph, provenance

# What the options of the command line are called here.
NAMES = {"src": "source", "dst": "target", "weight": "edge_weight", "id-column": "id", "label-column": "y", "feature-columns": "x",
         "target-columns": "targets"}
# Columns of labels, by which importers know them.
LABELS = ("label", "class", "y", "target", "category")


def imported(edges, nodes, source, target, edge_weight, y, x, targets, id, ids, splits, pairs, edge_ids, unknown_nodes, options):
    """The graph of the frames, and the positions of its edges in `edges`."""
    from pandas.api import types

    for what, frame in (("edges", edges), ("nodes", nodes)):
        if frame is not None and getattr(frame.index, "nlevels", 1) > 1:
            raise ValueError(f"{what}: its index has several levels; pass {what}.reset_index()")
    ends = [column(edges, "source", source, ("source", "src", "from", "u", "row"), 0),
            column(edges, "target", target, ("target", "dst", "to", "v", "col"), 1)]
    # A header of numbers would be a row: such columns are features by their names, and never ends.
    edges, nodes = (frame if frame is None else frame.rename(columns=worded) for frame in (edges, nodes))
    if y is not None and targets is None and columns_to_learn(nodes, y, targets)[0] is None and nodes is not None:
        # These columns are what is learned, and no other.
        named = {*([y] if isinstance(y, str) else y), *([x] if isinstance(x, str) else x or [])}
        nodes = nodes.drop(columns=[name for name in nodes.columns if name in LABELS and name not in named])
    y, targets = columns_to_learn(nodes, y, targets)
    source, target, edge_weight, y, id = (None if name is None else worded(name) for name in (source, target, edge_weight, y, id))
    ends = [worded(end) for end in ends]
    text = not all(types.is_numeric_dtype(edges[end]) for end in ends)
    with tempfile.TemporaryDirectory() as folder:
        file = lambda name: os.path.join(folder, name)
        words = {"src": source, "dst": target, "weight": edge_weight, "unknown-nodes": unknown_nodes, **options}
        edges.to_csv(file("edges.csv"), index=False)
        has_ids = id is not None
        if nodes is not None:
            indexed = nodes.index.name is not None or not np.array_equal(nodes.index, np.arange(len(nodes)))
            known = any(_morphgl.is_id_column(str(name)) for name in nodes.columns)
            # The index is the ids where no column is.
            indexed = indexed and id is None and not known
            if indexed and nodes.index.name is not None:
                id = str(nodes.index.name)
            has_ids = has_ids or indexed or known
            masks = {SPLITS[part]: mask for part, mask in splits.items() if is_mask(mask)}
            for name, mask in masks.items():
                if len(mask) != len(nodes):
                    raise ValueError(f"{name}: a mask of {len(mask)} rows for {len(nodes)} nodes; pass one per row of nodes, or ids")
            nodes.assign(**{name: np.asarray(mask) for name, mask in masks.items()}).to_csv(file("nodes.csv"), index=indexed)
            words.update({"nodes": file("nodes.csv"), "id-column": id, "label-column": y})
            if x is not None:
                words["feature-columns"] = ",".join(worded(name) for name in ([x] if isinstance(x, str) else x))
            if targets is not None:
                words["target-columns"] = ",".join(worded(name) for name in targets)
        elif y is not None or x is not None or targets is not None or id is not None or unknown_nodes is not None:
            raise ValueError("nodes: y, x, targets and id name columns of it, and unknown_nodes is about its ids; pass the frame of nodes")
        for part, given in splits.items():
            if given is not None and not (nodes is not None and is_mask(given)):
                given = np.flatnonzero(given) if is_mask(given) else np.asarray(given).reshape(-1)
                with open(file(f"{part}.txt"), "w", encoding="utf-8") as lines:
                    lines.writelines(f"{node}\n" for node in given.tolist())
                words[part] = file(f"{part}.txt")
        for name, given in pairs.items():
            if given is not None:
                frame_of_pairs(name, given, ends, edges).to_csv(file(f"{name}.csv"), index=False)
                words[name] = file(f"{name}.csv")
        words["ids"] = ids or ("strings" if text else "compact" if has_ids else "keep")
        try:
            commands.run("import", None, ["edges", file("edges.csv"), "-o", file("graph")], words)
        except (ValueError, RuntimeError) as error:
            raise ValueError(of_frames(str(error), folder)) from None
        notes = provenance(file("graph")).get("notes", [])
        left_out = [note for note in notes if note.startswith("nodes.csv") and "left out: " in note]
        if left_out and x is None:
            names = left_out[0].split("left out: ", 1)[1]
            raise ValueError(f"nodes: the columns {names} are not known; list the columns of features by x=[…], or drop them: "
                             "nodes.drop(columns=[…])")
        for note in notes:
            if "left out" in note or not note.startswith(("nodes.csv", "columns")):
                warnings.warn(of_frames(note, folder), stacklevel=4)
        graph = Graph.open(file("graph"))._detached()
    return graph, positions(graph, edges, ends, unknown_nodes == "drop") if edge_ids else False


def columns_to_learn(nodes, y, targets):
    """The column of labels, and the columns of targets, where there are any: several columns, or one of numbers with fractions."""
    if targets is not None:
        return y, [targets] if isinstance(targets, (str, int)) else list(targets)
    if isinstance(y, (list, tuple)):
        return None, list(y)
    if nodes is not None:
        known = [y] if y is not None else [name for name in nodes.columns if str(name).strip().lower() in LABELS]
        for name in known[:1]:
            if name in nodes.columns and nodes[name].dtype.kind == "f" and arrays.is_real("y", nodes[name]):
                return None, [name]
    return y, None


def frame_of_pairs(name, given, ends, edges):
    """Pairs of links as a frame with the columns `ends` of the edges: of a frame that has them, or of ids `[2, pairs]`."""
    if hasattr(given, "columns"):
        given = given.rename(columns=worded)
        missing = [end for end in ends if end not in given.columns]
        if missing:
            raise ValueError(f"{name}: no column {missing[0]!r}; pass a frame with the columns of the edges, {ends[0]!r} and {ends[1]!r}")
        return given[ends]
    array = np.asarray(given)
    if array.ndim != 2 or array.shape[0] != 2:
        raise ValueError(f"{name}: its shape is {array.shape}; pass a frame with the columns of the edges, or ids [2, pairs]")
    return type(edges)(dict(zip(ends, array)))


def column(frame, what, name, known, position):
    """The frame's column of that name, or else of a known one."""
    if name is not None:
        if name not in frame.columns:
            raise ValueError(f"{what}: edges has no column {name!r}; it has {', '.join(map(repr, frame.columns))}")
        return name
    for column in frame.columns:
        if str(column).strip().lower() in known:
            return column
    if len(frame.columns) < 2:
        raise ValueError(f"edges: it has {len(frame.columns)} columns; pass one of sources and one of targets")
    return frame.columns[position]


def worded(name):
    """The name of a column, with a letter in it."""
    text = str(name)
    return text if re.search("[^0-9.+-]", text) or not text else f"f{text}"


def is_mask(given):
    return given is not None and getattr(np.asarray(given), "dtype", None) == bool


def of_frames(message, folder):
    """A message about the files as one about the frames and the arguments."""
    message = message.replace(folder + os.sep, "")
    name = lambda option: NAMES.get(option[1], option[1].replace("-", "_")) + "=" + (f'"{option[2]}"' if option[2] else "")
    return re.sub("--([a-z][a-z-]*)(?: (compact|strings|drop))?", name, message)


def positions(graph, edges, ends, known_alone):
    """The positions in the frame of the graph's edges; with `known_alone`, these are between the graph's nodes alone."""
    pair = [numbers(graph, edges[end].to_numpy()) for end in ends]
    kept = np.flatnonzero((pair[0] >= 0) & (pair[1] >= 0)) if known_alone else None
    sources, targets = (arrays.ids("edges", column if kept is None else column[kept]) for column in pair)
    _, indices, order = (np.asarray(part) for part in _morphgl.csc(sources, targets, graph.num_nodes))
    if not np.array_equal(indices, graph.indices):
        raise ValueError("edge_ids: the options added or dropped edges, which have no position in the frame; leave one of them out")
    return order if kept is None else kept.astype(order.dtype)[order]


def known(name, graph, given):
    """The graph's numbers of nodes that are given by their ids, as uint32."""
    given = np.asarray(given)
    found = numbers(graph, given)
    if (found < 0).any():
        raise ValueError(f"{name}: there is no node {given[np.argmax(found < 0)]!r}; give ids as the frames have them")
    return found.astype(np.uint32)


def numbers(graph, given):
    """The graph's numbers of nodes that are given by their ids; -1 for others."""
    ids = graph.node_ids
    if isinstance(ids, list):
        number = {name: node for node, name in enumerate(ids)}
        return np.array([number.get(str(name).strip(), -1) for name in given], np.int64)
    given = given.astype(np.int64)
    if ids is None:
        return np.where(given < graph.num_nodes, given, -1)
    place = np.searchsorted(ids, given).clip(max=len(ids) - 1)
    return np.where(ids[place] == given, place, -1)
