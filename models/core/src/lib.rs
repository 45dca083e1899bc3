#![doc = include_str!("../README.md")]

mod checks;
mod chunks;
mod given;
mod infer;
mod masks;
mod parts;

pub use checks::{
    broken_parameter, check_batch, check_context, check_loss, check_model, nothing_accumulated, refused_importance,
    start_threads,
};
pub use chunks::{Chunk, Limits};
pub use given::{BlockSizes, GivenLengths, blocks_chain, check_given, source_degrees};
pub use infer::{Input, Layers, QueuedLayers, check_first_layer, infer, infer_bytes};
pub use masks::{given_mask_nodes, mask_nodes};
