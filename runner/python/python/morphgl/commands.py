"""The commands of `morphgl` as functions: they take the command line's options by name, and return its JSON as dataclasses."""

import dataclasses
import json
import os
import re
import tempfile
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Union

import numpy as np

from . import _morphgl
from .brief import Brief
from .graph import SPLITS, Graph
from .models import Model
from .plots import Plot, of_plan, of_training


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
    """A training run. `model` has the parameters of MorphGL's own models; a torch module has its own itself."""

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
    model: Optional[Model] = None

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


def run(command, graph, words, options, trainer=None, progress=False, on_epoch=None):
    native, directory = source(graph, command, options)
    try:
        return json.loads(_morphgl.run([command, *words, *directory, *arguments(options)], native, trainer, not progress, on_epoch))
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


def train(graph: Any = None, model: Any = "sage", optimizer: Any = None, *, forward: Optional[Callable[[Any, Any], Any]] = None,
          output: Optional[str] = None, init: Any = None, resume: Any = None, progress: bool = False, task: Optional[str] = None,
          loss: Union[str, Callable[[Any, Any], Any], None] = None, decoder: Union[str, Callable[[Any, Any], Any], None] = None,
          scheduler: Any = None, schedule_every: str = "epoch", autocast: Any = None,
          on_epoch: Optional[Callable[[Epoch], Optional[bool]]] = None, **options: Any) -> Training:
    """Profiles, plans and trains, and plans again where durations change.

    graph
        A :class:`Graph`, a PyG `Data`, the directory of a dataset, which may be larger than memory, or None for a generated graph.
    model
        "gcn", "sage", "gat", "gin" or "mlp", of a graph with types "rgcn", "rsage", "rgat" or "hgt", of links "embedding" (no layers):
        MorphGL's own, whose options are named
        as on the command line (`hidden`, `heads`, `dropout`, `lr`, `lr_schedule`, `warmup`, `clip_norm`, …). Or a `torch.nn.Module`, which MorphGL trains by `optimizer` and `loss`, and which
        has the parameters of the best epoch afterwards.
    optimizer
        Of MorphGL's own models: "adam" (default), "adamw" or "sgd". Of the module's parameters, and those of a `decoder` with any, a
        torch optimizer, or a list of several that each have some of them and are stepped together; default `torch.optim.Adam` of all at a
        learning rate of 0.003.
    forward
        `forward(module, batch)` gives outputs `[nodes, classes]`, or of other tasks `[nodes, targets]` or embeddings, of the mini-batch's
        nodes or of its seeds alone. Default: `module(batch.x, batch.edge_index)`, with `output="dgl"`
        `module(blocks, blocks[0].srcdata["feat"])`.
    output
        The form of the module's mini-batches, as of :class:`NeighborLoader`: "torch" (default), "pyg" or "dgl".
    init
        Initial parameters: a model file, a :class:`Model`, or a PyG `state_dict`. A module has its own.
    resume
        The directory of a run to go on with; a module is given again, with its `loss` and `decoder` where these are no names.
    progress
        Whether progress is shown on stderr.
    task
        "classify" (default), "multilabel", "regress" or "link".
    loss
        One of the task's by name, with settings as `loss_option={…}`, or of MorphGL's own models one of a crate that the package was
        built with. Of a module also a function `loss(outputs, targets)`, whose value is a tensor of one number, the mean over the rows: the
        logits `[seeds, classes]` and classes of the seeds that have one; outputs and targets `[seeds, K]` of those with a known
        target, NaN for others; or scores `[pairs]` of pairs and their labels, 1. for the positives, which come first, and 0.
    decoder
        Of links: how two embeddings score a pair. Of MorphGL's own models "dot" (default), "distmult" or "mlp"; of a module "dot", or
        a function or module `decoder(sources, destinations)` of rows of embeddings, which gives `[pairs]`. Embeddings of a module have
        `embedding=` columns.
    scheduler, schedule_every
        Of a module: one of torch's schedulers of `optimizer`, or a list, which is stepped as each "epoch" begins but the first, or after each
        "step" of the optimizer. `ReduceLROnPlateau` is stepped after each epoch that is evaluated, by the score that the best model is
        chosen by, or of mode "min" by the validation loss where the highest score is the best. A run that is resumed is given it again,
        and goes on with its state. The learning rate of MorphGL's own models falls by `lr_schedule=`.
    autocast
        Of a module: "bfloat16" or "float16" for torch's mixed precision in its forward pass and its decoder's; losses and parameters are
        float32, and losses are scaled by torch's `GradScaler` for "float16".
    on_epoch
        `on_epoch(epoch)` is called with the :class:`Epoch` after each epoch and its evaluation; training ends after it where it returns True,
        as early stopping ends it. A module has the parameters of the epoch then. What it raises ends the run, and is raised.
    options
        Those of `morphgl train --help` by name: `num_neighbors`, `batch_size`, `epochs`, `patience`, `evaluation`, `plan`, `run`,
        `memory`, `cache`, `clip_norm`, `seed`, `threads`, `sampler`, …; `sampler_option={…}` are settings of a sampler that an operator crate declares
    """
    if graph is not None and not isinstance(graph, (str, os.PathLike, Graph)):
        graph = Graph.from_pyg(graph)
    if on_epoch is not None and not callable(on_epoch):
        raise TypeError(f"on_epoch: {type(on_epoch).__name__} is no function; give on_epoch(epoch)")
    if isinstance(model, str):
        if forward is not None or output is not None or not isinstance(optimizer, (str, type(None))):
            raise ValueError(f'model: "{model}" has mini-batches of its own, and an optimizer by name ("adam", "adamw", "sgd"); '
                             "leave forward and output out")
        for name, value, cure in (("scheduler", scheduler, 'its learning rate falls by lr_schedule="cosine", "step" or "plateau"'),
                                  ("autocast", autocast, "its operator has a precision of its own")):
            if value is not None:
                raise NotImplementedError(f'{name}: "{model}" is one of MorphGL\'s own models; {cure}')
        for name, value in (("loss", loss), ("decoder", decoder)):
            if not isinstance(value, (str, type(None))):
                raise NotImplementedError(f'{name}: "{model}" is trained by one by name; for a {name} of your own give the model as a torch module')
        words = {"task": task, "loss": loss, "decoder": decoder, "optimizer": optimizer}
        return train_own(graph, model, init, resume, progress, {**words, **options}, epoch_hook(on_epoch))
    if init is not None:
        raise ValueError("init: a module has its parameters; load them by module.load_state_dict")
    import torch

    from .module import ModuleTrainer
    from .stepping import check_optimizers

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: {type(model).__name__}; give the name of a model, or a torch.nn.Module")
    if isinstance(decoder, str) and decoder != "dot":
        raise ValueError(f'decoder: {decoder!r} is one of MorphGL\'s own models; give "dot", or a module of two embeddings')
    functions = {name: value for name, value in (("loss", loss), ("decoder", decoder)) if value is not None and not isinstance(value, str)}
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name}: {type(function).__name__} is no function; give one, or a name")
    if optimizer is None:
        of_decoder = decoder.parameters() if isinstance(decoder, torch.nn.Module) else ()
        optimizer = torch.optim.Adam(list(dict.fromkeys([*model.parameters(), *of_decoder])), lr=0.003)
    optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
    check_optimizers(optimizers)
    output = output or "torch"
    if output not in ("pyg", "torch", "dgl"):
        raise ValueError(f"output: {output!r}; give one of 'pyg', 'torch', 'dgl'")
    clip_norm = options.pop("clip_norm", None)
    options = {"task": task, "loss": loss if isinstance(loss, str) else None, **options}
    if resume is None:
        options = module_options(options, optimizers[0], output, functions)
    if isinstance(graph, Graph):
        read = (*SPLITS.values(), "edge_label_index", "edge_label")
        names = [name for some in graph._attributes.values() for name in some if name not in read]
        if names:
            warnings.warn(f"{', '.join(names)}: left out of the mini-batches that train makes; for a module that reads them write the loop "
                          "over a NeighborLoader", stacklevel=2)
    sampler = options.get("sampler", "neighbor")
    trainer = ModuleTrainer(model, optimizers, forward, output, sampler != "neighbor", functions.get("loss"), functions.get("decoder"),
                            scheduler=scheduler, every=schedule_every, clip_norm=clip_norm, autocast=autocast)
    if trainer.stepping.goes_by_score and (options.get("evaluation") == "none" or not is_validated(graph, options.get("task"))):
        raise ValueError("scheduler: ReduceLROnPlateau steps by the validation score, and nothing is validated; give the graph a validation "
                         "split, and leave evaluation out, or give a scheduler that steps by itself")
    hook = epoch_hook(on_epoch, trainer.stepping.end)
    document = run("train", graph, [], {**options, "resume": resume}, trainer, progress, hook)
    return training_of(document)


def epoch_hook(on_epoch, then=None):
    """What is called after an epoch, with its document as JSON, the score of its model and whether the highest is the best; whether training
    is to end. `then` is called with the same after `on_epoch`."""
    if on_epoch is None and then is None:
        return None

    def hook(document, score, highest_is_best):
        document = json.loads(document)
        stops = None if on_epoch is None else on_epoch(of(Epoch, document))
        if not isinstance(stops, (bool, np.bool_, type(None))):
            raise TypeError(f"on_epoch: it returned {type(stops).__name__}; return True to end training, else nothing")
        if then is not None:
            then(document, score, highest_is_best)
        return bool(stops)

    return hook


def is_validated(graph, task):
    """Whether a graph, or the dataset of a directory, has nodes or pairs to validate on; True of a run that is resumed."""
    if graph is None:
        return True
    name = "valid_edges" if task == "link" else "valid"
    if isinstance(graph, Graph) and not graph._native.path:
        return bool(len(graph.edge_split("valid").T if task == "link" else graph.split("valid")))
    directory = graph._native.path if isinstance(graph, Graph) else graph
    arrays = run("info", None, [os.fspath(directory)], {})["arrays"]
    return name in arrays and arrays[name]["shape"][0] > 0


def module_options(options, optimizer, output, functions):
    """The options of a run that trains a module, with `functions` of the caller's."""
    sampler = options.get("sampler", "neighbor")
    by_fanouts = dict(_morphgl.samplers()).get(sampler, True)
    if not by_fanouts and output != "dgl" and options.get("layers", 3) > 1:
        what = "walks" if sampler == "walk" else sampler
        raise ValueError(f'sampler: the hops of {what} have edges of their own; give output="dgl", or layers=1')
    ours = {"model": "custom", "training": "Training_CPU_Torch"}
    if functions:
        ours["model_option"] = {name: getattr(function, "__name__", type(function).__name__) for name, function in functions.items()}
    if by_fanouts and sampler != "shadow" and output != "dgl":
        ours["expansion"] = "new"
    if sampler == "shadow" and output != "dgl":
        ours["layers"] = 1
    # For the report: the optimizer itself is the caller's.
    for option, key in (("lr", "lr"), ("weight-decay", "weight_decay")):
        value = optimizer.param_groups[0].get(key)
        if isinstance(value, (int, float)):
            ours[option] = value
    return {**ours, **options}


def train_own(graph, model, init, resume, progress, options, hook=None):
    if model == "gcn" and "self_loops" not in options and isinstance(graph, Graph) and graph._native.num_self_loops:
        warnings.warn(f"the graph has {graph._native.num_self_loops} self-loops, and a gcn adds one to every node: for PyG's GCN drop them, "
                      'or, where they have weights, give every node one, and self_loops="graph"', stacklevel=3)
    with tempfile.TemporaryDirectory() as temporary:
        saved = os.path.join(temporary, "model.safetensors")
        words = {**options, "init": None if init is None else Model.file(init, temporary), "resume": resume}
        save = words.pop("save", None)
        document = run("train", graph, [], {"model": None if resume else model, **words, "save": saved},
                       progress=progress, on_epoch=hook)
        training = training_of(document)
        if os.path.exists(saved):
            training.model = Model.load(saved)
    if save is not None and training.model is not None:
        training.model.save(save)
    return training


def training_of(document):
    epochs = [of(Epoch, epoch) for epoch in document["epochs"]]
    return dataclasses.replace(of(Training, {**document, "epochs": epochs, "plan": plan_of(document["plan"])}), document=document)


def evaluate(graph: Any, model: Any, *, progress: bool = False, **options: Any) -> Dict[str, Score]:
    """Scores of the splits that the graph has, by name, of a :class:`Model` or a model file. Options are those of
    `morphgl evaluate --help`."""
    with tempfile.TemporaryDirectory() as temporary:
        document = run("evaluate", graph, [Model.file(model, temporary)], options, progress=progress)
    return {split: of(Score, document[split]) for split in ("train", "valid", "test") if split in document}


def predict(graph: Any, model: Any, nodes: Any = None, *, rows: Any = None, edges: Any = None, progress: bool = False,
            **options: Any) -> Predictions:
    """Classes, labels or values by a :class:`Model` or a model file: of `nodes` (ids, "all", "train", "valid" or "test"; by default all),
    of the `rows` of the dataset's task (pairs `[rows, 2]` of a node and a time, or "all", "train", "valid", "test"; of a dataset with a
    task by default all), or of `edges` (pairs `[edges, 2]` of source and destination). Options are those of `morphgl predict --help`."""
    given = {name: value for name, value in (("nodes", nodes), ("rows", rows), ("edges", edges)) if value is not None}
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: pass one of them")
    # Names of a graph in memory are known here alone; it has neither rows nor labelled edges.
    names = graph.node_ids if isinstance(graph, Graph) and not graph._native.path else None
    names = names if isinstance(names, list) else None
    with tempfile.TemporaryDirectory() as temporary:
        for what, value in given.items():
            if isinstance(value, str):
                continue
            if what == "nodes":
                value = np.asarray(value if names is None else numbered(what, value, names)).reshape(-1, 1)
            given[what] = os.path.join(temporary, "ids.txt")
            with open(given[what], "w", encoding="utf-8") as lines:
                lines.writelines(text_of(what, value))
        document = run("predict", graph, [Model.file(model, temporary)], {**given, **options}, progress=progress)
    if "scores" in document:
        raise ValueError("model: it scores links; use morphgl.score_pairs")

    def array(key, dtype=None):
        return np.asarray(document[key], dtype) if key in document else None

    times = None
    if "nodes" in document:
        predicted = np.asarray(document["nodes"] if names is None else [names[node] for node in document["nodes"]])
    elif "rows" in document:
        predicted, times = (np.asarray([row[at] for row in document["rows"]]) for at in (0, 1))
    else:
        predicted = None
    return Predictions(predicted, array("classes", np.int64), array("probabilities", np.float64), document.get("class_names"),
                       array("outputs", np.float32), document.get("columns"), times, array("pairs"))


def text_of(what, entries):
    """A line for each entry: an id, or a pair of an id and a time or another id."""
    width = 1 if what == "nodes" else 2
    for entry in entries.tolist() if isinstance(entries, np.ndarray) else entries:
        if np.shape(entry) != (width,):
            raise ValueError(f"{what}: pass pairs, of {'a node and a time' if what == 'rows' else 'source and destination'}")
        yield "\t".join(map(str, entry)) + "\n"


def score_pairs(graph: Any, model: Any, pairs: Any, *, progress: bool = False, **options: Any) -> np.ndarray:
    """Scores `[pairs]` of `pairs` `[pairs, 2]` (ids of source and destination) by a :class:`Model` of links or its file; a higher score
    is a likelier link. Options are those of `morphgl predict --help`."""
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
        document = run("predict", graph, [Model.file(model, temporary)], {"edges": listed, **options}, progress=progress)
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
