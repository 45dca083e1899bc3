//! Link prediction on the command line: embeddings that tell links from other pairs, the bits of a resumed run and of ranks, scores of
//! pairs, and what is refused.
#![cfg(all(unix, feature = "cpu"))]

#[path = "support/runs.rs"]
mod runs;
mod support;

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;

use morphgl_graph_store::{Dataset, OpenOptions};
use runs::{Training, alike};
use serde_json::{Value, json};
use support::{Bench, number, words};

const TRAIN: &str = "train links --task link --model gcn --threads 2 --hidden 16 --fanouts 5,5 --batch-size 64 --profile-seconds 0.1 \
     --lr 0.01 --plan sequential --dropout 0";

/// The edges of a graph of three blocks, a tenth of them to validate and a tenth to test on; no labels and no features.
fn bench() -> Bench {
    let bench = Bench::new();
    let generate = "generate sbm -o small --nodes 300 --classes 3 --dim 8 --degree 20 --homophily 0.95";
    bench.text(&words(generate));
    let small = Dataset::open(bench.path().join("small"), OpenOptions::default()).expect("sound");
    let mut text = String::new();
    for target in 0..small.num_nodes() as u32 {
        for source in small.topology.neighbors(target).iter().filter(|source| **source < target) {
            writeln!(text, "{source},{target}").expect("memory");
        }
    }
    fs::write(bench.path().join("edges.csv"), text).expect("room");
    bench.text(&["import", "edges", "edges.csv", "-o", "links", "--symmetrise", "--edge-split", "0.8,0.1,0.1"]);
    bench
}

/// Each loss and decoder learns which nodes are in the same block, on random features alone, by both operators of the host.
#[test]
fn embeddings_tell_links_from_other_pairs() {
    let bench = bench();
    for (options, operator) in [
        ("", "Training_CPU_Native"),
        ("--loss bpr --decoder distmult --negatives 3", "Training_CPU_Native"),
        ("--loss margin --decoder mlp --negatives 2 --negative-distribution degree", "Training_CPU_Burn"),
        ("--negative-distribution in-batch --avoid-edges --score mrr", "Training_CPU_Burn"),
    ] {
        let run = format!("run{}", options.replace([' ', '-'], ""));
        let line = format!("{TRAIN} {options} --training {operator} --epochs 15 --run {run}");
        let trained = bench.json(&words(&line));
        let evaluated = bench.json(&["evaluate", &run, "--threads", "1", "--score", "roc-auc", "--score", "hits@10"]);
        let auc = number(&evaluated["test"]["scores"]["roc-auc"]);
        // Of pairs within blocks alone it is about 0.8.
        assert!(auc > 0.75, "{line}: an area of {auc}");
        let hits = number(&evaluated["test"]["scores"]["hits@10"]);
        assert!((0.0..=1.0).contains(&hits), "{line}: {hits}");
        if !options.contains("mrr") {
            let (expected, found) = (number(&trained["test_score"]), auc);
            assert!((expected - found).abs() < 1e-5, "{line}: {found}, {expected} while training");
        }
    }
}

/// Negatives that the dataset has of each training pair are trained against: all of them, or fewer in each epoch.
#[test]
fn given_negatives_are_trained_against() {
    let bench = bench();
    let links = Dataset::open(bench.path().join("links"), OpenOptions::default()).expect("sound");
    let file = |name: &str, pairs: &mut dyn Iterator<Item = [u32; 2]>| {
        let lines: String = pairs.map(|[source, target]| format!("{source},{target}\n")).collect();
        fs::write(bench.path().join(name), lines).expect("room");
    };
    let (train, edges) = (links.train_pairs(), &links.edges);
    let negatives = train.iter().enumerate().flat_map(|(i, &[source, _])| {
        (0..3).map(move |k| [source, ((i * i + 89 * k + usize::from(source as u8)) % 300) as u32])
    });
    file("train.csv", &mut train.iter().copied());
    file("negatives.csv", &mut negatives.collect::<Vec<_>>().into_iter());
    file("valid.csv", &mut edges.valid_pairs().iter().copied());
    file("test.csv", &mut edges.test_pairs().iter().copied());
    let files = "--train-edges train.csv --valid-edges valid.csv --test-edges test.csv --train-negatives negatives.csv";
    bench.text(&words(&format!("import edges train.csv -o given --symmetrise --num-nodes 300 {files}")));
    let info = bench.json(&["info", "given"]);
    assert_eq!(info["edge_splits"]["train_negatives"], json!(3 * train.len()));
    for (options, count) in [("", 3), ("--negatives 2", 2)] {
        let train = TRAIN.replace("train links", "train given");
        let line = format!("{train} --negative-distribution given {options} --epochs 15 --run run{count}");
        bench.json(&words(&line));
        let config = fs::read_to_string(bench.path().join(format!("run{count}/config.toml"))).expect("a run has one");
        assert!(config.contains(&format!("negatives = {count}\ndistribution = \"given\"")), "{config}");
        let evaluated = bench.json(&["evaluate", &format!("run{count}"), "--threads", "1", "--score", "roc-auc"]);
        let auc = number(&evaluated["test"]["scores"]["roc-auc"]);
        assert!(auc > 0.75, "{line}: an area of {auc}");
    }
    let refused = |line: String, word: &str| {
        let said = bench.run(&words(&line));
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && text.contains(word), "{line}: {text}");
    };
    refused(format!("{TRAIN} --negative-distribution given --epochs 1"), "import them (--train-negatives FILE)");
    let given = TRAIN.replace("train links", "train given") + " --negative-distribution given --epochs 1";
    refused(format!("{given} --negatives 4"), "4 negatives per positive are more than the 3 that are given");
    bench.misused(&words(&format!("{given} --avoid-edges")), &["--avoid-edges"]);
}

/// A run that is killed within an epoch and resumed has the bits of one that is not; so has one on one thread more.
#[test]
fn killed_runs_give_the_same_bits() {
    let bench = bench();
    let options = format!("{TRAIN} --decoder mlp --negatives 2 --training Training_CPU_Native --epochs 6");
    let expected = bench.json(&words(&format!("{options} --run whole")));
    let path = bench.path().join("run");
    let line = format!("{options} --run run --checkpoint-every 5b");
    let mut training = Training::start(bench.command(&words(&line)), &path);
    assert!(!training.wait_for_checkpoint(30), "it has more mini-batches than that");
    training.kill();
    let resumed = bench.json(&["train", "--resume", "run"]);
    alike(&path, &bench.path().join("whole"));
    assert_eq!(resumed["test_score"], expected["test_score"]);
    let again = bench.json(&["train", "--config", "whole/config.toml", "--epochs", "6"]);
    assert_eq!(again["score"], "roc-auc");
}

/// Pairs of a file are scored: those within a block above those between blocks.
#[test]
fn pairs_of_a_file_are_scored() {
    let bench = bench();
    bench.text(&words(&format!("{TRAIN} --epochs 15 --run run")));
    let small = Dataset::open(bench.path().join("small"), OpenOptions::default()).expect("sound");
    let labels = small.labels.as_ref().expect("labels");
    let (mut text, mut within) = (String::new(), Vec::new());
    for source in 0..100u32 {
        let target = 299 - source;
        writeln!(text, "{source} {target}").expect("memory");
        within.push(labels[source as usize] == labels[target as usize]);
    }
    fs::write(bench.path().join("pairs.txt"), text).expect("room");
    let predict = ["predict", "run", "--edges", "pairs.txt"];
    let document = bench.json(&predict);
    let scores: Vec<f64> = document["scores"].as_array().expect("scores").iter().map(number).collect();
    let mean = |which: bool| {
        let of: Vec<f64> = scores.iter().zip(&within).filter(|(_, w)| **w == which).map(|(s, _)| *s).collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    assert!(mean(true) > mean(false), "{} within blocks, {} between", mean(true), mean(false));
    let csv = bench.text(&predict);
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert_eq!(rows.len(), 100);
    for (row, score) in rows.iter().zip(&scores) {
        let found: f64 = row.rsplit(',').next().expect("a cell").parse().expect("a number");
        assert!((found - score).abs() < 1e-5, "{row}: {score}");
    }
    fs::write(bench.path().join("wrong.txt"), "1 2\n3\n").expect("room");
    bench.refused(&["predict", "run", "--edges", "wrong.txt"], &["line 2", "is no pair"]);
    fs::write(bench.path().join("unknown.txt"), "1 2\n3 30000\n").expect("room");
    bench.refused(&["predict", "run", "--edges", "unknown.txt"], &["line 2", "is no node"]);
    bench.misused(&["predict", "run", "--nodes", "test"], &["--edges"]);
}

/// The scores of all pairs of nodes, row after row.
fn all_scores(bench: &Bench, num_nodes: u32) -> Vec<f64> {
    let mut text = String::new();
    for (source, target) in (0..num_nodes).flat_map(|source| (0..num_nodes).map(move |target| (source, target))) {
        writeln!(text, "{source},{target}").expect("memory");
    }
    fs::write(bench.path().join("all.csv"), text).expect("room");
    let document = bench.json(&["predict", "run", "--edges", "all.csv"]);
    document["scores"].as_array().expect("scores").iter().map(number).collect()
}

/// Ranks among all nodes, best partners and embeddings are those that the scores of all pairs say.
#[test]
fn partners_and_filtered_ranks_are_those_of_all_scores() {
    let bench = bench();
    bench.text(&words(&format!("{TRAIN} --epochs 8 --run run")));
    let links = Dataset::open(bench.path().join("links"), OpenOptions::default()).expect("sound");
    let n = links.num_nodes() as u32;
    let scores = all_scores(&bench, n);
    let score = |source: u32, target: u32| scores[(source * n + target) as usize];
    let splits = &links.edges;
    let mut known = vec![HashSet::new(); n as usize];
    let edges = (0..n).flat_map(|v| links.topology.neighbors(v).iter().map(move |&source| [source, v]));
    let pairs = splits.valid_pairs().iter().chain(splits.test_pairs()).copied();
    edges.chain(pairs).for_each(|[source, target]| _ = known[source as usize].insert(target));

    let names = ["--score", "filtered-mrr", "--score", "filtered-hits@10"];
    let evaluated = bench.json(&[&["evaluate", "run"][..], &names].concat());
    let found = ["filtered-mrr", "filtered-hits@10"].map(|name| number(&evaluated["test"]["scores"][name]));
    let ranks: Vec<f64> = splits
        .test_pairs()
        .iter()
        .map(|&[source, target]| {
            let others = (0..n).filter(|v| *v != target && !known[source as usize].contains(v));
            1.0 + others.filter(|&v| score(source, v) > score(source, target)).count() as f64
        })
        .collect();
    let count = ranks.len() as f64;
    let expected = [
        ranks.iter().map(|rank| 1.0 / rank).sum::<f64>() / count,
        ranks.iter().filter(|rank| **rank <= 10.0).count() as f64 / count,
    ];
    for (found, expected) in found.iter().zip(expected) {
        // The order of the sums is another one: some scores are equal in the one and not in the other.
        assert!((found - expected).abs() < 1e-3, "{found}, expected {expected}");
    }

    fs::write(bench.path().join("ids.txt"), "7\n0\n").expect("room");
    let best =
        |options: &[&str]| bench.json(&[&["predict", "run", "--top", "5", "--nodes", "ids.txt"], options].concat());
    for (options, edges) in [(&[][..], false), (&["--include-edges"], true)] {
        let document = best(options);
        for (i, source) in [7u32, 0].into_iter().enumerate() {
            let mut all: Vec<u32> =
                (0..n).filter(|v| *v != source && (edges || !known[source as usize].contains(v))).collect();
            all.sort_by(|&a, &b| score(source, b).total_cmp(&score(source, a)).then(a.cmp(&b)));
            let partners: Vec<u64> = document["partners"][i]
                .as_array()
                .expect("partners")
                .iter()
                .map(|v| v.as_u64().expect("a node"))
                .collect();
            assert_eq!(partners, all[..5].iter().map(|&v| u64::from(v)).collect::<Vec<_>>(), "source {source}");
            assert_eq!(number(&document["scores"][i][4]), score(source, all[4]));
        }
    }
    assert_eq!(bench.text(&["predict", "run", "--top", "2", "--nodes", "ids.txt"]).lines().count(), 5);

    let written = bench.json(&["predict", "run", "--embeddings", "rows.npy"]);
    assert_eq!((&written["layer"], &written["width"]), (&json!(2), &json!(64)));
    let bytes = fs::read(bench.path().join("rows.npy")).expect("it was written");
    let rows: Vec<f64> = bytes[bytes.len() - n as usize * 64 * 4..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")).into())
        .collect();
    let row = |v: u32| &rows[v as usize * 64..][..64];
    for (source, target) in [(0, 1), (7, 299), (150, 3)] {
        let dot: f64 = row(source).iter().zip(row(target)).map(|(a, b)| a * b).sum();
        assert!((dot - score(source, target)).abs() < 1e-4 * dot.abs().max(1.0), "pair {source} {target}");
    }
    let hidden = bench.json(&["predict", "run", "--embeddings", "rows.npy", "--layer", "1"]);
    assert_eq!(hidden["width"], 16);
    bench.misused(&["predict", "run", "--embeddings", "rows.npy", "--layer", "3"], &["--layer 1 to 2"]);
    bench.misused(&["predict", "run", "--embeddings", "rows.csv"], &[".npy"]);
    bench.misused(&["predict", "run", "--top", "3", "-o", "best.npy"], &[".csv"]);
}

/// Sampled evaluation embeds each end of a pair by a mini-batch: with all neighbours sampled the scores are those of inference, and where
/// subgraphs or walks are trained on it is the default, by the run's score.
#[test]
fn sampled_evaluation_scores_pairs() {
    let bench = bench();
    let train = TRAIN.replace("--fanouts 5,5", "--fanouts=-1,-1");
    bench.text(&words(&format!("{train} --epochs 4 --loss bpr --decoder distmult --run whole")));
    let scores = "--score roc-auc --score average-precision --score mrr --score hits@10";
    let [full, sampled] = ["full", "sampled"].map(|how| {
        let scored = bench.json(&words(&format!("evaluate whole --evaluation {how} --threads 2 {scores}")));
        assert_eq!(scored["evaluation"], how);
        scored
    });
    for split in ["valid", "test"] {
        let [full, sampled] = [&full, &sampled].map(|scored| &scored[split]);
        assert!((number(&full["loss"]) - number(&sampled["loss"])).abs() < 1e-5, "{split}: {sampled}, {full}");
        for score in ["roc-auc", "average-precision", "mrr", "hits@10"] {
            let [a, b] = [full, sampled].map(|of| number(&of["scores"][score]));
            // Equal scores may be ranked otherwise by rounding.
            assert!((a - b).abs() < 2e-3, "{split}: {score} {b} on mini-batches, {a} by inference");
        }
    }
    let train =
        "train links --task link --model sage --hidden 16 --threads 2 --profile-seconds 0.1 --lr 0.01 --batch-size 64";
    for sampler in ["--sampler shadow --fanouts 5,5 --layers 2", "--sampler walk --layers 2"] {
        for (score, operator) in [("roc-auc", "Training_CPU_Native"), ("hits@20", "Training_CPU_Burn")] {
            let run = format!("{score}{}", sampler.len());
            let options = format!("{sampler} --training {operator} --score {score} --epochs 6 --run {run}");
            let trained = bench.json(&words(&format!("{train} {options}")));
            assert_eq!(trained["score"], score, "{options}");
            let evaluated = bench.json(&words(&format!("evaluate {run} --threads 2 --score {score}")));
            assert_eq!(evaluated["evaluation"], "sampled", "{options}");
            let [best, again] = [&trained["best_valid_score"], &evaluated["valid"]["scores"][score]].map(number);
            assert!((best - again).abs() < 2e-3, "{options}: {again} after {best} in training");
            assert!(best > if score == "roc-auc" { 0.6 } else { 0.3 }, "{options}: {best}");
        }
    }
}

/// Users and items whose ids overlap: each id is read and printed as of its column, partners of users are items, and ranks and negatives
/// are those among items.
#[test]
fn users_and_items_keep_their_ids() {
    let bench = Bench::new();
    // Users 1 to 60 and items 1 to 45 of three genres; a user rates most items of one.
    let rated = |user: u32, item: u32| item % 3 == user % 3 && (user * 7 + item * 5) % 11 < 8;
    let mut text = "userId,movieId,rating,timestamp\n".to_string();
    for (user, item) in (1..=60).flat_map(|user| (1..=45).map(move |item| (user, item))) {
        if rated(user, item) {
            writeln!(text, "{user},{item},{},{}", 1 + (user + item) % 5, 978_300_760 + user).expect("memory");
        }
    }
    fs::write(bench.path().join("ratings.csv"), text).expect("room");
    let columns = "--src userId --dst movieId --weight rating --bipartite --symmetrise --edge-split 0.8,0.1,0.1";
    bench.text(&words(&format!("import edges ratings.csv -o movies --ids compact {columns}")));
    let dataset = Dataset::open(bench.path().join("movies"), OpenOptions::default()).expect("sound");
    let types = dataset.topology.types().expect("users and movies");
    let named: Vec<(&str, u64)> = types.node_types().iter().map(|of| (of.name.as_str(), of.count)).collect();
    assert_eq!(named, [("user", 60), ("movie", 45)]);
    let ids: Vec<u64> = (1..=60).chain(1..=45).collect();
    assert_eq!(dataset.node_ids.as_deref(), Some(&ids[..]));
    let train = TRAIN.replace("train links", "train movies") + " --epochs 12 --run run --score filtered-mrr";
    bench.json(&words(&train));
    let evaluated = bench.json(&words("evaluate run --threads 1 --score roc-auc --score filtered-hits@15"));
    // A user's other items are among 15 of the genre.
    for (score, least) in [("roc-auc", 0.8), ("filtered-hits@15", 0.8)] {
        let value = number(&evaluated["test"]["scores"][score]);
        assert!(value > least, "{score} {value}");
    }
    fs::write(bench.path().join("pairs.csv"), "7,4\n4,7\nuser:60,movie:45\n").expect("room");
    let scored = bench.json(&words("predict run --edges pairs.csv --threads 1"));
    assert_eq!(scored["pairs"], json!([[7, 4], [4, 7], [60, 45]]));
    assert_ne!(scored["scores"][0], scored["scores"][1]);
    fs::write(bench.path().join("ids.txt"), "7\nmovie:7\n").expect("room");
    let best = bench.json(&words("predict run --top 50 --nodes ids.txt --threads 1"));
    assert_eq!(best["nodes"], json!([7, "movie:7"]));
    let partners = |at: usize| best["partners"][at].as_array().expect("a list").clone();
    let unrated: HashSet<u64> = (1..=45).filter(|&item| !rated(7, item)).map(u64::from).collect();
    let items: HashSet<u64> = partners(0).iter().map(|item| item.as_u64().expect("the id of an item")).collect();
    assert_eq!(items, unrated, "all items that the user has not rated");
    assert_eq!(partners(1).len(), 50);
    let trained =
        |user: u32| dataset.edges.valid_pairs().iter().chain(dataset.edges.test_pairs()).all(|pair| pair[0] != user);
    for user in partners(1) {
        let user = user.as_str().and_then(|user| user.strip_prefix("user:")?.parse().ok()).expect("a user");
        assert!(!(rated(user, 7) && trained(user - 1)), "user {user} has rated the item");
    }
    fs::write(bench.path().join("ids.txt"), "61\n").expect("room");
    let said = bench.run(&words("predict run --top 3 --nodes ids.txt"));
    assert!(String::from_utf8_lossy(&said.stderr).contains("\"61\" is no node"), "{said:?}");
    // Ids that are text.
    bench.text(&words(&format!("import edges ratings.csv -o named --ids strings {columns}")));
    let train = TRAIN.replace("train links", "train named") + " --epochs 1 --run named-run";
    bench.json(&words(&train));
    // Names come in their order: movies are the first type, and pairs lead from them to users.
    fs::write(bench.path().join("ids.txt"), "7\nuser:7\n").expect("room");
    let best = bench.json(&words("predict named-run --top 50 --nodes ids.txt --threads 1"));
    assert_eq!(best["nodes"], json!(["7", "user:7"]));
    let items = best["partners"][1].as_array().expect("a list");
    let item = |item: &Value| item.as_str().and_then(|item| item.strip_prefix("movie:")?.parse::<u64>().ok());
    let items: HashSet<u64> = items.iter().map(|of| item(of).expect("a movie")).collect();
    assert!(unrated.is_subset(&items), "{items:?}");
}

/// A graph without labels, features and splits trains on all of its edges, and says so; what links do not have is refused by name.
#[test]
fn a_bare_graph_trains_and_misfits_are_refused() {
    let bench = bench();
    bench.text(&["import", "edges", "edges.csv", "-o", "bare", "--symmetrise"]);
    let line =
        "train bare --task link --fanouts 5,5 --expansion new --epochs 2 --profile-seconds 0.1 --save bare.safetensors";
    let output = bench.run(&words(line));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for word in ["64 random ones", "--edge-split", "--expansion new: farther layers"] {
        assert!(said.contains(word), "{said}");
    }
    for (options, word) in [
        ("--evaluation sampled --score filtered-mrr", "--evaluation full"),
        ("--allow-staleness 1", "--allow-staleness"),
        ("--score macro-f1", "mrr, filtered-mrr, hits@K, filtered-hits@K"),
        ("--negatives 0", "--negatives 0"),
        ("--embedding 0", "--embedding 0"),
        ("--loss cross-entropy", "use one of bce, bpr, margin"),
    ] {
        bench.misused(&words(&format!("{TRAIN} --epochs 1 {options}")), &[word]);
    }
}
