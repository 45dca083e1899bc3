//! Atomics and locks of the dynamic cache; its model test puts those of loom in their place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
