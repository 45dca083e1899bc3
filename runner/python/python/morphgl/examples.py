"""What is learned of a graph besides its nodes: labelled edges, and rows of a task."""

import numpy as np

from . import _morphgl, arrays

SPLITS = ("train", "valid", "test")
# Columns of a table of rows.
COLUMNS = ("node", "time", "y", "targets")


def learned(y, targets, name="y"):
    """What `y` and `targets` have of nodes or rows: classes and their names, values `[rows, K]` and their names, and whether these were
    given as one number per row. A `y` of several columns or with fractions is targets."""
    if y is not None and targets is None and arrays.is_real(name, y):
        y, targets = None, y
    classes, class_names = (None, None) if y is None else arrays.labels(name, y)
    values, target_names, flat = (None, None, False) if targets is None else arrays.targets(name if name != "y" else "targets", targets)
    return classes, class_names, values, target_names, flat


def labels_of_edges(edge_label):
    """Classes and values of labelled edges, either None where the labels are the other alone, and what the graph's source says of them:
    whole numbers from 0 are both, and the task says which is learned."""
    name = "edge_label"
    classes, values, source = None, None, {}
    is_values = arrays.is_real(name, edge_label)
    if not is_values:
        numbers = None if not hasattr(edge_label, "detach") and np.asarray(edge_label).dtype.kind in "OSU" else arrays.to_numpy(name, edge_label)[0]
        is_values = numbers is not None and numbers.size > 0 and np.nanmin(numbers) < -1
    if is_values:
        values, names, _ = arrays.targets(name, edge_label)
        source = {"edge_target_names": names}
    else:
        classes, names = arrays.labels(name, edge_label)
        source = {"edge_class_names": names}
        if names is None:
            values = np.where(classes < 0, np.nan, classes).astype(np.float32)[:, None]
    return classes, values, {key: value for key, value in source.items() if value is not None}


def labelled_edges(edge_label_index, edge_label, splits):
    """Of labelled edges: pairs `[pairs, 2]`, classes and values of each split, and what the graph's source says of them. `splits` are
    positions among the edges or masks; without any all are trained on."""
    if edge_label_index is None or edge_label is None:
        raise ValueError("edge_label_index: give it with edge_label, a label per pair; links without labels are train_edges, valid_edges, "
                         "test_edges")
    pairs = arrays.pairs("edge_label_index", edge_label_index)
    classes, values, source = labels_of_edges(edge_label)
    rows = len(classes if classes is not None else values)
    if rows != len(pairs):
        raise ValueError(f"edge_label: {rows} labels for {len(pairs)} pairs of edge_label_index; give one per pair")
    if all(given is None for given in splits):
        splits = [np.ones(len(pairs), bool), None, None]
    made = []
    for split, given in zip(SPLITS, splits):
        shape = np.shape(given)
        if len(shape) == 2 and shape[0] == 2:
            raise ValueError(f"{split}_edges: pairs, beside edge_label_index; give positions among its pairs, or a mask")
        of_split = arrays.nodes(f"{split}_edges", given, len(pairs))
        if len(of_split) and of_split.max() >= len(pairs):
            raise ValueError(f"{split}_edges: pair {of_split.max()} of {len(pairs)}; give positions among the pairs of edge_label_index")
        part = lambda of: None if of is None or not len(of_split) else np.ascontiguousarray(of[of_split])
        made.append((part(pairs), part(classes), part(values)))
    return made, source


def with_pairs(native, of_splits, negatives=(None, None, None)):
    """The graph with pairs: of each split these, their classes and values, and perhaps the numbers of their edge types."""
    columns = [[of[at] if at < len(of) else None for of in of_splits] for at in range(4)]
    pairs, classes, values, types = columns
    return _morphgl.with_pairs(native, [*pairs, *negatives], types, classes, values)


def with_task(graph, task, numbered=None):
    """Gives a graph the rows of a task, a table per split. `numbered` gives the graph's numbers of ids."""
    if not hasattr(task, "items") or not task:
        raise TypeError('task: give a dict of tables, {"train": {"node": …, "time": …, "y": …}, "valid": …, "test": …}')
    unknown = [name for name in task if name not in SPLITS]
    if unknown:
        raise ValueError(f"task: {unknown[0]!r} is no split; give 'train', 'valid' and 'test', each a table with the columns "
                         f"{', '.join(map(repr, COLUMNS))}")
    columns, counts = {name: [] for name in COLUMNS}, []
    tables = [task.get(split) for split in SPLITS]
    for split, table in zip(SPLITS, tables):
        counts.append(0)
        if table is None:
            continue
        given = list(table.keys())
        unknown = [name for name in given if name not in COLUMNS]
        if unknown:
            raise ValueError(f"task {split}: {unknown[0]!r} is no column of a task; there are {', '.join(map(repr, COLUMNS))}")
        if "node" not in given or "time" not in given or not ("y" in given or "targets" in given):
            raise ValueError(f"task {split}: it has {', '.join(map(repr, given))}; give node, time, and y or targets")
        first = next(table for table in tables if table is not None)
        if set(given) != set(first.keys()):
            raise ValueError(f"task {split}: its columns are not those of the other tables; give all the same")
        columns["node"].append(row_nodes(graph, f"task {split} node", table["node"], numbered))
        times, _ = arrays.to_numpy(f"task {split} time", table["time"])
        if times.dtype.kind not in "iu":
            raise TypeError(f"task {split}: time is {times.dtype}; times are whole numbers, in the unit of those of nodes and edges")
        columns["time"].append(times.astype(np.int64).reshape(-1))
        counts[-1] = len(columns["node"][-1])
        for name in ("time", "y", "targets"):
            if name in given:
                column = columns["time"][-1] if name == "time" else plain(table[name])
                if len(column) != counts[-1]:
                    raise ValueError(f"task {split}: {name} has {len(column)} rows, and node {counts[-1]}; give one per row")
                if name != "time":
                    columns[name].append(column)
    whole = {name: np.concatenate(parts) if parts else None for name, parts in columns.items()}
    classes, class_names, values, target_names, _ = learned(whole["y"], whole["targets"], "task y")
    ends = np.cumsum([0, *counts])
    splits = [np.arange(start, end, dtype=np.uint32) for start, end in zip(ends, ends[1:])]
    graph._native = _morphgl.with_task(graph._native, np.ascontiguousarray(whole["node"]), np.ascontiguousarray(whole["time"]), classes, values,
                                       splits)
    names = {"class_names": class_names, "target_names": target_names}
    graph._source = {**(graph._source or {}), **{key: value for key, value in names.items() if value is not None}}
    return graph


def plain(column):
    """A column as a numpy array, of numbers or text."""
    return arrays.to_numpy("task", column)[0] if hasattr(column, "detach") else np.asarray(column)


def row_nodes(graph, name, nodes, numbered):
    """The nodes of rows as the graph numbers them; `(type, ids)` of a graph with types."""
    node_type = None
    if isinstance(nodes, tuple) and len(nodes) == 2 and isinstance(nodes[0], str):
        node_type, nodes = nodes
    if bool(graph.node_types) != (node_type is not None):
        what = 'a node type, ("customer", ids)' if graph.node_types else "ids alone: the graph has no node types"
        raise ValueError(f"{name}: give {what}")
    if numbered is not None:
        return numbered(name, nodes)
    numbers = arrays.ids(name, nodes)
    if node_type is not None:
        of_type = graph.nodes(node_type)
        if len(numbers) and numbers.max() >= len(of_type):
            raise ValueError(f"{name}: there is no node {numbers.max()} of type {node_type!r}, which has {len(of_type)} nodes")
        numbers = numbers + np.uint32(of_type.start)
    return numbers


def task_of(native):
    """The tables of a task by split, with the columns that :func:`with_task` reads and nodes as the graph numbers them; None without."""
    whole = _morphgl.task_of(native)
    if whole is None:
        return None
    *columns, splits = whole
    columns = {name: np.asarray(column) for name, column in zip(COLUMNS, columns) if column is not None}
    return {split: {name: column[np.asarray(rows)] for name, column in columns.items()} for split, rows in zip(SPLITS, splits)}
