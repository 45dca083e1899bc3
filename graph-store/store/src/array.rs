//! A read-only array that lies in memory or in a mapped file, and does not tell which.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use half::{bf16, f16};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};

/// Element type of a stored array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "each variant is the type of its name")]
pub enum Dtype {
    U8,
    U32,
    U64,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    /// Bytes an element takes.
    pub const fn size(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
            Dtype::U64 | Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// The descriptor numpy uses. numpy has no bf16: its bits are stored as `<u2`, and `graph.json` says what they are.
    pub const fn npy_descr(self) -> &'static str {
        match self {
            Dtype::U8 => "|u1",
            Dtype::U32 => "<u4",
            Dtype::U64 => "<u8",
            Dtype::I32 => "<i4",
            Dtype::I64 => "<i8",
            Dtype::F16 => "<f2",
            Dtype::Bf16 => "<u2",
            Dtype::F32 => "<f4",
            Dtype::F64 => "<f8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::U8 => "u8",
            Dtype::U32 => "u32",
            Dtype::U64 => "u64",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
        })
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        [Dtype::U8, Dtype::U32, Dtype::U64, Dtype::I32, Dtype::I64, Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64]
            .into_iter()
            .find(|d| d.to_string() == s)
            .ok_or_else(|| {
                format!("unknown element type {s:?}; use one of f32, f16, bf16, u8, u32, u64, i32, i64, f64")
            })
    }
}

/// A plain number that may be an array element.
pub trait Element: bytemuck::Pod + fmt::Debug + PartialEq + Send + Sync {
    /// Its stored type.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: Dtype = Dtype::$d; })* };
}
elements!(u8 => U8, u32 => U32, u64 => U64, i32 => I32, i64 => I64, f16 => F16, bf16 => Bf16, f32 => F32, f64 => F64);

/// A shared read-only array in RAM or in a mapped file; dereferences to a slice, clones in O(1).
#[derive(Clone)]
pub struct Array<T: Element>(Storage<T>);

#[derive(Clone)]
enum Storage<T> {
    Ram(Arc<Vec<T>>),
    // Invariant: `map[offset..offset + len * size_of::<T>()]` exists and is aligned for `T`; checked in `from_map`.
    Map { map: Arc<Mmap>, offset: usize, len: usize },
}

impl<T: Element> Array<T> {
    /// Views `len` elements of a mapped file from byte `offset`; `None` when they do not fit or are misaligned.
    pub(crate) fn from_map(map: Arc<Mmap>, offset: usize, len: usize) -> Option<Self> {
        let end = len.checked_mul(size_of::<T>())?.checked_add(offset)?;
        bytemuck::try_cast_slice::<u8, T>(map.get(offset..end)?).ok()?;
        Some(Self(Storage::Map { map, offset, len }))
    }

    /// Whether the elements lie in a mapped file.
    pub fn is_mapped(&self) -> bool {
        matches!(self.0, Storage::Map { .. })
    }
}

impl<T: Element> From<Vec<T>> for Array<T> {
    fn from(values: Vec<T>) -> Self {
        Self(Storage::Ram(Arc::new(values)))
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Storage::Ram(values) => values,
            Storage::Map { map, offset, len } => bytemuck::cast_slice(&map[*offset..*offset + len * size_of::<T>()]),
        }
    }
}

impl<T: Element> PartialEq for Array<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_mapped() { "mmap" } else { "RAM" };
        write!(f, "[{}; {}] in {place}", T::DTYPE, self.len())
    }
}
