"""Attributes of nodes and edges, whose rows mini-batches get."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _morphgl

# Types of torch whose rows native code copies, by their bytes.
COPIED = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128")


@dataclass
class Column:
    """An attribute with an element per node or edge along `dim`."""

    value: Any
    dim: int = 0
    # The same as numpy's array and the name of its type, where native code copies its rows.
    array: Any = None
    dtype: str = ""


def column(value, dim=0):
    """An attribute as it is gathered: by native code, or by torch where it lies on a device, has gradients, or its rows are elsewhere
    than along the first dimension."""
    if isinstance(value, np.ndarray):
        if dim == 0 and value.dtype.name in COPIED and value.dtype.isnative:
            return Column(value, 0, np.ascontiguousarray(value), value.dtype.name)
        import torch

        return column(torch.from_numpy(value), dim)
    if not hasattr(value, "detach"):
        return Column(value, dim)
    import torch

    name = str(value.dtype).replace("torch.", "")
    dim = dim % max(value.dim(), 1)
    if value.device.type != "cpu" or value.layout != torch.strided or value.requires_grad or dim or name not in COPIED:
        return Column(value, dim)
    value = value.contiguous()
    # numpy has no type for it and sees its bits.
    return Column(value, 0, (value.view(torch.int16) if name == "bfloat16" else value).numpy(), name)


def gather(requests):
    """The elements of each `(column, rows)` as tensors; of lists as lists. One call into native code, without the interpreter's lock."""
    import torch

    copied = [(of.array, of.dtype, as_int64(rows)) for of, rows in requests if of.array is not None]
    made = iter(_morphgl.gather(copied) if copied else ())
    gathered = []
    for of, rows in requests:
        if of.array is not None:
            gathered.append(torch.from_dlpack(next(made)))
        elif hasattr(of.value, "detach"):
            gathered.append(of.value.index_select(of.dim, rows.to(of.value.device)))
        elif hasattr(of.value, "feat_dict"):
            # A TensorFrame of torch-frame takes tensors itself.
            gathered.append(of.value[rows])
        else:
            gathered.append([of.value[row] for row in rows.tolist()])
    return gathered


def as_int64(rows):
    """Rows as contiguous int64 of numpy."""
    return np.ascontiguousarray(rows.numpy() if hasattr(rows, "numpy") else rows, dtype=np.int64)
