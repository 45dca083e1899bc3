//! Element types of stored arrays.

use std::fmt;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// A plain number that may be an array element.
pub trait Element: bytemuck::Pod + fmt::Debug + PartialEq + Send + Sync {
    /// Its stored type.
    const DTYPE: Dtype;
}

/// Defines [`Dtype`]: variant, element type, name, and numpy's descriptor.
macro_rules! dtypes {
    ($($variant:ident: $element:ty, $name:literal, $descr:literal;)*) => {
        /// Element type of a stored array.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        #[allow(missing_docs, reason = "each variant is the type of its name")]
        pub enum Dtype {
            $($variant),*
        }

        impl Dtype {
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),*];

            /// Bytes of an element.
            pub const fn size(self) -> usize {
                match self {
                    $(Self::$variant => size_of::<$element>()),*
                }
            }

            /// The descriptor numpy uses. numpy has no bf16: its bits are stored as `<u2`, and `graph.json` records the type.
            pub const fn npy_descr(self) -> &'static str {
                match self {
                    $(Self::$variant => $descr),*
                }
            }

            /// The type of numpy's descriptor; `<u2` is that of bf16.
            pub(crate) fn of_npy(descr: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|d| d.npy_descr() == descr)
            }

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),*
                }
            }
        }

        $(impl Element for $element {
            const DTYPE: Dtype = Dtype::$variant;
        })*
    };
}

dtypes! {
    U8: u8, "u8", "|u1";
    U32: u32, "u32", "<u4";
    U64: u64, "u64", "<u8";
    I32: i32, "i32", "<i4";
    I64: i64, "i64", "<i8";
    F16: f16, "f16", "<f2";
    Bf16: bf16, "bf16", "<u2";
    // After bf16, which stands for numpy's "<u2" where nothing else tells them apart.
    U16: u16, "u16", "<u2";
    F32: f32, "f32", "<f4";
    F64: f64, "f64", "<f8";
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Dtype {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|d| d.name() == s).ok_or_else(|| {
            format!("unknown element type {s:?}; use one of f32, f16, bf16, u8, u16, u32, u64, i32, i64, f64")
        })
    }
}
