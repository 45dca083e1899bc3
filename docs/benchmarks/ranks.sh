#!/usr/bin/env bash
# Training by 1, 2 and 4 ranks of MPI over links of 100 Mbit/s and 1 Gbit/s: seconds predicted and measured, the part of the exchanges
# that backward hides, bytes per epoch, and losses, as a table. RATES and RANKS, if set, are other links and numbers of ranks.
# Four hosts are network namespaces of this machine, joined by a bridge; each link is limited by tc, in both directions. They share
# this machine's cores. Needs root, iproute2 and Open MPI, and a morphgl built with --features mpi.
# Usage: ranks.sh MORPHGL DATASET [option of train]...
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 MORPHGL DATASET [option of train]..." >&2; exit 2; }
morphgl=$(realpath "$1") dataset=$(realpath "$2")
shift 2
work=$(mktemp -d)
hosts=4
cleanup() {
  for i in $(seq $hosts); do ip netns del "rank$i" 2>/dev/null || true; done
  ip link del ranks 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

# A bridge, of which this shell's side starts the ranks, and a namespace for each host.
ip link add ranks type bridge
ip addr add 10.77.0.254/24 dev ranks
ip link set ranks up
for i in $(seq $hosts); do
  ip netns add "rank$i"
  ip link add "rankv$i" type veth peer name eth0 netns "rank$i"
  ip link set "rankv$i" master ranks up
  ip -n "rank$i" addr add "10.77.0.$i/24" dev eth0
  ip -n "rank$i" link set eth0 up
  ip -n "rank$i" link set lo up
done

# In place of ssh: HOST COMMAND... in the host's namespace, under its name.
cat >"$work/agent" <<'AGENT'
#!/usr/bin/env bash
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "rank${host##*.}" unshare --uts bash -c "hostname host${host##*.}; $*"
AGENT
chmod +x "$work/agent"

limit() {
  for i in $(seq $hosts); do
    ip netns exec "rank$i" tc qdisc replace dev eth0 root tbf rate "$1" burst 256kb latency 50ms
    tc qdisc replace dev "rankv$i" root tbf rate "$1" burst 256kb latency 50ms
  done
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
train() {
  local n=$1
  shift
  mpirun --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
    --mca oob_tcp_if_include 10.77.0.0/24 --bind-to none --host "$(seq -f '10.77.0.%g' -s , "$n")" -n "$n" \
    "$morphgl" train "$dataset" --threads 1 --json --quiet "$@"
}

echo "| link | ranks | seconds per epoch: predicted | measured (median) | in exchanges | hidden behind backward | MiB sent per epoch by all | last loss |"
echo "|---|---|---|---|---|---|---|---|"
for rate in ${RATES:-100mbit 1gbit}; do
  limit $rate
  for n in ${RANKS:-1 2 4}; do
    train $n "$@" >"$work/result.json"
    python3 - "$rate" "$work/result.json" <<'PYTHON'
import json, statistics, sys

rate, path = sys.argv[1:]
d = json.load(open(path))
ranks = d["ranks"]
exchange = statistics.median(r["exchange_seconds_per_epoch"] for r in ranks)
hidden = statistics.median(r["exchange_hidden_seconds_per_epoch"] for r in ranks)
share = f"{hidden:.3f} ({100 * hidden / exchange:.0f}%)" if len(ranks) > 1 else "–"
predicted, measured = d["predicted_epoch_seconds"], d["measured_epoch_seconds"]
sent = sum(r["bytes_sent_per_epoch"] for r in ranks) / 2**20
loss = d["epochs"][-1]["loss"]
hosts = len({r["host"] for r in ranks})
assert hosts == len(ranks), f"{len(ranks)} ranks on {hosts} hosts"
print(f"| {rate} | {len(ranks)} | {predicted:.3f} | {measured:.3f} | {exchange:.3f} | {share} | {sent:.1f} | {loss:.7f} |")
PYTHON
  done
done
