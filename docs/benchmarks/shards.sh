#!/usr/bin/env bash
# Memory and feature traffic of four ranks, with whole and with divided features: the table of docs/distributed.md.
# Usage: docs/benchmarks/shards.sh target/debug/morphgl
set -euo pipefail
program=$(realpath "$1")
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
"$program" generate sbm -o wide --nodes 40000 --dim 1024 --degree 8 >/dev/null 2>&1
train="train wide --json --fanouts 2,2 --hidden 16 --batch-size 64 --buffer 1 --profile-seconds 0.1 --dropout 0
  --training Training_CPU_Native --epochs 1 --evaluation sampled"
for features in "" "--shard" "--shard inclusion:16MiB" "--shard inclusion:40MiB"; do
  # shellcheck disable=SC2086  # options are words
  mpirun --oversubscribe --bind-to none -n 4 "$program" $train $features 2>errors >report || { cat errors; exit 1; }
  python3 - "$features" <<'PY'
import json, sys
report = json.load(open("report"))
parts = [rank["features"] for rank in report["ranks"] if rank.get("features")]
of_all = lambda name: f"{sum(part[name] for part in parts):,.0f}" if parts else ""
rows = [of_all(f"{kind}_rows_per_epoch") for kind in ("own", "replicated", "read")]
mib = sum(part["read_bytes_per_epoch"] for part in parts) / 2**20
held = f"{max(part['held_bytes'] for part in parts) / 2**20:.1f}" if parts else "156.2"
peak = report["peak_rss_bytes"] >> 20
print("|", " | ".join([f"`{sys.argv[1]}`" if sys.argv[1] else "whole", held, str(peak), *rows, f"{mib:.0f}",
                       str(report["epochs"][0]["loss"])]), "|")
PY
done
# With 195 MiB of data a process, whole features do not fit and divided ones do.
ulimit -d 200000
for features in "" "--shard inclusion:16MiB"; do
  # shellcheck disable=SC2086
  if mpirun --oversubscribe --bind-to none -n 4 "$program" $train $features >report 2>errors; then
    echo "with 195 MiB per process, ${features:-whole}: trained"
  else
    echo "with 195 MiB per process, ${features:-whole}: failed: $(grep -m 1 -E 'memory|error' errors)"
  fi
done
