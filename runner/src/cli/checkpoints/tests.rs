use std::time::Duration;

use super::Every;

#[test]
fn intervals_are_times_or_mini_batches() {
    let seconds = |s| Ok(Every::Time(Duration::from_secs(s)));
    for (text, expected) in [
        ("600s", seconds(600)),
        ("10m", seconds(600)),
        ("1.5h", seconds(5400)),
        ("500b", Ok(Every::Batches(500))),
        ("0s", seconds(0)),
    ] {
        assert_eq!(text.parse(), expected, "{text}");
    }
    for text in ["", "s", "600", "0b", "-1s", "1.5b", "nans", "infs", "1e300h", "ten minutes", "5 batches"] {
        let error = text.parse::<Every>().expect_err(text);
        assert!(error.contains("600s") && error.contains("500b"), "{error}");
    }
}
