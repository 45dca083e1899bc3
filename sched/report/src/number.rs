//! Numbers printed for people: percentages, ratios, bytes, counts, axis ticks. A value that is not finite is an en dash.

const NONE: &str = "–";

/// A value with this many significant digits, but no fewer than its integer digits.
fn significant(value: f64, digits: i32) -> String {
    let decimals =
        |v: f64| if v == 0.0 { 0 } else { (digits - 1 - v.abs().log10().floor() as i32).clamp(0, 9) as usize };
    let first = decimals(value);
    let rounded: f64 = format!("{value:.first$}").parse().unwrap_or(value);
    format!("{value:.*}", decimals(rounded).min(first))
}

/// A share as a percentage: `0.7%`, `87%`, `87.2%` with one decimal.
pub fn percent(share: f64, decimals: usize) -> String {
    match 100.0 * share {
        value if !value.is_finite() => NONE.to_string(),
        value if value.abs() >= 1e5 => format!("{value:.1e}%"),
        value => format!("{:.decimals$}%", value + 0.0),
    }
}

/// A ratio, such as of a plan's time to its bound: `1.004×`.
pub fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => NONE.to_string(),
        _ if value.abs() < 10.0 => format!("{value:.3}×"),
        _ if value.abs() >= 1e5 => format!("{value:.1e}×"),
        _ => format!("{}×", significant(value, 3)),
    }
}

/// A plain number such as a loss, with four decimals.
pub(crate) fn plain(value: f64) -> String {
    match value.abs() {
        size if !size.is_finite() => NONE.to_string(),
        size if size >= 1e6 => format!("{value:.3e}"),
        _ => format!("{value:.4}"),
    }
}

/// An amount of memory: `512 B`, `1.50 GiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut size = value as f64 / 1024.0;
    let mut unit = 0;
    while size >= 999.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{} {}", significant(size, 3), UNITS[unit])
}

/// A count with thin spaces between thousands.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}

/// Positions and labels of an axis's ticks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ticks(pub(crate) Vec<(f64, String)>);

/// At most `most` (at least 2) round steps of 1, 2 or 5 times a power of ten.
fn step(span: f64, most: usize) -> f64 {
    let raw = span / most.max(2) as f64;
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= raw * 0.999_999).unwrap_or(10.0 * power)
}

/// Multiples of a step within a range; none where the step is below the range's rounding error.
fn multiples(from: f64, to: f64, step: f64) -> Vec<f64> {
    let sound = step.is_finite() && step > 0.0 && step > from.abs().max(to.abs()) * 1e-12;
    if !sound || to < from {
        return Vec::new();
    }
    let slack = step * 1e-6;
    let (first, last) = (((from - slack) / step).ceil() as i64, ((to + slack) / step).floor() as i64);
    (first..=last).map(|i| i as f64 * step + 0.0).collect()
}

fn decimals(step: f64) -> usize {
    (-(step * 1.000_001).log10().floor()).clamp(0.0, 12.0) as usize
}

/// Ticks at the multiples of a step, labelled one by one.
fn labelled(from: f64, to: f64, step: f64, label: impl Fn(f64) -> String) -> Ticks {
    Ticks(multiples(from, to, step).into_iter().map(|v| (v, label(v))).collect())
}

/// Ticks of a plain axis.
pub(crate) fn ticks(from: f64, to: f64, most: usize) -> Ticks {
    let step = step(to - from, most);
    let digits = decimals(step);
    let scientific = |v: f64| v.abs() >= 1e6 || (step < 1e-6 && v != 0.0);
    labelled(from, to, step, |v| if scientific(v) { format!("{v:e}") } else { format!("{v:.digits$}") })
}

/// Ticks of an axis of whole numbers, such as epochs.
pub(crate) fn whole_ticks(from: f64, to: f64, most: usize) -> Ticks {
    labelled(from, to, step(to - from, most).max(1.0), |v| format!("{v:.0}"))
}

/// Ticks of an axis of shares.
pub(crate) fn percent_ticks(from: f64, to: f64, most: usize) -> Ticks {
    let step = step(to - from, most);
    labelled(from, to, step, |v| percent(v, decimals(step * 100.0)))
}

/// Ticks of an axis of seconds, in a unit that suits its end.
pub(crate) fn time_ticks(from: f64, to: f64, most: usize) -> Ticks {
    let span = to - from;
    let mut every = step(span, most);
    if every > 20.0 {
        let raw = span / most.max(2) as f64;
        let round = [30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0];
        every = round.into_iter().find(|s| *s >= raw).unwrap_or_else(|| 3600.0 * step(span / 3600.0, most));
    }
    let (unit, name) = match to.abs() {
        end if end <= 1e-6 => (1e-9, "ns"),
        end if end <= 1e-3 => (1e-6, "µs"),
        end if end <= 1.0 => (1e-3, "ms"),
        _ if every >= 3600.0 => (3600.0, "h"),
        _ if every >= 60.0 => (60.0, "min"),
        _ => (1.0, "s"),
    };
    let digits = decimals(every / unit);
    labelled(from, to, every, |v| format!("{:.digits$} {name}", v / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ticks: Ticks, expected: &[&str]) {
        assert_eq!(ticks.0.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn bytes_and_shares() {
        assert_eq!([1023, 1536, 1 << 30, u64::MAX].map(bytes).join("|"), "1023 B|1.50 KiB|1.00 GiB|16.0 EiB");
        assert_eq!(
            (percent(0.8725, 0), percent(f64::NAN, 1), ratio(1.0041)),
            ("87%".into(), "–".into(), "1.004×".into())
        );
        assert_eq!((count(1179), count(100_000)), ("1179".into(), "100\u{202f}000".into()));
    }

    #[test]
    fn ticks_are_round_and_no_more_than_asked_for() {
        check(time_ticks(0.0, 0.35, 8), &["0 ms", "50 ms", "100 ms", "150 ms", "200 ms", "250 ms", "300 ms", "350 ms"]);
        check(time_ticks(1203.21, 1203.3, 5), &["1203.22 s", "1203.24 s", "1203.26 s", "1203.28 s", "1203.30 s"]);
        check(time_ticks(0.0, 400.0, 4), &["0 min", "2 min", "4 min", "6 min"]);
        check(ticks(0.7, 1.0, 4), &["0.7", "0.8", "0.9", "1.0"]);
        check(percent_ticks(0.5, 1.0, 5), &["50%", "60%", "70%", "80%", "90%", "100%"]);
        check(whole_ticks(1.0, 3.0, 8), &["1", "2", "3"]);
        check(ticks(1.0, 1.0, 4), &[]);
        check(time_ticks(1e18, 1e18 + 1.0, 4), &[]);
    }
}
