#![doc = include_str!("../README.md")]

mod error;
mod gather;
mod order;
mod reorder;
mod requests;
mod tiers;

pub use error::{Error, Result};
pub use gather::{TierCounts, TieredRows};
pub use order::Order;
pub use reorder::{Progress, ReorderOptions, reorder};
pub use requests::{LINE, Reads, SECTOR, WarpAccess, WarpPattern};
pub use tiers::{Division, Location, Tier, TierBudgets, Tiers};
