//! Every optimizer, schedule and clipping beside torch's formulas in f64.

use morphgl_registry::{Gradients, NamedTensor};
use serde_json::{Value, json};

use super::{Run, close, gradients, parameters, step};

const STEPS: u64 = 7;
const STEPS_PER_EPOCH: u64 = 2;

/// Parameters and moments, as torch's optimizers have them.
struct Reference<'a> {
    spec: &'a Value,
    parameters: Vec<(String, Vec<f64>)>,
    moments: [Vec<Vec<f64>>; 2],
    done: u64,
    reductions: u64,
}

impl Reference<'_> {
    fn number(&self, field: &str, default: f64) -> f64 {
        self.spec[field].as_f64().unwrap_or(default)
    }

    fn lr(&self) -> f64 {
        let (lr, schedule) = (self.number("lr", 0.003), &self.spec["schedule"]);
        let number = |field: &str, default: f64| schedule[field].as_f64().unwrap_or(default);
        let warmup = schedule["warmup"].as_u64().unwrap_or(0) * STEPS_PER_EPOCH;
        if self.done < warmup {
            return lr * (self.done + 1) as f64 / warmup as f64;
        }
        let (done, min, gamma) = (self.done - warmup, number("min", 0.0), number("gamma", 0.1));
        match schedule["kind"].as_str().unwrap_or("constant") {
            "cosine" => {
                let all = schedule["epochs"].as_u64().expect("a length") * STEPS_PER_EPOCH - warmup;
                let angle = std::f64::consts::PI * done as f64 / all as f64;
                min + (lr - min) * (1.0 + angle.cos()) / 2.0
            }
            "step" => {
                let epochs = schedule["step_size"].as_u64().expect("a number of epochs");
                lr * gamma.powi((done / STEPS_PER_EPOCH / epochs) as i32)
            }
            "plateau" => (lr * gamma.powi(self.reductions as i32)).max(min),
            _ => lr,
        }
    }

    fn step(&mut self, sums: &Gradients) {
        let (lr, decay, momentum) = (self.lr(), self.number("weight_decay", 0.0), self.number("momentum", 0.0));
        self.done += 1;
        let mean = |g: &f32| f64::from(*g) / sums.count as f64;
        let all = sums.tensors.iter().flat_map(|t| &t.values).map(mean);
        let norm = all.map(|g| g * g).sum::<f64>().sqrt();
        let clip = self.spec["clip_norm"].as_f64().map_or(1.0, |max| (max / (norm + 1e-6)).min(1.0));
        let kind = self.spec["kind"].as_str().unwrap_or("adam");
        let nesterov = self.spec["nesterov"] == true;
        for (i, gradient) in sums.tensors.iter().enumerate() {
            let (_, values) = self.parameters.iter_mut().find(|(name, _)| *name == gradient.name).expect("a parameter");
            for (j, (p, g)) in values.iter_mut().zip(&gradient.values).enumerate() {
                let mut g = mean(g) * clip;
                let [m, v] = self.moments.each_mut().map(|moments| &mut moments[i][j]);
                if kind == "adamw" {
                    *p -= lr * decay * *p;
                } else {
                    g += decay * *p;
                }
                if kind == "sgd" {
                    *m = momentum * *m + g;
                    *p -= lr * if nesterov { g + momentum * *m } else { *m };
                    continue;
                }
                (*m, *v) = (0.9 * *m + 0.1 * g, 0.999 * *v + 0.001 * g * g);
                let corrected =
                    [*m / (1.0 - 0.9f64.powi(self.done as i32)), *v / (1.0 - 0.999f64.powi(self.done as i32))];
                *p -= lr * corrected[0] / (corrected[1].sqrt() + 1e-8);
            }
        }
    }
}

/// The optimizers that are compared.
fn specs() -> Vec<Value> {
    let schedule = |mut fields: Value| {
        fields["steps_per_epoch"] = json!(STEPS_PER_EPOCH);
        fields
    };
    vec![
        json!({"lr": 0.05, "weight_decay": 0.1}),
        json!({"kind": "adamw", "lr": 0.05, "weight_decay": 0.1}),
        json!({"kind": "sgd", "lr": 0.05, "weight_decay": 0.1}),
        json!({"kind": "sgd", "lr": 0.05, "weight_decay": 0.1, "momentum": 0.9}),
        json!({"kind": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": true}),
        json!({"kind": "sgd", "lr": 0.05, "clip_norm": 0.5}),
        json!({"lr": 0.05, "clip_norm": 0.5, "weight_decay": 0.1}),
        json!({"kind": "sgd", "lr": 0.05, "clip_norm": 1e6}),
        json!({"kind": "sgd", "lr": 0.05, "schedule": schedule(json!({"kind": "cosine", "min": 0.01, "epochs": 4}))}),
        json!({"kind": "adamw", "lr": 0.05, "weight_decay": 0.1,
               "schedule": schedule(json!({"kind": "cosine", "warmup": 1, "epochs": 4}))}),
        json!({"kind": "sgd", "lr": 0.05, "schedule": schedule(json!({"kind": "step", "step_size": 2, "gamma": 0.3}))}),
        json!({"kind": "sgd", "lr": 0.05, "schedule": schedule(json!({"warmup": 2}))}),
        json!({"kind": "sgd", "lr": 0.05, "schedule": schedule(json!({"kind": "plateau", "gamma": 0.3, "min": 0.002}))}),
    ]
}

/// Each optimizer moves the parameters as torch's does, with a state that moves to another operator, whatever the step.
pub(super) fn steps_are_torchs(run: &Run<'_>) {
    let (_, model) = run.models().swap_remove(0);
    for spec in specs() {
        let build = || run.try_build(&model, spec.clone(), 2).expect("the operator is built");
        let mut trainer = build();
        let mut sums = gradients(&mut trainer);
        let zeros = || sums.tensors.iter().map(|t| vec![0.0; t.values.len()]).collect();
        let of_model = parameters(&trainer).into_iter();
        let mut reference = Reference {
            spec: &spec,
            parameters: of_model.map(|t| (t.name, t.values.into_iter().map(f64::from).collect())).collect(),
            moments: [zeros(), zeros()],
            done: 0,
            reductions: 0,
        };
        for t in 0..STEPS {
            sums.count = 3 + t;
            let elements = sums.tensors.iter_mut().flat_map(|tensor| &mut tensor.values).enumerate();
            elements.for_each(|(i, g)| *g = (1.7 * t as f64 + 0.9 * i as f64).sin() as f32);
            trainer.set_gradients(&sums).expect("gradients");
            step(&mut trainer);
            reference.step(&sums);
            let names = sums.tensors.iter().map(|tensor| &tensor.name);
            let rounded = |tensor: NamedTensor| {
                let (_, values) =
                    reference.parameters.iter().find(|(name, _)| *name == tensor.name).expect("a parameter");
                NamedTensor { values: values.iter().map(|&x| x as f32).collect(), ..tensor }
            };
            let (own, trained): (_, Vec<_>) = (parameters(&trainer), names.collect());
            let own: Vec<_> = own.into_iter().filter(|tensor| trained.contains(&&tensor.name)).collect();
            close(&format!("{spec}, step {t}"), &own, &own.iter().cloned().map(rounded).collect::<Vec<_>>(), 1e-5);
            if t % 3 == 1 {
                let mut state = trainer.optimizer_state().expect("the optimizer's state");
                let reductions = state.iter_mut().find(|tensor| tensor.name == "lr_reductions");
                assert_eq!(reductions.is_some(), spec["schedule"]["kind"] == "plateau", "{spec}: the state's tensors");
                reductions.into_iter().for_each(|tensor| tensor.values[0] += 1.0);
                reference.reductions += 1;
                let kept = parameters(&trainer);
                trainer = build();
                trainer.set_parameters(&kept).expect("parameters");
                trainer.set_optimizer_state(&state).expect("the optimizer's state");
                assert_eq!(trainer.optimizer_state().expect("the state again"), state, "{spec}: the state as set");
            }
        }
    }
}
