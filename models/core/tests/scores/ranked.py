"""Writes ranked.csv: what OGB's evaluator and scikit-learn make of the 1,000 cases of ../ranked.rs.

    pip install pandas scikit-learn && pip install --no-deps ogb && python ranked.py

Of a case: MRR, Hits@1, Hits@3 and Hits@10 of negatives per pair; Hits@1, Hits@5 and Hits@20 of shared negatives; area under the ROC curve and
average precision of all pairs. OGB's own methods compute the first seven, on a stand-in for torch's tensors.
"""

import importlib.metadata
import importlib.util
import pathlib
import types

import numpy as np
import sklearn
from sklearn import metrics

source = importlib.util.find_spec("ogb").submodule_search_locations[0]
spec = importlib.util.spec_from_file_location("evaluate", pathlib.Path(source) / "linkproppred/evaluate.py")
evaluate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(evaluate)


class Tensor:
    """What `Evaluator._eval_mrr` does with tensors."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def view(self, *shape):
        return Tensor(self.values.reshape(shape))

    def sum(self, dim):
        return Tensor(self.values.sum(axis=dim))

    def to(self, dtype):
        return Tensor(self.values.astype(dtype))

    def mean(self):
        return self.values.mean()


for name in ["__gt__", "__ge__", "__le__", "__add__", "__rmul__", "__rtruediv__"]:
    def operate(self, other, name=name):
        return Tensor(getattr(self.values, name)(getattr(other, "values", other)))
    setattr(Tensor, name, operate)
evaluate.torch = types.SimpleNamespace(float=np.float64)


def numbers(seed):
    """The generator of `scores.rs`: 31 bits of a multiplicative congruential generator."""
    state = seed
    while True:
        state = state * 48271 % 2147483647
        yield state


def case(index):
    draw = numbers(index + 1)
    [next(draw) for _ in range(5)]
    pairs, own, shared = next(draw) % 20 + 1, next(draw) % 30 + 1, next(draw) % 40 + 1
    # In even cases a few values, so that many scores are equal.
    value = (lambda: next(draw) % 7 - 3) if index % 2 == 0 else (lambda: (next(draw) % 2**20 - 2**19) / 2**17)
    return [np.array([value() for _ in range(count)], dtype=float) for count in (pairs, pairs * own, shared)]


def hits(k, positives, negatives):
    evaluator = types.SimpleNamespace(K=k)
    return evaluate.Evaluator._eval_hits(evaluator, positives, negatives, "numpy")[f"hits@{k}"]


def scores(positives, own, shared):
    lists = evaluate.Evaluator._eval_mrr(None, Tensor(positives), Tensor(own.reshape(len(positives), -1)), "torch")
    exists = np.r_[np.ones(len(positives)), np.zeros(len(shared))]
    every = np.r_[positives, shared]
    return [
        *(lists[name].mean() for name in ["mrr_list", "hits@1_list", "hits@3_list", "hits@10_list"]),
        *(hits(k, positives, shared) for k in (1, 5, 20)),
        metrics.roc_auc_score(exists, every),
        metrics.average_precision_score(exists, every),
    ]


rows = [",".join(f"{value:.10g}" for value in scores(*case(index))) for index in range(1000)]
header = f"# ogb {importlib.metadata.version('ogb')}, scikit-learn {sklearn.__version__}"
(pathlib.Path(__file__).parent / "ranked.csv").write_text("\n".join([header, *rows]) + "\n")
