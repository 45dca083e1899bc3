import os
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .graph import Graph

class LinkNeighborLoader:
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
        num_neighbors: Sequence[int] = (15, 10, 5),
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: None = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: Optional[float] = None,
        time_attr: None = None,
        weight_attr: Optional[str] = None,
        transform: Optional[Callable[[Any], Any]] = None,
        *,
        batch_size: int = 1024,
        output: Optional[str] = None,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: Optional[int] = None,
        negative_distribution: str = "uniform",
        avoid_edges: bool = False,
        keep_target_edges: bool = False,
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
