//! Names of policies.

mod common;

use std::num::NonZeroU32;

use common::{graph, settings};
use morphgl_hotness::{CachePolicy, InDegree, Inclusion, OutDegree, Policy, PolicyKind, Random};
use morphgl_hotness::{ReversePageRank, WeightedReversePageRank};

#[test]
fn names_are_parsed_as_they_are_displayed() {
    let presample = |epochs| PolicyKind::PreSample { epochs: NonZeroU32::new(epochs).expect("positive") };
    let smoothed = |epochs| PolicyKind::Smoothed { epochs: NonZeroU32::new(epochs).expect("positive") };
    for kind in PolicyKind::ALL.into_iter().chain([presample(2), presample(u32::MAX), smoothed(1), smoothed(7)]) {
        assert_eq!(kind.to_string().parse::<PolicyKind>().expect("a policy"), kind);
        assert_eq!(kind.name().parse::<PolicyKind>().expect("a policy").name(), kind.name());
    }
    assert_eq!("presample".parse::<PolicyKind>().expect("a policy"), presample(1));
    assert_eq!("smoothed".parse::<PolicyKind>().expect("a policy"), smoothed(2));
    assert_eq!((presample(3).to_string(), smoothed(3).to_string()), ("presample:3".into(), "smoothed:3".into()));
    let names = PolicyKind::ALL.map(PolicyKind::name);
    assert_eq!(names[..5], ["in-degree", "out-degree", "presample", "smoothed", "reverse-pagerank"]);
    assert_eq!(names[5..], ["weighted-reverse-pagerank", "inclusion", "random", "hindsight"]);
}

#[test]
fn other_names_are_refused_with_a_list() {
    let refused = |text: &str, expected: &str| {
        let error = text.parse::<PolicyKind>().expect_err("refused").to_string();
        assert!(error.starts_with(&format!("{text:?}: ")) && error.contains(expected), "{error}");
    };
    let all = "in-degree, out-degree, presample, smoothed, reverse-pagerank, weighted-reverse-pagerank, inclusion, \
               random, hindsight, or presample:K or smoothed:K";
    refused("degree", all);
    refused("", all);
    refused("In-Degree", all);
    refused("presample:0", "\"0\" is no number of epochs; give presample:K");
    refused("smoothed:0", "\"0\" is no number of epochs; give smoothed:K");
    refused("presample:", "\"\" is no number of epochs");
    refused("presample:two", "\"two\" is no number of epochs");
    refused("inclusion:2", "the policy has no parameter; give inclusion");
}

#[test]
fn policies_by_name_are_those_of_the_types() {
    let graph = graph(7, &[(0, 1), (2, 1), (2, 1), (3, 2), (1, 4), (5, 4), (5, 5)]);
    let (seeds, settings) = ([1, 4], settings("2,2", 1));
    let named = |name: &str| {
        let kind: PolicyKind = name.parse().expect("a policy");
        kind.policy(9).map(|policy| policy.score(&graph, &seeds, &settings).expect("scores"))
    };
    let check = |name: &str, policy: &dyn Policy| {
        assert_eq!(named(name), Some(policy.score(&graph, &seeds, &settings).expect("scores")), "{name}");
    };
    check("in-degree", &InDegree);
    check("out-degree", &OutDegree);
    check("reverse-pagerank", &ReversePageRank::default());
    check("weighted-reverse-pagerank", &WeightedReversePageRank::default());
    check("inclusion", &Inclusion);
    check("random", &Random { seed: 9 });
    assert_eq!((named("presample"), named("presample:4"), named("hindsight")), (None, None, None));
}

#[test]
fn cache_policies_are_read_as_they_are_written() {
    let kinds = PolicyKind::ALL.into_iter().filter(|kind| *kind != PolicyKind::Hindsight).map(CachePolicy::By);
    let two = CachePolicy::By("presample:2".parse().expect("a policy"));
    for policy in kinds.chain([CachePolicy::Auto, CachePolicy::None, CachePolicy::Lru, CachePolicy::Sieve, two]) {
        assert_eq!(policy.to_string().parse::<CachePolicy>().expect("a policy"), policy);
        let json = serde_json::to_value(policy).expect("text");
        assert_eq!(json, policy.to_string());
        assert_eq!(serde_json::from_value::<CachePolicy>(json).expect("a policy"), policy);
    }
    let refused = |text: &str, expected: &str| {
        let error = text.parse::<CachePolicy>().expect_err("refused").to_string();
        assert!(error.starts_with(&format!("{text:?}: ")) && error.contains(expected), "{error}");
    };
    let all = "give auto, none, lru, sieve, in-degree, out-degree, presample, smoothed, reverse-pagerank, \
               weighted-reverse-pagerank, inclusion, random, or presample:K or smoothed:K";
    refused("degree", all);
    refused("", all);
    refused("hindsight", "counts the epochs that are trained");
    refused("auto:1", "give auto");
    refused("none:1GiB", "give none");
    refused("presample:0", "\"0\" is no number of epochs");
    refused("inclusion:2", "the policy has no parameter");
}
