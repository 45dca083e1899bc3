#!/usr/bin/env python3
"""Speed of a training step of R-GCN and R-GAT: MorphGL beside DGL, on the same mini-batch, in turns.

Usage: step.py compare DIR --python VENV/bin/python --out FILE --bench PROGRAM [--rounds 5] [--threads 1,2] [--isa LEVEL]
DIR is the dataset that `sampling.py data` writes, PROGRAM the bench `typed` of models/cpu-native (`cargo bench -p
morphgl-training-cpu-native --bench typed --no-run` prints its path), which samples a mini-batch of 1024 papers with 15 and 10
neighbours per edge type, and writes it for the peers. A step is forward, loss, backward and Adam, without dropout; features of 128
columns, 349 classes, two layers. DGL's R-GCN is GraphConv in HeteroGraphConv with one weight of the node's own, or RelGraphConv on the
block as a homogeneous one; its R-GAT is GATConv in HeteroGraphConv. Every round measures each system once, in an order that is
reversed after each, and processes stay. FILE gets a line of JSON per measurement; the table has medians of the rounds' medians, and of
the rounds' ratios the median, least and most.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

MODELS = [dict(kind="rgcn", hidden=64), dict(kind="rgcn", hidden=256), dict(kind="rgat", hidden=256, heads=4)]
PEERS_AT_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def peer(args):
    """Answers each line of standard input, a model, by the median milliseconds of its steps."""
    warnings.filterwarnings("ignore")
    os.environ["DGLBACKEND"] = "pytorch"
    import numpy as np
    import torch
    import dgl
    from dgl.nn.pytorch import GATConv, GraphConv, HeteroGraphConv, RelGraphConv
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    about = json.loads((args.dir / "batch.json").read_text())
    read = lambda name: torch.from_numpy(np.fromfile(args.dir / name, np.uint32).astype(np.int64))
    names = [node["name"] for node in about["types"]["nodes"]]
    edges = [(edge["source"], edge["name"], edge["target"]) for edge in about["types"]["edges"]]
    ends = torch.tensor([node["count"] for node in about["types"]["nodes"]]).cumsum(0)
    nodes = read("input_nodes")
    node_types = torch.searchsorted(ends, nodes, right=True)
    # Position of each input node among those of its type, and their features.
    number = torch.empty_like(nodes)
    for kind in range(len(names)):
        rows = node_types == kind
        number[rows] = torch.arange(int(rows.sum()))
    generator = torch.Generator().manual_seed(1)
    features = 2 * torch.rand(len(nodes), about["dim"], generator=generator) - 1
    labels = torch.arange(about["blocks"][-1][1]) * 7 % about["classes"]
    typed, plain = [], []
    for layer, (num_src, num_dst, _) in enumerate(about["blocks"]):
        indptr, src, of = (read(f"{name}{layer}") for name in ("indptr", "indices", "edge_types"))
        dst = torch.repeat_interleave(torch.arange(num_dst), indptr.diff())
        counts = lambda rows: {name: int((node_types[:rows] == kind).sum()) for kind, name in enumerate(names)}
        by_type = {edge: (number[src[of == e]], number[dst[of == e]]) for e, edge in enumerate(edges)}
        typed.append(dgl.create_block(by_type, num_src_nodes=counts(num_src), num_dst_nodes=counts(num_dst)))
        block = dgl.create_block((src, dst), num_src_nodes=num_src, num_dst_nodes=num_dst)
        # One over the number of the destination's edges of the type.
        group = dst * len(edges) + of
        norm = 1.0 / torch.bincount(group, minlength=num_dst * len(edges))[group].float()
        plain.append((block, of, norm.unsqueeze(1)))
    by_type = {name: features[node_types == kind] for kind, name in enumerate(names)}

    class Typed(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            hidden, self.own = model["hidden"], model["kind"] == "rgcn"
            self.convs, self.roots = torch.nn.ModuleList(), torch.nn.ModuleList()
            for last, (width, out) in enumerate([(about["dim"], hidden), (hidden, about["classes"])]):
                heads = 1 if last else model.get("heads", 1)
                conv = {edge[1]: GraphConv(width, out, norm="right", bias=False, allow_zero_in_degree=True) if self.own else
                        GATConv(width, out // heads, heads, allow_zero_in_degree=True) for edge in edges}
                self.convs.append(HeteroGraphConv(conv, aggregate="sum"))
                self.roots.append(torch.nn.Linear(width, out))

        def forward(self):
            x = by_type
            for layer, (block, conv, root) in enumerate(zip(typed, self.convs, self.roots)):
                out = {name: rows.flatten(1) for name, rows in conv(block, x).items()}
                if self.own:
                    out = {name: rows + root(x[name][:len(rows)]) for name, rows in out.items()}
                x = out if layer else {name: torch.relu(rows) for name, rows in out.items()}
            return x["paper"]

    class Plain(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            widths = [(about["dim"], model["hidden"]), (model["hidden"], about["classes"])]
            self.convs = torch.nn.ModuleList(RelGraphConv(width, out, len(edges)) for width, out in widths)

        def forward(self):
            x = features
            for layer, ((block, of, norm), conv) in enumerate(zip(plain, self.convs)):
                x = conv(block, x, of, norm)
                x = x if layer else torch.relu(x)
            return x

    print(json.dumps({"ready": {"torch": torch.__version__, "dgl": dgl.__version__}}), flush=True)
    for line in sys.stdin:
        model = json.loads(line)
        module = (Plain if args.peer == "RelGraphConv" else Typed)(model)
        optimizer, times = torch.optim.Adam(module.parameters(), lr=0.003), []
        for _ in range(args.steps + 1):
            start = time.perf_counter()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(), labels).backward()
            optimizer.step()
            times.append(1e3 * (time.perf_counter() - start))
        times = sorted(times[1:])
        print(json.dumps({"least": times[0], "median": times[len(times) // 2]}), flush=True)


def compare(args):
    cleared = {k: v for k, v in os.environ.items() if k not in PEERS_AT_AVX2}
    with tempfile.TemporaryDirectory() as folder:
        for threads in args.threads.split(","):
            environment = cleared | {name: threads for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
            ours = environment | ({"MORPHGL_ISA": args.isa} if args.isa else {})
            theirs = environment | (PEERS_AT_AVX2 if args.isa == "avx2" else {})
            commands = {"morphgl": ([args.bench, args.dir, folder, "--threads", threads, "--steps", args.steps], ours)}
            for name in ("HeteroGraphConv", "RelGraphConv"):
                started = [args.python, __file__, "peer", folder, "--peer", name, "--steps", args.steps]
                commands[name] = (started, theirs)
            processes = {}
            for name, (command, env) in commands.items():
                pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                processes[name] = subprocess.Popen(list(map(str, command)), env=env, **pipes)
                print(name, processes[name].stdout.readline().strip(), file=sys.stderr)
            for model in MODELS:
                systems = [name for name in processes if model["kind"] == "rgcn" or name != "RelGraphConv"]
                times = {name: [] for name in systems}
                for number in range(args.rounds):
                    for name in systems[::-1] if number % 2 else systems:
                        print(json.dumps(dict(model, layers=2, dropout=0.0)), file=processes[name].stdin, flush=True)
                        found = json.loads(processes[name].stdout.readline())
                        times[name].append(found["median"])
                        measured = dict(system=name, round=number, threads=int(threads), limit=args.isa or "none", **model)
                        with open(args.out, "a") as out:
                            print(json.dumps({**measured, "load1": os.getloadavg()[0], **found}), file=out)
                for name in systems[1:]:
                    ratios = [b / a for a, b in zip(times["morphgl"], times[name])]
                    print(f"| {model['kind']} {model['hidden']} | {threads} | {args.isa or 'none'} | "
                          f"{statistics.median(times['morphgl']):.0f} | {name} | {statistics.median(times[name]):.0f} | "
                          f"**{statistics.median(ratios):.1f}** ({min(ratios):.1f}–{max(ratios):.1f}) |", flush=True)
            for process in processes.values():
                process.stdin.close()
                process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["compare", "peer"])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--python")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--bench", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--isa", choices=["portable", "avx2", "avx512", "amx"])
    parser.add_argument("--peer", choices=["HeteroGraphConv", "RelGraphConv"])
    args = parser.parse_args()
    {"compare": compare, "peer": peer}[args.what](args)
