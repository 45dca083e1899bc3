//! Lookup: sorted, without duplicates, with errors that list what exists.

use std::sync::Arc;

use morphgl_graph_store::{Dataset, Topology};
use morphgl_registry::{
    Accelerator, At, BatchingContext, Build, Description, Error, FeatureFill, Hardware, Key, Machine, PairSettings,
    Phase, Registry, Resource, Route, SamplerSettings, SeedSet, TransferringContext, Unavailable,
};

fn machine() -> Machine {
    Machine { cpu: "test".into(), cores: 2, memory_bytes: 1 << 30, available_bytes: 1 << 29, accelerators: Vec::new() }
}

const CPU: Description = Description::new(
    Key::new(Phase::Batching, Hardware::CPU, "Neighbor"),
    "samples",
    At::Host,
    At::Host,
    Build::Batching(|_| Err(Error::setting("test", "is never built"))),
);

const MISSING: Description = Description::new(
    Key::new(Phase::Batching, Hardware::new(&[Resource::new("ABACUS")]), "Beads"),
    "counts",
    At::Host,
    At::Host,
    Build::Batching(|_| Err(Error::setting("test", "is never built"))),
)
.with_probe(|_| Err(Unavailable { reason: "no abacus found".into() }));

#[test]
fn listing_is_sorted_and_says_why_something_is_missing() {
    let registry = Registry::new(vec![CPU, MISSING], machine()).expect("no duplicates");
    let rows: Vec<(String, bool)> =
        registry.status().iter().map(|s| (s.description.key.to_string(), s.availability.is_ok())).collect();
    assert_eq!(rows, [("Batching_ABACUS_Beads".into(), false), ("Batching_CPU_Neighbor".into(), true)]);
    let error = registry.get(&MISSING.key).expect_err("not available").to_string();
    assert_eq!(error, "Batching_ABACUS_Beads: not available on this machine: no abacus found");
}

#[test]
fn an_unknown_key_lists_what_exists() {
    let registry = Registry::new(vec![CPU, MISSING], machine()).expect("no duplicates");
    let unknown: Key = "Batching_CPU_Walk".parse().expect("a key");
    assert_eq!(
        registry.get(&unknown).expect_err("unknown").to_string(),
        "Batching_CPU_Walk: no operator has this key; of phase Batching there are: \
         Batching_ABACUS_Beads (not here: no abacus found), Batching_CPU_Neighbor"
    );
    let training: Key = "Training_CPU_Burn".parse().expect("a key");
    let error = registry.get(&training).expect_err("unknown").to_string();
    assert!(error.ends_with("no operator of phase Training is linked into this program"), "{error}");
}

#[test]
fn duplicates_are_refused_at_start() {
    let error = Registry::new(vec![CPU, MISSING, CPU], machine()).expect_err("a key twice").to_string();
    assert_eq!(error, "Batching_CPU_Neighbor: two linked crates register this key; unlink one of them");
}

#[test]
fn every_operator_is_probed_once() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static PROBED: AtomicUsize = AtomicUsize::new(0);
    let counted = CPU.with_probe(|_| {
        PROBED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let registry = Registry::new(vec![counted, MISSING], machine()).expect("no duplicates");
    for _ in 0..3 {
        assert_eq!(registry.status().len(), 2);
        assert!(registry.routes().is_empty() && registry.get(&CPU.key).is_ok() && registry.get(&MISSING.key).is_err());
    }
    assert_eq!(PROBED.load(Ordering::Relaxed), 1);
}

#[test]
fn the_probed_machine_is_plausible() {
    let machine = Machine::probe();
    assert!(machine.cores >= 1);
    assert!(machine.available_bytes <= machine.memory_bytes, "{machine:?}");
    let json = serde_json::to_string(&machine).expect("a machine is plain data");
    assert_eq!(serde_json::from_str::<Machine>(&json).expect("what was written"), machine);
}

#[test]
fn features_are_gathered_by_one_phase_of_a_route() {
    let never = || Build::Transferring(|_| Err(Error::setting("test", "is never built")));
    let key = |phase, name| Key::new(phase, Hardware::CPU, name);
    let moves = |name| Description::new(key(Phase::Transferring, name), "moves", At::Host, At::Host, never());
    let (copies, gathers) = (moves("Copy"), moves("Gather").gathering_features());
    let leaves_out = Description { key: key(Phase::Batching, "Bare"), ..CPU }.filling(FeatureFill::Never);
    let build = Build::Training(|_| Err(Error::setting("test", "is never built")));
    let trains = Description::new(key(Phase::Training, "Burn"), "trains", At::Host, At::Host, build);
    let registry = Registry::new(vec![CPU, leaves_out, copies, gathers, trains], machine()).expect("no key twice");
    let routes = registry.routes();
    let named: Vec<_> =
        routes.iter().map(|r| (r.batching.operator(), r.transferring.operator(), r.gathering)).collect();
    assert_eq!(
        named,
        [
            ("Bare", "Copy", Phase::Transferring),
            ("Bare", "Gather", Phase::Transferring),
            ("Neighbor", "Copy", Phase::Batching),
            ("Neighbor", "Gather", Phase::Transferring),
        ]
    );
    // Files of earlier versions do not name the phase.
    let mut json = serde_json::to_value(&routes[2]).expect("plain data");
    json.as_object_mut().expect("an object").remove("gathering").expect("it is written");
    assert_eq!(serde_json::from_value::<Route>(json).expect("a route"), routes[2]);
}

#[test]
fn routes_through_a_reference_come_last() {
    let never = || Build::Training(|_| Err(Error::setting("test", "is never built")));
    let trains =
        |name| Description::new(Key::new(Phase::Training, Hardware::CPU, name), "trains", At::Host, At::Host, never());
    let moves = Description::new(
        Key::new(Phase::Transferring, Hardware::CPU, "Host"),
        "moves",
        At::Host,
        At::Host,
        Build::Transferring(|_| Err(Error::setting("test", "is never built"))),
    );
    let (first, last) = (trains("Abacus").as_reference(), trains("Zebra"));
    let registry = Registry::new(vec![CPU, moves, first, last], machine()).expect("no key is there twice");
    let routes = registry.routes();
    let names: Vec<_> = routes.iter().map(|r| r.training.operator()).collect();
    assert_eq!(names, ["Zebra", "Abacus"]);
    assert!(!registry.is_reference(&routes[0]) && registry.is_reference(&routes[1]));
}

/// The operators of a backend with so many devices, one of which copies between them.
fn of_devices(number: u32) -> Registry {
    const NPU: At = At::Device("npu");
    const ON_NPU: Hardware = Hardware::new(&[Resource::new("NPU")]);
    let key = |phase, name| Key::new(phase, ON_NPU, name);
    let moves = |name| {
        let build = Build::Transferring(|_| Err(Error::setting("test", "is never built")));
        Description::new(key(Phase::Transferring, name), "moves", NPU, NPU, build)
    };
    let samples = Description { key: key(Phase::Batching, "Neighbor"), writes: NPU, ..CPU };
    let build = Build::Training(|_| Err(Error::setting("test", "is never built")));
    let trains = Description::new(key(Phase::Training, "Native"), "trains", NPU, NPU, build);
    let device = |index| {
        let place = morphgl_registry::Place::Device { backend: "npu".into(), index };
        Accelerator { place, name: "NPU".into(), memory_bytes: 1 }
    };
    let machine = Machine { accelerators: (0..number).map(device).collect(), ..machine() };
    let operators = vec![samples, moves("Keep"), moves("Copy").between_devices().gathering_features(), trains];
    Registry::new(operators, machine).expect("no key twice")
}

#[test]
fn a_route_changes_devices_by_an_operator_between_them_alone() {
    let places = |number: u32| -> Vec<(String, String, String)> {
        let routes = of_devices(number).routes();
        let of = |r: &Route| {
            assert_eq!(r.is_between_devices(), r.transferring.operator() == "Copy", "{r:?}");
            (r.transferring.operator().to_string(), r.batched_at.to_string(), r.trained_at.to_string())
        };
        routes.iter().map(of).collect()
    };
    let route = |name: &str, from: u32, to: u32| (name.to_string(), format!("npu:{from}"), format!("npu:{to}"));
    assert_eq!(places(0), []);
    assert_eq!(places(1), [route("Keep", 0, 0)]);
    let between = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)].map(|(from, to)| route("Copy", from, to));
    let same = [0, 1, 2].map(|index| route("Keep", index, index));
    assert_eq!(places(3), [&between[..], &same].concat());
}

#[test]
fn deliveries_are_routes_without_their_training_operators() {
    for number in 0..3 {
        let registry = of_devices(number);
        let of_routes = registry.routes().into_iter().map(|r| (r.batching, r.transferring, r.batched_at, r.trained_at));
        let deliveries = registry.deliveries().into_iter();
        let named = deliveries.map(|d| (d.batching, d.transferring, d.batched_at, d.delivered_at)).collect::<Vec<_>>();
        assert_eq!(named, of_routes.collect::<Vec<_>>());
    }
    // Mini-batches are delivered where nothing trains, too.
    let moves = Description::new(
        Key::new(Phase::Transferring, Hardware::CPU, "Gather"),
        "moves",
        At::Host,
        At::Host,
        Build::Transferring(|_| Err(Error::setting("test", "is never built"))),
    )
    .gathering_features();
    let registry = Registry::new(vec![CPU, moves], machine()).expect("no key twice");
    assert!(registry.routes().is_empty());
    let [delivery] = &registry.deliveries()[..] else { panic!("{:?}", registry.deliveries()) };
    assert_eq!((&delivery.batching, delivery.transferring.operator()), (&CPU.key, "Gather"));
    assert_eq!((&delivery.delivered_at, delivery.gathering), (&morphgl_registry::Place::Host, Phase::Transferring));
}

#[test]
fn pairs_are_for_operators_that_take_them() {
    const TRANSFER: Description = Description::new(
        Key::new(Phase::Transferring, Hardware::CPU, "Host"),
        "moves",
        At::Host,
        At::Host,
        Build::Transferring(|_| Err(Error::setting("test", "is built"))),
    );
    const TRAIN: Description = Description::new(
        Key::new(Phase::Training, Hardware::CPU, "Model"),
        "trains",
        At::Host,
        At::Host,
        Build::Training(|_| Err(Error::setting("test", "is built"))),
    );
    let taking = |batching: Description, transfer: Description, train: Description| {
        Registry::new(vec![batching, transfer, train], machine()).expect("no duplicates")
    };
    let topology = Topology::new(vec![0, 1, 2], vec![1, 0], None).expect("a graph");
    let dataset = Arc::new(Dataset::new("two nodes", topology));
    let pairs = SeedSet::of_pairs("edges", &[[0, 1]], 2, PairSettings::default()).expect("a pair");
    let context = BatchingContext::new(Arc::clone(&dataset), pairs.clone(), SamplerSettings::default());
    let moved = TransferringContext {
        sampled: Some((pairs, SamplerSettings::default())),
        ..TransferringContext::new(dataset, morphgl_registry::Place::Host, morphgl_registry::Place::Host)
    };
    let none = taking(CPU, TRANSFER, TRAIN);
    let error = none.batching(&CPU.key, &context).expect_err("it would ignore the pairs").to_string();
    assert!(error.starts_with("Batching_CPU_Neighbor: it does not take pairs of nodes as seeds; name an "), "{error}");
    let error = none.transferring(&TRANSFER.key, &moved).expect_err("it would drop the pairs").to_string();
    assert!(error.starts_with("Transferring_CPU_Host: it does not take pairs"), "{error}");
    let all = taking(CPU.taking_pairs(), TRANSFER.taking_pairs(), TRAIN.taking_pairs());
    assert_eq!(all.batching(&CPU.key, &context).expect_err("built").to_string(), "test: is never built");
    assert_eq!(all.transferring(&TRANSFER.key, &moved).expect_err("built").to_string(), "test: is built");
    // A route takes pairs where all of its operators do.
    let two = taking(CPU.taking_pairs(), TRANSFER.taking_pairs(), TRAIN);
    for (registry, takes) in [(none, false), (two, false), (all, true)] {
        let routes = registry.routes();
        assert_eq!(routes.iter().map(|route| registry.takes_pairs(route)).collect::<Vec<_>>(), [takes]);
    }
}
