#!/usr/bin/env bash
# Everything that wants a CUDA device, in one go: conformance suites, compute-sanitizer, micro-benchmarks, epochs.
#
#   gpu.sh pack DIR        where cargo is: builds the programs and puts them and this script into DIR
#   gpu.sh run DIR OUT     where the device is, without network: runs them, about ten minutes, and writes OUT/table.md
#                          beside the raw results; MINUTES (10) says after how many no further part begins
#
# The device's machine needs an NVIDIA driver and python3 (for the table); with compute-sanitizer on the path, memory and
# races of the kernels are checked too. Training needs cuBLAS 12 (libcublas.so.12) on the loader's path. Where python3 has
# PyG (torch_geometric), its epochs of the same graph stand beside ours.
set -euo pipefail

CRATES=(morphgl-cuda morphgl-batching-cuda-neighbor morphgl-transferring-pcie-dma
        morphgl-transferring-cuda-zero-copy morphgl-training-cuda-native)
BENCHES=(morphgl-batching-cuda-neighbor:sample morphgl-transferring-cuda-zero-copy:gather
         morphgl-training-cuda-native:step)

pack() {
  local dir=$1
  mkdir -p "$dir/tests" "$dir/benches"
  cargo build --release -p morphgl --features cuda --message-format json-render-diagnostics | artifact morphgl "$dir"
  local crate bench
  for crate in "${CRATES[@]}"; do
    cargo test --release --no-run -p "$crate" --tests --message-format json-render-diagnostics |
      artifacts "$dir/tests" "$crate"
  done
  for bench in "${BENCHES[@]}"; do
    cargo bench --no-run -p "${bench%:*}" --bench "${bench#*:}" --message-format json-render-diagnostics |
      artifact "${bench#*:}" "$dir/benches"
  done
  cp "$0" "$dir/gpu.sh"
  cp "$(dirname "$0")/pyg_epoch.py" "$dir/pyg_epoch.py"
  find "$dir" -type f -perm -u+x ! -name '*.sh' -exec strip {} +
  du -sh "$dir"
}

# Copies the executables that cargo's messages name, as PREFIX-NAME; the one called NAME alone with `artifact`.
artifacts() {
  python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable"):
        shutil.copy(message["executable"], f"{sys.argv[1]}/{sys.argv[2]}-" + message["target"]["name"])
' "$1" "$2"
}
artifact() {
  python3 -c '
import json, shutil, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message["target"]["name"] == sys.argv[1]:
        shutil.copy(message["executable"], f"{sys.argv[2]}/{sys.argv[1]}")
' "$1" "$2"
}

run() {
  local dir=$1 out=$2
  mkdir -p "$out"
  : >"$out/suites.txt"
  nvidia-smi --query-gpu=name,memory.total,driver_version,pcie.link.gen.current,pcie.link.width.current \
    --format=csv,noheader >"$out/device.txt" || echo "nvidia-smi not found" >"$out/device.txt"
  "$dir/morphgl" ops >"$out/ops.txt"
  local program name
  for program in "$dir"/tests/*; do
    name=$(basename "$program")
    part "$out" "suite $name" 120 "$program" --test-threads 4
  done
  if command -v compute-sanitizer >/dev/null; then
    for program in "$dir"/tests/*-conformance; do
      name=$(basename "$program")
      part "$out" "memcheck $name" 120 compute-sanitizer --error-exitcode 9 "$program" --test-threads 1
      part "$out" "racecheck $name" 120 compute-sanitizer --tool racecheck --error-exitcode 9 "$program" --test-threads 1
    done
  else
    echo "skipped compute-sanitizer: not on the path" >>"$out/suites.txt"
  fi
  for program in "$dir"/benches/*; do
    name=$(basename "$program")
    timeout 90 "$program" --json >"$out/bench-$name.jsonl" 2>"$out/bench-$name.log" || echo "failed bench $name" >>"$out/suites.txt"
  done
  epochs "$dir" "$out"
  table "$out" >"$out/table.md"
  cat "$out/table.md"
}

# Runs one check, says how it ended, and keeps what it printed; none begins after the time is over.
part() {
  local out=$1 what=$2 limit=$3
  shift 3
  if over; then echo "skipped $what: no time left" >>"$out/suites.txt"; return; fi
  local log="$out/${what// /-}.log"
  if timeout "$limit" "$@" >"$log" 2>&1; then echo "passed $what" >>"$out/suites.txt"; else
    echo "failed $what (status $?)" >>"$out/suites.txt"
  fi
}

over() { [ $SECONDS -ge $((${MINUTES:-10} * 60)) ]; }

# Epochs: first all models with most threads on a graph like ogbn-products, beside PyG's; then on a graph larger than the
# device memory that is allowed; then with other counts of threads.
epochs() {
  local dir=$1 out=$2 cores most model threads plan
  cores=$(nproc)
  most=$((cores < 16 ? cores : 16))
  : >"$out/epochs.jsonl"
  : >"$out/pyg.jsonl"
  generate "$dir" "$out" products --nodes 2400000 --degree 51 --dim 100 --classes 47 --split 0.08,0.01,0.01 || return 0
  for model in sage gcn gat; do
    for plan in auto pipeline device; do epoch "$dir" "$out" products "$model" "$most" "$plan"; done
  done
  pyg "$dir" "$out" "$most"
  # 3.2 GB in all, of which 3 GiB may lie on the device, mini-batches included.
  if generate "$dir" "$out" large --nodes 10000000 --degree 15 --dim 128 --classes 50 --split 0.01,0.001,0.001; then
    for model in sage gcn gat; do
      for plan in auto pipeline device; do
        MORPHGL_CUDA_MEMORY=$((3 << 30)) epoch "$dir" "$out" large "$model" "$most" "$plan" --device-memory 2GiB
      done
    done
    rm -rf "$out/large"
  fi
  for model in sage gcn gat; do
    for threads in 4 2 8 12 16; do
      [ "$threads" -lt "$most" ] || continue
      for plan in auto pipeline device; do epoch "$dir" "$out" products "$model" "$threads" "$plan"; done
    done
  done
  rm -rf "$out/products"
}

# A graph to train on; false, and said, where there is none.
generate() {
  local dir=$1 out=$2 name=$3
  shift 3
  if over; then echo "skipped epochs of $name: no time left" >>"$out/suites.txt"; return 1; fi
  [ -d "$out/$name" ] || timeout 240 "$dir/morphgl" generate sbm -q -o "$out/$name" --dtype f16 "$@" \
    >"$out/generate-$name.log" 2>&1 || { echo "failed generate $name" >>"$out/suites.txt"; return 1; }
}

# Two epochs by one plan, with so many CPU threads; what follows are more options.
epoch() {
  local dir=$1 out=$2 graph=$3 model=$4 threads=$5 plan=$6
  shift 6
  local what="epoch $graph $model $threads $plan $*"
  if over; then echo "skipped $what: no time left" >>"$out/suites.txt"; return; fi
  timeout 120 taskset -c "0-$((threads - 1))" "$dir/morphgl" train "$out/$graph" --model "$model" --threads "$threads" \
    --plan "$plan" --epochs 2 --evaluation none --no-verify -q --json "$@" 2>"$out/epoch.log" | python3 -c '
import json, sys
document, (graph, model, threads, plan, *options) = json.load(sys.stdin), sys.argv[1:]
row = {"graph": graph, "model": model, "threads": int(threads), "plan": plan, "options": options}
print(json.dumps({**row, "run": document}))
' "$graph" "$model" "$threads" "$plan" "$@" >>"$out/epochs.jsonl" ||
    { echo "failed $what: $(tail -n 1 "$out/epoch.log")" >>"$out/suites.txt"; }
}

# PyG's epochs, and ours by its rule of expansion.
pyg() {
  local dir=$1 out=$2 threads=$3 model
  if ! python3 -c "import torch_geometric" 2>/dev/null; then
    echo "skipped PyG: python3 has no torch_geometric" >>"$out/suites.txt"
    return
  fi
  for model in sage gcn gat; do
    epoch "$dir" "$out" products "$model" "$threads" auto --expansion new
    if over; then echo "skipped PyG $model: no time left" >>"$out/suites.txt"; continue; fi
    timeout 150 taskset -c "0-$((threads - 1))" python3 "$dir/pyg_epoch.py" "$out/products" --model "$model" \
      --threads "$threads" --epochs 2 --seconds 30 >>"$out/pyg.jsonl" 2>"$out/pyg-$model.log" ||
      echo "failed PyG $model: $(tail -n 1 "$out/pyg-$model.log")" >>"$out/suites.txt"
  done
}

table() {
  python3 - "$1" <<'PYTHON'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
print((out / "device.txt").read_text().strip(), "\n")
print("```text\n" + (out / "ops.txt").read_text().strip() + "\n```\n")
print("## Suites\n")
for line in (out / "suites.txt").read_text().splitlines():
    print("-", line)
for bench in sorted(out.glob("bench-*.jsonl")):
    print(f"\n## {bench.stem}\n")
    for line in bench.read_text().splitlines():
        print("-", line)
def lines(name):
    return [json.loads(line) for line in (out / name).read_text().splitlines()]

def last(row):
    # The first epoch fills caches.
    return row["run"]["epochs"][-1]

runs, new = {}, {}
for row in lines("epochs.jsonl"):
    if "--expansion" in row["options"]:
        new[row["model"]] = row
    else:
        runs.setdefault((row["graph"], row["model"], row["threads"]), {})[row["plan"]] = row
resources = ["CPU", "PCIe", "CUDA"]
for graph, what in [("products", "products-like"), ("large", "larger than the device memory allowed: 3.2 GB, 3 GiB")]:
    print(f"\n## Epochs, s: {what}\n")
    print("| model | threads | auto | predicted | pipeline | device | auto / best of the two | busy with auto: "
          + " | ".join(resources) + " |")
    print("|---" * (7 + len(resources)) + "|")
    for (of, model, threads), plans in sorted(runs.items()):
        if of != graph:
            continue
        seconds = {name: last(row)["seconds"] for name, row in plans.items()}
        others = [time for name, time in seconds.items() if name != "auto"]
        ratio = f"{seconds['auto'] / min(others):.3f}" if "auto" in seconds and others else "–"
        predicted = f"{plans['auto']['run']['predicted_epoch_seconds']:.2f}" if "auto" in plans else "–"
        shown = [f"{seconds[name]:.2f}" if name in seconds else "–" for name in ("auto", "pipeline", "device")]
        used = {r["resource"]: r["share"] for r in last(plans["auto"])["report"]["resources"]} if "auto" in plans else {}
        busy = [f"{used[name]:.0%}" if name in used else "–" for name in resources]
        print("| " + " | ".join([model, str(threads), shown[0], predicted, *shown[1:], ratio, *busy]) + " |")
peers = lines("pyg.jsonl")
if peers:
    print("\n## Beside PyG, s an epoch, products-like\n")
    print("| model | threads | PyG | how | MorphGL, PyG's rule | MorphGL / PyG | MorphGL, all nodes expanded |")
    print("|---|---|---|---|---|---|---|")
    for row in peers:
        model, theirs = row["model"], row["all"][-1]
        how = f"NeighborLoader by {row['sampler']}" if row["mode"] == "loader" else \
            "its steps alone, sampling skipped: neither pyg-lib nor torch-sparse is installed"
        if row["measured"][-1] < row["batches"]:
            how += f"; {row['measured'][-1]} of {row['batches']} mini-batches, scaled up"
        ours = last(new[model])["seconds"] if model in new else None
        whole = runs.get(("products", model, row["threads"]), {}).get("auto")
        cells = [model, str(row["threads"]), f"{theirs:.2f}", how, f"{ours:.2f}" if ours else "–",
                 f"{ours / theirs:.3f}" if ours else "–", f"{last(whole)['seconds']:.2f}" if whole else "–"]
        print("| " + " | ".join(cells) + " |")
PYTHON
}

case ${1:-} in
  pack) [ $# -eq 2 ] || { echo "usage: gpu.sh pack DIR" >&2; exit 2; }; pack "$2" ;;
  run) [ $# -eq 3 ] || { echo "usage: gpu.sh run DIR OUT" >&2; exit 2; }; run "$2" "$3" ;;
  *) echo "usage: gpu.sh pack DIR | gpu.sh run DIR OUT" >&2; exit 2 ;;
esac
