"""What the steps of a torch module have besides its optimizers: schedulers of learning rates, clipped gradients, mixed precision."""

import json

import numpy as np
import torch

# The name of its state among the tensors of the optimizers, with which checkpoints keep it.
NAME = "stepping.state"
PRECISIONS = {"bfloat16": torch.bfloat16, "float16": torch.float16}
Plateau = torch.optim.lr_scheduler.ReduceLROnPlateau


class Stepping:
    """Steps all `optimizers` together. `scheduler`, one or a list, is stepped as an epoch begins, the first one left out, or after each
    optimizer step, as `every` says; one that goes by a score after each epoch that has one. `clip_norm` is the largest norm of a
    mini-batch's mean gradient over all parameters, `autocast` the type of mixed precision on `device`, with losses scaled if it is float16;
    None for neither."""

    def __init__(self, optimizers, device, scheduler=None, every="epoch", clip_norm=None, autocast=None):
        self.schedulers = list(scheduler) if isinstance(scheduler, (list, tuple)) else [] if scheduler is None else [scheduler]
        for one in self.schedulers:
            check_scheduler(one, optimizers, every)
        if clip_norm is not None and not 0 < clip_norm < float("inf"):
            raise ValueError(f"clip_norm: {clip_norm} is no norm of a gradient; give a positive number such as 1")
        names = {**PRECISIONS, **{dtype: dtype for dtype in PRECISIONS.values()}, None: None}
        if autocast not in names:
            raise NotImplementedError(f'autocast: {autocast}; give "bfloat16" or "float16"')
        self.optimizers, self.every, self.clip_norm = optimizers, every, clip_norm
        self.autocast = names[autocast]
        self.scaler = scaler_of(device) if self.autocast == torch.float16 else None
        # Of scaled losses: the number that the sum over the step's first mini-batch was divided by.
        self.per = None
        self.epoch = None

    def begin(self, epoch):
        """A mini-batch of `epoch` is trained on."""
        if self.every == "epoch" and self.epoch is not None and epoch > self.epoch:
            self.schedule()
        self.epoch = epoch

    @property
    def goes_by_score(self):
        """Whether a scheduler steps by a score."""
        return any(isinstance(scheduler, Plateau) for scheduler in self.schedulers)

    def schedule(self):
        for scheduler in self.schedulers:
            if not isinstance(scheduler, Plateau):
                scheduler.step()

    def end(self, epoch, score, highest_is_best):
        """An epoch, a dict, is done; `score` is that of its model by which the best one is chosen, None where it was not evaluated."""
        for scheduler in self.schedulers:
            if not isinstance(scheduler, Plateau) or score is None:
                continue
            if scheduler.mode == "max" and not highest_is_best:
                raise ValueError("scheduler: ReduceLROnPlateau of mode 'max' waits for the highest score, and the lowest is the best; give mode=\"min\"")
            # A score of which the highest is the best is no loss.
            scheduler.step(epoch["valid_loss"] if scheduler.mode == "min" and highest_is_best else score)

    def backward(self, loss, count):
        """Adds the gradients of a sum of losses of `count` rows."""
        if self.scaler is None:
            return loss.backward()
        # Of float16 the mean is scaled: sums over many rows would be beyond its largest number.
        self.per = self.per or count
        self.scaler.scale(loss / self.per).backward()

    def step(self, parameters, count):
        """A step along the gradients of `parameters`, sums over `count` rows."""
        given = [parameter for parameter in parameters if parameter.grad is not None]
        # A scaler refuses an optimizer without any gradient.
        stepped = [optimizer for optimizer in self.optimizers if self.scaler is None or has_gradients(optimizer)]
        if self.scaler is not None:
            for optimizer in stepped:
                self.scaler.unscale_(optimizer)
        divisor = count if self.scaler is None else count / self.per
        for parameter in given:
            parameter.grad /= divisor
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(given, self.clip_norm)
        for optimizer in stepped:
            optimizer.step() if self.scaler is None else self.scaler.step(optimizer)
        if self.scaler is not None:
            self.scaler.update()
            self.per = None
        if self.every == "step":
            self.schedule()

    def precision(self, device):
        """The context of a forward pass."""
        return torch.autocast(device.type, self.autocast, enabled=self.autocast is not None)

    def widened(self, outputs):
        """Outputs as float32, in which losses are computed, whatever precision they have."""
        return outputs.float() if self.autocast is not None and outputs.dtype == self.autocast else outputs

    def settings(self):
        """What a run keeps to, by arguments."""
        names = ", ".join(type(scheduler).__name__ for scheduler in self.schedulers)
        precisions = {dtype: name for name, dtype in PRECISIONS.items()}
        return {"optimizer": len(self.optimizers), "scheduler": names or None, "schedule_every": self.every, "clip_norm": self.clip_norm,
                "autocast": precisions.get(self.autocast)}

    def state(self):
        """Tensors by name, shape and elements: none where all is as by default, else the bytes of a JSON document, as float32."""
        if self.settings() == NOTHING:
            return []
        groups = [{name: value for name, value in group.items() if name != "params" and is_plain(value)}
                  for optimizer in self.optimizers for group in optimizer.param_groups]
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        schedule = {"epoch": self.epoch, "state": states, "groups": groups} if states else None
        text = json.dumps({"settings": self.settings(), "schedule": schedule, "scaler": self.scaler and self.scaler.state_dict()}, default=refused)
        values = np.frombuffer(text.encode(), np.uint8).astype(np.float32)
        return [(NAME, [len(values)], values)]

    def load(self, tensors):
        """The state among the tensors of the optimizers', which has to be of the same settings."""
        own = [values for name, _, values in tensors if name == NAME]
        given = json.loads(np.asarray(own[0]).astype(np.uint8).tobytes()) if own else {"settings": NOTHING, "schedule": None}
        for name, ours in self.settings().items():
            # Earlier versions had one optimizer.
            theirs = given["settings"].get(name, NOTHING[name])
            if ours != theirs:
                many = "a number of optimizers: " if name == "optimizer" else ""
                raise ValueError(f"{name}: {many}the run was begun with {theirs!r}, and {ours!r} is given; give the same")
        if self.scaler is not None:
            self.scaler.load_state_dict(given["scaler"])
        if given["schedule"] is None:
            return
        self.epoch, states = given["schedule"]["epoch"], given["schedule"]["state"]
        for scheduler, state in zip(self.schedulers, states if isinstance(states, list) else [states]):
            scheduler.load_state_dict(state)
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        for group, saved in zip(groups, given["schedule"]["groups"]):
            group.update({name: tuple(value) if isinstance(group.get(name), tuple) else value for name, value in saved.items()})


NOTHING = {"optimizer": 1, "scheduler": None, "schedule_every": "epoch", "clip_norm": None, "autocast": None}


def has_gradients(optimizer):
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def scaler_of(device):
    """What scales losses for gradients in float16."""
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is None:
        raise NotImplementedError(f'autocast: "float16" needs the GradScaler of torch 2.3, this is {torch.__version__}; give "bfloat16"')
    return scaler(device.type)


def check_optimizers(optimizers):
    """Refuses what are no optimizers of torch's, and parameters that several of them have."""
    owners = {}
    for number, optimizer in enumerate(optimizers):
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(f"optimizer: {type(optimizer).__name__} is no optimizer of torch's; give one, or a list of them")
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            if owners.setdefault(id(parameter), number) != number:
                raise ValueError(f"optimizer: a parameter of shape {list(parameter.shape)} is of two of them; give each to one")
    if not optimizers:
        raise ValueError("optimizer: the list has none; leave it out for Adam, or give some")


def check_scheduler(scheduler, optimizers, every):
    if every not in ("epoch", "step"):
        raise ValueError(f"schedule_every: {every!r}; give 'epoch' or 'step'")
    if isinstance(scheduler, Plateau) and every == "step":
        raise ValueError("schedule_every: ReduceLROnPlateau steps by a score, which is known after an epoch; leave it out")
    if not all(callable(getattr(scheduler, name, None)) for name in ("step", "state_dict", "load_state_dict")):
        raise TypeError(f"scheduler: {type(scheduler).__name__} is no scheduler of torch's")
    if not any(getattr(scheduler, "optimizer", None) is optimizer for optimizer in optimizers):
        raise ValueError("scheduler: it is not of the optimizer that is given; make it of that one")


def is_plain(value):
    return isinstance(value, (bool, int, float, type(None))) or isinstance(value, (list, tuple)) and all(map(is_plain, value))


def refused(value):
    raise NotImplementedError(f"scheduler: its state has a {type(value).__name__}, which checkpoints do not keep; give one of numbers")
