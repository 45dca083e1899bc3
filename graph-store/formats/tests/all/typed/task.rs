//! Rows of a task: nodes at times with labels, targets and splits, and every way in which they are wrong.

use morphgl_formats::{Options, RandomSplit, Silent, export_numpy, manifest};
use morphgl_graph_store::TargetMatrix;

use super::{Typed, folder, import, meta, notes, shop};

const CHURN: &str =
    "customer,day,churn,bought,fold\n10,130,yes,2,train\n30,90,,0,train\n10,150,no,,valid\n20,150,no,1.5,test\n";

/// The shop without labels and splits of nodes, with this section and these files.
fn with_task<'a>(manifest: &'a mut String, section: &str, files: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let [(name, text), rest @ ..] = shop();
    *manifest = text.replace("label = \"churn\"\nsplit = \"fold\"\n", "") + section;
    [(name, &**manifest)].into_iter().chain(rest).chain(files.iter().copied()).collect()
}

fn imported(section: &str, files: &[(&str, &str)], options: &Options) -> Typed {
    import(&with_task(&mut String::new(), section, files), options)
}

const TASK: &str = r#"
[task]
file = "churn.csv"
node = { type = "customer", column = "customer" }
time = "day"
label = "churn"
targets = ["bought"]
split = "fold"
"#;

#[test]
fn rows_become_the_arrays_that_they_are() {
    let dataset = imported(TASK, &[("churn.csv", CHURN)], &Options::default());
    let rows = dataset.task_rows.as_ref().expect("rows");
    // Customers 30, 10 and 20 are the nodes 2, 3 and 4.
    assert_eq!((&rows.nodes()[..], &rows.times()[..]), (&[3, 2, 3, 4][..], &[130, 90, 150, 150][..]));
    assert_eq!(*dataset.labels.clone().expect("labels"), [1, -1, 0, 0]);
    assert_eq!(meta(&dataset).schema().classes, Some(vec!["no".to_string(), "yes".to_string()]));
    assert_eq!(meta(&dataset).schema().targets, Some(vec!["bought".to_string()]));
    let targets = TargetMatrix::new(vec![2.0, 0.0, f32::NAN, 1.5], 1).expect("four rows");
    assert_eq!(dataset.targets, Some(targets));
    let splits = &dataset.splits;
    assert_eq!([&*splits.train, &*splits.valid, &*splits.test], [&[0, 1][..], &[2], &[3]]);
    let never = i64::MIN;
    assert_eq!(**dataset.topology.node_times().expect("times"), [never, never, 100, 120, 90, never, never]);
    for note in ["1 of 4 rows of the task have no label", "1 of 4 rows have no known target"] {
        assert!(notes(&dataset).contains(note), "{}", notes(&dataset));
    }
    assert!(notes(&dataset).contains("1 of 2 training rows have no label"), "{}", notes(&dataset));
    let target = tempfile::tempdir().expect("a temporary directory");
    let error = export_numpy(&dataset, &target.path().join("arrays")).expect_err("rows are not exported").to_string();
    assert!(error.contains("rows of a task, which are not exported"), "{error}");
    // Without a task, the arrays of the graph are those of the shop.
    let shop = import(&shop(), &Options::default());
    assert_eq!((&dataset.topology, &shop.task_rows), (&shop.topology, &None));
}

#[test]
fn splits_are_a_column_two_times_files_or_drawn() {
    let splits = |section: &str, files: &[(&str, &str)], options: &Options| {
        let dataset = imported(section, files, options);
        let splits = &dataset.splits;
        [&splits.train, &splits.valid, &splits.test].map(|rows| rows.to_vec())
    };
    let by_times = TASK.replace("split = \"fold\"", "split = { valid = 130, test = 150 }");
    assert_eq!(splits(&by_times, &[("churn.csv", CHURN)], &Options::default()), [vec![1], vec![0], vec![2, 3]]);
    let by_files = TASK
        .replace("split = \"fold\"", "")
        .replace("\"churn.csv\"", "{ train = \"a.csv\", valid = \"b.csv\", test = \"c.csv\" }");
    let header = "customer,day,churn,bought\n";
    let files = [
        ("a.csv", &*format!("{header}10,130,yes,2\n20,140,no,3\n")),
        ("b.csv", &*format!("{header}10,150,no,2\n")),
        ("c.csv", &*format!("{header}30,190,maybe,2\n")),
    ];
    assert_eq!(splits(&by_files, &files, &Options::default()), [vec![0, 1], vec![2], vec![3]]);
    let dataset = imported(&by_files, &files, &Options::default());
    assert_eq!(*dataset.labels.clone().expect("labels"), [2, 1, 1, 0], "classes are those of all files");
    assert!(notes(&dataset).contains("classes without a training row"), "{}", notes(&dataset));
    let drawn = RandomSplit { train: 0.5, valid: 0.25, test: 0.25, seed: 1 };
    let options = Options { split: Some(drawn), ..Options::default() };
    let mut all = splits(TASK, &[("churn.csv", CHURN)], &options).concat();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3], "rows with a label or a target");
}

#[test]
fn a_column_is_a_number_and_a_header_may_be_absent() {
    let section = "[task]\nfile = \"t.csv\"\nheader = false\nnode = \"customer\"\ntime = 2\ntargets = [3, 4]\n";
    let dataset = imported(section, &[("t.csv", "10,5,1,2\n30,6,3,4\n")], &Options::default());
    assert_eq!(dataset.targets.as_ref().map(|targets| targets.values().to_vec()), Some(vec![1.0, 2.0, 3.0, 4.0]));
    assert_eq!(meta(&dataset).schema().targets, None);
    assert!(dataset.labels.is_none() && dataset.splits.train.is_empty());
}

/// The refusal of a section with files.
#[track_caller]
fn refused(section: &str, files: &[(&str, &str)]) -> String {
    let mut manifest = String::new();
    let dir = folder(&with_task(&mut manifest, section, files));
    let before = std::fs::read_dir(dir.path()).expect("a directory").count();
    let target = dir.path().join("out");
    let error = manifest::import(&dir.path().join("graph.toml"), &target, &Options::default(), &Silent);
    let error = error.expect_err("the import refuses").to_string();
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), before, "something is left behind");
    assert!(!error.contains('\n'), "one line: {error}");
    error.replace(&format!("{}/", dir.path().display()), "")
}

/// The refusal of the task with another text in place of a part.
#[track_caller]
fn changed(from: &str, to: &str, expected: &str) {
    let section = TASK.replacen(from, to, 1);
    assert_ne!(section, TASK, "{from}");
    assert_eq!(refused(&section, &[("churn.csv", CHURN)]), expected);
}

#[test]
fn tasks_that_contradict_themselves() {
    const KEYS: &str = "docs/typed-graphs.md lists the keys of a manifest";
    let of_task = |from: &str, to: &str, what: &str| changed(from, to, &format!("graph.toml: [task]: {what}"));
    of_task(
        "type = \"customer\"",
        "type = \"client\"",
        "there is no node type \"client\": there are \"product\", \"customer\", \"city\"; correct it, or add the type",
    );
    of_task(
        "{ type = \"customer\", column = \"customer\" }",
        "1",
        "the node type 1 of the rows is a number; give the name of a node type",
    );
    of_task(
        "label = \"churn\"\ntargets = [\"bought\"]\n",
        "",
        "neither a label nor targets to learn; name a column as the label, label = \"churn\", or as targets, targets = \
         [\"sales\"]",
    );
    of_task("[\"bought\"]", "[]", "targets without a column; list columns, or leave the key out");
    of_task(
        "\"fold\"",
        "{ valid = 150, test = 130 }",
        "rows to validate on are from 150 on, and those to test on from 130 on; test on later rows than those that are \
         validated on",
    );
    of_task(
        "\"churn.csv\"",
        "{ train = \"churn.csv\" }",
        "a split of files that are those of splits; leave split out, or give one file",
    );
    of_task("\"churn.csv\"", "{}", "there is no file of rows; give file = \"FILE\", or files of splits");
    of_task(
        "time = \"day\"",
        "time = \"day\"\nheader = false",
        "the column \"customer\" of a file without a header; give numbers of columns, from 1",
    );
    let line = |section: &str| {
        1 + shop()[0].1.replace("label = \"churn\"\nsplit = \"fold\"\n", "").matches('\n').count()
            + section.matches('\n').count()
    };
    let task = line("\n");
    changed("time = \"day\"\n", "", &format!("graph.toml, line {task}: missing field `time`; {KEYS}"));
    changed("\"fold\"", "{ valid = 150 }", &format!("graph.toml, line {}: missing field `test`; {KEYS}", task + 6));
    changed(
        "time = \"day\"",
        "horizon = 30",
        &format!(
            "graph.toml, line {}: unknown field `horizon`, expected one of `file`, `header`, `node`, `time`, `label`, `targets`, \
             `split`; {KEYS}",
            task + 3
        ),
    );
    changed(
        "file = \"churn.csv\"",
        "file = 1",
        &format!(
            "graph.toml, line {}: invalid type: integer `1`, expected the name of a file, or {{ train = …, valid = …, test = … \
             }}; {KEYS}",
            task + 1
        ),
    );
}

#[test]
fn a_task_beside_labels_or_splits_of_nodes() {
    let [(name, text), rest @ ..] = shop();
    let beside = |text: String| {
        let files: Vec<_> = [(name, &*text)].into_iter().chain(rest).chain([("churn.csv", CHURN)]).collect();
        let dir = folder(&files);
        let (source, target) = (dir.path().join("graph.toml"), dir.path().join("out"));
        let error = manifest::import(&source, &target, &Options::default(), &Silent).expect_err("refused").to_string();
        error.replace(&format!("{}/", dir.path().display()), "")
    };
    let cure = "learn one of the two: leave the other out";
    assert_eq!(
        beside(format!("{text}{TASK}")),
        format!("graph.toml: [task]: there is a task, and labels or targets of the nodes \"customer\"; {cure}")
    );
    assert_eq!(
        beside(format!("{}{TASK}", text.replace("label = \"churn\"\n", ""))),
        format!("graph.toml: [task]: there is a task, and splits of the nodes \"customer\"; {cure}")
    );
}

#[test]
fn rows_that_are_not_what_they_should_be() {
    let file = |text: &str, expected: &str| assert_eq!(refused(TASK, &[("churn.csv", text)]), expected);
    let header = "customer,day,churn,bought,fold\n";
    const IDS: &str = "give ids as the nodes of the type have them, or list the node";
    const TIME: &str = "give whole numbers, such as seconds or days since 1970";
    file(&format!("{header}11,1,no,1,train\n"), &format!("churn.csv, line 2: there is no node \"11\"; {IDS}"));
    file(&format!("{header},1,no,1,train\n"), &format!("churn.csv, line 2: a row without a node; {IDS}"));
    file(&format!("{header}10,,no,1,train\n"), &format!("churn.csv, line 2: a row without a time; {TIME}"));
    file(
        &format!("{header}10,1.5,no,1,train\n"),
        &format!("churn.csv, line 2: the time \"1.5\" is no whole number; {TIME}"),
    );
    file(
        &format!("{header}10,1,no,1,later\n"),
        "churn.csv, line 2: \"later\" is no split; write train, valid, test or nothing",
    );
    file(
        &format!("{header}10,1,no,much,train\n"),
        "churn.csv, line 2: the target \"much\" is no number; correct it, or list other columns as targets",
    );
    file(
        &format!("{header}10,1,1,1,train\n10,1,1.5,1,train\n"),
        "churn.csv, line 3: the label 1.5 is no class: classes are whole numbers from 0, or names; give quantities as \
         targets; number the classes, or name another column as the label; -1 or nothing stands for a row without a label",
    );
    file(header, "churn.csv: there is no row of the task; check that this is the right file");
    changed(
        "time = \"day\"",
        "time = \"when\"",
        "churn.csv: there is no column \"when\": there are 5, named \"customer\", \"day\", \"churn\", \"bought\", \"fold\"; \
         give its name or its number from 1",
    );
    changed(
        "[\"bought\"]",
        "[\"churn\"]",
        "churn.csv: the column \"churn\" is read as ids, labels, a split or targets; list other columns as targets",
    );
    assert_eq!(refused(TASK, &[]), "churn.csv: there is no such file; correct its name, which graph.toml has");
}
