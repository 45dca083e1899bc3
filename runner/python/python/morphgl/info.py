"""What a graph is, in numbers: the document of `morphgl info --json`."""

from dataclasses import dataclass
from typing import Any, Dict, Optional

from .brief import Brief


@dataclass(repr=False)
class Info(Brief):
    """A graph in numbers. `degree` is of edges into a node; `document` is that of `morphgl info --json`, where `path`, `version`,
    `arrays` and `provenance` are of a directory alone."""

    name: str
    num_nodes: int
    num_edges: int
    num_classes: int
    feature_dim: int
    feature_dtype: Optional[str]
    self_loops: int
    weighted: bool
    labelled: int
    degree: Dict[str, Any]
    splits: Dict[str, Any]
    types: Optional[Dict[str, Any]]
    bytes: int
    document: Dict[str, Any]
