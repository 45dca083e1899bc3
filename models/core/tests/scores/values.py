"""Writes values.csv: what scikit-learn's scores of labels and values are of the 1,000 cases of ../scores.rs.

    pip install scikit-learn && python values.py

Of a case: micro F1, macro F1, area under the ROC curve and average precision of labels; mean absolute error, root mean squared
error and R² of values. Means are over the columns in which nodes are known, and for an area have both labels.
"""

import pathlib
import warnings

import numpy as np
import sklearn
from sklearn import metrics

warnings.simplefilter("ignore")


def numbers(seed):
    """The generator of `scores.rs`: 31 bits of a multiplicative congruential generator."""
    state = seed
    while True:
        state = state * 48271 % 2147483647
        yield state


def case(index):
    draw = numbers(index + 1)
    [next(draw) for _ in range(5)]
    nodes, width = next(draw) % 60 + 2, next(draw) % 4 + 1
    outputs = np.array([next(draw) % 13 - 6 for _ in range(nodes * width)], dtype=float).reshape(nodes, width) / 2
    values = np.array([next(draw) % 10 for _ in range(nodes * width)], dtype=float).reshape(nodes, width)
    known = values < 8
    known[0] = True
    return outputs, values % 8 / 2, known


def mean(values):
    return float(np.mean(values)) if values else float("nan")


def scores(outputs, values, known):
    columns = [(outputs[known[:, c], c], values[known[:, c], c]) for c in range(outputs.shape[1])]
    labels = [(x, y >= 2) for x, y in columns]
    # In float64 the sigmoid of these logits keeps their order and their ties.
    flat_x, flat_y = np.concatenate([x for x, _ in labels]), np.concatenate([y for _, y in labels])
    return [
        metrics.f1_score(flat_y, flat_x > 0, zero_division=0),
        mean([metrics.f1_score(y, x > 0, zero_division=0) for x, y in labels]),
        mean([metrics.roc_auc_score(y, x) for x, y in labels if 0 < y.sum() < len(y)]),
        mean([metrics.average_precision_score(y, x) for x, y in labels if y.any()]),
        mean([metrics.mean_absolute_error(y, x) for x, y in columns]),
        mean([metrics.root_mean_squared_error(y, x) for x, y in columns]),
        # Of a single value scikit-learn has none; ours is that of a constant column.
        mean([metrics.r2_score(y, x) if len(y) > 1 else float((x == y).all()) for x, y in columns]),
    ]


rows = [",".join(f"{value:.10g}" for value in scores(*case(index))) for index in range(1000)]
header = f"# scikit-learn {sklearn.__version__}"
(pathlib.Path(__file__).parent / "values.csv").write_text("\n".join([header, *rows]) + "\n")
