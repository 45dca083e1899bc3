//! Triples of knowledge graphs.

use morphgl_formats::{EdgeSplit, LinkFiles, Options, Silent, triples};

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

/// Names of the pairs of a split and of their edge types.
fn named(dataset: &Typed, split: usize) -> Vec<String> {
    let pairs = [dataset.edges.train.as_deref().unwrap_or_default(), &dataset.edges.valid, &dataset.edges.test][split];
    let types = dataset.edges.types[split].as_deref().expect("types of pairs");
    let (names, all) = (dataset.names.as_ref().expect("names"), edge_types(dataset));
    let name = |(pair, &of): (&[u32], &u16)| {
        let [source, target] =
            [names.get(pair[0]), names.get(pair[1])].map(|name| String::from_utf8_lossy(name).into_owned());
        format!("{source} {} {target}", all[usize::from(of)])
    };
    pairs.chunks_exact(2).zip(types).map(name).collect()
}

#[test]
fn a_folder_of_splits_has_its_pairs() {
    let files = [("train.txt", "a\tr\tb\nc\tr\tc\n"), ("valid.txt", "b\ts\ta\n"), ("test.txt", "d\tr\ta\na\tr\tb\n")];
    let dir = folder(&files);
    let options = Options { symmetrise: true, ..Options::default() };
    let dataset = open(|target| triples::import(dir.path(), target, &options, &Silent));
    assert_eq!(node_types(&dataset), [("entity", 4)], "entities of all splits");
    let of = ["entity-r-entity", "entity-s-entity", "entity-rev_r-entity", "entity-rev_s-entity"];
    assert_eq!(edge_types(&dataset), of);
    assert_eq!(
        edges(&dataset),
        [
            "entity:b -rev_r-> entity:a",
            "entity:a -r-> entity:b",
            "entity:c -r-> entity:c",
            "entity:c -rev_r-> entity:c"
        ]
    );
    let [r, s, rev_r, rev_s] = of;
    let pair = |source: &str, of: &str, target: &str| format!("entity:{source} {of} entity:{target}");
    assert_eq!(
        named(&dataset, 0),
        [pair("a", r, "b"), pair("b", rev_r, "a"), pair("c", r, "c"), pair("c", rev_r, "c")]
    );
    assert_eq!(named(&dataset, 1), [pair("b", s, "a"), pair("a", rev_s, "b")]);
    assert_eq!(named(&dataset, 2)[..2], [pair("d", r, "a"), pair("a", rev_r, "d")]);
    assert!(notes(&dataset).contains("2 of 4 test pairs are edges of the graph"), "{}", notes(&dataset));

    // A split that an option names; and a drawn one in place of the folder's files.
    let links = LinkFiles { test: Some(dir.path().join("test.txt")), ..LinkFiles::default() };
    let apart = Options { links, ..Options::default() };
    let apart = open(|target| triples::import(&dir.path().join("train.txt"), target, &apart, &Silent));
    assert_eq!((named(&apart, 1).len(), named(&apart, 2)), (0, vec![pair("d", r, "a"), pair("a", r, "b")]));
    let edge_split = Some(EdgeSplit { train: 0.5, valid: 0.5, test: 0.0, seed: 3 });
    let drawn =
        open(|target| triples::import(dir.path(), target, &Options { edge_split, ..Options::default() }, &Silent));
    assert_eq!(node_types(&drawn), [("entity", 3)]);
    assert!(notes(&drawn).contains("left out for random ones"), "{}", notes(&drawn));
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
