//! Small edge lists as they occur in practice: each with its graph or its message.

mod cases;
mod cures;
mod independent;

use std::path::Path;

use crate::support::write;
use cases::CASES;
use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::{NodeFiles, Options, Silent, UnknownNodes};
use morphgl_graph_store::Meta;

/// Imports `text` with the options in `how` (`src=COLUMN`, `dst=`, `weight=`, `columns=A+B+C`, `first=N`, `compact`,
/// `strings`, `symmetrise`, `loops` and `duplicates`, which drops them, `bare`, which drops weights, `apart` and `together`: two
/// kinds of nodes, or one, `any-count` of other columns, `nodes=N`, `listed=A+B+C`: a node table with features of these ids,
/// `unlisted-dropped`).
/// Returns the edges `source>target` or `source>target:weight`, and after `|` each note; or `!` and the message.
fn read(text: &str, how: &str) -> String {
    let column = |text: &str| text.parse().map_or_else(|_| Column::Name(text.to_string()), Column::Number);
    let (mut format, mut options) = (EdgeListOptions::default(), Options::default());
    let dir = tempfile::tempdir().expect("a directory");
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
            ("listed", ids) => {
                let rows: String = ids.split('+').map(|id| format!("{id},0.5\n")).collect();
                options.nodes.table = Some(write(&dir, "n.csv", format!("id,f0\n{rows}").as_bytes()));
            }
            ("unlisted-dropped", _) => options.nodes.unknown_nodes = Some(UnknownNodes::Drop),
            other => panic!("{other:?}"),
        }
    }
    let source = write(&dir, "e.csv", text.as_bytes());
    let target = dir.path().join("dataset");
    if let Err(e) = edge_list::import(&source, &target, &format, &options, &Silent) {
        return format!("!{}", e.to_string().replace(&format!("{}/", dir.path().display()), ""));
    }
    let meta = Meta::read(&target).expect("a dataset");
    let notes = meta.provenance.get("notes").and_then(|n| n.as_array()).cloned().unwrap_or_default();
    let notes = notes.iter().map(|note| format!(" | {}", note.as_str().expect("text")));
    dataset_edges(&target).join(" ") + &notes.collect::<String>()
}

/// The edges of a dataset, by the names or the ids that their nodes had; ids of the second kind of nodes behind a plus.
fn dataset_edges(path: &Path) -> Vec<String> {
    let dataset = morphgl_graph_store::Dataset::open(path, Default::default()).expect("a dataset");
    let weighted = dataset.topology.weights().is_some();
    let names = morphgl_graph_store::NodeNames::read(path).expect("a dataset");
    let name = |v: u32| match (&names, &dataset.node_ids) {
        (Some(names), _) => String::from_utf8_lossy(names.get(v)).into_owned(),
        (None, Some(ids)) => {
            let is_second = dataset.topology.types().is_some_and(|types| types.node_type(v) > 0);
            format!("{}{}", if is_second { "+" } else { "" }, ids[v as usize])
        }
        (None, None) => v.to_string(),
    };
    let show = |(u, v, w)| {
        let weight = if weighted { format!(":{w}") } else { String::new() };
        format!("{}>{}{weight}", name(u), name(v))
    };
    let mut found: Vec<String> = crate::support::edges(&dataset).into_iter().map(show).collect();
    found.sort();
    found
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

/// Text in another encoding than UTF-8 is refused where it is stored: as ids, as names of classes.
#[test]
fn text_that_is_not_utf_8() {
    let dir = tempfile::tempdir().expect("a directory");
    let strings = EdgeListOptions { ids: Ids::Strings, ..Default::default() };
    let utf_16 = |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    for (text, says) in [
        (
            b"src,dst\ncaf\xe9,bar\n".to_vec(),
            "line 2: the byte 0xe9 is not UTF-8; the text may be in Latin-1 or Windows-1252; convert it: `iconv -f WINDOWS-1252",
        ),
        (b"src dst\nbar caf\xe9\n".to_vec(), "line 2: the byte 0xe9 is not UTF-8"),
        (b"src,dst\n\x93a\x94,b\n".to_vec(), "line 2: the byte 0x93 is not UTF-8"),
        (utf_16("\u{feff}src,dst\na,b\n", u16::to_le_bytes), "this is text in UTF-16; convert it: `iconv -f UTF-16 "),
        (utf_16("\u{feff}src,dst\na,b\n", u16::to_be_bytes), "this is text in UTF-16; convert it: `iconv -f UTF-16 "),
        (utf_16("src,dst\na,b\n", u16::to_le_bytes), "this is text in UTF-16; convert it: `iconv -f UTF-16LE "),
        (utf_16("src,dst\na,b\n", u16::to_be_bytes), "this is text in UTF-16; convert it: `iconv -f UTF-16BE "),
    ] {
        let source = write(&dir, "e.csv", &text);
        let refused = edge_list::import(&source, &dir.path().join("d"), &strings, &Options::default(), &Silent);
        let message = refused.expect_err(says).to_string();
        assert!(message.contains(says), "{message}");
    }
    // Whatever else stands in a file of numbers is not stored.
    let source = write(&dir, "e.csv", b"# caf\xe9\nsrc,dst,name\n0,1,caf\xe9\n");
    let columns = Columns { src: Some(Column::Number(1)), dst: Some(Column::Number(2)), ..Columns::default() };
    let numbers = EdgeListOptions { columns, ..Default::default() };
    edge_list::import(&source, &dir.path().join("d"), &numbers, &Options::default(), &Silent).expect("numbers");
    let edges = write(&dir, "e.csv", b"0,1\n1,2\n");
    let table = write(&dir, "n.csv", b"id,label\n0,caf\xe9\n1,th\xe9\n2,caf\xe9\n");
    let nodes = NodeFiles { table: Some(table), ..NodeFiles::default() };
    let options = Options { nodes, replace: true, ..Options::default() };
    let refused = edge_list::import(&edges, &dir.path().join("d"), &Default::default(), &options, &Silent);
    let message = refused.expect_err("Latin-1").to_string();
    assert!(message.contains("n.csv, line 2: the byte 0xe9 is not UTF-8"), "{message}");
}

/// Names of nodes may begin with `#` in node files as in edge lists.
#[test]
fn node_files_have_names_with_number_signs() {
    let dir = tempfile::tempdir().expect("a directory");
    let edges = write(&dir, "e.csv", b"src,dst\nalice,#rust\n#rust,#python\n#python,bob\nbob,alice\n");
    let table = write(&dir, "n.csv", b"id,label,f0\nalice,user,1\nbob,user,2\n#rust,tag,3\n#python,tag,4\n");
    let target = dir.path().join("d");
    let nodes = NodeFiles { table: Some(table), ..NodeFiles::default() };
    let (format, options) =
        (EdgeListOptions { ids: Ids::Strings, ..Default::default() }, Options { nodes, ..Options::default() });
    edge_list::import(&edges, &target, &format, &options, &Silent).expect("four nodes");
    assert_eq!(dataset_edges(&target), ["#python>bob", "#rust>#python", "alice>#rust", "bob>alice"]);
    let dataset = morphgl_graph_store::Dataset::open(&target, Default::default()).expect("a dataset");
    assert_eq!(dataset.labels.expect("labels")[..], [0, 0, 1, 1]);
}
