#!/usr/bin/env python3
"""Writes the directories of this folder: invented graphs in the layout of the Open Graph Benchmark's sets of links. `torch.save` wrote
the splits of `collab`, as torch 1.6 and later do; those of `citation2` have the form before. Needs numpy and torch.

    python3 graph-store/formats/tests/data/ogbl/make.py
"""
import gzip, pathlib, shutil

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent
TABLES = {
    # Edges to train on alone; as ogbl-collab has one of several years more than once, with a weight each.
    "collab": {
        "edge": [(0, 1), (1, 2), (2, 3), (0, 1), (3, 4), (4, 5)],
        "edge_weight": [2, 1, 1, 3, 1, 5],
        "edge_year": [2010, 2011, 2012, 2017, 2016, 2010],
        "node-feat": [(0.5, 1), (0.25, 2), (-1, 3), (2, 4), (3, 5), (1.5, 6)],
        "num-node-list": [6],
        "num-edge-list": [6],
    },
    "citation2": {
        "edge": [(0, 1), (2, 1), (3, 0), (4, 3)],
        "node-feat": [(1, 0), (0, 1), (1, 1), (0.5, 0), (0, 0.5)],
        "node_year": [2001, 2002, 2003, 2004, 2005],
        "num-node-list": [5],
        "num-edge-list": [4],
    },
}
pairs = lambda *ends: np.array(ends, np.int64)
SPLITS = {
    "collab": {
        "train": {"edge": pairs(*TABLES["collab"]["edge"]), "weight": pairs(2, 1, 1, 3, 1, 5),
                  "year": pairs(2010, 2011, 2012, 2017, 2016, 2010)},
        "valid": {"edge": pairs((0, 2), (5, 3)), "weight": pairs(1, 4), "year": pairs(2018, 2018),
                  "edge_neg": pairs((5, 0), (4, 0), (1, 5))},
        "test": {"edge": pairs((1, 3)), "weight": pairs(1), "year": pairs(2019), "edge_neg": pairs((2, 5), (5, 1))},
    },
    "citation2": {
        "train": {"source_node": pairs(0, 2, 3, 4), "target_node": pairs(1, 1, 0, 3)},
        "valid": {"source_node": pairs(2, 4), "target_node": pairs(0, 1), "target_node_neg": pairs((3, 4, 2), (0, 2, 4))},
        "test": {"source_node": pairs(3), "target_node": pairs(2), "target_node_neg": pairs((1, 4, 3))},
    },
}


def table(rows):
    lines = (",".join(map(str, row)) if isinstance(row, tuple) else str(row) for row in rows)
    return gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0)


for name, tables in TABLES.items():
    shutil.rmtree(HERE / name, ignore_errors=True)
    split = HERE / name / "split" / "time"
    split.mkdir(parents=True)
    (HERE / name / "raw").mkdir()
    for file, rows in tables.items():
        (HERE / name / "raw" / f"{file}.csv.gz").write_bytes(table(rows))
    for part, arrays in SPLITS[name].items():
        torch.save(arrays, split / f"{part}.pt", _use_new_zipfile_serialization=name != "citation2")
