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

/// Pairs of bars: predicted and measured.
pub(crate) fn pairs(rows: &[(String, Option<f64>, Option<f64>)]) -> String {
    let mut out = String::from(r#"<div class="pairs">"#);
    for (name, predicted, measured) in rows {
        put!(out, r#"<div class="name">{name}</div><div class="both">"#);
        for (style, share) in [("predicted", predicted), ("measured", measured)] {
            if let Some(share) = share.filter(|s| s.is_finite()) {
                out.push_str(&bar(style, share, &percent(share, 0)));
            }
        }
        out.push_str("</div>");
    }
    out.push_str("</div>");
    out
}

/// The legend of [`pairs`], of the kinds that occur.
pub(crate) fn pair_keys(predicted: bool, measured: bool) -> String {
    let mut out = String::from(r#"<ul class="keys">"#);
    for (style, there) in [("predicted", predicted), ("measured", measured)] {
        if there {
            put!(out, r#"<li><span class="swatch fill {style}"></span>{style}</li>"#);
        }
    }
    out.push_str("</ul>");
    out
}
