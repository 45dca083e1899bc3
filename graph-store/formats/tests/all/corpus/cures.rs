//! The cures of refusals, applied as they are written.

use std::path::Path;

use morphgl_formats::{Options, Silent, metis, mtx};

use super::cases::CASES;
use super::{dataset_edges, independent, read};

/// Options as messages name them, and as [`read`] does; of two that begin alike, the longer one first.
const OPTIONS: &[(&str, &str)] = &[
    ("--ids strings --columns src,dst", "strings columns=src+dst"),
    ("--ids strings", "strings"),
    ("--ids compact --unknown-nodes drop", "compact unlisted-dropped"),
    ("--unknown-nodes drop", "unlisted-dropped"),
    ("--ids compact", "compact"),
    ("--drop-weights", "bare"),
    ("--bipartite=no", "together"),
    ("--src, --dst and --weight which ones are read, and by --bipartite", "src=1 dst=2 apart"),
    ("--bipartite", "apart"),
    ("--ignore-columns", "any-count"),
    ("--first-id 0", "first=0"),
    ("--src, --dst and --weight", "src=1 dst=2"),
    ("--src and --dst", "src=1 dst=2"),
];

/// What a message tells a user to type.
enum Cure {
    Option(&'static str),
    /// Writing the edges of a list of neighbours.
    Neighbors,
    Import(&'static str),
}

fn cures(message: &str) -> Vec<Cure> {
    let mut found = Vec::new();
    let mut rest = message.to_string();
    for &(text, how) in OPTIONS {
        if rest.contains(text) && !rest.contains("morphgl import edges edges") {
            rest = rest.replace(text, "");
            found.push(Cure::Option(how));
        }
    }
    if rest.contains("re.findall") {
        found.push(Cure::Neighbors);
    }
    found
        .extend(["mtx", "metis"].into_iter().filter(|f| rest.contains(&format!("import {f} e.csv"))).map(Cure::Import));
    found
}

/// The edges of a list of neighbours, one per line.
fn neighbors(text: &str) -> String {
    let mut edges = "src dst\n".to_string();
    for line in text.lines().filter(|line| !line.starts_with(['#', '%'])) {
        let mut words =
            line.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ':')).filter(|w| !w.is_empty());
        let Some(node) = words.next() else { continue };
        words.for_each(|neighbor| edges += &format!("{node} {neighbor}\n"));
    }
    edges
}

/// The edges of a MatrixMarket file or a METIS graph without weights of nodes, by reading its numbers.
fn numbers(text: &str, format: &str) -> Vec<String> {
    let banner = text.lines().next().unwrap_or_default().to_lowercase();
    let mut lines = text.lines().filter(|line| !line.starts_with('%'));
    let sizes: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let mut edges = Vec::new();
    for (row, line) in lines.enumerate() {
        let words: Vec<f32> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        match format {
            "mtx" => {
                let weight = words.get(2).map_or(String::new(), |w| format!(":{w}"));
                let (i, j) = (words[0] - 1.0, words[1] - 1.0);
                edges.push(format!("{i}>{j}{weight}"));
                if banner.contains("symmetric") && i != j {
                    edges.push(format!("{j}>{i}{weight}"));
                }
            }
            _ => {
                let weighted = sizes.get(2).is_some_and(|fmt| fmt.ends_with('1'));
                for entry in words.chunks(if weighted { 2 } else { 1 }) {
                    let weight = entry.get(1).map_or(String::new(), |w| format!(":{w}"));
                    edges.push(format!("{}>{row}{weight}", entry[0] - 1.0));
                }
            }
        }
    }
    edges.sort();
    edges
}

fn imported(text: &str, format: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, target) = (crate::support::write(&dir, "e.csv", text.as_bytes()), dir.path().join("dataset"));
    let import = |source: &Path| match format {
        "mtx" => mtx::import(source, &target, &Options::default(), &Silent),
        _ => metis::import(source, &target, &Options::default(), &Silent),
    };
    import(&source).expect("the command that the message names reads the file");
    dataset_edges(&target)
}

/// Follows every cure of a refusal to its end; returns how many graphs that gave.
fn follow(text: &str, how: &str, path: &mut Vec<String>) -> usize {
    let found = read(text, how);
    let Some(message) = found.strip_prefix('!') else {
        let edges: Vec<&str> = found.split(" | ").next().unwrap_or_default().split(' ').collect();
        let expected = independent::edges(text, how);
        assert_eq!(edges.join(" "), expected.join(" "), "{text:?} ({how}) after {path:?}");
        return 1;
    };
    assert!(!path.iter().any(|before| before == message), "the cure leads in a circle: {text:?} ({how}): {path:?}");
    assert!(path.len() < 5, "{text:?} ({how}): {path:?}");
    path.push(message.to_string());
    let mut graphs = 0;
    for cure in cures(message) {
        graphs += match cure {
            Cure::Option(option) => {
                // A file with an option that is given already is not one that its cure is for.
                if option.split(' ').all(|word| how.split(' ').any(|given| given == word)) {
                    panic!("the option is given already: {text:?} ({how}): {message}");
                }
                follow(text, &format!("{how} {option}"), path)
            }
            Cure::Neighbors => follow(&neighbors(text), "", path),
            Cure::Import(format) => {
                assert_eq!(imported(text, format), numbers(text, format), "{text:?}");
                1
            }
        };
    }
    path.pop();
    graphs
}

/// Each refusal's cure gives every edge of the file, as a reader of its own finds them, or a refusal of another kind, and ends in a
/// graph or in a line that is to be corrected by hand.
#[test]
fn cures_give_every_edge() {
    let (mut refused, mut graphs) = (0, 0);
    for (text, how, _) in CASES.iter().filter(|case| case.2.starts_with('!')) {
        refused += 1;
        graphs += follow(text, how, &mut Vec::new());
    }
    assert!(refused >= 60 && graphs >= 40, "{refused} refusals, {graphs} graphs");
}

/// What is read without a refusal has the edges of that other reader, too.
#[test]
fn graphs_are_those_of_another_reader() {
    let changes = ["symmetrise", "loops", "duplicates"];
    let plain = |how: &&str| !how.split(' ').any(|word| changes.contains(&word));
    let accepted = CASES.iter().filter(|case| !case.2.starts_with('!') && plain(&case.1));
    assert!(accepted.map(|(text, how, _)| follow(text, how, &mut Vec::new())).sum::<usize>() >= 60);
}
