//! Bars made of HTML boxes, which fit any width.

use crate::markup::{escape, put};
use crate::number::percent;

/// A share as the width of a box, in percent.
pub(crate) fn width(share: f64) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    format!("{:.1}%", 100.0 * share)
}

/// `name` with a label beside it if it is simulated; safe to embed.
pub(crate) fn labelled(name: &str, simulated: bool) -> String {
    let name = escape(name);
    if simulated { format!(r#"{name} <span class="badge simulated">simulated</span>"#) } else { name }
}

/// A bar of a share with its text to the right.
pub(crate) fn bar(style: &str, share: f64, text: &str) -> String {
    let (width, text) = (width(share), escape(text));
    format!(
        r#"<div class="bar"><span class="rail"><span class="fill {style}" style="width:{width}"></span></span><span class="value">{text}</span></div>"#
    )
}

/// Rows of a name, safe to embed, and its bars.
pub(crate) fn rows(rows: impl IntoIterator<Item = (String, String)>) -> String {
    let mut out = String::from(r#"<div class="pairs">"#);
    for (name, bars) in rows {
        put!(out, r#"<div class="name">{name}</div><div class="both">{bars}</div>"#);
    }
    out + "</div>"
}

/// Pairs of bars with their legend, of names that are safe to embed with their predicted and measured share; empty without any.
pub(crate) fn pairs(pairs: &[(String, [Option<f64>; 2])]) -> String {
    const STYLES: [&str; 2] = ["predicted", "measured"];
    if pairs.is_empty() {
        return String::new();
    }
    let mut out = String::from(r#"<ul class="keys">"#);
    for (i, style) in STYLES.iter().enumerate() {
        if pairs.iter().any(|p| p.1[i].is_some()) {
            put!(out, r#"<li><span class="swatch fill {style}"></span>{style}</li>"#);
        }
    }
    let bars = |shares: &[Option<f64>; 2]| -> String {
        let shares = STYLES.iter().zip(shares).filter_map(|(style, share)| Some((style, (*share)?)));
        shares.filter(|s| s.1.is_finite()).map(|(style, share)| bar(style, share, &percent(share, 0))).collect()
    };
    out + "</ul>" + &rows(pairs.iter().map(|(name, shares)| (name.clone(), bars(shares))))
}
