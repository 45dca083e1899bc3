//! Description of the optimizer, and its step.

use morphgl_registry::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::ModelSpec;

/// Which parameters decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WeightDecayOn {
    /// All of them.
    #[default]
    All,
    /// Those of the first layer, as in Kipf and Welling's GCN.
    FirstLayer,
}

/// Adam with coupled L2 weight decay: the decay is added to the gradient, as in torch's `Adam` (not `AdamW`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSpec {
    /// Learning rate. Default 0.003.
    pub lr: f64,
    /// Decay of the first moment. Default 0.9.
    pub beta1: f64,
    /// Decay of the second moment. Default 0.999.
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-8.
    pub eps: f64,
    /// Weight decay. Default 0.
    pub weight_decay: f64,
    /// Which parameters decay. Default all.
    pub weight_decay_on: WeightDecayOn,
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self { lr: 0.003, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0, weight_decay_on: WeightDecayOn::All }
    }
}

impl OptimizerSpec {
    /// Checks every field.
    ///
    /// # Errors
    ///
    /// An invalid field: the message names it and the cure.
    pub fn validate(&self) -> Result<()> {
        let wrong = |field: &str, what: String| Err(Error::setting(format!("optimizer.{field}"), what));
        if !(self.lr.is_finite() && self.lr > 0.0) {
            return wrong("lr", format!("{} is not a learning rate; give a positive number such as 0.003", self.lr));
        }
        for (field, beta) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                return wrong(field, format!("{beta} is not a decay; give a number from 0 to below 1"));
            }
        }
        // The first step is the longest.
        if !((self.lr / (1.0 - self.beta1)) as f32).is_finite() {
            return wrong("lr", format!("{} is too large for a step in f32; give a number such as 0.003", self.lr));
        }
        if !(self.eps.is_finite() && self.eps > 0.0) {
            return wrong("eps", format!("{} is not positive; give a small number such as 1e-8", self.eps));
        }
        if !(self.weight_decay.is_finite() && self.weight_decay >= 0.0) {
            return wrong("weight_decay", format!("{} is negative or no number; give 0 or more", self.weight_decay));
        }
        Ok(())
    }
}

/// One step of Adam over slices; the same arithmetic in all operators on a host.
#[derive(Debug, Clone, Copy)]
pub struct Adam {
    step_size: f32,
    root_correction: f32,
    first_share: f32,
    beta2: f32,
    second_share: f32,
    eps: f32,
    weight_decay: f32,
}

impl Adam {
    /// The coefficients of step `step`, counted from 1; `decays` says whether the parameter decays.
    pub fn at(spec: &OptimizerSpec, step: u64, decays: bool) -> Self {
        let t = step as f64;
        Self {
            step_size: (spec.lr / (1.0 - spec.beta1.powf(t))) as f32,
            root_correction: (1.0 - spec.beta2.powf(t)).sqrt() as f32,
            first_share: (1.0 - spec.beta1) as f32,
            beta2: spec.beta2 as f32,
            second_share: (1.0 - spec.beta2) as f32,
            eps: spec.eps as f32,
            weight_decay: if decays { spec.weight_decay as f32 } else { 0.0 },
        }
    }

    /// Updates `parameters` and the moments by `gradients`, each multiplied by `scale` first.
    ///
    /// # Panics
    ///
    /// When the slices differ in length.
    #[inline]
    pub fn update(&self, parameters: &mut [f32], first: &mut [f32], second: &mut [f32], gradients: &[f32], scale: f32) {
        let n = parameters.len();
        assert_eq!((first.len(), second.len(), gradients.len()), (n, n, n), "moments and gradients of each element");
        for (((p, m), v), &g) in parameters.iter_mut().zip(first).zip(second).zip(gradients) {
            let g = g * scale + self.weight_decay * *p;
            *m += (g - *m) * self.first_share;
            *v = self.beta2 * *v + self.second_share * g * g;
            *p -= self.step_size * (*m / (v.sqrt() / self.root_correction + self.eps));
        }
    }
}

/// Model and optimizer of a training operator; `TrainingContext::spec` is its JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingSpec {
    /// The model.
    pub model: ModelSpec,
    /// The optimizer. Default Adam at 0.003.
    #[serde(default)]
    pub optimizer: OptimizerSpec,
}

impl TrainingSpec {
    /// Parses and checks `TrainingContext::spec`.
    ///
    /// # Errors
    ///
    /// A field that is missing, unknown or invalid.
    pub fn from_json(json: &serde_json::Value) -> Result<Self> {
        let spec: Self = serde_json::from_value(json.clone())
            .map_err(|e| Error::setting("training spec", format!("{e}; see morphgl-model-core for its fields")))?;
        spec.model.validate()?;
        spec.optimizer.validate()?;
        Ok(spec)
    }

    /// The JSON that [`TrainingSpec::from_json`] reads.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a spec of numbers and words is JSON")
    }
}
