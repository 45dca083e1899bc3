use super::*;

#[track_caller]
fn check(seconds: f64, expected: &str) {
    assert_eq!(Time(seconds).to_string(), expected);
}

#[test]
fn every_size_has_its_unit_and_its_digits() {
    check(0.0, "0 s");
    check(3.2e-10, "0.32 ns");
    check(999.6e-9, "1.00 µs");
    check(4.12e-4, "412 µs");
    check(0.009_999_9, "10.0 ms");
    check(0.009_99, "9.99 ms");
    check(-0.25, "-250 ms");
    check(0.9999, "1.000 s");
    check(9.9994, "9.999 s");
    check(9.9999, "10.00 s");
    check(48.0304, "48.03 s");
    check(599.99, "600.0 s");
    check(725.0, "12 min 05 s");
    check(-725.0, "−12 min 05 s");
    check(3599.7, "60 min 00 s");
    check(7500.0, "2 h 05 min");
    check(3.2e12, "3.20e12 s");
    check(f64::NAN, "–");
    assert_eq!(format!("{:<8}|", Time(0.25)), "250 ms  |");
}
