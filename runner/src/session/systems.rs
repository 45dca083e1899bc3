//! Systems of the papers by name (`--as`): each is a set of defaults for options, which make a plan of ours that does as it does.

mod table;

use anyhow::Context;
use morphgl_plan::Time;
use morphgl_registry::{Phase, Place, Resource, Route};
use morphgl_sim::DeviceDescription;
use serde_json::{Value, json};

use super::measure::Measured;
use super::options::batch::MiniBatches;
use super::options::{PlanChoice, SessionConfig};
use crate::usage::{OrUsage, Usage};
use crate::{Plan, RunContext, budget, values};

pub(crate) use table::SYSTEMS;

/// Who does a step of a mini-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The host's cores.
    Host,
    /// The device that trains.
    Device,
}

impl By {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Device => "device",
        }
    }
}

/// Where the steps of a mini-batch are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    /// By one trainer, on a device.
    OneRoute { sampling: By, gathering: By },
    /// Some devices sample, the others gather and train.
    Roles,
    /// Host and devices do all steps, each of its share.
    Together,
}

impl Steps {
    /// Who samples, gathers and trains.
    pub(crate) fn words(self) -> [&'static str; 3] {
        match self {
            Self::OneRoute { sampling, gathering } => [sampling.word(), gathering.word(), "device"],
            Self::Roles => ["some devices", "other devices", "other devices"],
            Self::Together => ["host and devices"; 3],
        }
    }

    /// What the machine has to have.
    fn needs(self) -> &'static str {
        match self {
            Self::OneRoute { sampling: By::Host, gathering: By::Host } => "a device that trains what the host prepares",
            Self::OneRoute { sampling: By::Host, gathering: By::Device } => {
                "a device that gathers features for what the host sampled, and trains"
            }
            Self::OneRoute { sampling: By::Device, gathering: By::Host } => {
                "a device that samples and trains, for which the host gathers features"
            }
            Self::OneRoute { sampling: By::Device, gathering: By::Device } => {
                "a device that samples, gathers features and trains"
            }
            Self::Roles => "two devices of a kind that sample, copy to each other and train",
            Self::Together => "a device that trains, beside the host that trains too",
        }
    }

    /// Whether a route has the steps done so.
    fn has(self, route: &Route) -> bool {
        let in_memory = route.read_at == Place::Host && route.trained_at != Place::Host;
        match self {
            Self::OneRoute { sampling, gathering } => {
                let sampled = if route.batched_at == Place::Host { By::Host } else { By::Device };
                let by_cores = route.transferring.hardware.resources().contains(&Resource::CPU);
                let gathered = match route.gathering {
                    Phase::Batching => sampled,
                    _ if by_cores => By::Host,
                    _ => By::Device,
                };
                in_memory && !route.is_between_devices() && (sampled, gathered) == (sampling, gathering)
            }
            Self::Roles => in_memory && route.is_between_devices(),
            Self::Together => in_memory,
        }
    }

    /// The routes of a machine that have the steps done so; none where not all that is needed is there.
    fn routes(self, context: &RunContext) -> Vec<Route> {
        let registry = context.registry();
        let mut routes = registry.routes();
        if let Some(machine) = context.machine() {
            let samples = |device: &DeviceDescription| device.sampling_m_edges_per_s.is_some();
            routes.retain(|route| machine.device(&route.batched_at).is_none_or(samples));
        }
        let on_host = routes.iter().any(|route| route.trained_at == Place::Host);
        routes.retain(|route| self.has(route));
        // Where there is hardware, it is not simulated.
        routes.sort_by_key(|route| registry.get(&route.batching).is_ok_and(|batching| batching.simulated));
        match self {
            Self::Together if !on_host => Vec::new(),
            _ => routes,
        }
    }
}

/// A system that plans can be made like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct System {
    /// The value of `--as`.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Paper and section.
    pub(crate) paper: &'static str,
    /// What the system does, in one sentence.
    pub(crate) does: &'static str,
    pub(crate) steps: Steps,
    /// The value of `--plan`.
    pub(crate) plan: &'static str,
    /// The value of `--buffer`, where the system is not served by the default.
    pub(crate) buffer: Option<u16>,
    /// The value of `--cache`, where operators of the machine have caches.
    pub(crate) cache: Option<&'static str>,
    /// The value of `--shares`.
    pub(crate) shares: Option<&'static str>,
    /// Where ours differs from the system.
    pub(crate) differs: &'static str,
}

/// The value of `--as` that prints the systems.
pub(crate) const LIST: &str = "list";

/// The system of this name.
pub(crate) fn named(name: &str) -> anyhow::Result<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name).ok_or_else(|| {
        let names = SYSTEMS.iter().map(|system| system.name).collect::<Vec<_>>().join(", ");
        Usage::error(format!(
            "--as {name}: no system of this name; give one of {names}; `morphgl plan --as list` says what they are"
        ))
    })
}

impl System {
    /// The options that it sets on any machine; those of operators depend on what the machine has.
    pub(crate) fn options(&self) -> Vec<(&'static str, String)> {
        let optional = [
            ("--shares", self.shares.map(String::from)),
            ("--buffer", self.buffer.map(|buffer| buffer.to_string())),
            ("--cache", self.cache.map(String::from)),
        ];
        let optional = optional.into_iter().filter_map(|(option, value)| Some((option, value?)));
        [("--plan", self.plan.to_string())].into_iter().chain(optional).collect()
    }

    /// The choice of `--plan`.
    pub(super) fn choice(&self) -> PlanChoice {
        match self.plan.parse() {
            Ok(choice) => choice,
            Err(never) => match never {},
        }
    }

    /// Gives a configuration the options of the system that it does not have, on the machine of the context.
    ///
    /// # Errors
    ///
    /// A machine without what the system needs, or options that contradict it, by name.
    pub(crate) fn apply(
        &'static self,
        config: &mut SessionConfig,
        batch: MiniBatches<'_>,
        context: &RunContext,
    ) -> anyhow::Result<Applied> {
        let (registry, kind) = (context.registry(), batch.kind());
        let mut routes = self.steps.routes(context);
        if routes.is_empty() {
            return Err(self.unavailable(context));
        }
        let SessionConfig { planning, training } = config;
        if planning.split.splits_layers() {
            return Err(self.contradicts("--hot-ratio, --max-hot-ratio", "it splits no layers"));
        }
        if planning.split.is_asked() && !matches!(self.steps, Steps::Roles) {
            return Err(self.contradicts("--allow-staleness", "it trains exactly"));
        }
        let mut set = Vec::new();
        match &training.plan {
            PlanChoice::Auto => training.plan = self.choice(),
            plan if *plan == self.choice() => {}
            plan => return Err(self.contradicts(&format!("--plan {plan}"), &format!("it sets --plan {}", self.plan))),
        }
        set.push(("--plan", self.plan.to_string()));
        let operators = &mut planning.batch;
        let of = |route: &Route| [route.batching.clone(), route.transferring.clone(), route.training.clone()];
        let given = [&operators.batching, &operators.transferring, &operators.training];
        for (phase, (option, key)) in ["--batching", "--transferring", "--training"].into_iter().zip(given).enumerate()
        {
            let Some(key) = key else { continue };
            routes.retain(|route| of(route)[phase] == *key);
            if routes.is_empty() {
                return Err(self.contradicts(&format!("{option} {key}"), &format!("it needs {}", self.steps.needs())));
            }
        }
        routes
            .retain(|route| registry.get(&route.batching).is_ok_and(|b| b.samples(kind, operators.batching.as_ref())));
        let Some(route) = routes.first() else {
            return Err(self.contradicts(&format!("--sampler {kind}"), "no operator that it needs samples so here"));
        };
        if matches!(self.steps, Steps::OneRoute { .. }) {
            let Route { batching, transferring, .. } = route;
            set.extend([("--batching", batching.to_string()), ("--transferring", transferring.to_string())]);
            (operators.batching, operators.transferring) = (Some(batching.clone()), Some(transferring.clone()));
            routes.retain(|route| {
                (Some(&route.batching), Some(&route.transferring))
                    == (operators.batching.as_ref(), operators.transferring.as_ref())
            });
        }
        if let Some(shares) = self.shares {
            let value = serde_json::from_value(shares.into()).context("--shares")?;
            if training.shares.is_some_and(|given| given != value) {
                return Err(self.contradicts("--shares", &format!("it sets --shares {shares}")));
            }
            training.shares = Some(value);
            set.push(("--shares", shares.to_string()));
        }
        if let Some(buffer) = self.buffer {
            if let Some(given) = planning.limits.buffer.filter(|given| *given != buffer) {
                return Err(self.contradicts(&format!("--buffer {given}"), &format!("it sets --buffer {buffer}")));
            }
            planning.limits.buffer = Some(buffer);
            set.push(("--buffer", buffer.to_string()));
        }
        let mut left_out = None;
        if let Some(text) = self.cache {
            let cache = values::cache(text).map_err(Usage::error).or_usage("--cache")?;
            let sets_cache = operators.set.iter().find(|(_, name, _)| name == "cache");
            if planning.cache.is_some_and(|given| given.policy != cache.policy) {
                return Err(self.contradicts("--cache", &format!("it sets --cache {text}")));
            }
            if let Some((key, ..)) = sets_cache {
                return Err(self.contradicts(&format!("--set {key}.cache"), &format!("it sets --cache {text}")));
            }
            let caches = |route: &Route| {
                [&route.batching, &route.transferring].into_iter().any(|key| budget::caches(registry, key))
            };
            if routes.iter().any(caches) {
                planning.cache = planning.cache.or(Some(cache));
                set.push(("--cache", text.to_string()));
            } else if text != "none" {
                left_out = Some(format!("--cache {text} is left out: no operator that it takes here has a cache"));
            }
        }
        Ok(Applied { system: self, set, left_out })
    }

    fn contradicts(&self, option: &str, why: &str) -> anyhow::Error {
        Usage::error(format!("{option} with --as {}: {why}; leave one of the two out", self.name))
    }

    fn unavailable(&self, context: &RunContext) -> anyhow::Error {
        let (name, needs) = (self.name, self.steps.needs());
        Usage::error(match context.machine() {
            Some(machine) => format!(
                "--as {name}: it needs {needs}, which machine {} does not have; describe one that has, or choose of `morphgl plan --machine list`",
                machine.name
            ),
            None => {
                // The simulated accelerator gathers what it sampled itself.
                let simulated = match self.steps {
                    Steps::OneRoute { sampling, gathering } if sampling == gathering => {
                        ", or set MORPHGL_SIM=training=5ms"
                    }
                    Steps::Roles => ", or set MORPHGL_SIM=devices=2",
                    _ => "",
                };
                format!(
                    "--as {name}: it needs {needs}, which this machine does not have; give --machine FILE|NAME to plan for one that is \
                     described and simulated (`morphgl plan --machine list` has some){simulated}"
                )
            }
        })
    }

    fn json(&self) -> Value {
        let [samples, gathers, trains] = self.steps.words();
        let options = self.options().into_iter().map(|(option, value)| format!("{option} {value}"));
        json!({
            "name": self.name, "title": self.title, "paper": self.paper, "does": self.does, "samples": samples, "gathers": gathers,
            "trains": trains, "options": options.collect::<Vec<_>>(), "differs": self.differs,
        })
    }
}

/// All systems, for `--json`.
pub(crate) fn list_json() -> Value {
    json!({ "systems": SYSTEMS.iter().map(System::json).collect::<Vec<_>>() })
}

/// A system whose options a configuration has been given.
#[derive(Debug, Clone)]
pub(crate) struct Applied {
    pub(crate) system: &'static System,
    /// Options with the values that the system asks for.
    pub(crate) set: Vec<(&'static str, String)>,
    /// What it asks for and this machine does not have.
    pub(crate) left_out: Option<String>,
}

impl Applied {
    /// The options that it stands for.
    pub(crate) fn options(&self) -> String {
        self.set.iter().map(|(option, value)| format!("{option} {value}")).collect::<Vec<_>>().join(" ")
    }
}

/// A plan and its predicted seconds per epoch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Predicted {
    pub(crate) plan: String,
    pub(crate) seconds: f64,
}

impl Predicted {
    fn alone(plan: &Plan) -> Self {
        Self { plan: plan.strategy.to_string(), seconds: plan.prediction.epoch_seconds }
    }

    fn json(&self) -> Value {
        json!({ "plan": self.plan, "epoch_seconds": self.seconds })
    }
}

/// The plans of several trainers and of devices with roles that there are.
fn of_several(measured: &Measured) -> impl Iterator<Item = Predicted> {
    let together = measured.unified.iter().flatten();
    let together = together.map(|unified| Predicted { plan: "unified".to_string(), seconds: unified.epoch_seconds });
    let roles = measured.factored.iter().flatten();
    together.chain(roles.map(|f| Predicted { plan: "factored".to_string(), seconds: f.epoch_seconds() }))
}

/// What a system would do on a machine, beside our best plans there.
#[derive(Debug, Clone)]
pub(crate) struct Beside {
    pub(crate) applied: Applied,
    /// The system's plan.
    pub(crate) own: Predicted,
    /// Our best plan of one trainer.
    pub(crate) alone: Predicted,
    /// Our best plan of all.
    pub(crate) best: Predicted,
}

impl Beside {
    /// Compares what was measured with the options of a system with what was measured without.
    ///
    /// # Errors
    ///
    /// No plan as the system has it.
    pub(crate) fn new(applied: Applied, system: &Measured, ours: &Measured) -> anyhow::Result<Self> {
        let (name, choice) = (applied.system.name, applied.system.choice());
        let several = |wanted: &str| of_several(system).find(|predicted| predicted.plan == wanted);
        let missing = || {
            Usage::error(format!(
                "--as {name}: no plan here is as it has it; it needs {}",
                applied.system.steps.needs()
            ))
        };
        let own = match choice {
            PlanChoice::Unified | PlanChoice::Factored => several(applied.system.plan).ok_or_else(missing)?,
            choice => Predicted::alone(&choice.choose(None, &system.plans, &system.problem)?),
        };
        let alone = Predicted::alone(ours.plans.chosen());
        // Ours, too, has stale gradients where they are allowed.
        let is_stale = system.factored.iter().flatten().any(|factored| factored.problem.staleness > 0);
        let stale = Some(own.clone()).filter(|_| is_stale);
        let all = of_several(ours).chain([alone.clone()]).chain(stale);
        let best = all.min_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let best = best.expect("there is a plan of one trainer");
        Ok(Self { applied, own, alone, best })
    }

    /// The system's seconds over those of our best plan.
    pub(crate) fn ratio(&self) -> f64 {
        self.times(&self.best)
    }

    fn times(&self, ours: &Predicted) -> f64 {
        if ours.seconds > 0.0 { self.own.seconds / ours.seconds } else { 1.0 }
    }

    /// In words: what is set, what is left out, how ours differs, and the comparison.
    pub(crate) fn text(&self) -> String {
        let Self { applied: Applied { system, left_out, .. }, own, alone, best } = self;
        let mut text = format!("as {}: {}\n", system.name, self.applied.options());
        text += &left_out.iter().map(|what| format!("{what}\n")).collect::<String>();
        text += &format!("{}: {} per epoch\n", system.title, Time(own.seconds));
        let line = |what: &str, ours: &Predicted| {
            let (plan, seconds, times) = (&ours.plan, Time(ours.seconds), self.times(ours));
            format!(
                "our best plan{what}, {plan}: {seconds} per epoch, so that {} takes {times:.2} times as long\n",
                system.name
            )
        };
        text += &line("", best);
        if alone != best {
            text += &line(" of one trainer", alone);
        }
        if self.ratio() < 1.0 {
            text += "both were measured, one after the other: the difference is noise\n";
        }
        format!("{text}ours differs from the system: {}\n", system.differs)
    }

    pub(crate) fn json(&self) -> Value {
        let Self { applied: Applied { system, set, left_out }, own, alone, best } = self;
        let set: serde_json::Map<String, Value> = set.iter().map(|(o, v)| (o.to_string(), v.as_str().into())).collect();
        json!({
            "system": system.json(), "sets": set, "left_out": left_out, "plan": own.plan, "epoch_seconds": own.seconds, "best": best.json(),
            "best_of_one_trainer": alone.json(), "ratio": self.ratio(),
        })
    }
}

#[cfg(test)]
mod tests;
