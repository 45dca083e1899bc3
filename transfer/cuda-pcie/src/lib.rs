#![doc = include_str!("../README.md")]

mod cache;
mod counting;
mod disk;
mod dma;
mod dma_gather;
mod gather;
mod given;
mod host_gather;
mod options;
mod peer_copy;
mod pool;
mod ranking;
mod replication;
mod rows;
mod shared;
mod zero_copy;

pub use disk::HOST_ROWS;
pub use dma::PcieDma;
pub use dma_gather::DmaGather;
pub use gather::Gather;
pub use host_gather::{HOST_GATHER, HOST_GATHER_KEY, HostGather};
pub use peer_copy::{PEER_COPY, PEER_COPY_KEY, PeerCopy};
pub use rows::PAGE_ORDERED_ROWS;
pub use zero_copy::ZeroCopy;

use morphgl_cuda::{BACKEND, CUDA, Staging, accelerators, probe};
use morphgl_registry::{
    At, Build, CACHE_HITS, CACHE_REQUESTS, DISK_BYTES, DISK_READS, Description, Hardware, Key, LINK_BYTES, Phase,
    Resource,
};

const HARDWARE: Hardware = Hardware::new(&[CUDA, Resource::PCIE]);

/// Name of the copy by the device's copy engine: `Transferring_PCIe_Dma`.
pub const DMA_KEY: Key = Key::new(Phase::Transferring, Hardware::new(&[Resource::PCIE]), "Dma");
/// Name of the gather for mini-batches of the device: `Transferring_CUDA+PCIe_ZeroCopy`.
pub const ZERO_COPY_KEY: Key = Key::new(Phase::Transferring, HARDWARE, "ZeroCopy");
/// Name of the copy and gather for mini-batches of the host: `Transferring_CUDA+PCIe_DmaGather`.
pub const DMA_GATHER_KEY: Key = Key::new(Phase::Transferring, HARDWARE, "DmaGather");

/// The copy by the device's copy engine.
pub const DMA: Description = Description::new(
    DMA_KEY,
    "copies mini-batches to a CUDA device through pinned memory, with its copy engine",
    At::Host,
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(PcieDma::new(context)?))),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.with_options(&[Staging::DEPTH])
.with_counters(&[LINK_BYTES])
.taking_given_rows();

/// The gather for mini-batches of the device.
pub const ZERO_COPY: Description = Description::new(
    ZERO_COPY_KEY,
    "gathers features by a CUDA device, hot rows from its memory or its peers', the others directly from the host's",
    At::Device(BACKEND),
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(ZeroCopy::new(context)?))),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.with_options(&options::SPECS)
.with_counters(&[LINK_BYTES, CACHE_REQUESTS, CACHE_HITS, PAGE_ORDERED_ROWS])
.taking_given_rows();

/// The copy and gather for mini-batches of the host.
pub const DMA_GATHER: Description = Description::new(
    DMA_GATHER_KEY,
    "copies mini-batches without features to a CUDA device, which gathers their features as ZeroCopy does",
    At::Host,
    At::Device(BACKEND),
    Build::Transferring(|context| Ok(Box::new(DmaGather::new(context)?))),
)
.taking_pairs()
.with_probe(probe)
.with_accelerators(accelerators)
.queueing()
.gathering_features()
.with_options(&options::STAGED_SPECS)
.with_counters(&[LINK_BYTES, CACHE_REQUESTS, CACHE_HITS, PAGE_ORDERED_ROWS, HOST_ROWS, DISK_READS, DISK_BYTES])
.taking_given_rows();

morphgl_cuda::module! {
    /// Gathers rows, puts them in order, and counts accesses.
    static KERNELS = "kernels/gather.cu" {
        gather_rows_1, gather_rows_2, gather_rows_4, gather_rows_8, gather_rows_16,
        gather_short_rows_8, gather_short_rows_16, gather_naive_rows_1, gather_naive_rows_2, gather_naive_rows_4,
        gather_order_count, gather_order_scan, gather_order_place, gather_count, gather_hits
    }
}
