//! Durations printed for people.

use std::fmt;

/// Seconds, printed in a suitable unit: `412 µs`, `35.2 ms`, `48.03 s`, `12 min 05 s`, `2 h 05 min`; an en dash
/// for values that are not finite.
///
/// ```
/// assert_eq!(morphgl_plan::Time(0.0352).to_string(), "35.2 ms");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Time(
    /// Seconds.
    pub f64,
);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value) = *self;
        let size = value.abs();
        f.pad(&match size {
            _ if !size.is_finite() => "–".to_string(),
            0.0 => "0 s".to_string(),
            _ if size < 999.5e-9 => format!("{} ns", digits(value * 1e9, 3)),
            _ if size < 999.5e-6 => format!("{} µs", digits(value * 1e6, 3)),
            _ if size < 0.9995 => format!("{} ms", digits(value * 1e3, 3)),
            _ if size >= 1e9 => format!("{value:.2e} s"),
            _ if size < 600.0 => format!("{} s", digits(value, 4)),
            _ => {
                let sign = if value < 0.0 { "−" } else { "" };
                let (unit, big, small) = if size < 7200.0 { (1.0, "min", "s") } else { (60.0, "h", "min") };
                let whole = (size / unit).round();
                format!("{sign}{} {big} {:02} {small}", (whole / 60.0).floor(), whole % 60.0)
            }
        })
    }
}

/// A value below 1000, rounded to a number of significant digits.
fn digits(value: f64, digits: usize) -> String {
    let rounds_below = |power: i32| value.abs() < 10f64.powi(power) - 0.5 * 10f64.powi(power - digits as i32);
    let whole = (1..digits as i32).find(|&power| rounds_below(power)).map_or(digits, |power| power as usize);
    format!("{value:.*}", digits - whole)
}

#[cfg(test)]
mod tests;
