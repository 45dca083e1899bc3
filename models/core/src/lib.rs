#![doc = include_str!("../README.md")]

mod checks;
mod chunks;
mod infer;

pub use checks::{
    broken_parameter, check_batch, check_context, check_loss, check_model, mask_nodes, nothing_accumulated,
    refused_importance, start_threads,
};
pub use chunks::{Chunk, Limits};
pub use infer::{Input, Layers, QueuedLayers, infer, infer_bytes};
