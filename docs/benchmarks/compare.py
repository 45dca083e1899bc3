#!/usr/bin/env python3
"""MorphGL and other systems on the same data, in turns, as one table.

  compare.py --peers-dir DIR --python VENV/bin/python [--python NAME=VENV/bin/python …] --data DIR --datasets DIR
             --out DIR [--isa LEVEL] [--what sample,gather,prepare,step,epoch] [--sets arxiv-like,products-like]
             [--threads 1,all] [--models sage,gcn,gat] [--dtypes f32,f16] [--peers NAME,…] [--rounds 5]
             [--budget SECONDS] [--table]

DIR of --peers-dir holds run_peers.py, which says what each peer's measurement is; --data its plain arrays, a directory a
set; --datasets the same sets imported into MorphGL (README.md beside this has the commands), SET-f16 with f16 features.
Several --python are several virtual environments: a peer is measured in each that has it, and called PEER@NAME in the
table. --isa caps MorphGL at a SIMD level, and at avx2 the peers too; rows of other levels and processors are other tables.
Each round measures every system once, in an order that is turned round after each, so that whatever else the machine does
hits all alike; a system's figure is the median of its rounds. Peers are run twice, as they are and with tcmalloc
preloaded, and the better median counts. MorphGL samples by the rule of the peer that it is held against: expanding all
nodes found (DGL, GraphBolt, SALIENT, numpy), or the newly found (PyG).
Every document is kept in OUT/raw.jsonl, and all of that file is in the table, so that a long comparison can be run in
parts: give the same --out again. --table only makes the table. Needs the standard library alone; the peers need theirs.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SHIM = HERE / "pyg-lib-shim"
TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
WHAT = ["sample", "gather", "prepare", "step", "epoch"]
# Peers of each measurement: on one thread, and on several. A loader has as many worker processes beside its own.
PEERS = {
    "sample": (["pyg-sparse", "dgl", "graphbolt", "graphbolt-i32", "numpy"],
               ["pyg-sparse", "dgl", "graphbolt", "graphbolt-i32"]),
    "gather": (["numpy", "pyg", "dgl", "graphbolt"], ["pyg", "dgl", "graphbolt"]),
    "prepare": (["pyg-sparse", "dgl", "graphbolt", "numpy", "dgl-loader", "graphbolt-loader"],
                ["pyg-sparse", "dgl", "graphbolt", "dgl-loader", "graphbolt-loader"]),
    "step": (["pyg", "dgl"], ["pyg", "dgl"]),
    "epoch": (["pyg", "dgl", "graphbolt"], ["pyg", "dgl", "graphbolt"]),
}
WHAT_OF_PEERS = {"epoch": "train"}
LOWER_IS_BETTER = {"step", "epoch"}
# Modules that a peer, by the first word of its name, needs in its environment.
NEEDS = {"dgl": "dgl", "graphbolt": "dgl", "pyg": "torch_geometric", "salient": "fast_sampler", "quiver": "torch_quiver"}
MODULES = [*NEEDS.values(), "torch_sparse", "pyg_lib"]
LEVELS = ["portable", "avx2", "avx512", "amx"]
# What caps peers at AVX2: ATen, oneDNN, MKL, libxsmm (DGL's SpMM), OpenBLAS, numpy 1 and 2 (each ignores the other's names).
# MKL reads its variable on Intel processors alone; on AMD processors it has the speed of AVX2 kernels in any case.
CAPS_AT_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "LIBXSMM_TARGET": "hsw",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
}

Cell = collections.namedtuple("Cell", "what set threads model dtype")
System = collections.namedtuple("System", "name rule preload env", defaults=("",))
# A virtual environment: its name in the table, its interpreter, and those of MODULES that it has.
Environment = collections.namedtuple("Environment", "name python modules")
# What rows of one table have in common: processor, cores, MorphGL's SIMD level, whether peers are capped at that level.
Host = collections.namedtuple("Host", "cpu cores isa peers_capped", defaults=("", False))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    root = HERE.parents[1]
    add("--binary", type=pathlib.Path, default=root / "target/release/morphgl", help="default: the release build")
    add("--python", action="append", metavar="[NAME=]PATH",
        help="of a virtual environment with peers; several are measured side by side, each but one with a NAME")
    add("--peers-dir", type=pathlib.Path, help="directory of run_peers.py")
    add("--data", type=pathlib.Path, help="the peers' arrays")
    add("--datasets", type=pathlib.Path, help="the same data as MorphGL's datasets")
    add("--out", type=pathlib.Path, required=True, help="docs/benchmarks/DATE-MACHINE")
    add("--isa", choices=LEVELS, default=os.environ.get("MORPHGL_ISA") or None,
        help="SIMD level of MorphGL, and at avx2 of the peers too; default: MORPHGL_ISA, or what the processor has")
    add("--what", default=",".join(WHAT))
    add("--sets", default="arxiv-like,products-like")
    add("--threads", default="1,all", help="step and epoch with all threads alone, unless this is given")
    add("--models", default="sage,gcn,gat")
    add("--dtypes", default="f32", help="of features, for gather and prepare")
    add("--peers", default="", help="these alone, where they have the measurement; pyg, salient and others too, "
        "and PEER@NAME for one environment's")
    add("--workers", default="0", help="epoch: worker processes of the peers' loaders; several are tried, and the best counts")
    add("--training", default="", help="MorphGL's training operator for step and epoch, by its key")
    add("--rounds", type=int, default=5)
    add("--batches", type=int, default=24, help="mini-batches per round on large sets for sample and prepare")
    add("--epoch-batches", type=int, default=100, help="the same for epoch")
    add("--large", default="products-like", help="sets that are too large for whole epochs")
    add("--budget", type=float, default=0, help="seconds after which no further run begins")
    add("--limit", type=float, default=900, help="seconds a run may take")
    add("--quiet-below", type=float, default=0, help="wait, a minute at most, until others keep fewer cores busy than this")
    add("--tcmalloc", default=TCMALLOC, help="library to preload; not there, or empty: peers run as they are alone")
    add("--preloaded-alone", action="store_true", help="leave out peers as they are: for runs in which tcmalloc is known to be better")
    add("--table", action="store_true", help="measure nothing, make the table of what was measured before")
    args = parser.parse_args()
    args.explicit_threads = any(a.split("=")[0] == "--threads" for a in sys.argv[1:])
    if unknown := set(args.what.split(",")) - set(WHAT):
        parser.error(f"--what: {', '.join(sorted(unknown))}: there are {', '.join(WHAT)}")
    if not args.table:
        missing = [o for o in ("python", "peers_dir", "data", "datasets") if getattr(args, o) is None]
        if missing:
            parser.error("give " + ", ".join("--" + o.replace("_", "-") for o in missing) + ", or --table")
        args.environments = [environment(python) for python in args.python]
        if len({e.name for e in args.environments}) < len(args.environments):
            parser.error("--python: give each environment but one a NAME of its own")
    args.out.mkdir(parents=True, exist_ok=True)
    if not args.table:
        try:
            compare(args)
        except KeyboardInterrupt:
            say("interrupted: the table is of what was measured")
    text = table(args.out)
    (args.out / "table.md").write_text(text)
    print(text)


# ---------------------------------------------------------------- measuring
def compare(args):
    begin, session = time.monotonic(), int(time.time())
    host = host_of(args)
    failed = {}
    for cell in cells(args, host.cores):
        contestants = systems(args, cell)
        for number in range(args.rounds):
            for system in contestants[::-1] if number % 2 else contestants:
                if args.budget and time.monotonic() - begin > args.budget:
                    say("the budget is used up")
                    return
                if (cell, system) in failed:
                    continue
                wait_until_quiet(args.quiet_below)
                try:
                    records = ours(args, cell, system) if system.name == "morphgl" else theirs(args, host, cell, system)
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                    failed[(cell, system)] = True
                    last = ((error.stderr or b"").decode(errors="replace").strip().splitlines() or ["too slow"])[-1]
                    write(args, {"host": host._asdict(), "cell": cell._asdict(), "system": system._asdict(), "failed": last[:200]})
                    say(f"{show(cell)}: {show_system(system)} failed: {last[:200]}")
                    continue
                for record in records:
                    if record.get("isa", host.isa) != host.isa:
                        sys.exit(f"morphgl ran at {record['isa']}, not at {host.isa}")
                    write(args, {"session": session, "round": number, "host": host._asdict(), "cell": cell._asdict(),
                                 "system": system._asdict(), "record": record})
                best = best_of(cell, [r["median"] for r in records])
                say(f"{show(cell)}, round {number + 1}: {show_system(system)} {best:.4g} {records[0]['unit']}")


def environment(option):
    """The virtual environment that an option [NAME=]PATH stands for."""
    name, equals, python = option.partition("=")
    if not equals or "/" in name:
        name, python = "", option
    code = "import importlib.util, sys; print(*(m for m in sys.argv[1:] if importlib.util.find_spec(m)))"
    found = subprocess.run([python, "-I", "-c", code, *MODULES], check=True, capture_output=True, text=True)
    return Environment(name, python, set(found.stdout.split()))


def host_of(args):
    """The processor and the SIMD level in force; writes both to raw.jsonl and sets MORPHGL_ISA."""
    if args.isa:
        os.environ["MORPHGL_ISA"] = args.isa
    try:
        ops = morphgl(args, "ops")
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr.decode(errors="replace").strip())
    machine, info = ops["machine"], cpuinfo()
    # A virtual machine may call several generations of a processor by one name.
    kind = ", ".join(f"{word} {info[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in info)
    cpu = machine["cpu"] + (f" ({kind})" if kind else "")
    flags = set(info.get("flags", "").split())
    highest = [level for level, flag in zip(LEVELS, (None, "avx2", "avx512f", "amx_bf16")) if flag is None or flag in flags][-1]
    isa = args.isa or ops.get("isa") or machine.get("isa") or highest
    host = Host(cpu, machine["cores"], isa, isa == "avx2" and "avx512f" in flags)
    caps = CAPS_AT_AVX2 if host.peers_capped else {}
    write(args, {"machine": {"cpu": cpu, "cores": machine["cores"], "memory_bytes": machine["memory_bytes"]}, "isa": isa,
                 "peers_environment": caps})
    return host


def cpuinfo():
    """Fields of the first processor in /proc/cpuinfo."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        return {}
    return dict(re.findall(r"^([^\t:]+)\t*: (.*)$", text, re.MULTILINE))


def cells(args, cores):
    """What is measured, one after the other."""
    threads = [cores if t == "all" else int(t) for t in args.threads.split(",")]
    for what in args.what.split(","):
        for name in args.sets.split(","):
            models = args.models.split(",") if what in ("step", "epoch") else [None]
            dtypes = args.dtypes.split(",") if what in ("gather", "prepare") else ["f32"]
            alone = what in ("step", "epoch") and not args.explicit_threads
            for model in models:
                for dtype in dtypes:
                    for t in dict.fromkeys([cores] if alone else threads):
                        yield Cell(what, name, t, model, dtype)


def systems(args, cell):
    """Who is measured: MorphGL by every rule that a peer has, and each peer in each environment with both allocators."""
    peers = PEERS[cell.what][cell.threads > 1]
    asked = args.peers.split(",") if args.peers else []
    if asked:
        known = PEERS[cell.what][0] + PEERS[cell.what][1]
        peers = [p for p in dict.fromkeys(a.partition("@")[0] for a in asked) if p in peers or p not in known]
    preloads = [False, True] if args.tcmalloc and os.path.exists(args.tcmalloc) else [False]
    preloads = preloads[args.preloaded_alone :] or preloads
    found = [System(p, rule_of(cell.what, p), preload, e.name)
             for p in peers for e in environments_of(args, p) if not asked or {p, f"{p}@{e.name}"} & set(asked)
             for preload in preloads]
    rules = dict.fromkeys(s.rule for s in found)
    return [System("morphgl", rule, False) for rule in rules] + found


def environments_of(args, peer):
    """Environments with the modules that the peer imports; else the first, where its failure is recorded. numpy: the first."""
    word = peer.partition("-")[0]
    needed = {NEEDS[word]} if word in NEEDS else set()
    needed |= {"torch_sparse"} if peer == "pyg-sparse" else set()
    return [e for e in args.environments if needed and needed <= e.modules] or args.environments[:1]


def rule_of(what, peer):
    """The expansion rule a peer has; gathering has none."""
    return "" if what == "gather" else "new" if peer.startswith("pyg") else "all"


def count(args, cell):
    """Mini-batches of one repeat, 0 for a whole epoch."""
    if cell.set not in args.large.split(","):
        return 0
    return {"sample": args.batches, "prepare": args.batches, "epoch": args.epoch_batches}.get(cell.what, 0)


def ours(args, cell, system):
    dataset = args.datasets / (cell.set + ("-f16" if cell.dtype == "f16" else ""))
    words = ["bench", cell.what, str(dataset), "--no-verify", "--threads", str(cell.threads), "--repeats", "1"]
    words += ["--expansion", system.rule] if system.rule else []
    words += ["--model", cell.model] if cell.model else []
    words += ["--training", args.training] if args.training and cell.model else []
    words += ["--batches", str(count(args, cell))] if count(args, cell) else []
    if cell.what == "gather":
        # As many repeats, and as many variants, as the peers' harness has.
        words[words.index("--repeats") + 1] = "5"
        return [morphgl(args, *words)] + ([morphgl(args, *words, "--within")] if cell.threads > 1 else [])
    return [morphgl(args, *words)]


def morphgl(args, *words):
    done = subprocess.run([str(args.binary), *words, "--json", "--quiet"], check=True, capture_output=True, timeout=args.limit)
    return json.loads(done.stdout)


def theirs(args, host, cell, system):
    home = next(e for e in args.environments if e.name == system.env)
    words = ["--data", str(args.data / cell.set), "--what", WHAT_OF_PEERS.get(cell.what, cell.what)]
    words += ["--peer", system.name, "--threads", str(cell.threads), "--repeats", "1", "--dtype", cell.dtype]
    words += ["--model", cell.model] if cell.model else []
    words += ["--batches", str(count(args, cell))] if count(args, cell) else []
    # Caps that happen to be set in the environment are removed: OPENBLAS_CORETYPE can halve the speed of numpy's GEMM.
    variables = {k: v for k, v in os.environ.items() if k not in CAPS_AT_AVX2 and k != "OPENBLAS_L2_SIZE"}
    variables |= CAPS_AT_AVX2 if host.peers_capped else {}
    if system.preload:
        variables["LD_PRELOAD"] = args.tcmalloc
    if system.name.startswith("pyg") and cell.model and "pyg_lib" not in home.modules:
        variables["PYTHONPATH"] = str(SHIM)
    ids = args.data / cell.set / "gather_ids.npy"
    script = str(args.peers_dir / "run_peers.py")
    if cell.what == "gather" and not ids.exists():
        subprocess.run([home.python, script, "--data", str(args.data / cell.set), "--what", "ids", "--peer", "numpy"],
                       check=True, capture_output=True, timeout=args.limit)
    records = []
    for workers in args.workers.split(",") if cell.what == "epoch" else [None]:
        extra = ["--workers", workers] if workers else []
        done = subprocess.run([home.python, script, *words, *extra], check=True, capture_output=True, timeout=args.limit,
                              env=variables)
        records += [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
    if not records:
        raise subprocess.CalledProcessError(1, script, stderr=b"it printed no measurement")
    return records


def wait_until_quiet(below):
    """Waits until the rest of the machine keeps fewer cores busy, for a minute at most."""
    end = time.monotonic() + 60
    while below and time.monotonic() < end:
        a, start = busy(), time.monotonic()
        time.sleep(2)
        if (busy() - a) / (time.monotonic() - start) < below:
            return


def busy():
    with open("/proc/stat") as stat:
        ticks = [int(t) for t in stat.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def write(args, record):
    with open(args.out / "raw.jsonl", "a") as raw:
        raw.write(json.dumps(record) + "\n")


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---------------------------------------------------------------- the table
def best_of(cell, values):
    return min(values) if cell.what in LOWER_IS_BETTER else max(values)


class Series:
    """One system's rounds of one cell, its best variant in each, by session and number."""

    def __init__(self, cell, system):
        self.cell, self.system, self.rounds, self.edges, self.others = cell, system, {}, [], []

    def median(self):
        return statistics.median(self.rounds.values())

    def faster_than(self, other):
        return self.median() < other.median() if self.cell.what in LOWER_IS_BETTER else self.median() > other.median()

    def text(self):
        low, high = min(self.rounds.values()), max(self.rounds.values())
        edges = f", {statistics.median(self.edges) / 1e6:.1f} M edges/s" if self.edges and self.cell.what == "sample" else ""
        return f"{digits(self.median())} ({digits(low)}–{digits(high)}){edges}"

    def ratios(self, peer):
        """How many times as fast as the peer, round by round."""
        pairs = [(self.rounds[key], peer.rounds[key]) for key in self.rounds if key in peer.rounds]
        return [p / o if self.cell.what in LOWER_IS_BETTER else o / p for o, p in pairs]


def digits(x):
    return f"{x:,.0f}" if x >= 1000 else f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def show(cell):
    return " ".join(str(v) for v in (cell.what, cell.set, f"{cell.threads}T", cell.model, cell.dtype) if v)


def show_system(system):
    return system.name + (f"@{system.env}" if system.env else "") + \
        (f" ({system.rule})" if system.name == "morphgl" and system.rule else "") + (" + tcmalloc" if system.preload else "")


class Measured:
    """Series by cell, and failures, of one host."""

    def __init__(self):
        self.runs, self.series, self.failures = collections.defaultdict(dict), {}, {}

    def join(self):
        for (cell, system), rows in self.runs.items():
            mine = self.series.setdefault(cell, {}).setdefault(system, Series(cell, system))
            for key, records in rows.items():
                best = best_of(cell, [r["median"] for r in records])
                mine.rounds[key] = best
                chosen = next(r for r in records if r["median"] == best)
                mine.edges += [chosen["edges_per_s"]] if chosen.get("edges_per_s") else []
                mine.others += [r["cores_others"] for r in records if r.get("cores_others") is not None]


def read(out):
    """Measurements by host, memory by processor and cores, versions by environment."""
    hosts, memory, versions, last = collections.defaultdict(Measured), {}, collections.defaultdict(dict), Host("?", 0)
    for line in open(out / "raw.jsonl"):
        row = json.loads(line)
        if "machine" in row:
            # Rows without a host of their own are of the machine before them.
            last = Host(row["machine"]["cpu"], row["machine"]["cores"])
            memory[last[:2]] = row["machine"]["memory_bytes"]
            continue
        host = Host(**row["host"]) if "host" in row else last
        cell, system = Cell(**row["cell"]), System(**row["system"])
        if "failed" in row:
            hosts[host].failures[(cell, system)] = row["failed"]
            continue
        versions[system.env].update(row["record"].get("versions", {}))
        hosts[host].runs[(cell, system)].setdefault((row["session"], row["round"]), []).append(row["record"])
    for measured in hosts.values():
        measured.join()
    return hosts, memory, versions


def table(out):
    if not (out / "raw.jsonl").exists():
        sys.exit(f"{out / 'raw.jsonl'}: nothing was measured yet; run without --table")
    hosts, memory, versions = read(out)
    lines = []
    for host in sorted(hosts):
        lines += table_of(host, memory.get(host[:2]), hosts[host], "# " if len(hosts) > 1 else "") + [""]
    for env in sorted(versions):
        named = ", ".join(f"{name} {v}" for name, v in sorted(versions[env].items()))
        lines += [f"Versions{f' of {env}' if env else ''}: {named}.", ""]
    return "\n".join(lines[:-1]) + "\n"


def table_of(host, memory, measured, mark):
    """The lines of one host."""
    series, failures = measured.series, measured.failures
    units = {"sample": "batches/s", "gather": "GB/s", "prepare": "batches/s", "step": "ms", "epoch": "s"}
    level = f", {host.isa}" if host.isa else ""
    caps = ", the peers capped at it too" if host.peers_capped else ", the peers as they choose" if host.isa else ""
    about = [f"{host.cpu}, {host.cores} cores"] + ([f"{memory / 2**30:.0f} GiB"] if memory else [])
    about += [f"SIMD level {host.isa}{caps}"] if host.isa else []
    legend = "Median (least–most) of the rounds; a ratio above 1 says that MorphGL is faster."
    lines = [mark + ", ".join(about), "", legend, ""] if mark else [", ".join(about) + ". " + legend, ""]
    wins = losses = 0
    for what in WHAT:
        cells_of = [cell for cell in series if cell.what == what]
        if not cells_of:
            continue
        lines += [f"## {what}, {units[what]}{level}", "",
                  "| set | threads | model | rule | MorphGL | fastest peer | ratio (rounds) | other peers | rounds | others' cores |",
                  "|---|---|---|---|---|---|---|---|---|---|"]
        for cell in sorted(cells_of, key=lambda c: (c.set, c.model or "", c.dtype, c.threads)):
            for rule in sorted({s.rule for s in series[cell]}):
                own = series[cell].get(System("morphgl", rule, False))
                peers = {}
                for system, mine in series[cell].items():
                    if system.rule == rule and system.name != "morphgl":
                        key = (system.name, system.env)
                        if key not in peers or mine.faster_than(peers[key]):
                            peers[key] = mine
                ranked = sorted(peers.values(), key=Series.median, reverse=what not in LOWER_IS_BETTER)
                if own is None or not ranked:
                    continue
                first, rest = ranked[0], ranked[1:]
                ratio = first.median() / own.median() if what in LOWER_IS_BETTER else own.median() / first.median()
                rounds = own.ratios(first)
                wins, losses = wins + (ratio >= 1), losses + (ratio < 1)
                kind = " ".join(v for v in (cell.model, cell.dtype if what in ("gather", "prepare") else None) if v)
                others = max(own.others + [o for p in ranked for o in p.others], default=0)
                lines.append("| " + " | ".join([
                    cell.set, str(cell.threads), kind or "–", rule or "–", own.text(),
                    f"{show_system(first.system)} {first.text()}",
                    f"**{ratio:.2f}**" + (f" ({min(rounds):.2f}–{max(rounds):.2f})" if rounds else ""),
                    "; ".join(f"{show_system(p.system)} {p.text()}" for p in rest) or "–",
                    str(len(own.rounds)), f"{others:.1f}"]) + " |")
        lines.append("")
    lines.append(f"{wins} won, {losses} lost.")
    lost = [f"{show(c)}: {show_system(s)}: {why}" for (c, s), why in failures.items() if s not in series.get(c, {})]
    if lost:
        lines += ["", "Not measured:", ""] + [f"- {line}" for line in sorted(set(lost))]
    return lines


if __name__ == "__main__":
    main()
