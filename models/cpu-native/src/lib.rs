#![doc = include_str!("../README.md")]

mod adjacency;
pub mod attention;
mod buffer;
mod csr;
mod epilogue;
mod gemm;
mod infer;
mod layer;
mod loss;
mod network;
mod optimizer;
mod parallel;
mod prefetch;
pub mod probe;
mod rows;
mod simd;
mod sparse;
mod spmm;
mod support;
mod trainer;

use morphgl_registry::{At, Build, Description, Hardware, Key, Phase, Training, submit};

pub use network::{PassTimes, Work};
pub use support::supports;
pub use trainer::CpuNative;

/// Key of the operator.
pub const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Native");

submit! {
    Description::new(
        KEY,
        "trains GCN, GraphSAGE, GAT and MLP on CPU threads by hand-written passes",
        At::Host,
        At::Host,
        Build::Training(|context| Ok(Box::new(CpuNative::new(context)?) as Box<dyn Training>)),
    )
    .reading_store()
    .taking_given_rows()
}
