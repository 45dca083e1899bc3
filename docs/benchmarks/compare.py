#!/usr/bin/env python3
"""MorphGL and other systems on the same data, in turns, as one table.

  compare.py --peers-dir DIR --python VENV/bin/python --data DIR --datasets DIR --out DIR
             [--what sample,gather,prepare,step,epoch] [--sets arxiv-like,products-like] [--threads 1,all]
             [--models sage,gcn,gat] [--dtypes f32,f16] [--peers NAME,…] [--rounds 5] [--budget SECONDS] [--table]

DIR of --peers-dir holds run_peers.py, which says what each peer's measurement is; --data its plain arrays, a directory a
set; --datasets the same sets imported into MorphGL (README.md beside this has the commands), SET-f16 with f16 features.
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

Cell = collections.namedtuple("Cell", "what set threads model dtype")
System = collections.namedtuple("System", "name rule preload")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    root = HERE.parents[1]
    add("--binary", type=pathlib.Path, default=root / "target/release/morphgl", help="default: the release build")
    add("--python", help="of the peers' virtual environment")
    add("--peers-dir", type=pathlib.Path, help="directory of run_peers.py")
    add("--data", type=pathlib.Path, help="the peers' arrays")
    add("--datasets", type=pathlib.Path, help="the same data as MorphGL's datasets")
    add("--out", type=pathlib.Path, required=True, help="docs/benchmarks/DATE-MACHINE")
    add("--what", default=",".join(WHAT))
    add("--sets", default="arxiv-like,products-like")
    add("--threads", default="1,all", help="step and epoch with all threads alone, unless this is given")
    add("--models", default="sage,gcn,gat")
    add("--dtypes", default="f32", help="of features, for gather and prepare")
    add("--peers", default="", help="these alone, where they have the measurement; pyg, salient and others too")
    add("--workers", default="0", help="epoch: worker processes of the peers' loaders; several are tried, and the best counts")
    add("--training", default="", help="MorphGL's training operator for step and epoch, by its key")
    add("--rounds", type=int, default=5)
    add("--batches", type=int, default=24, help="mini-batches a round on large sets for sample and prepare")
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
    machine = morphgl(args, "ops")["machine"]
    write(args, {"machine": {"cpu": machine["cpu"], "cores": machine["cores"], "memory_bytes": machine["memory_bytes"]}})
    failed = {}
    for cell in cells(args, machine["cores"]):
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
                    records = ours(args, cell, system) if system.name == "morphgl" else theirs(args, cell, system)
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                    failed[(cell, system)] = True
                    last = ((error.stderr or b"").decode(errors="replace").strip().splitlines() or ["too slow"])[-1]
                    write(args, {"cell": cell._asdict(), "system": system._asdict(), "failed": last[:200]})
                    say(f"{show(cell)}: {show_system(system)} failed: {last[:200]}")
                    continue
                for record in records:
                    write(args, {"session": session, "round": number, "cell": cell._asdict(), "system": system._asdict(), "record": record})
                best = best_of(cell, [r["median"] for r in records])
                say(f"{show(cell)}, round {number + 1}: {show_system(system)} {best:.4g} {records[0]['unit']}")


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
    """Who is measured: MorphGL by every rule that a peer has, and each peer with both allocators."""
    peers = PEERS[cell.what][cell.threads > 1]
    if args.peers:
        known = PEERS[cell.what][0] + PEERS[cell.what][1]
        asked = args.peers.split(",")
        peers = [p for p in asked if p in peers or p not in known]
    preloads = [False, True] if args.tcmalloc and os.path.exists(args.tcmalloc) else [False]
    preloads = preloads[args.preloaded_alone :] or preloads
    found = [System(p, rule_of(cell.what, p), preload) for p in peers for preload in preloads]
    rules = dict.fromkeys(s.rule for s in found)
    return [System("morphgl", rule, False) for rule in rules] + found


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


def theirs(args, cell, system):
    words = ["--data", str(args.data / cell.set), "--what", WHAT_OF_PEERS.get(cell.what, cell.what)]
    words += ["--peer", system.name, "--threads", str(cell.threads), "--repeats", "1", "--dtype", cell.dtype]
    words += ["--model", cell.model] if cell.model else []
    words += ["--batches", str(count(args, cell))] if count(args, cell) else []
    environment = dict(os.environ)
    if system.preload:
        environment["LD_PRELOAD"] = args.tcmalloc
    if system.name.startswith("pyg") and cell.model:
        # Behind what is installed: pyg-lib itself is used where it is there.
        probe = subprocess.run([args.python, "-c", "import pyg_lib"], capture_output=True)
        if probe.returncode:
            environment["PYTHONPATH"] = str(SHIM)
    ids = args.data / cell.set / "gather_ids.npy"
    script = str(args.peers_dir / "run_peers.py")
    if cell.what == "gather" and not ids.exists():
        subprocess.run([args.python, script, "--data", str(args.data / cell.set), "--what", "ids", "--peer", "numpy"],
                       check=True, capture_output=True, timeout=args.limit)
    records = []
    for workers in args.workers.split(",") if cell.what == "epoch" else [None]:
        extra = ["--workers", workers] if workers else []
        done = subprocess.run([args.python, script, *words, *extra], check=True, capture_output=True, timeout=args.limit,
                              env=environment)
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
    return system.name + (f" ({system.rule})" if system.name == "morphgl" and system.rule else "") + \
        (" + tcmalloc" if system.preload else "")


def read(out):
    """All series by cell, the machine, versions, and what failed."""
    series, machine, versions, failures = {}, None, {}, {}
    runs = collections.defaultdict(dict)
    for line in open(out / "raw.jsonl"):
        row = json.loads(line)
        if "machine" in row:
            machine = row["machine"]
            continue
        cell, system = Cell(**row["cell"]), System(**row["system"])
        if "failed" in row:
            failures[(cell, system)] = row["failed"]
            continue
        versions.update(row["record"].get("versions", {}))
        runs[(cell, system)].setdefault((row["session"], row["round"]), []).append(row["record"])
    for (cell, system), rows in runs.items():
        mine = series.setdefault(cell, {}).setdefault(system, Series(cell, system))
        for key, records in rows.items():
            best = best_of(cell, [r["median"] for r in records])
            mine.rounds[key] = best
            chosen = next(r for r in records if r["median"] == best)
            mine.edges += [chosen["edges_per_s"]] if chosen.get("edges_per_s") else []
            mine.others += [r["cores_others"] for r in records if r.get("cores_others") is not None]
    return series, machine, versions, failures


def table(out):
    if not (out / "raw.jsonl").exists():
        sys.exit(f"{out / 'raw.jsonl'}: nothing was measured yet; run without --table")
    series, machine, versions, failures = read(out)
    units = {"sample": "batches/s", "gather": "GB/s", "prepare": "batches/s", "step": "ms", "epoch": "s"}
    lines = []
    if machine:
        gib = machine["memory_bytes"] / 2**30
        lines += [f"{machine['cpu']}, {machine['cores']} cores, {gib:.0f} GiB. "
                  "Median (least–most) of the rounds; a ratio above 1 says that MorphGL is faster.", ""]
    wins = losses = 0
    for what in WHAT:
        cells_of = [cell for cell in series if cell.what == what]
        if not cells_of:
            continue
        lines += [f"## {what}, {units[what]}", "",
                  "| set | threads | model | rule | MorphGL | fastest peer | ratio (rounds) | other peers | rounds | others' cores |",
                  "|---|---|---|---|---|---|---|---|---|---|"]
        for cell in sorted(cells_of, key=lambda c: (c.set, c.model or "", c.dtype, c.threads)):
            for rule in sorted({s.rule for s in series[cell]}):
                own = series[cell].get(System("morphgl", rule, False))
                peers = {}
                for system, mine in series[cell].items():
                    if system.rule == rule and system.name != "morphgl":
                        if system.name not in peers or mine.faster_than(peers[system.name]):
                            peers[system.name] = mine
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
    if versions:
        lines += ["", "Versions: " + ", ".join(f"{name} {v}" for name, v in sorted(versions.items())) + "."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
