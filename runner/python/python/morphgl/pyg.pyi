import os
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from torch import Tensor
from torch_geometric.data import FeatureStore as _FeatureStore
from torch_geometric.data import GraphStore as _GraphStore
from torch_geometric.data import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from .graph import Graph

class Sampler(BaseSampler):
    num_neighbors: NumNeighbors
    subgraph_type: SubgraphType
    replace: bool
    disjoint: bool
    temporal_strategy: str
    keep_orig_edges: bool
    def __init__(
        self,
        data: Any,
        num_neighbors: Union[NumNeighbors, Sequence[int], Dict[Tuple[str, str, str], Sequence[int]]],
        subgraph_type: Union[SubgraphType, str] = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: Optional[str] = None,
        weight_attr: Optional[str] = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: str = "forward",
    ) -> None: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def is_hetero(self) -> bool: ...
    @property
    def is_temporal(self) -> bool: ...
    @property
    def num_nodes(self) -> Union[int, Dict[str, int]]: ...
    @property
    def node_time(self) -> Union[Tensor, Dict[str, Tensor], None]: ...
    @property
    def edge_permutation(self) -> None: ...
    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> Union[SamplerOutput, HeteroSamplerOutput]: ...
    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: Optional[NegativeSampling] = None
    ) -> Union[SamplerOutput, HeteroSamplerOutput]: ...

class FeatureStore(_FeatureStore):
    graph: Graph
    def __init__(self, graph: Union[Graph, str, os.PathLike[str]]) -> None: ...
    def get_all_tensor_attrs(self) -> List[TensorAttr]: ...

class GraphStore(_GraphStore):
    graph: Graph
    def __init__(self, graph: Union[Graph, str, os.PathLike[str]]) -> None: ...
    def get_all_edge_attrs(self) -> List[EdgeAttr]: ...

def stores(data: Union[Graph, str, os.PathLike[str]]) -> Tuple[FeatureStore, GraphStore]: ...
