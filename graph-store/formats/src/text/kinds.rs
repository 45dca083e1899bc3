//! Columns of ids of two kinds of nodes, by their names.

/// Words for the ends of an edge, which say nothing of the kind of a node.
const ENDS: &[&str] = &[
    "source",
    "src",
    "from",
    "out",
    "start",
    "begin",
    "origin",
    "head",
    "tail",
    "target",
    "dst",
    "dest",
    "destination",
    "to",
    "in",
    "end",
    "row",
    "col",
    "column",
    "left",
    "right",
    "first",
    "second",
    "one",
    "two",
    "parent",
    "child",
    "sender",
    "receiver",
    "recipient",
    "caller",
    "callee",
    "citing",
    "cited",
    "cites",
    "follower",
    "followee",
    "followed",
    "following",
    "subject",
    "object",
    "u",
    "v",
    "i",
    "j",
    "a",
    "b",
    "x",
    "y",
    "s",
    "t",
];

/// Words for any node.
const NODE: &[&str] = &["node", "vertex", "entity", "index", "idx", "key", "no", "nr", "number", "name"];

/// Whether the columns of sources and of targets seem to have ids of two kinds of nodes: `userId` and `movieId`, but not
/// `from_stop` and `to_stop`.
pub(super) fn two_kinds([source, target]: &[String; 2]) -> bool {
    let (source, target) = (kinds(source), kinds(target));
    !source.iter().any(|kind| target.contains(kind))
}

/// The type of the nodes whose ids a column has: `user` of `user_id` and `userId`.
pub(crate) fn type_name(column: &str) -> String {
    let name = column.trim();
    let strip = |suffix: &&str| name.strip_suffix(*suffix).filter(|rest| rest.len() > 2);
    let found = ["_ids", "_id", "-id", " id", "Ids", "IDs", "Id", "ID", "ids", "id"].iter().find_map(strip);
    found.unwrap_or(name).to_string()
}

/// What a name may call the kind of its nodes; nothing for the ends of an edge alone.
fn kinds(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphabetic()).map(|word| {
        // `userid`, `userids`
        let word = word.strip_suffix('s').filter(|word| word.ends_with("id")).unwrap_or(word);
        word.strip_suffix("id").unwrap_or(word)
    });
    let words: Vec<&str> = words.filter(|w| !w.is_empty() && !ENDS.contains(w) && !NODE.contains(w)).collect();
    let whole = words.join("_");
    // `fromstop` and `tostop`
    let without_end = ENDS
        .iter()
        .filter(|end| end.len() > 1)
        .flat_map(|end| [whole.strip_prefix(end), whole.strip_suffix(end)].into_iter().flatten().map(String::from));
    let mut kinds: Vec<String> = without_end.filter(|kind| kind.len() > 1).collect();
    kinds.push(whole.clone());
    kinds
}

#[cfg(test)]
mod tests;
