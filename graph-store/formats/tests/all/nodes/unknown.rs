//! Edges whose ids the node table does not list.

use std::collections::BTreeSet;

use morphgl_formats::UnknownNodes;
use morphgl_formats::edge_list::Columns;
use proptest::prelude::*;

use super::*;

/// What an import must give by plain sets: names of nodes, edges with weights, and numbers of edges and ids that were left out.
struct Expected {
    nodes: Vec<String>,
    edges: Vec<(String, String, f32)>,
    left_out: (usize, usize),
}

fn expected(edges: &[(u64, u64)], listed: &BTreeSet<u64>, name: &dyn Fn(u64) -> String) -> Expected {
    let (kept, others): (Vec<_>, Vec<_>) =
        (0..).zip(edges).partition(|(_, (u, v))| listed.contains(u) && listed.contains(v));
    let unknown: BTreeSet<u64> =
        others.iter().flat_map(|(_, (u, v))| [*u, *v]).filter(|id| !listed.contains(id)).collect();
    let mut edges: Vec<_> = kept.into_iter().map(|(i, (u, v))| (name(*u), name(*v), weight(i))).collect();
    edges.sort_by(|a, b| a.partial_cmp(b).expect("finite weights"));
    let mut nodes: Vec<String> = listed.iter().map(|&id| name(id)).collect();
    nodes.sort();
    Expected { nodes, edges, left_out: (others.len(), unknown.len()) }
}

fn weight(i: usize) -> f32 {
    i as f32 / 4.0
}

/// Nodes, edges and the notes of a dataset.
fn found(path: &Path) -> (Vec<String>, Vec<(String, String, f32)>, String) {
    let dataset = Dataset::open(path, Default::default()).expect("a dataset");
    let names: Vec<String> =
        nodes(path).iter().map(|node| node.split(": ").next().expect("a name").to_string()).collect();
    let edges = crate::support::edges(&dataset).into_iter();
    let mut edges: Vec<_> = edges.map(|(u, v, w)| (names[u as usize].clone(), names[v as usize].clone(), w)).collect();
    edges.sort_by(|a, b| a.partial_cmp(b).expect("finite weights"));
    let mut names = names;
    names.sort();
    (names, edges, notes(path))
}

proptest! {
    /// Whatever edges and node table are, in every treatment of ids and both readers: the edges between listed nodes remain with
    /// their weights, all others are counted, and so are their ids; listed nodes without an edge stay.
    #[test]
    fn edges_of_unknown_nodes_are_left_out_and_counted(
        edges in prop::collection::vec((0u64..12, 0u64..12), 1..40),
        listed in prop::collection::btree_set(0u64..12, 1..12),
        kind in 0usize..5,
        shuffled in any::<bool>(),
    ) {
        let ids = [Ids::Keep, Ids::Compact, Ids::Compact, Ids::Strings, Ids::Keep][kind];
        // Ids that are kept have no gaps: the table lists the first ones.
        let listed = if ids == Ids::Keep { (0..listed.len() as u64).collect() } else { listed };
        let scale = if ids == Ids::Compact { 1_000_003 } else { 1 };
        let first = u64::from(kind == 4);
        let name = |id: u64| if ids == Ids::Strings { format!("n{id}") } else { (id * scale + first).to_string() };
        let mut case = Case::new(ids);
        case.format.first_id = (first > 0).then_some(first);
        let lines = edges.iter().enumerate();
        let lines: String = lines.map(|(i, (u, v))| format!("{},{},{}\n", name(*u), name(*v), weight(i))).collect();
        // With quotes in the first line, ids are read field by field.
        let header = if kind == 2 { "\"src\",\"dst\",weight\n" } else { "src,dst,weight\n" };
        let mut rows: Vec<u64> = listed.iter().copied().collect();
        if shuffled {
            rows.reverse();
        }
        let rows: String = rows.iter().map(|&id| format!("{},{}\n", name(id), id as f32 / 2.0)).collect();
        case.options.nodes.table = case.file("n.csv", &format!("id,f0\n{rows}"));
        let right = expected(&edges, &listed, &name);
        let refused = case.import(&format!("{header}{lines}"));
        prop_assert_eq!(refused.is_err(), right.left_out.0 > 0, "{:?}", refused);
        if let Err(message) = refused {
            prop_assert!(message.contains(" nodes have no features: ") && message.contains("--unknown-nodes drop"), "{message}");
        }
        case.options.nodes.unknown_nodes = Some(UnknownNodes::Drop);
        let path = case.import(&format!("{header}{lines}")).expect("a dataset");
        let (nodes, edges, notes) = found(&path);
        prop_assert_eq!(&nodes, &right.nodes);
        prop_assert_eq!(edges, right.edges);
        let (left_out, ids) = right.left_out;
        let (edges, of) = if left_out == 1 { ("edge was", "its") } else { ("edges were", "their") };
        let note = format!("{left_out} {edges} left out: n.csv does not list {ids} of {of} ids: ");
        prop_assert_eq!(notes.contains(&note), left_out > 0, "{}", notes);
        let says = notes.contains("was left out") || notes.contains("were left out");
        prop_assert_eq!(says, left_out > 0, "{}", notes);
    }
}

/// The files of LINQS: an id, words and the name of a class per row, without names of columns.
#[test]
fn a_cite_of_an_unknown_paper() {
    let mut case = Case::new(Ids::Compact);
    let content = "31336\t0\t1\tNeural\n1061127\t1\t0\tRules\n1106406\t0\t1\tNeural\n13195\t0\t0\tTheory\n";
    case.options.nodes.table = case.file("toy.content", content);
    case.options.nodes.columns.id = Some(Column::Number(1));
    case.options.nodes.columns.label = Some(Column::Number(4));
    case.options.nodes.columns.features = Some(vec![Column::Name("2-3".to_string())]);
    let cites = "31336\t1061127\n1106406\t31336\n13195\t1106406\n99\t13195\n31336\t98\n99\t98\n";
    let message = case.import(cites).unwrap_err();
    let says = "toy.content: 2 of 6 nodes have no features: 98, 99; give every node its row, or import the nodes of this file \
                alone by --unknown-nodes drop";
    assert_eq!(message, says);
    case.options.nodes.unknown_nodes = Some(UnknownNodes::Drop);
    let path = case.import(cites).unwrap();
    assert_eq!(
        nodes(&path),
        ["13195: 0 0 / 2 / -", "31336: 0 1 / 0 / -", "1061127: 1 0 / 1 / -", "1106406: 0 1 / 0 / -"]
    );
    assert_eq!(found(&path).1.len(), 3);
    let said = "3 edges were left out: toy.content does not list 2 of their ids: 98, 99";
    assert!(notes(&path).contains(said), "{}", notes(&path));
}

/// Kept ids with gaps need other numbers, which the message says at once.
#[test]
fn kept_ids_with_gaps() {
    let mut case = Case::new(Ids::Keep);
    case.options.nodes.table = case.file("n.csv", "id,f0\n0,1\n3,2\n5,4\n");
    let message = case.import("0 3\n3 7\n").unwrap_err();
    assert!(message.starts_with("n.csv: 5 of 8 nodes have no features: 1, 2, 4, 6, 7; "), "{message}");
    assert!(message.ends_with("alone by --ids compact --unknown-nodes drop"), "{message}");
    case.options.nodes.unknown_nodes = Some(UnknownNodes::Drop);
    let message = case.import("0 3\n3 7\n").unwrap_err();
    assert!(message.ends_with("alone by --ids compact"), "{message}");
    case.format.ids = Ids::Compact;
    assert_eq!(nodes(&case.import("0 3\n3 7\n").unwrap()), ["0: 1 / - / -", "3: 2 / - / -", "5: 4 / - / -"]);
}

/// The file of features says which nodes there are; rows of others are left out of the remaining files.
#[test]
fn rows_of_other_files() {
    let mut case = Case::new(Ids::Strings);
    case.format.columns = Columns { names: Some(vec!["src".into(), "dst".into()]), ..Columns::default() };
    case.options.nodes.features = case.file("x.csv", "id,f0\na,1\nb,2\nc,3\n");
    case.options.nodes.labels = case.file("y.csv", "id,label\na,0\nd,1\nb,1\nc,0\n");
    case.options.nodes.splits[0] = case.file("train.txt", "a\ne\nd\n");
    let message = case.import("a b\nb e\n").unwrap_err();
    assert!(message.starts_with("x.csv: 2 of 5 nodes have no features: \"d\", \"e\"; "), "{message}");
    case.options.nodes.unknown_nodes = Some(UnknownNodes::Drop);
    let path = case.import("a b\nb e\n").unwrap();
    assert_eq!(nodes(&path), ["a: 1 / 0 / train", "b: 2 / 1 / -", "c: 3 / 0 / -"]);
    for said in [
        "1 edge was left out: x.csv does not list 1 of its ids: \\\"e\\\"",
        "y.csv: 1 row of nodes that x.csv does not list was left out",
        "train.txt: 2 rows of nodes that x.csv does not list were left out",
    ] {
        assert!(notes(&path).contains(said), "{}", notes(&path));
    }
}

/// A table without features leaves other nodes unlabelled, unless it is said to list them all.
#[test]
fn a_table_of_labels() {
    let mut case = Case::new(Ids::Compact);
    case.options.nodes.labels = case.file("y.csv", "id,label\n10,0\n30,1\n");
    assert_eq!(nodes(&case.import("10 20\n20 30\n").unwrap()), ["10:  / 0 / -", "20:  / -1 / -", "30:  / 1 / -"]);
    case.options.nodes.unknown_nodes = Some(UnknownNodes::Refuse);
    let message = case.import("10 20\n20 30\n").unwrap_err();
    assert!(message.starts_with("y.csv: 1 of 3 nodes have no row: 20; "), "{message}");
    case.options.nodes.unknown_nodes = Some(UnknownNodes::Drop);
    let path = case.import("10 20\n20 30\n10 30\n").unwrap();
    assert_eq!(nodes(&path), ["10:  / 0 / -", "30:  / 1 / -"]);
    // All edges are left out: a graph without edges is one, and said.
    let path = case.import("10 20\n20 30\n").unwrap();
    assert!(notes(&path).contains("2 edges were left out") && notes(&path).contains("there is no edge"));
    // A number of edges in the header counts those that were left out.
    let path = case.import("# Nodes: 3 Edges: 3\n10 20\n20 30\n10 30\n").unwrap();
    assert!(!notes(&path).contains("cut short"), "{}", notes(&path));
}

/// Where no file has ids, or nodes are rows, there are no unknown nodes.
#[test]
fn files_without_ids() {
    for unknown in [UnknownNodes::Refuse, UnknownNodes::Drop] {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.unknown_nodes = Some(unknown);
        case.options.nodes.features = case.array("x.npy", &[1f32, 2.], Some(1));
        let message = case.import("0 1\n").unwrap_err();
        assert!(message.starts_with("--unknown-nodes: no file of nodes has a column of ids; name"), "{message}");
        case.options.nodes.features = case.file("x.csv", "id,f0\n0,1\n1,2\n");
        let graph = case.file("g.graph", "2 1\n2\n1\n").unwrap();
        let options = Options { replace: true, ..case.options.clone() };
        let refused = metis::import(&graph, &case.dir.path().join("dataset"), &options, &Silent);
        let message = refused.unwrap_err().to_string();
        assert_eq!(message, "--unknown-nodes: the nodes of this format are its rows; leave it out");
    }
}
