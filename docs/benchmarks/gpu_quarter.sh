# shellcheck shell=bash
# Two builds side by side on a machine with a CUDA device that is there for a quarter of an hour. Part of gpu.sh, whose functions it
# uses:
#
#   ./gpu.sh quarter OLD NEW    OLD and NEW are unpacked builds; OLD may be `-`
#
#   OUT      folder for table.md and results.tar.gz, written after each step (default: ./quarter)
#   MINUTES  after so many, and some seconds, the call has ended (9). Another call with the same NEW goes on with what is missing, so
#            that a quarter of an hour is one call of nine minutes and one of four. What has passed or failed is not run again unless
#            NEW/raw/parts.txt is removed
#   PARTS    those to run, in this order (default: all)
#   MODELS   of the parts turns and peers (sage gcn gat)
#   GRIDS    of the part grids: options of the zero-copy gather, one per word
#   SHRINK   by how many times the graphs have fewer nodes, for a rehearsal on the emulated device (1); the probe of translation is then
#            small as well, and rates mean nothing
#   WHEELS   of the part wholegraph: a folder with the wheels of pylibwholegraph and what it needs beside torch
#
# Parts in the order of their worth, with the minutes that each takes at most:
#
#   facts        0.2  machine, driver, operators of both builds; then the graphs are made beside the other parts
#   translation  1.9  gathers by kind of host memory, size of the table, order of the ids and grid (NEW)
#   grids        1.2  epochs whose rows all come from the host, by order and grid of the gather (NEW), and as OLD does it
#   turns        1.9  epochs by the plan `device`, OLD and NEW in turns, three models
#   regime       3.3  features and topology on the host: plans auto, device, pipeline and paper with 16, 4, 2 and 8 threads (NEW)
#   benches      1.5  benchmarks of gather, by three lengths of rows, and step, NEW and OLD
#   tests        2.0  conformance suites; the programs of tests that OLD has not and the suites under compute-sanitizer (NEW)
#   peers        2.5  PyG as it is and with features on the device, and a loop of torch by hand
#   wholegraph   0.8  WholeGraph's sampler and gather
#
# No step takes longer than what is left of its part, and none fails another. Without a device it says so and ends with status 0.

QUARTER="facts translation grids turns regime benches tests peers wholegraph"
ZERO_COPY=Transferring_CUDA+PCIe_ZeroCopy
# Of the part regime: bytes of device memory, less than its graph has. Neither features nor lists are cached there.
REGIME_MEMORY=$((3 << 30))

# Seconds that a part takes at most; the MINUTES of the call come first.
quarter_limit() {
  case $1 in
    facts) echo 12 ;;
    translation) echo 114 ;;
    grids) echo 72 ;;
    turns) echo 114 ;;
    regime) echo 198 ;;
    benches) echo 90 ;;
    tests) echo 120 ;;
    peers) echo 150 ;;
    wholegraph) echo 48 ;;
  esac
}

quarter() {
  local name began total=$((${MINUTES:-9} * 60)) missing parts=${PARTS:-$QUARTER}
  [ -x "$2/morphgl" ] || { echo "gpu.sh: $2 has no program morphgl; give a folder that an archive of \`gpu.sh pack\` was unpacked to" >&2; exit 2; }
  for name in $parts; do
    [[ " $QUARTER " == *" $name "* ]] || { echo "gpu.sh: PARTS names $name; there are $QUARTER" >&2; exit 2; }
  done
  NEW=$(cd "$2" && pwd) OLD=-
  mkdir -p "${OUT:=quarter}" && OUT=$(cd "$OUT" && pwd) || exit 1
  # shellcheck disable=SC2034  # gpu.sh reads them
  BUILD=$NEW RAW=$NEW/raw SETS=$NEW/sets END=$total HARD_END=yes AGAIN=yes
  mkdir -p "$RAW" "$SETS" || exit 1
  # What a call that was ended has left.
  rm -rf "$SETS"/*.partial-*
  machine
  if missing=$(no_device); then note quarter "skipped: $missing"; return; fi
  if [ "$1" = - ]; then
    note "old build" "none is given"
  elif [ ! -x "$1/morphgl" ]; then
    note "old build" "skipped: $1 has no program morphgl"
  elif missing=$(BUILD=$1 no_device); then
    note "old build" "skipped: $missing"
  else
    OLD=$(cd "$1" && pwd)
  fi
  libraries
  make_graphs
  for name in $parts; do
    END=$((SECONDS + $(quarter_limit "$name")))
    END=$((END < total ? END : total))
    began=$SECONDS
    "quarter_$name"
    note "part $name" "ended after $((SECONDS - began)) s, $((SECONDS < total ? total - SECONDS : 0)) s are left"
  done
  return 0
}

# Path of a build by its name, nothing without that build.
build() {
  case $1 in
    new) echo "$NEW" ;;
    old) [ "$OLD" = - ] || echo "$OLD" ;;
  esac
}

# ---------------------------------------------------------------- graphs
# Makes the graphs beside the parts that need none, on the upper half of the cores.
make_graphs() {
  local cores
  cores=$(nproc)
  {
    # 188 mini-batches of an epoch, as ogbn-products has.
    make_graph products --nodes $((2400000 / ${SHRINK:-1})) --degree 51 --dim 100 --classes 47 --split 0.08,0.01,0.01
    # Hubs of up to 7,700 neighbours: the fewer classes, the larger the hubs. 2.0 GB of features, 1.0 GB of lists.
    make_graph hubs --nodes $((8000000 / ${SHRINK:-1})) --degree 30 --dim 128 --classes 4 --split 0.015,0.001,0.001
  } &
  MAKER=$!
  # shellcheck disable=SC2064  # the process of now
  trap "kill $MAKER 2>/dev/null" EXIT
}

make_graph() {
  local name=$1 status
  shift
  [ ! -e "$SETS/$name/graph.json" ] || return 0
  timeout -k 5 240 taskset -c "$((cores / 2))-$((cores - 1))" "$NEW/morphgl" generate sbm -q -o "$SETS/$name" --force --dtype f16 "$@" \
    >"$RAW/generate-$name.log" 2>&1
  status=$?
  [ $status -eq 0 ] || rm -rf "${SETS:?}/$name"
  echo $status >"$RAW/generate-$name.status"
}

# Waits for a graph; false if there is none.
graph() {
  local name=$1 status
  while [ ! -e "$SETS/$name/graph.json" ] && kill -0 "$MAKER" 2>/dev/null && ! over; do sleep 0.2; done
  [ ! -e "$SETS/$name/graph.json" ] || return 0
  if kill -0 "$MAKER" 2>/dev/null; then
    note "graph $name" "not yet made"
  else
    status=$(cat "$RAW/generate-$name.status" 2>/dev/null || echo unknown)
    note "graph $name" "failed (status $status): $(tail -n 1 "$RAW/generate-$name.log" 2>/dev/null | cut -c -300)"
  fi
  return 1
}

# ---------------------------------------------------------------- parts
quarter_facts() {
  {
    uname -r
    df -h "$SETS" | tail -n 1
    echo "huge pages: $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>&1)"
    echo "locked memory: $(ulimit -l) kB; NUMA nodes: $(find /sys/devices/system/node -maxdepth 1 -name 'node[0-9]*' 2>/dev/null | wc -l)"
    echo "IOMMU: $(find /sys/class/iommu -mindepth 1 2>/dev/null | wc -l) units"
    nvidia-smi --query-gpu=clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu --format=csv 2>&1
    python3 -c '
from importlib import metadata
for name in ("torch", "torch_geometric", "pyg-lib", "torch-sparse", "triton", "pylibwholegraph-cu12", "pylibwholegraph-cu13"):
    try: print(name, metadata.version(name))
    except metadata.PackageNotFoundError: print(name, "is not installed")'
    for tool in compute-sanitizer ncu; do command -v $tool || echo "$tool is not on the path"; done
  } >"$RAW/facts.txt" 2>&1
  [ "$OLD" = - ] || timeout 20 "$OLD/morphgl" ops >"$RAW/ops-old.txt" 2>&1
  note facts passed
}

quarter_translation() {
  local options=(--seconds 95)
  [ "${SHRINK:-1}" -eq 1 ] || options=(--emulated --seconds 20 --tables "8388608,1048576" --ids 2000 --rounds 2)
  bench translation 110 "$NEW/benches/translation" "${options[@]}"
}

# An epoch of a build for a file of rows: FILE BUILD TAG GRAPH MODEL THREADS PLAN [OPTIONS].
side() {
  local file=$1 of=$2 tag=$3
  shift 3
  [ -n "$(build "$of")" ] || return 0
  ROWS=$file TAG="$tag $of" BUILD=$(build "$of") EPOCHS=${EPOCHS:-2} LIMIT=45 epoch "$@"
}

quarter_grids() {
  local grid uncached="$ZERO_COPY.cache_bytes=0" most
  most=$(threads)
  graph products || return
  for grid in new old; do
    side grids.jsonl $grid grid products sage "$most" device --transferring "$ZERO_COPY" --set "$uncached"
  done
  for grid in ${GRIDS:-order=nodes order=pages lines=384 lines=1536 lines=12288}; do
    side grids.jsonl new grid products sage "$most" device --transferring "$ZERO_COPY" --set "$uncached" --set "$ZERO_COPY.$grid"
  done
}

quarter_turns() {
  local model most of
  most=$(threads)
  graph products || return
  for model in ${MODELS:-sage gcn gat}; do
    for of in old new; do EPOCHS=3 side turns.jsonl $of "turn 1" products "$model" "$most" device; done
  done
  for model in ${MODELS:-sage gcn gat}; do
    for of in new old; do EPOCHS=3 side turns.jsonl $of "turn 2" products "$model" "$most" device; done
  done
  # GEMMs by the kernel of ours, beside the new build's turns by cuBLAS.
  EPOCHS=3 side turns.jsonl new 3xtf32 products sage "$most" device --set Training_CUDA_Native.gemm=3xtf32
}

quarter_regime() {
  local count plan most key option
  local host=("Batching_CUDA+PCIe_Neighbor.topology=host" "$ZERO_COPY.cache_bytes=0" "$DMA_GATHER.cache_bytes=0") set kept
  most=$(threads)
  graph hubs || return
  for count in 16 4 2 8; do
    [ $count -le "$most" ] || continue
    for plan in auto device pipeline paper; do
      while :; do
        set=() && for option in "${host[@]}"; do set+=(--set "$option"); done
        MORPHGL_CUDA_MEMORY=$REGIME_MEMORY side regime.jsonl new regime hubs sage $count $plan "${set[@]}" && break
        # The option of an operator that no route of this machine has is refused: it goes on without.
        key=$(grep -so -e '--set [^ ]*: no plan' "$(log_of "regime new hubs sage $count $plan ${set[*]}")" | head -n 1)
        key=${key#--set } key=${key%: no plan}
        [ -n "$key" ] || break
        kept=() && for option in "${host[@]}"; do [ "${option%.*}" = "$key" ] || kept+=("$option"); done
        [ ${#kept[@]} -lt ${#host[@]} ] || break
        host=("${kept[@]}")
      done
    done
  done
}

quarter_benches() {
  local of
  for of in new old; do
    [ -z "$(build $of)" ] || bench "gather-$of" 40 "$(build $of)/benches/gather" --row-bytes 200,400,512
  done
  for of in new old; do
    [ -z "$(build $of)" ] || bench "step-$of" 25 "$(build $of)/benches/step"
  done
}

# Programs of tests run beside each other: they measure nothing.
quarter_tests() {
  local program name
  for program in "$NEW"/tests/*-conformance* "$NEW"/tests/*-dma_gather; do
    [ ! -x "$program" ] || aside 4 part "suite $(basename "$program")" 115 "$program" --test-threads 2
  done
  if ! command -v compute-sanitizer >/dev/null; then
    note memcheck "skipped: compute-sanitizer is not on the path"
  else
    for program in $(new_tests) "$NEW"/tests/*-conformance* "$NEW"/tests/*-dma_gather; do
      name=$(basename "$program")
      [ ! -x "$program" ] || aside 4 part "memcheck $name" 115 compute-sanitizer --error-exitcode 9 "$program" --test-threads 1
    done
  fi
  aside 1 true
}

# Programs of tests of NEW that OLD has not; without OLD none.
new_tests() {
  local program
  [ "$OLD" != - ] || return 0
  for program in "$NEW"/tests/*; do
    [ -e "$OLD/tests/$(basename "$program")" ] || echo "$program"
  done
}

# Runs a command beside others, of which so many run at a time at most; `aside 1 true` waits for all.
ASIDE=()
aside() {
  local most=$1 running
  shift
  while :; do
    running=()
    for job in "${ASIDE[@]}"; do ! kill -0 "$job" 2>/dev/null || running+=("$job"); done
    ASIDE=("${running[@]}")
    [ ${#ASIDE[@]} -ge "$most" ] || break
    sleep 0.1
  done
  "$@" &
  ASIDE+=($!)
}

quarter_peers() {
  local model most
  most=$(threads)
  graph products || return
  for model in ${MODELS:-sage gcn gat}; do
    peer "$model" pyg_epoch.py
    if [ "$model" = gat ]; then
      peer gat pyg_epoch.py --features device
    else
      peer "$model" pyg_epoch.py --features device --csr
      peer "$model" torch_epoch.py
    fi
    # MorphGL by PyG's rule of expansion.
    side peers-beside.jsonl new rule products "$model" "$most" device --expansion new
  done
  for model in ${MODELS:-sage gcn gat}; do
    peer "$model" pyg_epoch.py --features device --tf32
    [ "$model" = gat ] || peer "$model" torch_epoch.py --tf32
    side peers-beside.jsonl new rule products "$model" "$most" device --expansion new --set Training_CUDA_Native.tf32=true
  done
  for model in ${MODELS:-sage gcn gat}; do peer "$model" pyg_epoch.py --features device --compile; done
}

has_module() { python3 -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec(sys.argv[1]))' "$1"; }

# Epochs of a peer: MODEL PROGRAM [OPTIONS].
peer() {
  local model=$1 program=$2 what limit=60
  shift 2
  # torch.compile takes most of a minute.
  [[ " $* " != *" --compile "* ]] || limit=110
  what="peer $program $model${*:+ $*}"
  if [ "$program" = pyg_epoch.py ] && ! has_module torch_geometric; then note "$what" "skipped: python3 has no torch_geometric"; return; fi
  attempt "$what" $limit taskset -c "0-$(($(threads) - 1))" python3 "$HERE/$program" "$SETS/products" --model "$model" --threads "$(threads)" \
    --epochs 2 --seconds 10 "$@" || { publish; return 1; }
  row "$(log_of "$what")" peers.jsonl
}

quarter_wholegraph() {
  local site=$NEW/site
  graph products || return
  if [ -n "${WHEELS:-}" ] && [ ! -e "$site" ]; then
    part "wholegraph wheels" 60 python3 -m pip install -q --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
  fi
  if ! PYTHONPATH=$site has_module pylibwholegraph; then
    note wholegraph "skipped: python3 has no pylibwholegraph; WHEELS names a folder with its wheels"
    return
  fi
  PYTHONPATH=$site attempt wholegraph 45 python3 "$HERE/wholegraph_epoch.py" "$SETS/products" --batches 100
  grep '^{' "$(log_of wholegraph)" >"$RAW/bench-wholegraph.jsonl"
  publish
}
