#![doc = include_str!("../README.md")]

mod division;
mod exchange;
mod host;
mod join;
mod share;
mod step;

pub use division::{Division, Weights};
pub use exchange::{Exchange, GroupError, Result};
pub use host::HostExchange;
pub use join::{Seat, join};
pub use share::{Share, ShareBatching};
pub use step::StopTogether;
