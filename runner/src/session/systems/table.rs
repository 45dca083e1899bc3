//! The table of systems.

use super::{By, Steps, System};

const fn route(sampling: By, gathering: By) -> Steps {
    Steps::OneRoute { sampling, gathering }
}

const PLAIN: System = System {
    name: "",
    title: "",
    paper: "",
    does: "",
    steps: route(By::Host, By::Host),
    plan: "pipeline",
    buffer: None,
    cache: None,
    shares: None,
    differs: "",
};

/// The systems, in the order in which they are listed.
pub(crate) const SYSTEMS: &[System] = &[
    System {
        name: "dgl",
        title: "DGL by time-sharing",
        paper: "GNNLab (the survey, VI-E, the baseline DGL)",
        does: "Each device samples and trains in turn, the host extracts the features of what was sampled, and nothing is cached.",
        steps: route(By::Device, By::Host),
        plan: "sequential",
        cache: Some("none"),
        differs: "The plan is that of one device; DGL trains on each with its own mini-batches. Stages follow each other strictly. \
                  A topology that the device cannot hold is read from the host's memory, where DGL ends.",
        ..PLAIN
    },
    System {
        name: "dgl-uva",
        title: "DGL with UVA",
        paper: "DUCATI (the survey, VII-C, the baseline DGL)",
        does: "The device samples and gathers from the host's memory by zero-copy reads, and nothing is cached.",
        steps: route(By::Device, By::Device),
        plan: "device",
        cache: Some("none"),
        differs: "A topology that the device can hold lies in its memory. The next mini-batch's sampling may overlap training as the \
                  planner has it.",
        ..PLAIN
    },
    System {
        name: "naive-pipeline",
        title: "the naive pipeline",
        paper: "MorphGL, IV-B3, extreme cases",
        does: "The host batches, the link transfers and the device trains, each a mini-batch of its own at the same time.",
        buffer: Some(1),
        differs: "The paper names it without buffers or numbers of workers: here one mini-batch is ready while one is trained, and \
                  the planner chooses the workers.",
        ..PLAIN
    },
    System {
        name: "salient",
        title: "SALIENT",
        paper: "MorphGL, II-B, Category I",
        does: "Threads of the host sample and gather mini-batches into pinned memory, from which they are copied by DMA while the \
               device trains.",
        differs: "The number of workers is the planner's, and the samplers are ours; SALIENT's hash tables and its C++ worker \
                  threads are not reproduced.",
        ..PLAIN
    },
    System {
        name: "pytorch-direct",
        title: "PyTorch-Direct",
        paper: "Min et al. (the survey, V)",
        does: "The host samples, and the device gathers the features from the host's memory by aligned zero-copy reads.",
        steps: route(By::Host, By::Device),
        cache: Some("none"),
        differs: "Whole lines of 128 bytes are read in place of the circular shift, by streams of one process in place of processes \
                  under MPS.",
        ..PLAIN
    },
    System {
        name: "pagraph",
        title: "PaGraph",
        paper: "Lin et al. (NeutronOrch, 3.1, Case 3; Data Tiering, 5)",
        does: "The host samples, and the device gathers: the rows of the nodes of highest out-degree from a static cache, the others \
               from the host.",
        steps: route(By::Host, By::Device),
        cache: Some("out-degree"),
        differs: "Rows that the cache misses are read by the device; in PaGraph the host collects and copies them. The size of the \
                  cache is the planner's. The graph is not partitioned.",
        ..PLAIN
    },
    System {
        name: "gnnlab",
        title: "GNNLab",
        paper: "Yang et al. (the survey, VI-B)",
        does: "Some devices sample, the others gather through a cache filled by pre-sampling, and train; a global queue links them.",
        steps: Steps::Roles,
        plan: "factored",
        cache: Some("presample:1"),
        differs: "Every mini-batch is one step of all trainers, divided by seeds, exact unless --allow-staleness bounds how stale gradients \
                  may be; GNNLab's trainers take whole ones, with bounded staleness. The number of samplers is searched from GNNLab's \
                  formula on. A topology that a sampler cannot hold is read from the host's memory.",
        ..PLAIN
    },
    System {
        name: "ducati",
        title: "DUCATI",
        paper: "Zhang et al. (the survey, VII; MorphGL, II-C, Category II)",
        does: "The device samples and gathers by zero-copy reads, through a cache of adjacency lists and one of feature rows that \
               divide one budget of its memory.",
        steps: route(By::Device, By::Device),
        plan: "device",
        differs: "The caches are those that operators have by default: ranked by pre-sampling, and divided by measured seconds with \
                  the plan. MorphGL's Table I calls Category II sequential; here phases overlap where the device allows it.",
        ..PLAIN
    },
    System {
        name: "unified-static",
        title: "the Unified CPU-GPU protocol with static load balancing",
        paper: "Unified CPU-GPU protocol, 3 and 4.2",
        does: "Host and devices train together, each a part of the work in proportion to its speed before training.",
        steps: Steps::Together,
        plan: "unified",
        shares: Some("static"),
        differs: "Each mini-batch is divided by seeds, where the protocol deals out whole ones. Every trainer has the routes and \
                  cores that are planned for it. Devices have no LRU cache. A trainer that does not shorten the epoch is left out.",
        ..PLAIN
    },
    System {
        name: "neutronorch-case-1",
        title: "NeutronOrch's Case 1",
        paper: "NeutronOrch, 3.1, Case 1 (DGL)",
        does: "The host samples and gathers, the device trains, in a pipeline.",
        differs: "As `salient`: the samplers are ours, and DGL's processes that hand over mini-batches are not reproduced.",
        ..PLAIN
    },
    System {
        name: "neutronorch-case-2",
        title: "NeutronOrch's Case 2",
        paper: "NeutronOrch, 3.1, Case 2 (DGL-UVA)",
        does: "The device samples, the host gathers for it, and the device trains, in a pipeline.",
        steps: route(By::Device, By::Host),
        plan: "device",
        cache: Some("none"),
        differs: "A topology that the device can hold lies in its memory. Sampling and training take turns on the device; that \
                  kernels of both slow each other down is not predicted.",
        ..PLAIN
    },
    System {
        name: "neutronorch-case-3",
        title: "NeutronOrch's Case 3",
        paper: "NeutronOrch, 3.1, Case 3 (PaGraph)",
        does: "The host samples, the device gathers through a cache by degree and trains, in a pipeline.",
        steps: route(By::Host, By::Device),
        cache: Some("out-degree"),
        differs: "As `pagraph`.",
        ..PLAIN
    },
    System {
        name: "neutronorch-case-4",
        title: "NeutronOrch's Case 4",
        paper: "NeutronOrch, 3.1, Case 4 (GNNLab on one device)",
        does: "The device samples, gathers through a cache filled by pre-sampling, and trains, in a pipeline.",
        steps: route(By::Device, By::Device),
        plan: "device",
        cache: Some("presample:1"),
        differs: "As `neutronorch-case-2`; and `--cache` fills the cache of adjacency lists too, where the topology is not on the device.",
        ..PLAIN
    },
];
