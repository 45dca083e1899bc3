#!/usr/bin/env python3
"""Epochs of a training loop written by hand in torch, on a MorphGL dataset: one JSON line. The loop of somebody who knows torch well.

    torch_epoch.py DATASET --model sage|gcn [--device cuda] [--threads 16] [--epochs 2] [--seconds 60] [--tf32] [--no-graph]

Features lie on the device in their stored type, and so do a few mini-batches, made beforehand by PyG's rule: sampling is left out, and a
step copies nothing from the host. Each layer is an SpMM of a CSR matrix (its transpose for backward is made beforehand as well)
and a GEMM. Nodes and edges of every mini-batch are padded to the largest one's, so that a step, Adam's included, is captured as one
CUDA graph and replayed; where that fails ("graph" says why) and on the CPU steps run one operation after the other. Models as in
pyg_epoch.py.
"""
import json
import os
import sys
import time

import numpy as np

import peer_batches

parser = peer_batches.arguments(__doc__.split("\n")[0], ["sage", "gcn"])
parser.add_argument("--no-graph", action="store_true", help="no CUDA graph")
args = parser.parse_args()
FANOUTS = [int(k) for k in args.fanouts.split(",")]
STEPS = 8

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

DEVICE = torch.device(args.device)


def csr(rows, columns, values, shape):
    """Row pointers, columns and values, in the order of rows."""
    order = np.argsort(rows, kind="stable")
    indptr = np.zeros(shape + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=shape), out=indptr[1:])
    return indptr, columns[order].astype(np.int32), values[order]


def layers_of(batch):
    """Edges of each layer, as (targets, sources, values), and its numbers of targets and sources. The mean's values are one by the
    degree; GCN's those of its symmetric normalisation with self-loops, as in PyG."""
    layers = []
    for i in range(len(FANOUTS)):
        hops = len(FANOUTS) - i
        num_edges, num_dst, num_src = sum(batch.num_edges[:hops]), sum(batch.num_nodes[:hops]), sum(batch.num_nodes[:hops + 1])
        sources, targets = batch.sources[:num_edges], batch.targets[:num_edges]
        if args.model == "gcn":
            loops = np.arange(num_src)
            sources, targets = np.concatenate([sources, loops]), np.concatenate([targets, loops])
            scale = 1 / np.sqrt(np.bincount(targets, minlength=num_src))
            values = (scale[sources] * scale[targets]).astype(np.float32)
            kept = targets < num_dst
            sources, targets, values = sources[kept], targets[kept], values[kept]
        else:
            values = (1 / np.bincount(targets, minlength=num_dst)[targets]).astype(np.float32)
        layers.append((targets, sources, values, num_dst, num_src))
    return layers


class Padded:
    """A mini-batch as tensors of fixed shapes. Padding is edges from a node of zeros to a row that nobody reads, both the last ones."""

    def __init__(self, graph, batch, layers, sizes):
        edges, nodes = sizes
        self.tensors = []
        n_id = np.zeros(nodes[-1], np.int64)
        n_id[:len(batch.nodes)] = batch.nodes
        labels = graph.labels[batch.nodes[:batch.num_nodes[0]]]
        y = np.full(nodes[0], -100, np.int64)
        y[:len(labels)] = labels
        self.tensors += [n_id, y]
        for i, (targets, sources, values, _, _) in enumerate(layers):
            num_dst, num_src = nodes[len(FANOUTS) - 1 - i], nodes[len(FANOUTS) - i]
            missing = edges[i] - len(targets)
            targets = np.concatenate([targets, np.full(missing, num_dst - 1)])
            sources = np.concatenate([sources, np.full(missing, num_src - 1)])
            values = np.concatenate([values, np.zeros(missing, np.float32)])
            self.tensors += csr(targets, sources, values, num_dst)
            self.tensors += csr(sources, targets, values, num_src)
        self.tensors = [torch.from_numpy(np.ascontiguousarray(t)).to(DEVICE) for t in self.tensors]


class Spmm(torch.autograd.Function):
    """A sparse matrix by a dense one; the gradient is by the transpose, which is given."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.transpose = backward
        return torch.sparse.mm(forward, x)

    @staticmethod
    def backward(ctx, gradient):
        return torch.sparse.mm(ctx.transpose, gradient.contiguous()), None, None


class Model(torch.nn.Module):
    def __init__(self, dim, num_classes):
        super().__init__()
        dims = [dim] + [args.hidden] * (len(FANOUTS) - 1) + [num_classes]
        linears = [torch.nn.Linear(a, b) for a, b in zip(dims, dims[1:])]
        self.neighbours = torch.nn.ModuleList(linears)
        own = [torch.nn.Linear(a, b, bias=False) for a, b in zip(dims, dims[1:])]
        self.own = torch.nn.ModuleList(own if args.model == "sage" else [])

    def forward(self, x, matrices):
        for i, linear in enumerate(self.neighbours):
            forward, backward = matrices[i]
            num_dst, first = forward.size(0), args.model == "sage"
            # The narrower side of the GEMM is summed over edges: GCN multiplies first where that makes rows shorter.
            first = first or linear.in_features <= linear.out_features
            if first:
                out = linear(Spmm.apply(x, forward, backward))
            else:
                out = Spmm.apply(F.linear(x, linear.weight), forward, backward) + linear.bias
            if args.model == "sage":
                out = out + self.own[i](x[:num_dst])
            x = out
            if i + 1 < len(self.neighbours):
                x = F.dropout(F.relu(x), args.dropout, self.training)
        return x


class Step:
    """A step over tensors at fixed places, to which a mini-batch is copied."""

    def __init__(self, model, optimizer, features, nodes, places):
        self.model, self.optimizer, self.features, self.nodes, self.places = model, optimizer, features, nodes, places
        self.loss = torch.zeros((), device=DEVICE)

    def run(self):
        n_id, y, *rest = self.places
        matrices = []
        for i in range(len(FANOUTS)):
            six = rest[6 * i:6 * i + 6]
            shape = self.nodes[len(FANOUTS) - 1 - i], self.nodes[len(FANOUTS) - i]
            matrices.append((torch.sparse_csr_tensor(*six[:3], size=shape), torch.sparse_csr_tensor(*six[3:], size=shape[::-1])))
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(self.model(self.features[n_id].float(), matrices), y)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def load(self, padded):
        torch._foreach_copy_(self.places, padded.tensors)


def captured(step):
    """The step as a CUDA graph, after warming up on a stream of its own, as torch asks for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step.run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()
    return graph.replay


def main():
    torch.set_num_threads(max(1, args.threads))
    torch.sparse.check_sparse_tensor_invariants.disable()
    if args.tf32:
        torch.set_float32_matmul_precision("high")
    graph = peer_batches.Graph(args.dataset)
    batches, count = peer_batches.some(graph, FANOUTS, args.batch_size, STEPS)
    layers = [layers_of(batch) for batch in batches]
    # One row and one node more than any mini-batch has, for the padding.
    nodes = [max(sum(b.num_nodes[:hop + 1]) for b in batches) + 1 for hop in range(len(FANOUTS) + 1)]
    edges = [max(len(of[i][0]) for of in layers) for i in range(len(FANOUTS))]
    padded = [Padded(graph, batch, of, (edges, nodes)) for batch, of in zip(batches, layers)]
    features = torch.from_numpy(graph.features).to(DEVICE)
    cuda = DEVICE.type == "cuda"
    model = Model(features.shape[1], graph.num_classes).to(DEVICE).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, capturable=cuda, foreach=True)
    step = Step(model, optimizer, features, nodes, [t.clone() for t in padded[0].tensors])
    run, how = step.run, "none"
    if cuda and not args.no_graph:
        try:
            run, how = captured(step), "captured"
        except RuntimeError as error:
            # A failed capture may leave the device in error: the whole program starts again without.
            sys.stderr.write(f"torch_epoch.py: no CUDA graph: {error}\n")
            sys.stderr.flush()
            os.execv(sys.executable, [sys.executable, *sys.argv, "--no-graph"])
    elif args.no_graph:
        how = "refused"
    synchronize = torch.cuda.synchronize if cuda else lambda: None
    seconds, measured, losses = [], [], []
    for _ in range(args.epochs):
        synchronize()
        start, total, done = time.perf_counter(), torch.zeros((), device=DEVICE), 0
        for i in range(count):
            step.load(padded[i % len(padded)])
            run()
            total += step.loss
            done += 1
            if time.perf_counter() - start > args.seconds:
                break
        synchronize()
        seconds.append((time.perf_counter() - start) * count / done)
        measured.append(done)
        losses.append(float(total) / done)
    print(json.dumps({
        "what": "epoch", "peer": "torch by hand", "mode": "steps", "sampler": None, "model": args.model,
        "device": torch.cuda.get_device_name(DEVICE) if cuda else "cpu", "threads": args.threads, "unit": "s/epoch", "all": seconds,
        "batches": count, "measured": measured, "loss": losses, "features": "device", "adjacency": "CSR, padded",
        "precision": "TF32" if args.tf32 else "f32", "compiled": {"captured": "CUDA graph"}.get(how), "graph": how,
        "versions": {"torch": torch.__version__},
    }))


main()
