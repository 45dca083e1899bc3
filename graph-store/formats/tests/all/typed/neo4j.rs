//! Neo4j's csv files.

use morphgl_formats::{Options, Silent, neo4j};

use super::{edge_types, edges, features, folder, meta, node_types, notes, open};

/// The example of Neo4j's manual, with numbers.
const MOVIES: &str = "movieId:ID,title,year:int,:LABEL\ntt0133093,\"The Matrix\",1999,Movie\ntt0234215,\"The Matrix Reloaded\",2003,Movie;Sequel\n";
const ACTORS: &str = "personId:ID,name,born:int,height:float,:LABEL\nkeanu,\"Keanu Reeves\",1964,1.86,Actor\n\
                      carrieanne,Carrie-Anne Moss,1967,1.72,Actor\n";
const ROLES: &str = ":START_ID,role,weight:float,:END_ID,:TYPE\nkeanu,\"Neo\",2,tt0133093,ACTED_IN\n\
                     keanu,Neo,1,tt0234215,ACTED_IN\ncarrieanne,Trinity,1,tt0133093,LIKES\n";

#[test]
fn labels_are_node_types_and_types_edge_types() {
    let dir = folder(&[("movies.csv", MOVIES), ("actors.csv", ACTORS), ("roles.csv", ROLES), ("README.md", "x")]);
    let dataset = open(|target| neo4j::import(dir.path(), target, &Options::default(), &Silent));
    assert_eq!(node_types(&dataset), [("Actor", 2), ("Movie", 2)]);
    assert_eq!(edge_types(&dataset), ["Actor-ACTED_IN-Movie", "Actor-LIKES-Movie"]);
    assert_eq!(
        edges(&dataset),
        [
            "Actor:keanu -ACTED_IN-> Movie:tt0133093 weight 2",
            "Actor:carrieanne -LIKES-> Movie:tt0133093 weight 1",
            "Actor:keanu -ACTED_IN-> Movie:tt0234215 weight 1",
        ]
    );
    assert_eq!(features(&dataset, 0), (vec![1964.0, 1.86, 1967.0, 1.72], 2));
    assert_eq!(features(&dataset, 1), (vec![1999.0, 2003.0], 1));
    let names = meta(&dataset).provenance["feature_names_by_type"].to_string();
    assert_eq!(names, r#"{"Actor":["born","height"],"Movie":["year"]}"#);
    for note in ["movies.csv: properties left out: title", "roles.csv: properties left out: role"] {
        assert!(notes(&dataset).contains(note), "{note}: {}", notes(&dataset));
    }
}

#[test]
fn spaces_keep_ids_apart_and_headers_may_be_files() {
    let dir = folder(&[
        ("people-header.csv", "id:ID(Person){id-type:int},age:int\n"),
        ("people-1.csv", "1,30\n2,40\n"),
        ("people-2.csv", "3,50\n"),
        ("shop.csv", ":ID(Shop),:LABEL,secret:IGNORE\n1,Shop,x\n"),
        ("VISITS.csv", ":START_ID(Person),:END_ID(Shop),times:int\n3,1,7\n1,1,2\n"),
    ]);
    let dataset = open(|target| neo4j::import(dir.path(), target, &Options::default(), &Silent));
    assert_eq!(node_types(&dataset), [("people", 3), ("Shop", 1)]);
    assert_eq!(edges(&dataset), ["people:1 -VISITS-> Shop:1", "people:3 -VISITS-> Shop:1"]);
    assert_eq!(features(&dataset, 0), (vec![30.0, 40.0, 50.0], 1));
    assert!(notes(&dataset).contains("VISITS.csv: properties of edges left out: times"), "{}", notes(&dataset));
}

#[test]
fn what_is_wrong_is_refused() {
    let refused = |files: &[(&str, &str)]| {
        let dir = folder(files);
        let target = dir.path().join("out");
        let error = neo4j::import(dir.path(), &target, &Options::default(), &Silent).expect_err("refused");
        error.to_string().replace(&format!("{}/", dir.path().display()), "")
    };
    let nodes = ("n.csv", ":ID,:LABEL\na,N\n");
    for (files, text) in [
        (&[("n.csv", "id,name\n1,x\n")][..], "n.csv, line 1: a header without :ID, and without :START_ID and :END_ID"),
        (&[nodes, ("r.csv", ":START_ID,:TYPE\na,R\n")], "r.csv, line 1: a header of relationships without :END_ID"),
        (&[("n.csv", ":ID,b:ID\n1,2\n")], "n.csv, line 1: a header with two columns :ID"),
        (&[("r.csv", ":START_ID,:END_ID,:TYPE\na,a,R\n")], "no file of nodes, with :ID in its header"),
        (&[("a.md", "")], "a directory without csv files"),
        (&[nodes, ("r.csv", ":START_ID,:END_ID,:TYPE\na,b,R\n")], "r.csv, line 2: the target \"b\" is no node"),
        (&[nodes, ("r.csv", ":START_ID,:END_ID,:TYPE\na,a,\n")], "r.csv, line 2: an edge without a type"),
        (&[("n.csv", ":ID,:LABEL\na,N\na,M\n")], "n.csv, line 3: the id \"a\" stands there twice"),
        (&[("n.csv", ":ID,:LABEL\na,\n")], "n.csv, line 2: a node without a label"),
        (&[("n.csv", ":ID,x:int,:LABEL\na,,N\n")], "n.csv, line 2: the feature \"x\" is missing"),
        (&[("n.csv", ":ID,x:int,:LABEL\na,b,N\n")], "n.csv, line 2: the feature \"x\" is \"b\", no number"),
        (&[("n-header.csv", ":ID\n"), ("n.csv", "a,1\n")], "n.csv: 2 columns, but the header names 1"),
        (
            &[("m.csv", ":ID(A),:LABEL\na,N\n"), ("n.csv", ":ID(B),:LABEL\na,N\n")],
            "two nodes of type \"N\" have the id \"a\", each in an id space of its own",
        ),
        (
            &[("m.csv", ":ID,x:int,:LABEL\na,1,N\n"), ("n.csv", ":ID,y:int,:LABEL\nb,1,N\n")],
            "n.csv, line 2: nodes of type \"N\" have the features y, and before x",
        ),
    ] {
        let error = refused(files);
        assert!(error.contains(text), "{error}");
    }
}
