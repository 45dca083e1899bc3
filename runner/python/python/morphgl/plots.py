"""Pictures of plans and runs, drawn as in the report of a run: SVG, which notebooks show."""

import json
import math
import os
from dataclasses import dataclass

from . import _morphgl


@dataclass(repr=False)
class Plot:
    """A picture, which follows the viewer's light or dark setting. Notebooks show it; `svg` is its text."""

    title: str
    svg: str

    def _repr_svg_(self):
        return self.svg

    def save(self, path):
        """Writes the picture to `path`, an SVG file."""
        if os.path.splitext(os.fspath(path))[1].lower() != ".svg":
            raise ValueError(f"path: {os.fspath(path)!r}; pictures are SVG, give a name that ends in .svg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)

    def __repr__(self):
        return f"Plot({self.title!r}, {len(self.svg)} bytes of SVG)"


def of_plan(document, machine=None):
    """The predicted timeline of an epoch."""
    count = sum(share["batches"] for share in document["schedule"]["shares"])
    where = f" for the simulated machine {machine}" if machine else ""
    title = f"{count:,} mini-batches, {document['strategy']}, as predicted{where}"
    return Plot(title, _morphgl.timeline(json.dumps(document), title))


def of_training(training, what):
    """A curve over epochs."""
    if what == "score" and training.score == "loss":
        what = "loss"
    field = lambda name: lambda epoch: epoch.document.get(name)
    charts = {
        "loss": ("Mean loss", "Plain", {"training": field("loss"), "validation": field("valid_loss")}),
        "score": (f"Score: {training.score}", "Plain", {"validation": field("valid_score")}),
        "seconds": ("Seconds of an epoch", "Seconds", {"predicted": field("predicted_seconds"), "measured": field("seconds")}),
    }
    if training.score == "accuracy":
        charts["score"] = ("Accuracy", "Percent", {"training": field("train_accuracy"), "validation": field("valid_accuracy")})
    if what not in charts:
        raise ValueError(f"plot: {what!r}; give one of {', '.join(map(repr, charts))}")
    title, scale, lines = charts[what]
    known = lambda value: value is not None and math.isfinite(value)
    series = [{"name": name, "points": [[epoch.epoch, of(epoch)] for epoch in training.epochs if known(of(epoch))]} for name, of in lines.items()]
    series = [line for line in series if line["points"]]
    if not series:
        raise ValueError(f"plot: no epoch has a {what}")
    chart = {"title": title, "x_name": "epoch", "scale": scale, "from_zero": scale == "Seconds", "series": series}
    return Plot(title, _morphgl.line_chart(json.dumps(chart)))
