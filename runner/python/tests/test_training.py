"""The commands as functions, and MorphGL's own models."""

import json
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import morphgl
from morphgl import Graph, Model

SMALL = {"num_neighbors": [5, 5], "batch_size": 64, "hidden": 16, "threads": 2}


@pytest.fixture(scope="module")
def learnable():
    """A graph whose neighbours are mostly of the same class."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 4, 1200)
    same = [rng.choice(np.flatnonzero(y == y[v]), 6) for v in range(1200)]
    sources = np.concatenate([np.concatenate(same), rng.integers(0, 1200, 2400)])
    targets = np.concatenate([np.repeat(np.arange(1200), 6), rng.integers(0, 1200, 2400)])
    x = rng.standard_normal((1200, 10), dtype=np.float32) + np.eye(4, 10, dtype=np.float32)[y]
    nodes = rng.permutation(1200)
    return Graph.from_numpy(np.stack([sources, targets]), x, y.astype(np.int32), train=nodes[:600], valid=nodes[600:900],
                            test=nodes[900:])


def test_operators_and_routes():
    ops = morphgl.ops()
    keys = {operator.key: operator for operator in ops.operators}
    assert {"Batching_CPU_Neighbor", "Training_CPU_Native", "Training_CPU_Torch"} <= keys.keys()
    torch = keys["Training_CPU_Torch"]
    assert not torch.available and torch.reason == "give a torch module to morphgl.train"
    assert ops.isa in ("portable", "avx2", "avx512", "amx") and ops.machine["cores"] >= 1
    assert any(route.training == "Training_CPU_Native" for route in ops.routes)


def test_profile_and_plan(learnable):
    profile = morphgl.profile(learnable, "gcn", **SMALL)
    assert profile.num_batches == 10 and profile.routes[0]["training"][0]["seconds"]["mean"] > 0
    planned = morphgl.plan(learnable, "gcn", **SMALL)
    assert planned.plan.epoch_seconds >= planned.plan.bound_seconds > 0
    assert planned.plan.epoch_seconds == min(plan["prediction"]["epoch_seconds"] for plan in planned.plans)


def test_optimizers_and_schedules(learnable):
    done = morphgl.train(learnable, "sage", "sgd", momentum=0.9, nesterov=True, clip_norm=1.0, lr=0.1, lr_schedule="cosine", warmup=1,
                         epochs=6, **SMALL)
    optimizer = done.document["optimizer"]
    assert (optimizer["kind"], optimizer["momentum"], optimizer["clip_norm"]) == ("sgd", 0.9, 1.0)
    assert 0 < optimizer["last_lr"] < 0.1 and optimizer["schedule"]["epochs"] == 6
    assert done.epochs[-1].loss < done.epochs[0].loss
    with pytest.raises(ValueError, match="--momentum: adamw has moments of its own"):
        morphgl.train(learnable, "sage", optimizer="adamw", momentum=0.9, epochs=1, **SMALL)
    with pytest.raises(ValueError, match="an optimizer by name"):
        morphgl.train(learnable, "sage", object(), epochs=1, **SMALL)


def test_a_function_is_called_after_each_epoch_and_may_end_training(learnable):
    seen = []
    done = morphgl.train(learnable, "sage", epochs=5, on_epoch=seen.append, **SMALL)
    assert [epoch.epoch for epoch in seen] == [0, 1, 2, 3, 4] and done.ended == "epochs"
    assert [(epoch.loss, epoch.valid_accuracy) for epoch in seen] == [(epoch.loss, epoch.valid_accuracy) for epoch in done.epochs]
    assert seen[0].valid_score is None
    scores = []
    done = morphgl.train(learnable, "sage", epochs=9, score="macro-f1", on_epoch=lambda epoch: scores.append(epoch.valid_score) or epoch.epoch == 2, **SMALL)
    assert len(done.epochs) == len(scores) == 3 and done.ended == "requested" and done.best_valid_score == max(scores)
    # As early stopping: the best model is kept and scored.
    assert morphgl.evaluate(learnable, done.model)["test"].accuracy == pytest.approx(done.test_accuracy)

    def fails(epoch):
        if epoch.epoch == 1:
            raise KeyError("of the caller's")

    with pytest.raises(KeyError, match="of the caller's"):
        morphgl.train(learnable, "sage", epochs=5, on_epoch=fails, **SMALL)
    with pytest.raises(TypeError, match="on_epoch: it returned int; return True to end training"):
        morphgl.train(learnable, "sage", epochs=5, on_epoch=lambda epoch: 1, **SMALL)


def test_a_run_that_a_function_ended_is_done_and_may_go_on(learnable, tmp_path):
    learnable.save(tmp_path / "g")
    # The same operator, whatever is the faster one beside other programs.
    options = {**SMALL, "threads": 1, "plan": "sequential", "training": "Training_CPU_Native"}
    morphgl.train(tmp_path / "g", "sage", epochs=6, run=tmp_path / "run", on_epoch=lambda epoch: epoch.epoch == 2, **options)
    assert len(morphgl.train(None, "sage", resume=tmp_path / "run").epochs) == 3
    done = morphgl.train(None, "sage", resume=tmp_path / "run", epochs=5)
    whole = morphgl.train(tmp_path / "g", "sage", epochs=5, **options)
    assert [epoch.loss for epoch in done.epochs] == [epoch.loss for epoch in whole.epochs]


def test_train_evaluate_predict(learnable, tmp_path):
    done = morphgl.train(learnable, "sage", epochs=12, lr=0.01, evaluate_every=4, **SMALL)
    assert len(done.epochs) == 12 and done.ended == "epochs" and done.epochs[-1].loss < done.epochs[0].loss
    assert done.test_accuracy > 0.7 and done.epochs[3].valid_accuracy is not None and done.epochs[2].valid_accuracy is None
    scores = morphgl.evaluate(learnable, done.model)
    assert scores["test"].nodes == 300 and scores["test"].accuracy == pytest.approx(done.test_accuracy)
    predicted = morphgl.predict(learnable, done.model, nodes="test")
    right = learnable.y[predicted.nodes] == predicted.classes
    assert right.mean() == pytest.approx(done.test_accuracy) and (predicted.probabilities <= 1).all()
    some = morphgl.predict(learnable, done.model, nodes=np.array([3, 1, 700]))
    whole = morphgl.predict(learnable, done.model)
    assert some.nodes.tolist() == [3, 1, 700] and (some.classes == whole.classes[[3, 1, 700]]).all()
    done.model.save(tmp_path / "model.safetensors")
    loaded = Model.load(tmp_path / "model.safetensors")
    assert loaded.spec == done.model.spec and all((loaded.arrays[name] == values).all() for name, values in done.model.arrays.items())
    # Without a step the model is the one given.
    same = morphgl.train(learnable, "sage", init=loaded.arrays, epochs=0, **SMALL)
    assert all((same.model.arrays[name] == values).all() for name, values in loaded.arrays.items())


def test_training_and_evaluation_by_other_scores(learnable):
    done = morphgl.train(learnable, "sage", epochs=3, score="macro-f1", **SMALL)
    values = [epoch.document["valid_score"] for epoch in done.epochs]
    assert done.score == "macro-f1" and done.best_valid_score == max(values) == values[done.best_epoch]
    scores = morphgl.evaluate(learnable, done.model, score=["macro-f1", "roc-auc"])
    assert scores["valid"].scores["macro-f1"] == pytest.approx(done.best_valid_score)
    assert 0.5 < scores["test"].scores["roc-auc"] <= 1
    assert morphgl.evaluate(learnable, done.model)["test"].scores == {}
    with pytest.raises(ValueError, match="macro-f1"):
        morphgl.train(learnable, "sage", epochs=1, score="f1", **SMALL)


def test_the_command_trains_alike(learnable, tmp_path):
    binary = os.environ.get("MORPHGL_BINARY")
    if not binary:
        pytest.skip("MORPHGL_BINARY names no morphgl command")
    learnable.save(tmp_path / "graph")
    options = ["--model=gcn", "--training=Training_CPU_Native", "--fanouts=5,5", "--batch-size=64", "--hidden=16", "--epochs=3",
               "--plan=sequential", "--threads=1", "--json", "--quiet"]
    command = json.loads(subprocess.run([binary, "train", tmp_path / "graph", *options], check=True, capture_output=True).stdout)
    options = {**SMALL, "threads": 1, "epochs": 3, "plan": "sequential", "training": "Training_CPU_Native"}
    for graph in (learnable, str(tmp_path / "graph"), Graph.open(tmp_path / "graph")):
        here = morphgl.train(graph, "gcn", **options)
        assert [epoch.loss for epoch in here.epochs] == [epoch["loss"] for epoch in command["epochs"]]
        assert here.test_accuracy == command["test_accuracy"]


def test_a_run_is_kept_and_resumed(learnable, tmp_path):
    with pytest.raises(ValueError, match=r"run: .*save it with graph.save"):
        morphgl.train(learnable, "gcn", run=tmp_path / "run", **SMALL)
    learnable.save(tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    # The training operator is given: which one is fastest is measured in each run, and they differ in the last digits.
    options = {**SMALL, "training": "Training_CPU_Native"}
    whole = morphgl.train(graph, "gcn", epochs=6, **options)
    morphgl.train(graph, "gcn", run=tmp_path / "run", epochs=3, **options)
    assert {"report.html", "trace.json", "model.safetensors"} <= set(os.listdir(tmp_path / "run"))
    resumed = morphgl.train(resume=tmp_path / "run", epochs=6)
    assert [epoch.loss for epoch in resumed.epochs][-3:] == [epoch.loss for epoch in whole.epochs][-3:]
    assert all((resumed.model.arrays[name] == values).all() for name, values in whole.model.arrays.items())


def test_wrong_options_name_themselves(learnable):
    for options, message in [
        ({"num_neighbors": [5], "layers": 2}, "--fanouts 5: 1 hops for a model of 2 layers"),
        ({"hiden": 16}, "hiden"),
        ({"training": "Training_CPU_Native", "attention_dropout": 0.1}, "--attention-dropout"),
        ({"dropout": 2.0}, "--dropout: 2 is not a share"),
        ({"training": "Training_CPU_Torch"}, "give a torch module to morphgl.train"),
        ({"batch_size": 0}, "--batch-size"),
        ({"sampler": "labor"}, "(?s)labor.*neighbor, shadow, walk"),
        ({"sampler_option": {"layer_dependency": True}}, '--sampler-option: sampler neighbor: "layer_dependency" is none of its options'),
    ]:
        with pytest.raises(ValueError, match=message):
            morphgl.train(learnable, "sage", epochs=1, **options)
    with pytest.raises(ValueError, match='"sage" has mini-batches of its own, and an optimizer by name'):
        morphgl.train(learnable, "sage", object())
    with pytest.raises(RuntimeError, match="a custom model is trained by the operator that brings it"):
        morphgl.train(learnable, "custom", epochs=1)
    with pytest.raises((ValueError, RuntimeError), match="missing.safetensors"):
        morphgl.evaluate(learnable, "missing.safetensors")


def test_two_commands_at_once_and_ctrl_c(learnable, tmp_path):
    beside_it = []
    learnable.save(tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")

    def beside():
        # Training has begun when it writes into its directory.
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            time.sleep(0.02)
        try:
            beside_it.append(morphgl.train(learnable, "gcn", epochs=2, **SMALL))
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    before = len(os.listdir("/proc/self/task"))
    thread = threading.Thread(target=beside, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        morphgl.train(graph, "gcn", epochs=1_000_000, evaluation="none", run=tmp_path / "run", **SMALL)
    thread.join()
    assert [len(run.epochs) for run in beside_it] == [2]
    # Threads of the shared pool of loops stay.
    assert len(os.listdir("/proc/self/task")) <= before + 4
    # A stop is of one command alone.
    assert len(morphgl.train(learnable, "gcn", epochs=2, **SMALL).epochs) == 2


def test_two_sessions_in_two_threads_have_the_bits_of_each_alone(learnable):
    def train(seed):
        run = morphgl.train(learnable, "sage", epochs=4, seed=seed, training="Training_CPU_Native", plan="sequential", **SMALL)
        return [epoch.loss for epoch in run.epochs]

    alone = [train(seed) for seed in (1, 2)]
    beside = [None, None]

    def session(i):
        beside[i] = train(i + 1)

    threads = [threading.Thread(target=session, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert beside == alone and alone[0] != alone[1]


def test_models_that_this_package_does_not_train_say_what_does(learnable):
    for model, options, what in [("gin", {}, "gin"), ("gat", {"attention": "gatv2"}, "attention gatv2"),
                                 ("sage", {"normalization": "layer"}, "layer normalization"),
                                 ("sage", {"normalization": "batch"}, "batch normalization"), ("sage", {"l2_normalize": True}, "l2_normalize")]:
        with pytest.raises(RuntimeError, match=f"Training_CPU_Native does not do {what}; give .*torch module") as refused:
            morphgl.train(learnable, model, epochs=1, training="Training_CPU_Native", **{**SMALL, **options})
        assert "Burn" not in str(refused.value), "an operator that the wheel does not have"


def test_models_and_losses_of_other_crates_are_named_to_the_command(monkeypatch):
    class Named(Exception):
        pass

    def run(words, *_):
        assert {"--model=gated", "--model-option=aggregation=mean", "--loss=focal", "--loss-option=gamma=1.5"} <= set(words)
        raise Named

    monkeypatch.setattr(morphgl.commands._morphgl, "run", run)
    with pytest.raises(Named):
        morphgl.train(None, "gated", model_option={"aggregation": "mean"}, loss="focal", loss_option={"gamma": 1.5})


def test_what_train_does_not_take_is_refused_by_name(learnable):
    for name in ("scheduler", "autocast"):
        with pytest.raises(NotImplementedError, match=f'{name}: "sage" is one of MorphGL.s own models; '):
            morphgl.train(learnable, "sage", **{name: object()})
    for name in ("loss", "decoder"):
        with pytest.raises(NotImplementedError, match=f'{name}: "sage" is trained by one by name'):
            morphgl.train(learnable, "sage", **{name: object()})
    with pytest.raises(ValueError, match="hiden: no such option; did you mean hidden?"):
        morphgl.train(learnable, "sage", hiden=16)


def test_results_print_as_a_line(learnable):
    done = morphgl.train(learnable, "sage", epochs=1, **SMALL)
    batch = next(iter(morphgl.NeighborLoader(learnable, [3], 50, output="numpy")))
    results = [done, done.model, done.plan, done.epochs[0], morphgl.predict(learnable, done.model), morphgl.ops(),
               morphgl.profile(learnable, **SMALL), morphgl.plan(learnable, **SMALL), morphgl.evaluate(learnable, done.model)["test"], batch,
               batch.blocks[0]]
    for result in results:
        assert len(repr(result)) < 700 and "\n" not in repr(result) and "array(" not in repr(result), type(result)
    assert repr(results[4]) == ("Predictions(nodes=int64[1200], classes=int64[1200], probabilities=float64[1200], class_names=None, "
                                "outputs=None, columns=None, times=None, pairs=None)")
    assert f"test_accuracy={done.test_accuracy:.6g}" in repr(done)
