//! The exact set of operators this build is linked with: a crate that is no longer named vanishes without a word.

#[test]
fn the_registered_keys_are_these() {
    let registry = morphgl::registry().expect("no key twice");
    let keys: Vec<String> = registry.status().iter().map(|s| s.description.key.to_string()).collect();
    let cpu = ["Batching_CPU_Neighbor", "Transferring_CPU_Host", "Training_CPU_Burn"];
    assert_eq!(keys, if cfg!(feature = "cpu") { cpu.to_vec() } else { Vec::new() });
    assert_eq!(registry.routes().len(), usize::from(cfg!(feature = "cpu")));
}
