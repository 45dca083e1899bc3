//! The header of a `.npy` file, versions 1 to 3: a Python dictionary of three keys behind a magic string and its length.

use std::io::{Error, ErrorKind, Read, Result};

/// The fields of a header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The element type in numpy's notation, such as `<f4`; for a structured type, the text of its list of fields.
    pub(super) descr: String,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<u64>,
    /// Bytes before the data.
    pub(super) bytes: u64,
}

impl Header {
    /// Reads the header at the beginning of a file.
    ///
    /// # Errors
    ///
    /// I/O, another magic string, a later version, or a dictionary without one of the keys.
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
        let mut text = Vec::new();
        if file.take(length.into()).read_to_end(&mut text)? < length as usize {
            return Err(invalid("the header is cut short"));
        }
        let text = String::from_utf8(text).map_err(|_| invalid("the header is no text"))?;
        let bytes = (magic.len() + length_bytes) as u64 + u64::from(length);
        let [descr, order, shape] = ["descr", "fortran_order", "shape"].map(|key| value(&text, key));
        let fortran_order = match order {
            Some("True") => Some(true),
            Some("False") => Some(false),
            _ => None,
        };
        match (descr, fortran_order, shape.and_then(numbers)) {
            (Some(descr), Some(fortran_order), Some(shape)) => {
                Ok(Self { descr: unquoted(descr).unwrap_or(descr).to_owned(), fortran_order, shape, bytes })
            }
            _ => Err(invalid("the header has no descr, fortran_order and shape")),
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidData, what.into())
}

/// The text of a key's value in a Python dictionary.
fn value<'a>(dictionary: &'a str, key: &str) -> Option<&'a str> {
    let entries = dictionary.trim().strip_prefix('{')?.strip_suffix('}')?;
    let entries = items(entries)?.into_iter().map(|entry| entry.split_once(':'));
    entries.flatten().find(|(name, _)| unquoted(name.trim()) == Some(key)).map(|(_, value)| value.trim())
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
