#!/usr/bin/env python3
"""PyG's own tests of loaders and samplers, with `morphgl.pyg.Sampler` in the place of PyG's `NeighborSampler`.

    pyg_suite.py --tests DIR [-k EXPRESSION] [FILE…]

DIR is the folder `test` of a checkout of PyG, of the version that is installed or the nearest to it; FILE are files or folders within, by
default those of loaders and samplers, and the tests of models and of `trim_to_layer` that make a `NeighborLoader`. Tests that PyG leaves out
where neither pyg-lib nor torch-sparse is installed run all the same; those of torch-sparse's own matrices do not. Nothing in DIR is changed.

Printed is a line per test: passed, failed, refused (by a message of morphgl's that names what it does not do) or skipped; how often it sampled by
`morphgl.pyg.Sampler` in its own process; and why it was not passed. The exit status is 1 where a test fails. Tests of PyG's stores
(`test/data/test_feature_store.py`, …) write to them, and morphgl's are read alone: they are left out.

This file is a plugin of pytest, too, which the run loads.
"""

import argparse
import importlib
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

WHOLE = ["loader", "sampler"]
# Of these files, the tests that make a NeighborLoader.
PARTS = ["nn/conv/test_pna_conv.py", "nn/models/test_basic_gnn.py", "utils/test_trim_to_layer.py"]
RESULTS = "MORPHGL_PYG_SUITE"
# What PyG's tests read of its typing module to know what pyg-lib does.
ABLE = ("WITH_PYG_LIB", "WITH_WEIGHTED_NEIGHBOR_SAMPLE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE")

calls = 0
# What morphgl said it does not do, by test.
refusals = {}


# ---------------------------------------------------------------- the plugin
def pytest_configure(config):
    if RESULTS not in os.environ:
        return
    import torch_geometric.data.lightning  # noqa: F401  names its sampler, too
    import torch_geometric.loader  # noqa: F401
    import torch_geometric.testing
    from torch_geometric.sampler import NeighborSampler

    ours = counting_sampler()
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_geometric") and vars(module).get("NeighborSampler") is NeighborSampler:
            module.NeighborSampler = ours
    testing = torch_geometric.testing
    with_package = testing.withPackage
    testing.onlyNeighborSampler = lambda test: test
    testing.withPackage = lambda *names: with_package(*(name for name in names if name != "pyg_lib" or "torch_sparse" in names))


def counting_sampler():
    """`morphgl.pyg.Sampler`, whose calls are counted."""
    import morphgl

    class Sampler(morphgl.pyg.Sampler):
        def _sample(self, *arguments, **options):
            global calls
            calls += 1
            return super()._sample(*arguments, **options)

    # Workers that are spawned find it by its name.
    Sampler.__module__, Sampler.__qualname__ = __name__, "Sampler"
    globals()["Sampler"] = Sampler
    return Sampler


def __getattr__(name):
    if name == "Sampler":
        return counting_sampler()
    raise AttributeError(name)


def pytest_collection(session):
    if RESULTS not in os.environ:
        return
    typing = importlib.import_module("torch_geometric.typing")
    session.before = {name: getattr(typing, name) for name in ABLE}
    for name in ABLE:
        setattr(typing, name, True)


def pytest_collection_modifyitems(session, config, items):
    import pytest

    if RESULTS not in os.environ:
        return
    typing = importlib.import_module("torch_geometric.typing")
    for name, value in session.before.items():
        setattr(typing, name, value)
    parts = [item for item in items if any(str(item.path).endswith(name) for name in PARTS)]
    left_out = [item for item in parts if "NeighborLoader" not in inspect.getsource(item.function)]
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        given = [str(getattr(value, "value", value)) for value in getattr(item, "callspec", None) and item.callspec.params.values() or ()]
        if "induced" in given and item.module.__name__.endswith("test_neighbor_loader"):
            if "torch.int32" in given:
                item.add_marker(pytest.mark.skip(reason="PyG's test returns at once"))
            # Else it would return at once without torch-sparse, and count as passed.
            item.module.WITH_TORCH_SPARSE = True


def pytest_runtest_logstart():
    global calls
    calls = 0


def pytest_runtest_makereport(item, call):
    """Has to come before pytest's own, whose report is made of the same `call`."""
    error = call.excinfo.value if call.excinfo is not None else None
    if isinstance(error, NotImplementedError) and f"{os.sep}morphgl{os.sep}" in str(call.excinfo.traceback[-1].path):
        refusals[item.nodeid] = str(error)


def pytest_runtest_logreport(report):
    if RESULTS not in os.environ or (report.when != "call" and report.passed) or report.when == "teardown" and report.skipped:
        return
    refused = refusals.get(report.nodeid) if report.failed else None
    reason = ""
    if report.skipped:
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else f"expected to fail: {report.wasxfail}"
    elif report.failed:
        reason = refused or str(getattr(report.longrepr, "reprcrash", report.longrepr)).splitlines()[0]
    outcome = "refused" if refused else report.outcome
    with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
        file.write(json.dumps({"test": report.nodeid, "outcome": outcome, "calls": calls, "reason": reason}) + "\n")


# ---------------------------------------------------------------- the program
def versions():
    import morphgl
    import torch
    import torch_geometric

    return (f"morphgl {morphgl.__version__}, torch_geometric {torch_geometric.__version__}, torch {torch.__version__}, "
            f"Python {platform.python_version()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=Path, required=True, metavar="DIR", help="the folder `test` of a checkout of PyG")
    parser.add_argument("-k", metavar="EXPRESSION", help="of pytest: tests by name")
    parser.add_argument("files", nargs="*", metavar="FILE", help="files or folders within DIR; by default those of loaders and samplers")
    args = parser.parse_args()
    files = args.files or [*WHOLE, *PARTS]
    missing = [name for name in files if not (args.tests / name).exists()]
    if missing:
        parser.error(f"--tests: {args.tests / missing[0]} does not exist; give the folder `test` of PyG's repository")
    print(versions())
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        results.touch()
        path = os.pathsep.join([str(Path(__file__).resolve().parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", RESULTS: str(results)}
        command = [sys.executable, "-m", "pytest", "-q", "--tb=native", "-p", "no:cacheprovider", "-p", Path(__file__).stem]
        command += ["--rootdir", ".", "-c", os.devnull, *(["-k", args.k] if args.k else [])]
        done = subprocess.run([*command, *files], cwd=args.tests, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    if not rows or done.returncode not in (0, 1):
        sys.exit(f"pytest ended with status {done.returncode}:\n{done.stdout[-4000:]}")
    width = max(len(row["test"]) for row in rows)
    print(f"\n{'test':{width}}  outcome  calls  reason")
    for row in rows:
        print(f"{row['test']:{width}}  {row['outcome']:7}  {row['calls']:5}  {' '.join(row['reason'].split())}".rstrip())
    count = lambda outcome: sum(row["outcome"] == outcome for row in rows)
    by_ours = sum(row["outcome"] == "passed" and row["calls"] > 0 for row in rows)
    print(f"\n{count('passed')} passed ({by_ours} of them sampled by morphgl), {count('failed')} failed, {count('refused')} refused, "
          f"{count('skipped')} skipped")
    sys.exit(1 if count("failed") else 0)


if __name__ == "__main__":
    main()
