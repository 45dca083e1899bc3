#![doc = include_str!("../README.md")]

mod batch;
mod built;
mod cache;
mod clock;
mod counter;
mod description;
mod error;
mod given;
mod handle;
mod key;
mod lookup;
mod machine;
mod operator;
mod option;
mod pairs;
mod place;
mod roofline;
mod route;
mod rows;
mod sampling;
mod settings;
mod training;
mod wrapper;

pub use batch::{BatchFeatures, BatchId, Block, DeviceBatch, HostBatch, MiniBatch, TargetValues, Targets};
pub use built::{Operators, RouteOperators, TrainingOperator};
pub use cache::{CacheCurve, CachePoint};
pub use clock::VirtualClock;
pub use counter::{CACHE_HITS, CACHE_REQUESTS, CounterSpec, Counters, DISK_BYTES, DISK_READS, LINK_BYTES, PEER_BYTES};
pub use description::{Build, Description, FeatureFill, Unavailable};
pub use error::{Error, ErrorKind, Result, SamplingSetting, panic_message};
pub use given::{FirstLayerRows, GivenRows, GivenTable};
pub use handle::{Handle, Measured, Wait};
pub use key::{Hardware, Key, Phase, Resource};
pub use lookup::{Registry, Status};
pub use machine::{Accelerator, Machine};
pub use operator::{
    Batching, BatchingContext, BatchingWorker, GivenNodes, TrainingContext, Transferring, TransferringContext,
};
pub use option::{OptionRole, OptionSpec, OptionType, check_options};
pub use pairs::{BatchPairs, NegativeDistribution, PairSeeds, PairSettings};
pub use place::{At, Place};
pub use roofline::{Bound, Pass, Roofline};
pub use route::{Delivery, Route};
pub use rows::RowSeeds;
pub use sampling::SamplingSpec;
pub use settings::{
    CustomSettings, Expansion, Fanout, Fanouts, NeighborSettings, Pick, SamplerSettings, Sampling, SeedSet,
    ShadowSettings, WalkSettings,
};
pub use training::{GatherRows, GradientReady, Gradients, ModelState, NamedTensor, Score, SingleProcess, Training};
pub use wrapper::TrainingWrapper;

#[doc(hidden)]
pub use inventory as __inventory;

inventory::collect!(Description);

/// Registers an operator: `submit! { Description::new(KEY, "…", At::Host, At::Host, Build::Batching(build)) }`.
///
/// The description is a constant; no code of the operator runs before it is built.
/// A crate that is never named is silently not linked: the program has to say `use the_operator_crate as _;`.
#[macro_export]
macro_rules! submit {
    ($description:expr) => {
        $crate::__inventory::submit! { $description }
    };
}
