//! Routes: chains of operators whose places match.

use serde::{Deserialize, Serialize};

use crate::{At, Description, FeatureFill, Key, Machine, Phase, Place};

/// One viable chain batching → transferring: a [`Route`] without its training operator, for a program that trains by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Delivery {
    /// The batching operator.
    pub batching: Key,
    /// The transferring operator.
    pub transferring: Key,
    /// Where batching reads the dataset: [`Place::Host`] or [`Place::Disk`].
    pub read_at: Place,
    /// Where mini-batches lie after batching.
    pub batched_at: Place,
    /// Where they lie after transferring.
    pub delivered_at: Place,
    /// The phase that gathers features, as of a [`Route`].
    pub gathering: Phase,
}

/// One viable chain batching → transferring → training.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Route {
    /// The batching operator.
    pub batching: Key,
    /// The transferring operator.
    pub transferring: Key,
    /// The training operator.
    pub training: Key,
    /// Where batching reads the dataset: [`Place::Host`] or [`Place::Disk`].
    pub read_at: Place,
    /// Where mini-batches lie after batching.
    pub batched_at: Place,
    /// Where they lie after transferring, and are trained on.
    pub trained_at: Place,
    /// The phase that gathers features, where mini-batches carry any: [`Phase::Batching`], or [`Phase::Transferring`] where
    /// batching never does or transferring gathers by itself.
    #[serde(default = "gathered_by_batching")]
    pub gathering: Phase,
    /// The phases whose operators queue their work on a device ([`Description::queueing`]), in the order of phases; none in a file
    /// of an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queueing: Vec<Phase>,
}

impl Route {
    /// Whether it batches on one device and trains on another of the same backend.
    pub fn is_between_devices(&self) -> bool {
        same_backend(&self.batched_at, &self.trained_at) && self.batched_at != self.trained_at
    }

    /// A route with defaults: the dataset in host memory, features gathered by batching, no operator that queues its work. Other values
    /// by struct update: `Route { gathering, ..Route::new(…) }`.
    pub fn new([batching, transferring, training]: [Key; 3], batched_at: Place, trained_at: Place) -> Self {
        let (read_at, gathering, queueing) = (Place::Host, Phase::Batching, Vec::new());
        Self { batching, transferring, training, read_at, batched_at, trained_at, gathering, queueing }
    }
}

/// The gathering phase in a file that does not name it.
fn gathered_by_batching() -> Phase {
    Phase::Batching
}

fn same_backend(a: &Place, b: &Place) -> bool {
    matches!((a, b), (Place::Device { backend: a, .. }, Place::Device { backend: b, .. }) if a == b)
}

/// Every chain of batching and transferring operators whose places match on `machine`, sorted. The dataset lies in host memory or on
/// disk.
///
/// A chain changes from one device of a backend to another where its transferring operator copies between devices, and nowhere
/// else.
pub(crate) fn deliveries(operators: &[&Description], machine: &Machine) -> Vec<Delivery> {
    let places = |at: At| -> Vec<Place> {
        let devices = machine.accelerators.iter().map(|a| a.place.clone());
        [Place::Host, Place::Disk].into_iter().chain(devices).filter(|p| at.matches(p)).collect()
    };
    let mut deliveries = Vec::new();
    for batching in of(operators, Phase::Batching).filter(|d| matches!(d.reads, At::Host | At::Disk)) {
        let read_at = if batching.reads == At::Disk { Place::Disk } else { Place::Host };
        for batched_at in places(batching.writes) {
            for transferring in of(operators, Phase::Transferring).filter(|d| d.reads.matches(&batched_at)) {
                let gathering = match batching.features == FeatureFill::Never || transferring.gathers_features {
                    true => Phase::Transferring,
                    false => Phase::Batching,
                };
                for delivered_at in places(transferring.writes) {
                    let changes = batched_at != delivered_at;
                    if same_backend(&batched_at, &delivered_at) && changes != transferring.between_devices {
                        continue;
                    }
                    deliveries.push(Delivery {
                        batching: batching.key.clone(),
                        transferring: transferring.key.clone(),
                        read_at: read_at.clone(),
                        batched_at: batched_at.clone(),
                        delivered_at,
                        gathering,
                    });
                }
            }
        }
    }
    deliveries.sort();
    deliveries
}

/// Every chain of `operators` whose places match on `machine`, sorted: [`deliveries`] with the training operators at their ends.
pub(crate) fn find(operators: &[&Description], machine: &Machine) -> Vec<Route> {
    let mut routes = Vec::new();
    for delivery in deliveries(operators, machine) {
        for training in of(operators, Phase::Training).filter(|d| d.reads.matches(&delivery.delivered_at)) {
            let Delivery { batching, transferring, read_at, batched_at, delivered_at, gathering } = delivery.clone();
            let keys = [batching, transferring, training.key.clone()];
            let queues = |key: &&Key| operators.iter().any(|d| d.key == **key && d.queues);
            let queueing = keys.iter().filter(queues).map(|key| key.phase).collect();
            routes.push(Route { read_at, gathering, queueing, ..Route::new(keys, batched_at, delivered_at) });
        }
    }
    routes.sort();
    routes
}

fn of<'a>(operators: &'a [&Description], phase: Phase) -> impl Iterator<Item = &'a Description> {
    operators.iter().copied().filter(move |d| d.key.phase == phase)
}
