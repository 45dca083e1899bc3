//! The ids of the nodes of a source.

use std::collections::HashMap;
use std::path::Path;

use morphgl_graph_store::Result;

use crate::names::Names;
use crate::tabular::Values;

/// Distinct ids, each with a number in the order of their appearance: whole numbers as long as all are, then text.
///
/// Numbers from 0 in order take no memory; others 20 bytes each, and text about 30 and its length.
pub(super) enum Ids {
    /// The numbers from 0 to below a count.
    Rows(u64),
    /// Whole numbers, and the number of each.
    Numbers(Vec<u64>, HashMap<u64, u32>),
    Texts(Names),
}

/// What became of an id.
pub(super) enum Inserted {
    New,
    Known,
}

/// An id without blanks around it, and without the `.0` that pandas writes behind whole numbers in a column with missing values.
fn key(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    match text.strip_suffix(b".0") {
        Some(whole) if !whole.is_empty() && whole.iter().all(u8::is_ascii_digit) => whole,
        _ => text,
    }
}

/// The number that an id stands for, where it has digits alone and no leading zero: `7`, not `007`.
fn number(key: &[u8]) -> Option<u64> {
    let plain = key == b"0" || key.iter().all(u8::is_ascii_digit) && !key.starts_with(b"0");
    if plain { std::str::from_utf8(key).ok()?.parse().ok() } else { None }
}

impl Ids {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Rows(count) => *count,
            Self::Numbers(ids, _) => ids.len() as u64,
            Self::Texts(names) => names.len() as u64,
        }
    }

    pub(super) fn are_text(&self) -> bool {
        matches!(self, Self::Texts(_))
    }

    /// The id with a number: a whole number where ids are not text.
    pub(super) fn id(&self, of: u32) -> u64 {
        match self {
            Self::Numbers(ids, _) => ids[of as usize],
            _ => of.into(),
        }
    }

    /// Appends the text of the id with a number.
    pub(super) fn write(&self, of: u32, out: &mut Vec<u8>) {
        match self {
            Self::Texts(names) => out.extend_from_slice(names.name(of)),
            ids => out.extend_from_slice(ids.id(of).to_string().as_bytes()),
        }
    }

    /// The number of an id in a column.
    pub(super) fn find(&self, column: &Values, row: usize) -> Option<u32> {
        match (self, column) {
            // Without text in between.
            (Self::Rows(_) | Self::Numbers(..), Values::Ints(..)) => {
                self.find_number(u64::try_from(column.int(row).ok()??).ok()?)
            }
            (Self::Texts(names), _) => names.find(key(&column.text(row))),
            _ => self.find_number(number(key(&column.text(row)))?),
        }
    }

    fn find_number(&self, id: u64) -> Option<u32> {
        match self {
            Self::Rows(count) => (id < *count).then_some(id as u32),
            Self::Numbers(_, numbers) => numbers.get(&id).copied(),
            Self::Texts(_) => None,
        }
    }

    /// Adds the id in a column, unless it is known; `None` where it is missing. Errors of too many ids name `source`.
    pub(super) fn insert(&mut self, column: &Values, row: usize, source: &Path) -> Result<Option<Inserted>> {
        let text = column.text(row);
        let key = key(&text);
        if key.is_empty() {
            return Ok(None);
        }
        if self.find(column, row).is_some() {
            return Ok(Some(Inserted::Known));
        }
        let count = self.len() as u32;
        match (&mut *self, number(key)) {
            (Self::Rows(count), Some(id)) if id == *count => *count += 1,
            (Self::Rows(_), Some(id)) => {
                let mut ids: Vec<u64> = (0..count.into()).collect();
                let mut numbers: HashMap<u64, u32> = ids.iter().copied().zip(0..).collect();
                numbers.insert(id, count);
                ids.push(id);
                *self = Self::Numbers(ids, numbers);
            }
            (Self::Numbers(ids, numbers), Some(id)) => {
                numbers.insert(id, count);
                ids.push(id);
            }
            (Self::Texts(names), _) => return names.number(key, source).map(|_| Some(Inserted::New)),
            (ids, None) => {
                let mut names = Names::default();
                (0..count).try_for_each(|of| names.number(ids.id(of).to_string().as_bytes(), source).map(|_| ()))?;
                names.number(key, source)?;
                *self = Self::Texts(names);
            }
        }
        super::check_count(self.len(), source)?;
        Ok(Some(Inserted::New))
    }
}

#[cfg(test)]
mod tests;
