"""Brings what users have into the arrays that the native part reads: contiguous, of one type, checked."""

import sys
import warnings

import numpy as np

MAX_ID = 2**31 - 1


def to_numpy(name, values):
    """`values` as a numpy array, sharing its memory where it can be shared, and whether it holds bfloat16 as uint16."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor):
        if values.device.type != "cpu":
            raise ValueError(f"{name}: the tensor is on {values.device}; pass {name}.cpu()")
        if values.layout != torch.strided:
            raise TypeError(f"{name}: a sparse tensor; pass {name}.to_dense()")
        values = values.detach()
        if values.dtype == torch.bfloat16:
            return values.contiguous().view(torch.int16).numpy().view(np.uint16), True
        return values.numpy(), False
    try:
        array = np.asarray(values)
    except Exception as error:
        raise TypeError(f"{name}: {type(values).__name__} is no array: {error}") from None
    if array.dtype.kind not in "biufc":
        raise TypeError(f"{name}: {type(values).__name__} is no array of numbers; pass a numpy array or a tensor")
    return array, False


def integers(name, values):
    """A one-dimensional numpy array of integers."""
    array, _ = to_numpy(name, values)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise ValueError(f"{name}: its shape is {array.shape}; pass one dimension")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: {array.dtype} is no integer type; pass int64 or int32")
    return array


def ids(name, values):
    """Node ids as contiguous uint32; int32 and uint32 are not copied. Ids that are too high are the native part's to refuse."""
    array = integers(name, values)
    if array.size and array.dtype.kind == "i" and array.min() < 0:
        at = int(np.argmax(array < 0))
        raise ValueError(f"{name}: element {at} is {array[at]}; node ids are not negative")
    if array.size and array.dtype.itemsize > 4 and array.max() > MAX_ID:
        at = int(np.argmax(array > MAX_ID))
        raise ValueError(f"{name}: element {at} is {array[at]}; node ids are below 2^31")
    if array.dtype == np.int32:
        return np.ascontiguousarray(array).view(np.uint32)
    return np.ascontiguousarray(array, dtype=np.uint32)


def nodes(name, values, num_nodes):
    """Nodes as uint32, from ids, which may repeat, or from a mask of `num_nodes` booleans."""
    if values is None:
        return np.zeros(0, np.uint32)
    array, _ = to_numpy(name, values)
    if array.dtype == bool:
        if array.shape != (num_nodes,):
            raise ValueError(f"{name}: a mask of shape {array.shape}; pass one of [{num_nodes}], a boolean per node, or node ids")
        return np.flatnonzero(array).astype(np.uint32)
    return ids(name, array)


def times(name, values, count):
    """Times as contiguous int64."""
    array = integers(name, values)
    if array.shape != (count,):
        raise ValueError(f"{name}: its shape is {array.shape}; pass [{count}]")
    return np.ascontiguousarray(array, dtype=np.int64)


def offsets(name, values):
    """Row offsets as contiguous uint64; int64 is not copied."""
    array = integers(name, values)
    if array.size and array.dtype.kind == "i" and array.min() < 0:
        raise ValueError(f"{name}: element {int(np.argmax(array < 0))} is negative; offsets begin at 0 and never decrease")
    if array.dtype == np.int64:
        return np.ascontiguousarray(array).view(np.uint64)
    return np.ascontiguousarray(array, dtype=np.uint64)


def features(name, values):
    """A feature matrix, and whether it is bfloat16; float32, float16, bfloat16 and uint8 are not copied, all else becomes float32."""
    array, bf16 = to_numpy(name, values)
    if array.ndim != 2:
        raise ValueError(f"{name}: its shape is {array.shape}; pass [nodes, features]")
    if not bf16 and array.dtype not in (np.float32, np.float16, np.uint8):
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{name}: {array.dtype} is no feature type; pass float32, float16 or uint8")
        if array.dtype.kind in "iu" and array.size and max(abs(int(array.min())), int(array.max())) > 2**24:
            warnings.warn(f"{name}: whole numbers above 2^24 are rounded to float32; pass ids as an embedding's own tensor", stacklevel=3)
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
    return np.ascontiguousarray(array), bf16


# As the importers read a table's field that is none.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "<NA>")


def labels(name, values):
    """Classes as contiguous int32, -1 for none, and the names of the classes where labels are text: numbered in their order, as the
    importers do. NaN, as in OGB, is none."""
    array, names = None, None
    if not hasattr(values, "detach"):
        array = np.asarray(values)
    if array is not None and array.dtype.kind in "OSU":
        array, names = named_labels(name, array)
    else:
        array, _ = to_numpy(name, values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name}: its shape is {array.shape}; pass one class per node")
    if array.dtype.kind == "f":
        known = ~np.isnan(array)
        if (array[known] != np.floor(array[known])).any():
            raise ValueError(f"{name}: {array.dtype} with fractions, beside targets; pass classes as integers, or targets alone")
        array = np.where(known, array, -1)
    elif array.dtype.kind not in "iub":
        raise TypeError(f"{name}: {array.dtype} is no integer type; pass classes as integers")
    if array.size and (array.max() > MAX_ID or array.min() < -1):
        raise ValueError(f"{name}: classes from {array.min()} to {array.max()}; pass 0 and up, -1 for none")
    return np.ascontiguousarray(array, dtype=np.int32), names


def is_real(name, values):
    """Whether labels are targets: of several columns, or numbers with fractions."""
    array = None if hasattr(values, "detach") else np.asarray(values)
    if array is not None and array.dtype.kind in "OSU":
        if array.ndim == 2 and array.shape[1] > 1:
            return True
        array, names = named_labels(name, array)
        if names is not None:
            return False
    else:
        array, bf16 = to_numpy(name, values)
        array = widened(array) if bf16 else array
    if array.ndim == 2 and array.shape[1] > 1:
        return True
    known = array[~np.isnan(array)] if array.dtype.kind == "f" else array[:0]
    return bool((known != np.floor(known)).any())


def targets(name, values):
    """Real-valued targets as contiguous float32 `[nodes, K]`, the names of their columns, where they have any, and whether they
    were given as `[nodes]`. Float32 is not copied."""
    names = [str(column) for column in values.columns] if hasattr(values, "columns") else None
    array = None if hasattr(values, "detach") else np.asarray(values)
    if array is not None and array.dtype.kind == "O":
        try:
            values = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name}: not all are numbers: {error}; pass numbers, NaN for unknown ones") from None
    array, bf16 = to_numpy(name, values)
    array = widened(array) if bf16 else array
    if array.ndim not in (1, 2):
        raise ValueError(f"{name}: their shape is {array.shape}; pass [nodes] or [nodes, K]")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: {array.dtype} is no type of numbers; pass float32")
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(array, dtype=np.float32)
    return array.reshape(len(array), -1) if array.ndim == 1 else array, names, array.ndim == 1


def widened(bf16):
    """bfloat16 as float32."""
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def pairs(name, values):
    """Pairs `[2, pairs]` as contiguous uint32 `[pairs, 2]`."""
    array, _ = to_numpy(name, values)
    if array.ndim != 2 or array.shape[0] != 2:
        cure = f"pass {name}.T" if array.ndim == 2 and array.shape[1] == 2 else "pass [2, pairs], sources then targets"
        raise ValueError(f"{name}: its shape is {array.shape}; {cure}")
    return np.stack([ids(f"{name}[{row}]", ends) for row, ends in enumerate(array)], axis=1)


def named_labels(name, array):
    """Objects or text as numbers, or as classes and their names."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name}: its shape is {array.shape}; pass one class per node")
    text = np.array([v.decode() if isinstance(v, bytes) else str(v) for v in array], object)
    text = np.array([value.strip() for value in text], object)
    known = ~np.isin(text, MISSING)
    try:
        numbers = np.full(len(text), np.nan)
        numbers[known] = text[known].astype(np.float64)
        return numbers, None
    except ValueError:
        names, numbers = np.unique(text[known].astype(str), return_inverse=True)
        classes = np.full(len(text), -1)
        classes[known] = numbers
        return classes, names.tolist()


def weights(name, values, num_edges):
    """Edge weights as contiguous float32."""
    array, _ = to_numpy(name, values)
    array = np.ascontiguousarray(array.reshape(-1) if array.ndim == 2 else array, dtype=np.float32)
    if array.shape != (num_edges,):
        raise ValueError(f"{name}: its shape is {array.shape}; pass [{num_edges}], a weight per edge")
    return array
