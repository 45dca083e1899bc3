//! Lookup of the operators linked into this program.

use serde_json::Value;

use crate::{
    Batching, BatchingContext, Build, Delivery, Description, Error, ErrorKind, Key, Machine, Phase, Place, Result,
    Route, SamplingSpec, Training, TrainingContext, Transferring, TransferringContext, Unavailable, description, route,
};

/// All registered operators, sorted by key, and the machine on which each was probed once.
#[derive(Debug)]
pub struct Registry {
    // Invariant: sorted by key, no key twice.
    operators: Vec<Probed>,
    machine: Machine,
}

/// An operator, and what its probe said.
#[derive(Debug)]
struct Probed {
    description: Description,
    availability: std::result::Result<(), Unavailable>,
}

/// An operator and whether it can run here.
#[derive(Debug)]
pub struct Status<'a> {
    /// The operator.
    pub description: &'a Description,
    /// Whether it can run here, or why not.
    pub availability: std::result::Result<(), Unavailable>,
}

impl Registry {
    /// Collects what the linked crates submitted, and probes the machine.
    ///
    /// # Errors
    ///
    /// Two crates registered the same key.
    pub fn collect() -> Result<Self> {
        Self::new(inventory::iter::<Description>.into_iter().cloned().collect(), Machine::probe())
    }

    /// The simulated ones of the operators that the linked crates submitted, on a described machine with its accelerators: all are
    /// available there, and no other operator is.
    ///
    /// # Errors
    ///
    /// As [`Registry::collect`].
    pub fn described(machine: Machine) -> Result<Self> {
        let simulated = inventory::iter::<Description>.into_iter().filter(|operator| operator.simulated);
        let on_it = |description: &Description| Description {
            probe: |_| Ok(()),
            accelerators: |_| Vec::new(),
            ..description.clone()
        };
        Self::new(simulated.map(on_it).collect(), machine)
    }

    /// A registry of `descriptions` on `machine`, whose accelerators are added. Every operator is probed here, and never again.
    ///
    /// # Errors
    ///
    /// Two descriptions have the same key, or declare different kinds of sampling by the same name.
    pub fn new(mut descriptions: Vec<Description>, mut machine: Machine) -> Result<Self> {
        descriptions.sort_by(|a, b| a.key.cmp(&b.key));
        if let Some(pair) = descriptions.windows(2).find(|pair| pair[0].key == pair[1].key) {
            return Err(Error::new(&pair[0].key, ErrorKind::Duplicate));
        }
        let samplings = description::samplings(descriptions.iter());
        for (description, spec) in descriptions.iter().flat_map(|d| d.samplers.iter().map(move |spec| (d, spec))) {
            let mut known = SamplingSpec::BUILT_IN.iter().chain(&samplings);
            if known.find(|known| known.name == spec.name) != Some(spec) {
                let name = spec.name;
                let what =
                    format!("another operator declares the sampler {name} with other settings; unlink one of them");
                return Err(Error::setting(&description.key, what));
            }
        }
        for description in &descriptions {
            for found in (description.accelerators)(&machine) {
                if machine.accelerators.iter().all(|known| known.place != found.place) {
                    machine.accelerators.push(found);
                }
            }
        }
        machine.accelerators.sort_by(|a, b| a.place.cmp(&b.place));
        let probed = |description: Description| {
            let availability = (description.probe)(&machine);
            Probed { description, availability }
        };
        let operators = descriptions.into_iter().map(probed).collect();
        Ok(Self { operators, machine })
    }

    /// The kinds of sampling of all operators: those of this crate first, then by name.
    pub fn samplings(&self) -> Vec<SamplingSpec> {
        description::samplings(self.operators.iter().map(|o| &o.description))
    }

    /// Finds a kind of sampling by its name.
    ///
    /// # Errors
    ///
    /// No operator samples so; the error lists the kinds that exist.
    pub fn sampling(&self, kind: &str) -> Result<SamplingSpec> {
        let (all, is_it) = (self.samplings(), |spec: &&SamplingSpec| spec.name == kind);
        all.iter().find(is_it).copied().ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|spec| spec.name).collect();
            let what = format!("no operator that is linked here samples by {kind:?}; there are {}", names.join(", "));
            Error::setting("sampler", what)
        })
    }

    /// The machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Every operator with its availability, sorted by key.
    pub fn status(&self) -> Vec<Status<'_>> {
        let all = self.operators.iter();
        all.map(|o| Status { description: &o.description, availability: o.availability.clone() }).collect()
    }

    /// Every chain of available batching and transferring operators, sorted.
    pub fn deliveries(&self) -> Vec<Delivery> {
        route::deliveries(&self.available(), &self.machine)
    }

    fn available(&self) -> Vec<&Description> {
        self.operators.iter().filter(|o| o.availability.is_ok()).map(|o| &o.description).collect()
    }

    /// Every route of available operators, sorted; those through a reference operator last.
    pub fn routes(&self) -> Vec<Route> {
        let mut routes = route::find(&self.available(), &self.machine);
        routes.sort_by_key(|route| self.is_reference(route));
        routes
    }

    /// Whether an operator of the route is a reference.
    pub fn is_reference(&self, route: &Route) -> bool {
        let keys = [&route.batching, &route.transferring, &route.training];
        keys.into_iter().any(|key| self.find(key).is_some_and(|o| o.description.reference))
    }

    /// Whether mini-batches of the route need no features: they stay in host memory, and the training operator reads the
    /// dataset's itself.
    pub fn reads_store(&self, route: &Route) -> bool {
        let on_host = route.batched_at == Place::Host && route.trained_at == Place::Host;
        on_host && self.find(&route.training).is_some_and(|o| o.description.reads_store)
    }

    /// Whether mini-batches of the route may have given rows, as far as transferring and training are concerned.
    pub fn takes_given_rows(&self, route: &Route) -> bool {
        let takes = |key: &Key| self.find(key).is_some_and(|o| o.description.takes_given_rows);
        takes(&route.transferring) && takes(&route.training)
    }

    /// Whether all operators of the route take pairs of nodes as seeds: routes that do not are left out of a run on pairs.
    pub fn takes_pairs(&self, route: &Route) -> bool {
        let keys = [&route.batching, &route.transferring, &route.training];
        keys.into_iter().all(|key| self.find(key).is_some_and(|o| o.description.takes_pairs))
    }

    /// Whether the batching operator of the route takes rows of a task as seeds: other routes are left out of a run on rows.
    pub fn takes_rows(&self, route: &Route) -> bool {
        self.find(&route.batching).is_some_and(|o| o.description.takes_rows)
    }

    /// Checks names and types of the options given to an operator, by name.
    ///
    /// # Errors
    ///
    /// As [`Registry::get`]; an option that the operator does not have, or a value of another type.
    pub fn check_options(&self, key: &Key, given: &Value) -> Result<()> {
        self.get(key)?.check_options(given)
    }

    fn find(&self, key: &Key) -> Option<&Probed> {
        self.operators.binary_search_by(|o| o.description.key.cmp(key)).ok().map(|i| &self.operators[i])
    }

    /// Finds an operator that can run here.
    ///
    /// # Errors
    ///
    /// No such key (the error lists what exists), or not available on this machine (the error says why).
    pub fn get(&self, key: &Key) -> Result<&Description> {
        let unknown = || Error::new(key, ErrorKind::Unknown(self.list(key.phase)));
        let Probed { description, availability } = self.find(key).ok_or_else(unknown)?;
        match availability {
            Ok(()) => Ok(description),
            Err(Unavailable { reason }) => Err(Error::new(key, ErrorKind::Unavailable(reason.clone()))),
        }
    }

    fn list(&self, phase: Phase) -> String {
        let of_phase = self.status().into_iter().filter(|s| s.description.key.phase == phase);
        let lines: Vec<String> = of_phase
            .map(|s| match s.availability {
                Ok(()) => s.description.key.to_string(),
                Err(u) => format!("{} (not here: {})", s.description.key, u.reason),
            })
            .collect();
        match lines.is_empty() {
            true => format!("no operator of phase {phase} is linked into this program"),
            false => format!("of phase {phase} there are: {}", lines.join(", ")),
        }
    }

    /// Builds a batching operator.
    ///
    /// # Errors
    ///
    /// As [`Registry::get`], a key of another phase, pairs or rows as seeds of an operator that does not take them, or the operator's own.
    pub fn batching(&self, key: &Key, context: &BatchingContext) -> Result<Box<dyn Batching>> {
        let description = self.get(key)?;
        let Build::Batching(build) = description.build else { return Err(wrong_phase(key, Phase::Batching)) };
        description.check_seeds(&context.seeds)?;
        self.check_options(key, &context.options)?;
        build(context)
    }

    /// Builds a transferring operator.
    ///
    /// # Errors
    ///
    /// As [`Registry::batching`].
    pub fn transferring(&self, key: &Key, context: &TransferringContext) -> Result<Box<dyn Transferring>> {
        let description = self.get(key)?;
        let Build::Transferring(build) = description.build else { return Err(wrong_phase(key, Phase::Transferring)) };
        context.sampled.as_ref().map_or(Ok(()), |(seeds, _)| description.check_seeds(seeds))?;
        self.check_options(key, &context.options)?;
        build(context)
    }

    /// Builds a training operator.
    ///
    /// # Errors
    ///
    /// As [`Registry::batching`].
    pub fn training(&self, key: &Key, context: &TrainingContext) -> Result<Box<dyn Training>> {
        let Build::Training(build) = self.get(key)?.build else { return Err(wrong_phase(key, Phase::Training)) };
        self.check_options(key, &context.options)?;
        build(context)
    }
}

fn wrong_phase(key: &Key, wanted: Phase) -> Error {
    Error::setting(key, format!("this is an operator of phase {}, one of phase {wanted} is needed", key.phase))
}
