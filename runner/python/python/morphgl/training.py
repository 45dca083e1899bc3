"""Training: of MorphGL's own models by name, and of torch modules."""

import contextlib
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import warnings
from typing import Any, Callable, Optional, Union

import numpy as np

from . import _morphgl
from .commands import Epoch, Training, of, plan_of, run
from .graph import SPLITS, Graph
from .models import Model


def train(graph: Any = None, model: Any = "sage", optimizer: Any = None, *, forward: Optional[Callable[[Any, Any], Any]] = None,
          output: Optional[str] = None, init: Any = None, resume: Any = None, progress: bool = False, task: Optional[str] = None,
          loss: Union[str, Callable[[Any, Any], Any], None] = None, decoder: Union[str, Callable[[Any, Any], Any], None] = None,
          scheduler: Any = None, schedule_every: str = "epoch", autocast: Any = None,
          on_epoch: Optional[Callable[[Epoch], Optional[bool]]] = None, process_group: Any = None, **options: Any) -> Training:
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
        `forward(module, batch)` gives outputs `[nodes, classes]`, or of other tasks `[nodes, targets]`, or of links and edges embeddings, of
        the mini-batch's nodes or of its seeds alone. Default: `module(batch.x, batch.edge_index)`, with `output="dgl"`
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
        "classify" (default), "multilabel", "regress" or "link"; of edges in place of nodes with `on="edges"`.
    loss
        One of the task's by name, with settings as `loss_option={…}`, or of MorphGL's own models one of a crate that the package was
        built with. Of a module also a function `loss(outputs, targets)`, whose value is a tensor of one number, the mean over the rows: the
        logits `[seeds, classes]` and classes of the seeds that have one; outputs and targets `[seeds, K]` of those with a known
        target, NaN for others; with `on="edges"` those of edges in place of seeds; or scores `[pairs]` of pairs and their labels, 1. for the positives, which come first, and 0.
    decoder
        Of links: how two embeddings score a pair. Of MorphGL's own models "dot" (default), "distmult" or "mlp"; of a module "dot", or
        a function or module `decoder(sources, destinations)` of rows of embeddings, which gives `[pairs]`. With `on="edges"` it gives the
        classes, labels or values `[pairs, K]`: "mlp" (default) by two layers over both ends, the source first, which of a module are
        stepped with the first parameters of the first optimizer. Embeddings of a module have `embedding=` columns.
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
    process_group
        A group of `torch.distributed`, such as `torch.distributed.group.WORLD`, whose processes call this together, each with the same
        arguments on the same graph: every one trains on its share of each mini-batch, and gradients are added up, so that losses are those
        of one process but for rounding, whatever the backend, by a gloo group of the run's own. A module has the same parameters at all,
        its floating-point buffers those of the first. The first process shows the run and writes its files.
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
        return train_own(graph, model, init, resume, progress, {**words, **options}, epoch_hook(on_epoch), ranks_of(process_group))
    if init is not None:
        raise ValueError("init: a module has its parameters; load them by module.load_state_dict")
    import torch

    from .module import ModuleTrainer
    from .stepping import check_optimizers
    from .trained import TrainedModule

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: {type(model).__name__}; give the name of a model, or a torch.nn.Module")
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
    sampler, ranks = options.get("sampler", "neighbor"), ranks_of(process_group)
    trainer = ModuleTrainer(model, optimizers, forward, output, sampler != "neighbor", functions.get("loss"), decoder, ranks,
                            scheduler=scheduler, every=schedule_every, clip_norm=clip_norm, autocast=autocast)
    if resume is None:
        options = {"training": trainer.operator(), **options}
    if trainer.stepping.goes_by_score and (options.get("evaluation") == "none" or not is_validated(graph, options)):
        raise ValueError("scheduler: ReduceLROnPlateau steps by the validation score, and nothing is validated; give the graph a validation "
                         "split, and leave evaluation out, or give a scheduler that steps by itself")
    hook = epoch_hook(on_epoch, trainer.stepping.end)
    with saved_model({**options, "resume": resume}, ranks) as (words, saved):
        try:
            training = run_training(graph, words, saved, trainer, progress, hook, ranks)
        finally:
            trainer.release()
        if os.path.exists(saved):
            training.model = TrainedModule.of(saved, trainer, options)
    return training


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


def is_validated(graph, options):
    """Whether a graph, or the dataset of a directory, has nodes, rows or pairs to validate on; True of a run that is resumed."""
    if graph is None:
        return True
    on_pairs = options.get("task") == "link" or options.get("on") == "edges"
    name = "valid_edges" if on_pairs else "valid"
    if isinstance(graph, Graph) and not graph._native.path:
        return bool(len(graph.edge_split("valid").T) if on_pairs else graph._split_sizes()["valid"])
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
    ours = {"model": "custom"}
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


def train_own(graph, model, init, resume, progress, options, hook, ranks):
    if model == "gcn" and "self_loops" not in options and isinstance(graph, Graph) and graph._native.num_self_loops:
        warnings.warn(f"the graph has {graph._native.num_self_loops} self-loops, and a gcn adds one to every node: for PyG's GCN drop them, "
                      'or, where they have weights, give every node one, and self_loops="graph"', stacklevel=3)
    with saved_model({**options, "resume": resume}, ranks) as (words, saved):
        first = None if init is None else Model.file(init, os.path.dirname(saved))
        words = {"model": None if resume else model, **words, "init": first}
        training = run_training(graph, words, saved, None, progress, hook, ranks)
        if os.path.exists(saved):
            training.model = Model.load(saved)
    return training


def ranks_of(process_group):
    """The ranks of a group of torch.distributed; None where there is none, and the process trains alone."""
    if process_group is None and "torch.distributed" not in sys.modules:
        return None
    from . import process_group as groups

    return groups.ranks_of(process_group)


@contextlib.contextmanager
def saved_model(options, ranks=None):
    """Options of a run that saves its model to a temporary file, and the file's path; afterwards it is at the path that `save` names,
    too, which the first of several ranks writes. Where one of them fails it is disconnected from the others."""
    with tempfile.TemporaryDirectory() as temporary:
        saved = os.path.join(temporary, "model.safetensors")
        try:
            yield {**options, "save": saved}, saved
        except BaseException:
            if ranks is not None:
                ranks.close()
            raise
        is_first = ranks is None or ranks.rank == 0
        if is_first and options.get("save") is not None and os.path.exists(saved):
            beside = os.fspath(options["save"]) + ".partial"
            shutil.copyfile(saved, beside)
            os.replace(beside, options["save"])


def run_training(graph, words, saved, trainer, progress, hook, ranks):
    document = run("train", graph, [], words, trainer, progress, hook, ranks)
    if ranks is not None:
        document = ranks.share(document, saved)
    epochs = [of(Epoch, epoch) for epoch in document["epochs"]]
    return dataclasses.replace(of(Training, {**document, "epochs": epochs, "plan": plan_of(document["plan"])}), document=document)
