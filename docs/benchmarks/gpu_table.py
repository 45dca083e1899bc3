#!/usr/bin/env python3
"""The table of what gpu.sh has measured so far: gpu_table.py RAW. Needs the standard library alone."""
import json
import pathlib
import sys

RAW = pathlib.Path(sys.argv[1])
RESOURCES = ["CPU", "PCIe", "CUDA"]
GRAPHS = [("products", "products-like"), ("large", "larger than the device memory allowed: 3.2 GB, 3 GiB")]
PLANS = ["auto", "pipeline", "device"]


def text(name):
    path = RAW / name
    return path.read_text().strip() if path.exists() else ""


def lines(name):
    return [json.loads(line) for line in text(name).splitlines()]


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
    print("\n## Beside PyG, s an epoch, products-like\n")
    row(["model", "threads", "PyG", "how", "MorphGL, PyG's rule", "PyG / MorphGL", "MorphGL, all nodes expanded"])
    print("|---" * 7 + "|")
    for peer in peers:
        model, theirs = peer["model"], peer["all"][-1]
        how = f"NeighborLoader by {peer['sampler']}" if peer["mode"] == "loader" else \
            "its steps alone, sampling skipped: neither pyg-lib nor torch-sparse is installed"
        if peer["measured"][-1] < peer["batches"]:
            how += f"; {peer['measured'][-1]} of {peer['batches']} mini-batches, scaled up"
        ours = last(by_its_rule[model])["seconds"] if model in by_its_rule else None
        whole = runs.get(("products", model, peer["threads"]), {}).get("auto")
        row([model, str(peer["threads"]), f"{theirs:.2f}", how, f"{ours:.2f}" if ours else "–",
             f"{theirs / ours:.2f}" if ours else "–", f"{last(whole)['seconds']:.2f}" if whole else "–"])


def main():
    print(text("device.txt") or "the machine was not looked at", "\n")
    print("```text\n" + text("ops.txt") + "\n```\n\n## Parts\n")
    for line in text("parts.txt").splitlines():
        print("-", line)
    for bench in sorted(RAW.glob("bench-*.jsonl")):
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
    transfers(by_transfer)
    for graph, what in GRAPHS:
        epochs(runs, graph, what)
    beside_pyg(runs, by_its_rule)


main()
