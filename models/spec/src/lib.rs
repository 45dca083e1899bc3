#![doc = include_str!("../README.md")]

mod file;
mod fitting;
mod model;
mod optimizer;
mod parameters;
mod random;
mod state;

pub use file::{F32View, ModelFile, load_model, load_parameters, save_model};
pub use fitting::Fitting;
pub use model::{Activation, Attention, LayerShape, ModelKind, ModelSpec, Normalization};
pub use optimizer::{Adam, OptimizerSpec, TrainingSpec, WeightDecayOn};
pub use parameters::{Init, ParameterSpec, check_tensors, initial_parameters};
pub use random::{Dropout, DropoutSite, RowPart};
pub use state::{Moments, optimizer_state, read_optimizer_state};
