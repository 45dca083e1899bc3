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

/// A typed graph by its manifest: what the import and `info` say of its types, in text and as JSON.
#[test]
fn typed_graphs_are_described_by_type() {
    let bench = Bench::new();
    let source = morphgl_testdata::path("typed/shop/graph.toml");
    let source = source.to_str().expect("UTF-8");
    let text = bench.text(&["import", "manifest", source, "-o", "shop"]);
    for line in [
        "node type  nodes  features  labelled  train  valid  test",
        "customer      40   2 x f32        40     24      8     8",
        "product       12   2 x f32         0      0      0     0",
        "city           4      none         0      0      0     0",
        "edge type                  edges  per source  per target",
        "customer-buys-product        160         4.0        13.3",
        "customer-lives_in-city        40         1.0        10.0",
        "product-rev_buys-customer    160        13.3         4.0",
        "city-home_of-customer         40        10.0         1.0",
        "features  by node type",
        "times     of nodes and edges",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let json = bench.json(&["info", "shop", "--check"]);
    let customer = serde_json::json!({
        "name": "customer", "nodes": 40, "feature_dim": 2, "feature_dtype": "f32", "labelled": 40,
        "splits": { "train": 24, "valid": 8, "test": 8 },
    });
    assert_eq!(json["types"]["nodes"][0], customer);
    let buys = serde_json::json!({
        "source": "customer", "name": "buys", "target": "product", "edges": 160,
        "mean_out_degree": 4.0, "mean_in_degree": 160.0 / 12.0,
    });
    assert_eq!(json["types"]["edges"][0], buys);
    assert_eq!(json["times"], serde_json::json!({ "nodes": true, "edges": true }));
    let movies = morphgl_testdata::path("typed/movies");
    let movies = movies.to_str().expect("UTF-8");
    let json = bench.json(&["import", "neo4j", movies, "-o", "movies", "--symmetrise"]);
    let names: Vec<&str> = json["types"]["edges"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|of| of["name"].as_str().expect("text"))
        .collect();
    // Cleo, an actor first, directs, too.
    assert_eq!(names, ["ACTED_IN", "DIRECTED", "DIRECTED", "rev_ACTED_IN", "rev_DIRECTED", "rev_DIRECTED"]);
    let family = morphgl_testdata::path("typed/family");
    let family = family.to_str().expect("UTF-8");
    let json = bench.json(&["import", "triples", family, "-o", "family"]);
    assert_eq!((&json["num_nodes"], &json["num_edges"]), (&5.into(), &10.into()));
    let train = format!("{family}/train.txt");
    let args = ["import", "edges", &train, "-o", "plain", "--ids", "strings", "--columns", "src,relation,dst"];
    let plain = bench.json(&[&args[..], &["--src", "src", "--dst", "dst"]].concat());
    assert_eq!(plain["types"], serde_json::Value::Null, "an edge list has no types");
    bench.misused(
        &["import", "manifest", source, "-o", "t", "--src", "a"],
        &["--src: edges alone read it; leave it out"],
    );
    bench.refused(
        &["import", "manifest", source, "-o", "t", "--standardise"],
        &["--standardise: a graph of several node types does not read it; standardise the columns in the files"],
    );
    bench.refused(&["import", "edges", source, "-o", "t"], &["this is a manifest", "morphgl import manifest"]);
}

/// Directories of arrays by node and edge type.
#[test]
fn igb_has_a_choice_of_labels() {
    let bench = Bench::new();
    let array = |name: &str, dim: Option<usize>, values: &[i64]| {
        let path = bench.path().join("igb/tiny/processed").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("room");
        let mut out = morphgl_graph_store::NpyWriter::create(path).expect("room");
        out.write(values).expect("room");
        out.finish(dim).expect("room");
    };
    array("paper/node_feat.npy", Some(1), &[4, 5, 6, 7, 8]);
    array("paper/node_label_19.npy", None, &[0, 1, 0, 1, 0]);
    array("paper/node_label_2K.npy", None, &[0, 1, 2, 3, 4]);
    array("paper__cites__paper/edge_index.npy", Some(2), &[0, 1, 1, 2, 4, 0]);
    let coarse = bench.json(&["import", "igb", "igb/tiny", "-o", "coarse", "--symmetrise"]);
    assert_eq!((&coarse["num_classes"], &coarse["num_edges"]), (&2.into(), &6.into()));
    let fine = bench.json(&["import", "igb", "igb/tiny/processed", "-o", "fine", "--igb-labels", "2983"]);
    assert_eq!((&fine["num_classes"], &fine["num_edges"]), (&5.into(), &3.into()));
    bench.misused(
        &["import", "igb", "igb/tiny", "-o", "t", "--years"],
        &["--years: mag240m alone read it; leave it out"],
    );
    bench.refused(
        &["import", "numpy", "igb/tiny/processed", "-o", "t"],
        &["this is a directory of IGB; read it with `morphgl import igb"],
    );
    bench.refused(&["import", "mag240m", "absent", "-o", "t"], &["absent"]);
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
