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
mod vectors;
mod work;

use morphgl_platform::{ISA_VARIABLE, SimdLevel};
use morphgl_registry::{At, Build, Description, Hardware, Key, Machine, Phase, Training, Unavailable, submit};

pub use network::PassTimes;
pub use support::supports;
pub use trainer::CpuNative;

/// Key of the operator.
pub const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Native");

/// Key of the same operator with wide GEMMs on AMX tiles.
pub const AMX_KEY: Key = Key::new(Phase::Training, Hardware::CPU, "NativeAmx");

/// What this crate registers for every processor.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "trains GCN, GraphSAGE, GAT, MLP, R-GCN, R-SAGE and R-GAT on CPU threads by hand-written passes",
    At::Host,
    At::Host,
    Build::Training(|context| Ok(Box::new(CpuNative::new(context)?) as Box<dyn Training>)),
)
.reading_store()
.taking_given_rows()
.taking_pairs();

submit! { DESCRIPTION }

submit! {
    Description::new(
        AMX_KEY,
        "the same, with wide GEMMs on AMX tiles of Intel processors",
        At::Host,
        At::Host,
        Build::Training(|context| Ok(Box::new(CpuNative::on_tiles(context)?) as Box<dyn Training>)),
    )
    .with_probe(has_amx)
    .reading_store()
    .taking_given_rows()
    .taking_pairs()
}

fn has_amx(_: &Machine) -> Result<(), Unavailable> {
    let (level, detected) = (SimdLevel::current(), SimdLevel::detected());
    if simd::has_tiles(level) {
        return Ok(());
    }
    let reason = match simd::has_tiles(detected) {
        true => format!("{ISA_VARIABLE}={level} leaves AMX out"),
        false => "this processor has no AMX".to_string(),
    };
    Err(Unavailable { reason })
}
