#![doc = include_str!("../README.md")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bounded;
mod changed;
mod dispatch;
mod early;
mod epochs;
mod hops;
mod host;
mod huge;
mod kind;
mod lanes;
mod limits;
mod logarithm;
mod neighbor;
mod pairs;
mod permutation;
mod picks;
mod pipeline;
mod relabel;
mod seeds;
mod stream;
mod table;
mod typed;
mod uniform;
mod weighted;

pub use bounded::{RETRIES, bounded};
pub use changed::NeighborCheck;
pub use epochs::{Epochs, Order, check_host, check_threads, seed_positions, weight_sum};
pub use hops::{Hop, HopSampler, gather_features, host_batch, sample_hops, set_targets};
pub use host::{HostBatching, HostWorker, SampleSeeds, check_given};
pub use kind::TYPED;
pub use lanes::{LANES, Lanes, MAX_LANES_FANOUT};
pub use limits::{MAX_HOPS, MAX_STEPS, check_limits, check_settings};
pub use logarithm::ln;
pub use neighbor::NeighborSampler;
pub use pairs::{Excluded, ExcludedRow, HostRows, PairBatch, Pairs, ReadRows, TypesOfPairs};
pub use permutation::permute;
pub use picks::{EdgeArrays, Picks, make_room};
pub use pipeline::{Expected, HostHopSampler, HostHops, SubRowEnds, TypeFanout};
pub use relabel::Relabel;
pub use seeds::{SeedBatch, Seeds};
pub use stream::{Row, Stream};
pub use typed::{MAX_TYPED_EPOCHS, TimePick, TreeRows, TreeSettings, Trees, TypedSampler, TypedSettings};
pub use uniform::{MAX_FANOUT, PickScratch, pick_uniform, pick_uniform_lanes};
pub use weighted::{MAX_WEIGHTED_DEGREE, count_positive, pick_weighted};
