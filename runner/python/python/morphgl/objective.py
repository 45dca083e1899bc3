"""Losses of torch modules: by the names that those of MorphGL's own models have, or functions of the caller's."""

import torch
from torch.nn import functional

# Losses of each value, by its output and target.
OF_VALUES = {
    "bce": lambda x, y, s: functional.binary_cross_entropy_with_logits(x, y, reduction="none", pos_weight=x.new_tensor(s["positive_weight"])),
    "mse": lambda x, y, s: functional.mse_loss(x, y, reduction="none"),
    "mae": lambda x, y, s: functional.l1_loss(x, y, reduction="none"),
    "huber": lambda x, y, s: functional.huber_loss(x, y, reduction="none", delta=s["delta"]),
}
# Losses of a positive that scores higher than a negative by `ahead`.
RANKINGS = {
    "bpr": lambda ahead, s: functional.softplus(-ahead),
    "margin": lambda ahead, s: functional.relu(s["margin"] - ahead),
}


class Objective:
    """The loss of a task, by name with its settings; or `function(outputs, targets)`, which gives the mean over rows as a tensor of one
    number.

    Each method gives the sum of the loss over rows, how many are right, and their number: of seeds with a known target, of pairs, or
    of positives where each is ranked before its negatives."""

    def __init__(self, task, loss, settings, function=None):
        self.task, self.loss, self.settings, self.function = task, loss, settings, function

    def classes(self, logits, y):
        """Of logits `[nodes, classes]` and classes, -1 for none."""
        known = y >= 0
        logits, y = logits[known], y[known]
        if len(y) and y.max() >= logits.shape[1]:
            raise ValueError(f"model: its output has {logits.shape[1]} columns, a seed is of class {int(y.max())}; widen the last layer")
        correct = int((logits.argmax(1) == y).sum())
        if self.function is not None:
            return self.sum(logits, y, len(y)), correct, len(y)
        weights = self.settings["class_weights"]
        weights = [float(weight) for weight in weights.split(",")] if weights else None
        if weights is not None and len(weights) != logits.shape[1]:
            raise ValueError(f"model: its output has {logits.shape[1]} columns for {len(weights)} class weights; give the last layer as many")
        logits = logits.float()
        loss = functional.cross_entropy(logits, y, None if weights is None else logits.new_tensor(weights), reduction="sum",
                                        label_smoothing=self.settings["label_smoothing"])
        return loss, correct, len(y)

    def values(self, outputs, targets):
        """Of outputs and targets `[nodes, K]`, NaN where unknown: the mean over the known ones of a node."""
        known = ~targets.isnan()
        rows = known.any(1)
        outputs, targets, known = outputs[rows].float(), targets[rows], known[rows]
        right = ((outputs > 0) == (targets > 0.5)) | ~known
        correct = int(right.all(1).sum()) if self.task == "multilabel" else 0
        if self.function is not None:
            return self.sum(outputs, targets, len(outputs)), correct, len(outputs)
        each = OF_VALUES[self.loss](outputs, targets.nan_to_num(), self.settings)
        each = torch.where(known, each, torch.zeros_like(each))
        return (each.sum(1) / known.sum(1)).sum(), correct, len(outputs)

    def pairs(self, scores, num_positives):
        """Of scores of pairs, the positives first; the negatives of each follow one another."""
        scores = scores.float()
        exists = torch.arange(len(scores), device=scores.device) < num_positives
        if self.loss in RANKINGS and self.function is None:
            count = (len(scores) - num_positives) // max(num_positives, 1)
            negatives = scores[num_positives:num_positives * (1 + count)].view(num_positives, count)
            ahead = scores[:num_positives, None] - negatives
            loss = RANKINGS[self.loss](ahead, self.settings).sum() / max(count, 1)
            return loss, int((ahead > 0).all(1).sum()), num_positives
        correct = int(((scores > 0) == exists).sum())
        labels = exists.to(scores.dtype)
        if self.function is not None:
            return self.sum(scores, labels, len(scores)), correct, len(scores)
        return OF_VALUES["bce"](scores, labels, self.settings).sum(), correct, len(scores)

    def sum(self, outputs, targets, count):
        """The function's mean times the number of rows."""
        if not count:
            return outputs.sum() * 0
        mean = self.function(outputs, targets)
        if not isinstance(mean, torch.Tensor) or mean.numel() != 1:
            what = f"a tensor of shape {list(mean.shape)}" if isinstance(mean, torch.Tensor) else type(mean).__name__
            raise ValueError(f"loss: it gave {what}; give a tensor of one number, the mean over the rows")
        return mean.reshape(()) * count
