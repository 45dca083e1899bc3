//! The operator crates this build is linked with: one line each.
//!
//! A dependency that is never named is silently not linked, and its operators are not registered;
//! `tests/operators.rs` asserts the exact set of keys.

#[cfg(feature = "cpu")]
use morphgl_batching_cpu as _;
#[cfg(feature = "cpu")]
use morphgl_batching_disk_neighbor as _;
#[cfg(feature = "cpu")]
use morphgl_training_cpu_burn as _;
#[cfg(feature = "cpu")]
use morphgl_training_cpu_native as _;
#[cfg(feature = "cpu")]
use morphgl_transferring_cpu_host as _;

use morphgl_batching_sim_neighbor as _;
use morphgl_training_sim_ledger as _;
use morphgl_transferring_sim_copy as _;

#[cfg(feature = "cuda")]
use morphgl_batching_cuda_neighbor as _;
#[cfg(feature = "cuda")]
use morphgl_training_cuda_native as _;
#[cfg(feature = "cuda")]
use morphgl_transferring_cuda as _;
