//! Small edge lists as they occur in practice: each with its graph or its message.

mod support;

use morphgl_formats::edge_list::{self, Column, Columns, EdgeListOptions, Ids};
use morphgl_formats::{Options, Silent};
use morphgl_graph_store::Meta;
use support::write;

/// Imports `text` with the options in `how` (`src=COLUMN`, `dst=`, `weight=`, `columns=A+B+C`, `first=N`, `compact`,
/// `strings`, `symmetrise`, `loops` and `duplicates`, which drops them, `bare`, which drops weights).
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
            ("first", id) => format.first_id = id.parse().expect("a number"),
            ("compact", _) => format.ids = Ids::Compact,
            ("strings", _) => format.ids = Ids::Strings,
            ("symmetrise", _) => options.symmetrise = true,
            ("loops", _) => options.drop_self_loops = true,
            ("duplicates", _) => options.drop_duplicates = true,
            ("bare", _) => options.drop_weights = true,
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

/// Texts, options and the expected beginning of the result; the whole of it where it is edges alone.
const CASES: &[(&str, &str, &str)] = &[
    // Without names.
    ("0,1\n1,2\n", "", "0>1 1>2"),
    ("0 1\n1 2", "", "0>1 1>2"),
    ("0\t1\r\n1\t2\r\n", "", "0>1 1>2"),
    ("0;1\n1;2\n", "", "0>1 1>2"),
    ("0 , 1\n1 ,2\n", "", "0>1 1>2"),
    ("# a comment\n% another\n\n0 1\n# in between\n1 0\n\n", "", "0>1 1>0"),
    ("\u{feff}0,1\n1,0\n", "", "0>1 1>0"),
    ("\u{feff}src,dst\n0,1\n", "", "0>1 | columns: source 1, target 2 of 2"),
    ("  0   1  \n  1   0\n", "", "0>1 1>0"),
    ("\"0\",\"1\"\n\"1\",\"0\"\n", "", "0>1 1>0"),
    ("0,1,0.5\n1,0,2\n", "", "0>1:0.5 1>0:2"),
    ("0 1 1e-3\n1 0 .5\n", "", "0>1:0.001 1>0:0.5"),
    ("0,1,0.5\n1,0,2\n", "bare", "0>1 1>0"),
    ("0,1\n1,2,3\n", "", "!e.csv, line 2: expected 2 columns"),
    ("0,1,1\n1,2\n", "", "!e.csv, line 2: expected two node ids and a weight"),
    ("0,1,-1\n", "", "!e.csv, line 1: the weight -1 is not"),
    ("0,1,nan\n", "weight=3", "!e.csv, line 1: the weight NaN is not"),
    ("0,1,2,3\n", "", "!e.csv, line 1: the first line has 4 columns"),
    ("0,1,2,3\n", "src=1 dst=2", "0>1 | columns: source 1, target 2 of 4"),
    ("9,0,1,77\n8,1,0,77\n", "src=2 dst=3 weight=1", "0>1:9 1>0:8 | columns: source 2, target 3, weight 1 of 4"),
    ("9 0 1\n8 1 0\n", "columns=when+u+v src=u dst=v", "0>1 1>0 | columns: source 2, target 3 of 3; left out: when"),
    ("9 0 1\n8 1 0\n", "columns=w+v+u", "0>1:8 1>0:9 | columns: source 3, target 2, weight 1 of 3"),
    ("0 1\n", "columns=u+v+w", "!e.csv, line 1: --columns has 3 names, the first line 2 fields"),
    ("a,b,c\n0,1,2\n", "columns=u+v", "!e.csv, line 1: --columns has 2 names, the first line 3 fields"),
    ("0 1\n", "src=3", "!e.csv, line 1: there is no column 3"),
    ("0 1\n", "src=1 dst=1", "!e.csv, line 1: one column is to be read twice"),
    ("0 a\n", "", "!e.csv, line 1: the first line is neither numbers nor names"),
    ("O 1\n1 0\n", "", "!e.csv, line 1: the first line is neither numbers nor names"),
    ("0 1\nx y\n", "", "!e.csv, line 2: expected two node ids"),
    ("0 1.5\n", "", "!e.csv, line 1: expected two node ids"),
    ("0 -1\n", "", "!e.csv, line 1: expected two node ids"),
    ("0 99999999999\n", "", "!e.csv, line 1: the node id 99999999999 does not fit 32 bits"),
    ("0 99999999999\n", "compact", "0>99999999999"),
    ("lonely\n", "", "!e.csv, line 1: expected two node ids or the names of two columns"),
    ("", "", "!e.csv: there is no edge"),
    ("# nothing\n\n", "", "!e.csv: there is no edge"),
    ("src,dst\n", "", "!e.csv: there is no edge"),
    // With names.
    ("src,dst\n0,1\n1,2\n", "", "0>1 1>2 | columns: source 1, target 2 of 2"),
    ("Source,Target\n0,1\n", "", "0>1 | columns: source 1, target 2 of 2"),
    ("target,source\n0,1\n", "", "1>0 | columns: source 2, target 1 of 2"),
    ("to;from\n0;1\n", "", "1>0 | columns: source 2, target 1 of 2"),
    ("src,weight,dst\n0,0.5,1\n", "", "0>1:0.5 | columns: source 1, target 3, weight 2 of 3"),
    ("weight,src,dst\n0.5,0,1\n", "", "0>1:0.5 | columns: source 2, target 3, weight 1 of 3"),
    ("weight,src,dst\n0.5,0,1\n", "bare", "0>1 | columns: source 2, target 3, weight 1 of 3"),
    (",src,dst\n0,5,6\n1,6,5\n", "", "5>6 6>5 | columns: source 2, target 3 of 3; left out: "),
    ("id,src,dst\n7,0,1\n", "", "0>1 | columns: source 2, target 3 of 3; left out: id"),
    ("Unnamed: 0,u,v,w\n0,0,1,2.5\n", "", "0>1:2.5 | columns: source 2, target 3, weight 4 of 4; left out: unnamed: 0"),
    ("row col\n0 1\n", "", "0>1 | columns: source 1, target 2 of 2"),
    ("id_1,id_2\n0,1\n", "", "0>1 | columns: source 1, target 2 of 2"),
    ("\"src\",\"dst\"\n\"0\",\"1\"\n\"1\",\"0\"\n", "", "0>1 1>0 | columns: source 1, target 2 of 2"),
    ("\"src\",\"dst\"\n0,1\n", "", "0>1 | columns: source 1, target 2 of 2"),
    ("dst,src,note\n0,1,\"a, b\"\n", "src=src dst=dst", "1>0 | columns: source 2, target 1 of 3; left out: note"),
    (
        "src,dst,time\n0,1,99\n",
        "",
        "!e.csv, line 1: the columns are named \"src\", \"dst\", \"time\", of which not all are known",
    ),
    ("src,dst,time\n0,1,99\n", "src=src dst=dst", "0>1 | columns: source 1, target 2 of 3; left out: time"),
    ("alice,bob\ncarol,dan\n", "", "!e.csv, line 1: the columns are named \"alice\", \"bob\""),
    ("a,b\n0,1\n", "src=a dst=b", "0>1 | columns: source 1, target 2 of 2"),
    ("a,b\n0,1\n", "src=b dst=a", "1>0 | columns: source 2, target 1 of 2"),
    ("a,b\n0,1\n", "src=a dst=c", "!e.csv, line 1: there is no column \"c\": there are 2, named \"a\", \"b\""),
    ("src,dst\n0,1\n1\n", "", "!e.csv, line 3: expected two node ids"),
    ("dst,src\n0,1\n1\n", "", "!e.csv, line 3: expected 2 columns"),
    ("dst,src\n0,\n", "", "!e.csv, line 2: expected two node ids"),
    // Blanks and tabs in one line, as in KONECT.
    (
        "% sym weighted\n1 2\t1 1082040961\n2 3\t1 1082040961\n",
        "src=1 dst=2 first=1",
        "1>2 2>3 | columns: source 1, target 2 of 4",
    ),
    ("1\t2\t\t7\n2\t3\t\t8\n", "src=1 dst=2 weight=4", "1>2:7 2>3:8 | columns: source 1, target 2, weight 4 of 4"),
    // Attributes, as networkx writes them.
    ("0 1 {}\n1 2 {}\n", "", "0>1 1>2"),
    ("0 1 {'weight': 3.0}\n1 2 {'weight': 0.5, 'kind': 'a b'}\n", "", "0>1:3 1>2:0.5"),
    ("0 1 {'kind': 'a, b', 'weight': 2}\n", "", "0>1:2"),
    ("0,1,{\"weight\": 2}\n", "", "0>1:2"),
    ("0 1 {'weight': 3.0}\n1 2 {'kind': 4}\n", "", "!e.csv, line 2: expected two node ids and a weight"),
    ("0 1 {'weight': 3.0}\n1 2 {'kind': 4}\n", "bare", "0>1 1>2"),
    ("0 1 {'kind': 3.0}\n", "", "0>1 | columns: source 1, target 2 of 2; left out: attributes"),
    ("0 1 {}\n1 2\n", "", "!e.csv, line 2: expected two node ids and {…}, found \"1 2\""),
    // Ids that are text.
    ("alice bob\nbob carol\n", "strings columns=src+dst", "alice>bob bob>carol | columns: source 1, target 2 of 2"),
    (
        "alice,bob\n",
        "strings",
        "!e.csv: the columns are named \"alice\", \"bob\", of which not all are known; name columns by --src and --dst, or, where the first line is an edge, by --columns src,dst",
    ),
    ("src,dst\n\"a, b\",\"say \"\"hi\"\"\"\n", "strings", "a, b>say \"hi\" | columns"),
    ("src,dst\n007,7\n", "strings", "007>7 | columns"),
    ("from;to;w\nx;y;2\ny;;1\n", "strings", "!e.csv, line 3: a node id is missing"),
    (
        "from,to,w\nx,y,-1\n",
        "strings",
        "!e.csv, line 2: the weight -1 is not a finite number of at least 0; correct it, or import with --drop-weights",
    ),
    ("src,dst\nx,y,z\n", "strings", "!e.csv, line 2: 3 fields, the first row has 2"),
    // Other files.
    (
        "<?xml version=\"1.0\"?>\n<graphml>",
        "",
        "!e.csv: this is GraphML, which is not read; write its edges: networkx.write_edgelist",
    ),
    ("graph [\n  node [\n    id 0\n", "", "!e.csv: this is GML, which is not read"),
    ("\u{1}\u{0}\u{0}", "", "!e.csv: this is no text"),
    // Ids, times, loops, duplicates.
    (
        "1 2\n2 3\n",
        "",
        "1>2 2>3 | the lowest node id is 1: nodes below it have no edges; for ids that count from 1 import with --first-id 1",
    ),
    ("1 2\n2 3\n", "first=1", "1>2 2>3"),
    ("0 1\n", "first=1", "!e.csv, line 1: the node id 0 is below the first id 1"),
    ("5 9\n9 70\n", "compact", "5>9 9>70"),
    (
        "0 1 1082040961\n1 0 3\n",
        "",
        "0>1:1082041000 1>0:3 | 1 weights are whole numbers that f32 does not hold, and were rounded; if they are times, import with --drop-weights",
    ),
    ("0 1 16777216\n", "", "0>1:16777216"),
    ("5 9 16777217\n", "compact", "5>9:16777216 | 1 weights are whole numbers"),
    ("0 1\n1 1\n0 1\n", "", "0>1 0>1 1>1"),
    ("0 1\n1 1\n0 1\n", "loops duplicates", "0>1 | 1 self-loops were dropped | 1 duplicate edges were dropped"),
    ("0 1\n1 0\n1 1\n", "symmetrise", "0>1 1>0 1>1 | 2 duplicate edges were dropped, both directions counted"),
    (
        "0 1\n1 0\n1 1\n",
        "symmetrise loops",
        "0>1 1>0 | 1 self-loops were dropped | 2 duplicate edges were dropped, both directions counted",
    ),
];

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
