use super::*;

#[test]
fn a_name_has_one_number() {
    let mut names = Names::default();
    let numbers: Vec<_> = ["b", "a", "", "b", "ab", "a", ""]
        .map(|name| names.number(name.as_bytes(), Path::new("names")).unwrap())
        .into();
    assert_eq!(numbers, [0, 1, 2, 0, 3, 1, 2]);
    assert_eq!((names.name(3), names.name(2)), (&b"ab"[..], &b""[..]));
}
