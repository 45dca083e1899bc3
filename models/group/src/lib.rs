#![doc = include_str!("../README.md")]

mod balanced;
mod cut;
mod division;
mod exchange;
mod host;
mod infer;
mod join;
mod overlap;
mod shards;
mod share;
mod speed;
mod stale;
mod step;
mod work;

pub use balanced::Balanced;
pub use division::{Division, Weights};
pub use exchange::{Exchange, GroupError, Result, gathering_bytes};
pub use host::{AbortHandle, HostExchange};
pub use infer::InferTogether;
pub use join::{GroupMember, join};
pub use overlap::BUCKET_BYTES;
pub use shards::{Layout, ReadRows, ShardedBatching, Shards};
pub use share::{SeedShare, ShareBatching};
pub use stale::{StaleMember, StalenessCounts, join_stale};
pub use step::{AllReduceHook, StopTogether, VirtualSteps};
pub use work::{work, work_of_pairs, work_of_rows};
