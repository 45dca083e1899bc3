"""How results print themselves: numbers as they are, arrays by type and shape, collections by their size."""

import dataclasses


class Brief:
    """A dataclass whose repr is a line; declare it with `repr=False`."""

    def __repr__(self):
        shown = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "document")
        return f"{type(self).__name__}({', '.join(f'{name}={brief(value)}' for name, value in shown)})"


def brief(value):
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).replace('torch.', '')}{list(value.shape)}"
    if isinstance(value, dict):
        return f"<{len(value)} entries>"
    if isinstance(value, (list, tuple)) and (len(value) > 8 or not all(isinstance(v, (int, float)) for v in value)):
        return f"<{len(value)} items>"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
