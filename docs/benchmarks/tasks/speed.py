#!/usr/bin/env python3
"""Speed of links: MorphGL's mini-batches of pairs, training steps and ranks beside DGL, PyG and numpy, in turns.

Usage: docs/benchmarks/tasks/speed.py --python VENV/bin/python --arrays DIR --dataset DIR --out FILE [--rounds 7] [--isa LEVEL]
           [--what sample,step,rank] [--threads 1] [--workers 0,2] [--peers dgl,pyg] [--binary FILE] [--ranking FILE] [--numpy PYTHON]
           [--rank-sets DIR]
DIR of --arrays is what the peers' make_data.py writes, --dataset the same graph imported. --ranking is the bench `ranking` of
models/core (`cargo bench -p morphgl-model-core --bench ranking --no-run` prints its path), --rank-sets what rank_sets.py writes: with it
rank measures each set. Every round measures each system once, in an order that is reversed after each; peers are processes that stay, so
that none loads its data in a round. FILE gets a line of JSON per measurement, with the cores that other programs kept busy; the table has
medians, and of the rounds' ratios the median, least and most. --isa avx2 caps peers too, as compare.py does.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# Two layers of GraphSAGE of width 256.
LINKS = "--task link --negatives 5 --fanouts 15,10 --batch-size 1024 --quiet"
PEERS_AT_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "LIBXSMM_TARGET": "hsw",
                 "OPENBLAS_CORETYPE": "Haswell",
                 "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"}


def busy():
    fields = [int(v) for v in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


class Peer:
    """A process that stays, and measures a round whenever it is asked to."""

    def __init__(self, args, environment, python, peer, what, threads, workers, rank_set=None):
        # At AVX-512 numpy chooses its own kernels: a machine may name others for older builds of OpenBLAS.
        self.name = f"{peer}{f', {workers} workers' if workers else ''}"
        command = [python, HERE / "speed_peer.py", "--peer", peer, "--what", what, "--threads", str(threads), "--workers", str(workers)]
        command += ["--arrays", str(args.arrays)] if args.arrays else []
        command += ["--rank-set", str(rank_set)] if rank_set else []
        # Workers prepare four mini-batches before a round begins.
        command += ["--batches", "36"] if workers else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.versions = json.loads(self.process.stdout.readline())["ready"]

    def measure(self):
        print(file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait()


class Morphgl:
    name = "morphgl"

    def __init__(self, args, environment, what, threads, rank_set):
        self.environment, self.what = environment, what
        bench = [args.binary.resolve(), "bench", what, args.dataset, "--threads", threads, *LINKS.split(), "--json"]
        self.command = {"sample": bench + ["--batches", 60, "--repeats", 1],
                        "step": bench + ["--batches", 4, "--repeats", 2, "--embedding", 64],
                        "rank": [args.ranking and args.ranking.resolve(), rank_set or 100_000, 64, 4_096 if rank_set else 1_024, threads, 3]}[what]

    def measure(self):
        done = subprocess.run(list(map(str, self.command)), stdout=subprocess.PIPE, text=True, env=self.environment, check=True).stdout
        if self.what == "rank":
            found = re.search(r"^(\d+) pairs/s .* MRR ([\d.]+)", done, re.M)
            return {"rate": float(found[1]), "unit": "pairs/s", "mrr": float(found[2])}
        document = json.loads(done)
        rate = document["median"] if self.what == "sample" else 1000 / document["median"]
        return {"rate": rate, "unit": "batches/s", "edges_per_batch": document["edges_per_batch"], "isa": document["isa"],
                "cores_own": document["cores_own"], "versions": document["versions"]}

    def end(self):
        pass


def compare(args, what, threads, rank_set=None):
    environment = {k: v for k, v in os.environ.items() if k not in {*PEERS_AT_AVX2, "OPENBLAS_L2_SIZE"}}
    ours = {**environment, **({"MORPHGL_ISA": args.isa} if args.isa else {})}
    theirs = {**environment, **(PEERS_AT_AVX2 if args.isa == "avx2" else {})}
    systems = [Morphgl(args, ours, what, threads, rank_set)]
    if what == "rank":
        systems.append(Peer(args, theirs, args.numpy or args.python, "numpy", what, threads, 0, rank_set))
    else:
        for peer in args.peers.split(","):
            for workers in map(int, args.workers.split(",") if what == "sample" else ["0"]):
                systems.append(Peer(args, theirs, args.python, peer, what, threads, workers))
    rates = {system.name: [] for system in systems}
    label = f"{what} {rank_set.name}" if rank_set else what
    for number in range(args.rounds):
        for system in systems[::-1] if number % 2 else systems:
            before, start, own = busy(), time.perf_counter(), sum(os.times()[:4])
            found = system.measure()
            seconds = time.perf_counter() - start
            rates[system.name].append(found["rate"])
            with open(args.out, "a") as out:
                print(json.dumps({"what": label, "system": system.name, "threads": threads, "round": number, "limit": args.isa or "none",
                                  "load1": os.getloadavg()[0], "busy_cores": (busy() - before) / seconds, **found}), file=out)
    for system in systems:
        system.end()
    ours = rates.pop("morphgl")
    for name, theirs in rates.items():
        ratios = [a / b for a, b in zip(ours, theirs)]
        print(f"| {label} | {threads} | {statistics.median(ours):.1f} | {name} | {statistics.median(theirs):.2f} | "
              f"**{statistics.median(ratios):.1f}** ({min(ratios):.1f}–{max(ratios):.1f}) |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--numpy", help="a Python with a current numpy, for rank [default: that of --python]")
    parser.add_argument("--arrays", type=pathlib.Path)
    parser.add_argument("--dataset", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--ranking", type=pathlib.Path)
    parser.add_argument("--rank-sets", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--isa", choices=["portable", "avx2", "avx512", "amx"])
    parser.add_argument("--what", default="sample,step,rank")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--workers", default="0,2")
    parser.add_argument("--peers", default="dgl,pyg")
    args = parser.parse_args()
    print("| what | threads | MorphGL, per second | peer | per second | ratio of the rounds, median (least–most) |\n|---|---|---|---|---|---|")
    for what in args.what.split(","):
        sets = sorted(args.rank_sets.iterdir()) if what == "rank" and args.rank_sets else [None]
        for threads in args.threads.split(","):
            for rank_set in sets:
                compare(args, what, threads, rank_set)
