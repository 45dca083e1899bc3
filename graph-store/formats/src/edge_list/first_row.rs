//! A first line of words that are ids, and no names of columns: a later line has one of them, too.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use crate::Silent;
use crate::files::Fault;
use crate::text::{Columns, NEIGHBORS_OR_NAMES, TEXT_LINE, fields, is_number, open_text, separator_of};

/// Maximum bytes that are searched.
const MAX_BYTES: u64 = 64 << 10;

/// The fault of the first line of `source`, whose columns are not known: another one where it is a row of ids.
pub(super) fn explain(fault: Fault, source: &Path, columns: &Columns) -> Fault {
    if *columns == Columns::default() { ids(source).unwrap_or(fault) } else { fault }
}

/// The fault of a first line that is a row of ids; `None` for one that may have names of columns.
fn ids(source: &Path) -> Option<Fault> {
    // What cannot be read is named by the error that there was before.
    let text = open_text(source, "read", &Silent).ok()?;
    let mut bytes = Vec::new();
    text.reader.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let is_row = |line: &&[u8]| !line.is_empty() && !matches!(line[0], b'#' | b'%');
    let mut lines = (1..).zip(bytes.split(|&b| b == b'\n').map(<[u8]>::trim_ascii));
    let (_, first) = lines.find(|(_, line)| is_row(line))?;
    let separator = separator_of(first);
    let words: HashSet<&[u8]> = fields(first, separator).filter(|word| !word.is_empty()).collect();
    if words.iter().any(|word| is_number(word)) {
        return None;
    }
    let count = fields(first, separator).count();
    let (mut repeated, mut are_even) = (None, true);
    for (number, line) in lines.filter(|(_, line)| is_row(line)) {
        let mut row = fields(line, separator);
        repeated = repeated.or_else(|| Some((row.find(|word| words.contains(word))?, number)));
        are_even &= fields(line, separator).count() == count;
    }
    let (word, number) = repeated?;
    let what =
        format!("the first line has no names of columns: {:?} is on line {number}, too", String::from_utf8_lossy(word));
    Some((what, if count == 2 && are_even { TEXT_LINE } else { NEIGHBORS_OR_NAMES }))
}
