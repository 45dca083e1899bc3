"""What the steps of a torch module have besides its optimizer: a scheduler of learning rates, clipped gradients, mixed precision."""

import json

import numpy as np
import torch

# The name of its state among the tensors of the optimizer, with which checkpoints keep it.
NAME = "stepping.state"


class Stepping:
    """`scheduler` is stepped as an epoch begins, the first one left out, or after each optimizer step, as `every` says. `clip_norm` is the
    largest norm of a mini-batch's mean gradient over all parameters, `autocast` the type of mixed precision; None for neither."""

    def __init__(self, optimizer, scheduler=None, every="epoch", clip_norm=None, autocast=None):
        if scheduler is not None:
            check_scheduler(scheduler, optimizer, every)
        if clip_norm is not None and not 0 < clip_norm < float("inf"):
            raise ValueError(f"clip_norm: {clip_norm} is no norm of a gradient; give a positive number such as 1")
        if autocast not in (None, torch.bfloat16, "bfloat16"):
            raise NotImplementedError(f'autocast: {autocast}; give "bfloat16": losses are not scaled, as float16 would need')
        self.optimizer, self.scheduler, self.every, self.clip_norm = optimizer, scheduler, every, clip_norm
        self.autocast = None if autocast is None else torch.bfloat16
        self.epoch = None

    def begin(self, epoch):
        """A mini-batch of `epoch` is trained on."""
        if self.scheduler is not None and self.every == "epoch" and self.epoch is not None and epoch > self.epoch:
            self.scheduler.step()
        self.epoch = epoch

    def step(self, parameters):
        """A step along the gradients of `parameters`, means over the mini-batch."""
        if self.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self.clip_norm)
        self.optimizer.step()
        if self.scheduler is not None and self.every == "step":
            self.scheduler.step()

    def precision(self, device):
        """The context of a forward pass."""
        return torch.autocast(device.type, self.autocast, enabled=self.autocast is not None)

    def widened(self, outputs):
        """Outputs as float32, in which losses are computed, whatever precision they have."""
        return outputs.float() if self.autocast is not None and outputs.dtype == self.autocast else outputs

    def settings(self):
        """What a run keeps to, by arguments."""
        return {"scheduler": None if self.scheduler is None else type(self.scheduler).__name__, "schedule_every": self.every,
                "clip_norm": self.clip_norm, "autocast": None if self.autocast is None else "bfloat16"}

    def state(self):
        """Tensors by name, shape and elements: none where all is as by default, else the bytes of a JSON document, as float32."""
        if self.settings() == NOTHING:
            return []
        groups = [{name: value for name, value in group.items() if name != "params" and is_plain(value)} for group in self.optimizer.param_groups]
        schedule = None if self.scheduler is None else {"epoch": self.epoch, "state": self.scheduler.state_dict(), "groups": groups}
        text = json.dumps({"settings": self.settings(), "schedule": schedule}, default=refused)
        values = np.frombuffer(text.encode(), np.uint8).astype(np.float32)
        return [(NAME, [len(values)], values)]

    def load(self, tensors):
        """The state among the tensors of an optimizer's, which has to be of the same settings."""
        own = [values for name, _, values in tensors if name == NAME]
        given = json.loads(np.asarray(own[0]).astype(np.uint8).tobytes()) if own else {"settings": NOTHING, "schedule": None}
        for name, ours in self.settings().items():
            theirs = given["settings"][name]
            if ours != theirs:
                raise ValueError(f"{name}: the run was begun with {theirs!r}, and {ours!r} is given; give the same")
        if given["schedule"] is None:
            return
        self.epoch = given["schedule"]["epoch"]
        self.scheduler.load_state_dict(given["schedule"]["state"])
        for group, saved in zip(self.optimizer.param_groups, given["schedule"]["groups"]):
            group.update({name: tuple(value) if isinstance(group.get(name), tuple) else value for name, value in saved.items()})


NOTHING = {"scheduler": None, "schedule_every": "epoch", "clip_norm": None, "autocast": None}


def check_scheduler(scheduler, optimizer, every):
    if every not in ("epoch", "step"):
        raise ValueError(f"schedule_every: {every!r}; give 'epoch' or 'step'")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise NotImplementedError("scheduler: ReduceLROnPlateau steps by a score, which is known after an epoch; give one that steps by itself, "
                                  "or write the loop over a NeighborLoader")
    if not all(callable(getattr(scheduler, name, None)) for name in ("step", "state_dict", "load_state_dict")):
        raise TypeError(f"scheduler: {type(scheduler).__name__} is no scheduler of torch's")
    if getattr(scheduler, "optimizer", None) is not optimizer:
        raise ValueError("scheduler: it is not of the optimizer that is given; make it of that one")


def is_plain(value):
    return isinstance(value, (bool, int, float, type(None))) or isinstance(value, (list, tuple)) and all(map(is_plain, value))


def refused(value):
    raise NotImplementedError(f"scheduler: its state has a {type(value).__name__}, which checkpoints do not keep; give one of numbers")
