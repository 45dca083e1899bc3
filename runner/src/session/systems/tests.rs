use std::sync::Arc;

use morphgl_generate::SbmConfig;
use morphgl_graph_store::Dataset;

use super::*;
use crate::session::Session;
use crate::session::options::PlanningOptions;

fn dataset() -> Arc<Dataset> {
    let config = SbmConfig { nodes: 2_000, ..SbmConfig::default() };
    Arc::new(morphgl_generate::sbm(&config).expect("the configuration is valid"))
}

fn session(machine: &str, name: Option<&str>, change: impl FnOnce(&mut SessionConfig)) -> Session {
    let planning = PlanningOptions {
        machine: Some(machine.into()),
        as_system: name.map(String::from),
        ..PlanningOptions::default()
    };
    let mut config = SessionConfig { planning, ..SessionConfig::default() };
    config.planning.batch.batch_size = Some(64);
    change(&mut config);
    Session::new(RunContext::new().expect("operators"), config)
}

fn refusal(machine: &str, name: &str, change: impl FnOnce(&mut SessionConfig)) -> String {
    let refused = session(machine, Some(name), change).here().err();
    refused.unwrap_or_else(|| panic!("{name} on {machine}")).to_string()
}

#[test]
fn names_are_there_once_with_what_they_are() {
    let mut names: Vec<&str> = SYSTEMS.iter().map(|system| system.name).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    assert!(!names.contains(&LIST));
    for system in SYSTEMS {
        assert_eq!(named(system.name).expect("there").title, system.title);
        assert!(!matches!(system.choice(), PlanChoice::Auto | PlanChoice::File(_)), "{}", system.name);
        assert_eq!(system.choice().to_string(), system.plan);
        for sentence in [system.does, system.differs] {
            assert!(sentence.ends_with('.'), "{}: {sentence}", system.name);
        }
        assert!(!system.title.is_empty() && !system.paper.is_empty(), "{}", system.name);
        assert!(system.cache.is_none_or(|cache| values::cache(cache).is_ok()), "{}", system.name);
    }
    let unknown = named("salint").expect_err("no such system").to_string();
    assert!(unknown.contains("salint") && unknown.contains("salient") && unknown.contains("--as list"), "{unknown}");
}

/// Each sets what the table says, and is predicted no faster than our best plan on the same machine.
#[test]
fn every_system_is_planned_by_its_options_and_is_no_faster_than_our_best_plan() {
    let dataset = dataset();
    for machine in ["eight-v100", "a100", "npu"] {
        let ours = session(machine, None, |_| {}).on(Arc::clone(&dataset)).plan().expect("planned");
        for system in SYSTEMS {
            let name = system.name;
            let own = session(machine, Some(name), |_| {}).on(Arc::clone(&dataset));
            let there = match system.steps {
                Steps::OneRoute { sampling, .. } => sampling == By::Host || machine != "npu",
                Steps::Roles => machine == "eight-v100",
                Steps::Together => true,
            };
            if !there {
                let refused = own.here().err().unwrap_or_else(|| panic!("{name} on {machine}")).to_string();
                let words = [name, machine, system.steps.needs(), "--machine list"];
                assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
                continue;
            }
            let (with, applied) = own.here().expect(name);
            let applied = applied.expect("a system");
            let SessionConfig { planning, training } = &with.config;
            assert_eq!(training.plan.to_string(), system.plan);
            assert_eq!(planning.limits.buffer, system.buffer, "{name}");
            assert_eq!(training.shares.is_some(), system.shares.is_some(), "{name}");
            // The cache policy goes to the operators that have a cache; where none has, the policy is left out with a remark.
            let has_policy = system.cache.is_some_and(|cache| cache != "none");
            match planning.cache {
                Some(cache) => {
                    assert_eq!(Some(cache), system.cache.map(|cache| values::cache(cache).expect(name)), "{name}");
                    assert_eq!(applied.left_out, None, "{name}");
                }
                None => assert_eq!(applied.left_out.is_some(), has_policy, "{name}"),
            }
            if machine == "eight-v100" && ["dgl-uva", "pagraph", "gnnlab"].contains(&name) {
                assert!(planning.cache.is_some(), "{name}: a device gathers, through a cache or without one");
            }
            let measured = own.plan().expect(name);
            if let Steps::OneRoute { .. } = system.steps {
                let routes: Vec<&Route> = measured.profile.routes.iter().map(|r| &r.route).collect();
                assert!(!routes.is_empty() && routes.iter().all(|route| system.steps.has(route)), "{name}: {routes:?}");
            }
            let beside = Beside::new(applied, &measured, &ours).expect(name);
            assert_eq!(beside.own.plan, system.plan, "{name}");
            assert!(beside.ratio() >= 1.0, "{name} on {machine}: {beside:?}");
            assert!(beside.best.seconds <= beside.alone.seconds, "{beside:?}");
            let json = beside.json();
            assert_eq!((&json["system"]["name"], &json["sets"]["--plan"]), (&name.into(), &system.plan.into()));
            assert!(beside.text().contains(system.differs), "{name}");
        }
    }
}

#[test]
fn a_machine_without_devices_has_none_of_them() {
    for system in SYSTEMS {
        let refused = refusal("laptop", system.name, |_| {});
        assert!(refused.contains(system.steps.needs()) && refused.contains("laptop"), "{refused}");
    }
}

#[test]
fn options_that_contradict_a_system_are_refused_by_name_and_others_are_kept() {
    let key = |text: &str| Some(text.parse().expect("a key"));
    type Change = fn(&mut SessionConfig);
    let changes: [(&str, &str, Change); 5] = [
        ("--plan device", "salient", |c| c.training.plan = "device".parse().expect("a plan")),
        ("--buffer 3", "naive-pipeline", |c| c.planning.limits.buffer = Some(3)),
        ("--shares", "unified-static", |c| c.training.shares = Some(crate::Shares::Equal)),
        ("--allow-staleness", "ducati", |c| c.planning.split.allow_staleness = 3),
        ("--allow-staleness", "salient", |c| c.planning.split.allow_staleness = 3),
    ];
    for (option, name, change) in changes {
        // Staleness is refused on described machines by another rule, which names the same option.
        let refused = refusal("a100", name, change);
        assert!(refused.starts_with(option), "{refused}");
    }
    for (option, name, batching) in [
        ("--batching Batching_PCIe+SIM_Neighbor", "salient", key("Batching_PCIe+SIM_Neighbor")),
        ("--batching Batching_CPU_SimNeighbor", "ducati", key("Batching_CPU_SimNeighbor")),
    ] {
        let refused = refusal("a100", name, |c| c.planning.batch.batching = batching);
        assert!(refused.starts_with(&format!("{option} with --as {name}")), "{refused}");
    }
    let refused = refusal("a100", "salient", |c| c.planning.batch.training = key("Training_CPU_SimLedger"));
    assert!(refused.starts_with("--training Training_CPU_SimLedger with --as salient"), "{refused}");
    let refused = refusal("a100", "pagraph", |c| c.planning.batch.sampler = Some("shadow".to_string()));
    assert!(refused.starts_with("--sampler shadow with --as pagraph"), "{refused}");
    // What agrees, and what a system leaves open, is as it was given.
    let (own, _) = session("a100", Some("salient"), |c| {
        c.planning.limits.buffer = Some(3);
        c.planning.batch.batching = key("Batching_CPU_SimNeighbor");
        c.training.plan = "pipeline".parse().expect("a plan");
    })
    .here()
    .expect("nothing contradicts");
    assert_eq!(own.config.planning.limits.buffer, Some(3));
    assert_eq!(own.config.planning.batch.batching, key("Batching_CPU_SimNeighbor"));
    assert_eq!(own.config.planning.batch.transferring, key("Transferring_PCIe_SimDma"));
}

/// GNNLab's gradients are stale within a bound: the one system that takes it, and our best plan has it then, too.
#[test]
fn gnnlab_takes_the_bound_on_staleness() {
    let stale = |c: &mut SessionConfig| c.planning.split.allow_staleness = 2;
    let plan = |session: Session| session.on(dataset()).plan().expect("planned");
    let own = session("eight-v100", Some("gnnlab"), stale);
    let (_, applied) = own.here().expect("it takes the bound");
    let (measured, ours) = (plan(own.clone()), plan(own.like_no_system()));
    let staleness =
        |measured: &Measured| measured.factored.as_ref().map(|f| f.as_ref().expect("roles").problem.staleness);
    assert_eq!([staleness(&measured), staleness(&ours)], [Some(2), Some(0)]);
    let beside = Beside::new(applied.expect("a system"), &measured, &ours).expect("a plan");
    assert!(beside.ratio() >= 1.0 && beside.best.seconds <= beside.own.seconds, "{beside:?}");
    let refused = refusal("eight-v100", "gnnlab", |c| {
        stale(c);
        c.planning.split.hot_ratio = Some(0.5);
    });
    assert!(refused.starts_with("--allow-staleness with --machine") && refused.contains("layers"), "{refused}");
}
