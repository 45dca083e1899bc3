#!/usr/bin/env python3
"""MorphGL's ranks beside PyG and DGL under DistributedDataParallel, in one run that alternates between them.

  compare.py --morphgl BIN --python VENV/bin/python --data DIR --dataset DIR --out FILE.json
             [--rounds 3] [--epochs 3] [--tcmalloc LIB]

DIR of --data is one of make_data.py, that of --dataset the same graph imported by morphgl. Prints the table of
docs/distributed.md: median and range of the epochs after the first of every run. Every configuration uses the same cores.
"""
import argparse, json, os, statistics, subprocess, sys
from datetime import date

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for name in ("morphgl", "python", "data", "dataset", "out"):
    parser.add_argument("--" + name, required=True)
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--epochs", type=int, default=3, help="of every run; the first does not count")
parser.add_argument("--tcmalloc", help="libtcmalloc_minimal.so.4: runs the peers with it, too")
parser.add_argument("--peers", default="pyg,dgl,dgl-distributed")
args = parser.parse_args()
if args.epochs < 2:
    parser.error("--epochs: the first epoch does not count; give 2 or more")

MORPHGL = ["--model", "sage", "--fanouts", "15,10,5", "--hidden", "256", "--dropout", "0", "--batch-size", "1024", "--lr", "0.003",
           "--evaluation", "none", "--json", "--quiet"]


def last_json(command, env):
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def morphgl(ranks, threads):
    mpirun = ["mpirun", "-n", str(ranks), "--bind-to", "none", "--oversubscribe"] if ranks > 1 else []
    env = dict(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    # --threads is that of a host's ranks together.
    command = [args.morphgl, "train", args.dataset, "--epochs", str(args.epochs), "--threads", str(ranks * threads)]
    d = json.loads(last_json(mpirun + command + MORPHGL, env))
    return [epoch["seconds"] for epoch in d["epochs"]], d["epochs"][-1]["loss"]


def peer(name, ranks, threads, malloc):
    env = dict(OMP_NUM_THREADS=str(threads), **(dict(LD_PRELOAD=args.tcmalloc) if malloc else {}))
    command = [args.python, os.path.join(HERE, "peer.py"), name, args.data, "--ranks", str(ranks), "--threads", str(threads),
               "--epochs", str(args.epochs)]
    # DGL's clients and servers print as they leave.
    lines = [line for line in last_json(command, env).splitlines() if line.startswith("{")]
    d = json.loads(lines[-1])
    return d["seconds"], d["loss"]


runs = []
for ranks, threads in ((2, 1), (1, 2)):
    runs.append(("MorphGL", ranks, threads, lambda r=ranks, t=threads: morphgl(r, t)))
    for name in args.peers.split(","):
        for malloc in (False, True) if args.tcmalloc else (False,):
            title = {"pyg": "PyG", "dgl": "DGL", "dgl-distributed": "dgl.distributed"}[name] + (", tcmalloc" if malloc else "")
            runs.append((title, ranks, threads, lambda n=name, r=ranks, t=threads, m=malloc: peer(n, r, t, m)))

results = {}
for number in range(args.rounds):
    for title, ranks, threads, run in runs:
        seconds, loss = run()
        row = results.setdefault((title, ranks, threads), dict(seconds=[], losses=[]))
        row["seconds"] += seconds[1:]
        row["losses"].append(loss)
        print(f"round {number}: {title}, {ranks} x {threads}: {[round(s, 2) for s in seconds]}, loss {loss:.4f}", file=sys.stderr)
        rows = [dict(what=w, processes=r, threads=t, **row) for (w, r, t), row in results.items()]
        with open(args.out, "w") as file:
            json.dump(dict(date=str(date.today()), load=os.getloadavg()[2], rows=rows), file, indent=1)

print("| processes x threads | | seconds per epoch: median (range) | loss of the last epoch |\n|---|---|---|---|")
for (title, ranks, threads), row in results.items():
    s = row["seconds"]
    print(f"| {ranks} x {threads} | {title} | {statistics.median(s):.2f} ({min(s):.2f}–{max(s):.2f}) | "
          f"{statistics.median(row['losses']):.3f} |")
