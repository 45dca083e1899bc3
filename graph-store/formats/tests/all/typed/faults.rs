//! Every way in which a manifest, or a file that it names, is wrong, has a text of its own.

use morphgl_formats::{DuplicateWeights, LinkFiles, NodeFiles, Options, RandomSplit, Silent, Standardise, manifest};

use super::{folder, shop};

/// The refusal of files with a manifest `graph.toml`, without the directory.
#[track_caller]
fn refused(files: &[(&str, &str)], options: &Options) -> String {
    let dir = folder(files);
    let before = std::fs::read_dir(dir.path()).expect("a directory").count();
    let (source, target) = (dir.path().join("graph.toml"), dir.path().join("out"));
    let error = manifest::import(&source, &target, options, &Silent).expect_err("the import refuses").to_string();
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), before, "something is left behind");
    assert!(!error.contains('\n'), "one line: {error}");
    error.replace(&format!("{}/", dir.path().display()), "")
}

/// The refusal of a manifest alone.
#[track_caller]
fn check(manifest: &str, expected: &str) {
    assert_eq!(refused(&[("graph.toml", manifest)], &Options::default()), expected);
}

const KEYS: &str = "docs/typed-graphs.md lists the keys of a manifest";

#[test]
fn text_that_is_no_manifest() {
    check("name = \n", &format!("graph.toml, line 1: string values must be quoted, expected literal string; {KEYS}"));
    check(
        "name = \"x\"\n[nodes.a]\ncolour = 1\n",
        &format!(
            "graph.toml, line 3: unknown field `colour`, expected one of `file`, `header`, `count`, `id`, `features`, `targets`, \
             `time`, `label`, `split`; {KEYS}"
        ),
    );
    check("[nodes.a]\n[nodes.a]\n", &format!("graph.toml, line 2: duplicate key; {KEYS}"));
    check("name = \"x\"\n", "graph.toml: there is no node type; add a section such as [nodes.customer] for each");
    check(
        "[nodes.a]\ncount = 1\n[[edges]]\nfile = \"e.csv\"\nsource = \"a\"\ntarget = \"a\"\n",
        &format!("graph.toml, line 3: missing field `type`; {KEYS}"),
    );
    check(
        "[nodes.a]\nfile = \"a.csv\"\nid = 0\n",
        &format!("graph.toml, line 3: the column 0: columns are numbered from 1; {KEYS}"),
    );
    check(
        "[nodes.a]\nfile = \"a.csv\"\nid = true\n",
        &format!(
            "graph.toml, line 3: invalid type: boolean `true`, expected the name of a column, or its number from 1; {KEYS}"
        ),
    );
    check(
        "[nodes.a]\nfile = \"a.csv\"\nlabel = { column = \"x\" }\n",
        &format!("graph.toml, line 3: missing field `file`; {KEYS}"),
    );
    check(
        "[nodes.a]\nfile = \"a.csv\"\nfeatures = 3\n",
        &format!(
            "graph.toml, line 3: invalid type: integer `3`, expected a list of columns, or the name of a file; {KEYS}"
        ),
    );
    assert_eq!(refused(&[], &Options::default()), "graph.toml: no such file or directory; check the path");
}

#[test]
fn node_types_that_contradict_themselves() {
    let node = |keys: &str, what: &str| {
        let others = "[nodes.b]\ncount = 2\nlabel = { file = \"y.csv\" }\n";
        check(&format!("{others}[nodes.a]\n{keys}\n"), &format!("graph.toml: [nodes.a]: {what}"));
    };
    node("file = \"a.csv\"\ncount = 2", "file and count both; a file has a row per node: leave the count out");
    node("id = \"x\"", "id is of a file, and there is none; add file = \"FILE\"");
    node("count = 1\nfeatures = [\"x\"]", "features is of a file, and there is none; add file = \"FILE\"");
    node("count = 1\nsplit = \"fold\"", "split is of a file, and there is none; add file = \"FILE\"");
    node("count = 1\nheader = true", "header is of a file, and there is none; add file = \"FILE\"");
    node(
        "count = 1\ntime = \"t\"",
        "time is of a file, and there is none; add file = \"FILE\", or give the values as time = { file = \"FILE\" }",
    );
    node(
        "time = { file = \"t.csv\" }",
        "values of nodes that nothing lists; add file = \"FILE\" or count = NUMBER; without them the nodes are those that \
         edges name",
    );
    node("file = \"a.csv\"\nfeatures = []", "features without a column; list columns, or leave the key out");
    node(
        "file = \"a.csv\"\nlabel = \"y\"",
        "labels or targets of a second node type, \"b\" has some already; learn one type at a time: leave them out of the other",
    );
    node(
        "file = \"a.csv\"\nheader = false\nid = \"x\"",
        "the column \"x\" of a file without a header; give numbers of columns, from 1",
    );
    node(
        "file = \"a.csv\"\nheader = false\ntime = \"x\"",
        "the column \"x\" of a file without a header; give numbers of columns, from 1",
    );
    node(
        "file = \"a.csv\"\nsplit = \"fold\"",
        "a split of \"a\", but labels or targets of \"b\"; split the nodes that are learned",
    );
    check(
        "[nodes.a]\ncount = 1\ntargets = [1]\n",
        "graph.toml: [nodes.a]: targets is of a file, and there is none; add file = \"FILE\"",
    );
    check(
        "[nodes.a]\nfile = \"a.csv\"\ntargets = []\n",
        "graph.toml: [nodes.a]: targets without a column; list columns, or leave the key out",
    );
    check(
        "[nodes.\"a:b\"]\ncount = 1\n",
        "graph.toml: [nodes.a:b]: the name of a node type is empty or has a colon; a node is named TYPE:ID: choose another name",
    );
    check(
        "[nodes.a]\nfile = \"a\"\nsplit = \"s\"\n[nodes.b]\nfile = \"b\"\nsplit = \"s\"\n",
        "graph.toml: [nodes.b]: splits of a second node type, \"a\" has some already; learn one type at a time: leave them out \
         of the other",
    );
}

#[test]
fn edge_types_that_contradict_themselves() {
    let edge = |keys: &str, what: &str| {
        let manifest = format!("[nodes.a]\ncount = 2\n[nodes.b]\ncount = 2\n[[edges]]\ntype = \"to\"\n{keys}\n");
        check(&manifest, &format!("graph.toml: [[edges]] number 1, \"to\": {what}"));
    };
    edge(
        "file = \"e.csv\"\nsource = \"c\"\ntarget = \"a\"",
        "there is no node type \"c\": there are \"a\", \"b\"; correct it, or add the type",
    );
    edge(
        "file = \"e.csv\"\nsource = 1\ntarget = \"a\"",
        "the node type 1 of an end is a number; give the name of a node type",
    );
    edge(
        "file = \"e.npy\"\nsource = { type = \"a\", column = 1 }\ntarget = \"a\"",
        "an array of edges has no columns; name the node types alone: source = \"TYPE\"",
    );
    edge(
        "file = \"e.npy\"\nheader = true\nsource = \"a\"\ntarget = \"a\"",
        "an array of edges has no header; leave header out",
    );
    edge(
        "file = \"e.csv\"\nheader = false\nsource = { type = \"a\", column = \"x\" }\ntarget = \"a\"",
        "the column \"x\" of a file without a header; give numbers of columns, from 1",
    );
    edge(
        "file = \"e.csv\"\nheader = false\nsource = \"a\"\ntarget = \"a\"\nweight = \"w\"",
        "the column \"w\" of a file without a header; give numbers of columns, from 1",
    );
    edge(
        "file = \"e.csv\"\nsource = \"a\"\ntarget = \"a\"\nreverse = \"\"",
        "reverse edges without a name; give them one, or reverse = true for rev_NAME",
    );
    check(
        "[nodes.a]\ncount = 1\n[[edges]]\ntype = \"\"\nfile = \"e.csv\"\nsource = \"a\"\ntarget = \"a\"\n",
        "graph.toml: [[edges]] number 1, \"\": an edge type without a name; give it one",
    );
}

/// The refusal of the shop with a file in the place of another one.
#[track_caller]
fn file(name: &str, text: &str, expected: &str) {
    let mut files = shop().to_vec();
    match files.iter().position(|(file, _)| *file == name) {
        Some(at) => files[at].1 = text,
        None => files.push((name, text)),
    }
    assert_eq!(refused(&files, &Options::default()), expected);
}

/// The refusal of the shop with another text in the place of a part of its manifest.
#[track_caller]
fn changed(from: &str, to: &str, expected: &str) {
    let mut files = shop().to_vec();
    let manifest = files[0].1.replacen(from, to, 1);
    assert_ne!(manifest, files[0].1, "{from}");
    files[0].1 = &manifest;
    assert_eq!(refused(&files, &Options::default()), expected);
}

#[test]
fn files_and_columns_that_do_not_exist() {
    let dir = folder(&shop());
    std::fs::remove_file(dir.path().join("orders.csv")).expect("it was there");
    let source = dir.path().join("graph.toml");
    let error = manifest::import(&source, &dir.path().join("out"), &Options::default(), &Silent).expect_err("refused");
    let error = error.to_string().replace(&format!("{}/", dir.path().display()), "");
    assert_eq!(error, "orders.csv: there is no such file; correct its name, which graph.toml has");
    let long = format!("file = \"{}.csv\"", "orders".repeat(1000));
    changed("file = \"orders.csv\"", &long, "graph.toml: it names a file by more than 1024 bytes; correct the name");
    changed(
        "id = \"sku\"",
        "id = \"SKUs\"",
        "products.csv: there is no column \"SKUs\": there are 4, named \"sku\", \"price\", \"size\", \"name\"; give its name \
         or its number from 1",
    );
    changed(
        "weight = \"amount\"",
        "weight = 9",
        "orders.csv: there is no column 9: there are 4, named \"customer\", \"product\", \"day\", \"amount\"; give its name \
         or its number from 1",
    );
    changed(
        "features = [\"price\", \"size\"]",
        "features = [\"sku\", \"size\"]",
        "products.csv: the column \"sku\" is read as ids, labels, a split or targets; list other columns as features",
    );
    changed(
        "features = [\"price\", \"size\"]",
        "features = [\"f*\"]",
        "products.csv: no column matches \"f*\"; give names, numbers, ranges (2-9) or patterns (f*)",
    );
    changed(
        "label = \"churn\"",
        "targets = [\"churn\"]",
        "customers.csv, line 2: the target \"no\" is no number; correct it, or list other columns as targets",
    );
    changed(
        "weight = \"amount\"",
        "weight = { file = \"cities.tsv\" }",
        "cities.tsv: values of edges in a file of their own; add them to the table of the edges as a column, and name that",
    );
    changed(
        "time = \"signed_up\"",
        "time = { file = \"orders.csv\" }",
        "orders.csv: which of its 4 columns is read is not said; name it: { file = \"FILE\", column = \"NAME\" }",
    );
}

#[test]
fn ids_that_are_missing_twice_or_unknown() {
    const OWN: &str = "give every node an id of its own";
    file(
        "products.csv",
        "sku,price,size\na,1,1\nb,1,1\na,1,1\n",
        &format!("products.csv, line 4: the id \"a\" stands there twice; {OWN}"),
    );
    file("products.csv", "sku,price,size\n,1,1\n", &format!("products.csv, line 2: a node without an id; {OWN}"));
    file(
        "orders.csv",
        "customer,product,day,amount\n10,a1,1,1\n10,c3,1,1\n",
        "orders.csv, line 3: the target \"c3\" is no node: none has this id; correct the id, or add the node",
    );
    file(
        "orders.csv",
        "customer,product,day,amount\n11,a1,1,1\n",
        "orders.csv, line 2: the source \"11\" is no node: none has this id; correct the id, or add the node (ids that are \
         numbers are compared as such)",
    );
    file(
        "cities.tsv",
        "30\tRome\n10\t\n",
        "cities.tsv, line 2: an edge without an id at one end; give every edge the ids of its source and target",
    );
}

#[test]
fn values_that_are_not_what_they_should_be() {
    const FEATURE: &str = "give every node a number, or leave the column out of the features";
    const TIME: &str = "give whole numbers, such as seconds or days since 1970";
    const WEIGHT: &str = "correct it, or import with --drop-weights";
    let orders = |row: &str, what: &str| {
        file(
            "orders.csv",
            &format!("customer,product,day,amount\n10,a1,{row}\n"),
            &format!("orders.csv, line 2: {what}"),
        );
    };
    file(
        "products.csv",
        "sku,price,size\na1,cheap,1\n",
        &format!("products.csv, line 2: the feature \"price\" is \"cheap\", no number; {FEATURE}"),
    );
    file(
        "products.csv",
        "sku,price,size\na1,1,\n",
        &format!("products.csv, line 2: the feature \"size\" is missing; {FEATURE}"),
    );
    orders("2020-01-02,1", &format!("the time \"2020-01-02\" is no whole number; {TIME}"));
    orders("1.5,1", &format!("the time \"1.5\" is no whole number; {TIME}"));
    orders(",1", &format!("a row without a time; {TIME}"));
    orders("1,much", &format!("the weight \"much\" is no number; {WEIGHT}"));
    orders("1,-1", &format!("the weight -1 is not a finite number of at least 0; {WEIGHT}"));
    orders("1,", &format!("an edge without a weight; {WEIGHT}"));
    let customers = |fields: &str, what: &str| {
        let text = format!("customer_id,age,signed_up,churn,fold\n30,41,{fields}\n10,1,1,no,\n20,1,1,no,\n");
        file("customers.csv", &text, &format!("customers.csv, line 2: {what}"));
    };
    customers("x,no,train", &format!("the time \"x\" is no whole number; {TIME}"));
    customers("1,no,later", "\"later\" is no split; write train, valid, test or nothing");
    let text = "customer_id,age,signed_up,churn,fold\n30,1,1,0.5,\n10,1,1,1,\n20,1,1,1,\n";
    file(
        "customers.csv",
        text,
        "customers.csv, line 2: the label 0.5 is no class: classes are whole numbers from 0, or names; classes are no \
         quantities; number the classes, or name another column as the label; -1 or nothing stands for a node without a label",
    );
}

#[test]
fn files_of_other_lengths() {
    changed(
        "features = [\"age\"]",
        "features = \"cities.tsv\"",
        "cities.tsv, line 1: the feature in column 2 is \"Rome\", no number; give every node a number, or leave the column out of \
         the features",
    );
    let rows = |manifest: &str, text: &str, expected: &str| {
        assert_eq!(refused(&[("graph.toml", manifest), ("v.csv", text)], &Options::default()), expected);
    };
    const EACH: &str = "give every node its row";
    let twos = "v.csv: 2 rows for the 3 nodes of type \"a\"";
    rows("[nodes.a]\ncount = 3\nfeatures = \"v.csv\"\n", "1\n2\n", &format!("{twos}; {EACH}"));
    rows("[nodes.a]\ncount = 3\ntargets = \"v.csv\"\n", "1\n2\n", &format!("{twos}; {EACH}"));
    rows("[nodes.a]\ncount = 3\nlabel = { file = \"v.csv\" }\n", "1\n0\n", &format!("{twos}; {EACH}"));
    rows("[nodes.a]\ncount = 3\ntime = { file = \"v.csv\" }\n", "1\n2\n", &format!("{twos}; {EACH}"));
    rows(
        "[nodes.a]\ncount = 3\nsplit = { train = \"v.csv\" }\n",
        "1\n3\n",
        "v.csv, line 2: there is no node \"3\"; give ids as the nodes of this type have them",
    );
    rows(
        "[nodes.a]\ncount = 3\nsplit = { valid = \"v.csv\" }\n",
        "1\n1\n",
        "v.csv, line 2: the node \"1\" is listed before, in this split or another one; list each node once",
    );
    rows(
        "[nodes.a]\ncount = 4294967295\n[nodes.b]\ncount = 1\n",
        "",
        "graph.toml: 4294967295 nodes would take 32.0 GiB, and the source has 49 bytes; check the number of nodes, or confirm the \
         size by --allow-large",
    );
}

#[test]
fn options_that_typed_graphs_do_not_read() {
    for (option, options) in [
        ("--reverse", Options { reverse: true, ..Options::default() }),
        ("--drop-self-loops", Options { drop_self_loops: true, ..Options::default() }),
        ("--add-self-loops", Options { add_self_loops: true, ..Options::default() }),
        (
            "--duplicate-weights add",
            Options { drop_duplicates: true, duplicate_weights: DuplicateWeights::Add, ..Options::default() },
        ),
        ("--bipartite", Options { bipartite: Some(true), ..Options::default() }),
        (
            "--train-edges",
            Options { links: LinkFiles { train: Some("x".into()), ..LinkFiles::default() }, ..Options::default() },
        ),
        (
            "--nodes",
            Options { nodes: NodeFiles { table: Some("x".into()), ..NodeFiles::default() }, ..Options::default() },
        ),
        ("--standardise", Options { standardise: Some(Standardise::ByTraining), ..Options::default() }),
    ] {
        let error = refused(&shop(), &options);
        assert!(
            error.starts_with(&format!("{option}: a graph of several node types does not read it; ")),
            "{option}: {error}"
        );
    }
    // A random split is one of the nodes with a label.
    let dir = folder(&shop());
    let options =
        Options { split: Some(RandomSplit { train: 0.5, valid: 0.5, test: 0.0, seed: 1 }), ..Options::default() };
    let dataset = super::open(|target| manifest::import(&dir.path().join("graph.toml"), target, &options, &Silent));
    let mut nodes = [dataset.splits.train.to_vec(), dataset.splits.valid.to_vec()].concat();
    nodes.sort_unstable();
    assert_eq!(nodes, [2, 3]);
}
