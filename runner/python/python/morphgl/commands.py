"""The commands of `morphgl` as functions: they take the command line's options by name, and return its JSON as dataclasses."""

import dataclasses
import json
import os
import re
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Union

import numpy as np

from . import _morphgl
from .brief import Brief
from .graph import Graph
from .models import Model
from .plots import Plot, of_plan, of_training

if TYPE_CHECKING:
    from .trained import TrainedModule


def of(cls, document):
    """The dataclass `cls` with the fields that it names, and all of `document`."""
    names = [f.name for f in dataclasses.fields(cls) if f.name != "document" and f.name in document]
    return cls(**{name: document[name] for name in names}, document=document)


@dataclass(repr=False)
class Operator(Brief):
    """An operator, and whether it can run here."""

    key: str
    phase: str
    summary: str
    reads: str
    writes: str
    available: bool
    reason: Optional[str]
    document: Dict[str, Any]


@dataclass(repr=False)
class Route(Brief):
    """A chain of operators, by their keys, and the place where it trains."""

    batching: str
    transferring: str
    training: str
    trained_at: str
    document: Dict[str, Any]


@dataclass(repr=False)
class Ops(Brief):
    """What can run on this machine. `isa` is the SIMD level in force."""

    machine: Dict[str, Any]
    isa: str
    operators: List[Operator]
    routes: List[Route]
    document: Dict[str, Any]


@dataclass(repr=False)
class Profile(Brief):
    """What was measured: seconds of every phase on every route, in `routes`."""

    machine: Dict[str, Any]
    num_batches: int
    routes: List[Dict[str, Any]]
    seconds: float
    document: Dict[str, Any]


@dataclass(repr=False)
class Plan(Brief):
    """A plan and its prediction: seconds per epoch, and the bound that no schedule is faster than."""

    strategy: str
    epoch_seconds: float
    bound_seconds: float
    bottleneck: Optional[Dict[str, Any]]
    schedule: Dict[str, Any]
    document: Dict[str, Any]

    def plot(self) -> Plot:
        """The predicted timeline of an epoch, which notebooks show."""
        return of_plan(self.document)


@dataclass(repr=False)
class Planned(Brief):
    """The chosen plan, and the best of every strategy and route, the best first."""

    plan: Plan
    plans: List[Any]
    document: Dict[str, Any]

    def plot(self) -> Plot:
        """The predicted timeline of an epoch by the chosen plan, which notebooks show."""
        machine = self.document.get("machine")
        return of_plan(self.plan.document, machine and machine["name"])


@dataclass(repr=False)
class Epoch(Brief):
    """An epoch that was trained. Accuracies are shares from 0 to 1. `valid_score` is the score that the best model is chosen by, where it
    was evaluated and is another than accuracy or loss."""

    epoch: int
    seconds: float
    evaluation_seconds: float
    loss: float
    train_accuracy: float
    valid_loss: Optional[float]
    valid_accuracy: Optional[float]
    predicted_seconds: float
    replanned: int
    report: Dict[str, Any]
    document: Dict[str, Any]
    valid_score: Optional[float] = None


@dataclass(repr=False)
class Training(Brief):
    """A training run. `model` has the parameters of MorphGL's own models; of a torch module, which has its own itself, it is a
    :class:`TrainedModule`. Either is evaluated and predicts."""

    score: str
    test_score: Optional[float]
    best_valid_score: Optional[float]
    test_accuracy: Optional[float]
    test_loss: Optional[float]
    best_valid_accuracy: Optional[float]
    best_epoch: Optional[int]
    epochs: List[Epoch]
    predicted_epoch_seconds: float
    measured_epoch_seconds: Optional[float]
    counters: Dict[str, Any]
    plan: Plan
    ended: str
    document: Dict[str, Any]
    model: Union[Model, "TrainedModule", None] = None

    def plot(self, what: str = "loss") -> Plot:
        """A curve over epochs, which notebooks show: "loss", "score" (what the best model is chosen by), or "seconds", predicted and
        measured."""
        return of_training(self, what)


@dataclass(repr=False)
class Score(Brief):
    """Accuracy (0 to 1) and mean loss of the nodes with a label, and the scores that `score=` names; None where there are none."""

    nodes: int
    accuracy: Optional[float]
    loss: Optional[float]
    scores: Dict[str, Optional[float]]
    document: Dict[str, Any]


@dataclass(repr=False)
class Predictions(Brief):
    """Classes and their probabilities, arrays in the order of `nodes`, whose ids are those of the graph's source; names of the classes
    by their numbers, where the model has them. Of a model of labels or values `classes` and `probabilities` are None, and `outputs`
    `[nodes, columns]` has the probability of each label, or the values; of classes with `probabilities=True` that of each class.
    Rows of a task have `times` beside their `nodes`; edges have `pairs` `[edges, 2]` in place of `nodes`."""

    nodes: Optional[np.ndarray]
    classes: Optional[np.ndarray]
    probabilities: Optional[np.ndarray]
    class_names: Optional[List[str]] = None
    outputs: Optional[np.ndarray] = None
    columns: Optional[List[str]] = None
    times: Optional[np.ndarray] = None
    pairs: Optional[np.ndarray] = None


def plan_of(document):
    prediction = document["prediction"]
    return of(Plan, {**document, **prediction})


def arguments(options):
    """Options as words of the command line."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if name == "num_neighbors":
            option = "--fanouts"
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, dict):
            words += [f"{option}={key}={word(entry)}" for key, entry in value.items()]
        elif option == "--fanouts" and not isinstance(value, str):
            words.append(f"{option}={','.join(str(int(n)) for n in value)}")
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={entry}" for entry in value]
        else:
            words.append(f"{option}={value if isinstance(value, (int, float, str)) else os.fspath(value)}")
    return words


def word(entry):
    """A setting as the command line has it; of several numbers, such as class weights, all."""
    if hasattr(entry, "tolist"):
        entry = entry.tolist()
    if isinstance(entry, (list, tuple)):
        return ",".join(str(number) for number in entry)
    return json.dumps(entry) if isinstance(entry, bool) else entry


def source(graph, command, options):
    """The graph in memory, and the word that names its directory."""
    if graph is None:
        return None, []
    if isinstance(graph, (str, os.PathLike)):
        return None, [os.fspath(graph)]
    if not isinstance(graph, Graph):
        graph = Graph.from_pyg(graph)
    path = graph._native.path
    if not path and options.get("run"):
        raise ValueError("run: a run directory names its dataset, and this graph has none; save it with graph.save(directory), and give "
                         "morphgl.Graph.open(directory)")
    return graph._native, [path] if path else []


def run(command, graph, words, options, trainer=None, progress=False, on_epoch=None, ranks=None):
    native, directory = source(graph, command, options)
    try:
        words = [command, *words, *directory, *arguments(options)]
        return json.loads(_morphgl.run(words, native, trainer, not progress, on_epoch, ranks))
    except (ValueError, RuntimeError) as error:
        message = str(error)
        unknown = re.fullmatch(r"unexpected argument '--([^']*)' found(?:.*similar argument exists: '--([^']*)')?", message)
        if unknown:
            name, similar = (word and word.replace("-", "_") for word in unknown.groups())
            cure = f"did you mean {similar}?" if similar else f"`morphgl {command} --help` lists them"
            raise ValueError(f"{name}: no such option; {cure}") from None
        if "does not do" in message:
            message = message.replace("leave --training out for an operator that does", "give the model as a torch module")
            raise type(error)(message) from None
        raise


def run_trained(command, graph, model, directory, options, progress):
    """Runs a command of a trained model, whose file is written into `directory` where it is none."""
    trainer = getattr(model, "trainer", None)
    if trainer is None and hasattr(model, "named_parameters"):
        raise TypeError("model: a torch module by itself does not say what it was trained for; give the `model` of what train returned, or "
                        "TrainedModule.load(file, module)")
    if trainer is not None:
        options = {**model.options, **options}
    return run(command, graph, [Model.file(model, directory)], options, trainer, progress)


def ops() -> Ops:
    """The operators, whether they can run here, and the routes that they form."""
    document = run("ops", None, [], {})
    operators = [of(Operator, operator) for operator in document["operators"]]
    routes = [of(Route, route) for route in document["routes"]]
    return of(Ops, {**document, "operators": operators, "routes": routes})


def profile(graph: Any = None, model: str = "sage", *, progress: bool = False, **options: Any) -> Profile:
    """Measures every phase on this machine. Options are those of `morphgl profile --help`, such as `num_neighbors=[15, 10, 5]`,
    `batch_size=1024`, `hidden=256`."""
    return of(Profile, run("profile", graph, [], {"model": model, **options}, progress=progress)["profile"])


def plan(graph: Any = None, model: str = "sage", *, progress: bool = False, **options: Any) -> Planned:
    """Measures, and computes the plan with the least predicted seconds per epoch. Options are those of `morphgl plan --help`."""
    if "profile" in options or "durations" in options:
        model = None
    document = run("plan", graph, [], {"model": model, **options}, progress=progress)
    return Planned(plan_of(document["plan"]), document["plans"], document)


def evaluate(graph: Any, model: Any, *, progress: bool = False, **options: Any) -> Dict[str, Score]:
    """Scores of the splits that the graph has, by name, of a :class:`Model` or a model file, or a :class:`TrainedModule`. Options are those
    of `morphgl evaluate --help`; of a module, those of its mini-batches are by default as it was trained."""
    with tempfile.TemporaryDirectory() as temporary:
        document = run_trained("evaluate", graph, model, temporary, options, progress)
    return {split: of(Score, document[split]) for split in ("train", "valid", "test") if split in document}


def predict(graph: Any, model: Any, nodes: Any = None, *, rows: Any = None, edges: Any = None, progress: bool = False,
            **options: Any) -> Predictions:
    """Classes, labels or values by a :class:`Model` or a model file, or a :class:`TrainedModule`: of `nodes` (ids, "all", "train", "valid" or "test"; by default all),
    of the `rows` of the dataset's task (pairs `[rows, 2]` of a node and a time, or "all", "train", "valid", "test"; of a dataset with a
    task by default all), or of `edges` (pairs `[edges, 2]` of source and destination). Options are those of `morphgl predict --help`:
    `evaluation="sampled"` predicts on sampled mini-batches, `num_neighbors=` … by default as a module was trained."""
    given = {name: value for name, value in (("nodes", nodes), ("rows", rows), ("edges", edges)) if value is not None}
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: pass one of them")
    # Names of a graph in memory are known here alone.
    names = graph.node_ids if isinstance(graph, Graph) and not graph._native.path else None
    names = names if isinstance(names, list) else None
    with tempfile.TemporaryDirectory() as temporary:
        for what, value in given.items():
            if isinstance(value, str):
                continue
            if what == "nodes":
                value = np.asarray(value if names is None else numbered(what, value, names)).reshape(-1, 1)
            elif names is not None:
                of_rows = lambda entry: (*numbered(what, entry[:1], names), entry[1])
                value = [of_rows(entry) if what == "rows" else numbered(what, entry, names) for entry in value]
            given[what] = os.path.join(temporary, "ids.txt")
            with open(given[what], "w", encoding="utf-8") as lines:
                lines.writelines(text_of(what, value))
        document = run_trained("predict", graph, model, temporary, {**given, **options}, progress)
    if "scores" in document:
        raise ValueError("model: it scores links; use morphgl.score_pairs")

    def array(key, dtype=None):
        return np.asarray(document[key], dtype) if key in document else None

    named = lambda nodes: np.asarray(nodes if names is None else [names[node] for node in nodes])
    predicted = times = pairs = None
    if "nodes" in document:
        predicted = named(document["nodes"])
    elif "rows" in document:
        predicted, times = named([node for node, _ in document["rows"]]), np.asarray([time for _, time in document["rows"]])
    elif "pairs" in document:
        pairs = named([node for pair in document["pairs"] for node in pair]).reshape(-1, 2)
    return Predictions(predicted, array("classes", np.int64), array("probabilities", np.float64), document.get("class_names"),
                       array("outputs", np.float32), document.get("columns"), times, pairs)


def text_of(what, entries):
    """A line for each entry: an id, or a pair of an id and a time or another id."""
    width = 1 if what == "nodes" else 2
    for entry in entries.tolist() if isinstance(entries, np.ndarray) else entries:
        if np.shape(entry) != (width,):
            raise ValueError(f"{what}: pass pairs, of {'a node and a time' if what == 'rows' else 'source and destination'}")
        yield "\t".join(map(str, entry)) + "\n"


def score_pairs(graph: Any, model: Any, pairs: Any, *, progress: bool = False, **options: Any) -> np.ndarray:
    """Scores `[pairs]` of `pairs` `[pairs, 2]` (ids of source and destination) by a :class:`Model` of links or its file, or a
    :class:`TrainedModule` of links; a higher score is a likelier link. Options are those of `morphgl predict --help`."""
    ends = np.asarray(pairs)
    if ends.ndim != 2 or ends.shape[1] != 2:
        raise ValueError(f"pairs: their shape is {ends.shape}; pass [pairs, 2], source and destination")
    names = graph.node_ids if isinstance(graph, Graph) and not graph._native.path else None
    if isinstance(names, list):
        ends = np.asarray(numbered("pairs", ends.reshape(-1).tolist(), names)).reshape(-1, 2)
    with tempfile.TemporaryDirectory() as temporary:
        listed = os.path.join(temporary, "pairs.txt")
        with open(listed, "w", encoding="utf-8") as lines:
            lines.writelines(f"{source}\t{target}\n" for source, target in ends.tolist())
        document = run_trained("predict", graph, model, temporary, {"edges": listed, **options}, progress)
    if "scores" not in document:
        raise ValueError("model: it predicts what edges are, not whether they exist; use morphgl.predict(edges=…)")
    return np.asarray(document["scores"], np.float32)


def numbered(what, ids, names):
    """The numbers of nodes that are known by names."""
    number = {name: node for node, name in enumerate(names)}
    ids = list(ids)
    for name in ids:
        if name not in number:
            raise ValueError(f"{what}: {name!r} is no node; give names as the graph's source has them")
    return [number[name] for name in ids]
