//! Description of the optimizer, and its step.

use morphgl_registry::{Error, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{LrSchedule, ModelSpec, Steps};

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

/// The rule by which an optimizer moves parameters, as torch's of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// Adam (Kingma and Ba, ICLR 2015). Weight decay is added to the gradient (L2).
    #[default]
    Adam,
    /// Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019): parameters times `1 - lr * weight_decay` in every step.
    AdamW,
    /// Stochastic gradient descent, with momentum on request. Weight decay is added to the gradient (L2).
    Sgd,
}

impl OptimizerKind {
    /// Its name in a spec.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adam => "adam",
            Self::AdamW => "adamw",
            Self::Sgd => "sgd",
        }
    }
}

/// The optimizer: rule, learning rate and its schedule, weight decay, and clipping of gradients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSpec {
    /// The rule. Default Adam.
    #[serde(skip_serializing_if = "is_default")]
    pub kind: OptimizerKind,
    /// Learning rate. Default 0.003.
    pub lr: f64,
    /// Decay of the first moment. Default 0.9. Of Adam and AdamW.
    pub beta1: f64,
    /// Decay of the second moment. Default 0.999. Of Adam and AdamW.
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-8. Of Adam and AdamW.
    pub eps: f64,
    /// Weight decay. Default 0. What it does is said at [`OptimizerKind`].
    pub weight_decay: f64,
    /// Which parameters decay. Default all.
    pub weight_decay_on: WeightDecayOn,
    /// Momentum of SGD, without dampening. Default 0.
    #[serde(skip_serializing_if = "is_default")]
    pub momentum: f64,
    /// Nesterov's momentum of SGD. Default false.
    #[serde(skip_serializing_if = "is_default")]
    pub nesterov: bool,
    /// Largest norm of the mean gradient over all parameters; a larger one is scaled down to it. Default none.
    #[serde(skip_serializing_if = "is_default")]
    pub clip_norm: Option<f64>,
    /// Schedule of the learning rate. Default constant.
    #[serde(skip_serializing_if = "is_default")]
    pub schedule: LrSchedule,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::Adam,
            lr: 0.003,
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
            weight_decay_on: WeightDecayOn::All,
            momentum: 0.0,
            nesterov: false,
            clip_norm: None,
            schedule: LrSchedule::default(),
        }
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
        if !(0.0..1.0).contains(&self.momentum) {
            return wrong("momentum", format!("{} is no momentum; give a number from 0 to below 1", self.momentum));
        }
        if self.momentum > 0.0 && self.kind != OptimizerKind::Sgd {
            return wrong("momentum", format!("{} has moments of its own; use sgd, or leave it out", self.kind.name()));
        }
        if self.nesterov && self.momentum == 0.0 {
            return wrong("nesterov", "it is a kind of momentum; give a momentum such as 0.9".to_string());
        }
        if let Some(norm) = self.clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return wrong("clip_norm", format!("{norm} is no norm of a gradient; give a positive number such as 1"));
        }
        self.schedule.validate(self.lr)
    }

    /// Names of the moments of each parameter, torch's.
    pub fn moments(&self) -> &'static [&'static str] {
        match self.kind {
            OptimizerKind::Adam | OptimizerKind::AdamW => &["exp_avg", "exp_avg_sq"],
            OptimizerKind::Sgd if self.momentum > 0.0 => &["momentum_buffer"],
            OptimizerKind::Sgd => &[],
        }
    }

    /// Learning rate of the last of `steps`, counted from 1.
    pub fn lr(&self, steps: Steps) -> f64 {
        self.schedule.lr(self.lr, steps)
    }

    /// Factor of the summed gradients in a step: `1 / count`, less where clipping asks for it, as torch's `clip_grad_norm_` does.
    /// `squares` returns the sum of the squares of the summed gradients, and is called where gradients are clipped.
    pub fn gradient_scale(&self, count: u64, squares: impl FnOnce() -> f64) -> f32 {
        let scale = 1.0 / count as f32;
        let Some(max) = self.clip_norm else { return scale };
        let factor = max / (squares().sqrt() * f64::from(scale) + 1e-6);
        // A norm that is NaN clips nothing: the step then fails by the name of a parameter.
        if factor < 1.0 { (f64::from(scale) * factor) as f32 } else { scale }
    }
}

/// Elements of a partial sum of [`sum_of_squares`].
const PARTIAL: usize = 1 << 14;

/// Sum of the squares of all elements, in an order that depends on their number alone, not on threads. O(len / threads).
pub fn sum_of_squares(values: &[f32]) -> f64 {
    const LANES: usize = 8;
    let partial = |values: &[f32]| {
        let (groups, rest) = values.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for group in groups {
            sums.iter_mut().zip(group).for_each(|(sum, &x)| *sum += f64::from(x) * f64::from(x));
        }
        sums.iter().sum::<f64>() + rest.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>()
    };
    let partials: Vec<f64> = values.par_chunks(PARTIAL).map(partial).collect();
    partials.iter().sum()
}

/// One step of an optimizer over slices; the same arithmetic in all operators on a host.
#[derive(Debug, Clone, Copy)]
pub struct OptimizerStep(Coefficients);

#[derive(Debug, Clone, Copy)]
enum Coefficients {
    Adam(Adam),
    Sgd(Sgd),
}

impl OptimizerStep {
    /// The coefficients of the last of `steps`, counted from 1; `decays` says whether the parameter decays.
    pub fn at(spec: &OptimizerSpec, steps: Steps, decays: bool) -> Self {
        Self(match spec.kind {
            OptimizerKind::Adam | OptimizerKind::AdamW => Coefficients::Adam(Adam::at(spec, steps, decays)),
            OptimizerKind::Sgd => Coefficients::Sgd(Sgd::at(spec, steps, decays)),
        })
    }

    /// Updates `parameters` and their moments by `gradients`, each multiplied by `scale` first. A moment that the optimizer does not
    /// have ([`OptimizerSpec::moments`]) is empty.
    ///
    /// # Panics
    ///
    /// When the slices differ in length.
    #[inline]
    pub fn update(&self, parameters: &mut [f32], moments: [&mut [f32]; 2], gradients: &[f32], scale: f32) {
        let [first, second] = moments;
        match &self.0 {
            Coefficients::Adam(adam) => adam.update(parameters, first, second, gradients, scale),
            Coefficients::Sgd(sgd) => sgd.update(parameters, first, gradients, scale),
        }
    }

    /// As [`OptimizerStep::update`], of the rows of a table, `width` elements each, that have a gradient other than 0. The others and
    /// their moments stay as they are, without decay, as with torch's `SparseAdam`.
    ///
    /// # Panics
    ///
    /// When the slices differ in length.
    pub fn update_rows(
        &self,
        width: usize,
        parameters: &mut [f32],
        moments: [&mut [f32]; 2],
        gradients: &[f32],
        scale: f32,
    ) {
        let [mut first, mut second] = moments;
        let rows = parameters.chunks_exact_mut(width).zip(gradients.chunks_exact(width));
        for (values, gradient) in rows {
            let moments = [&mut first, &mut second].map(|m| m.split_off_mut(..width).unwrap_or_default());
            if gradient.iter().any(|&g| g != 0.0) {
                self.update(values, moments, gradient, scale);
            }
        }
    }
}

/// One step of Adam or AdamW.
#[derive(Debug, Clone, Copy)]
struct Adam {
    step_size: f32,
    root_correction: f32,
    first_share: f32,
    beta2: f32,
    second_share: f32,
    eps: f32,
    /// Coupled, of Adam.
    weight_decay: f32,
    /// Decoupled, of AdamW: 1 without decay.
    shrink: f32,
}

impl Adam {
    fn at(spec: &OptimizerSpec, steps: Steps, decays: bool) -> Self {
        let (t, lr) = (steps.done as f64, spec.lr(steps));
        let decay = if decays { spec.weight_decay } else { 0.0 };
        let (coupled, decoupled) = if spec.kind == OptimizerKind::AdamW { (0.0, decay) } else { (decay, 0.0) };
        Self {
            step_size: (lr / (1.0 - spec.beta1.powf(t))) as f32,
            root_correction: (1.0 - spec.beta2.powf(t)).sqrt() as f32,
            first_share: (1.0 - spec.beta1) as f32,
            beta2: spec.beta2 as f32,
            second_share: (1.0 - spec.beta2) as f32,
            eps: spec.eps as f32,
            weight_decay: coupled as f32,
            shrink: (1.0 - lr * decoupled) as f32,
        }
    }

    #[inline]
    fn update(&self, parameters: &mut [f32], first: &mut [f32], second: &mut [f32], gradients: &[f32], scale: f32) {
        let n = parameters.len();
        assert_eq!((first.len(), second.len(), gradients.len()), (n, n, n), "moments and gradients of each element");
        for (((p, m), v), &g) in parameters.iter_mut().zip(first).zip(second).zip(gradients) {
            let g = g * scale + self.weight_decay * *p;
            *m += (g - *m) * self.first_share;
            *v = self.beta2 * *v + self.second_share * g * g;
            *p = *p * self.shrink - self.step_size * (*m / (v.sqrt() / self.root_correction + self.eps));
        }
    }
}

/// One step of SGD.
#[derive(Debug, Clone, Copy)]
struct Sgd {
    lr: f32,
    momentum: f32,
    nesterov: bool,
    weight_decay: f32,
}

impl Sgd {
    fn at(spec: &OptimizerSpec, steps: Steps, decays: bool) -> Self {
        Self {
            lr: spec.lr(steps) as f32,
            momentum: spec.momentum as f32,
            nesterov: spec.nesterov,
            weight_decay: if decays { spec.weight_decay as f32 } else { 0.0 },
        }
    }

    #[inline]
    fn update(&self, parameters: &mut [f32], momenta: &mut [f32], gradients: &[f32], scale: f32) {
        let Self { lr, momentum, nesterov, weight_decay } = *self;
        let n = parameters.len();
        assert_eq!(gradients.len(), n, "gradients of each element");
        if momentum == 0.0 {
            return parameters.iter_mut().zip(gradients).for_each(|(p, &g)| *p -= lr * (g * scale + weight_decay * *p));
        }
        assert_eq!(momenta.len(), n, "momenta of each element");
        for ((p, m), &g) in parameters.iter_mut().zip(momenta).zip(gradients) {
            let g = g * scale + weight_decay * *p;
            *m = momentum * *m + g;
            *p -= lr * if nesterov { g + momentum * *m } else { *m };
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
