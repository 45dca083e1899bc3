#![doc = include_str!("../README.md")]

mod arena;
mod attention;
mod backward;
mod edges;
mod epilogue;
mod forward;
mod gemm;
mod given;
mod gpu;
mod groups;
mod infer;
mod input;
mod inputs;
mod kernels;
mod layout;
mod loss;
mod norms;
mod pairs;
mod state;
mod trainer;
mod transpose;
mod typed;
mod typed_attention;

use morphgl_cuda::{CUDA, accelerators, probe};
use morphgl_registry::{At, Build, Description, Hardware, Key, OptionSpec, OptionType, Phase, Training, submit};

pub use trainer::CudaNative;

/// The operator's name.
pub const KEY: Key = Key::new(Phase::Training, Hardware::new(&[CUDA]), "Native");

/// What this crate registers.
pub const DESCRIPTION: Description = Description::new(
    KEY,
    "trains GCN, GraphSAGE, GAT, GIN, MLP and typed models on CUDA devices by kernels of ours and cuBLAS",
    At::Device(morphgl_cuda::BACKEND),
    At::Device(morphgl_cuda::BACKEND),
    Build::Training(|context| Ok(Box::new(CudaNative::new(context)?) as Box<dyn Training>)),
)
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.with_options(&[
    OptionSpec::new(
        "gemm",
        OptionType::Choice(&["cublas", "3xtf32"]),
        "cublas",
        "GEMMs by cuBLAS, or in f32 on tensor cores by three TF32 products of the factors' halves",
    ),
    OptionSpec::new("tf32", OptionType::Bool, "false", "round the factors of GEMMs to TF32, for tensor cores"),
])
.taking_given_rows()
.taking_pairs();

submit! { DESCRIPTION }
