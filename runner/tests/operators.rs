//! The exact set of linked operators: a crate that is not named is silently not linked.

use morphgl_platform::SimdLevel;

#[test]
fn the_registered_keys_are_these() {
    let context = morphgl::RunContext::new().expect("no key twice");
    let registry = context.registry();
    let mut keys: Vec<String> = registry.status().iter().map(|s| s.description.key.to_string()).collect();
    let mut wanted: Vec<&str> = Vec::new();
    if cfg!(feature = "cpu") {
        wanted.extend([
            "Batching_CPU_Neighbor",
            "Batching_CPU_Shadow",
            "Batching_CPU_Typed",
            "Batching_CPU_Walk",
            "Batching_CPU+Disk_Neighbor",
            "Batching_CPU+Disk_Typed",
        ]);
        wanted.extend(["Transferring_CPU_Host", "Training_CPU_Burn", "Training_CPU_Native", "Training_CPU_NativeAmx"]);
    }
    wanted.extend(["Batching_CPU_SimNeighbor", "Batching_PCIe+SIM_Neighbor"]);
    wanted.extend(["Transferring_CPU_SimHost", "Transferring_PCIe+SIM_SimGather", "Transferring_PCIe_SimDma"]);
    wanted.extend(["Training_CPU_SimLedger", "Training_SIM_Ledger"]);
    wanted.extend(["Transferring_PCIe+Peer+SIM_SimCopy", "Transferring_CPU+PCIe_SimHostGather"]);
    wanted.extend(["Transferring_PCIe+SIM_SimDmaGather"]);
    if cfg!(feature = "cuda") {
        wanted.extend(["Batching_CUDA+PCIe_Neighbor", "Batching_CUDA+PCIe_Shadow"]);
        wanted.extend(["Batching_CUDA+PCIe_Typed", "Batching_CUDA+PCIe_Walk"]);
        wanted.extend(["Training_CUDA_Native", "Transferring_PCIe_Dma"]);
        wanted.extend(["Transferring_CUDA+PCIe_DmaGather", "Transferring_CUDA+PCIe_ZeroCopy"]);
        wanted.extend(["Transferring_CUDA+PCIe+Peer_Copy", "Transferring_CPU+PCIe_HostGather"]);
    }
    wanted.sort_unstable();
    keys.sort_unstable();
    assert_eq!(keys, wanted);
    // Without MORPHGL_SIM there is no simulated accelerator, and no route to it. On the CPU there is a
    // route from each of the six samplers to each trainer.
    let trainers = 2 + usize::from(SimdLevel::current() == SimdLevel::Amx);
    assert_eq!(registry.routes().len(), if cfg!(feature = "cpu") { 6 * trainers } else { 0 });
}
