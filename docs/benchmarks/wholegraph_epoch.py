#!/usr/bin/env python3
"""WholeGraph's sampler and gather on a MorphGL dataset, on one CUDA device: a JSON line for each place of lists and rows.

    wholegraph_epoch.py DATASET [--batches 100] [--rounds 3]

Sampling is `GraphStructure.multilayer_sample_without_replacement`, whose hops expand all nodes found so far, as MorphGL's do by
default; gathering is of the rows of a mini-batch's nodes. Both lie on the device, or in host memory that the device reads
("chunked", location cpu). Edges/s are of whole rounds, GB/s of rows. Needs pylibwholegraph and a device.
"""
import argparse
import json
import time

import numpy as np

import peer_batches

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("dataset")
parser.add_argument("--fanouts", default="15,10,5")
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--batches", type=int, default=100, help="mini-batches of a round")
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
FANOUTS = [int(k) for k in args.fanouts.split(",")]

import pylibwholegraph  # noqa: E402
import pylibwholegraph.torch as wg  # noqa: E402
import torch  # noqa: E402


def whole(comm, place, array):
    """An array in whole memory, on the device or the host."""
    tensor = wg.create_wholememory_tensor(comm, "chunked", place, list(array.shape), torch.from_numpy(array[:1]).dtype, None)
    local, _ = tensor.get_local_tensor(host_view=place == "cpu")
    local.copy_(torch.from_numpy(array))
    return tensor


def rounds(work):
    """Values of rounds; the first one warms up."""
    values = []
    for _ in range(args.rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        done = work()
        torch.cuda.synchronize()
        values.append(done / (time.perf_counter() - start))
    return values[1:]


def report(what, unit, values, **about):
    ordered = sorted(values)
    print(json.dumps({
        "what": what, "peer": "wholegraph", "unit": unit, "median": ordered[len(ordered) // 2], "all": values, **about,
        "device": torch.cuda.get_device_name(0), "versions": {"torch": torch.__version__, "wholegraph": pylibwholegraph.__version__},
    }), flush=True)


def main():
    graph = peer_batches.Graph(args.dataset)
    comm, _ = wg.init_torch_env_and_create_wm_comm(0, 1, 0, 1)
    order = np.random.default_rng(0).permutation(graph.train)
    seeds = [order[i:i + args.batch_size] for i in range(0, len(order), args.batch_size)][:args.batches]
    seeds = [torch.from_numpy(s.astype(np.int32)).cuda() for s in seeds]
    indices, nodes = graph.indices.astype(np.int32), []
    for place in ("cuda", "cpu"):
        structure = wg.GraphStructure()
        structure.set_csr_graph(whole(comm, place, graph.indptr), whole(comm, place, indices))

        def sample():
            edges = 0
            for batch in seeds:
                ids, _, _, columns = structure.multilayer_sample_without_replacement(batch, FANOUTS, None)
                edges += sum(len(c) for c in columns)
                if len(nodes) < 8:
                    nodes.append(ids[0])
            return edges

        report("sample", "edges/s", rounds(sample), lists=place, fanouts=args.fanouts, batch_size=args.batch_size)
    for place in ("cuda", "cpu"):
        rows = wg.create_embedding(comm, "chunked", place, torch.from_numpy(graph.features[:1]).dtype, list(graph.features.shape))
        local, _ = rows.get_embedding_tensor().get_local_tensor(host_view=place == "cpu")
        local.copy_(torch.from_numpy(graph.features))
        row_bytes = graph.features.itemsize * graph.features.shape[1]

        def gather():
            for ids in nodes:
                rows.gather(ids)
            return sum(len(ids) for ids in nodes) * row_bytes / 1e9

        report("gather", "GB/s", rounds(gather), rows=place, row_bytes=row_bytes, table=graph.features.nbytes)


main()
