#![doc = include_str!("../README.md")]

mod alias;
mod degrees;
mod error;
mod memory;
mod node_data;
mod output;
mod poisson;
mod quadrants;
mod random;
mod rmat;
mod rows;
mod sbm;

pub use error::{Error, Result};
pub use output::DEFAULT_MEMORY;
pub use rmat::{RmatConfig, rmat, rmat_to_disk};
pub use sbm::{SbmConfig, sbm, sbm_to_disk};
