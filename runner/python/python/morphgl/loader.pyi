import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .graph import Graph

@dataclass
class Block:
    indptr: Any
    indices: Any
    weights: Optional[Any]
    num_src: int
    num_dst: int

@dataclass
class Batch:
    x: Optional[Any]
    edge_index: Optional[Any]
    y: Optional[Any]
    n_id: Any
    batch_size: int
    num_sampled_nodes: List[int]
    num_sampled_edges: List[int]
    edge_weight: Optional[Any] = None
    e_id: Optional[Any] = None
    input_id: Optional[Any] = None
    blocks: List[Block] = field(default_factory=list)
    targets: Optional[Any] = None
    edge_label_index: Optional[Any] = None
    edge_label: Optional[Any] = None
    src_index: Optional[Any] = None
    dst_pos_index: Optional[Any] = None
    dst_neg_index: Optional[Any] = None

class NeighborLoader:
    graph: Graph
    output: str
    batch_size: int
    drop_last: bool
    pin_memory: bool
    device: Optional[str]
    routes: List[Tuple[str, Optional[float], Optional[str]]]
    data: Any
    dataset: range
    def __init__(
        self,
        data: Union[Graph, str, os.PathLike[str], Any],
        num_neighbors: Union[Sequence[int], Dict[Any, Sequence[int]]] = (15, 10, 5),
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: Optional[str] = None,
        weight_attr: Optional[str] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        transform_sampler_output: Optional[Callable[[Any], Any]] = None,
        *,
        batch_size: int = 1024,
        output: Optional[str] = None,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: Optional[int] = None,
        threads: Optional[int] = None,
        prefetch: int = 2,
        expansion: Optional[str] = None,
        weighted: bool = False,
        sampler: Union[str, Iterable[int], None] = None,
        layers: Optional[int] = None,
        walks: int = 10,
        walk_length: int = 3,
        restart: float = 0.5,
        neighbors: int = 10,
        sampler_option: Optional[Dict[str, Any]] = None,
        features: bool = True,
        edge_ids: bool = False,
        memory: Union[int, str, None] = None,
        cache: Optional[str] = None,
        pin_memory: bool = False,
        num_workers: int = 0,
        prefetch_factor: Optional[int] = None,
        device: Any = None,
        route: Union[str, Sequence[str], None] = None,
        device_memory: Union[int, str, None] = None,
        **others: Any,
    ) -> None: ...
    def __len__(self) -> int: ...
    def set_epoch(self, epoch: int) -> None: ...
    def state_dict(self) -> Dict[str, Any]: ...
    def load_state_dict(self, state: Dict[str, Any]) -> None: ...
    def __iter__(self) -> Iterator[Any]: ...
