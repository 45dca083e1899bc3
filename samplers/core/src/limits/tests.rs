use std::str::FromStr;

use morphgl_registry::Fanouts;

use super::*;

#[track_caller]
fn check(change: impl FnOnce(&mut SamplerSettings), expected: &str) {
    let topology = Topology::new(vec![0u64, 1, 2], vec![1u32, 0], None).expect("two nodes, each the other's");
    let seeds = SeedSet::new("seeds", &[0, 1], 2).expect("both nodes");
    let mut settings = SamplerSettings::default();
    change(&mut settings);
    let message = check_settings(&topology, &seeds, &settings).map_err(|e| e.to_string());
    match message {
        Ok(()) => assert_eq!("", expected),
        Err(message) => assert!(message.starts_with(expected) && !expected.is_empty(), "{message}"),
    }
}

#[test]
fn each_impossible_setting_is_named() {
    check(|_| (), "");
    let neighbor = |fanouts: Vec<Fanout>| move |s: &mut SamplerSettings| *s = Fanouts(fanouts).into();
    check(neighbor(Vec::new()), "fanouts: there is none");
    check(neighbor(vec![Fanout::All; 64]), "");
    check(neighbor(vec![Fanout::All; 65]), "fanouts: 65 hops");
    check(|s| s.batch_size = 0, "batch size: ");
    let weighted = NeighborSettings { pick: Pick::Weighted, ..Default::default() };
    check(|s| s.sampling = Sampling::Neighbor(weighted), "weighted pick: the graph has no edge weights");
}

#[test]
fn impossible_settings_of_other_kinds_are_named() {
    let shadow = |layers| {
        move |s: &mut SamplerSettings| {
            s.sampling = Sampling::Shadow(ShadowSettings { hops: NeighborSettings::default(), layers });
        }
    };
    check(shadow(5), "");
    check(shadow(0), "layers: 0 blocks");
    check(shadow(65), "layers: 65 blocks");
    let walk = |change: fn(&mut WalkSettings)| {
        move |s: &mut SamplerSettings| {
            let mut walk = WalkSettings::of_layers(2);
            change(&mut walk);
            s.sampling = Sampling::Walk(walk);
        }
    };
    check(walk(|_| ()), "");
    check(walk(|w| w.walks = 0), "walks: 0 walks of 3 steps");
    check(walk(|w| (w.walks, w.length) = (1 << 9, (1 << 7) + 1)), "walks: 512 walks of 129 steps");
    check(walk(|w| w.restart = f64::NAN), "restart: NaN");
    check(walk(|w| w.restart = 1.5), "restart: 1.5");
    check(walk(|w| w.neighbors = 0), "neighbors: 0");
    check(walk(|w| w.layers = 0), "layers: 0");
}

#[test]
fn seeds_of_a_larger_graph_are_refused() {
    let topology = Topology::new(vec![0u64, 0], Vec::<u32>::new(), None).expect("one node");
    let seeds = SeedSet::new("seeds", &[0, 1], 2).expect("two nodes");
    let error = check_settings(&topology, &seeds, &SamplerSettings::default()).expect_err("node 1 does not exist");
    assert!(error.to_string().starts_with("seeds: node 1 does not exist"), "{error}");
}

#[test]
fn a_fanout_beyond_the_counter_is_refused_where_it_would_draw() {
    let hub = |degree: u64| Topology::new(vec![0, degree], vec![0u32; degree as usize], None).expect("loops");
    let seeds = SeedSet::new("seeds", &[0], 1).expect("the node");
    let fanouts = format!("{}", MAX_FANOUT + 1);
    let settings = SamplerSettings::from(Fanouts::from_str(&fanouts).expect("a fanout"));
    assert!(check_settings(&hub(u64::from(MAX_FANOUT) + 1), &seeds, &settings).is_ok());
    let error = check_settings(&hub(u64::from(MAX_FANOUT) + 2), &seeds, &settings).expect_err("draws overflow");
    assert!(error.to_string().contains("65537 is more than 65536 draws"), "{error}");
}
