//! Escaped text for SVG and HTML, and short coordinates.

/// Appends formatted text to a string.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {
        $out.push_str(&format!($($arg)*))
    };
}
pub(crate) use put;

/// Escapes text for an element or a quoted attribute; characters that XML forbids become `\u{fffd}`.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

/// A coordinate with at most two decimals; 0 if it is not finite.
pub(crate) fn px(value: f64) -> f64 {
    let rounded = (value * 100.0).round() / 100.0 + 0.0;
    if rounded.is_finite() { rounded } else { 0.0 }
}

/// Upper estimate of a text's width at a font size, in a sans-serif font.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let width = |c: char| match c {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ' ' => 0.34,
        'f' | 'r' | 't' | 'I' | '(' | ')' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '→' | '…' => 0.95,
        c if c.is_uppercase() || !c.is_ascii() => 0.72,
        _ => 0.64,
    };
    size * text.chars().map(width).sum::<f64>()
}

/// The text, truncated with an ellipsis to `width`.
pub(crate) fn fit(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_string();
    }
    let mut out = String::new();
    for c in text.chars() {
        out.push(c);
        if text_width(&out, size) > width - size {
            break;
        }
    }
    out.push('…');
    out
}

#[cfg(test)]
mod tests;
