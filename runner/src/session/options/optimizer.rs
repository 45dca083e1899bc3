//! The optimizer, its learning rate's schedule, and clipping.

use clap::Args;
use morphgl_model_core::{LrSchedule, LrScheduleKind, ModelKind, OptimizerKind, OptimizerSpec, WeightDecayOn};

use crate::JobConfig;
use crate::usage::Usage;
use crate::values;

/// The optimizer, its learning rate's schedule, and clipping.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Optimizer")]
pub struct OptimizerOptions {
    /// Optimizer, as torch's: adam, adamw (Adam with decoupled weight decay), or sgd
    #[arg(long, value_parser = values::one_of::<OptimizerKind, _>(["adam", "adamw", "sgd"]), default_value = "adam")]
    pub optimizer: OptimizerKind,
    /// Learning rate
    #[arg(long, value_parser = values::finite::<f64>, default_value_t = 0.003)]
    pub lr: f64,
    /// Weight decay. adam and sgd: L2, added to the gradient, as torch's Adam and SGD; adamw: decoupled, parameters times
    /// 1 - lr * decay in every step
    #[arg(long, value_parser = values::finite::<f64>, default_value_t = 0.0)]
    pub weight_decay: f64,
    /// Weight decay on the first layer alone, as in Kipf and Welling's GCN
    #[arg(long)]
    pub decay_first_layer: bool,
    /// sgd: momentum, without dampening [default: 0]
    #[arg(long, value_parser = values::finite::<f64>)]
    pub momentum: Option<f64>,
    /// sgd: Nesterov's momentum
    #[arg(long)]
    pub nesterov: bool,
    /// Clips gradients: where the norm of the mean gradient of a mini-batch, over all parameters, is larger, it is scaled down to this
    /// one, as by torch's clip_grad_norm_ [default: not clipped]
    #[arg(long, value_name = "NORM", value_parser = values::finite::<f64>)]
    pub clip_norm: Option<f64>,
    /// How the learning rate falls: not at all; cosine, half a wave down to --lr-min at the end of --epochs, in every optimizer step;
    /// step, times --lr-gamma every --lr-step-size epochs; plateau, times --lr-gamma where --score has not improved for more than
    /// --lr-patience epochs. As torch's CosineAnnealingLR, StepLR and ReduceLROnPlateau
    #[arg(long, value_name = "SCHEDULE", value_parser = values::one_of::<LrScheduleKind, _>(["constant", "cosine", "step", "plateau"]), default_value = "constant")]
    pub lr_schedule: LrScheduleKind,
    /// Linear warm-up over so many epochs, before the schedule begins: the learning rate rises in every optimizer step
    #[arg(long, value_name = "EPOCHS", default_value_t = 0, hide_default_value = true)]
    pub warmup: u32,
    /// cosine, plateau: lowest learning rate [default: 0]
    #[arg(long, value_name = "LR", value_parser = values::finite::<f64>)]
    pub lr_min: Option<f64>,
    /// step: epochs between reductions
    #[arg(long, value_name = "EPOCHS", value_parser = clap::value_parser!(u32).range(1..))]
    pub lr_step_size: Option<u32>,
    /// step, plateau: factor of a reduction [default: 0.1]
    #[arg(long, value_name = "FACTOR", value_parser = values::finite::<f64>)]
    pub lr_gamma: Option<f64>,
    /// plateau: epochs without a better score that are borne [default: 10]
    #[arg(long, value_name = "EPOCHS")]
    pub lr_patience: Option<u32>,
}

impl OptimizerOptions {
    /// The optimizer; steps per epoch, and the number of epochs, are those of [`fit_schedule`].
    pub(crate) fn spec(&self) -> OptimizerSpec {
        let default = LrSchedule::default();
        let schedule = LrSchedule {
            kind: self.lr_schedule,
            min: self.lr_min.unwrap_or(default.min),
            step_size: self.lr_step_size.unwrap_or(default.step_size),
            gamma: self.lr_gamma.unwrap_or(default.gamma),
            patience: self.lr_patience.unwrap_or(default.patience),
            warmup: self.warmup,
            epochs: match self.lr_schedule {
                LrScheduleKind::Cosine => self.warmup.saturating_add(1),
                _ => default.epochs,
            },
            ..default
        };
        OptimizerSpec {
            kind: self.optimizer,
            lr: self.lr,
            weight_decay: self.weight_decay,
            weight_decay_on: if self.decay_first_layer { WeightDecayOn::FirstLayer } else { WeightDecayOn::All },
            momentum: self.momentum.unwrap_or_default(),
            nesterov: self.nesterov,
            clip_norm: self.clip_norm,
            schedule,
            ..OptimizerSpec::default()
        }
    }

    /// Refuses options that another one leaves unread.
    pub(crate) fn check(&self, model: ModelKind) -> anyhow::Result<()> {
        use LrScheduleKind::{Cosine, Plateau, Step};
        let (kind, schedule) = (self.optimizer.name(), self.lr_schedule.name());
        let refused = |option: &str, why: String| Err(Usage::error(format!("{option}: {why}")));
        let is = |kinds: &[LrScheduleKind]| kinds.contains(&self.lr_schedule);
        for (given, option, read_by) in [
            (self.lr_min.is_some(), "--lr-min", &[Cosine, Plateau][..]),
            (self.lr_step_size.is_some(), "--lr-step-size", &[Step]),
            (self.lr_gamma.is_some(), "--lr-gamma", &[Step, Plateau]),
            (self.lr_patience.is_some(), "--lr-patience", &[Plateau]),
        ] {
            if given && !is(read_by) {
                let names: Vec<_> = read_by.iter().map(|kind| kind.name()).collect();
                let why =
                    format!("--lr-schedule {schedule} does not read it; give {}, or leave it out", names.join(" or "));
                return refused(option, why);
            }
        }
        if is(&[Step]) && self.lr_step_size.is_none() {
            return refused("--lr-schedule step", "give --lr-step-size, the epochs between reductions".to_string());
        }
        if self.momentum.is_some() && self.optimizer != OptimizerKind::Sgd {
            return refused(
                "--momentum",
                format!("{kind} has moments of its own; give --optimizer sgd, or leave it out"),
            );
        }
        if self.nesterov && self.momentum.unwrap_or_default() == 0.0 {
            return refused("--nesterov", "it is a kind of momentum; give --optimizer sgd --momentum 0.9".to_string());
        }
        if model == ModelKind::Custom {
            let options = [
                (self.optimizer != OptimizerKind::Adam, "--optimizer"),
                (self.clip_norm.is_some(), "--clip-norm"),
                (!is(&[LrScheduleKind::Constant]), "--lr-schedule"),
                (self.warmup > 0, "--warmup"),
            ];
            if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
                return refused(option, "a custom model's training operator has an optimizer of its own".to_string());
            }
        }
        Ok(())
    }
}

/// Fits the schedule of `config` to training of so many epochs with so many optimizer steps each.
///
/// # Errors
///
/// A warm-up that leaves no epoch to the schedule.
pub(crate) fn fit_schedule(config: &mut JobConfig, steps_per_epoch: usize, epochs: u32) -> anyhow::Result<()> {
    let schedule = &mut config.spec.optimizer.schedule;
    if !schedule.varies() {
        return Ok(());
    }
    schedule.steps_per_epoch = steps_per_epoch.max(1) as u64;
    if schedule.kind == LrScheduleKind::Cosine {
        schedule.epochs = epochs;
        if schedule.warmup >= epochs && epochs > 0 {
            let warmup = schedule.warmup;
            return Err(Usage::error(format!(
                "--warmup {warmup}: {epochs} epochs leave none to the cosine; give fewer"
            )));
        }
        // Without an epoch there is no step.
        schedule.epochs = epochs.max(schedule.warmup + 1);
    }
    Ok(())
}
