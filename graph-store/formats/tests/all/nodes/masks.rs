//! Masks and lists of nodes, by their values.

use morphgl_formats::edge_list::Ids;
use morphgl_formats::numpy::{self, NumpyOptions};
use morphgl_formats::{NodeFiles, Options, Silent};
use morphgl_graph_store::{Dataset, Element};

use super::Case;

const EDGES: &str = "0 1\n1 2\n2 3\n3 4\n4 5\n5 6\n6 7\n";

fn train(case: &mut Case, file: Option<std::path::PathBuf>) -> Result<Vec<u32>, String> {
    case.options.nodes = NodeFiles { splits: [file, None, None], ..NodeFiles::default() };
    let dataset = Dataset::open(case.import(EDGES)?, Default::default()).unwrap();
    Ok(dataset.splits.train.to_vec())
}

#[test]
fn a_mask_is_known_by_its_values() {
    for ids in [Ids::Keep, Ids::Compact, Ids::Strings] {
        let mut case = Case::new(ids);
        if ids == Ids::Strings {
            case.format.columns.names = Some(vec!["src".into(), "dst".into()]);
        }
        let flags = [1u8, 1, 0, 1, 0, 1, 0, 0];
        let text = |one: &str, zero: &str| flags.map(|flag| if flag == 1 { one } else { zero }).join("\n");
        let masks = [
            case.array("u8.npy", &flags, None),
            case.array("i64.npy", &flags.map(i64::from), None),
            case.array("f32.npy", &flags.map(f32::from), None),
            case.array("f64.npy", &flags.map(f64::from), Some(1)),
            case.file("numbers.txt", &text("1", "0")),
            case.file("words.txt", &text("True", "False")),
            case.file("capitals.txt", &text("TRUE", "FALSE")),
            case.file("named.csv", &("train_mask\n".to_string() + &text("1.0", "0.0"))),
        ];
        let reals = case.file("reals.txt", &text("1.0", "0.0"));
        let other = case.file("other.csv", &("chosen\n".to_string() + &text("1", "0")));
        // As names, these are other nodes.
        let reals = [reals, other].into_iter().filter(|_| ids != Ids::Strings);
        for mask in masks.into_iter().chain(reals) {
            assert_eq!(train(&mut case, mask.clone()), Ok(vec![0, 1, 3, 5]), "{mask:?}");
        }
        let lists = [case.file("ids.txt", "3\n0\n5\n1\n"), case.file("two.txt", "0\n1\n")];
        let found: Vec<_> = lists.into_iter().map(|list| train(&mut case, list).unwrap().len()).collect();
        assert_eq!(found, [4, 2]);
        // A training node may stand there several times.
        let repeats = case.file("repeats.txt", "0\n1\n2\n1\n");
        assert_eq!(train(&mut case, repeats).unwrap().len(), 4);
    }
}

#[test]
fn masks_that_are_none_are_refused() {
    let mut case = Case::new(Ids::Keep);
    for (file, expected) in [
        (case.array("m.npy", &[1f32, 0.5, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0], None), "m.npy: the value 0.5 in a mask"),
        (case.array("n.npy", &[1u8, 1, 0], None), "n.npy: 3 rows, but the graph has 8 nodes"),
        (case.array("f.npy", &[3f32, 5.0], None), "f.npy: the value 3 in a mask, which has 0 and 1 alone; save ids as"),
        (case.file("b.csv", "flag\nTrue\nFalse\n"), "b.csv, line 2: \"True\" is no node id; write a mask as 1 and 0"),
        (case.file("w.txt", "True\n7\n"), "w.txt, line 2: \"7\" is neither true nor false"),
    ] {
        let error = train(&mut case, file).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// In a graph of two nodes, a zero and a one may be a mask as well as both nodes.
#[test]
fn masks_of_a_graph_of_two_nodes() {
    let mut case = Case::new(Ids::Keep);
    let mut train = |values: [u8; 2], as_array: bool, header: &str| {
        let text = format!("{header}{}\n{}\n", values[0], values[1]);
        let file = if as_array { case.array("m.npy", &values, None) } else { case.file("m.txt", &text) };
        case.options.nodes = NodeFiles { splits: [file, None, None], ..NodeFiles::default() };
        let dataset = Dataset::open(case.import("0 1\n")?, Default::default()).unwrap();
        Ok::<_, String>(dataset.splits.train.to_vec())
    };
    for as_array in [false, true] {
        assert_eq!(train([1, 1], as_array, ""), Ok(vec![0, 1]));
        assert_eq!(train([0, 0], as_array, ""), Ok(vec![]));
        for values in [[0, 1], [1, 0]] {
            let message = train(values, as_array, "").unwrap_err();
            let says = "zeros and ones, which may be the ids of nodes or a mask; write them as text below the name of their column, id or train_mask";
            assert!(message.contains(says), "{message}");
        }
    }
    assert_eq!(train([1, 0], false, "id\n"), Ok(vec![0, 1]));
    assert_eq!(train([1, 0], false, "train_mask\n"), Ok(vec![0]));
}

/// SNAP's `0.feat`: "id value value …", without a header, in any order of ids.
#[test]
fn a_first_column_of_ids_is_no_feature() {
    let mut case = Case::new(Ids::Compact);
    let edges = "24 236\n186 24\n285 346\n";
    let rows = "236 0 1\n186 1 0\n24 0 1\n346 1 1\n285 0 0\n";
    let refused = |case: &Case| case.import(edges).unwrap_err();
    for (table, cure) in [
        (rows.to_string(), "--id-column 1, or as a feature by --feature-columns 1-3"),
        (rows.replace(' ', ","), "--id-column 1, or as a feature by --feature-columns 1-3"),
        (rows.replace("236 ", "236.0 "), "--id-column 1, or as a feature by --feature-columns 1-3"),
        (format!("{rows}7 1 0\n"), "--id-column 1, or as a feature by --feature-columns 1-3"),
        (format!("ego w0 w1\n{rows}"), "--id-column 1, or as a feature by --feature-columns 1-3"),
        ("24\n186\n236\n285\n346\n".to_string(), "--id-column 1, or as a feature by --feature-columns 1"),
    ] {
        case.options.nodes = NodeFiles { features: case.file("0.feat", &table), ..NodeFiles::default() };
        let what = "0.feat: the first column has the id of every node once, and would be a feature; read it as ids by ";
        assert_eq!(refused(&case), format!("{what}{cure}"), "{table}");
    }
    case.options.nodes = NodeFiles { features: case.file("0.feat", rows), ..NodeFiles::default() };
    case.options.nodes.columns.id = Some(morphgl_formats::Column::Number(1));
    let found = super::nodes(&case.import(edges).unwrap());
    assert_eq!(
        found,
        ["24: 0 1 / - / -", "186: 1 0 / - / -", "236: 0 1 / - / -", "285: 0 0 / - / -", "346: 1 1 / - / -"]
    );
    // Said to be features, and columns that do not list every node.
    for (table, columns) in
        [(rows, true), ("236 0\n186 0\n24 0\n346 0\n286 0\n", false), ("1 0\n0 0\n1 0\n0 0\n1 0\n", false)]
    {
        case.options.nodes = NodeFiles { features: case.file("0.feat", table), ..NodeFiles::default() };
        case.options.nodes.columns.features = columns.then(|| vec![morphgl_formats::Column::Name("1-3".into())]);
        let notes = super::notes(&case.import(edges).unwrap());
        assert!(notes.contains("0.feat: columns without names, 1-"), "{notes}");
    }
}

/// Names in Latin-1 would be other classes.
#[test]
fn text_that_is_not_utf8_is_refused() {
    let mut case = Case::new(Ids::Keep);
    let table = |bytes: &[u8]| Some(super::write(&case.dir, "n.csv", bytes));
    for (bytes, line) in [
        (&b"id,label\n0,caf\xe9\n1,th\xe9\n"[..], 2),
        (b"id,label\n0,1\n1,caf\xe9\n", 3),
        (b"id,label\n0,a\n1,\xff\n", 3),
        (b"id label\n0 a\n1 th\xe9\n", 3),
        (b"id;label\n0;\"a\xc3\"\n1;b\n", 2),
        (b"id,caf\xe9\n0,1\n1,2\n", 1),
    ] {
        case.options.nodes.table = table(bytes);
        let error = case.import("0 1\n").unwrap_err();
        assert!(error.starts_with(&format!("n.csv, line {line}: the byte 0x")), "{error}");
        assert!(
            error.contains("is not UTF-8; the text may be in Latin-1 or Windows-1252; convert it: `iconv -f"),
            "{error}"
        );
    }
    case.options.nodes.table = table("id,label\n0,café\n1,thé\n2,café\n".as_bytes());
    let found = super::nodes(&case.import("0 1\n").unwrap());
    assert_eq!(found, ["0:  / 0 / -", "1:  / 1 / -", "2:  / 0 / -"]);
}

/// A directory of arrays, with one of training nodes.
fn arrays<T: Element>(num_nodes: u32, name: &str, values: &[T]) -> Result<Vec<u32>, String> {
    let case = Case::new(Ids::Keep);
    let source = case.dir.path().join("arrays");
    std::fs::create_dir(&source).unwrap();
    for (name, value) in [("src", 0), ("dst", num_nodes - 1)] {
        std::fs::rename(case.array("a.npy", &[value], None).unwrap(), source.join(format!("{name}.npy"))).unwrap();
    }
    std::fs::rename(case.array("a.npy", values, None).unwrap(), source.join(format!("{name}.npy"))).unwrap();
    let target = case.dir.path().join("out");
    let done = numpy::import(&source, &target, NumpyOptions::default(), &Options::default(), &Silent);
    let dataset = Dataset::open(done.map_err(|e| e.to_string())?, Default::default()).unwrap();
    Ok(dataset.splits.train.to_vec())
}

#[test]
fn arrays_of_splits_are_masks_by_their_values() {
    let flags = [1u8, 1, 0, 1, 0, 1, 0, 0];
    for name in ["train_mask", "train"] {
        assert_eq!(arrays(8, name, &flags), Ok(vec![0, 1, 3, 5]), "{name}");
        assert_eq!(arrays(8, name, &flags.map(i64::from)), Ok(vec![0, 1, 3, 5]));
        assert_eq!(arrays(8, name, &flags.map(f32::from)), Ok(vec![0, 1, 3, 5]));
        assert_eq!(arrays(8, name, &flags.map(f64::from)), Ok(vec![0, 1, 3, 5]));
    }
    assert_eq!(arrays(8, "train", &[3i64, 1]), Ok(vec![3, 1]));
    assert_eq!(arrays(8, "train_idx", &[0i32, 1]), Ok(vec![0, 1]));
    assert_eq!(arrays(2, "train_idx", &[0i32, 1]), Ok(vec![0, 1]));
    assert_eq!(arrays(2, "train_mask", &[0i32, 1]), Ok(vec![1]));
    assert_eq!(arrays(2, "train", &[1i32, 1]), Ok(vec![0, 1]));
    // Training nodes may repeat; zeros and ones alone are a mask unless the name says otherwise.
    assert_eq!(arrays(8, "train_idx", &[1i64, 0, 1]), Ok(vec![1, 0, 1]));
    assert_eq!(arrays(8, "train", &[3i64, 1, 3]), Ok(vec![3, 1, 3]));
    for (found, expected) in [
        (
            arrays(8, "train_mask", &[0i64, 1, 3, 5, 0, 0, 0, 0]),
            "the value 3 in a mask, which has 0 and 1 alone; save ids as",
        ),
        (arrays(8, "train_mask", &[3i64, 5]), "the value 3 in a mask"),
        (arrays(8, "train", &[0.5f32; 8]), "the value 0.5 in a mask"),
        (
            arrays(8, "train", &[1i64, 0, 1]),
            "a mask of 3 nodes, but the graph has 8; give every node its element, or name a list of ids train_idx",
        ),
        (
            arrays(2, "train", &[0i64, 1]),
            "zeros and ones, which may be the ids of nodes or a mask; name the array train_idx",
        ),
    ] {
        assert!(found.as_ref().is_err_and(|error| error.contains(expected)), "{found:?}");
    }
}
