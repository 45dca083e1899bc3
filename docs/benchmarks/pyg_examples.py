#!/usr/bin/env python3
"""Examples of PyG and RelBench as they are, once with PyG's loader and once with morphgl's by a changed import, on stand-in data.

    pyg_examples.py EXAMPLE.py [--seeds 5] [--epochs N] [-- ARGUMENT…]

EXAMPLE.py is a file of a checkout of PyG (`examples/reddit.py`, `examples/graph_sage_unsup.py`, `examples/ogbn_train.py`,
`examples/hetero/to_hetero_mag.py`) or of RelBench (`examples/gnn_entity.py`); it is read, and not changed. Its arguments follow `--`.
In what is run, names that morphgl has are imported from morphgl in place of torch_geometric.loader, and workers are left out (`num_workers` is 0).
The data sets that it names are replaced by generated ones of the same form, since those are downloaded: accuracies are to be compared with each
other, and with nothing else.

PyG's own loader samples by pyg-lib or torch-sparse. Where neither is installed, `pyg-lib-shim` stands in, in numpy; it knows neither weights nor
times of edges. Printed is a line per loader: the last score that the example prints, as mean, standard deviation and range over the seeds, and
whether the difference of the means is within two standard errors.
"""

import argparse
import importlib.util
import io
import json
import math
import os
import re
import statistics
import subprocess
import sys
import types
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Scores that examples print, the one that is compared first.
SCORES = [("test ROC-AUC", r"Best test metrics:.*?'roc_auc': (?:np\.float64\()?([\d.]+)"), ("test accuracy, %", r"Test Accuracy:\s*([\d.]+)%"),
          ("test accuracy", r"Test:\s*([\d.]+)"), ("validation accuracy", r"Val:\s*([\d.]+)")]


# ---------------------------------------------------------------- the runs of a loader
def run_all(options):
    """Runs the example by one loader, seed after seed, and prints its scores as JSON."""
    if options.run == "pyg":
        stand_in_for_pyg_lib()
    import torch
    import torch_geometric

    seed_everything = torch_geometric.seed_everything
    # Examples set a seed of their own.
    torch_geometric.seed_everything = torch_geometric.seed.seed_everything = lambda _: None
    replace_datasets()
    path = Path(options.example).resolve()
    source = changed(path.read_text(encoding="utf-8"), options.run, options.epochs)
    sys.argv = [str(path), *options.arguments]
    sys.path.insert(0, str(path.parent))
    scores = []
    for seed in range(options.seeds):
        seed_everything(seed)
        if options.run == "morphgl":
            seed_loaders(seed)
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(io.StringIO()):
            exec(compile(source, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
        found = [(name, re.findall(pattern, printed.getvalue())) for name, pattern in SCORES]
        name, last = next(((name, float(of[-1])) for name, of in found if of), (None, None))
        if name is None:
            sys.exit(f"{path}: it prints no score that is known here")
        scores.append(last)
    print(json.dumps({"name": name, "scores": scores, "torch": torch.__version__, "pyg": torch_geometric.__version__}))


def seed_loaders(seed):
    """morphgl's loaders draw by their argument `seed`, 0 by default, where PyG's draw by torch's generator."""
    import morphgl

    for loader in (morphgl.NeighborLoader, morphgl.LinkNeighborLoader):
        made = vars(loader).get("unseeded") or loader.__init__
        loader.unseeded = made
        loader.__init__ = lambda self, *given, made=made, **options: made(self, *given, **{"seed": seed, **options})


def changed(source, loader, epochs):
    """The source with the loaders of `loader`, without worker processes, and with so many epochs."""
    if loader == "morphgl":
        import morphgl

        def imports(match):
            names = [name.strip() for name in match[1].strip("()").split(",") if name.strip()]
            ours = [name for name in names if hasattr(morphgl, name)]
            lines = [f"from {module} import {', '.join(of)}" for module, of in
                     (("morphgl", ours), ("torch_geometric.loader", [name for name in names if name not in ours])) if of]
            return "; ".join(lines)

        source, count = re.subn(r"^from torch_geometric\.loader import (\([^)]*\)|.*)$", imports, source, flags=re.M)
        if not count:
            sys.exit("the example imports nothing from torch_geometric.loader")
    source = re.sub(r"(num_workers['\"]?\s*[:=]\s*)\d+", r"\g<1>0", source)
    source = re.sub(r"(persistent_workers['\"]?\s*[:=]\s*)True", r"\g<1>False", source)
    if epochs is not None:
        source = re.sub(r"^for epoch in range\(1, \d+\):", f"for epoch in range(1, {epochs + 1}):", source, flags=re.M)
    return source


def stand_in_for_pyg_lib():
    """Makes PyG's loader sample by numpy where what it samples by is not installed."""
    if any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse")):
        return
    sys.path.insert(0, str(HERE / "pyg-lib-shim"))
    import numpy as np
    import pyg_lib
    import torch
    from pyg_lib_typed import hetero_neighbor_sample

    # Random as torch is seeded, for the other half, too.
    random = np.random.Generator(np.random.PCG64(torch.initial_seed() % 2**63))
    torch.ops.pyg.hetero_neighbor_sample = lambda *arguments: hetero_neighbor_sample(*arguments, random)
    # Of no graph: PyG looks at the module alone.
    pyg_lib.sampler.hetero_neighbor_sample = hetero_neighbor_sample


# ---------------------------------------------------------------- stand-in data
def replace_datasets():
    """Puts generated data in the place of the data sets that examples download."""
    import torch_geometric.datasets as datasets

    datasets.Reddit = lambda *_, **given: StandIn(untyped(8000, 8, 48, 12, 0.5, 2.5), **given)
    datasets.Planetoid = lambda *_, **given: StandIn(untyped(2500, 7, 64, 2, 0.8, 2.0, per_class=20), **given)
    datasets.OGB_MAG = lambda *_, **given: StandIn(papers(), **given)
    ogb = module("ogb.nodeproppred", PygNodePropPredDataset=lambda *_, **__: OfOgb(untyped(8000, 8, 48, 12, 0.5, 2.5)))
    sys.modules.update({"ogb": module("ogb", nodeproppred=ogb), "ogb.nodeproppred": ogb})
    try:
        import relbench.datasets
        import relbench.tasks
    except ImportError:
        return
    shop, task = shop_of_relbench()
    relbench.datasets.get_dataset = lambda *_, **__: shop
    relbench.tasks.get_task = lambda *_, **__: task
    # The tables have no text, so its embedder, which is downloaded, is never called.
    sys.modules["text_embedder"] = module("text_embedder", GloveTextEmbedding=lambda **_: None)


def module(name, **members):
    made = types.ModuleType(name)
    vars(made).update(members)
    return made


class StandIn:
    """A data set of PyG's with one graph."""

    def __init__(self, data, transform=None, **_):
        self.data = data if transform is None else transform(data)
        of = data["paper"] if hasattr(data, "node_types") else data
        self.num_features, self.num_classes = of.x.shape[1], int(of.y.max()) + 1
        self.num_node_features = self.num_features

    def __getitem__(self, _):
        return self.data


class OfOgb(StandIn):
    """OGB's form of it: labels in a column, splits by ids."""

    def __getitem__(self, _):
        self.data.y = self.data.y.view(-1, 1)
        return self.data

    def get_idx_split(self):
        masks = {"train": self.data.train_mask, "valid": self.data.val_mask, "test": self.data.test_mask}
        return {name: mask.nonzero().view(-1) for name, mask in masks.items()}


def untyped(nodes, classes, features, degree, homophily, noise, per_class=None):
    """A stochastic block model with features that tell the class through noise; the splits are 60%, 20% and 20%, or so many training nodes
    per class."""
    import numpy as np
    import torch
    from torch_geometric.data import Data

    rng = np.random.default_rng(7)
    y = rng.integers(0, classes, nodes)
    of_class = [np.flatnonzero(y == c) for c in range(classes)]
    source = np.repeat(np.arange(nodes), degree)
    same = np.concatenate([rng.choice(of_class[c], degree) for c in y])
    target = np.where(rng.random(len(source)) < homophily, same, rng.integers(0, nodes, len(source)))
    edges = np.unique(np.concatenate([[source, target], [target, source]], 1), axis=1)
    edges = edges[:, edges[0] != edges[1]]
    x = np.abs(rng.normal(0, noise, (nodes, features)) + 3 * np.eye(classes, features)[y]).astype(np.float32)
    masks = {name: np.zeros(nodes, bool) for name in ("train_mask", "val_mask", "test_mask")}
    order = rng.permutation(nodes)
    if per_class is None:
        parts = np.split(order, [nodes * 6 // 10, nodes * 8 // 10])
    else:
        train = np.concatenate([order[y[order] == c][:per_class] for c in range(classes)])
        parts = [train, *np.split(np.setdiff1d(order, train), [500])]
    for mask, part in zip(masks.values(), parts):
        mask[part] = True
    tensor = torch.from_numpy
    return Data(x=tensor(x), edge_index=tensor(edges), y=tensor(y), **{name: tensor(mask) for name, mask in masks.items()})


def papers():
    """Papers, authors, institutions and fields of study, as ogbn-mag: the class of a paper is told by its features, authors and fields."""
    import numpy as np
    import torch
    from torch_geometric.data import HeteroData

    rng = np.random.default_rng(7)
    counts, classes = {"paper": 5000, "author": 3000, "institution": 100, "field_of_study": 200}, 8
    kind = {name: rng.integers(0, classes, count) for name, count in counts.items()}
    data = HeteroData()
    for name, of in kind.items():
        x = rng.normal(0, 4, (len(of), 32)) + (2 * np.eye(classes, 32)[of] if name in ("paper", "author") else 0)
        data[name].x = torch.from_numpy(x.astype(np.float32))
    data["paper"].y = torch.from_numpy(kind["paper"])
    order = rng.permutation(counts["paper"])
    for name, part in zip(("train_mask", "val_mask", "test_mask"), np.split(order, [3000, 4000])):
        data["paper"][name] = torch.zeros(counts["paper"], dtype=torch.bool)
        data["paper"][name][torch.from_numpy(part)] = True
    for source, name, target, degree in (("author", "writes", "paper", 3), ("paper", "cites", "paper", 4),
                                         ("paper", "has_topic", "field_of_study", 3), ("author", "affiliated_with", "institution", 1)):
        # Ends of the same class, as often as not.
        of_class = [np.flatnonzero(kind[source] == c) for c in range(classes)]
        ends = np.repeat(np.arange(counts[target]), max(1, degree * counts[source if name != "writes" else target] // counts[target]))
        same = np.array([rng.choice(of_class[kind[target][end]]) for end in ends])
        sources = np.where(rng.random(len(ends)) < 0.5, same, rng.integers(0, counts[source], len(ends)))
        data[source, name, target].edge_index = torch.from_numpy(np.stack([sources, ends]))
    return data


def shop_of_relbench():
    """A database of customers and their orders, and the task of RelBench's form: who orders nothing in the next 30 days."""
    import numpy as np
    import pandas as pd
    from relbench.base import Database, Dataset, EntityTask, Table, TaskType
    from relbench.metrics import average_precision, roc_auc

    day = pd.Timedelta(days=1)

    class Shop(Dataset):
        val_timestamp, test_timestamp = pd.Timestamp("2020-10-01"), pd.Timestamp("2020-11-01")

        def make_db(self):
            rng = np.random.default_rng(7)
            count, days = 1500, 365
            # Orders per day fall or stay, customer by customer.
            rate, leaves = rng.gamma(1.0, 0.04, count), rng.integers(60, 700, count)
            rows = [(customer, at, rng.normal(10 + 40 * (leaves[customer] < at + 60), 10)) for customer in range(count)
                    for at in np.flatnonzero(rng.random(days) < rate[customer]) if at < leaves[customer]]
            orders = pd.DataFrame(rows, columns=["customer", "day", "amount"]).sort_values("day", kind="stable").reset_index(drop=True)
            orders["time"] = pd.Timestamp("2020-01-01") + orders.pop("day") * day
            orders.insert(0, "order", np.arange(len(orders)))
            customers = pd.DataFrame({"id": np.arange(count), "age": rng.normal(40, 12, count)})
            return Database({"customers": Table(customers, {}, "id"),
                             "orders": Table(orders, {"customer": "customers"}, "order", "time")})

    class Churn(EntityTask):
        task_type, entity_col, entity_table, time_col, target_col = TaskType.BINARY_CLASSIFICATION, "id", "customers", "time", "churn"
        timedelta, metrics = 30 * day, [average_precision, roc_auc]

        def make_table(self, db, timestamps):
            orders = db.table_dict["orders"].df
            parts = []
            for at in timestamps:
                # Those who have ordered within the last 90 days.
                active = orders[(orders.time <= at) & (orders.time > at - 90 * day)].customer.unique()
                again = orders[(orders.time > at) & (orders.time <= at + self.timedelta)].customer.unique()
                parts.append(pd.DataFrame({"time": at, "id": active, "churn": (~np.isin(active, again)).astype(int)}))
            return Table(pd.concat(parts, ignore_index=True), {"id": "customers"}, time_col="time")

    shop = Shop()
    return shop, Churn(shop)


# ---------------------------------------------------------------- all runs
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("example")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--loader", choices=("pyg", "morphgl"), help="one of the two alone")
    parser.add_argument("--run", choices=("pyg", "morphgl"), help=argparse.SUPPRESS)
    own, arguments = (sys.argv[1:], [])
    if "--" in own:
        at = own.index("--")
        own, arguments = own[:at], own[at + 1:]
    options = parser.parse_args(own)
    options.arguments = arguments
    if options.run is not None:
        return run_all(options)
    results = {}
    for loader in [options.loader] if options.loader else ("pyg", "morphgl"):
        command = [sys.executable, __file__, *own, "--run", loader, "--", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        if done.returncode:
            sys.exit(f"{options.example} with {loader}'s loader:\n{done.stderr}")
        made = results[loader] = json.loads(done.stdout.splitlines()[-1])
        values = made["scores"]
        spread = statistics.stdev(values) if len(values) > 1 else math.nan
        print(f"{Path(options.example).name}\t{loader}\t{made['name']}\t{statistics.mean(values):.4f} ± {spread:.4f}\t"
              f"{min(values):.4f} to {max(values):.4f}\t{len(values)} seeds\ttorch {made['torch']}, PyG {made['pyg']}", flush=True)
    if len(results) == 2 and options.seeds > 1:
        ours, theirs = results["morphgl"]["scores"], results["pyg"]["scores"]
        error = math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / options.seeds)
        apart = statistics.mean(ours) - statistics.mean(theirs)
        print(f"difference of the means {apart:+.4f}, standard error {error:.4f}: {'within' if abs(apart) <= 2 * error else 'beyond'} two of them")


if __name__ == "__main__":
    main()
