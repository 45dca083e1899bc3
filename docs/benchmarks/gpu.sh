#!/usr/bin/env bash
# Everything that wants a CUDA device: packed where cargo is, run where the device is, stage by stage.
#
#   gpu.sh pack ARCHIVE       builds the programs and packs them, with this script, into ARCHIVE (.tar.xz, below 30 MB)
#   tar -xJf ARCHIVE          there, in a folder of its own
#   ./gpu.sh run OUT STAGE    runs a stage, below eight minutes, and writes OUT/table.md and OUT/results.tar.gz after
#                             each of its parts; MINUTES (7) says after how many no further part begins
#   ./gpu.sh quarter OLD NEW  two unpacked builds side by side on a machine that is there for a quarter of an hour: gpu_quarter.sh
#
# Stages, in the order of their worth:
#   smoke      what the machine has; a mini-batch of every operator; an epoch by every plan
#   gather     the zero-copy gather beside block copies, by whole lines and naively
#   translation  gathers by kind of host memory, size of the table, order of the ids and grid
#   sample     the sampler beside the limit of random reads
#   step       training steps, by phase
#   transfers  epochs by every transfer to the device: copied by DMA, gathered by the device with and without its cache, naively;
#              and plans whose phases hold the device one at a time
#   epochs     GraphSAGE, GCN and GAT on a graph like ogbn-products, by every plan; PyG's beside them
#   sweep      the same with other counts of CPU threads; a graph larger than the device memory allowed
#   suites     the tests of the CUDA crates
#   sanitize   their conformance suites under compute-sanitizer
#
# What an earlier stage left in the folder (datasets, raw results) is used again, and the table is of all stages so far. A part
# that fails ends no other. Needs an NVIDIA driver and python3; training needs cuBLAS, on the loader's path or in Python's
# wheels; PyG and compute-sanitizer are used where they are. Without a device every stage says so and ends.
set -uo pipefail

STAGES="smoke gather translation sample step transfers epochs sweep suites sanitize"
CRATES=(morphgl-cuda morphgl-batching-cuda-neighbor morphgl-transferring-cuda morphgl-training-cuda-native)
BENCHES=(morphgl-batching-cuda-neighbor:sample morphgl-transferring-cuda:gather
         morphgl-transferring-cuda:translation morphgl-training-cuda-native:step)
FILES=(gpu.sh gpu_quarter.sh gpu_table.py peer_batches.py pyg_epoch.py torch_epoch.py wholegraph_epoch.py)
MOST_BYTES=30000000
DMA_GATHER=Transferring_CUDA+PCIe_DmaGather

# ---------------------------------------------------------------- packing
pack() {
  set -e
  local archive=$1 here dir crate bench size
  here=$(cd "$(dirname "$0")" && pwd)
  dir=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder of now: the variable is gone at the end
  trap "rm -rf '$dir'" EXIT
  mkdir "$dir/tests" "$dir/benches"
  cargo build --release -p morphgl --features cuda --message-format json-render-diagnostics | programs "$dir" '' morphgl
  for crate in "${CRATES[@]}"; do
    cargo test --release --no-run -p "$crate" --tests --message-format json-render-diagnostics |
      programs "$dir/tests" "$crate-"
  done
  for bench in "${BENCHES[@]}"; do
    cargo bench --no-run -p "${bench%:*}" --bench "${bench#*:}" --message-format json-render-diagnostics |
      programs "$dir/benches" '' "${bench#*:}"
  done
  # What has to have its sources or a compiler beside it tells nothing about a device.
  rm -f "$dir"/tests/*-driver "$dir"/tests/*-kernels "$dir"/tests/*-sanitizers
  strip "$dir/morphgl" "$dir"/tests/* "$dir"/benches/*
  (cd "$here" && cp "${FILES[@]}" "$dir")
  tar -C "$dir" -cf - . | xz -9 -T 1 >"$archive"
  size=$(stat -c %s "$archive")
  echo "$archive: $((size / 1000000)) MB, $(find "$dir/tests" -type f | wc -l) test programs"
  [ "$size" -le "$MOST_BYTES" ] || { echo "gpu.sh: $archive is larger than $((MOST_BYTES / 1000000)) MB" >&2; exit 1; }
}

# Copies the executables that cargo's messages name into DIR as PREFIX-NAME; of several the one called NAME alone.
programs() {
  python3 -c '
import json, shutil, sys
folder, prefix, *names = sys.argv[1:]
for line in sys.stdin:
    message = json.loads(line)
    name = message.get("target", {}).get("name")
    if message.get("executable") and (not names or name in names):
        shutil.copy(message["executable"], f"{folder}/{prefix}{name}")
' "$@"
}

# ---------------------------------------------------------------- running
HERE=$(cd "$(dirname "$0")" && pwd)
# The build that runs, and what it leaves.
BUILD=$HERE
RAW=$HERE/raw
SETS=$HERE/sets
# No part begins after so many seconds; a part that runs is ended then only by `quarter`.
END=$((${MINUTES:-7} * 60))
HARD_END=
# Whether parts that an earlier call has ended are left out.
AGAIN=

run() {
  OUT=$1
  local stage=$2
  mkdir -p "$OUT" "$RAW" "$SETS"
  local missing
  [ -e "$RAW/ops.txt" ] || machine
  if missing=$(no_device); then
    note "$stage" "skipped: $missing"
    return
  fi
  libraries
  "$stage"
  true
}

# cuBLAS and NVRTC of Python's wheels, where the loader finds none.
libraries() {
  local pair name variable path
  for pair in libcublas:MORPHGL_CUBLAS libnvrtc:MORPHGL_NVRTC; do
    name=${pair%:*} variable=${pair#*:}
    [ -z "${!variable:-}" ] || continue
    python3 -c 'import ctypes, sys
for version in (13, 12):
    try: ctypes.CDLL(f"{sys.argv[1]}.so.{version}"); sys.exit(0)
    except OSError: pass
sys.exit(1)' "$name" && continue
    path=$(python3 -c 'import glob, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()]
found = [p for f in folders for v in (13, 12) for p in glob.glob(f"{f}/nvidia/*/lib/{sys.argv[1]}.so.{v}")]
print(found[0] if found else "")' "$name")
    if [ -n "$path" ]; then
      export "$variable=$path"
    elif ! grep -qs "^libraries: $name" "$RAW/parts.txt"; then
      note libraries "$name: neither the loader nor Python's wheels have it"
    fi
  done
}

# Why no operator trains on a device; false where one does.
no_device() {
  # shellcheck disable=SC2094  # the log is read after the program has ended
  timeout -k 5 60 "$BUILD/morphgl" ops --json 2>"$RAW/ops.log" | python3 -c '
import json, sys
try:
    operators = json.load(sys.stdin)["operators"]
except (ValueError, KeyError):
    print("morphgl ops fails: " + " ".join(open(sys.argv[1]).read().split())); sys.exit(0)
cuda = [o for o in operators if o["key"] == "Training_CUDA_Native"]
if not cuda: print("this program was built without the feature cuda")
elif not cuda[0]["available"]: print(cuda[0]["reason"])
else: sys.exit(1)' "$RAW/ops.log"
}

machine() {
  nvidia-smi --query-gpu=name,memory.total,driver_version,pcie.link.gen.current,pcie.link.width.current \
    --format=csv,noheader >"$RAW/device.txt" 2>/dev/null || echo "nvidia-smi does not run" >"$RAW/device.txt"
  { lscpu | grep -E '^(Model name|CPU\(s\)|NUMA node\(s\))'; free -g | sed -n 2p; } >>"$RAW/device.txt" 2>/dev/null
  timeout -k 5 60 "$BUILD/morphgl" ops >"$RAW/ops.txt" 2>&1
  publish
}

# How a part ended, for the table.
say() { echo "$1: $2" | tee -a "$RAW/parts.txt"; }
note() { say "$@"; publish; }

# Writes the table and packs the raw results; an older one stays whole where that fails, as on a full disk.
publish() {
  local new=$OUT/.new.$BASHPID
  python3 "$HERE/gpu_table.py" "$RAW" >"$new" 2>"$RAW/table.log" && mv "$new" "$OUT/table.md"
  tar -C "$(dirname "$RAW")" -cf - raw 2>/dev/null | gzip -1 >"$new" && mv "$new" "$OUT/results.tar.gz"
  rm -f "$new"
}

over() { [ $SECONDS -ge "$END" ]; }

# The log of a part; names of files are short.
log_of() {
  local name=${1//[ \/]/-}
  [ ${#name} -le 150 ] || name=${name:0:120}-$(cksum <<<"$name" | cut -d ' ' -f 1)
  echo "$RAW/$name.log"
}

# Runs one part for so many seconds at most: what it prints is kept, how it ends is said and published.
part() {
  local status
  attempt "$@"
  status=$?
  publish
  return $status
}

# The same for a part whose results are published once they are read.
attempt() {
  local what=$1 limit=$2 most=$2 log status began=$SECONDS
  shift 2
  # What came of it is there already.
  if [ -n "$AGAIN" ] && grep -qsF -e "$what: passed" -e "$what: failed" "$RAW/parts.txt"; then return 1; fi
  if over; then say "$what" "skipped: no time left"; return 1; fi
  [ -z "$HARD_END" ] || limit=$((limit < END - SECONDS ? limit : END - SECONDS))
  log=$(log_of "$what")
  timeout -k 5 "$limit" "$@" >"$log" 2>&1
  status=$?
  if [ $status -eq 0 ]; then
    say "$what" passed
  elif [[ $status =~ ^(124|137)$ ]] && [ $((SECONDS - began)) -ge "$limit" ]; then
    say "$what" "$([ "$limit" -lt "$most" ] && echo "cut off: no time left after" || echo "failed: longer than") $limit s"
  else
    say "$what" "failed (status $status): $(tail -n 1 "$log" | cut -c -300)"
  fi
  return $status
}

# A benchmark, which prints lines of JSON: those that it prints before it fails are kept, too.
bench() {
  local name=$1 limit=$2 program=$3
  shift 3
  [ -x "$program" ] || { note "bench $name" "skipped: this build has no $(basename "$program")"; return; }
  attempt "bench $name" "$limit" "$program" --json "$@"
  grep '^{' "$(log_of "bench $name")" >"$RAW/bench-$name.jsonl" 2>/dev/null
  publish
}
gather() { bench gather 400 "$HERE/benches/gather"; }
sample() { bench sample 400 "$HERE/benches/sample"; }
step() { bench step 400 "$HERE/benches/step"; }
translation() { bench translation 400 "$HERE/benches/translation" --seconds 380; }

smoke() {
  local plan
  for program in "$HERE"/tests/*-conformance* "$HERE"/tests/*-dma_gather; do part "suite $(basename "$program")" 120 "$program" --test-threads 4; done
  for plan in pipeline device auto; do
    part "train default $plan" 60 "$BUILD/morphgl" train --plan "$plan" --epochs 2 --evaluation none
  done
  part "train default $DMA_GATHER" 60 "$BUILD/morphgl" train --transferring "$DMA_GATHER" --epochs 2 --evaluation none
}

suites() {
  for program in "$HERE"/tests/*; do part "suite $(basename "$program")" 120 "$program" --test-threads 4; done
}

sanitize() {
  local program name
  command -v compute-sanitizer >/dev/null || { note sanitize "skipped: compute-sanitizer is not on the path"; return; }
  for program in "$HERE"/tests/*-conformance* "$HERE"/tests/*-dma_gather; do
    name=$(basename "$program")
    part "memcheck $name" 200 compute-sanitizer --error-exitcode 9 "$program" --test-threads 1
    part "racecheck $name" 200 compute-sanitizer --tool racecheck --error-exitcode 9 "$program" --test-threads 1
  done
}

threads() { local cores; cores=$(nproc); echo $((cores < 16 ? cores : 16)); }

transfers() {
  local most options
  most=$(threads)
  dataset products --nodes 2400000 --degree 51 --dim 100 --classes 47 --split 0.08,0.01,0.01 || return
  for options in Transferring_PCIe_Dma "$DMA_GATHER" "$DMA_GATHER --set $DMA_GATHER.cache_bytes=0" \
    "$DMA_GATHER --set $DMA_GATHER.cache_bytes=0 --set $DMA_GATHER.access=naive"; do
    # shellcheck disable=SC2086  # the options are words
    epoch products sage "$most" pipeline --transferring $options
  done
  epoch products sage "$most" device --transferring Transferring_CUDA+PCIe_ZeroCopy
  alone "$most" Transferring_CUDA+PCIe_ZeroCopy
  alone "$most" "$DMA_GATHER"
}

# The last epoch by a transfer again, with its plan, but phases hold the device and the link one at a time.
alone() {
  python3 -c '
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
plan = [r["run"]["plan"] for r in rows if r["options"] == "--transferring " + sys.argv[2]][-1]
for resource in plan["schedule"]["resources"]:
    resource.pop("queued", None)
json.dump(plan, open(sys.argv[3], "w"))' "$RAW/epochs.jsonl" "$2" "$RAW/alone.json" && epoch products sage "$1" "$RAW/alone.json" --transferring "$2"
}

epochs() {
  local model plan most
  most=$(threads)
  dataset products --nodes 2400000 --degree 51 --dim 100 --classes 47 --split 0.08,0.01,0.01 || return
  for model in sage gcn gat; do
    epoch products "$model" "$most" auto
    pyg "$model" "$most"
  done
  for model in sage gcn gat; do
    for plan in pipeline device; do epoch products "$model" "$most" "$plan"; done
  done
}

sweep() {
  local model plan threads most
  most=$(threads)
  # 3.2 GB in all, of which 3 GiB may lie on the device, mini-batches included.
  if dataset large --nodes 10000000 --degree 15 --dim 128 --classes 50 --split 0.01,0.001,0.001; then
    for model in sage gcn gat; do
      for plan in auto pipeline device; do
        MORPHGL_CUDA_MEMORY=$((3 << 30)) epoch large "$model" "$most" "$plan" --device-memory 2GiB
      done
    done
  fi
  dataset products --nodes 2400000 --degree 51 --dim 100 --classes 47 --split 0.08,0.01,0.01 || return
  for model in sage gcn gat; do
    for threads in 4 2 8 12; do
      [ "$threads" -lt "$most" ] || continue
      for plan in auto pipeline device; do epoch products "$model" "$threads" "$plan"; done
    done
  done
}

# A graph to train on, made once.
dataset() {
  local name=$1
  shift
  [ -e "$SETS/$name/graph.json" ] || part "generate $name" 300 "$BUILD/morphgl" generate sbm -q -o "$SETS/$name" --dtype f16 "$@"
}

# Bytes of the host's memory that an epoch may use.
memory() { awk '/^MemAvailable/ { printf "%d", $2 * 1024 * 0.8 }' /proc/meminfo; }

# Two epochs by one plan, with so many CPU threads; what follows are more options. Of another build, number of epochs, time limit, file
# of rows and name where BUILD, EPOCHS, LIMIT, ROWS and TAG say so.
epoch() {
  local graph=$1 model=$2 threads=$3 plan=$4
  shift 4
  local what="${TAG:-epoch} $graph $model $threads $plan${*:+ $*}"
  attempt "$what" "${LIMIT:-120}" taskset -c "0-$((threads - 1))" "$BUILD/morphgl" train "$SETS/$graph" --model "$model" --threads "$threads" \
    --plan "$plan" --memory "$(memory)" --epochs "${EPOCHS:-2}" --evaluation none --no-verify -q --json "$@" || { publish; return 1; }
  row "$(log_of "$what")" "${ROWS:-epochs.jsonl}" tag="${TAG:-epoch}" graph="$graph" model="$model" threads="$threads" \
    plan="$(basename "$plan" .json)" options="$*"
}

# PyG's epochs, and ours by its rule of expansion.
pyg() {
  local model=$1 threads=$2
  python3 -c "import torch_geometric" 2>/dev/null || { note "PyG $model" "skipped: python3 has no torch_geometric"; return; }
  epoch products "$model" "$threads" auto --expansion new
  attempt "PyG $model" 150 taskset -c "0-$((threads - 1))" python3 "$HERE/pyg_epoch.py" "$SETS/products" --model "$model" \
    --threads "$threads" --epochs 2 --seconds 30 || { publish; return 1; }
  row "$(log_of "PyG $model")" pyg.jsonl
}

# Adds the JSON document that ends a log, its last line that is one or all from its first brace on, as a row of a file, with what it
# is of.
row() {
  python3 -c '
import json, sys
log, out, *about = sys.argv[1:]
text = open(log).read()
def parsed(piece):
    try: return json.loads(piece)
    except ValueError: return None
document = next(filter(None, map(parsed, (l for l in reversed(text.splitlines()) if l.startswith("{")))), None)
document = document or json.loads(text[text.index("{"):])
fields = dict(field.split("=", 1) for field in about)
with open(out, "a") as file:
    file.write(json.dumps({**fields, "run": document} if fields else document) + "\n")
' "$1" "$RAW/$2" "${@:3}" || say "$1" "failed: no JSON"
  publish
}

# shellcheck source-path=SCRIPTDIR source=gpu_quarter.sh
source "$HERE/gpu_quarter.sh"

usage() {
  echo "usage: gpu.sh pack ARCHIVE | gpu.sh run OUT STAGE | gpu.sh quarter OLD NEW; stages: $STAGES" >&2
  exit 2
}
case "${1:-} $#" in
  "pack 2") pack "$2" ;;
  "run 3") [[ " $STAGES " == *" $3 "* ]] || usage; run "$2" "$3" ;;
  "quarter 3") quarter "$2" "$3" ;;
  *) usage ;;
esac
