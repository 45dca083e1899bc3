//! `morphgl train` without `--epochs`: length of training, and its messages.

mod support;

use std::fs;

use serde_json::Value;
use support::Bench;

const QUICK: [&str; 8] = ["--layers", "2", "--hidden", "16", "--fanouts", "5,5", "--profile-seconds", "0.1"];

fn quick(args: &[&'static str]) -> Vec<&'static str> {
    [args, &QUICK].concat()
}

fn epochs(json: &Value) -> &Vec<Value> {
    json["epochs"].as_array().expect("a list")
}

fn number(json: &Value) -> u64 {
    json.as_u64().unwrap_or_else(|| panic!("no number: {json}"))
}

/// One step per epoch: 100 steps are 100 epochs, and every fifth epoch is evaluated.
#[test]
fn training_ends_when_validation_stops_improving() {
    let bench = Bench::new();
    bench.small();
    let json = bench.json(&quick(&["train", "small", "--lr", "0.05", "--run", "run"]));
    assert_eq!(json["ended"], "patience", "{json:#}");
    let training = &json["training"];
    assert_eq!((number(&training["epochs"]), number(&training["patience"])), (2000, 100));
    assert_eq!(number(&training["evaluate_every"]), 5);
    let best = number(&json["best_epoch"]);
    assert_eq!((best % 5, epochs(&json).len() as u64), (4, best + 101), "100 epochs after the best one");
    for row in epochs(&json) {
        assert_eq!(row["valid_accuracy"].is_f64(), number(&row["epoch"]) % 5 == 4, "{row}");
    }
    // The run directory has the defaults in numbers.
    let config = fs::read_to_string(bench.path().join("run/config.toml")).expect("there");
    assert!(["epochs = 2000", "patience = 100", "evaluate_every = 5"].iter().all(|w| config.contains(w)), "{config}");
    let metrics = fs::read_to_string(bench.path().join("run/metrics.jsonl")).expect("there");
    assert_eq!(metrics.lines().count(), epochs(&json).len());

    let text = bench.text(&quick(&["train", "small", "--lr", "0.05"]));
    let opening = "trains until validation has not improved for 100 epochs (100 steps), at most 2,000 epochs (2,000 steps); \
                   evaluates every 5 epochs\n";
    assert!(text.contains(opening), "{text}");
    assert!(text.contains("stopped early: validation has not improved for 100 epochs (100 steps); "), "{text}");
    let rows = text.lines().filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit())).count();
    assert_eq!(rows, epochs(&json).len() / 5, "a row for each evaluation: {text}");
}

/// Ninety steps per epoch: the minimum number of epochs counts.
#[test]
fn a_graph_of_many_steps_is_trained_for_some_epochs() {
    let bench = Bench::new();
    bench.small();
    let json = bench.json(&quick(&["train", "small", "--batch-size", "2", "--evaluation", "none"]));
    assert_eq!((epochs(&json).len(), &json["ended"]), (5, &"epochs".into()), "{json:#}");
    let text = bench.text(&quick(&["train", "small", "--batch-size", "2"]));
    let opening = "trains until validation has not improved for 4 epochs (360 steps), at most 23 epochs (2,070 steps); \
                   evaluates every epoch\n";
    assert!(text.contains(opening), "{text}");
    assert!(
        text.contains("stopped early: ") || text.contains("stopped at the bound of 23 epochs (2,070 steps); --epochs"),
        "{text}"
    );
}

#[test]
fn options_replace_the_defaults() {
    let bench = Bench::new();
    bench.small();
    let last = |json: &Value| epochs(json).len() as u64 - 1;
    // Patience alone.
    let json = bench.json(&quick(&["train", "small", "--lr", "0.05", "--patience", "3"]));
    assert_eq!((&json["ended"], number(&json["training"]["evaluate_every"])), (&"patience".into(), 3));
    assert_eq!(last(&json), number(&json["best_epoch"]) + 3);
    // Evaluations further apart than the patience: only an evaluation ends training.
    let args = ["train", "small", "--lr", "0.05", "--patience", "3", "--evaluate-every", "4"];
    let json = bench.json(&quick(&args));
    assert_eq!((&json["ended"], last(&json)), (&"patience".into(), number(&json["best_epoch"]) + 4));
    // Epochs alone: that many, each evaluated.
    let json = bench.json(&quick(&["train", "small", "--epochs", "7"]));
    assert_eq!((&json["ended"], epochs(&json).len()), (&"epochs".into(), 7));
    assert!(epochs(&json).iter().all(|row| row["valid_accuracy"].is_f64()) && json["training"]["patience"].is_null());
    assert!(bench.text(&quick(&["train", "small", "--epochs", "1"])).contains("all epochs done"));
}

#[test]
fn without_validation_nodes_the_steps_are_fixed() {
    let bench = Bench::new();
    let args = ["generate", "sbm", "-o", "two", "--nodes", "300", "--classes", "3", "--degree", "6"];
    bench.text(&[&args[..], &["--split", "0.8,0,0.2"]].concat());
    let text = bench.text(&quick(&["train", "two", "--batch-size", "24"]));
    assert!(
        text.contains("trains 30 epochs (300 steps), as nothing is validated; set --epochs for another number\n"),
        "{text}"
    );
    assert!(text.contains("test accuracy") && text.contains("all epochs done"), "{text}");
    let args = ["train", "two", "--evaluate-every", "2"];
    bench.misused(&args, &["--evaluate-every", "nothing is validated"]);
}

#[test]
fn help_names_the_bounds() {
    use morphgl::Bound;
    let text = Bench::new().text(&["train", "--help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    let words = |bound: Bound| format!("{} steps (at least {} epochs)", bound.steps, bound.epochs);
    for bound in [Bound::PATIENCE, Bound::MOST, Bound::UNVALIDATED] {
        assert!(text.contains(&words(bound)), "{:?} in {text}", words(bound));
    }
    let spacing = format!("without --epochs, as many as make {} steps", Bound::EVALUATION.steps);
    assert!(text.contains(&spacing), "{spacing:?} in {text}");
}

/// Nodes without a label are not scored: each split's labelled share is said, and nothing is NaN.
#[test]
fn nodes_without_a_label_are_said_and_never_nan() {
    let bench = Bench::new();
    let write = |name: &str, text: &str| std::fs::write(bench.path().join(name), text).expect("room");
    let edges: String = (0..60).map(|i| format!("{i} {}\n", i * 7 % 60)).collect();
    write("e.txt", &edges);
    // Two classes of training nodes, three of others; `test` says which test nodes have a label.
    let import = |valid: &dyn Fn(usize) -> bool, test: &dyn Fn(usize) -> bool| {
        let mut nodes = "id,kind,split,f0,f1\n".to_string();
        for i in 0..60 {
            let split = ["train", "valid", "test"][i % 3];
            let labelled = [true, valid(i), test(i)][i % 3];
            let class = ["ant", "bee", "cat"][if i % 3 == 0 { i % 2 } else { i % 5 % 3 }];
            nodes += &format!("{i},{},{split},{}.5,{}\n", if labelled { class } else { "" }, i % 4, i % 7);
        }
        write("n.csv", &nodes);
        let args = ["import", "edges", "e.txt", "-o", "d", "--nodes", "n.csv", "--label-column", "kind", "--force"];
        (bench.json(&args), bench.text(&args))
    };
    let no_nan = |text: &str| assert!(!text.contains("NaN"), "{text}");

    let (json, text) = import(&|_| true, &|i| i % 2 == 0);
    assert_eq!(json["splits"]["labelled"], serde_json::json!({ "train": 20, "valid": 20, "test": 10 }));
    assert!(text.contains("splits    train 20, valid 20, test 20 (10 labelled)\n"), "{text}");
    for note in [
        "10 of 20 test nodes have no label, and are not scored",
        "classes without a training node, which are never predicted rightly: 1 (cat)",
    ] {
        assert!(text.contains(note), "{note}: {text}");
    }
    let train = ["train", "d", "--epochs", "2", "--layers", "1", "--hidden", "4", "--fanouts", "3", "--save", "m"];
    let output = bench.run(&train);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for line in [
        "10 of 20 test nodes have a label; scores are of these alone\n",
        "classes without a training node, never predicted rightly: 1 (2)\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let scores = bench.text(&["evaluate", "m", "d"]);
    assert!(scores.lines().any(|line| line.starts_with("test") && line.contains("10 of 20")), "{scores}");
    assert_eq!(bench.json(&["evaluate", "m", "d"])["test"]["unlabelled"], 10);

    // No labelled test node.
    let (json, text) = import(&|_| true, &|_| false);
    assert_eq!(json["splits"]["labelled"]["test"], 0);
    assert!(text.contains("test 20 (0 labelled)"), "{text}");
    let train_again = [&train[..], &["--run", "run"]].concat();
    let output = bench.run(&train_again);
    no_nan(&String::from_utf8_lossy(&output.stderr));
    no_nan(&String::from_utf8_lossy(&output.stdout));
    assert!(bench.json(&train)["test_accuracy"].is_null());
    for entry in std::fs::read_dir(bench.path().join("run")).expect("a run directory") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "jsonl" || e == "html" || e == "json") {
            no_nan(&std::fs::read_to_string(path).expect("text"));
        }
    }
    let scores = bench.text(&["evaluate", "m", "d"]);
    no_nan(&scores);
    assert!(scores.lines().any(|line| line.starts_with("test") && line.contains("0 of 20")), "{scores}");
    let scores = bench.json(&["evaluate", "m", "d"]);
    assert!(scores["test"]["accuracy"].is_null() && scores["test"]["nodes"] == 0, "{scores}");
    // Sampled, too.
    no_nan(&bench.text(&["evaluate", "m", "d", "--evaluation", "sampled", "--fanouts", "3"]));

    // No labelled validation node: nothing is validated.
    import(&|_| false, &|_| true);
    let text = bench.text(&train);
    no_nan(&text);
    assert!(!text.contains("validation accuracy") && text.contains("test accuracy"), "{text}");

    // No labelled training node: nothing to learn.
    let all =
        |class: &str| (0..60).map(|i| format!("{i},{}\n", if i % 3 == 0 { "" } else { class })).collect::<String>();
    write("y.csv", &format!("id,label\n{}", all("1")));
    write("train.txt", "0\n3\n6\n");
    let unlabelled =
        ["import", "edges", "e.txt", "-o", "u", "--labels", "y.csv", "--train", "train.txt", "--random-features", "2"];
    assert!(bench.text(&unlabelled).contains("3 of 3 training nodes have no label, and teach nothing"));
    bench.refused(&["train", "u", "--layers", "1", "--fanouts", "3"], &["none of the 3 training nodes has a label"]);
}
