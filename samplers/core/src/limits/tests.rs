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
    check(|s| s.fanouts.0.clear(), "fanouts: there is none");
    check(|s| s.fanouts.0 = vec![Fanout::All; 64], "");
    check(|s| s.fanouts.0 = vec![Fanout::All; 65], "fanouts: 65 hops");
    check(|s| s.batch_size = 0, "batch size: ");
    check(|s| s.pick = Pick::Weighted, "weighted pick: the graph has no edge weights");
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
    let fanouts = format!("{}", MAX_FANOUT + 1).parse().expect("a fanout");
    let settings = SamplerSettings { fanouts, ..Default::default() };
    assert!(check_settings(&hub(u64::from(MAX_FANOUT) + 1), &seeds, &settings).is_ok());
    let error = check_settings(&hub(u64::from(MAX_FANOUT) + 2), &seeds, &settings).expect_err("draws overflow");
    assert!(error.to_string().contains("65537 is more than 65536 draws"), "{error}");
}
