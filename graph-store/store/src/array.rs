//! What the elements of stored arrays can be.

use std::fmt;

use half::{bf16, f16};
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
