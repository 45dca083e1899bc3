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


def by_hand(graph, module, optimizer, epochs, scheduler=None, every="epoch", clip_norm=None, autocast=None):
    """The same training, and the learning rate of each of its steps."""
    rates = []
    # As OPTIONS has it: sums over several threads are other ones in the last bits.
    torch.set_num_threads(1)
    loader = NeighborLoader(graph, [4, 3], 64, "train", shuffle=True, seed=5, output="torch")
    for _ in range(epochs):
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast is not None):
                out = module(batch.x, batch.edge_index)
            loss = torch.nn.functional.cross_entropy(out.float()[:batch.batch_size], batch.y[:batch.batch_size], reduction="sum")
            optimizer.zero_grad()
            loss.backward()
            for parameter in module.parameters():
                parameter.grad /= batch.batch_size
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(module.parameters(), clip_norm)
            optimizer.step()
            rates.append(optimizer.param_groups[0]["lr"])
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


@pytest.mark.parametrize("options", [{"clip_norm": 0.05}, {"autocast": "bfloat16"}, {"autocast": torch.bfloat16, "clip_norm": 0.5}])
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


def test_what_is_not_taken_is_named(learnable):
    (module, optimizer), (_, other), _ = optimizers()
    for options, error, message in [
        ({"scheduler": lr_scheduler.ReduceLROnPlateau(optimizer)}, NotImplementedError, "scheduler: ReduceLROnPlateau steps by a score"),
        ({"scheduler": object()}, TypeError, "scheduler: object is no scheduler of torch's"),
        ({"scheduler": lr_scheduler.StepLR(other, 1)}, ValueError, "scheduler: it is not of the optimizer that is given"),
        ({"scheduler": lr_scheduler.StepLR(optimizer, 1), "schedule_every": "batch"}, ValueError, "schedule_every: 'batch'; give"),
        ({"clip_norm": -1}, ValueError, "clip_norm: -1 is no norm"),
        ({"autocast": "float16"}, NotImplementedError, 'autocast: float16; give "bfloat16"'),
    ]:
        with pytest.raises(error, match=message):
            morphgl.train(learnable, module, optimizer, epochs=1, **options, **OPTIONS)
