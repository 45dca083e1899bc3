//! Tables as Gephi and spreadsheets write them.

use morphgl_formats::Column;
use morphgl_formats::edge_list::Ids;

use super::{Case, notes};

fn by_names(case: &mut Case, weight: bool) {
    let name = |name: &str| Some(Column::Name(name.to_string()));
    let columns = &mut case.format.columns;
    (columns.src, columns.dst) = (name("source"), name("target"));
    columns.weight = name("weight").filter(|_| weight);
}

/// Undirected edges are read one way, which is said, or both ways.
#[test]
fn undirected_edges_are_noted() {
    for (edges, said) in [
        ("Source,Target,Type,Id,Weight\n0,1,Undirected,0,1.0\n1,2,Undirected,1,2.5\n", true),
        ("Source;Target;Type;Weight\n0;1;undirected;1\n1;2;Directed;1\n", true),
        ("Type\tSource\tTarget\tWeight\nUNDIRECTED\t0\t1\t1\n", true),
        ("Source,Target,Weight,Type\n\"0\",\"1\",2,\"Undirected\"\n", true),
        ("Source,Target,Type,Weight\n0,1,Directed,1\n", false),
        ("Source,Target,Kind,Weight\n0,1,Undirected,1\n", false),
    ] {
        for ids in [Ids::Keep, Ids::Compact, Ids::Strings] {
            let mut case = Case::new(ids);
            by_names(&mut case, true);
            let note = "the column type calls edges undirected: each is read once";
            assert_eq!(notes(&case.import(edges).unwrap()).contains(note), said, "{edges}");
            case.options.symmetrise = true;
            assert!(!notes(&case.import(edges).unwrap()).contains(note));
        }
    }
}

#[test]
fn decimal_commas_are_refused() {
    let cure = "write numbers with decimal points and without separators of thousands";
    for (ids, edges) in [
        (Ids::Keep, "Source;Target;Weight\n0;1;1,5\n1;2;2,5\n"),
        (Ids::Keep, "Source;Target;Type;Weight\n0;1;x;1\n1;2;x;2,5\n"),
        (Ids::Compact, "Source;Target;Weight\n0;1;3,25\n"),
        (Ids::Strings, "Source;Target;Weight\nann;bob;1,5\n"),
        (Ids::Keep, "Source;Target;Weight\n0;1;1,234\n"),
        (Ids::Keep, "Source\tTarget\tWeight\n0\t1\t0,5\n"),
    ] {
        let mut case = Case::new(ids);
        by_names(&mut case, true);
        let error = case.import(edges).unwrap_err();
        assert!(error.ends_with(cure), "{edges}: {error}");
    }
    for (table, expected) in [
        ("id;f0\n0;1,5\n1;2\n", "n.csv, line 2: the feature \"1,5\" is no number"),
        ("id;f0\n0;1\n1;2,0\n", "n.csv, line 3: the feature \"2,0\" is no number"),
        ("id;label\n0;1,5\n1;2\n", "n.csv, line 2: the label 1,5 is no class"),
    ] {
        let mut case = Case::new(Ids::Keep);
        case.options.nodes.table = case.file("n.csv", table);
        let error = case.import("0 1\n").unwrap_err();
        assert!(error.starts_with(expected) && (error.ends_with(cure) || table.contains("label")), "{error}");
    }
}
