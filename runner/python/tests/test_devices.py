"""Mini-batches in a device's memory: emulated devices, whose memory other libraries' streams read at once, or late."""

import ctypes
import gc
import os

import numpy as np
import pytest

from morphgl import Graph, LinkNeighborLoader, NeighborLoader

# The ways to a device, by their operators.
ROUTES = [("Batching_CPU_{}", "Transferring_PCIe_Dma"), ("Batching_CPU_{}", "Transferring_CUDA+PCIe_DmaGather"),
          ("Batching_CUDA+PCIe_{}", "Transferring_CUDA+PCIe_ZeroCopy"), ("Batching_CUDA+PCIe_{}", "Transferring_CPU+PCIe_HostGather")]
KINDS = {"neighbor": ("Neighbor", {}), "weighted": ("Neighbor", {"weighted": True}), "shadow": ("Shadow", {"sampler": "shadow"}),
         "walk": ("Walk", {"sampler": "walk", "layers": 1})}


@pytest.fixture(params=["devices=2", "devices=2,late"])
def devices(request, monkeypatch):
    """A process with two emulated devices, which the native part of the gate has."""
    # Devices that are open keep what they were opened with.
    gc.collect()
    monkeypatch.setenv("MORPHGL_EMULATION", request.param)
    try:
        NeighborLoader(Graph.from_numpy([[0], [1]]), [1], output="dlpack", device="cuda:1", route="Transferring_PCIe_Dma")
    except ValueError as error:
        assert not os.environ.get("MORPHGL_TEST_DEVICES"), error
        pytest.skip(str(error))
    yield request.param
    gc.collect()


@pytest.fixture
def weighted(data):
    rng = np.random.default_rng(3)
    return Graph.from_numpy(**data, edge_weight=rng.random(8000).astype(np.float32) + 0.1)


def loader(graph, **options):
    options = {"num_neighbors": [4, 3], "batch_size": 64, "input_nodes": "train", "output": "dlpack", "shuffle": True, "seed": 5, **options}
    return NeighborLoader(graph, **options)


def on_host(value):
    return None if value is None else np.asarray(value.to_host())


def assert_same(made, expected):
    """A mini-batch's arrays are those of one in host memory, to the bit."""
    for name in ("x", "edge_index", "y", "n_id", "edge_weight", "targets"):
        ours, theirs = on_host(getattr(made, name)), getattr(expected, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and (ours == theirs).all(), name
    for name in ("batch_size", "num_sampled_nodes", "num_sampled_edges"):
        assert getattr(made, name) == getattr(expected, name), name
    assert (made.input_id == expected.input_id).all()
    assert len(made.blocks) == len(expected.blocks)
    for ours, theirs in zip(made.blocks, expected.blocks):
        assert (ours.num_src, ours.num_dst) == (theirs.num_src, theirs.num_dst)
        for name in ("indptr", "indices"):
            assert (on_host(getattr(ours, name)) == getattr(theirs, name)).all(), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_delivers_the_mini_batches_of_the_host(weighted, devices, kind):
    name, options = KINDS[kind]
    expected = loader(weighted, output="numpy", **options)
    for route in ROUTES:
        route = [operator.format(name) for operator in route]
        made = loader(weighted, device="cuda:1", route=route, **options)
        assert made.routes == [(" → ".join(route), None, None)]
        for epoch in range(2):
            expected.set_epoch(epoch), made.set_epoch(epoch)
            batches = list(made)
            assert len(batches) == len(expected) > 3
            for ours, theirs in zip(batches, expected):
                assert ours.n_id.__dlpack_device__() == (2, 1)
                assert_same(ours, theirs)


def test_the_fastest_way_is_measured(graph, devices):
    made = loader(graph, device="cuda")
    assert [name for name, _, _ in made.routes] == [" → ".join(route).format("Neighbor", "Neighbor") for route in sorted(ROUTES)]
    assert all(seconds > 0 and why is None for _, seconds, why in made.routes)
    fastest = min(made.routes, key=lambda route: route[1])[0]
    assert fastest.startswith(made._native.operators[0]) and fastest.endswith(made._native.operators[1])
    again = loader(graph, device="cuda", input_nodes=[7, 3, 9] * 50, seed=4, shuffle=False)
    assert again.routes is made.routes and again._native.operators == made._native.operators
    assert again._native.routes == [(fastest, None, None)], "nothing is timed again"
    for other in ({"batch_size": 33}, {"device": "cuda:1"}, {"device_memory": "1MiB"}):
        assert loader(graph, **{"device": "cuda", **other}).routes is not made.routes
    sampled = loader(graph, device="cuda", route="Batching_CUDA+PCIe_Neighbor")
    assert len(sampled.routes) == 2 and sampled._native.operator == "Batching_CUDA+PCIe_Neighbor"


@pytest.mark.parametrize("dtype", [np.float16, np.uint8])
def test_graphs_of_any_features_and_targets(data, devices, dtype):
    rng = np.random.default_rng(5)
    targets = rng.standard_normal((1000, 3), dtype=np.float32)
    data = {**data, "x": (data["x"] * 9 + 60).astype(dtype), "y": targets}
    for graph in (Graph.from_numpy(**data), Graph.from_numpy(data["edge_index"], train=data["train"], num_nodes=1000)):
        expected = loader(graph, output="numpy", input_nodes=[7, 3, 7, 9] * 40)
        made = loader(graph, device="cuda", input_nodes=[7, 3, 7, 9] * 40, route="Transferring_CUDA+PCIe_ZeroCopy", device_memory="1MiB")
        for ours, theirs in zip(made, expected):
            assert_same(ours, theirs)


def test_a_graph_of_little_device_memory(weighted, devices):
    expected = list(loader(weighted, output="numpy"))
    for memory in (0, 20_000, "64KiB"):
        made = loader(weighted, device="cuda", route="Batching_CUDA+PCIe_Neighbor", device_memory=memory)
        for ours, theirs in zip(made, expected):
            assert_same(ours, theirs)


def test_arrays_outlive_their_mini_batch_and_loader(graph, devices):
    expected = list(loader(graph, output="numpy"))
    made = loader(graph, device="cuda", route="Transferring_PCIe_Dma")
    kept = [(batch.n_id, batch.x, batch.edge_index) for batch in made]
    del made
    gc.collect()
    for (n_id, x, edge_index), theirs in zip(kept, expected):
        assert (on_host(n_id) == theirs.n_id).all() and (on_host(x) == theirs.x).all() and (on_host(edge_index) == theirs.edge_index).all()


def test_epochs_that_are_left_and_two_at_once(graph, devices):
    made, expected = loader(graph, device="cuda", route="Batching_CUDA+PCIe_Neighbor"), loader(graph, output="numpy")
    for _ in made:
        break
    next(iter(expected))
    first, second = iter(made), iter(made)
    theirs = [iter(expected), iter(expected)]
    for _ in range(3):
        assert_same(next(first), next(theirs[0]))
        assert_same(next(second), next(theirs[1]))


def test_a_state_goes_on_between_host_and_device(graph, devices):
    host = loader(graph, output="numpy", seed=11)
    passing = iter(host)
    for _ in range(2):
        next(passing)
    made = loader(graph, device="cuda", seed=None)
    routes = made.routes
    made.load_state_dict(host.state_dict())
    assert made.routes is routes
    for ours, theirs in zip(made, passing, strict=True):
        assert_same(ours, theirs)


class Managed(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def taken(capsule):
    """The tensor of a capsule, which is renamed as libraries do that take it over."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    managed = Managed.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor"))
    assert api.PyCapsule_SetName(capsule, USED) == 0
    return managed


# The name is kept as long as capsules are.
USED = b"used_dltensor"


@pytest.mark.parametrize("devices", ["devices=2"], indirect=True)
def test_other_libraries_take_the_arrays_over(graph, devices):
    """Memory of an emulated device is the host's, and its work is done when it is queued, but for late devices."""
    expected = next(iter(loader(graph, output="numpy")))
    made = next(iter(loader(graph, device="cuda:1", route="Transferring_PCIe_Dma")))
    x = made.x
    assert x.__dlpack_device__() == (2, 1)
    # The default stream without a stream, as of the array API's standard for CUDA; what the capsule keeps outlives all else.
    managed = [taken(x.__dlpack__(**options)) for options in ({}, {"stream": 1}, {"stream": 2}, {"stream": -1}, {"max_version": (1, 0)})]
    x.__dlpack__(stream=1)
    del made, x
    gc.collect()
    for tensor in managed:
        assert list(tensor.device) == [2, 1] and (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
        assert tensor.shape[:tensor.ndim] == list(expected.x.shape) and tensor.strides is None and tensor.byte_offset == 0
        values = np.ctypeslib.as_array(ctypes.cast(tensor.data, ctypes.POINTER(ctypes.c_float)), expected.x.shape)
        assert (values == expected.x).all()
        tensor.deleter(ctypes.addressof(tensor))


def test_what_a_consumer_may_not_ask_is_refused(graph, devices):
    x = next(iter(loader(graph, device="cuda", route="Transferring_PCIe_Dma"))).x
    for stream, error in ((0, "stream: 0 may be either default stream; give 1 or 2"), (-2, "stream: -2 is no stream's address, nor -1")):
        with pytest.raises(ValueError, match=error):
            x.__dlpack__(stream=stream)
    for options in ({"dl_device": (1, 0)}, {"copy": True}):
        with pytest.raises(BufferError, match="viewed without a copy; copy it by to_host"):
            x.__dlpack__(**options)
    with pytest.raises(TypeError, match="the array is at cuda:0; give it to torch.from_dlpack, or copy it by to_host"):
        np.asarray(x)


@pytest.mark.parametrize("options, error, message", [
    ({"device": "cuda:7"}, ValueError, "there is no cuda:7 here: there is cuda:0, cuda:1; leave device out"),
    ({"device": "npu"}, ValueError, "device: 'npu'; give \"cuda\", or \"cuda:1\" for the second one"),
    ({"device": "cuda", "output": "numpy"}, ValueError, "output: numpy has no arrays on devices; give \"dlpack\""),
    ({"device": "cuda", "edge_ids": True}, NotImplementedError, "edge_ids: edges have no numbers on a device"),
    ({"device": "cuda", "memory": "1MiB"}, NotImplementedError, "memory: a graph that is left on disk"),
    ({"device": "cuda", "route": "Transferring_CPU_Host"}, ValueError, "no mini-batches come to cuda:0 by Transferring_CPU_Host; there are Bat"),
    ({"device": "cuda", "route": "fast"}, ValueError, "fast"),
    ({"device": "cuda", "device_memory": "much"}, ValueError, "device_memory: 'much'; give a number of bytes"),
    ({"route": "Transferring_PCIe_Dma"}, ValueError, 'route: mini-batches stay in host memory; give device="cuda", too'),
])
def test_wrong_wishes_are_refused(graph, devices, options, error, message):
    with pytest.raises(error, match=message):
        loader(graph, **{"output": "dlpack", **options})


def test_a_machine_without_devices_says_so(graph, monkeypatch):
    gc.collect()
    monkeypatch.delenv("MORPHGL_EMULATION", raising=False)
    with pytest.raises(ValueError, match="device: there is no cuda:0 here: .*; leave device out for mini-batches in host memory"):
        loader(graph, device="cuda")
    assert on_host(next(iter(loader(graph, device="cpu"))).n_id) is not None


@pytest.fixture
def torch(monkeypatch):
    """torch, which views arrays of a device as copies in host memory: this build of it has no devices."""
    torch = pytest.importorskip("torch")
    as_it_is = torch.from_dlpack
    monkeypatch.setattr(torch, "from_dlpack", lambda array: as_it_is(array.to_host() if hasattr(array, "to_host") else array))
    return torch


def test_tensors_on_a_device_in_the_place_of_pygs(data, devices, torch):
    pyg = pytest.importorskip("torch_geometric.data")
    tensors = {name: torch.from_numpy(data[name]) for name in ("edge_index", "x")}
    source = pyg.Data(**tensors, y=torch.from_numpy(data["y"].astype(np.int64)), pos=torch.rand(1000, 2), mask=torch.rand(1000) < 0.5, name="a graph")
    options = {"input_nodes": torch.from_numpy(data["train"]), "output": "pyg"}
    expected, made = loader(source, **options), loader(source, device="cuda", pin_memory=True, route="Transferring_PCIe_Dma", **options)
    for ours, theirs in zip(made, expected, strict=True):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.to_dict().items():
            assert torch.equal(ours[name], value) if isinstance(value, torch.Tensor) else ours[name] == value, name
    with pytest.raises(NotImplementedError, match="device: edge_attr are attributes of edges, which have no numbers on a device"):
        loader(pyg.Data(**tensors, edge_attr=torch.rand(8000, 2)), device="cuda", **options)


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_pairs_on_a_device(data, graph, devices, torch, mode):
    options = {"num_neighbors": [4, 3], "batch_size": 64, "edge_label_index": data["edge_index"][:, :300], "output": "torch", "seed": 1,
               "neg_sampling": (mode, 2), **({"edge_label": np.arange(300) % 3} if mode == "binary" else {})}
    expected = list(LinkNeighborLoader(graph, **options))
    for route in ROUTES:
        made = LinkNeighborLoader(graph, device="cuda", route=[operator.format("Neighbor") for operator in route], **options)
        for ours, theirs in zip(made, expected, strict=True):
            for name in ("x", "n_id", "edge_index", "edge_label_index", "edge_label", "src_index", "dst_pos_index", "dst_neg_index", "input_id"):
                a, b = getattr(ours, name), getattr(theirs, name)
                assert (a is None) == (b is None) and (a is None or torch.equal(a, b)), name
    with pytest.raises(NotImplementedError, match='output: torch picks ends and labels of pairs; give "torch"'):
        LinkNeighborLoader(graph, **{**options, "output": "dlpack"}, device="cuda")


def test_memory_does_not_grow(graph, devices):
    """Mini-batches of a loader use the memory of those before."""
    made = loader(graph, batch_size=8, device="cuda", route=["Batching_CUDA+PCIe_Neighbor", "Transferring_CUDA+PCIe_ZeroCopy"])
    rss = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    for epoch in range(30):
        for batch in made:
            batch.x.__dlpack__(stream=1)
        if epoch == 9:
            begin = rss()
    # An epoch's mini-batches are a megabyte.
    assert rss() < begin + (8 << 20)
