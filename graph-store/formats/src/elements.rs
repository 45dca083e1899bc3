//! numpy's element types, and decoding their bytes into the few types a dataset is made of.

use half::f16;
use morphgl_graph_store::Dtype;

/// A parsed value, or the fault; the caller knows the position.
pub(crate) type Parsed<T> = Result<T, String>;

/// Cure for elements that are intact but unsuitable.
pub(crate) const OTHER_ELEMENTS: &str = "correct the array and save it again";

/// Kind of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    Object,
    /// Bytes, text, dates: skipped, never decoded.
    Other,
}

/// Element type of a numpy array as a header or a pickle names it, such as `<i8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ElementType {
    pub(crate) kind: Kind,
    /// Bytes of an element.
    pub(crate) size: usize,
    pub(crate) big: bool,
}

/// Evaluates an expression for each element, by the group of its type.
macro_rules! decode {
    ($self:ident, $bytes:ident, $expected:literal, $v:ident, $([$($kind:ident $t:ident),*] => $each:expr),*) => {
        match ($self.kind, $self.size) {
            $($((Kind::$kind, size) if size == size_of::<$t>() => {
                for bytes in $bytes.chunks_exact(size_of::<$t>()) {
                    let bytes = bytes.try_into().expect("chunks_exact gives whole elements");
                    let $v = if $self.big { $t::from_be_bytes(bytes) } else { $t::from_le_bytes(bytes) };
                    $each;
                }
                Ok(())
            })*)*
            _ => Err(format!("elements of type {}, expected {}", $self.name(), $expected)),
        }
    };
}

impl ElementType {
    /// Reads `<i8`, `|b1`, `f4`; `None` for structured, unsized or unknown types.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (big, rest) = match text.as_bytes().first()? {
            b'<' | b'|' | b'=' => (false, &text[1..]),
            b'>' => (true, &text[1..]),
            _ => (false, text),
        };
        let kind = match rest.as_bytes().first()? {
            b'b' => Kind::Bool,
            b'i' => Kind::Int,
            b'u' => Kind::Uint,
            b'f' => Kind::Float,
            b'O' => Kind::Object,
            b'S' | b'U' | b'V' | b'c' | b'M' | b'm' => Kind::Other,
            _ => return None,
        };
        let digits = rest[1..].split('[').next().unwrap_or("");
        let size = if digits.is_empty() && kind == Kind::Object { 8 } else { digits.parse::<u32>().ok()? as usize };
        let size = if rest.starts_with('U') { size.checked_mul(4)? } else { size };
        let known = match kind {
            Kind::Bool => size == 1,
            Kind::Int | Kind::Uint => matches!(size, 1 | 2 | 4 | 8),
            Kind::Float => matches!(size, 2 | 4 | 8),
            Kind::Object | Kind::Other => true,
        };
        known.then_some(Self { kind, size, big })
    }

    /// Whether elements have the same bytes in a dataset of `dtype`.
    pub(crate) fn is(self, dtype: Dtype) -> bool {
        let same = match dtype {
            Dtype::F32 => (Kind::Float, 4),
            Dtype::F16 => (Kind::Float, 2),
            Dtype::U8 => (Kind::Uint, 1),
            _ => return false,
        };
        (self.kind, self.size) == same && (!self.big || self.size == 1)
    }

    /// numpy's name of the type.
    pub(crate) fn name(self) -> String {
        let bits = self.size * 8;
        match self.kind {
            Kind::Bool => "bool".into(),
            Kind::Int => format!("int{bits}"),
            Kind::Uint => format!("uint{bits}"),
            Kind::Float => format!("float{bits}"),
            Kind::Object => "object".into(),
            Kind::Other => "text or bytes".into(),
        }
    }

    /// Appends whole numbers; `Err` when the elements are none. An unsigned number above `i64::MAX` becomes `i64::MAX`,
    /// which every later range check refuses.
    pub(crate) fn ints(self, bytes: &[u8], out: &mut Vec<i64>) -> Parsed<()> {
        decode!(self, bytes, "integers", v,
            [Bool u8] => out.push((v != 0).into()),
            [Int i8, Int i16, Int i32, Uint u8, Uint u16, Uint u32] => out.push(v.into()),
            [Int i64] => out.push(v),
            [Uint u64] => out.push(i64::try_from(v).unwrap_or(i64::MAX)))
    }

    /// Appends node ids below 2^32 - 1; false, with any content in `out`, where there are others or the elements are of a type
    /// that is decoded one by one.
    pub(crate) fn ids(self, bytes: &[u8], out: &mut Vec<u32>) -> bool {
        fn all<const N: usize>(bytes: &[u8], out: &mut Vec<u32>, read: impl Fn([u8; N]) -> u64) -> bool {
            let (elements, _) = bytes.as_chunks::<N>();
            let start = out.len();
            // A negative number has high bits here.
            let mut bits = 0;
            out.extend(elements.iter().map(|e| {
                let id = read(*e);
                bits |= id;
                id as u32
            }));
            // The id 2^32 - 1 is possible only where every low bit is set in some id.
            bits < u64::from(u32::MAX) || bits == u64::from(u32::MAX) && !out[start..].contains(&u32::MAX)
        }
        match (self.kind, self.size, self.big) {
            (Kind::Int | Kind::Uint, 8, false) => all(bytes, out, u64::from_le_bytes),
            (Kind::Int, 4, false) => all(bytes, out, |e| i64::from(i32::from_le_bytes(e)) as u64),
            (Kind::Uint, 4, false) => all(bytes, out, |e| u32::from_le_bytes(e).into()),
            _ => false,
        }
    }

    /// Appends numbers as f32, rounding f64 and wide integers to nearest; `Err` when the elements are no numbers.
    pub(crate) fn floats(self, bytes: &[u8], out: &mut Vec<f32>) -> Parsed<()> {
        decode!(self, bytes, "numbers", v,
            [Bool u8] => out.push(u8::from(v != 0).into()),
            [Float f32] => out.push(v),
            [Float f16, Int i8, Int i16, Uint u8, Uint u16] => out.push(v.into()),
            [Float f64, Int i32, Int i64, Uint u32, Uint u64] => out.push(v as f32))
    }

    /// Appends class numbers: a NaN or -1 is "no label" (-1). `Err` says what the offending element holds.
    pub(crate) fn labels(self, bytes: &[u8], out: &mut Vec<i32>) -> Parsed<()> {
        let mut push = |v: i64| match i32::try_from(v) {
            Ok(label @ -1..) => {
                out.push(label);
                Ok(())
            }
            _ => Err(format!("the label is {v}, neither a class number nor -1 (none)")),
        };
        if self.kind == Kind::Float {
            let mut push_real = |v: f64| match v {
                v if v.is_nan() => push(-1),
                v if v.fract() == 0.0 && v.abs() < f64::from(i32::MAX) => push(v as i64),
                v => Err(format!("the label is {v}, neither a class number nor -1 (none)")),
            };
            return decode!(self, bytes, "numbers", v,
                [Float f16, Float f32] => push_real(v.into())?,
                [Float f64] => push_real(v)?);
        }
        let mut ints = Vec::with_capacity(bytes.len() / self.size.max(1));
        self.ints(bytes, &mut ints)?;
        ints.into_iter().try_for_each(push)
    }
}

#[cfg(test)]
mod tests;
