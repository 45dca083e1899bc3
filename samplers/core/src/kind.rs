//! The kind of sampling that this crate adds to those of the registry.

use morphgl_registry::{OptionSpec, OptionType, SamplingSpec};

/// Fanouts of edge types that differ from `--fanouts`.
pub(crate) const FANOUTS_BY_TYPE: OptionSpec = OptionSpec::new(
    "fanouts_by_type",
    OptionType::Text,
    "",
    "fanouts of single edge types in place of --fanouts, such as writes=5,5;paper-cites-paper=-1,0; 0 samples none",
)
.such_as(&[""]);

/// Neighbours by fanouts per edge type (PyG's and DGL's sampling of heterogeneous graphs), `--sampler typed`.
pub const TYPED: SamplingSpec = SamplingSpec::new("typed", "neighbours of each edge type, by fanouts per type")
    .by_fanouts()
    .with_settings(&[FANOUTS_BY_TYPE, DISJOINT, TEMPORAL]);

/// Whether each seed has a tree of its own.
pub(crate) const DISJOINT: OptionSpec = OptionSpec::new(
    "disjoint",
    OptionType::Bool,
    "false",
    "a tree per seed, which shares no node with another; forced by times",
);

/// Which edges are no later than the seed.
pub(crate) const TEMPORAL: OptionSpec = OptionSpec::new(
    "temporal",
    OptionType::Choice(&["no", "uniform", "last"]),
    "no",
    "no edge or node later than the seed: picked uniformly (by weight) of the others, or the last ones",
);
