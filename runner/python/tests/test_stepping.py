"""Schedulers, clipped gradients and mixed precision of torch modules: those of a loop in torch, and kept by checkpoints."""

import numpy as np
import pytest

import morphgl
from morphgl import NeighborLoader
from test_training import learnable  # noqa: F401

torch = pytest.importorskip("torch")
from test_module import OPTIONS, Mean, equal  # noqa: E402

lr_scheduler = torch.optim.lr_scheduler
SCHEDULERS = {
    "epoch": [lambda o: lr_scheduler.StepLR(o, 2, 0.3), lambda o: lr_scheduler.CosineAnnealingLR(o, 5), lambda o: lr_scheduler.ExponentialLR(o, 0.7),
              lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
              lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.2, 1.0, 2), lr_scheduler.ExponentialLR(o, 0.5)], [2])],
    "step": [lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=200), lambda o: lr_scheduler.CosineAnnealingLR(o, 40)],
}


VALIDATED = {**OPTIONS, "evaluation": "full"}


def by_hand(graph, module, optimizer, epochs, scheduler=None, every="epoch", clip_norm=None, autocast=None):
    """The same training, and the learning rate of each of its steps."""
    rates = []
    given = optimizer if isinstance(optimizer, list) else [optimizer]
    dtype = {"float16": torch.float16, torch.float16: torch.float16}.get(autocast, torch.bfloat16)
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    # As OPTIONS has it: sums over several threads are other ones in the last bits.
    torch.set_num_threads(1)
    loader = NeighborLoader(graph, [4, 3], 64, "train", shuffle=True, seed=5, output="torch")
    for _ in range(epochs):
        for batch in loader:
            with torch.autocast("cpu", dtype, enabled=autocast is not None):
                out = module(batch.x, batch.edge_index)
            loss = torch.nn.functional.cross_entropy(out.float()[:batch.batch_size], batch.y[:batch.batch_size], reduction="sum")
            for one in given:
                one.zero_grad()
            if scaler.is_enabled():
                scaler.scale(loss / batch.batch_size).backward()
                for one in given:
                    scaler.unscale_(one)
            else:
                loss.backward()
                for parameter in module.parameters():
                    parameter.grad /= batch.batch_size
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
            for one in given:
                scaler.step(one)
            scaler.update()
            rates.append(given[0].param_groups[0]["lr"])
            if scheduler is not None and every == "step":
                scheduler.step()
        if scheduler is not None and every == "epoch":
            scheduler.step()
    return rates


def optimizers(make=lambda p: torch.optim.Adam(p, lr=0.01)):
    """Two equal modules with their optimizers, and the learning rates of the first one's steps."""
    ours, theirs = Mean(), Mean()
    one, other = make(ours.parameters()), make(theirs.parameters())
    rates = []
    one.register_step_post_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    return (ours, one), (theirs, other), rates


@pytest.mark.parametrize("every, make", [(every, make) for every, all_of in SCHEDULERS.items() for make in all_of])
def test_schedulers_step_as_in_a_loop_in_torch(learnable, every, make):
    (ours, one), (theirs, other), rates = optimizers()
    done = morphgl.train(learnable, ours, one, scheduler=make(one), schedule_every=every, epochs=4, **OPTIONS)
    expected = by_hand(learnable, theirs, other, 4, make(other), every)
    # Steps before the last epochs' are of measurements, which leave nothing behind.
    assert len(done.epochs) == 4 and rates[-len(expected):] == expected and len(set(expected)) > 1
    assert equal(ours, theirs)


@pytest.mark.parametrize("options", [{"clip_norm": 0.05}, {"autocast": "bfloat16"}, {"autocast": torch.bfloat16, "clip_norm": 0.5},
                                     {"autocast": "float16"}, {"autocast": torch.float16, "clip_norm": 0.05}])
def test_clipped_gradients_and_mixed_precision_are_torch_s(learnable, options):
    (ours, one), (theirs, other), _ = optimizers()
    plain = Mean()
    morphgl.train(learnable, ours, one, epochs=2, **options, **OPTIONS)
    by_hand(learnable, theirs, other, 2, **options)
    morphgl.train(learnable, plain, torch.optim.Adam(plain.parameters(), lr=0.01), epochs=2, **OPTIONS)
    assert equal(ours, theirs) and not equal(ours, plain)
    assert all(parameter.dtype == torch.float32 for parameter in ours.parameters())


@pytest.mark.parametrize("every, make", [(every, all_of[0]) for every, all_of in SCHEDULERS.items()])
def test_a_resumed_run_goes_on_with_its_schedule(learnable, tmp_path, every, make):
    learnable.save(tmp_path / "g")
    graph = morphgl.Graph.open(tmp_path / "g")
    (ours, one), (theirs, other), _ = optimizers()
    options = {**OPTIONS, "schedule_every": every, "clip_norm": 0.5}
    morphgl.train(graph, theirs, other, scheduler=make(other), epochs=6, **options)
    morphgl.train(graph, ours, one, scheduler=make(one), epochs=3, run=tmp_path / "run", **options)
    again = Mean()
    optimizer = torch.optim.Adam(again.parameters(), lr=0.01)
    given = {"resume": tmp_path / "run", "epochs": 6}
    for left_out, message in [({"clip_norm": 0.5}, "scheduler: the run was begun with '.*', and None is given"),
                              ({"scheduler": make(optimizer), "schedule_every": every}, "clip_norm: the run was begun with 0.5, and None is given")]:
        with pytest.raises(ValueError, match=message):
            morphgl.train(None, again, optimizer, **left_out, **given)
    optimizer = torch.optim.Adam(again.parameters(), lr=0.01)
    morphgl.train(None, again, optimizer, scheduler=make(optimizer), schedule_every=every, clip_norm=0.5, **given)
    assert equal(again, theirs)
    assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"]


def test_links_are_learned_with_all_of_them(learnable):
    module = Mean(classes=8)
    decoder = torch.nn.Bilinear(8, 8, 1)
    optimizer = torch.optim.Adam([*module.parameters(), *decoder.parameters()], lr=0.01)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
    done = morphgl.train(learnable, module, optimizer, task="link", embedding=8, decoder=decoder, scheduler=scheduler, clip_norm=1.0, autocast="bfloat16", epochs=2, **OPTIONS)
    assert len(done.epochs) == 2 and np.isfinite(done.epochs[-1].loss)


def parts_of(module):
    """An optimizer of each kind for the layers and for the normalization."""
    of_norm = list(module.norm.parameters())
    others = [p for p in module.parameters() if not any(p is other for other in of_norm)]
    return [torch.optim.Adam(others, lr=0.01), torch.optim.SGD(of_norm, lr=0.1, momentum=0.9)]


@pytest.mark.parametrize("options", [{}, {"clip_norm": 0.05}, {"autocast": "float16"}])
def test_several_optimizers_step_together(learnable, options):
    ours, theirs = Mean(), Mean()
    morphgl.train(learnable, ours, parts_of(ours), epochs=3, **options, **OPTIONS)
    by_hand(learnable, theirs, parts_of(theirs), 3, **options)
    assert equal(ours, theirs)


def test_a_run_with_several_of_each_is_resumed(learnable, tmp_path):
    learnable.save(tmp_path / "g")
    graph = morphgl.Graph.open(tmp_path / "g")
    schedulers = lambda o: [lr_scheduler.ExponentialLR(o[0], 0.8), lr_scheduler.ReduceLROnPlateau(o[1], "max", patience=0)]
    whole, ours, again = Mean(), Mean(), Mean()
    of_whole, of_ours, of_again = parts_of(whole), parts_of(ours), parts_of(again)
    options = {"autocast": "float16", "clip_norm": 0.5}
    morphgl.train(graph, whole, of_whole, scheduler=schedulers(of_whole), epochs=6, **options, **VALIDATED)
    morphgl.train(graph, ours, of_ours, scheduler=schedulers(of_ours), epochs=3, run=tmp_path / "run", **options, **VALIDATED)
    with pytest.raises(ValueError, match="optimizer: a number of optimizers: the run was begun with 2, and 1 is given"):
        one = torch.optim.Adam(Mean().parameters())
        morphgl.train(None, Mean(), one, resume=tmp_path / "run", epochs=6)
    morphgl.train(None, again, of_again, scheduler=schedulers(of_again), resume=tmp_path / "run", epochs=6, **options)
    assert equal(again, whole)
    assert [o.param_groups[0]["lr"] for o in of_again] == [o.param_groups[0]["lr"] for o in of_whole]


@pytest.mark.parametrize("mode, given, monitored", [
    ("max", {}, "valid_accuracy"), ("min", {}, "valid_loss"), ("min", {"score": "loss"}, "valid_loss"), ("max", {"score": "macro-f1"}, "valid_score")])
def test_a_plateau_is_of_the_score_that_the_best_model_is_chosen_by(learnable, mode, given, monitored):
    module = Mean()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, mode, factor=0.5, patience=0)
    values, rates = [], []

    def on_epoch(epoch):
        values.append(getattr(epoch, monitored))
        rates.append(optimizer.param_groups[0]["lr"])

    morphgl.train(learnable, module, optimizer, scheduler=scheduler, epochs=8, on_epoch=on_epoch, **given, **VALIDATED)
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    expected = lr_scheduler.ReduceLROnPlateau(other, mode, factor=0.5, patience=0)
    rates_by_hand = []
    for value in values:
        rates_by_hand.append(other.param_groups[0]["lr"])
        expected.step(value)
    assert None not in values and rates == rates_by_hand and rates[-1] < 0.5
    assert optimizer.param_groups[0]["lr"] == other.param_groups[0]["lr"]


def test_what_is_not_taken_is_named(learnable):
    (module, optimizer), (_, other), _ = optimizers()
    plateau = lr_scheduler.ReduceLROnPlateau(optimizer)
    for options, error, message in [
        ({"scheduler": plateau}, ValueError, "scheduler: ReduceLROnPlateau steps by the validation score, and nothing is validated"),
        ({"scheduler": plateau, "schedule_every": "step"}, ValueError, "schedule_every: ReduceLROnPlateau steps by a score"),
        ({"scheduler": object()}, TypeError, "scheduler: object is no scheduler of torch's"),
        ({"scheduler": [lr_scheduler.StepLR(optimizer, 1), lr_scheduler.StepLR(other, 1)]}, ValueError, "scheduler: it is not of the optimizer that is given"),
        ({"scheduler": lr_scheduler.StepLR(optimizer, 1), "schedule_every": "batch"}, ValueError, "schedule_every: 'batch'; give"),
        ({"clip_norm": -1}, ValueError, "clip_norm: -1 is no norm"),
        ({"autocast": "float8"}, NotImplementedError, 'autocast: float8; give "bfloat16" or "float16"'),
        ({"on_epoch": 3}, TypeError, "on_epoch: int is no function"),
    ]:
        with pytest.raises(error, match=message):
            morphgl.train(learnable, module, optimizer, epochs=1, **options, **OPTIONS)
    unvalidated = morphgl.Graph.from_numpy(csc=(learnable.indptr, learnable.indices), x=learnable.x, y=learnable.y, train=learnable.split("train"))
    with pytest.raises(ValueError, match="scheduler: ReduceLROnPlateau steps by the validation score, and nothing is validated"):
        morphgl.train(unvalidated, module, optimizer, scheduler=plateau, epochs=1, **VALIDATED)
    highest = lr_scheduler.ReduceLROnPlateau(optimizer, "max")
    with pytest.raises(ValueError, match="mode 'max' waits for the highest score"):
        morphgl.train(learnable, module, optimizer, scheduler=highest, score="loss", epochs=2, **VALIDATED)
    for wrong, error, message in [
        ([optimizer, torch.optim.SGD(module.norm.parameters(), lr=1.0)], ValueError, "optimizer: a parameter of shape .* is of two of them"),
        ([], ValueError, "optimizer: the list has none"), ([3], TypeError, "optimizer: int is no optimizer of torch's")]:
        with pytest.raises(error, match=message):
            morphgl.train(learnable, module, wrong, epochs=1, **OPTIONS)
