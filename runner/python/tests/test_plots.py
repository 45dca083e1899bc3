"""Pictures of plans and runs: well-formed SVG with a point per epoch, or a block per mini-batch."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

import morphgl

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=400)
    x = np.eye(4, dtype=np.float32)[y] + rng.normal(size=(400, 4)).astype(np.float32)
    masks = {name: np.arange(400) % 4 == part for name, part in (("train", 0), ("valid", 1), ("test", 2))}
    return morphgl.Graph.from_numpy(rng.integers(400, size=(2, 3000)), x, y, **masks)


def drawn(plot):
    """The parsed picture."""
    assert plot._repr_svg_() == plot.svg and repr(plot).startswith("Plot('")
    return ElementTree.fromstring(plot.svg)


OPTIONS = {"hidden": 8, "num_neighbors": [3, 3], "layers": 2, "batch_size": 25, "threads": 2}


def test_curves_have_a_point_per_epoch(graph, tmp_path):
    done = morphgl.train(graph, "sage", epochs=5, **OPTIONS)
    for what, lines in (("loss", 2), ("score", 2), ("seconds", 2)):
        plot = done.plot(what)
        picture = drawn(plot)
        points = [circle for circle in picture.iter(f"{SVG}circle") if "point" in circle.get("class")]
        assert len(points) == lines * 5, what
        assert picture.get("aria-label") == plot.title
    assert done.plot().title == "Mean loss" and done.plot("score").title == "Accuracy"
    # Higher losses are drawn higher.
    first = [float(circle.get("cy")) for circle in drawn(done.plot()).iter(f"{SVG}circle")][:5]
    assert np.argsort(first).tolist() == np.argsort([-epoch.loss for epoch in done.epochs]).tolist()
    done.plot("loss").save(tmp_path / "loss.svg")
    assert (tmp_path / "loss.svg").read_text(encoding="utf-8") == done.plot("loss").svg
    with pytest.raises(ValueError, match="plot: 'gain'; give one of 'loss', 'score', 'seconds'"):
        done.plot("gain")
    with pytest.raises(ValueError, match="loss.png'; pictures are SVG"):
        done.plot().save(tmp_path / "loss.png")


def test_scores_by_name_are_those_of_validation(graph):
    done = morphgl.train(graph, "sage", epochs=3, score="macro-f1", **OPTIONS)
    plot = done.plot("score")
    assert plot.title == "Score: macro-f1" and len(list(drawn(plot).iter(f"{SVG}circle"))) == 3
    by_loss = morphgl.train(graph, "sage", epochs=3, score="loss", **OPTIONS)
    assert by_loss.plot("score").title == "Mean loss"


def test_plans_are_drawn_as_predicted(graph, tmp_path):
    planned = morphgl.plan(graph, "sage", timeline=tmp_path / "plan.svg", **OPTIONS)
    for plot in (planned.plot(), planned.plan.plot()):
        assert drawn(plot) is not None and plot.title == f"4 mini-batches, {planned.plan.strategy}, as predicted"
        assert plot.svg == (tmp_path / "plan.svg").read_text(encoding="utf-8"), "the command's picture"
    described = morphgl.plan(graph, "sage", machine="laptop", **{name: value for name, value in OPTIONS.items() if name != "threads"})
    plot = described.plot()
    assert plot.title.endswith(" for the simulated machine laptop") and re.search("simulated", plot.svg)
