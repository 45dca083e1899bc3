import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from .info import Info

class Graph:
    def __init__(
        self, native: Any, edge_order: Any = None, *, node_names: Any = None, source: Any = None, attributes: Any = None
    ) -> None: ...
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
        targets: Any = None,
        train: Any = None,
        valid: Any = None,
        test: Any = None,
        train_edges: Any = None,
        valid_edges: Any = None,
        test_edges: Any = None,
        train_negatives: Any = None,
        valid_negatives: Any = None,
        test_negatives: Any = None,
        edge_ids: bool = False,
        edge_attr: Any = None,
        edge_label_index: Any = None,
        edge_label: Any = None,
        time: Any = None,
        edge_time: Any = None,
        task: Optional[Mapping[str, Mapping[str, Any]]] = None,
    ) -> Graph: ...
    @classmethod
    def from_pyg(
        cls, data: Any, edge_ids: bool = False, weight_attr: Optional[str] = None, *, valid: Any = None, test: Any = None,
        task: Optional[Mapping[str, Mapping[str, Any]]] = None
    ) -> Graph: ...
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
        source: Optional[str] = None,
        target: Optional[str] = None,
        edge_weight: Optional[str] = None,
        y: Union[str, Sequence[str], None] = None,
        *,
        x: Optional[Sequence[str]] = None,
        targets: Union[str, Sequence[str], None] = None,
        id: Optional[str] = None,
        ids: Optional[str] = None,
        train: Any = None,
        valid: Any = None,
        test: Any = None,
        train_edges: Any = None,
        valid_edges: Any = None,
        test_edges: Any = None,
        train_negatives: Any = None,
        valid_negatives: Any = None,
        test_negatives: Any = None,
        edge_ids: bool = False,
        unknown_nodes: Optional[str] = None,
        task: Optional[Mapping[str, Mapping[str, Any]]] = None,
        **options: Any,
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
    @property
    def targets(self) -> Optional[np.ndarray]: ...
    @property
    def target_names(self) -> Optional[List[str]]: ...
    def edge_split(self, name: str) -> np.ndarray: ...
    def edge_label(self, name: str) -> Optional[np.ndarray]: ...
    @property
    def task(self) -> Optional[Dict[str, Dict[str, np.ndarray]]]: ...
    @property
    def node_ids(self) -> Union[np.ndarray, List[Any], None]: ...
    @property
    def class_names(self) -> Optional[List[str]]: ...
    @property
    def node_types(self) -> List[str]: ...
    @property
    def edge_types(self) -> List[Tuple[str, str, str]]: ...
    def nodes(self, node_type: str) -> range: ...
    def info(self) -> Info: ...
    def split(self, name: str) -> np.ndarray: ...
