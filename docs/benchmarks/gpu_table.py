#!/usr/bin/env python3
"""The table of what gpu.sh has measured so far: gpu_table.py RAW. Needs the standard library alone."""
import json
import pathlib
import sys

RAW = pathlib.Path(sys.argv[1])
RESOURCES = ["CPU", "PCIe", "CUDA"]
GRAPHS = [("products", "products-like"), ("large", "larger than the device memory allowed: 3.2 GB, 3 GiB")]
PLANS = ["auto", "pipeline", "device"]
GRIDS = ("grids.jsonl", "Epochs whose rows all come from the host, by order and grid of the gather",
         "GraphSAGE by `device`; the cache of rows has no bytes. *training* beside that of the turns, where rows lie on the device, "
         "is what the gather costs it.")


def text(name):
    path = RAW / name
    return path.read_text().strip() if path.exists() else ""


def lines(name):
    """The documents of a file; what a full disk or a time limit has cut off is left out."""
    documents = []
    for line in text(name).splitlines():
        try:
            documents.append(json.loads(line))
        except ValueError:
            continue
    return documents


def row(cells):
    print("| " + " | ".join(cells) + " |")


def last(document):
    # The first epoch fills caches.
    return document["run"]["epochs"][-1]


def busy(epoch):
    # One device: its number is left out.
    used = {r["resource"].split(":")[0]: r["share"] for r in epoch["report"]["resources"]}
    return [f"{used[name]:.0%}" if name in used else "–" for name in RESOURCES]


def epochs(runs, graph, what):
    found = {(model, threads): plans for (of, model, threads), plans in runs.items() if of == graph}
    if not found:
        return
    print(f"\n## Epochs, s: {what}\n")
    head = ["model", "threads", "auto", "predicted", "measured / predicted", *PLANS[1:], "auto / best of the two"]
    row(head + [f"busy with auto: {name}" for name in RESOURCES])
    print("|---" * (len(head) + len(RESOURCES)) + "|")
    for (model, threads), plans in sorted(found.items()):
        seconds = {name: last(document)["seconds"] for name, document in plans.items()}
        shown = {name: f"{time:.2f}" for name, time in seconds.items()}
        others = [seconds[name] for name in PLANS[1:] if name in seconds]
        auto = plans.get("auto")
        predicted = auto and auto["run"]["predicted_epoch_seconds"]
        row([model, str(threads), shown.get("auto", "–"), f"{predicted:.2f}" if auto else "–",
             f"{seconds['auto'] / predicted:.2f}" if auto else "–", *(shown.get(name, "–") for name in PLANS[1:]),
             f"{seconds['auto'] / min(others):.3f}" if auto and others else "–",
             *(busy(last(auto)) if auto else ["–"] * len(RESOURCES))])


def transfers(documents):
    if not documents:
        return
    print("\n## Epochs by transfer, s: products-like\n")
    row(["model", "threads", "plan", "options", "s", "predicted", "GB over the link", "cache hits",
         *(f"busy: {name}" for name in RESOURCES)])
    print("|---" * (8 + len(RESOURCES)) + "|")
    for document in documents:
        epoch = last(document)
        options = document["options"].removeprefix("--transferring ")
        counted = epoch["report"]["counters"].get(options.split()[0], {})
        hits = f"{counted['cache_hits'] / counted['cache_requests']:.0%}" if counted.get("cache_requests") else "–"
        link = f"{counted['link_bytes'] / 1e9:.2f}" if "link_bytes" in counted else "–"
        row([document["model"], document["threads"], document["plan"], f"`{options}`", f"{epoch['seconds']:.2f}",
             f"{document['run']['predicted_epoch_seconds']:.2f}", link, hits,
             *busy(epoch)])


def beside_pyg(runs, by_its_rule):
    peers = lines("pyg.jsonl")
    if not peers:
        return
    print("\n## Beside PyG, s per epoch, products-like\n")
    row(["model", "threads", "PyG", "how", "MorphGL, PyG's rule", "PyG / MorphGL", "MorphGL, all nodes expanded"])
    print("|---" * 7 + "|")
    for peer in peers:
        model, theirs = peer["model"], peer["all"][-1]
        how = f"NeighborLoader by {peer['sampler']}" if peer["mode"] == "loader" else \
            "its steps alone, sampling skipped: neither pyg-lib nor torch-sparse is installed"
        if peer["measured"][-1] < peer["batches"]:
            how += f"; {peer['measured'][-1]} of {peer['batches']} mini-batches, scaled up"
        if peer.get("features", "host") == "host":
            how += "; features are copied to the device in every step"
        ours = last(by_its_rule[model])["seconds"] if model in by_its_rule else None
        whole = runs.get(("products", model, peer["threads"]), {}).get("auto")
        row([model, str(peer["threads"]), f"{theirs:.2f}", how, f"{ours:.2f}" if ours else "–",
             f"{theirs / ours:.2f}" if ours else "–", f"{last(whole)['seconds']:.2f}" if whole else "–"])


# ---------------------------------------------------------------- gpu.sh quarter
def translation():
    found = [line for line in lines("bench-translation.jsonl")]
    rates = [line for line in found if line["what"] == "translation"]
    if not found:
        return
    print("\n## Gathers of random rows from the host, GB/s (bench `translation`)\n")
    for line in found:
        if line["what"] == "translation memory":
            print("- " + ", ".join(f"{key} {value}" for key, value in line.items() if key not in ("what", "block_copy_gb_per_s"))
                  + (f", block copy {max(line['block_copy_gb_per_s']):.1f} GB/s" if "block_copy_gb_per_s" in line else ""))
    blocks = sorted({line["blocks"] for line in rates})
    print()
    row(["memory", "bytes of a row", "table, MiB", "ids", *(f"{count} blocks" for count in blocks)])
    print("|---" * (4 + len(blocks)) + "|")
    cells = {}
    for line in rates:
        key = (line["memory"], line["row_bytes"], line["table"] >> 20, line["order"])
        cells.setdefault(key, {})[line["blocks"]] = line["median"]
    for key, medians in cells.items():
        row([*map(str, key), *(f"{medians[count]:.1f}" if count in medians else "–" for count in blocks)])


def median(values):
    return sorted(values)[len(values) // 2]


def step_ms(epoch):
    """Milliseconds of training per mini-batch, as measured beside the other phases."""
    report = epoch["report"]
    return 1e3 * report["busy"]["training"] / report["batches"]


def side_by_side(name, what, note):
    """Epochs of two builds, as they came."""
    documents = lines(name)
    if not documents:
        return
    print(f"\n## {what}\n\n{note}\n")
    row(["run", "graph", "model", "threads", "plan", "options", "s, by epoch", "predicted", "training, ms per mini-batch",
         "GB over the link", *(f"busy: {resource}" for resource in RESOURCES)])
    print("|---" * (10 + len(RESOURCES)) + "|")
    for document in documents:
        epoch, run = last(document), document["run"]
        link = sum(counted.get("link_bytes", 0) for counted in epoch["report"]["counters"].values())
        row([document["tag"], document["graph"], document["model"], document["threads"], document["plan"],
             f"`{document['options']}`" if document["options"] else "", " ".join(f"{e['seconds']:.3f}" for e in run["epochs"]),
             f"{run['predicted_epoch_seconds']:.3f}", f"{step_ms(epoch):.3f}", f"{link / 1e9:.2f}" if link else "–", *busy(epoch)])


def turns():
    side_by_side("turns.jsonl", "Epochs by `device`, two builds in turns", "Seconds of each epoch; the first fills caches.")
    times = {}
    for document in lines("turns.jsonl"):
        of = document["tag"].split()[-1]
        times.setdefault(document["model"], {}).setdefault(of, []).extend(e["seconds"] for e in document["run"]["epochs"][1:])
    pairs = {model: found for model, found in times.items() if {"old", "new"} <= found.keys()}
    if pairs:
        print()
        row(["model", "old, median s", "new, median s", "new / old"])
        print("|---" * 4 + "|")
    for model, found in pairs.items():
        old, new = (median(found[of]) for of in ("old", "new"))
        row([model, f"{old:.3f}", f"{new:.3f}", f"{new / old:.3f}"])


def regime():
    side_by_side("regime.jsonl", "The papers' regime: features and topology on the host",
                 "Device memory is limited (`MORPHGL_CUDA_MEMORY`), and neither rows nor lists are cached.")
    plans = {}
    for document in lines("regime.jsonl"):
        plans.setdefault(int(document["threads"]), {})[document["plan"]] = document
    if plans:
        print()
        row(["threads", "auto", "device", "pipeline", "paper", "auto / better of device and pipeline", "auto / predicted"])
        print("|---" * 7 + "|")
    for threads, found in sorted(plans.items()):
        seconds = {plan: last(document)["seconds"] for plan, document in found.items()}
        pure = [seconds[plan] for plan in ("device", "pipeline") if plan in seconds]
        auto = seconds.get("auto")
        row([str(threads), *(f"{seconds[plan]:.3f}" if plan in seconds else "–" for plan in ("auto", "device", "pipeline", "paper")),
             f"{auto / min(pure):.3f}" if auto and pure else "–",
             f"{auto / found['auto']['run']['predicted_epoch_seconds']:.3f}" if auto else "–"])


def peers():
    found, ours = lines("peers.jsonl"), lines("peers-beside.jsonl")
    if not found and not ours:
        return
    print("\n## Peers on the device, s per epoch, products-like\n\nBy PyG's rule of expansion. *features* says whether a step "
          "copies the rows of its mini-batch from pinned memory (host), or gathers them on the device. The first epoch warms up, "
          "compiling included.\n")
    row(["system", "model", "features", "adjacency", "precision", "compiled", "mini-batches", "s by epoch"])
    print("|---" * 8 + "|")
    for peer in found:
        made = peer["sampler"] or "made before, sampling left out"
        row([peer["peer"], peer["model"], peer["features"], peer["adjacency"], peer["precision"], peer["compiled"] or "no",
             made, " ".join(f"{s:.3f}" for s in peer["all"])])
    for document in ours:
        row(["MorphGL", document["model"], "device, sampled and gathered", "CSR", "TF32" if "tf32" in document["options"] else "f32",
             "no", document["plan"], " ".join(f"{e['seconds']:.3f}" for e in document["run"]["epochs"])])


def section(show, *given):
    """A table that lacks something takes no other one with it."""
    try:
        show(*given)
    except (KeyError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        print(f"\n*{show.__name__} cannot be shown: {type(error).__name__} {error}*")


def main():
    print(text("device.txt") or "the machine was not looked at", "\n")
    print("```text\n" + text("ops.txt") + "\n```\n\n## Parts\n")
    for line in text("parts.txt").splitlines():
        print("-", line)
    if text("facts.txt"):
        print("\n## Facts\n\n```text\n" + text("facts.txt") + "\n```")
    if text("ops-old.txt"):
        print("\n## The old build's operators\n\n```text\n" + text("ops-old.txt") + "\n```")
    section(translation)
    section(side_by_side, *GRIDS)
    for show in (turns, regime, peers):
        section(show)
    for bench in sorted(set(RAW.glob("bench-*.jsonl")) - {RAW / "bench-translation.jsonl"}):
        print(f"\n## {bench.stem}\n")
        for line in bench.read_text().splitlines():
            print(f"- `{line}`")
    runs, by_its_rule, by_transfer = {}, {}, []
    for document in lines("epochs.jsonl"):
        if "--expansion" in document["options"]:
            by_its_rule[document["model"]] = document
        elif "--transferring" in document["options"]:
            by_transfer.append(document)
        else:
            key = (document["graph"], document["model"], int(document["threads"]))
            runs.setdefault(key, {})[document["plan"]] = document
    section(transfers, by_transfer)
    for graph, what in GRAPHS:
        section(epochs, runs, graph, what)
    section(beside_pyg, runs, by_its_rule)


main()
