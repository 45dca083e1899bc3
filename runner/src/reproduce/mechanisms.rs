//! Systems and mechanisms of the papers, and where ours are.

/// A mechanism of a paper.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mechanism {
    pub(crate) name: &'static str,
    /// Paper and section.
    pub(crate) paper: &'static str,
    pub(crate) code: &'static [&'static str],
    /// What it runs on, and how it differs.
    pub(crate) ours: &'static str,
}

const fn m(name: &'static str, paper: &'static str, code: &'static [&'static str], ours: &'static str) -> Mechanism {
    Mechanism { name, paper, code, ours }
}

pub(crate) const MECHANISMS: &[Mechanism] = &[
    m("Operators by phase and hardware", "MorphGL, Table III", &["registry/src/key.rs"], "CPU, CUDA, simulated"),
    m("Profiler", "MorphGL, IV-B1", &["sched/profile/src/measure.rs"], "CPU, CUDA"),
    m(
        "Partitioner, Equation 6",
        "MorphGL, IV-B2",
        &["sched/plan/src/paper.rs"],
        "strategy `paper`; CPU and device plans",
    ),
    m(
        "Dual-Buffer Scheduling, Algorithms 1 to 4",
        "MorphGL, IV-B3",
        &["sched/plan/src/policy/dual_buffer.rs"],
        "a policy among others; strategy `interleaved` is ours",
    ),
    m(
        "Performance model",
        "MorphGL, IV-B3",
        &["sched/plan/src/simulate.rs"],
        "the simulator; the executor follows its order",
    ),
    m("Executor", "MorphGL, IV-B4", &["sched/execute/src/executor.rs"], "CPU, CUDA, simulated"),
    m(
        "SALIENT: batching by the host, pipelined",
        "MorphGL, II-B",
        &["samplers/cpu/src/neighbor.rs"],
        "strategy `pipeline`",
    ),
    m(
        "Zero-copy gather, aligned and shifted",
        "PyTorch-Direct (the survey, V)",
        &["transfer/cuda-pcie/src/zero_copy.rs", "caches/tiering/src/requests.rs"],
        "CUDA; requests by an exact model",
    ),
    m(
        "Few multiprocessors for zero-copy",
        "PyTorch-Direct (the survey, V-C)",
        &["transfer/cuda-pcie/src/options.rs"],
        "option `lines`: lines in flight in place of MPS",
    ),
    m("Factored roles of devices", "GNNLab (the survey, VI-B)", &["sched/plan/src/roles.rs"], "planned, simulated"),
    m(
        "Number of samplers, dynamic switching",
        "GNNLab (the survey, VI-B)",
        &["sched/plan/src/roles.rs"],
        "planned, simulated",
    ),
    m(
        "Sampling on one device, training on another",
        "GNNLab (the survey, VI-B)",
        &["transfer/cuda-pcie/src/peer_copy.rs"],
        "CUDA; run on emulated devices alone",
    ),
    m(
        "Asynchronous gradients of bounded staleness",
        "GNNLab (the survey, VI-B)",
        &["models/group/src/stale.rs"],
        "`--plan factored --allow-staleness`: every share and step checks the bound",
    ),
    m(
        "Pre-sampling (PreSC#K)",
        "GNNLab (the survey, VI-B3)",
        &["caches/hotness/src/presample.rs"],
        "policy `presample:K`; `smoothed:K` adds a prior",
    ),
    m("Static cache of feature rows", "GNNLab; PaGraph", &["transfer/cuda-pcie/src/cache.rs"], "CUDA"),
    m(
        "Cache of adjacency lists",
        "DUCATI (the survey, VII)",
        &["caches/rows/src/adjacency.rs"],
        "CUDA; run on emulated devices alone",
    ),
    m(
        "Dual-cache allocator",
        "DUCATI (the survey, VII)",
        &["caches/dual/src/allocate.rs"],
        "CUDA; with the plan, by measured seconds",
    ),
    m("Slopes of the benefit", "DUCATI (the survey, VII)", &["caches/dual/src/slopes.rs"], "measured by the operators"),
    m("Reverse PageRank, weighted", "Data Tiering, 3.1", &["caches/hotness/src/page_rank.rs"], "any machine"),
    m("Reordering of the graph", "Data Tiering, 3.2", &["caches/tiering/src/reorder.rs"], "`morphgl reorder`"),
    m(
        "Tiers: device, peers, host, disk",
        "Data Tiering, 4",
        &["caches/tiering/src/tiers.rs", "transfer/cuda-pcie/src/pool.rs"],
        "CUDA; peers run on emulated devices alone",
    ),
    m(
        "Trainers on CPU and devices together",
        "Unified CPU-GPU protocol, 3",
        &["models/group/src/lib.rs", "runner/src/unified.rs"],
        "`--plan unified`",
    ),
    m(
        "Dynamic load balancer",
        "Unified CPU-GPU protocol, 4.2",
        &["models/group/src/lib.rs"],
        "`--shares balanced`: by work and measured speed, within each mini-batch",
    ),
    m(
        "LRU cache on the device",
        "Unified CPU-GPU protocol, 4.3",
        &["caches/rows/src/cache.rs"],
        "host and disk; devices have static caches",
    ),
    m("ShaDow sampling", "Unified CPU-GPU protocol, 2.2", &["samplers/cpu/src/shadow.rs"], "CPU, CUDA"),
    m("Layer split", "NeutronOrch, 4.2.1", &["models/layer-split/src/lib.rs"], "CPU"),
    m(
        "Hot embeddings with bounded staleness",
        "NeutronOrch, 4.2.2",
        &["caches/embedding/src/cache.rs"],
        "every read checks the bound",
    ),
    m("Super-batches", "NeutronOrch, 4.3", &["sched/plan/src/layer_split.rs"], "planned and executed"),
    m("Adaptive hot ratio", "NeutronOrch, 4.3.1", &["sched/plan/src/layer_split/ratio.rs"], "the law is ours"),
];
