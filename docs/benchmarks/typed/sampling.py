#!/usr/bin/env python3
"""Speed of sampling by edge type: MorphGL beside DGL's sampler of heterogeneous graphs and GraphBolt, on one thread each, in turns.

Usage: sampling.py data DIR [--scale 1.0]
       sampling.py compare DIR --python VENV/bin/python --out FILE [--rounds 7] [--isa LEVEL] [--peers dgl,graphbolt] [--binary FILE]
data writes a dataset of the sizes of ogbn-mag (1.9 million nodes of four types, 21 million edges of four types and their reverses;
ends of edges are drawn with probabilities that fall off as a power law) to DIR/mag-like, needing numpy and xxhash. compare samples
mini-batches of 1024 training papers with 15 and 10 neighbours per edge type, expanding all nodes found so far; every round measures
each system once, in an order that is reversed after each, and peers are processes that stay. FILE gets a line of JSON per
measurement, with the cores that other programs kept busy; the table has medians, and of the rounds' ratios the median, least and most.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parents[3]
NODES = {"author": 1_134_649, "field_of_study": 59_965, "institution": 8_740, "paper": 736_389}
EDGES = {("author", "affiliated_with", "institution"): 1_043_998, ("author", "writes", "paper"): 7_145_660,
         ("paper", "cites", "paper"): 5_416_271, ("paper", "has_topic", "field_of_study"): 7_505_078}
TRAIN, BATCH, FANOUTS = 629_571, 1024, [15, 10]
PEERS_AT_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def data(args):
    import numpy as np
    import xxhash
    rng = np.random.default_rng(7)
    counts = {name: max(1, int(count * args.scale)) for name, count in NODES.items()}
    starts = dict(zip(counts, np.cumsum([0, *counts.values()])))
    types, parts = [], []
    for (source, name, target), count in EDGES.items():
        # Ends by a power of a uniform number: the density falls off as rank^(-1/2) for sources, and ^(-2/3) for targets.
        ends = [starts[kind] + (counts[kind] * rng.random(int(count * args.scale)) ** power).astype(np.int64)
                for kind, power in ((source, 2), (target, 3))]
        for kind, (a, b) in ((dict(source=source, name=name, target=target), ends),
                             (dict(source=target, name=f"rev_{name}", target=source), ends[::-1])):
            parts.append((a, b, np.full(len(a), len(types), np.uint16)))
            types.append(kind)
    source, target, of = (np.concatenate(arrays) for arrays in zip(*parts))
    num_nodes = sum(counts.values())
    order = np.lexsort((source, of, target))
    indptr = np.zeros(num_nodes + 1, np.uint64)
    np.cumsum(np.bincount(target, minlength=num_nodes), out=indptr[1:])
    papers = starts["paper"] + rng.permutation(counts["paper"])[:int(TRAIN * args.scale)]
    arrays = {"indptr": indptr, "indices": source[order].astype(np.uint32), "edge_types": of[order], "train": papers.astype(np.uint32)}
    folder = args.dir / "mag-like"
    folder.mkdir(parents=True)
    described = {}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        described[name] = dict(file=f"{name}.npy", dtype=f"u{8 * array.itemsize}", shape=list(array.shape),
                               xxh3=xxhash.xxh3_64_hexdigest(array.tobytes()))
    nodes = [dict(name=name, count=count) for name, count in counts.items()]
    text = dict(format="morphgl-dataset", version=2, name="mag-like", num_nodes=num_nodes, num_edges=len(source), num_classes=0,
                arrays=described, types=dict(nodes=nodes, edges=types))
    (folder / "graph.json").write_text(json.dumps(text, indent=1))
    print(f"{folder}: {num_nodes} nodes, {len(source)} edges of {len(types)} types")


def peer(args):
    """Measures one system on demand: reads a line from standard input, measures a round, prints a line of JSON; ends with it."""
    warnings.filterwarnings("ignore")
    os.environ["DGLBACKEND"] = "pytorch"
    import numpy as np
    import torch
    import dgl
    torch.set_num_threads(1)
    folder = args.dir / "mag-like"
    types = json.loads((folder / "graph.json").read_text())["types"]
    load = lambda name: np.load(folder / f"{name}.npy")
    indptr, indices, of, train = (load(name) for name in ("indptr", "indices", "edge_types", "train"))
    starts = dict(zip((node["name"] for node in types["nodes"]), np.cumsum([0, *(node["count"] for node in types["nodes"])])))
    counts = {node["name"]: node["count"] for node in types["nodes"]}
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr.astype(np.int64)))
    edges = {}
    for number, edge in enumerate(types["edges"]):
        mine = of == number
        ends = (indices[mine].astype(np.int64) - starts[edge["source"]], target[mine] - starts[edge["target"]])
        edges[edge["source"], edge["name"], edge["target"]] = tuple(map(torch.from_numpy, ends))
    graph = dgl.heterograph(edges, counts).formats(["coo", "csc"])
    seeds = torch.from_numpy(train.astype(np.int64) - starts["paper"])
    if args.peer == "dgl":
        from dgl.dataloading import DataLoader, NeighborSampler
        loader = DataLoader(graph, {"paper": seeds}, NeighborSampler(FANOUTS[::-1]), batch_size=BATCH, shuffle=True)
        size = lambda batch: sum(block.num_edges() for block in batch[2])
    else:
        import dgl.graphbolt as gb
        items = gb.ItemSetDict({"paper": gb.ItemSet(seeds, names="seed_nodes")})
        pipe = gb.ItemSampler(items, batch_size=BATCH, shuffle=True)
        # One number would count the neighbours of all types together.
        fanouts = [torch.full((len(edges),), k) for k in FANOUTS]
        loader = gb.DataLoader(pipe.sample_neighbor(gb.from_dglgraph(graph), fanouts))
        size = lambda batch: sum(len(csc.indices) for layer in batch.sampled_subgraphs for csc in layer.sampled_csc.values())
    batches = iter(loader)
    next(batches)
    print(json.dumps({"ready": {"torch": torch.__version__, "dgl": dgl.__version__}}), flush=True)
    for _ in sys.stdin:
        start, count = time.perf_counter(), 0
        for _ in range(args.batches):
            count += size(next(batches))
        seconds = time.perf_counter() - start
        print(json.dumps({"rate": args.batches / seconds, "edges_per_batch": count / args.batches}), flush=True)


def busy():
    fields = [int(v) for v in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def compare(args):
    environment = {k: v for k, v in os.environ.items() if k not in PEERS_AT_AVX2}
    environment |= {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    theirs = {**environment, **(PEERS_AT_AVX2 if args.isa == "avx2" else {})}
    ours = {**environment, **({"MORPHGL_ISA": args.isa} if args.isa else {})}
    command = [args.binary.resolve(), "bench", "sample", args.dir / "mag-like", "--sampler", "typed", "--fanouts",
               ",".join(map(str, FANOUTS)), "--batch-size", BATCH, "--threads", 1, "--batches", 40, "--repeats", 1, "--quiet", "--json"]

    def measure_ours():
        document = json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, env=ours, check=True).stdout)
        return {"rate": document["median"], "edges_per_batch": document["edges_per_batch"], "isa": document["isa"],
                "versions": document["versions"]}

    processes = {}
    for name in args.peers.split(","):
        started = [args.python, __file__, "peer", args.dir, "--peer", name]
        processes[name] = subprocess.Popen(list(map(str, started)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=theirs)
        print(name, json.loads(processes[name].stdout.readline())["ready"], file=sys.stderr)

    def measure(name):
        if name == "morphgl":
            return measure_ours()
        print(file=processes[name].stdin, flush=True)
        return json.loads(processes[name].stdout.readline())

    rates = {name: [] for name in ("morphgl", *processes)}
    for number in range(args.rounds):
        for name in list(rates)[::-1] if number % 2 else rates:
            before, start = busy(), time.perf_counter()
            found = measure(name)
            seconds = time.perf_counter() - start
            # Of a batch that took the process itself one core.
            rates[name].append(found["rate"] * found["edges_per_batch"])
            with open(args.out, "a") as out:
                print(json.dumps({"system": name, "round": number, "limit": args.isa or "none", "load1": os.getloadavg()[0],
                                  "busy_cores": (busy() - before) / seconds, **found}), file=out)
    for process in processes.values():
        process.stdin.close()
        process.terminate()
    ours = rates.pop("morphgl")
    print("| MorphGL, M edges/s | peer | M edges/s | ratio of the rounds, median (least–most) |\n|---|---|---|---|")
    for name, theirs in rates.items():
        ratios = [a / b for a, b in zip(ours, theirs)]
        print(f"| {statistics.median(ours) / 1e6:.1f} | {name} | {statistics.median(theirs) / 1e6:.2f} | "
              f"**{statistics.median(ratios):.1f}** ({min(ratios):.1f}–{max(ratios):.1f}) |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["data", "compare", "peer"])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--python")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/morphgl")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--isa", choices=["portable", "avx2", "avx512", "amx"])
    parser.add_argument("--peers", default="dgl,graphbolt")
    parser.add_argument("--peer", choices=["dgl", "graphbolt"])
    parser.add_argument("--batches", type=int, default=10)
    args = parser.parse_args()
    {"data": data, "compare": compare, "peer": peer}[args.what](args)
