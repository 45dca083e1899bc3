"""A torch module and its optimizer as a training operator: what `Training_CPU_Torch` calls."""

import numpy as np
import torch
from torch.nn import functional

from . import loader

FORMS = {"pyg": "edges", "torch": "edges", "dgl": "blocks"}


class ModuleTrainer:
    """Trains `module` by `optimizer` on mini-batches whose loss is the cross-entropy of the seeds' classes.

    `forward(module, batch)` gives the logits, of all nodes of the mini-batch or of its seeds alone. `induced` says that a mini-batch is
    a subgraph, whose edges are the same for every layer.
    """

    def __init__(self, module, optimizer, forward=None, output="torch", induced=False):
        for name, tensor in module.state_dict().items():
            if tensor.dtype == torch.float64:
                raise ValueError(f"model: {name} is float64; call module.float(): parameters are kept as float32")
        self.module, self.optimizer, self.output, self.induced = module, optimizer, output, induced
        self.forward = forward or (dgl_forward if output == "dgl" else edge_forward)
        self.seeds = 0
        self.trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not self.trained:
            raise ValueError("model: no parameter of the module requires a gradient; there is nothing to train")
        first = next(iter(self.trained.values()))
        self.device, self.dtype = first.device, first.dtype

    def form(self):
        return "induced" if self.induced and self.output != "dgl" else FORMS[self.output]

    def set_threads(self, threads):
        self.threads = threads

    def logits(self, batch):
        """Logits and classes of the seeds."""
        # Of the calling thread, too, whichever it is.
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        size = batch.batch_size
        y = torch.from_dlpack(batch.y)[:size].to(self.device)
        logits = self.forward(self.module, self.placed(MAKE[self.output](batch, False)))
        if logits.shape[0] not in (size, batch.n_id.shape[0]) or logits.dim() != 2:
            raise ValueError(f"model: its output has shape {list(logits.shape)}; give [nodes, classes], one row per node of the mini-batch "
                             f"({batch.n_id.shape[0]}) or a seed ({size})")
        return logits[:size], y

    def placed(self, batch):
        """The mini-batch on the module's device, with features of its type."""
        move = lambda t: t if t is None else t.to(self.device, self.dtype if t.is_floating_point() or t.dtype == torch.uint8 else None)
        if self.output == "dgl":
            n_id, seeds, blocks = batch
            blocks = [block.to(self.device) for block in blocks]
            blocks[0].srcdata["feat"] = move(blocks[0].srcdata["feat"])
            return n_id, seeds, blocks
        for name in ("x", "edge_index", "y", "n_id", "edge_weight"):
            if getattr(batch, name, None) is not None:
                setattr(batch, name, move(getattr(batch, name)))
        return batch

    def scored(self, batch):
        """Sum of the losses, right answers and number of the seeds with a class."""
        logits, y = self.logits(batch)
        known = y >= 0
        logits, y = logits[known], y[known]
        if len(y) and y.max() >= logits.shape[1]:
            raise ValueError(f"model: its output has {logits.shape[1]} columns, a seed is of class {int(y.max())}; widen the last layer")
        loss = functional.cross_entropy(logits.float(), y, reduction="sum")
        return loss, int((logits.argmax(1) == y).sum()), len(y)

    def accumulate(self, batch, drawn_by):
        self.module.train()
        # Dropout is a function of seed, epoch and index, as everything else.
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(np.random.SeedSequence(drawn_by).generate_state(1, np.uint64)[0] >> np.uint64(1)))
            loss, correct, count = self.scored(batch)
            if count:
                loss.backward()
        self.seeds += count
        return float(loss.detach()), correct, count

    def score(self, batch, _):
        self.module.eval()
        with torch.no_grad():
            loss, correct, count = self.scored(batch)
        return float(loss), correct, count

    def infer(self, batch, nodes, num_classes):
        self.module.eval()
        with torch.no_grad():
            logits, _ = self.logits(batch)
        if logits.shape[1] != num_classes:
            raise ValueError(f"model: its output has {logits.shape[1]} columns for {num_classes} classes; give the last layer as many, or "
                             'evaluation="sampled"')
        return array(logits[torch.from_dlpack(nodes).to(logits.device)])

    def count(self):
        return self.seeds

    def step(self):
        if self.seeds:
            for parameter in self.trained.values():
                if parameter.grad is not None:
                    parameter.grad /= self.seeds
            self.optimizer.step()
        self.optimizer.zero_grad()
        self.seeds = 0
        for name, parameter in self.trained.items():
            if not torch.isfinite(parameter).all():
                raise ValueError(f"{name} is no longer a number after this step; lower the learning rate")

    def gradients(self):
        zeros = lambda p: torch.zeros_like(p) if p.grad is None else p.grad
        return [named(name, zeros(parameter)) for name, parameter in self.trained.items()]

    def set_gradients(self, gradients, seeds):
        self.seeds = seeds
        for name, _, values in gradients:
            parameter = self.trained[name]
            parameter.grad = torch.from_dlpack(values).to(parameter.device, parameter.dtype)

    def parameters(self):
        return [named(name, tensor) for name, tensor in self.module.state_dict().items()]

    def set_parameters(self, parameters):
        state = self.module.state_dict()
        for name, shape, values in parameters:
            if name not in state or list(state[name].shape) != shape:
                has = list(state[name].shape) if name in state else "no such tensor"
                raise ValueError(f"{name}: shape {shape} is given, the module has {has}")
            state[name].copy_(torch.from_dlpack(values))
        missing = state.keys() - {name for name, _, _ in parameters}
        # Counts of mini-batches are no floats, and left out of model files.
        missing = [name for name in missing if state[name].is_floating_point()]
        if missing:
            raise ValueError(f"{missing[0]} is missing among the given parameters")

    def optimizer_state(self):
        state = self.optimizer.state_dict()["state"]
        return [named(f"{index}.{key}", torch.as_tensor(value)) for index, entries in state.items()
                for key, value in entries.items() if value is not None]

    def set_optimizer_state(self, tensors):
        whole = self.optimizer.state_dict()
        whole["state"] = {}
        for name, _, values in tensors:
            index, key = name.split(".", 1)
            # A copy: the tensor's memory is the caller's.
            whole["state"].setdefault(int(index), {})[key] = torch.from_dlpack(values).clone()
        self.optimizer.load_state_dict(whole)


def edge_forward(module, batch):
    return module(batch.x, batch.edge_index)


def dgl_forward(module, batch):
    return module(batch[2], batch[2][0].srcdata["feat"])


def array(tensor):
    return np.ascontiguousarray(tensor.detach().to("cpu", torch.float32).numpy())


def named(name, tensor):
    # A copy: the module's own memory changes with the next step.
    return name, list(tensor.shape), array(tensor.detach().clone().reshape(-1))


MAKE = {"pyg": loader.as_pyg, "torch": loader.as_torch, "dgl": loader.as_dgl}
