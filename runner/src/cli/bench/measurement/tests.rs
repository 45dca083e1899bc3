use super::{digits, median};

#[test]
fn medians() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert!(median(&[]).is_nan());
}

#[test]
fn numbers_have_the_digits_that_count() {
    let texts = [12_345_678.4, 321.4, 32.14, 3.214, 0.0321].map(digits);
    assert_eq!(texts, ["12,345,678", "321", "32.1", "3.21", "0.0321"]);
}
