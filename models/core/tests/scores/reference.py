"""Writes reference.csv: what scikit-learn's scores are of the 1,000 cases of ../scores.rs.

    pip install scikit-learn && python reference.py

Of a case: accuracy, balanced accuracy, macro F1, area under the ROC curve, average precision.
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
    nodes, classes = next(draw) % 60 + 2, next(draw) % 5 + 2
    # With two classes a few values, so that many probabilities are equal; with more, none is.
    value = (lambda: next(draw) % 7 - 3) if classes == 2 else (lambda: (next(draw) % 2**20 - 2**19) / 2**17)
    logits = np.array([[value() for _ in range(classes)] for _ in range(nodes)], dtype=np.float32).astype(float)
    labels = np.array([next(draw) % (classes + 1) - 1 for _ in range(nodes)])
    labels[0] = 0
    return logits[labels >= 0], labels[labels >= 0]


def scores(logits, labels):
    classes = logits.shape[1]
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = exp / exp.sum(axis=1, keepdims=True)
    predicted = logits.argmax(axis=1)
    of_two = range(1, 2) if classes == 2 else range(classes)
    ones = [c for c in of_two if (labels == c).any()]
    both = [c for c in ones if (labels != c).any()]
    mean = lambda values: float(np.mean(values)) if values else float("nan")
    return [
        metrics.accuracy_score(labels, predicted),
        metrics.balanced_accuracy_score(labels, predicted),
        metrics.f1_score(labels, predicted, average="macro"),
        mean([metrics.roc_auc_score(labels == c, p[:, c]) for c in both]),
        mean([metrics.average_precision_score(labels == c, p[:, c]) for c in ones]),
    ]


rows = [",".join(f"{value:.10g}" for value in scores(*case(index))) for index in range(1000)]
header = f"# scikit-learn {sklearn.__version__}"
(pathlib.Path(__file__).parent / "reference.csv").write_text("\n".join([header, *rows]) + "\n")
