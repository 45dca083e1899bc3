#![doc = include_str!("../README.md")]

mod caches;
mod curve;
mod expand;
mod files;
mod graph;
mod offsets;
mod options;
mod replay;
mod rows;
mod sampler;
mod slopes;
mod stats;
mod whole_rows;

pub use options::Options;
pub use sampler::DiskNeighbor;
pub use stats::{Counts, Hits};

use morphgl_registry::{
    At, Build, CACHE_HITS, CACHE_REQUESTS, DISK_BYTES, DISK_READS, Description, Hardware, Key, Phase, Resource,
};

/// The disks of datasets.
pub const DISK: Resource = Resource::new("Disk");

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    Key::new(Phase::Batching, Hardware::new(&[Resource::CPU, DISK]), "Neighbor"),
    "samples k hops of neighbours, and gathers their features, from the dataset's files",
    At::Disk,
    At::Host,
    Build::Batching(|context| Ok(Box::new(DiskNeighbor::new(context)?))),
)
.taking_pairs()
.interchangeable()
.with_options(&options::SPECS)
.with_counters(&[DISK_READS, DISK_BYTES, CACHE_REQUESTS, CACHE_HITS]);

morphgl_registry::submit! { DESCRIPTION }
