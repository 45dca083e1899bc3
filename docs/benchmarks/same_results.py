#!/usr/bin/env python3
"""Whether two builds of morphgl compute the same: losses, accuracies, predictions and datasets of sixteen jobs, bit for bit.

    same_results.py --old OLD_BINARY --new NEW_BINARY

Every job runs with both builds (a group of trainers only where there are two devices, as with MORPHGL_EMULATION=devices=2; ranks only
with --ranks), and its figures are compared as they stand in `--json`: no tolerance. Training operators are
named, since which of them is faster may differ from run to run. Exits with 1 where a job differs."""

import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

# A plan that is asked for is kept. A new plan in mid-epoch changes the order in which losses are added, and their last bit.
SMALL = ["--epochs", "2", "--hidden", "32", "--batch-size", "512", "--profile-seconds", "0.2", "--plan", "pipeline"]
NATIVE = ["--training", "Training_CPU_Native"]
BURN = ["--training", "Training_CPU_Burn"]


def run(binary, *arguments, ranks=1):
    mpi = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run([*mpi, binary, *arguments, "--json", "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{binary} {' '.join(arguments)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def losses(binary, *arguments, ranks=1):
    report = run(binary, "train", *arguments, ranks=ranks)
    epochs = [(e["loss"], e["train_accuracy"], e["valid_loss"], e["valid_accuracy"]) for e in report["epochs"]]
    return epochs, report["test_loss"], report["test_accuracy"]


def checksums(binary, dataset):
    arrays = run(binary, "info", dataset)["arrays"]
    return sorted((name, a["shape"], a["xxh3"]) for name, a in arrays.items())


def jobs(binary, folder, ranks):
    """Yields each job's name and figures."""
    sbm, rmat, edges = (str(folder / name) for name in ("sbm", "rmat", "edges"))
    run(binary, "generate", "sbm", "-o", sbm, "--nodes", "20000", "--seed", "5")
    yield "generate sbm", checksums(binary, sbm)
    run(binary, "generate", "rmat", "-o", rmat, "--nodes", "30000", "--degree", "8", "--seed", "5")
    yield "generate rmat", checksums(binary, rmat)
    lines = (f"{i * 7919 % 5003}\t{i * 104729 % 4999}\t{(i % 97) / 8}\n" for i in range(40000))
    (folder / "edges.tsv").write_text("".join(lines))
    run(binary, "import", "edges", str(folder / "edges.tsv"), "-o", edges, "--symmetrise", "--random-features", "16",
        "--random-labels", "4", "--split", "0.6,0.2,0.2")
    yield "import edges, weighted", checksums(binary, edges)
    model = str(folder / "model.safetensors")
    yield "sage, native", losses(binary, sbm, *SMALL, *NATIVE, "--save", model)
    yield "gcn, native, all neighbours", losses(binary, sbm, *SMALL, *NATIVE, "--model", "gcn", "--fanouts=-1,-1")
    yield "gat, native", losses(binary, sbm, *SMALL, *NATIVE, "--model", "gat", "--fanouts", "10,5", "--heads", "4")
    yield "mlp, native", losses(binary, sbm, *SMALL, *NATIVE, "--model", "mlp")
    yield "gin, burn", losses(binary, sbm, *SMALL, *BURN, "--model", "gin", "--fanouts", "5,5")
    yield "sage, weighted, new nodes alone", losses(binary, edges, *SMALL, *NATIVE, "--weighted", "--expansion", "new")
    disk = ["--batching", "Batching_CPU+Disk_Neighbor", "--evaluation", "sampled"]
    yield "sage, sampled from disk", losses(binary, sbm, *SMALL, *NATIVE, *disk, "--fanouts", "10,5")
    predicted = run(binary, "predict", model, sbm)
    yield "predictions", hashlib.sha256(json.dumps(predicted, sort_keys=True).encode()).hexdigest()
    # Layers are split between the exact parameters of one step and those of some steps before.
    split = ["--layers", "2", "--fanouts", "5,5", "--threads", "1", "--allow-staleness", "31", "--hot-ratio", "0.5"]
    yield "sage, layers split", losses(binary, sbm, *SMALL[:4], "--batch-size", "64", *NATIVE, *split)
    whole, directory = losses(binary, sbm, "--epochs", "4", *SMALL[2:], *NATIVE), str(folder / "run")
    run(binary, "train", sbm, *SMALL, *NATIVE, "--run", directory)
    resumed = losses(binary, "--resume", directory, "--epochs", "4")
    if resumed != whole:
        sys.exit(f"{binary}: a resumed run has other figures than a whole one: {resumed}, {whole}")
    yield "sage, resumed", resumed
    devices = run(binary, "ops")["machine"]["accelerators"]
    if len(devices) > 1:
        group = ["--plan", "unified", "--shares", "equal", "--exchange", "host", "--training", "Training_CUDA_Native"]
        yield "sage, a group of devices", losses(binary, sbm, *SMALL[:-2], *group, "--evaluation", "sampled")
    else:
        yield "sage, a group of devices: none here, not compared", None
    if ranks:
        yield "sage, two ranks", losses(binary, sbm, *SMALL[:-2], *NATIVE, "--threads", "1", ranks=2)
    sampled = run(binary, "bench", "sample", sbm, "--batch-size", "512", "--seed", "3")
    yield "sampled edges", (sampled["batches"], sampled["edges_per_batch"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="the build to compare with")
    parser.add_argument("--new", required=True, help="the build to check")
    parser.add_argument("--ranks", action="store_true", help="train by two ranks, too: both builds have MPI, and mpirun is there")
    arguments = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
        pairs = zip(*(jobs(binary, pathlib.Path(folder), arguments.ranks) for binary, folder in [(arguments.old, a), (arguments.new, b)]))
        for (name, old), (_, new) in pairs:
            same = old == new
            different += not same
            print(f"{'same' if same else 'DIFFERENT':9}  {name}" + ("" if same else f"\n  {old}\n  {new}"), flush=True)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
