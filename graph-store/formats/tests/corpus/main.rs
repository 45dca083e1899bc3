//! Small edge lists as they occur in practice: each with its graph or its message.

#[path = "../support/mod.rs"]
mod support;

mod cases;

use cases::CASES;
use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::{Options, Silent};
use morphgl_graph_store::Meta;
use support::write;

/// Imports `text` with the options in `how` (`src=COLUMN`, `dst=`, `weight=`, `columns=A+B+C`, `first=N`, `compact`,
/// `strings`, `symmetrise`, `loops` and `duplicates`, which drops them, `bare`, which drops weights, `apart` and `together`: two
/// kinds of nodes, or one, `any-count` of other columns, `nodes=N`).
/// Returns the edges `source>target` or `source>target:weight`, and after `|` each note; or `!` and the message.
fn read(text: &str, how: &str) -> String {
    let column = |text: &str| text.parse().map_or_else(|_| Column::Name(text.to_string()), Column::Number);
    let (mut format, mut options) = (EdgeListOptions::default(), Options::default());
    for word in how.split_whitespace() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("src", name) => format.columns.src = Some(column(name)),
            ("dst", name) => format.columns.dst = Some(column(name)),
            ("weight", name) => format.columns.weight = Some(column(name)),
            ("columns", names) => format.columns.names = Some(names.split('+').map(String::from).collect()),
            ("first", id) => format.first_id = Some(id.parse().expect("a number")),
            ("compact", _) => format.ids = Ids::Compact,
            ("strings", _) => format.ids = Ids::Strings,
            ("symmetrise", _) => options.symmetrise = true,
            ("loops", _) => options.drop_self_loops = true,
            ("duplicates", _) => options.drop_duplicates = true,
            ("bare", _) => options.drop_weights = true,
            ("apart", _) => options.bipartite = Some(true),
            ("together", _) => options.bipartite = Some(false),
            ("any-count", _) => format.ignore_columns = true,
            ("nodes", n) => format.num_nodes = Some(n.parse().expect("a number")),
            other => panic!("{other:?}"),
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let source = write(&dir, "e.csv", text.as_bytes());
    let target = dir.path().join("dataset");
    if let Err(e) = edge_list::import(&source, &target, &format, &options, &Silent) {
        return format!("!{}", e.to_string().replace(&format!("{}/", dir.path().display()), ""));
    }
    let dataset = morphgl_graph_store::Dataset::open(&target, Default::default()).expect("a dataset");
    let weighted = dataset.topology.weights().is_some();
    let names = morphgl_graph_store::NodeNames::read(&target).expect("a dataset");
    let name = |v: u32| match (&names, &dataset.node_ids) {
        (Some(names), _) => String::from_utf8_lossy(names.get(v)).into_owned(),
        (None, Some(ids)) => ids[v as usize].to_string(),
        (None, None) => v.to_string(),
    };
    let mut found: Vec<String> = support::edges(&dataset)
        .into_iter()
        .map(|(u, v, w)| {
            let weight = if weighted { format!(":{w}") } else { String::new() };
            format!("{}>{}{weight}", name(u), name(v))
        })
        .collect();
    found.sort();
    let meta = Meta::read(&target).expect("a dataset");
    let notes = meta.provenance.get("notes").and_then(|n| n.as_array()).cloned().unwrap_or_default();
    let notes = notes.iter().map(|note| format!(" | {}", note.as_str().expect("text")));
    found.join(" ") + &notes.collect::<String>()
}

#[test]
fn every_file_gives_its_graph_or_its_message() {
    assert!(CASES.len() >= 60, "{} files", CASES.len());
    let mut wrong = Vec::new();
    for (text, how, expected) in CASES {
        let found = read(text, how);
        let open = expected.starts_with('!') || expected.contains('|');
        // Messages and notes may be longer; edges may not.
        let holds = if open { found.starts_with(expected.trim_end()) } else { found == *expected };
        if !holds {
            wrong.push(format!("{text:?} ({how})\n  gives     {found}\n  expected  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

/// Many lines, so that threads read pieces of the text: in any order of columns, the edges are those of the plain list.
#[test]
fn the_order_of_columns_changes_nothing() {
    let edge = |i: u64| (i * 7919 % 5000, i * 104_729 % 5000);
    let lines = |line: &dyn Fn(u64, u64, u64) -> String| -> String {
        (0..60_000).map(|i| line(i, edge(i).0, edge(i).1)).collect()
    };
    let plain = read(&lines(&|_, u, v| format!("{u},{v}\n")), "");
    let edges = |text: String| text.split(" | ").next().unwrap_or_default().to_string();
    let named = read(&format!(",dst,src\n{}", lines(&|i, u, v| format!("{i},{v},{u}\n"))), "");
    assert!(edges(named) == plain, "an index column, and the target first");
    let quoted = read(&lines(&|_, u, v| format!("\"{u}\",\"{v}\"\n")), "");
    assert!(quoted == plain, "quoted");
    let compact = read(&format!("to from\n{}", lines(&|_, u, v| format!("{v} {u}\n"))), "compact");
    assert!(edges(compact) == plain, "renumbered, and named by the old ids");
}

#[test]
fn columns_are_a_part_of_the_public_interface() {
    let columns = Columns { src: Some(Column::Name("a".to_string())), ..Columns::default() };
    assert_eq!(
        (Column::Number(3).to_string(), columns.src.expect("it was given").to_string()),
        ("3".into(), "\"a\"".into())
    );
}
