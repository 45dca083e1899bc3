#!/usr/bin/env bash
# Everything that wants a CUDA device, in one go: conformance suites, compute-sanitizer, micro-benchmarks, epochs.
#
#   gpu.sh pack DIR        where cargo is: builds the programs and puts them and this script into DIR
#   gpu.sh run DIR OUT     where the device is, without network: runs them, about ten minutes, and writes OUT/table.md
#                          beside the raw results; MINUTES (10) says after how many no further part begins
#
# The device's machine needs an NVIDIA driver and python3 (for the table); with compute-sanitizer on the path, memory and
# races of the kernels are checked too. Training needs cuBLAS 12 (libcublas.so.12) on the loader's path.
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

# Epochs of a graph like ogbn-products by every plan, for several counts of CPU threads.
epochs() {
  local dir=$1 out=$2 model threads plan cores
  cores=$(nproc)
  [ -d "$out/products" ] || "$dir/morphgl" generate sbm -q -o "$out/products" --nodes 2400000 --degree 51 --dim 100 \
    --dtype f16 --classes 47 --split 0.08,0.01,0.01
  : >"$out/epochs.jsonl"
  for model in sage gcn gat; do
    for threads in 16 4 2 8 12; do
      [ "$threads" -le "$cores" ] || continue
      for plan in auto pipeline device; do
        if over; then echo "skipped epoch $model $threads $plan: no time left" >>"$out/suites.txt"; continue; fi
        timeout 120 taskset -c "0-$((threads - 1))" "$dir/morphgl" train "$out/products" --model "$model" \
          --threads "$threads" --plan "$plan" --epochs 2 --evaluation none --no-verify -q --json \
          2>"$out/epoch.log" | python3 -c '
import json, sys
document = json.load(sys.stdin)
print(json.dumps({"model": sys.argv[1], "threads": int(sys.argv[2]), "plan": sys.argv[3], "run": document}))
' "$model" "$threads" "$plan" >>"$out/epochs.jsonl" || echo "failed epoch $model $threads $plan" >>"$out/suites.txt"
      done
    done
  done
  rm -rf "$out/products"
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
runs = {}
for line in (out / "epochs.jsonl").read_text().splitlines():
    row = json.loads(line)
    epochs = row["run"]["epochs"]
    # The last epoch: the first one fills caches.
    runs.setdefault((row["model"], row["threads"]), {})[row["plan"]] = (
        epochs[-1]["seconds"], row["run"]["predicted_epoch_seconds"])
print("\n## Epochs, s\n\n| model | threads | auto | predicted | pipeline | device | auto / best of the two |")
print("|---|---|---|---|---|---|---|")
for (model, threads), plans in sorted(runs.items()):
    seconds = {name: f"{time:.2f}" for name, (time, _) in plans.items()}
    others = [time for name, (time, _) in plans.items() if name != "auto"]
    ratio = f"{plans['auto'][0] / min(others):.3f}" if "auto" in plans and others else "–"
    predicted = f"{plans['auto'][1]:.2f}" if "auto" in plans else "–"
    cells = [seconds.get("auto", "–"), predicted, seconds.get("pipeline", "–"), seconds.get("device", "–"), ratio]
    print(f"| {model} | {threads} | " + " | ".join(cells) + " |")
PYTHON
}

case ${1:-} in
  pack) [ $# -eq 2 ] || { echo "usage: gpu.sh pack DIR" >&2; exit 2; }; pack "$2" ;;
  run) [ $# -eq 3 ] || { echo "usage: gpu.sh run DIR OUT" >&2; exit 2; }; run "$2" "$3" ;;
  *) echo "usage: gpu.sh pack DIR | gpu.sh run DIR OUT" >&2; exit 2 ;;
esac
