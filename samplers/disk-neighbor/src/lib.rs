#![doc = include_str!("../README.md")]

mod caches;
mod curve;
mod expand;
mod files;
mod graph;
mod located;
mod offsets;
mod options;
mod replay;
mod rows;
mod sampler;
mod slopes;
mod stats;
mod trees;
mod typed;
mod whole_rows;

pub use options::Options;
pub use sampler::DiskNeighbor;
pub use stats::{Counts, Hits};

use morphgl_registry::{
    At, Build, CACHE_HITS, CACHE_REQUESTS, CounterSpec, DISK_BYTES, DISK_READS, Description, Hardware, Key, Phase,
    Resource,
};

/// The disks of datasets.
pub const DISK: Resource = Resource::new("Disk");

/// Neighbour sampling.
pub const NEIGHBOR: Description = Description::new(
    Key::new(Phase::Batching, HARDWARE, "Neighbor"),
    "samples k hops of neighbours, and gathers their features, from the dataset's files",
    At::Disk,
    At::Host,
    Build::Batching(|context| Ok(Box::new(DiskNeighbor::new(context)?))),
)
.taking_pairs()
.interchangeable()
.with_options(&options::SPECS)
.with_counters(&COUNTERS);

/// Neighbour sampling by edge type.
pub const TYPED: Description = Description::new(
    Key::new(Phase::Batching, HARDWARE, "Typed"),
    "samples k hops of neighbours per edge type of a typed graph from the dataset's files",
    At::Disk,
    At::Host,
    Build::Batching(|context| Ok(Box::new(DiskNeighbor::typed(context)?))),
)
.sampling(&[morphgl_sampler_core::TYPED])
.taking_pairs()
.taking_rows()
.interchangeable()
.with_options(&options::SPECS)
.with_counters(&COUNTERS);

const HARDWARE: Hardware = Hardware::new(&[Resource::CPU, DISK]);
const COUNTERS: [CounterSpec; 4] = [DISK_READS, DISK_BYTES, CACHE_REQUESTS, CACHE_HITS];

morphgl_registry::submit! { NEIGHBOR }
morphgl_registry::submit! { TYPED }
