use super::*;

#[test]
fn markup_is_escaped_and_coordinates_are_finite() {
    assert_eq!(escape("<a href=\"x\">&'\0\n"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd} ");
    assert_eq!(format!("{} {} {} {}", px(f64::NAN), px(-0.001), px(1.005), px(12.0)), "0 0 1 12");
}

#[test]
fn long_text_is_truncated() {
    assert_eq!(fit("short", 12.0, 100.0), "short");
    let cut = fit("a very long name of a worker", 12.0, 80.0);
    assert!(cut.ends_with('…') && text_width(&cut, 12.0) <= 80.0 + 8.0, "{cut}");
}
