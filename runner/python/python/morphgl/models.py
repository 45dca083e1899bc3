"""Trained models: PyG's parameter names, and safetensors files."""

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Optional

import numpy as np

from .brief import Brief

SPEC, SCHEMA = "morphgl_model_spec", "morphgl_schema"


@dataclass(repr=False)
class Model(Brief):
    """Parameters by PyG's names (`convs.0.lin_l.weight`, …), float32 arrays, and what kind of model they are of.

    `module.load_state_dict(model.state_dict())` moves them into PyG's `GraphSAGE`, `GCN`, `GAT` or `MLP`;
    `Model(arrays, spec)` takes a PyG `state_dict` with the `spec` of a model of the same widths. `schema` has the names of classes
    and features of the graph it was trained on, by which it is used on another one.
    """

    arrays: Dict[str, np.ndarray]
    spec: Optional[Dict[str, Any]] = None
    schema: Optional[Dict[str, Any]] = None

    def __post_init__(self):
        self.arrays = {name: as_array(values) for name, values in self.arrays.items() if not name.endswith("num_batches_tracked")}

    def state_dict(self) -> Dict[str, Any]:
        """The parameters as torch tensors, copied."""
        import torch

        return {name: torch.from_numpy(values.copy()) for name, values in self.arrays.items()}

    def save(self, path: Any) -> None:
        """Writes a safetensors file, which `morphgl evaluate`, `predict` and `train --init` read, and so does `safetensors`."""
        described = {SPEC: self.spec, SCHEMA: self.schema}
        known = {key: json.dumps(value) for key, value in described.items() if value is not None}
        header = {"__metadata__": {"format": "pt", **known}}
        start = 0
        for name, values in self.arrays.items():
            header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [start, start + values.nbytes]}
            start += values.nbytes
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        beside = os.fspath(path) + ".partial"
        with open(beside, "wb") as file:
            file.write(len(text).to_bytes(8, "little"))
            file.write(text)
            for values in self.arrays.values():
                file.write(values.tobytes())
        os.replace(beside, path)

    @classmethod
    def load(cls, path: Any) -> "Model":
        """Reads a file that :meth:`save` or the `morphgl` command wrote."""
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        metadata = header.pop("__metadata__", {})
        arrays = {}
        for name, entry in header.items():
            if entry["dtype"] != "F32":
                raise ValueError(f"{os.fspath(path)}: {name} is of type {entry['dtype']}; export float32")
            first, end = entry["data_offsets"]
            arrays[name] = np.frombuffer(data[first:end], "<f4").reshape(entry["shape"]).copy()
        return cls(arrays, *(json.loads(metadata[key]) if key in metadata else None for key in (SPEC, SCHEMA)))

    @classmethod
    def file(cls, model, directory):
        """The path of a model file, written into `directory` where `model` is none."""
        if isinstance(model, (str, os.PathLike)):
            return os.fspath(model)
        if not hasattr(model, "save"):
            model = cls(dict(model))
        path = os.path.join(directory, "given.safetensors")
        model.save(path)
        return path


def as_array(values):
    values = values.detach().cpu().float().numpy() if hasattr(values, "detach") else values
    return np.ascontiguousarray(values, np.float32)
