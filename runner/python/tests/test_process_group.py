"""`process_group=`: processes that torch.distributed connects train together; skipped without torch."""

import json
import multiprocessing
import os
import time

import numpy as np
import pytest

import morphgl
from morphgl import Graph

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402
from test_module import OPTIONS, Mean  # noqa: E402
from test_module_of_edges import labelled  # noqa: E402

VALIDATED = {**OPTIONS, "evaluation": "full"}


def learnable(seed=3):
    """600 nodes, whose classes follow from features. The last mini-batch has one seed, so that of several processes only one has a share."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((600, 10), dtype=np.float32)
    pairs = rng.integers(0, 600, (2, 4000))
    parts = {"train": np.arange(6 * 64 + 1), "valid": np.arange(400, 500), "test": np.arange(500, 600)}
    return Graph.from_numpy(pairs, x, np.digitize(x[:, 0], [-1, 0, 1]).astype(np.int32), **parts)


class Sums(torch.nn.Module):
    """A layer of sums over neighbours, without running means."""

    def __init__(self, width):
        super().__init__()
        torch.manual_seed(1)
        self.own, self.neighbours = torch.nn.Linear(10, width), torch.nn.Linear(10, width, bias=False)

    def forward(self, x, edge_index):
        return self.own(x) + self.neighbours(torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]]))


def told(training, module=None):
    """What every process has afterwards."""
    parameters = training.model.state_dict() if module is None else module.state_dict()
    values = {name: np.asarray(values).tolist() for name, values in parameters.items()}
    return {"losses": [epoch.loss for epoch in training.epochs], "valid": [epoch.valid_loss for epoch in training.epochs],
            "test": training.test_loss, "parameters": values, "saved": training.model is not None}


def nodes(group, _, **options):
    module, seen = Sums(4), []
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3, momentum=0.9)
    scheduler = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)]
    training = morphgl.train(learnable(), module, optimizer, epochs=4, scheduler=scheduler, clip_norm=0.5, process_group=group,
                             on_epoch=lambda epoch: seen.append(epoch.epoch), **{**VALIDATED, **options})
    return {**told(training, module), "seen": seen, "rate": optimizer.param_groups[0]["lr"]}


def links(group, _):
    module = Sums(6)
    options = {"task": "link", "embedding": 6, "negatives": 2, **VALIDATED}
    rng = np.random.default_rng(5)
    x, pairs = rng.standard_normal((600, 10), dtype=np.float32), rng.integers(0, 600, (2, 3000))
    parts = {"train_edges": pairs[:, :400], "valid_edges": pairs[:, 400:500], "test_edges": pairs[:, 500:600]}
    return told(morphgl.train(Graph.from_numpy(pairs, x, **parts), module, epochs=2, process_group=group, **options), module)


def edges(group, _):
    module = Sums(5)
    return told(morphgl.train(labelled("classify"), module, on="edges", embedding=5, epochs=2, process_group=group, **VALIDATED), module)


def own(group, _):
    return told(morphgl.train(learnable(), "sage", hidden=16, epochs=2, process_group=group, **VALIDATED))


def normalised(group, _):
    """Its statistics are those of a process's share: the losses are not those of one process."""
    module = Mean()
    module.register_buffer("marks", torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int16))
    module.register_buffer("none", torch.empty(0))
    return told(morphgl.train(learnable(), module, epochs=2, process_group=group, **VALIDATED), module)


def resumed(group, directory):
    """A run of two epochs that is resumed for two more, and one of four."""
    if group is None or dist.get_rank() == 0:
        learnable().save(directory / "graph")
    if group is not None:
        dist.barrier()

    def trained(graph, epochs, **options):
        module = Sums(4)
        optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
        return told(morphgl.train(graph, module, optimizer, epochs=epochs, process_group=group, **options), module)

    graph = Graph.open(directory / "graph")
    trained(graph, 2, run=directory / "run", **VALIDATED)
    return {"parts": trained(None, 4, resume=directory / "run"), "whole": trained(graph, 4, **VALIDATED)}


JOBS = {job.__name__: job for job in (nodes, links, edges, own, normalised, resumed)}


def rank_of(job, rank, size, directory):
    """One of the processes: writes what it has afterwards, or what it has raised."""
    # Three processes whose threads spin for work take minutes on two cores.
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=size)
    try:
        done = job(dist.group.WORLD, directory)
    except Exception as error:  # noqa: BLE001
        done = {"raised": str(error)}
    (directory / f"{rank}.json").write_text(json.dumps(done))
    os._exit(0)


def together(job, size, directory):
    """What each of `size` processes has after `job(group, directory)`."""
    context = multiprocessing.get_context("spawn")
    directory.mkdir()
    processes = [context.Process(target=rank_of, args=(job, rank, size, directory)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in range(size)]


def every(group, directory):
    return {name: job(group, directory) for name, job in JOBS.items()}


def test_processes_have_the_losses_of_one(tmp_path):
    all_done = together(every, 3, tmp_path / "ranks")
    assert [done.get("raised") for done in all_done] == [None] * 3
    # The same bits at all.
    assert all_done == [all_done[0]] * 3
    done, alone = all_done[0], every(None, tmp_path / "alone")
    for name in ("nodes", "links", "edges", "own"):
        for what in ("losses", "valid", "test"):
            assert done[name][what] == pytest.approx(alone[name][what], rel=1e-4), (name, what)
    assert done["nodes"]["seen"] == [0, 1, 2, 3]
    assert done["nodes"]["rate"] == alone["nodes"]["rate"]
    assert done["resumed"]["parts"] == done["resumed"]["whole"]
    assert done["resumed"]["whole"]["losses"] == pytest.approx(alone["resumed"]["whole"]["losses"], rel=1e-4)
    assert all(entry["saved"] for name, entry in done.items() if name != "resumed")


def refused_and_failing(group, _):
    """What is raised where options or graphs differ, and where one process fails."""
    raised, rank = [], dist.get_rank()
    for graph, options in ((learnable(), {"seed": rank}), (learnable(rank), {}), (learnable(), {"forward": failing})):
        started = time.monotonic()
        try:
            morphgl.train(graph, Sums(4), epochs=2, process_group=group, **{**VALIDATED, **options})
        except (RuntimeError, ValueError, ZeroDivisionError) as error:
            raised.append([type(error).__name__, str(error), time.monotonic() - started])
    with pytest.raises(NotImplementedError, match="float16"):
        morphgl.train(learnable(), Sums(4), autocast="float16", process_group=group, **VALIDATED)
    with pytest.raises(ValueError, match="--shard: rows of other ranks are read by MPI"):
        morphgl.train(learnable(), "sage", shard="inclusion:1KiB", process_group=group, **{**VALIDATED, "evaluation": "none"})
    with pytest.warns(UserWarning, match="this one trains alone"):
        morphgl.train(learnable(), Sums(4), epochs=1, **VALIDATED)
    return raised


def failing(module, batch):
    if dist.get_rank() == 1 and module.training:
        raise ZeroDivisionError("this one fails")
    return module(batch.x, batch.edge_index)


def test_what_ends_one_process_ends_all(tmp_path):
    first, second = together(refused_and_failing, 2, tmp_path / "ranks")
    for of_options, of_graphs, _ in (first, second):
        assert "seed" in of_options[1] and "dataset" in of_graphs[1]
    assert second[2][0] == "ZeroDivisionError"
    kind, text, seconds = first[2]
    assert kind == "RuntimeError" and "torch.distributed" in text and seconds < 60


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="process_group: torch.distributed is not initialized"):
        morphgl.train(learnable(), Sums(4), process_group="world", **VALIDATED)
