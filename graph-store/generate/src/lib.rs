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
mod relational;
mod relations;
mod rmat;
mod rows;
mod sbm;
mod schema;
mod tables;
mod typed;
mod typed_output;
mod typed_rows;

pub use error::{Error, Result};
pub use output::DEFAULT_MEMORY;
pub use relational::{RelationalConfig, RelationalTask, relational, relational_to_disk};
pub use rmat::{RmatConfig, rmat, rmat_to_disk};
pub use sbm::{SbmConfig, sbm, sbm_to_disk};
pub use typed::{TypedConfig, TypedFeatures, typed, typed_to_disk};
