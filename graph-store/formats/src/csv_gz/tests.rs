use super::*;

#[test]
fn fields_count_columns_and_name_the_bad_one() {
    let mut out = [0; 3];
    assert_eq!(fields("1, 2,3", &mut out, id), Ok(()));
    assert_eq!(out, [1, 2, 3]);
    assert_eq!(fields("1,2", &mut out, id), Err("2 columns, expected 3".into()));
    assert_eq!(fields("1,2,3,4", &mut out, id), Err("4 columns, expected 3".into()));
    assert_eq!(fields("1,-2,3", &mut out, id), Err("column 2: \"-2\" is not a whole number of at least 0".into()));
}

#[test]
fn numbers_are_read_as_ogb_writes_them() {
    assert_eq!(feature("-0.057943"), Ok(-0.057943));
    assert_eq!(feature("1e-3"), Ok(1e-3));
    assert!(feature("nan").is_err() && feature("inf").is_err() && feature("").is_err());
    assert_eq!((label("nan"), label(""), label("7"), label("7.0")), (Ok(-1), Ok(-1), Ok(7), Ok(7)));
    assert!(label("0.5").is_err() && label("-2").is_err() && label("99999999999").is_err());
}
