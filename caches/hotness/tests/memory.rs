//! Scoring a graph that is scanned from disk takes the memory that `PolicyKind::bytes_per_node` says, and that budgets
//! rely on.

mod common;
#[path = "../../../fuzz/src/counting.rs"]
mod counting;

use std::sync::atomic::Ordering::Relaxed;

use common::{Scanned, graph, sampler, settings};
use counting::{NOW, PEAK};
use morphgl_hotness::{Hindsight, Policy, PolicyKind};
use morphgl_registry::{Expansion, SamplerSettings, Sampling};

const NODES: usize = 1 << 20;
/// Threads, and a sampler's buffers.
const BESIDE: usize = NODES / 2;

#[track_caller]
fn check(kind: PolicyKind, policy: &dyn Policy, scanned: &Scanned<'_>, settings: &SamplerSettings) {
    PEAK.store(NOW.load(Relaxed), Relaxed);
    let before = NOW.load(Relaxed);
    let hotness = policy.score(scanned, &[7, 100], settings).expect("scores");
    let (peak, said) = (PEAK.load(Relaxed) - before, kind.bytes_per_node(settings) as usize * NODES);
    assert!(said <= peak && peak < said + BESIDE, "{kind}: {peak} bytes, not {said}");
    assert_eq!(hotness.features.len(), NODES);
}

/// One test, since the counters are the process's.
#[test]
fn scores_take_the_bytes_a_node_that_they_say() {
    let edges: Vec<(u32, u32)> = (0..2000).map(|i| (i * 31 % 1000, i)).collect();
    let graph = graph(NODES, &edges);
    let scanned = Scanned(&graph);
    let all = settings("3,2", 1);
    let mut new = all.clone();
    if let Sampling::Neighbor(hops) = &mut new.sampling {
        hops.expansion = Expansion::New;
    }
    let batching = sampler(&graph, &[7, 100], &all);
    for kind in PolicyKind::ALL {
        match kind.policy(1) {
            Some(policy) => [&all, &new].into_iter().for_each(|settings| check(kind, &*policy, &scanned, settings)),
            None if kind == PolicyKind::Hindsight => {
                check(kind, &Hindsight { batching: &batching, epochs: 0..1, threads: 1 }, &scanned, &all);
            }
            None => {
                let policy = kind.policy_of(1, &batching, 1).expect("a policy that counts");
                check(kind, &*policy, &scanned, &all);
            }
        }
    }
}
