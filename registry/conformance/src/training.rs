//! The suite of phase Training.
//!
//! Every training operator passes [`check`], in one test of its crate.

mod given;
mod graph;
mod importance;
mod losses;
mod numbers;
mod optimizers;
pub mod random;
mod reference;
mod state;
mod store;
mod together;
mod typed;

use std::fmt;
use std::sync::Arc;

use morphgl_graph_store::Dataset;
use morphgl_registry::{
    Build, Description, Gradients, Handle, HostBatch, MiniBatch, NamedTensor, OptionSpec, Place, Result, Score,
    Training, TrainingContext,
};
use serde_json::{Value, json};

pub use graph::{batch, tiny};
pub use reference::logits as reference_logits;
pub use typed::{features_by_type, tiny as tiny_typed};

/// The operator under test. [`Subject::new`] has that of a description, to which others add what differs:
/// `Subject { deterministic: false, ..Subject::new(&DESCRIPTION) }`.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// How it is built.
    pub build: &'a dyn Fn(&TrainingContext) -> Result<Box<dyn Training>>,
    /// Where it trains.
    pub place: &'a Place,
    /// Moves a mini-batch to `place`.
    pub transfer: &'a dyn Fn(HostBatch) -> MiniBatch,
    /// Whether the same calls give the same bits on any number of threads.
    pub deterministic: bool,
    /// Whether it trains mini-batches with given rows, and computes its first layer alone.
    pub takes_given_rows: bool,
    /// Whether it has a model of its own ([`Description::with_own_model`]), in the place of the suite's: of the job's model it reads
    /// `in_dim`, `num_classes` and `layers`, and its loss and optimizer are its own.
    pub own_model: bool,
    /// Whether it trains all tasks by all losses of `morphgl-model-core` with their settings; otherwise it refuses all but the
    /// cross-entropy of classes, by its name.
    pub all_losses: bool,
    /// Whether it learns links by a vector per edge type, too; otherwise it refuses them by name.
    pub takes_relations: bool,
    /// Whether it trains typed models and inputs per node type; otherwise it refuses them by name.
    pub takes_types: bool,
    /// Kinds of typed models, and fields of their specs, that it refuses by name although it trains others: `hgt`, `diagonal_blocks`.
    pub refused_types: &'a [&'a str],
    /// Models and losses that other crates submitted, in the place of the suite's models: fields of the spec, such as
    /// `{"kind": "gated", "loss": "focal"}`. Empty for the suite's.
    pub submitted: &'a [Value],
    /// Its options, each of which is set.
    pub options: &'a [OptionSpec],
    /// Whether a sanitizer slows it down a hundred times. Which memory it accesses is then seen as well without training a model to
    /// the end, and with finite differences of a few elements of each parameter.
    pub sanitized: bool,
}

impl<'a> Subject<'a> {
    /// The operator of a description, which trains on the host the same bits on any number of threads.
    ///
    /// # Panics
    ///
    /// When it is not of phase Training.
    pub fn new(description: &'a Description) -> Self {
        let Build::Training(build) = &description.build else { panic!("{} is not of phase Training", description.key) };
        Self {
            build,
            place: &Place::Host,
            transfer: &MiniBatch::Host,
            deterministic: true,
            takes_given_rows: description.takes_given_rows,
            own_model: description.own_model,
            all_losses: description.takes_pairs,
            takes_relations: description.takes_pairs,
            takes_types: false,
            refused_types: &[],
            submitted: &[],
            options: description.options,
            sanitized: false,
        }
    }
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject(at {})", self.place)
    }
}

/// Runs every check of the phase.
///
/// # Panics
///
/// When the operator does not conform, with the difference.
pub fn check(subject: &Subject<'_>) {
    let dataset = Arc::new(tiny());
    let run = Run { subject, dataset, typed: false };
    if !subject.own_model && subject.submitted.is_empty() {
        numbers::forward_is_the_reference(&run);
        importance::check(&run);
    }
    if !subject.own_model && subject.submitted.is_empty() {
        match subject.all_losses {
            true => {
                losses::of_nodes_conform(&run);
                losses::of_pairs_conform(&run);
                losses::of_edges_conform(&run);
                match subject.takes_relations {
                    true => losses::of_relations_conform(&run),
                    false => losses::relations_are_refused(&run),
                }
            }
            false => losses::other_losses_are_refused(&run),
        }
    }
    if !subject.own_model {
        numbers::dropout_is_a_function_of_the_batch(&run);
        state::the_first_step_is_adams(&run);
        optimizers::steps_are_torchs(&run);
    }
    numbers::gradients_are_differences(&run);
    numbers::shares_add_up(&run);
    numbers::unlabelled_seeds_do_not_count(&run);
    numbers::one_seed_and_isolated_nodes(&run);
    numbers::inference_is_the_forward_pass(&run);
    together::logits_are_those_of_one_process(&run);
    if !subject.sanitized {
        numbers::loss_falls(&run);
    }
    if !subject.own_model && subject.submitted.is_empty() {
        typed::check(subject);
    }
    if subject.takes_given_rows {
        given::check(&run);
    }
    state::parameters_travel_by_name(&run);
    state::no_gradient_no_step(&run);
    state::a_copy_goes_on_alike(&run);
    state::a_rebuilt_operator_goes_on_alike(&run);
    state::training_is_accumulating_and_stepping(&run);
    state::gradients_are_handed_over(&run);
    state::queued_batches_are_trained_in_order(&run);
    state::threads_change_little(&run);
    state::failures_are_named(&run);
    state::options_are_taken(&run);
}

/// Runs the checks of an operator that reads features from the dataset: mini-batches without features.
///
/// # Panics
///
/// When the operator does not conform, with the difference.
pub fn reads_store(subject: &Subject<'_>) {
    store::features_are_read_from_the_store(&Run { subject, dataset: Arc::new(tiny()), typed: false });
}

/// A small model without dropout, with these fields besides.
fn model(fields: Value) -> Value {
    let mut model = json!({"in_dim": graph::DIM, "num_classes": graph::CLASSES, "hidden": 4, "layers": 2,
        "heads": 2, "dropout": 0.0, "activation": "elu"});
    model.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
    model
}

/// The models that an operator without one of its own is checked with.
fn models() -> Vec<(&'static str, Value)> {
    let deep = json!({"kind": "sage", "layers": 3, "activation": "relu", "residual": true, "normalization": "layer"});
    vec![
        ("gcn", model(json!({"kind": "gcn"}))),
        ("gcn of the graph's own self-loops", model(json!({"kind": "gcn", "self_loops": false}))),
        ("sage", model(json!({"kind": "sage"}))),
        ("gat", model(json!({"kind": "gat", "output_heads": 2}))),
        ("gatv2", model(json!({"kind": "gat", "attention": "gatv2"}))),
        ("gin", model(json!({"kind": "gin", "train_eps": true}))),
        ("gin, epsilon as it is", model(json!({"kind": "gin", "train_eps": false}))),
        ("mlp", model(json!({"kind": "mlp"}))),
        ("one layer of gcn", model(json!({"kind": "gcn", "layers": 1}))),
        ("sage with relu, residual, layer norm", model(deep)),
        ("gin with batch norm", model(json!({"kind": "gin", "normalization": "batch"}))),
        ("sage of length 1", model(json!({"kind": "sage", "l2_normalize": true}))),
    ]
}

/// A run of the suite.
struct Run<'a> {
    subject: &'a Subject<'a>,
    dataset: Arc<Dataset>,
    /// Whether the models are those for a typed graph.
    typed: bool,
}

type Trainer = Box<dyn Training>;

fn layers(model: &Value) -> usize {
    model["layers"].as_u64().expect("a number of layers") as usize
}

impl Run<'_> {
    /// The models that the operator is checked with.
    fn models(&self) -> Vec<(&'static str, Value)> {
        match (self.subject.own_model, self.subject.submitted) {
            _ if self.typed => typed::models(self),
            (true, _) => vec![("a model of its own", model(json!({"kind": "custom"})))],
            (false, []) => models(),
            (false, submitted) => submitted.iter().map(|fields| ("submitted", model(fields.clone()))).collect(),
        }
    }

    fn try_build(&self, model: &Value, optimizer: Value, threads: usize) -> Result<Trainer> {
        self.try_build_with(model, optimizer, threads, Value::Null)
    }

    fn try_build_with(&self, model: &Value, optimizer: Value, threads: usize, options: Value) -> Result<Trainer> {
        (self.subject.build)(&TrainingContext {
            seed: 7,
            threads,
            place: self.subject.place.clone(),
            options,
            ..TrainingContext::new(Arc::clone(&self.dataset), json!({"model": model, "optimizer": optimizer}))
        })
    }

    #[track_caller]
    fn build(&self, model: &Value) -> Trainer {
        self.try_build(model, json!({"lr": 0.05}), 2).expect("the operator is built")
    }

    /// A mini-batch with all neighbours, at the operator's place.
    fn batch(&self, model: &Value, seeds: &[u32], epoch: u32) -> MiniBatch {
        (self.subject.transfer)(self.host_batch(model, seeds, epoch))
    }

    fn host_batch(&self, model: &Value, seeds: &[u32], epoch: u32) -> HostBatch {
        batch(&self.dataset, seeds, layers(model), epoch)
    }

    fn all_nodes(&self) -> Vec<u32> {
        (0..self.dataset.num_nodes() as u32).collect()
    }
}

#[track_caller]
fn accumulate(trainer: &mut Trainer, batch: &MiniBatch) -> Score {
    trainer.accumulate(batch).and_then(Handle::wait).expect("a mini-batch is accumulated").0
}

#[track_caller]
fn score(trainer: &mut Trainer, batch: &MiniBatch) -> Score {
    trainer.score(batch).and_then(Handle::wait).expect("a score").0
}

/// The error of a mini-batch that cannot be accumulated.
#[track_caller]
fn refusal(trainer: &mut Trainer, batch: &MiniBatch, fault: &str) -> String {
    trainer.accumulate(batch).and_then(Handle::wait).expect_err(fault).to_string()
}

#[track_caller]
fn step(trainer: &mut Trainer) {
    trainer.step().and_then(Handle::wait).expect("a step");
}

#[track_caller]
fn gradients(trainer: &mut Trainer) -> Gradients {
    trainer.gradients().expect("gradients")
}

#[track_caller]
fn parameters(trainer: &Trainer) -> Vec<NamedTensor> {
    trainer.parameters().expect("parameters")
}

/// Compares tensors by name and element.
#[track_caller]
fn close(what: &str, actual: &[NamedTensor], expected: &[NamedTensor], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of tensors");
    for (a, e) in actual.iter().zip(expected) {
        assert_eq!((&a.name, &a.shape), (&e.name, &e.shape), "{what}");
        for (i, (a, b)) in a.values.iter().zip(&e.values).enumerate() {
            let near = (a - b).abs() <= tolerance * b.abs().max(1.0);
            assert!(near, "{what}: {}, element {i} is {a}, expected {b}", e.name);
        }
    }
}
