import os
from typing import Any, Optional, Tuple, Union

import numpy as np

class Graph:
    def __init__(self, native: Any, edge_order: Any = None) -> None: ...
    @classmethod
    def open(cls, path: Union[str, os.PathLike[str]], mmap: bool = False, verify: bool = True) -> Graph: ...
    @classmethod
    def from_numpy(
        cls,
        edge_index: Any = None,
        x: Any = None,
        y: Any = None,
        *,
        num_nodes: Optional[int] = None,
        csc: Optional[Tuple[Any, Any]] = None,
        edge_weight: Any = None,
        train: Any = None,
        valid: Any = None,
        test: Any = None,
        edge_ids: bool = False,
    ) -> Graph: ...
    @classmethod
    def from_pyg(cls, data: Any, edge_ids: bool = False) -> Graph: ...
    @classmethod
    def from_dgl(cls, g: Any, x: str = "feat", y: str = "label", edge_weight: Optional[str] = None,
                 edge_ids: bool = False) -> Graph: ...
    @classmethod
    def from_networkx(
        cls, g: Any, x: Optional[str] = None, y: Optional[str] = None, edge_weight: Optional[str] = None, **splits: Any
    ) -> Graph: ...
    @classmethod
    def from_pandas(
        cls,
        edges: Any,
        nodes: Any = None,
        source: str = "source",
        target: str = "target",
        edge_weight: Optional[str] = None,
        y: Optional[str] = None,
        **splits: Any,
    ) -> Graph: ...
    @classmethod
    def from_ogb(
        cls, path: Union[str, os.PathLike[str]], output: Union[str, os.PathLike[str], None] = None, **options: Any
    ) -> Graph: ...
    def save(self, path: Union[str, os.PathLike[str]], replace: bool = False) -> None: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_edges(self) -> int: ...
    @property
    def num_classes(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def indptr(self) -> np.ndarray: ...
    @property
    def indices(self) -> np.ndarray: ...
    @property
    def weights(self) -> Optional[np.ndarray]: ...
    @property
    def x(self) -> Optional[np.ndarray]: ...
    @property
    def y(self) -> Optional[np.ndarray]: ...
    def split(self, name: str) -> np.ndarray: ...
