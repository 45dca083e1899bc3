use super::*;

fn node(text: &str) -> Term<'_> {
    Term::Node(text.as_bytes())
}

#[test]
fn lines_are_cut_into_terms() {
    for (line, expected) in [
        ("<a> <p> <b> .\n", Some([node("a"), node("p"), node("b")])),
        ("<a><p><b>.", Some([node("a"), node("p"), node("b")])),
        ("_:x\t<p>\t_:y.1 . # why", Some([node("_:x"), node("p"), node("_:y.1")])),
        ("_:x <p> _:y.", Some([node("_:x"), node("p"), node("_:y")])),
        (r#"<a> <p> "say \"so\" \\" ."#, Some([node("a"), node("p"), Term::Literal])),
        (r#"<a> <p> "chat"@fr-be ."#, Some([node("a"), node("p"), Term::Literal])),
        (r#"<a> <p> "1"^^<http://int> ."#, Some([node("a"), node("p"), Term::Literal])),
        ("  # a comment", None),
        ("\r\n", None),
    ] {
        assert_eq!(triple(line.as_bytes()), Ok(expected), "{line}");
    }
}

#[test]
fn fields_are_cut_at_tabs_or_blanks() {
    let cut = |line: &'static str| fields(line.as_bytes());
    assert_eq!(cut("/m/0 1\tis a\t/m/2\r\n"), Ok(Some([node("/m/0 1"), node("is a"), node("/m/2")])));
    assert_eq!(cut("a  likes b"), Ok(Some([node("a"), node("likes"), node("b")])));
    assert_eq!(cut("#1\t\"x\t,"), Ok(Some([node("#1"), node("\"x"), node(",")])));
    assert_eq!(cut(" \n"), Ok(None));
    assert_eq!(cut("a\t\tb"), Err("a triple with an empty field"));
    assert_eq!(cut("a b"), Err("a triple of fewer than three fields"));
    assert_eq!(cut("a b c d"), Err("a triple of more than three fields"));
}

#[test]
fn other_lines_are_refused() {
    for (line, what) in [
        ("<a> <p> <b>", "a triple that does not end with a dot"),
        ("<a> <p> .", "a triple of fewer than three terms"),
        ("<a> <p", "an IRI without its >"),
        ("<a> <p> \"b .", "a literal without its closing quote"),
        ("a p b .", "a term that is no IRI, blank node or literal"),
        ("<a> <p> <b> . <c>", "more than a triple"),
        ("<a> <> <b> .", "an empty IRI"),
    ] {
        assert_eq!(triple(line.as_bytes()), Err(what), "{line}");
    }
}
