"""A torch module and its optimizers as a training operator: what `Training_CPU_Torch` and `Training_CUDA_Torch` call."""

import json

import numpy as np
import torch

from . import _morphgl, loader
from .objective import Objective
from .stepping import NAME as STEPPING
from .stepping import Stepping

# What the columns of a task's outputs are.
WIDTHS = {"classify": "classes", "multilabel": "labels", "regress": "values", "link": "elements of an embedding"}
# Pairs that are scored at once in evaluation.
PAIRS = 1 << 18
FORMS = {"pyg": "edges", "torch": "edges", "dgl": "blocks"}


class ModuleTrainer:
    """Trains `module` by `optimizers` on mini-batches, by the loss that the run's spec names or by `loss(outputs, targets)`.

    `forward(module, batch)` gives the outputs, of all nodes of the mini-batch or of its seeds alone. `induced` says that a mini-batch is
    a subgraph, whose edges are the same for every layer. `decoder(sources, destinations)` makes scores of links, or outputs of labelled
    edges, of two rows of outputs each; without one links have their dot product ("dot"), and edges an :class:`EdgeDecoder` ("mlp").
    `ranks` is the `ProcessGroup` of processes that train the same module together. `stepping` are settings of :class:`Stepping`.
    """

    def __init__(self, module, optimizers, forward=None, output="torch", induced=False, loss=None, decoder=None, ranks=None, **stepping):
        self.module, self.optimizers, self.output, self.induced = module, optimizers, output, induced
        self.forward = forward or (dgl_forward if output == "dgl" else edge_forward)
        self.loss, self.given, self.ranks = loss, decoder, ranks
        self.decoder = None if isinstance(decoder, str) else decoder
        # Of a labelled edge; 0 where nodes or links are learned.
        self.edge_outputs = 0
        # Parameters that the first optimizer was given.
        self.lent = []
        self.seeds = 0
        # By the prefix of their tensors' names.
        self.parts = {"": module}
        own = {id(p) for p in module.parameters()}
        of_decoder = [id(p) for p in decoder.parameters()] if isinstance(decoder, torch.nn.Module) else []
        if isinstance(decoder, torch.nn.Module) and not (of_decoder and own.issuperset(of_decoder)):
            self.add_decoder(decoder)
        for name, tensor in self.state().items():
            if tensor.dtype == torch.float64:
                raise ValueError(f"model: {name} is float64; call module.float(): parameters are kept as float32")
        self.trained = self.trainable()
        if not self.trained:
            raise ValueError("model: no parameter of the module requires a gradient; there is nothing to train")
        stepped = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        missing = [name for name, p in self.trained.items() if name.startswith("decoder.") and "decoder." in self.parts and id(p) not in stepped]
        if missing:
            raise ValueError(f"optimizer: it does not have {missing[0]}; make it of both: "
                             "torch.optim.Adam([*module.parameters(), *decoder.parameters()])")
        first = next(iter(self.trained.values()))
        self.device, self.dtype = first.device, first.dtype
        self.stepping = Stepping(optimizers, self.device, **stepping)
        if ranks is not None and self.stepping.scaler is not None:
            raise NotImplementedError('autocast: gradients of "float16" are scaled by each process\'s own number; give "bfloat16"')

    def place(self):
        """Where the module lies, by MorphGL's name of the place."""
        return f"cuda:{self.device.index or 0}" if self.device.type == "cuda" else "host"

    def operator(self):
        """The operator that trains it: at the device where it lies, if routes lead there, else one that copies mini-batches within its step."""
        return "Training_CUDA_Torch" if self.place() == "cuda:0" and "cuda:0" in _morphgl.devices() else "Training_CPU_Torch"

    def add_decoder(self, decoder):
        """Makes `decoder` a part beside the module."""
        if any(name.startswith("decoder.") for name in self.module.state_dict()):
            raise ValueError("decoder: the module has a part of that name; give decoder=module.decoder, or rename it")
        self.parts["decoder."] = self.decoder = decoder

    def make_decoder(self, width, outputs, seed=0):
        """Adds an :class:`EdgeDecoder`, a function of `seed`, which is stepped with the first parameters of the first optimizer."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            decoder = EdgeDecoder(width, outputs)
        self.add_decoder(decoder.to(self.device, self.dtype))
        self.trained = self.trainable()
        for optimizer in self.optimizers[:1]:
            if isinstance(optimizer, torch.optim.Adagrad):
                raise ValueError("optimizer: Adagrad has state from the start of the parameters that it was given, and takes no others; "
                                 "give it those of a module of two embeddings, and that as decoder=")
            self.lent = list(decoder.parameters())
            optimizer.param_groups[0]["params"].extend(self.lent)

    def release(self):
        """Leaves the optimizers, which are the caller's, with the parameters that they had."""
        for parameter in self.lent:
            self.optimizers[0].state.pop(parameter, None)
        if self.lent:
            del self.optimizers[0].param_groups[0]["params"][-len(self.lent):]
            self.lent = []

    def trainable(self):
        """The parameters by name."""
        return {prefix + name: p for prefix, part in self.parts.items() for name, p in part.named_parameters() if p.requires_grad}

    def buffers(self):
        """What the mini-batches change besides the parameters, such as running means and their numbers of mini-batches."""
        return [buffer for part in self.parts.values() for buffer in part.buffers()]

    def state(self):
        """All tensors by name, which share the memory of the module and its decoder."""
        return {prefix + name: tensor for prefix, part in self.parts.items() for name, tensor in part.state_dict().items()}

    def learn(self, task, loss, settings, widths, own, seed):
        """What is learned, as the run's spec has it: `widths` are those of the module's outputs and of those of a labelled edge, 0 where none
        is learned; `own` are the names of a loss and a decoder of the caller's, empty for none."""
        (self.width, self.edge_outputs), self.task = widths, task
        # What the module's outputs are.
        self.gives = "link" if self.edge_outputs else task
        decoder, usual = self.given, "mlp" if self.edge_outputs else "dot"
        if isinstance(decoder, str):
            if decoder != usual:
                raise ValueError(f'decoder: {decoder!r} is one of MorphGL\'s own models; give "{usual}", or a module of two embeddings')
            decoder = None
        for name, function, known in (("loss", self.loss, own[0]), ("decoder", decoder, own[1])):
            if known and function is None:
                raise ValueError(f"{name}: the run was begun with {known!r} of the caller's; give it again as {name}=")
            if function is not None and not known:
                raise ValueError(f"{name}: the run was begun with one by name; leave it out")
        if self.edge_outputs and self.decoder is None:
            self.make_decoder(self.width, self.edge_outputs, seed)
        self.objective = Objective(task, loss, json.loads(settings), self.loss)

    def form(self):
        return "induced" if self.induced and self.output != "dgl" else FORMS[self.output]

    def set_threads(self, threads):
        self.threads = threads

    def outputs(self, batch):
        """Outputs of the seeds."""
        # Of the calling thread, too, whichever it is.
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        size = batch.batch_size
        placed = self.placed(MAKE[self.output](batch, False))
        with self.stepping.precision(self.device):
            outputs = self.stepping.widened(self.forward(self.module, placed))
        if outputs.dim() == 1 and self.width == 1 and self.gives in ("multilabel", "regress"):
            outputs = outputs[:, None]
        if outputs.shape[0] not in (size, batch.n_id.shape[0]) or outputs.dim() != 2:
            raise ValueError(f"model: its output has shape {list(outputs.shape)}; give [nodes, {WIDTHS[self.gives]}], one row per node of the "
                             f"mini-batch ({batch.n_id.shape[0]}) or a seed ({size})")
        return outputs[:size]

    def check_width(self, outputs):
        has = outputs.shape[1]
        if has == self.width:
            return
        cure = {"classify": 'give the last layer as many, or evaluation="sampled"',
                "link": f"give embedding={has}"}.get(self.gives, "give the last layer as many")
        raise ValueError(f"model: its output has {has} columns for {self.width} {WIDTHS[self.gives]}; {cure}")

    def decode(self, outputs, sources, destinations):
        """Scores of links, or outputs of labelled edges, by rows of outputs."""
        ends = outputs[sources], outputs[destinations]
        if self.decoder is None:
            return (ends[0] * ends[1]).sum(-1)
        with self.stepping.precision(self.device):
            decoded = self.stepping.widened(self.decoder(*ends))
        # A single output may be a vector.
        width = self.edge_outputs or 1
        if width == 1 and decoded.dim() == 1:
            decoded = decoded[:, None]
        if decoded.shape != (len(sources), width):
            form = f"[pairs, {width}], the {WIDTHS[self.task]} of each" if self.edge_outputs else "[pairs]"
            raise ValueError(f"decoder: its output has shape {list(decoded.shape)} for {len(sources)} pairs; give {form}")
        return decoded if self.edge_outputs else decoded[:, 0]

    def placed(self, batch):
        """The mini-batch on the module's device, with features of its type."""
        move = lambda t: t if t is None else t.to(self.device, self.dtype if t.is_floating_point() or t.dtype == torch.uint8 else None)
        if self.output == "dgl":
            n_id, seeds, blocks = batch
            blocks = [block.to(self.device) for block in blocks]
            blocks[0].srcdata["feat"] = move(blocks[0].srcdata["feat"])
            return n_id, seeds, blocks
        for name in ("x", "edge_index", "y", "targets", "n_id", "edge_weight"):
            if getattr(batch, name, None) is not None:
                setattr(batch, name, move(getattr(batch, name)))
        return batch

    def scored(self, batch):
        """Sum of the losses, right answers and number of the seeds or edges with a target, or of the pairs of links."""
        outputs = self.outputs(batch)
        if self.gives != "classify":
            self.check_width(outputs)
        labels, targets = (batch.pair_labels, batch.pair_targets) if self.edge_outputs else (batch.y, batch.targets)
        if self.gives == "link":
            outputs = self.decode(outputs, *torch.from_dlpack(batch.pairs).to(self.device))
        return self.compared(outputs, labels if self.task == "classify" else targets, batch.num_positives)

    def compared(self, outputs, targets, num_positives):
        """As `scored`, of outputs of nodes or edges and their targets, those of further nodes left out; or of scores of links."""
        if self.task == "link":
            return self.objective.pairs(outputs, num_positives)
        targets = torch.from_dlpack(targets)[:len(outputs)].to(self.device)
        return self.objective.classes(outputs, targets.long()) if self.task == "classify" else self.objective.values(outputs, targets)

    def accumulate(self, batch, drawn_by):
        self.set_mode(True)
        self.stepping.begin(drawn_by[1])
        if batch.batch_size == 0:
            # The share of a process beside those that have all seeds.
            return 0.0, 0, 0
        # Dropout is a function of seed, epoch and index, as everything else.
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(np.random.SeedSequence(drawn_by).generate_state(1, np.uint64)[0] >> np.uint64(1)))
            loss, correct, count = self.scored(batch)
            if count:
                self.stepping.backward(loss, count)
        self.seeds += count
        return float(loss.detach()), correct, count

    def set_mode(self, trains):
        for part in self.parts.values():
            part.train(trains)

    def score(self, batch, _):
        self.set_mode(False)
        with torch.no_grad():
            loss, correct, count = self.scored(batch)
        return float(loss), correct, count

    def infer(self, batch, nodes):
        self.set_mode(False)
        with torch.no_grad():
            outputs = self.outputs(batch)
        self.check_width(outputs)
        return array(outputs[torch.from_dlpack(nodes).to(outputs.device)])

    def has_decoder(self):
        return self.decoder is not None

    def pair_scores(self, outputs, pairs):
        """Scores of links, or outputs of labelled edges, which are pairs `[pairs, 2]` of rows of outputs."""
        return array(self.scores_of(torch.from_dlpack(outputs).to(self.device, self.dtype), torch.from_dlpack(pairs)))

    def scores_of(self, outputs, pairs):
        self.set_mode(False)
        with torch.no_grad():
            parts = [self.decode(outputs, *part.long().to(self.device).T) for part in pairs.split(PAIRS)]
        return torch.cat(parts) if parts else outputs.new_zeros(0)

    def score_outputs(self, outputs, targets, pairs, num_positives):
        """As `scored`, of outputs that :meth:`infer` gave, or of pairs `[pairs, 2]` of their rows."""
        outputs = torch.from_dlpack(outputs).to(self.device, self.dtype)
        with torch.no_grad():
            if pairs is not None:
                outputs = self.scores_of(outputs, torch.from_dlpack(pairs))
            loss, correct, count = self.compared(outputs, targets, num_positives)
        return float(loss), correct, count

    def count(self):
        return self.seeds

    def step(self):
        if self.seeds:
            self.stepping.step(self.trained.values(), self.seeds)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.seeds = 0
        for name, parameter in self.trained.items():
            if not torch.isfinite(parameter).all():
                raise ValueError(f"{name} is no longer a number after this step; lower the learning rate")

    def gradients(self):
        if self.stepping.scaler is not None:
            raise NotImplementedError('autocast: gradients of "float16" are scaled, and stay with their optimizer; give "bfloat16"')
        zeros = lambda p: torch.zeros_like(p) if p.grad is None else p.grad
        return [named(name, zeros(parameter)) for name, parameter in self.trained.items()]

    def set_gradients(self, gradients, seeds):
        self.seeds = seeds
        for name, _, values in gradients:
            parameter = self.trained[name]
            parameter.grad = torch.from_dlpack(values).to(parameter.device, parameter.dtype)
        # A step of all processes, unlike those by which each measures.
        if self.ranks is not None:
            self.ranks.broadcast(self.buffers())

    def parameters(self):
        return [named(name, tensor) for name, tensor in self.state().items()]

    def set_parameters(self, parameters):
        state = self.state()
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
        tensors = [named(f"{prefix_of(number)}{index}.{key}", torch.as_tensor(value)) for number, optimizer in enumerate(self.optimizers)
                   for index, entries in optimizer.state_dict()["state"].items() for key, value in entries.items() if value is not None]
        return tensors + self.stepping.state()

    def set_optimizer_state(self, tensors):
        states = [{} for _ in self.optimizers]
        for name, _, values in tensors:
            if name == STEPPING:
                continue
            number, _, rest = name.rpartition("/")
            index, key = rest.split(".", 1)
            # A copy: the tensor's memory is the caller's. Other numbers of optimizers are refused below.
            if int(number or 0) < len(states):
                states[int(number or 0)].setdefault(int(index), {})[key] = torch.from_dlpack(values).clone()
        for optimizer, state in zip(self.optimizers, states):
            optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        self.stepping.load(tensors)


class EdgeDecoder(torch.nn.Module):
    """Outputs of labelled edges by two layers over the rows of both ends, the source's first: MorphGL's own decoder "mlp"."""

    def __init__(self, width, outputs):
        super().__init__()
        self.lins = torch.nn.ModuleList([torch.nn.Linear(2 * width, width), torch.nn.Linear(width, outputs)])

    def forward(self, sources, destinations):
        return self.lins[1](self.lins[0](torch.cat([sources, destinations], 1)).relu())


def prefix_of(number):
    """What the names of an optimizer's tensors begin with."""
    return f"{number}/" if number else ""


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
