//! Triples of knowledge graphs.

use morphgl_formats::{Options, Silent, triples};

use super::{Typed, edge_types, edges, folder, node_types, notes, open};
use crate::support::refusal;

fn import(name: &str, text: &str, options: &Options) -> Typed {
    let dir = folder(&[(name, text)]);
    open(|target| triples::import(&dir.path().join(name), target, options, &Silent))
}

#[test]
fn relations_are_edge_types_and_entities_nodes() {
    let text = "Ann\tis, in love with\tBob\n#1\tknows\tAnn\nBob\tknows\tAnn\n";
    let dataset = import("kg.txt", text, &Options::default());
    assert_eq!(node_types(&dataset), [("entity", 3)]);
    assert_eq!(edge_types(&dataset), ["entity-is, in love with-entity", "entity-knows-entity"]);
    assert_eq!(
        edges(&dataset),
        [
            "entity:Bob -knows-> entity:Ann",
            "entity:#1 -knows-> entity:Ann",
            "entity:Ann -is, in love with-> entity:Bob"
        ]
    );
}

#[test]
fn numbers_stay_numbers_and_reverses_are_types_of_their_own() {
    let dataset = import("kg.tsv", "7 0 3\n3 1 7\n", &Options { symmetrise: true, ..Options::default() });
    assert_eq!(dataset.node_ids.as_ref().expect("ids").to_vec(), [7, 3]);
    assert_eq!(
        edges(&dataset),
        [
            "entity:3 -1-> entity:7",
            "entity:3 -rev_0-> entity:7",
            "entity:7 -0-> entity:3",
            "entity:7 -rev_1-> entity:3"
        ]
    );
}

#[test]
fn n_triples_are_read_without_their_literals() {
    let text = "# made by hand\n<http://a> <http://p> <http://b> .\n<http://a> <http://name> \"A b\"@en .\n_:x <http://p> <http://a> .\n";
    let dataset = import("kg.nt", text, &Options::default());
    assert_eq!(
        edges(&dataset),
        ["entity:_:x -http://p-> entity:http://a", "entity:http://a -http://p-> entity:http://b",]
    );
    assert!(notes(&dataset).contains("1 triple was left out, whose objects are literals"), "{}", notes(&dataset));
}

#[test]
fn a_folder_of_splits_is_read_by_its_training_triples() {
    let dir = folder(&[("train.txt", "a\tr\tb\n"), ("valid.txt", "b\tr\ta\n")]);
    let dataset = open(|target| triples::import(dir.path(), target, &Options::default(), &Silent));
    assert_eq!(edges(&dataset), ["entity:a -r-> entity:b"]);
    assert!(notes(&dataset).contains("the triples to validate and test on were left out"), "{}", notes(&dataset));
}

#[test]
fn other_lines_are_refused() {
    let refused = |text: &str| {
        refusal("kg.txt", text.as_bytes(), |source, target| {
            triples::import(source, target, &Options::default(), &Silent)
        })
    };
    assert_eq!(
        refused("a\tr\tb\na\tr\n"),
        "kg.txt, line 2: a triple of fewer than three fields; correct the line: head, relation and tail, with tabs between them"
    );
    assert_eq!(
        refused("<a> <p> <b> .\n<a> <p> b .\n"),
        "kg.txt, line 2: a term that is no IRI, blank node or literal; correct the line: <subject> <predicate> <object> ."
    );
    assert_eq!(refused("\n"), "kg.txt: there is no node; check that these are the right files");
}
