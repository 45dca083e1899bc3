from typing import Any, Dict, Iterator, List, Optional, Tuple

__version__: str

class Buffer:
    shape: Tuple[int, ...]
    dtype: str
    __array_interface__: Dict[str, Any]
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> Tuple[int, int]: ...

class Graph:
    name: str
    path: str
    num_nodes: int
    num_edges: int
    num_classes: int
    num_self_loops: int
    indptr: Buffer
    indices: Buffer
    weights: Optional[Buffer]
    features: Optional[Buffer]
    features_by_type: List[Optional[Buffer]]
    edge_features: List[Optional[Buffer]]
    edge_ids: Optional[Buffer]
    type_of_edges: Optional[Buffer]
    node_times: Optional[Buffer]
    edge_times: Optional[Buffer]
    labels: Optional[Buffer]
    targets: Optional[Buffer]
    @staticmethod
    def open(path: str, mmap: bool, verify: bool) -> Graph: ...
    @staticmethod
    def from_csc(indptr: Any, indices: Any, weights: Any, features: Any, bf16: bool, labels: Any, targets: Any, splits: Any, edges: Any) -> Graph: ...
    def pairs(self, name: str) -> Optional[Buffer]: ...
    node_ids: Optional[Buffer]
    def detached(self) -> Graph: ...
    def names(self) -> Optional[List[str]]: ...
    def save(self, path: str, replace: bool, provenance: str, node_ids: Any, names: Any) -> None: ...
    node_types: List[Tuple[str, int]]
    edge_types: List[Tuple[str, str, str]]
    def with_types(self, node_types: Any, edge_types: Any, types: Any, features: Any, node_times: Any, edge_times: Any) -> Graph: ...
    def with_edge_features(self, ids: Any, features: Any) -> Graph: ...
    def with_draw_keys(self, keys: Any) -> Graph: ...
    def split(self, name: str) -> Buffer: ...

class Loader:
    num_batches: int
    operator: str
    def __init__(self, graph: Graph, seeds: Any, pairs: Optional[str], given: Any, settings: str, form: str, gather: bool, threads: int, prefetch: int, edge_ids: bool, edge_order: Any, disk: Optional[str]) -> None: ...
    def with_seeds(self, seeds: Any, given: Any) -> Loader: ...
    def epoch(self, epoch: int, first: int, end: int) -> Epoch: ...

class Epoch(Iterator[Batch]):
    def __next__(self) -> Batch: ...
    def close(self) -> None: ...

class Batch:
    epoch: int
    index: int
    batch_size: int
    n_id: Buffer
    x: Optional[Buffer]
    y: Optional[Buffer]
    targets: Optional[Buffer]
    pairs: Optional[Buffer]
    num_positives: int
    edge_index: Optional[Buffer]
    edge_weight: Optional[Buffer]
    e_id: Optional[Buffer]
    num_sampled_nodes: List[int]
    num_sampled_edges: List[int]
    blocks: List[Tuple[Buffer, Buffer, Optional[Buffer], int, int]]

class Sampler:
    def __init__(self, graph: Graph, fanouts: List[List[int]], num_hops: int, weighted: bool, disjoint: bool, temporal: Optional[str], order: Any, node_times: Any, edge_times: Any) -> None: ...
    def sample(self, seeds: List[Tuple[int, Any]], times: Optional[List[Any]], draw: int) -> Tuple[List[Tuple[Buffer, Optional[Buffer], List[int]]], List[Tuple[Buffer, Buffer, Buffer, List[int]]]]: ...

def gather(requests: List[Tuple[Any, str, Any]]) -> List[Buffer]: ...
def run(arguments: List[str], graph: Optional[Graph], trainer: Any, quiet: bool) -> str: ...
def is_id_column(name: str) -> bool: ...
def csc(sources: Any, targets: Any, num_nodes: int) -> Tuple[Buffer, Buffer, Buffer]: ...

def epoch_order(seed: int, epoch: int, count: int) -> Buffer: ...
def samplers() -> List[Tuple[str, bool]]: ...
