//! `morphgl import` as a command: what `info` counts, nodes that a table does not list, names, two imports into one directory.

mod support;

use std::fs;
use std::process::{Child, Stdio};

use morphgl_graph_store::{Dataset, OpenOptions};
use support::Bench;

/// Self-loops, as `info` counts them from the files: in the middle, at both ends, several of one node, and over rows longer than
/// what is read at a time.
#[test]
fn info_counts_self_loops() {
    let bench = Bench::new();
    let many: Vec<(u32, u32)> = (0..300_000).map(|i| (i % 3, if i % 1000 == 7 { i % 3 } else { 3 + i % 5 })).collect();
    for (name, pairs) in [
        ("none", vec![(0, 1), (1, 2), (2, 0)]),
        ("ends", vec![(0, 0), (0, 1), (1, 2), (4, 4)]),
        ("several", vec![(1, 1), (1, 1), (2, 1), (1, 2), (3, 3)]),
        ("many", many),
    ] {
        let lines: String = pairs.iter().map(|(u, v)| format!("{u} {v}\n")).collect();
        fs::write(bench.path().join("e.txt"), lines).expect("room");
        let imported = bench.json(&["import", "edges", "e.txt", "-o", name]);
        let expected = pairs.iter().filter(|(u, v)| u == v).count();
        assert_eq!(imported["self_loops"], expected, "{name}");
        assert_eq!(bench.json(&["info", name])["self_loops"], expected, "{name}");
        let text = bench.text(&["info", name]);
        let said = format!("edges     {} directed", indicatif::HumanCount(pairs.len() as u64));
        assert!(text.contains(&said), "{text}");
        assert_eq!(text.contains("of them self-loops"), expected > 0, "{text}");
        assert!(expected == 0 || text.contains(&format!(", {expected} of them self-loops")), "{text}");
    }
}

/// Targets beside a graph, as `info` shows them; labels that are targets are refused with the option that reads them.
#[test]
fn targets_of_nodes() {
    let bench = Bench::new();
    fs::write(bench.path().join("e.txt"), "0 1\n1 2\n2 3\n").expect("room");
    fs::write(bench.path().join("t.csv"), "id,mass,rare\n0,0.5,1\n2,,0\n3,,\n").expect("room");
    let import = ["import", "edges", "e.txt", "-o", "set"];
    let quantities = [&import[..], &["--labels", "t.csv", "--label-column", "mass"]].concat();
    bench.refused(&quantities, &["t.csv, line 2: the label 0.5 is no class", "as targets, by --targets FILE"]);
    bench.misused(&[&import[..], &["--target-columns", "mass"]].concat(), &["it is a column of --targets or --nodes"]);
    let imported = bench.json(&[&import[..], &["--targets", "t.csv"]].concat());
    let expected = serde_json::json!({"dim": 2, "names": ["mass", "rare"], "nodes": 2, "unknown": [3, 2]});
    assert_eq!(imported["targets"], expected);
    assert_eq!(bench.json(&["info", "set"])["targets"], expected);
    let text = bench.text(&["info", "set", "--check"]);
    assert!(text.contains("targets   2 per node (mass, rare), 2 nodes with any, 5 values unknown\n"), "{text}");
    // They are carried by a reordered copy.
    bench.text(&["reorder", "set", "-o", "copy"]);
    assert_eq!(bench.json(&["info", "copy"])["targets"], expected);
    bench.json(&[&import[..], &["--targets", "t.csv", "--target-columns", "rare", "--force"]].concat());
    let found = Dataset::open(bench.path().join("set"), OpenOptions::default()).expect("a dataset");
    assert_eq!(found.targets.as_ref().map(|t| (t.dim(), t.row(0)[0], t.is_known(1))), Some((1, 1.0, false)));
    assert_eq!(bench.json(&["import", "edges", "e.txt", "-o", "bare"])["targets"], serde_json::Value::Null);
}

/// Standardised features, and new data by the same means; a model refuses data that was not prepared as its own.
#[test]
fn standardised_features() {
    let bench = Bench::new();
    let edges: String = (0..30).map(|v| format!("{v} {}\n{} {v}\n", (v + 1) % 30, (v + 1) % 30)).collect();
    let nodes: String = (0..30).map(|v| format!("{v},{},{},{}\n", v % 2, 5 * v, 100 - v % 7)).collect();
    fs::write(bench.path().join("e.txt"), edges).expect("room");
    fs::write(bench.path().join("n.csv"), format!("id,label,f0,f1\n{nodes}")).expect("room");
    let import = |name, more: &[&str]| {
        bench.json(
            &[&["import", "edges", "e.txt", "--nodes", "n.csv", "-o", name, "--split", "0.6,0.2,0.2"], more].concat(),
        )
    };
    let columns = import("own", &["--standardise"])["provenance"]["features_standardised"].clone();
    assert_eq!(columns["mean"].as_array().map(Vec::len), Some(2));
    import("plain", &[]);
    assert_eq!(import("new", &["--standardise=own"])["provenance"]["features_standardised"], columns);
    bench.text(&["train", "own", "--epochs", "1", "--fanouts", "3,3", "--run", "run"]);
    bench.text(&["evaluate", "run", "new"]);
    let said = "import it again with --standardise=DATASET, the dataset that the model was trained on";
    bench.refused(&["evaluate", "run", "plain"], &["standardised", said]);
}

/// The refusal of edges between unknown nodes names the option, which leaves them out and counts them, as text and as JSON.
#[test]
fn nodes_that_a_table_does_not_list() {
    let bench = Bench::new();
    let files = [
        ("toy.cites", "31336\t1061127\n1106406\t31336\n99\t13195\n13195\t1106406\n"),
        (
            "toy.content",
            "31336\t0\t1\tNeural\n1061127\t1\t0\tRules\n1106406\t0\t1\tNeural\n13195\t0\t0\tTheory\n7\t1\t1\tRules\n",
        ),
    ];
    files.iter().for_each(|(name, text)| fs::write(bench.path().join(name), text).expect("room"));
    let line = "import edges toy.cites -o toy --ids compact --nodes toy.content --id-column 1 --label-column 4 --feature-columns 2-3";
    let args: Vec<&str> = line.split(' ').collect();
    bench.refused(&args, &["toy.content: 1 of 6 nodes have no features: 99; ", "by --unknown-nodes drop"]);
    let json = bench.json(&[&args[..], &["--unknown-nodes", "drop"]].concat());
    // The paper that nothing cites and that cites nothing is a node without edges.
    assert_eq!(
        (&json["num_nodes"], &json["num_edges"], &json["degree"]["isolated"]),
        (&5.into(), &3.into(), &1.into())
    );
    let note = "1 edge was left out: toy.content does not list 1 of its ids: 99";
    assert!(json["provenance"]["notes"].as_array().expect("a list").iter().any(|said| said == note), "{json:#}");
    let text = bench.text(&[&args[..], &["--unknown-nodes", "drop", "--force"]].concat());
    assert!(text.contains(note), "{text}");
    bench.misused(
        &["import", "edges", "toy.cites", "-o", "t", "--unknown-nodes", "drop"],
        &["--unknown-nodes", "name one by --nodes"],
    );
    let metis = ["import", "metis", "g", "-o", "t", "--nodes", "toy.content", "--unknown-nodes", "drop"];
    bench.misused(&metis, &["--unknown-nodes: edges alone read it; leave it out"]);
}

/// A dataset is named by its source, without the endings of format and compression.
#[test]
fn names_of_datasets() {
    let bench = Bench::new();
    let wiki = morphgl_testdata::path("edge-lists/wiki-Vote.txt.gz");
    let named = |source: &str, output: &str| bench.json(&["import", "edges", source, "-o", output])["name"].clone();
    assert_eq!(named(wiki.to_str().expect("UTF-8"), "a"), "wiki-Vote");
    for (source, name) in [("e.txt", "e"), ("roads.v2.csv", "roads.v2"), ("plain", "plain")] {
        fs::write(bench.path().join(source), "0 1\n").expect("room");
        assert_eq!(named(source, &format!("of {name}")), name);
    }
    let help = bench.text(&["import", "--help"]);
    for format in morphgl_formats::Format::ALL {
        assert!(help.contains(format.argument()) && help.contains(&format.help()[..12]), "{format:?}: {help}");
    }
}

/// Of two imports into one directory, started together, each ends with its dataset whole or is refused; at the end one of the two
/// is there, whole, and nothing beside it.
#[test]
fn two_imports_into_one_directory() {
    let bench = Bench::new();
    // Rings of different length.
    let sizes = [20_000usize, 30_000];
    for size in sizes {
        let lines: String = (0..size).map(|v| format!("{v} {}\n", (v + 1) % size)).collect();
        fs::write(bench.path().join(format!("{size}.txt")), lines).expect("room");
    }
    let start = |size: usize| -> Child {
        let source = format!("{size}.txt");
        let args = ["import", "edges", &source, "-o", "ring", "--force", "--random-features", "4", "--quiet"];
        bench.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts")
    };
    for pair in 0..20 {
        // The first one of every second pair finds no dataset there.
        if pair % 2 == 0 && pair > 0 {
            fs::remove_dir_all(bench.path().join("ring")).expect("it is there");
        }
        let ended = sizes.map(start).map(|child| child.wait_with_output().expect("it ends"));
        let succeeded: Vec<usize> = (0..2).filter(|&i| ended[i].status.success()).map(|i| sizes[i]).collect();
        for output in ended.iter().filter(|output| !output.status.success()) {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{errors}");
            assert!(errors.starts_with("error: ") && errors.contains("ring"), "{errors}");
        }
        assert!(!succeeded.is_empty(), "none of two came to its end");
        let dataset = Dataset::open(bench.path().join("ring"), OpenOptions::default()).expect("a whole dataset");
        let size = dataset.num_nodes();
        assert!(succeeded.contains(&size), "{size} nodes, but {succeeded:?} succeeded");
        let indices = dataset.topology.indices();
        assert!((0..size).all(|v| indices[v] as usize == (v + size - 1) % size), "a mixture");
        assert_eq!(dataset.name, size.to_string());
        let names = bench.names();
        assert_eq!(names, ["20000.txt", "30000.txt", "ring"], "something is left");
    }
}
