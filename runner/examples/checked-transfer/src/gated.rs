//! Residual gated graph convolution (Bresson & Laurent, arXiv 1711.07553), with PyG's parameters: a model with a layer of its own.
//! The focal loss (Lin et al., ICCV 2017): a loss of its own. The lowest recall of a class: a score of its own.

use morphgl_layers::burn_tensor::Tensor;
use morphgl_layers::burn_tensor::activation::{log_softmax, sigmoid};
use morphgl_layers::{
    Adjacency, LayerInput, LossInput, SubmittedLoss, SubmittedModel, edge_destinations, edge_sources, sum_edges,
};
use morphgl_model_core::{
    Init, LayerShape, LossDescription, ModelDescription, ModelSpec, ParameterList, Predicted, ScoreDescription,
    Settings,
};
use morphgl_registry::{Block, OptionSpec, OptionType};

const AGGREGATION: OptionSpec = OptionSpec::new(
    "aggregation",
    OptionType::Choice(&["sum", "mean"]),
    "sum",
    "whether a node takes the sum of its messages or their mean",
);

const GATED: SubmittedModel = SubmittedModel {
    description: ModelDescription::new("gated", "gated graph convolution: a gate per edge and column", parameters)
        .with_settings(&[AGGREGATION], |_| Ok(())),
    adjacency,
    layer,
};

/// The parameters of a layer, named `convs.{layer}.{name}`.
fn parameters(_: Settings<'_>, shape: LayerShape, list: &mut ParameterList) {
    for name in ["lin_key", "lin_query", "lin_value"] {
        list.linear(name, shape.out_dim, shape.in_dim);
    }
    list.push("lin_skip.weight", &[shape.out_dim, shape.in_dim], Init::linear(shape.in_dim));
    list.push("bias", &[shape.out_dim], Init::Constant(0.0));
}

/// A sampled row of the sum is scaled up to its node's degree, which keeps the estimate unbiased.
fn adjacency(spec: &ModelSpec, block: &Block, in_degrees: &[f32]) -> Adjacency {
    match &*spec.settings().word(AGGREGATION.name) {
        "mean" => Adjacency::mean(block),
        _ => Adjacency::sum(block, in_degrees),
    }
}

/// W x_v + Σ σ(K x_v + Q x_u) ⊙ V x_u over the edges from u to v.
fn layer(input: &LayerInput<'_>) -> Tensor<2> {
    let edges = input.adjacency;
    let keys = edge_destinations(input.linear_destinations("lin_key"), edges);
    let gates = sigmoid(keys + edge_sources(input.linear_sources("lin_query"), edges));
    let messages = gates * edge_sources(input.linear_sources("lin_value"), edges);
    let own = input.x.linear(input.parameter("lin_skip.weight"), edges.num_dst());
    sum_edges(messages, edges) + own + input.parameter("bias")
}

morphgl_layers::submit_model! { GATED }

const GAMMA: OptionSpec = OptionSpec::new("gamma", OptionType::Number, "2", "exponent that weighs sure seeds down");

const FOCAL: SubmittedLoss = SubmittedLoss {
    description: LossDescription::new("focal", "(1 − p)^gamma times the cross-entropy, p the probability of the class")
        .with_settings(&[GAMMA], |settings| match settings.number(GAMMA.name) {
            gamma if gamma >= 1.0 => Ok(()),
            gamma => Err(format!("gamma is {gamma}; give 1 or more, or use the cross-entropy")),
        }),
    losses,
};

fn losses(input: &LossInput<'_>) -> Tensor<2> {
    let log_p = (log_softmax(input.logits.clone(), 1) * input.one_hot()).sum_dim(1);
    let unsure = -log_p.clone().exp() + 1.0;
    -log_p * unsure.powf_scalar(input.spec.loss_settings().number(GAMMA.name))
}

morphgl_layers::submit_loss! { FOCAL }

const WORST_RECALL: ScoreDescription = ScoreDescription::new("worst-recall", "lowest recall of a class", worst_recall);

fn worst_recall(predicted: &Predicted<'_>) -> f64 {
    predicted.confusion().classes().filter_map(|class| class.recall()).fold(f64::NAN, f64::min)
}

morphgl_model_core::submit_score! { WORST_RECALL }
