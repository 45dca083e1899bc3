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
pub(crate) fn percent(share: f64, decimals: usize) -> String {
    match 100.0 * share {
        value if !value.is_finite() => NONE.to_string(),
        value if value.abs() >= 1e5 => format!("{value:.1e}%"),
        value => format!("{:.decimals$}%", value + 0.0),
    }
}

/// A difference as a percentage with its sign.
pub(crate) fn signed(share: f64) -> String {
    let text = percent(share.abs(), 1);
    match share {
        _ if !share.is_finite() => text,
        _ if text == "0.0%" => "±0.0%".to_string(),
        s if s < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// A ratio, such as of a plan's time to its bound: `1.004×`.
pub(crate) fn ratio(value: f64) -> String {
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
pub(crate) fn bytes(value: u64) -> String {
    if value < 1024 {
        return format!("{value} B");
    }
    let mut size = value as f64 / 1024.0;
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    let mut unit = units.next();
    while size >= 999.5
        && let Some(larger) = units.next()
    {
        size /= 1024.0;
        unit = Some(larger);
    }
    format!("{} {}", significant(size, 3), unit.unwrap_or_default())
}

/// A count of 5 or more digits with thin spaces between thousands.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    if value < 10_000 {
        return digits;
    }
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join("\u{202f}")
}

/// Positions and labels of an axis's ticks.
pub(crate) type Ticks = Vec<(f64, String)>;

/// A step of 1, 2 or 5 times a power of ten that divides `span` into at most `max` (at least 2) parts.
fn step(span: f64, max: usize) -> f64 {
    let raw = span / max.max(2) as f64;
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= raw * 0.999_999).unwrap_or(10.0 * power)
}

fn decimals(step: f64) -> usize {
    (-(step * 1.000_001).log10().floor()).clamp(0.0, 12.0) as usize
}

/// Ticks at the multiples of a step, labelled one by one; none where the step is below the range's rounding error.
fn labelled(from: f64, to: f64, step: f64, label: impl Fn(f64) -> String) -> Ticks {
    let valid = step.is_finite() && step > 0.0 && step > from.abs().max(to.abs()) * 1e-12;
    if !valid || to < from {
        return Ticks::new();
    }
    let slack = step * 1e-6;
    let (first, last) = (((from - slack) / step).ceil() as i64, ((to + slack) / step).floor() as i64);
    let multiples = (first..=last).map(|i| i as f64 * step + 0.0);
    multiples.map(|value| (value, label(value))).collect()
}

/// Ticks of a plain axis.
pub(crate) fn ticks(from: f64, to: f64, max: usize) -> Ticks {
    let step = step(to - from, max);
    let digits = decimals(step);
    let scientific = |v: f64| v.abs() >= 1e6 || (step < 1e-6 && v != 0.0);
    labelled(from, to, step, |v| if scientific(v) { format!("{v:e}") } else { format!("{v:.digits$}") })
}

/// Ticks of an axis of whole numbers, such as epochs.
pub(crate) fn whole_ticks(from: f64, to: f64, max: usize) -> Ticks {
    labelled(from, to, step(to - from, max).max(1.0), |v| format!("{v:.0}"))
}

/// Ticks of an axis of shares.
pub(crate) fn percent_ticks(from: f64, to: f64, max: usize) -> Ticks {
    let step = step(to - from, max);
    labelled(from, to, step, |v| percent(v, decimals(step * 100.0)))
}

/// Ticks of an axis of seconds, in a unit that suits its end.
pub(crate) fn time_ticks(from: f64, to: f64, max: usize) -> Ticks {
    let span = to - from;
    let mut every = step(span, max);
    if every > 20.0 {
        let raw = span / max.max(2) as f64;
        let round = [30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0];
        every = round.into_iter().find(|s| *s >= raw).unwrap_or_else(|| 3600.0 * step(span / 3600.0, max));
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
mod tests;
