use super::*;

#[track_caller]
fn check(ticks: Ticks, expected: &[&str]) {
    assert_eq!(ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), expected);
}

#[test]
fn bytes_and_shares() {
    assert_eq!([1023, 1536, 1 << 30, u64::MAX].map(bytes).join("|"), "1023 B|1.50 KiB|1.00 GiB|16.0 EiB");
    assert_eq!((percent(0.8725, 0), percent(f64::NAN, 1), ratio(1.0041)), ("87%".into(), "–".into(), "1.004×".into()));
    assert_eq!((count(1179), count(100_000)), ("1179".into(), "100\u{202f}000".into()));
}

#[test]
fn ticks_are_round_and_no_more_than_the_maximum() {
    check(time_ticks(0.0, 0.35, 8), &["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms", "350 ms"]);
    check(time_ticks(1203.21, 1203.3, 5), &["1203.22 s", "1203.24 s", "1203.26 s", "1203.28 s", "1203.30 s"]);
    check(time_ticks(0.0, 400.0, 4), &["0 min", "2 min", "4 min", "6 min"]);
    check(ticks(0.7, 1.0, 4), &["0.7", "0.8", "0.9", "1.0"]);
    check(percent_ticks(0.5, 1.0, 5), &["50%", "60%", "70%", "80%", "90%", "100%"]);
    check(whole_ticks(1.0, 3.0, 8), &["1", "2", "3"]);
    check(ticks(1.0, 1.0, 4), &[]);
    check(time_ticks(1e18, 1e18 + 1.0, 4), &[]);
}
