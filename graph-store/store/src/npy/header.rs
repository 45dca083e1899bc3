//! The header of a `.npy` file, versions 1 to 3: a Python dictionary of three keys behind a magic string and its length.

use std::io::{Error, ErrorKind, Read, Result};

/// Maximum bytes of a `.npy` header that is read: numpy's own stay below a kilobyte for anything but structured types.
pub const MAX_NPY_HEADER: usize = 1 << 16;

/// The fields of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) fields: NpyFields,
    /// Bytes before the data.
    pub(super) bytes: u64,
}

/// The fields of the dictionary in a `.npy` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyFields {
    /// The element type in numpy's notation, such as `<f4`; for a structured type, the text of its list of fields.
    pub descr: String,
    /// Whether the first index changes fastest.
    pub fortran_order: bool,
    /// Lengths of the dimensions.
    pub shape: Vec<u64>,
}

impl NpyFields {
    /// Parses a dictionary such as `{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }`; `None` where it is none or
    /// lacks one of the keys.
    ///
    /// # Complexity
    ///
    /// O(length), whatever is nested in it.
    pub fn parse(text: &str) -> Option<Self> {
        let entries = text.trim().strip_prefix('{')?.strip_suffix('}')?;
        let entries: Vec<_> = items(entries)?.into_iter().filter_map(|entry| entry.split_once(':')).collect();
        let value = |key: &str| {
            let entry = entries.iter().find(|(name, _)| unquoted(name.trim()) == Some(key));
            entry.map(|(_, value)| value.trim())
        };
        let descr = value("descr")?;
        let fortran_order = match value("fortran_order")? {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        let shape = numbers(value("shape")?)?;
        Some(Self { descr: unquoted(descr).unwrap_or(descr).to_owned(), fortran_order, shape })
    }
}

impl Header {
    /// Reads the header at the beginning of a file.
    ///
    /// # Errors
    ///
    /// I/O, another magic string, a later version, a header of more than [`MAX_NPY_HEADER`] bytes, or a dictionary without one of
    /// the keys.
    pub(super) fn read(file: &mut impl Read) -> Result<Self> {
        let mut magic = [0; 8];
        file.read_exact(&mut magic)?;
        let [signature @ .., version, _] = magic;
        if signature != *b"\x93NUMPY" {
            return Err(invalid("it does not begin as one"));
        }
        let mut length = [0; 4];
        let length_bytes = match version {
            1 => 2,
            2 | 3 => 4,
            later => return Err(invalid(format!("version {later} of the format, up to 3 are known"))),
        };
        file.read_exact(&mut length[..length_bytes])?;
        let length = u32::from_le_bytes(length);
        if length as usize > MAX_NPY_HEADER {
            return Err(invalid(format!("a header of {length} bytes, at most {MAX_NPY_HEADER} are read")));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text).map_err(|_| invalid("the header is cut short"))?;
        let text = String::from_utf8(text).map_err(|_| invalid("the header is no text"))?;
        let bytes = (magic.len() + length_bytes) as u64 + u64::from(length);
        match NpyFields::parse(&text) {
            Some(fields) => Ok(Self { fields, bytes }),
            None => Err(invalid("the header has no descr, fortran_order and shape")),
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

/// The numbers of a Python tuple; those of Python 2 may end with L.
fn numbers(tuple: &str) -> Option<Vec<u64>> {
    let inside = tuple.strip_prefix('(')?.strip_suffix(')')?;
    let number = |item: &str| item.strip_suffix('L').unwrap_or(item).parse().ok();
    items(inside)?.into_iter().map(number).collect()
}

/// The text between quotes.
fn unquoted(text: &str) -> Option<&str> {
    ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// Items between the commas outside brackets and strings; `None` where brackets or quotes do not match.
fn items(text: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut open, mut quote) = (Vec::new(), 0, 0usize, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => open += 1,
            (None, ')' | ']' | '}') => open = open.checked_sub(1)?,
            (None, ',') if open == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    // A comma may follow the last item.
    if !last.is_empty() {
        items.push(last);
    }
    (open == 0 && quote.is_none()).then_some(items)
}

#[cfg(test)]
mod tests;
