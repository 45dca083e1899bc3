//! Training operators that change some methods of another one.

use crate::{
    GatherRows, GradientReady, Gradients, Handle, HostBatch, MiniBatch, ModelState, NamedTensor, Result, Roofline,
    Score, Targets, Training,
};

/// Declares the wrapper's trait and its implementations from one list of methods. Clippy's `missing_trait_methods` makes a method
/// of [`ModelState`] or [`Training`] that the list lacks an error, where it has a default, too.
macro_rules! training_wrapper {
    ($($owner:ident {
        $(read fn $get:ident() -> $got:ty;)*
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*
    })*) => {
        /// A training operator around another one. Every method calls the inner operator's, unless the wrapper has one of its own;
        /// a wrapper is a [`Training`] by that.
        pub trait TrainingWrapper: std::fmt::Debug + Send {
            /// The inner operator.
            fn inner(&self) -> &dyn Training;

            /// The inner operator, to be changed.
            fn inner_mut(&mut self) -> &mut dyn Training;

            $(
                $(#[doc = concat!("As [`", stringify!($owner), "::", stringify!($get), "`].")]
                fn $get(&self) -> $got {
                    self.inner().$get()
                })*

                $(#[doc = concat!("As [`", stringify!($owner), "::", stringify!($name), "`].")]
                fn $name(&mut self $(, $argument: $type)*) -> $output {
                    self.inner_mut().$name($($argument),*)
                })*
            )*
        }

        $(#[deny(clippy::missing_trait_methods)]
        impl<W: TrainingWrapper> $owner for W {
            $(fn $get(&self) -> $got {
                TrainingWrapper::$get(self)
            })*

            $(fn $name(&mut self $(, $argument: $type)*) -> $output {
                TrainingWrapper::$name(self $(, $argument)*)
            })*
        })*
    };
}

training_wrapper! {
    ModelState {
        read fn parameters() -> Result<Vec<NamedTensor>>;
        read fn optimizer_state() -> Result<Vec<NamedTensor>>;
        fn set_parameters(parameters: &[NamedTensor]) -> Result<()>;
        fn set_optimizer_state(state: &[NamedTensor]) -> Result<()>;
        fn gradients() -> Result<Gradients>;
        fn set_gradients(gradients: &Gradients) -> Result<()>;
    }
    Training {
        read fn queue_depth() -> usize;
        read fn infer_bytes() -> Option<u64>;
        fn set_threads(threads: usize) -> Result<()>;
        fn accumulate(batch: &MiniBatch) -> Result<Handle<Score>>;
        fn accumulate_last(batch: &MiniBatch, complete: GradientReady<'_>) -> Result<Handle<Score>>;
        fn step() -> Result<Handle<()>>;
        fn train(batch: &MiniBatch) -> Result<Handle<Score>>;
        fn settle() -> Result<()>;
        fn first_layer(batch: &HostBatch, rows: &mut Vec<f32>, inputs: &mut [Vec<f32>]) -> Option<Result<()>>;
        fn score(batch: &MiniBatch) -> Result<Handle<Score>>;
        fn outputs(batch: &MiniBatch) -> Result<Handle<Vec<f32>>>;
        fn score_logits(logits: &[f32], targets: Targets<'_>, width: usize) -> Result<Score>;
        fn pair_scores(outputs: &[f32], pairs: &[[u32; 2]], width: usize) -> Option<Result<Vec<f32>>>;
        fn infer(nodes: &[u32]) -> Result<Vec<f32>>;
        fn infer_together(nodes: &[u32], peers: &mut dyn GatherRows) -> Result<Vec<f32>>;
        fn embed(nodes: &[u32], layers: usize, peers: &mut dyn GatherRows) -> Result<Vec<f32>>;
        fn roofline(batch: &MiniBatch) -> Option<Result<Roofline>>;
    }
}
