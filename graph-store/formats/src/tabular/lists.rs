//! Lists of columns: as options name them, and short enough for a message.

use std::ops::Range;

use crate::Column;
use crate::files::Fault;
use crate::text::Header;

/// Maximum number of entries of a list in a message.
const MAX_ENTRIES: usize = 12;

/// The option of the features of edges in an edge list.
pub(crate) const EDGE_FEATURES: &str = "--edge-feature-columns";

/// The columns that `columns` name, each once: by names, numbers, ranges of numbers (`2-9`) and patterns (`f*`). Patterns
/// leave out the columns that are `taken`; `option` is the command's option, or the key of a manifest, that `columns` come from.
pub(crate) fn select(
    header: &Header,
    columns: &[Column],
    taken: &[usize],
    option: &'static str,
) -> Result<Vec<usize>, Fault> {
    let mut is_selected = vec![false; header.names.len()];
    let mut selected = Vec::new();
    for column in columns {
        let matching = matching(header, column)?;
        let mut found = 0;
        for index in matching.columns.filter(|&index| (matching.test)(index)) {
            if !taken.contains(&index) {
                found += 1;
                selected.extend((!std::mem::replace(&mut is_selected[index], true)).then_some(index));
            } else if !matching.is_pattern {
                let roles = if option == EDGE_FEATURES {
                    "ids, weights or to be predicted"
                } else {
                    "ids, labels, a split or targets"
                };
                let what = format!("the column {} is read as {roles}", header.describe(index));
                let cure = match option {
                    EDGE_FEATURES => "leave it out of --edge-feature-columns, or name another by its own option",
                    "--target-columns" => "leave it out of --target-columns, or name another by its own option",
                    "features" => "list other columns as features",
                    "targets" => "list other columns as targets",
                    _ => "leave it out of --feature-columns, or name another by its own option",
                };
                return Err((what, cure));
            }
        }
        if found == 0 {
            return Err((format!("no column matches {column}"), "give names, numbers, ranges (2-9) or patterns (f*)"));
        }
    }
    Ok(selected)
}

/// Candidates among the columns, and the test of each.
struct Matching<'h> {
    columns: Range<usize>,
    test: Box<dyn Fn(usize) -> bool + 'h>,
    is_pattern: bool,
}

fn matching<'h>(header: &'h Header, column: &Column) -> Result<Matching<'h>, Fault> {
    let all = |columns, is_pattern| Matching { columns, test: Box::new(|_| true), is_pattern };
    let by_name = match column {
        Column::Name(name) => name.trim().to_lowercase(),
        Column::Number(_) => String::new(),
    };
    let exact = header.index(column);
    if let Ok(index) = exact {
        return Ok(all(index..index + 1, false));
    }
    let ends = by_name.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse::<usize>().ok()?)));
    if let Some((from @ 1.., to)) = ends.filter(|&(from, to)| from <= to && to <= header.names.len()) {
        return Ok(all(from - 1..to, false));
    }
    if header.named && by_name.contains(['*', '?']) {
        let test = Box::new(move |index: usize| matches(by_name.as_bytes(), header.names[index].as_bytes()));
        return Ok(Matching { columns: 0..header.names.len(), test, is_pattern: true });
    }
    exact.map(|index| all(index..index + 1, false))
}

/// Whether a name matches a pattern, in which `*` stands for any characters and `?` for one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        ([b'?', pattern @ ..], [_, name @ ..]) => matches(pattern, name),
        ([p, pattern @ ..], [n, name @ ..]) if p == n => matches(pattern, name),
        _ => false,
    }
}

/// Ascending columns as `--feature-columns` takes them: `2-5,9`.
pub(crate) fn numbers(columns: &[usize]) -> String {
    let runs = columns.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match run {
        [one] => (one + 1).to_string(),
        [first, .., last] => format!("{}-{}", first + 1, last + 1),
        [] => String::new(),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// Maximum number of ids that a message names.
pub(crate) const NAMED: usize = 5;

/// The first ones of `count` ids, for a message.
pub(crate) fn first_of(named: Vec<String>, count: u64) -> String {
    named.join(", ") + if count > named.len() as u64 { ", …" } else { "" }
}

/// A number of things for a message: "1 edge", "2 edges".
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// What was done to a number of things begins so: "1 edge was", "2 edges were".
pub(crate) fn were(count: u64, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "was" } else { "were" })
}

/// Columns for a message: names of one word with rising numbers are one entry (`f0…f63`); without names, numbers.
pub(crate) fn listed(header: &Header, columns: &[usize]) -> String {
    if !header.named {
        return numbers(columns).replace(',', ", ");
    }
    list(&columns.iter().map(|&column| header.names[column].as_str()).collect::<Vec<_>>())
}

/// Names for a message, as [`listed`] has them.
pub(crate) fn list(names: &[&str]) -> String {
    let rises = |a: &&str, b: &&str| {
        let ((stem, number), (next_stem, next)) = (split_number(a), split_number(b));
        stem == next_stem && number.and_then(|n| n.checked_add(1)).is_some_and(|n| Some(n) == next)
    };
    let entries: Vec<String> = names
        .chunk_by(rises)
        .flat_map(|run| match run {
            [first, _, .., last] => vec![format!("{}…{}", name(first), name(last))],
            few => few.iter().map(|one| name(one)).collect(),
        })
        .collect();
    let some = entries.iter().take(MAX_ENTRIES).cloned().collect::<Vec<_>>().join(", ");
    if entries.len() > MAX_ENTRIES { format!("{some}, … ({} in all)", names.len()) } else { some }
}

/// A name as it is, or quoted where it could be mistaken; the beginning of a long one.
fn name(name: &str) -> String {
    let short: String = name.chars().take(40).collect();
    let plain = !short.is_empty() && short.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    if plain { short } else { format!("{short:?}") }
}

/// A name's word, and the number behind it.
pub(crate) fn split_number(name: &str) -> (&str, Option<u64>) {
    let word = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (word, name[word.len()..].parse().ok())
}

#[cfg(test)]
mod tests;
