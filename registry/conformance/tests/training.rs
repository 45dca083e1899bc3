//! The suite of phase Training, run on a trainer with a model and a loss of its own.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::training::{Subject, check};
use morphgl_graph_store::{Dataset, FeatureView};
use morphgl_registry::{
    At, BatchFeatures, Build, Description, Error, Gradients, Handle, Hardware, Key, MiniBatch, ModelState, NamedTensor,
    OptionSpec, OptionType, Phase, Result, Score, Training, TrainingContext,
};

const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Focal");
/// Factor to the learning rate.
const RATE: OptionSpec = OptionSpec::new("rate", OptionType::Number, "1.0", "factor to the learning rate");

const DESCRIPTION: Description = Description::new(
    KEY,
    "regresses the seeds' features by the focal loss",
    At::Host,
    At::Host,
    Build::Training(|context| Ok(Box::new(Focal::new(context)?) as Box<dyn Training>)),
)
.with_own_model()
.with_options(&[RATE]);

/// Softmax regression of the seeds' own features; its loss is the focal one, -(1 - p)² ln p, and its optimizer plain SGD.
#[derive(Debug)]
struct Focal {
    dataset: Arc<Dataset>,
    classes: usize,
    layers: usize,
    lr: f32,
    /// The weight, `[classes, dim]`.
    weight: NamedTensor,
    gradients: Gradients,
}

impl Focal {
    fn new(context: &TrainingContext) -> Result<Self> {
        let (model, dim) = (&context.spec["model"], context.dataset.feature_dim());
        let field = |name: &str| model[name].as_u64().unwrap_or(0) as usize;
        let (classes, layers) = (field("num_classes"), field("layers"));
        if field("in_dim") != dim || classes < context.dataset.num_classes || layers == 0 {
            let what = "in_dim, num_classes and layers do not fit the dataset; give others";
            return Err(Error::setting("model", what));
        }
        let values = (0..classes * dim).map(|i| 0.1 * (i as f32 + context.seed as f32).sin()).collect();
        let weight = NamedTensor { name: "weight".to_string(), shape: vec![classes, dim], values };
        let rate = context.options[RATE.name].as_f64().unwrap_or(1.0);
        let lr = (rate * context.spec["optimizer"]["lr"].as_f64().unwrap_or(0.01)) as f32;
        let mut focal = Self {
            dataset: Arc::clone(&context.dataset),
            classes,
            layers,
            lr,
            weight,
            gradients: Gradients::default(),
        };
        focal.clear();
        Ok(focal)
    }

    fn clear(&mut self) {
        let values = vec![0.0; self.weight.values.len()];
        self.gradients = Gradients { tensors: vec![NamedTensor { values, ..self.weight.clone() }], count: 0 };
    }

    fn logits(&self, row: &[f32]) -> Vec<f32> {
        let product = |weights: &[f32]| weights.iter().zip(row).map(|(w, x)| w * x).sum();
        self.weight.values.chunks(row.len()).map(product).collect()
    }

    /// The score of a mini-batch; `each` is given every labelled seed's features, probabilities and label.
    fn pass(&self, batch: &MiniBatch, mut each: impl FnMut(&[f32], &[f64], usize)) -> Result<Score> {
        let batch = batch.host()?;
        let wrong = |what: &str| Error::setting(batch.id, format!("{what}; give a mini-batch of this model"));
        if batch.blocks.len() != self.layers || batch.labels.iter().any(|&label| label >= self.classes as i32) {
            return Err(wrong("another number of blocks, or a label beyond the classes"));
        }
        let Some(FeatureView::F32(rows)) = batch.features.as_ref().map(BatchFeatures::view) else {
            return Err(wrong("no features of f32"));
        };
        let mut score = Score::default();
        for (row, &label) in rows.chunks(self.dataset.feature_dim()).zip(&batch.labels).filter(|(_, l)| **l >= 0) {
            let logits = self.logits(row);
            let exps: Vec<f64> = logits.iter().map(|&z| f64::from(z).exp()).collect();
            let total: f64 = exps.iter().sum();
            let probabilities: Vec<f64> = exps.iter().map(|exp| exp / total).collect();
            let (label, p) = (label as usize, probabilities[label as usize]);
            score +=
                Score { loss_sum: -(1.0 - p).powi(2) * p.ln(), ..Score::of(&logits, &[label as i32], self.classes) };
            each(row, &probabilities, label);
        }
        if !score.loss_sum.is_finite() {
            return Err(wrong("the loss is not a number: lower the learning rate"));
        }
        Ok(score)
    }

    fn set(own: &mut [NamedTensor], given: &[NamedTensor]) -> Result<()> {
        for own in own.iter_mut() {
            let fits =
                |t: &&NamedTensor| (&t.name, &t.shape) == (&own.name, &own.shape) && t.values.len() == own.values.len();
            let Some(tensor) = given.iter().find(fits).filter(|_| given.len() == 1) else {
                return Err(Error::setting(KEY, format!("{} alone is the model's; give it", own.name)));
            };
            own.values.clone_from(&tensor.values);
        }
        Ok(())
    }
}

impl ModelState for Focal {
    fn gradients(&mut self) -> Result<Gradients> {
        Ok(self.gradients.clone())
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        Self::set(&mut self.gradients.tensors, &gradients.tensors)?;
        self.gradients.count = gradients.count;
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(vec![self.weight.clone()])
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        Self::set(std::slice::from_mut(&mut self.weight), parameters)
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        Ok(Vec::new())
    }

    fn set_optimizer_state(&mut self, _: &[NamedTensor]) -> Result<()> {
        Ok(())
    }
}

impl Training for Focal {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        if threads == 0 { Err(Error::setting(KEY, "0 threads; give one")) } else { Ok(()) }
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let mut gradients = self.gradients.clone();
        let dim = self.dataset.feature_dim();
        let score = self.pass(batch, |row, probabilities, label| {
            let p = probabilities[label];
            let of_p = 2.0 * (1.0 - p) * p.ln() - (1.0 - p).powi(2) / p;
            for (class, weights) in gradients.tensors[0].values.chunks_mut(dim).enumerate() {
                let of_logit = of_p * p * (f64::from(u8::from(class == label)) - probabilities[class]);
                weights.iter_mut().zip(row).for_each(|(g, x)| *g += of_logit as f32 * x);
            }
        })?;
        gradients.count += score.count;
        self.gradients = gradients;
        Ok(Handle::ready(score, Duration::ZERO))
    }

    fn step(&mut self) -> Result<Handle<()>> {
        let Gradients { tensors, count } = &self.gradients;
        if *count == 0 {
            return Err(Error::setting(KEY, "nothing is known to step by; accumulate a mini-batch"));
        }
        let scale = self.lr / *count as f32;
        self.weight.values.iter_mut().zip(&tensors[0].values).for_each(|(w, g)| *w -= scale * g);
        if self.weight.values.iter().any(|w| !w.is_finite()) {
            return Err(Error::setting(KEY, "weight is not a number; lower the learning rate"));
        }
        self.clear();
        Ok(Handle::ready((), Duration::ZERO))
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        Ok(Handle::ready(self.pass(batch, |_, _, _| ())?, Duration::ZERO))
    }

    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        let Some(FeatureView::F32(rows)) = self.dataset.features.as_ref().map(|features| features.view()) else {
            return Err(Error::setting(KEY, "no features of f32; give some"));
        };
        let dim = self.dataset.feature_dim();
        if let Some(node) = nodes.iter().find(|v| **v as usize >= self.dataset.num_nodes()) {
            return Err(Error::setting(KEY, format!("node {node} does not exist; give another")));
        }
        Ok(nodes.iter().flat_map(|&v| self.logits(&rows[v as usize * dim..(v as usize + 1) * dim])).collect())
    }
}

#[test]
fn a_trainer_with_a_model_of_its_own_conforms() {
    check(&Subject::new(&DESCRIPTION));
}

#[test]
fn its_faults_are_found() {
    // The same trainer, asked for a model of the suite's.
    let suites = Description { own_model: false, ..DESCRIPTION };
    assert!(catch_unwind(|| check(&Subject::new(&suites))).is_err());
    let refusing = |context: &TrainingContext| match context.options.is_null() {
        true => Ok(Box::new(Focal::new(context)?) as Box<dyn Training>),
        false => Err(Error::setting(KEY, "it has no options; leave them out")),
    };
    let found = catch_unwind(|| check(&Subject { build: &refusing, ..Subject::new(&DESCRIPTION) }));
    let message = morphgl_registry::panic_message(found.expect_err("options are refused").as_ref());
    assert!(message.contains("option rate: every value is refused"), "{message}");
}
