"""`Training_CUDA_Torch`: torch modules trained at the device where they lie, on emulated devices. This torch has none, so that the module
says that it is at one, and views arrays of the device as copies in host memory."""

import pytest

import morphgl
from morphgl import _morphgl
from test_devices import ROUTES, devices  # noqa: F401
from test_module import OPTIONS, Mean, equal
from test_module_of_edges import labelled
from test_training import learnable  # noqa: F401

torch = pytest.importorskip("torch")
from morphgl.module import ModuleTrainer  # noqa: E402

AT_DEVICE = "Training_CUDA_Torch"


@pytest.fixture
def at_device(devices, monkeypatch):  # noqa: F811
    as_it_is = torch.from_dlpack
    seen = []

    def from_dlpack(array):
        if hasattr(array, "to_host"):
            seen.append(array.__dlpack_device__())
            array = array.to_host()
        return as_it_is(array)

    monkeypatch.setattr(torch, "from_dlpack", from_dlpack)
    monkeypatch.setattr(ModuleTrainer, "place", lambda self: "cuda:0")
    return seen


def keys(done):
    return [share["keys"] for share in done.plan.schedule["shares"]]


@pytest.mark.parametrize("options", [{}, {"sampler": "shadow"}, {"evaluation": "sampled"}])
@pytest.mark.parametrize("route", ROUTES)
def test_a_module_at_a_device_has_the_bits_of_one_on_the_host(learnable, at_device, route, options):  # noqa: F811
    options = {**OPTIONS, "epochs": 2, **options}
    here, there = Mean(dropout=0.3), Mean(dropout=0.3)
    expected = morphgl.train(learnable, here, training="Training_CPU_Torch", **options)
    at_device.clear()
    kind = "Shadow" if options.get("sampler") else "Neighbor"
    batching, transferring = (operator.format(kind) for operator in route)
    made = morphgl.train(learnable, there, batching=batching, transferring=transferring, **options)
    assert keys(made) == [{"batching": batching, "transferring": transferring, "training": AT_DEVICE}]
    assert (2, 0) in at_device
    assert [epoch.loss for epoch in made.epochs] == [epoch.loss for epoch in expected.epochs]
    assert [epoch.valid_loss for epoch in made.epochs] == [epoch.valid_loss for epoch in expected.epochs]
    assert equal(there, here)


@pytest.mark.parametrize("task, options", [
    ("link", {"task": "link", "embedding": 5}), ("classify", {"on": "edges", "embedding": 5}), ("regress", {"on": "edges", "task": "regress", "embedding": 5})])
def test_links_and_labelled_edges_are_learned_at_a_device(at_device, task, options):
    graph = labelled("classify" if task == "link" else task)
    options = {**OPTIONS, "epochs": 2, **options}
    here, there = Mean(classes=5), Mean(classes=5)
    expected = morphgl.train(graph, here, training="Training_CPU_Torch", **options)
    made = morphgl.train(graph, there, batching="Batching_CUDA+PCIe_Neighbor", transferring="Transferring_CUDA+PCIe_ZeroCopy", **options)
    assert keys(made)[0]["training"] == AT_DEVICE
    assert [epoch.loss for epoch in made.epochs] == [epoch.loss for epoch in expected.epochs]
    assert equal(there, here)


def test_routes_to_the_device_are_found_and_planned(learnable, at_device, tmp_path):  # noqa: F811
    learnable.save(tmp_path / "graph")
    graph = morphgl.Graph.open(tmp_path / "graph")
    options = {**OPTIONS, "plan": "auto", "epochs": 2, "evaluation": "full", "threads": 2}
    made = morphgl.train(graph, Mean(), run=tmp_path / "run", **options)
    assert {share["training"] for share in keys(made)} == {AT_DEVICE}
    assert (2, 0) in at_device and made.test_score is not None
    # The run goes on at the device, and with the model that it made on the host.
    resumed = morphgl.train(None, Mean(), resume=tmp_path / "run", epochs=3)
    assert {share["training"] for share in keys(resumed)} == {AT_DEVICE} and len(resumed.epochs) == 3
    assert morphgl.evaluate(graph, made.model)["test"].accuracy == pytest.approx(made.test_score)


def test_a_module_elsewhere_is_refused_there(learnable, devices, monkeypatch):  # noqa: F811
    assert _morphgl.devices() == ["cuda:0", "cuda:1"]
    for place, operator in (("host", "Training_CPU_Torch"), ("cuda:1", "Training_CPU_Torch"), ("cuda:0", AT_DEVICE)):
        monkeypatch.setattr(ModuleTrainer, "place", lambda self: place)
        assert ModuleTrainer(Mean(), []).operator() == operator
    monkeypatch.setattr(ModuleTrainer, "place", lambda self: "cuda:1")
    with pytest.raises((RuntimeError, ValueError), match='the module lies at cuda:1, not at cuda:0; give training="Training_CPU_Torch"'):
        morphgl.train(learnable, Mean(), training=AT_DEVICE, epochs=1, **OPTIONS)
