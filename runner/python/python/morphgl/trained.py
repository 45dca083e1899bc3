"""Torch modules that were trained, for evaluation and predictions."""

import json

from .models import SCHEMA, SPEC, Model
from .module import ModuleTrainer

# Options of a run by which its mini-batches are sampled.
SAMPLING = ("training", "sampler", "sampler_option", "num_neighbors", "fanouts", "batch_size", "expansion", "weighted", "walks", "walk_length",
            "restart", "neighbors", "seed", "threads")


class TrainedModule:
    """A torch module and what it was trained for, the `model` of what :func:`train` returned: `evaluate`, `predict` and `score_pairs` take it in
    the place of a :class:`Model`. It is the module itself, not a copy: what is trained further has its later parameters.

    `spec` says what is learned, `schema` has the names of classes and features of the graph it was trained on, by which it is used on
    another one, `options` how mini-batches were sampled.
    """

    def __init__(self, trainer, spec, schema, options):
        self.trainer, self.spec, self.schema, self.options = trainer, spec, schema, options

    @classmethod
    def of(cls, path, trainer, options):
        """The module of a trainer, by the file that its run saved."""
        described = described_by(path)
        return cls(trainer, *described, {name: value for name, value in options.items() if name in SAMPLING and value is not None})

    @classmethod
    def load(cls, path, module, *, forward=None, output="torch", loss=None, decoder=None, **options):
        """Reads the file that :meth:`save`, or a run's `save=`, wrote, and its parameters into `module`. `forward`, `output`, and a `loss` and
        a `decoder` that are functions are those of :func:`train`, `options` those of mini-batches."""
        unknown = [name for name in options if name not in SAMPLING]
        if unknown:
            raise TypeError(f"{unknown[0]}: no such argument; mini-batches have {', '.join(SAMPLING[1:])}")
        spec, schema = described_by(path)
        induced = options.get("sampler", "neighbor") != "neighbor"
        trainer = ModuleTrainer(module, [], forward, output, induced, loss, decoder)
        if spec.get("edge_outputs") and trainer.decoder is None:
            trainer.make_decoder(spec["num_classes"], spec["edge_outputs"])
        arrays = Model.load(path).arrays
        trainer.set_parameters([(name, list(values.shape), values) for name, values in arrays.items()])
        form = {} if output == "dgl" or induced else {"expansion": "new"}
        return cls(trainer, spec, schema, {"training": "Training_CPU_Torch", **form, **options})

    @property
    def module(self):
        """The module."""
        return self.trainer.module

    @property
    def decoder(self):
        """The decoder of links or edges; None of nodes, and where links are scored by the dot product."""
        return self.trainer.decoder

    def state_dict(self):
        """The tensors of the module, and of a decoder of its own as `decoder.…`, which share their memory."""
        return self.trainer.state()

    def save(self, path):
        """Writes a safetensors file with the parameters, from which :meth:`load` makes a trained module, and which `safetensors` reads."""
        Model(self.state_dict(), self.spec, self.schema).save(path)

    def __repr__(self):
        return f"TrainedModule({type(self.module).__name__}, task={self.spec.get('task', 'classify')!r})"


def described_by(path):
    """Spec and schema of a model file."""
    with open(path, "rb") as file:
        metadata = json.loads(file.read(int.from_bytes(file.read(8), "little"))).get("__metadata__", {})
    if SPEC not in metadata:
        raise ValueError(f"{path}: it does not say what its model was trained for; give a file that TrainedModule.save wrote")
    return json.loads(metadata[SPEC]), json.loads(metadata[SCHEMA]) if SCHEMA in metadata else None
