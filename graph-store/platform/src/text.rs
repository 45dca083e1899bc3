//! Small text files, and pieces of them in messages.

use std::borrow::Cow;
use std::io::{Error, ErrorKind, Read, Result};
use std::path::Path;

use crate::open_regular;

/// The byte order mark of UTF-8, which some programs begin a file with.
pub const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a text file of at most `limit` bytes; skips a byte order mark at its beginning.
///
/// # Errors
///
/// The file cannot be read, is no regular one, is longer than `limit`, or is no UTF-8.
pub fn read_text(path: &Path, limit: u64) -> Result<String> {
    bounded_text(open_regular(path)?, limit)
}

/// As [`read_text`], of a file that is open.
///
/// # Errors
///
/// The file cannot be read, is longer than `limit`, or is no UTF-8.
pub fn bounded_text(file: impl Read, limit: u64) -> Result<String> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(Error::new(ErrorKind::InvalidData, format!("it is longer than {limit} bytes")));
    }
    text(bytes)
}

/// The text of `bytes`, without a byte order mark.
///
/// # Errors
///
/// Bytes that are no UTF-8.
pub fn text(mut bytes: Vec<u8>) -> Result<String> {
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Error::new(ErrorKind::InvalidData, format!("it is no text: byte {at} is no UTF-8"))
    })
}

/// The first `limit` characters of a text on one line, with an ellipsis where there are more and control characters escaped:
/// messages quote files, which may be hostile.
pub fn excerpt(text: &str, limit: usize) -> Cow<'_, str> {
    let end = text.char_indices().nth(limit).map(|(end, _)| end);
    if end.is_none() && !text.contains(char::is_control) {
        return text.into();
    }
    let mut line = String::new();
    for c in text[..end.unwrap_or(text.len())].chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line.extend(end.map(|_| '…'));
    line.into()
}

#[cfg(test)]
mod tests;
