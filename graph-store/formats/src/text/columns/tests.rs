use super::*;

fn layout(line: &str, columns: &Columns) -> (Layout, bool) {
    let first = first_line(line.as_bytes(), columns).unwrap_or_else(|(what, _)| panic!("{line}: {what}"));
    (first.layout, first.is_header)
}

fn places(line: &str, columns: &Columns) -> (usize, usize, Option<usize>) {
    let (layout, _) = layout(line, columns);
    (layout.columns.source, layout.columns.target, layout.columns.weight)
}

#[test]
fn names_say_which_column_is_which() {
    let none = Columns::default();
    for (line, expected) in [
        ("src,dst", (0, 1, None)),
        ("target,source", (1, 0, None)),
        ("\"Source\";\"Target\";\"Weight\"", (0, 1, Some(2))),
        ("src,weight,dst", (0, 2, Some(1))),
        (",src,dst", (1, 2, None)),
        ("id,u,v,w", (1, 2, Some(3))),
        ("from\tto", (0, 1, None)),
        ("row col", (0, 1, None)),
        ("id_1,id_2", (0, 1, None)),
    ] {
        assert_eq!((places(line, &none), layout(line, &none).1), (expected, true), "{line}");
    }
    for (line, expected) in [("1,2", (0, 1, None)), ("1 2 0.5", (0, 1, Some(2))), ("0\t7", (0, 1, None))] {
        assert_eq!((places(line, &none), layout(line, &none).1), (expected, false), "{line}");
    }
}

#[test]
fn columns_can_be_named() {
    let named = |src: Column, dst: Column| Columns { src: Some(src), dst: Some(dst), ..Columns::default() };
    let by_name = named(Column::Name("B".into()), Column::Name("a".into()));
    assert_eq!(places("a,b,time", &by_name), (1, 0, None));
    assert_eq!(places("9 1 2 77", &named(Column::Number(2), Column::Number(3))), (1, 2, None));
    let all = Columns { names: Some(["when", "dst", "src"].map(String::from).into()), ..Columns::default() };
    let all = Columns { src: Some(Column::Name("src".into())), dst: Some(Column::Name("dst".into())), ..all };
    assert_eq!(places("9 1 2", &all), (2, 1, None));
    let error = first_line(b"a,b", &named(Column::Name("c".into()), Column::Number(1))).unwrap_err().0;
    assert!(error.contains("no column \"c\": there are 2, named \"a\", \"b\""), "{error}");
}

#[test]
fn ambiguous_first_lines_are_refused() {
    for (line, what) in [
        ("O 1", "neither numbers nor names"),
        ("alice,bob", "named \"alice\", \"bob\""),
        ("src,dst,time", "not all are known"),
        ("1 2 3 4", "4 columns"),
        ("lonely", "found \"lonely\""),
    ] {
        let (found, cure) = first_line(line.as_bytes(), &Columns::default()).unwrap_err();
        assert!(found.contains(what), "{line}: {found}; {cure}");
    }
}

#[test]
fn fields_may_be_empty_or_quoted() {
    let of = |line: &str, separator| -> Vec<String> {
        fields(line.as_bytes(), separator).map(|f| String::from_utf8_lossy(f).into_owned()).collect()
    };
    assert_eq!(of(",1, 2 ,\"a,b\",", Separator::Byte(b',')), ["", "1", "2", "a,b", ""]);
    assert_eq!(of("  1 \t 2\r", Separator::Blanks), ["1", "2"]);
    assert_eq!(of("'x y';\"\"", Separator::Byte(b';')), ["x y", ""]);
    // A separating tab ends its field; it is no blank before the next quote.
    assert_eq!(of("1\t\t\"a\tb\"\t3", Separator::Byte(b'\t')), ["1", "", "a\tb", "3"]);
    assert_eq!(of("1, \t'a,b'", Separator::Byte(b',')), ["1", "a,b"]);
}
