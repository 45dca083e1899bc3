#!/usr/bin/env python3
"""One peer, trained by several processes: PyG's NeighborLoader, DGL's DataLoader (use_ddp), or DGL's DistNodeDataLoader on a DistGraph,
under torch's DistributedDataParallel with gloo. Prints one JSON line: seconds of each epoch (of the slowest process), and the last loss.

  peer.py pyg|dgl|dgl-distributed DATA [--ranks 2] [--threads 1] [--epochs 3] [--batch-size 1024]

DATA is a directory of make_data.py. The model is a three-layer GraphSAGE of width 256 with ReLU, without dropout; fanouts
15,10,5; Adam at 0.003. The batch size is that of all processes together: each process takes batch-size / ranks seeds per step.
dgl-distributed has a graph server beside the processes, with the whole graph as its only partition (its seconds do not contain the
partitioning); features and lists reach the processes by shared memory.
"""
import argparse, json, os, subprocess, sys, tempfile, time
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

FANOUTS, HIDDEN = [15, 10, 5], 256


def pyg(args, rank, data):
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv

    n = data["labels"].numel()
    dst = torch.repeat_interleave(torch.arange(n), data["indptr"][1:] - data["indptr"][:-1])
    graph = Data(x=data["x"], y=data["labels"], edge_index=torch.stack([data["indices"], dst]))

    class Model(torch.nn.Module):
        def __init__(self, dims):
            super().__init__()
            self.convs = torch.nn.ModuleList(SAGEConv(a, b) for a, b in zip(dims, dims[1:]))

        def forward(self, b):
            x = b.x
            for i, conv in enumerate(self.convs):
                left = len(self.convs) - i
                if "num_sampled_nodes" in b:
                    # pyg-lib's sampler says which edges and rows the next layer needs.
                    nodes, edges = sum(b.num_sampled_nodes[:left]), sum(b.num_sampled_edges[:left])
                    x = conv((x, x[:nodes]), b.edge_index[:, :edges])
                else:
                    x = conv(x, b.edge_index)
                x = F.relu(x) if left > 1 else x
            return x[:b.batch_size], b.y[:b.batch_size]

    def epoch(number):
        order = torch.from_numpy(np.random.default_rng(number).permutation(data["train"].numel()))
        own = data["train"][order][rank::args.ranks]
        return NeighborLoader(graph, FANOUTS, own, batch_size=args.batch_size // args.ranks, shuffle=False)

    return Model, epoch


def dgl(args, rank, data):
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl
    from dgl.nn import SAGEConv

    graph = dgl.graph(("csc", (data["indptr"], data["indices"], [])))
    graph.ndata["x"], graph.ndata["y"] = data["x"], data["labels"]
    # DGL's first fanout is that of the input layer.
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1], prefetch_node_feats=["x"], prefetch_labels=["y"])
    loader = dgl.dataloading.DataLoader(
        graph, data["train"], sampler, batch_size=args.batch_size // args.ranks, shuffle=True,
        use_ddp=args.ranks > 1, num_workers=0)

    class Model(torch.nn.Module):
        def __init__(self, dims):
            super().__init__()
            self.convs = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in zip(dims, dims[1:]))

        def forward(self, b):
            x, blocks = b[2][0].srcdata["x"], b[2]
            for i, (conv, block) in enumerate(zip(self.convs, blocks)):
                x = conv(block, x)
                x = F.relu(x) if i + 1 < len(self.convs) else x
            return x, blocks[-1].dstdata["y"]

    def epoch(number):
        return loader

    return Model, epoch


def dgl_distributed(args, rank, data):
    import dgl
    from dgl.nn import SAGEConv

    graph = dgl.distributed.DistGraph("graph", part_config=os.environ["DGL_CONF_PATH"])
    own = dgl.distributed.node_split(graph.ndata["train"], graph.get_partition_book(), force_even=True)
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])
    loader = dgl.dataloading.DistNodeDataLoader(graph, own, sampler, batch_size=args.batch_size // args.ranks, shuffle=True)

    class Model(torch.nn.Module):
        def __init__(self, dims):
            super().__init__()
            self.convs = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in zip(dims, dims[1:]))

        def forward(self, b):
            inputs, seeds, blocks = b
            x = graph.ndata["x"][inputs]
            for i, (conv, block) in enumerate(zip(self.convs, blocks)):
                x = conv(block, x)
                x = F.relu(x) if i + 1 < len(self.convs) else x
            return x, graph.ndata["y"][seeds]

    return Model, lambda number: loader


def dgl_servers(args, data, folder):
    """Writes the graph as one partition into `folder`, starts its server, and sets the variables of clients."""
    import dgl

    graph = dgl.graph(("csc", (data["indptr"], data["indices"], [])))
    graph.ndata["x"], graph.ndata["y"] = data["x"], data["labels"]
    graph.ndata["train"] = torch.zeros(graph.num_nodes(), dtype=torch.bool)
    graph.ndata["train"][data["train"]] = True
    dgl.distributed.partition_graph(graph, "graph", 1, folder)
    with open(os.path.join(folder, "ip_config.txt"), "w") as file:
        file.write(f"127.0.0.1 {args.port + 1}\n")
    os.environ.update(
        DGLBACKEND="pytorch", DGL_DIST_MODE="distributed", DGL_IP_CONFIG=file.name, DGL_NUM_SERVER="1", DGL_NUM_SAMPLER="0",
        DGL_NUM_CLIENT=str(args.ranks), DGL_CONF_PATH=os.path.join(folder, "graph.json"), DGL_GRAPH_FORMAT="csc", DGL_ROLE="client")
    server = "import os, dgl; dgl.distributed.initialize(os.environ['DGL_IP_CONFIG'])"
    return subprocess.Popen([sys.executable, "-c", server], env={**os.environ, "DGL_ROLE": "server", "DGL_SERVER_ID": "0"},
                            stdout=sys.stderr)


def load_data(args):
    load = lambda name: torch.from_numpy(np.load(os.path.join(args.data, name + ".npy")))
    names = dict(indptr="indptr", indices="indices", x="feat_f32", labels="labels", train="train_idx")
    return {key: load(name) for key, name in names.items()}


def run(rank, args):
    torch.set_num_threads(args.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(args.port))
    if args.peer == "dgl-distributed":
        import dgl.distributed
        dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    data = load_data(args)
    torch.manual_seed(1)
    make, epoch = PEERS[args.peer](args, rank, data)
    classes = int(data["labels"].max()) + 1
    model = make([data["x"].shape[1], HIDDEN, HIDDEN, classes])
    if args.ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    seconds, loss = [], None
    for number in range(args.epochs):
        dist.barrier()
        start, total, steps = time.perf_counter(), 0.0, 0
        for batch in epoch(number):
            out, labels = model(batch)
            loss = F.cross_entropy(out, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
            if steps == args.steps:
                break
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    mean = torch.tensor(total / steps)
    dist.all_reduce(mean)
    if rank == 0:
        print(json.dumps(dict(seconds=seconds, steps=steps, loss=mean.item() / args.ranks)))
    dist.destroy_process_group()


PEERS = {"pyg": pyg, "dgl": dgl, "dgl-distributed": dgl_distributed}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("data")
    for name, default in dict(ranks=2, threads=1, epochs=3, batch_size=1024, steps=0, port=29517).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = dgl_servers(args, load_data(args), folder) if args.peer == "dgl-distributed" else None
        mp.spawn(run, args=(args,), nprocs=args.ranks)
        if server and server.wait():
            sys.exit(f"the graph server ends with status {server.returncode}")
