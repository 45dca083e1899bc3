#![doc = include_str!("../README.md")]

mod buffer;
mod engine;
mod file;
mod plan;
mod pool;
mod reader;
#[cfg(target_os = "linux")]
mod ring;

pub use engine::{Method, ring_refused};
pub use file::DirectFile;
pub use plan::Want;
pub use reader::{Reader, Settings, Stats};
