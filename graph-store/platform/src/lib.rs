#![doc = include_str!("../README.md")]

pub mod direct;
pub mod philox;

mod dispatch;
mod input;
mod limits;
mod lock;
mod pages;
mod prefetch;
mod replace;
mod simd_level;
mod splitmix;
mod text;

pub use input::{HeldDir, is_at, open_regular};
pub use limits::{limit_cure, peak_memory, system_memory};
pub use lock::lock_holder;
pub use pages::{PagePool, Pages, SmallPages};
pub use prefetch::{CACHE_LINE, prefetch, prefetch_early, prefetch_line, prefetch_line_early};
pub use replace::{Replacement, ReplacementDir, discard_unfinished, replace_file, sync_dir};
pub use simd_level::{ISA_VARIABLE, SimdLevel, UnavailableLevel};
pub use splitmix::{SPLITMIX_STEP, splitmix64};
pub use text::{BYTE_ORDER_MARK, bounded_text, excerpt, read_text, text};
