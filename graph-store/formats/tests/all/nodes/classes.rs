//! Labels that are no classes, and spellings of one class.

use std::path::Path;

use morphgl_formats::edge_list::Ids;
use morphgl_graph_store::{Dataset, Meta};

use super::{Case, notes};

fn labels(path: &Path) -> Vec<i32> {
    Dataset::open(path, Default::default()).unwrap().labels.as_deref().expect("labels").to_vec()
}

/// A table of nodes with these labels.
fn labelled(labels: &[&str]) -> (Case, String) {
    let mut case = Case::new(Ids::Keep);
    let rows: String = labels.iter().enumerate().map(|(node, label)| format!("{node},\"{label}\"\n")).collect();
    case.options.nodes.table = case.file("n.csv", &format!("id,label\n{rows}"));
    let edges = (1..labels.len()).map(|node| format!("0 {node}\n")).collect();
    (case, edges)
}

#[test]
fn quantities_are_refused() {
    for (table, expected) in [
        (&["12.5", "0.31", "7", "3.0"][..], "n.csv, line 2: the label 12.5 is no class: classes are whole numbers"),
        (&["7", "3.0", "0.31"], "n.csv, line 4: the label 0.31 is no class"),
        (&["1", "", "1e-3"], "n.csv, line 4: the label 1e-3 is no class"),
        (&["0", "inf"], "n.csv, line 3: the label inf is no class"),
        (&["1", "0", "-1", "-100"], "n.csv, line 5: the label -100 is no class"),
        (&["-2", "0.5"], "n.csv, line 3: the label 0.5 is no class"),
        (&["3000000000", "1"], "n.csv, line 2: the label 3000000000 is no class"),
    ] {
        let (case, edges) = labelled(table);
        let error = case.import(&edges).unwrap_err();
        assert!(error.starts_with(expected), "{table:?}: {error}");
        assert!(error.ends_with("-1 or nothing stands for a node without a label"), "{error}");
    }
    let case = Case::new(Ids::Keep);
    let mut array = Case::new(Ids::Keep);
    array.options.nodes.labels = case.array("y.npy", &[0i32, 1, -100], None);
    let error = array.import("0 1\n1 2\n").unwrap_err();
    assert!(error.contains("the label is -100, neither a class number nor -1 (none)"), "{error}");
}

#[test]
fn numbers_and_booleans_are_one_class_however_spelled() {
    for (table, expected) in [
        (&["3.0", "1.0", "", "1", "003"][..], &[3, 1, -1, 1, 3][..]),
        (&["True", "False", "true", "FALSE", "", "TRUE"], &[1, 0, 1, 0, -1, 1]),
        (&["1", "true", "0", "False"], &[1, 1, 0, 0]),
        (&["FALSE", "FALSE"], &[0, 0]),
        (&["NA", "t", "f"], &[-1, 1, 0]),
        (&["yes", "no", "true", "no"], &[2, 0, 1, 0]),
        (&["1.10", "python", "1.1", "python"], &[1, 2, 0, 2]),
    ] {
        let (case, edges) = labelled(table);
        assert_eq!(labels(&case.import(&edges).unwrap()), expected, "{table:?}");
    }
    let (case, edges) = labelled(&["True", "true"]);
    let meta = Meta::read(case.import(&edges).unwrap()).unwrap();
    assert_eq!(meta.provenance["class_names"].to_string(), "[\"false\",\"true\"]");
}

/// Names, dates, lists and ids of nodes have about as many classes as nodes.
#[test]
fn as_many_classes_as_nodes_are_remarked() {
    for (table, classes) in [
        (&["Anna", "Bert", "Cleo, Jr.", "Dora"][..], Some("4 classes for 4")),
        (&["2020-01-05", "2020-02-01", "2021-03-04", "2021-03-04", ""], Some("3 classes for 4")),
        (&["sport;news", "news", "[1, 0]", "news", "sport;news"], Some("3 classes for 5")),
        (&["10", "11", "12", "13"], Some("4 classes for 4")),
        (&["17", "4", "9", "4", "1"], Some("4 classes for 5")),
        (&["a", "b", "c", "a", "b", "c"], None),
        (&["a", "b"], None),
    ] {
        let (case, edges) = labelled(table);
        let found = notes(&case.import(&edges).unwrap());
        let said = classes.map(|classes| format!("{classes} labelled nodes, fewer than two for each"));
        assert!(said.as_ref().map_or(!found.contains("fewer than two"), |said| found.contains(said)), "{found}");
    }
    let (case, edges) = labelled(&["cat", "Cat", " cat", "Cat"]);
    let path = case.import(&edges).unwrap();
    assert_eq!(labels(&path), [1, 0, 1, 0]);
    assert!(notes(&path).contains("differ in upper and lower case alone"), "{}", notes(&path));
}
