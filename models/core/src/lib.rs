#![doc = include_str!("../README.md")]

// What a model is.
mod decoder;
mod edges;
mod file;
mod fitting;
mod logistic;
mod loss;
mod model;
mod optimizer;
mod parameter;
mod parameters;
mod predicted;
mod random;
mod ranked;
mod schedule;
mod score;
mod state;
mod submission;
mod task;
mod typed;
mod work;

// What training operators share.
mod all_pairs;
mod checks;
mod chunks;
mod given;
mod infer;
mod masks;
mod objective;
mod pair_loss;
mod partners;
mod parts;

pub use decoder::Decoder;
pub use edges::{check_edge_features, refuse_edges};
pub use file::{F32View, ModelFile, load_model, load_parameters, save_model};
pub use fitting::Fitting;
pub use loss::LossKind;
pub use model::{Activation, Attention, ModelKind, ModelSpec, Normalization};
pub use optimizer::{OptimizerKind, OptimizerSpec, OptimizerStep, TrainingSpec, WeightDecayOn, sum_of_squares};
pub use parameter::{Init, LayerShape, ParameterList, ParameterSpec};
pub use parameters::{check_tensors, initial_parameters};
pub use predicted::{ClassCounts, Confusion, Predicted};
pub use random::{Dropout, DropoutSite, RowPart};
pub use ranked::{Ranked, RankingScore, mean_reciprocal_rank};
pub use schedule::{LrSchedule, LrScheduleKind, Plateau, Steps};
pub use score::ScoreKind;
pub use state::{Moments, count_reduction, optimizer_state, read_optimizer_state, steps_of};
pub use submission::{CheckSettings, LossDescription, ModelDescription, ScoreDescription, Settings};
pub use task::Task;
pub use typed::{NodesOfType, check_features_by_type, check_types, nodes_by_type, refuse_relations, refuse_typed};
pub use work::StepWork;

#[doc(hidden)]
pub use inventory as __inventory;

pub use all_pairs::{Candidates, KnownPairs, PairScore, TargetRank, rank_of_targets};
pub use checks::{
    TargetLengths, broken_parameter, check_batch, check_context, check_inputs, check_loss, check_model, check_targets,
    nothing_accumulated, output_width, refuse_submitted, refused_importance, start_threads, targets_of, wrong_targets,
};
pub use chunks::{Chunk, Limits};
pub use given::{BlockSizes, GivenLengths, blocks_chain, check_given, source_degrees};
pub use infer::{Input, Layers, QueuedLayers, check_first_layer, infer, infer_bytes};
pub use masks::{given_mask_nodes, mask_nodes};
pub use objective::Objective;
pub use partners::Partner;
