//! What the colours and patterns of a timeline mean.

use crate::markup::{escape, fit, put, px, text_width};
use crate::timeline::Phase;

/// The patterns of the routes after the first, for the phases' colours. Ids begin with `id`.
pub(crate) fn patterns(out: &mut String, id: &str, routes: usize) {
    if routes < 2 {
        return;
    }
    out.push_str("<defs>");
    for phase in Phase::ALL.map(Phase::letter) {
        for route in 1..routes.min(4) {
            let drawing = match route {
                1 => r#"<path class="hatch" d="M-2 2L2 -2M0 8L8 0M6 10L10 6"/>"#,
                2 => r#"<circle class="dot" cx="2" cy="2" r="1.1"/><circle class="dot" cx="6" cy="6" r="1.1"/>"#,
                _ => r#"<path class="hatch" d="M2 0V8M6 0V8"/>"#,
            };
            put!(
                out,
                r#"<pattern id="{id}-{phase}{route}" width="8" height="8" patternUnits="userSpaceOnUse"><rect class="{phase}" width="8" height="8"/>{drawing}</pattern>"#
            );
        }
    }
    out.push_str("</defs>");
}

/// The attribute that fills a block: a class for route 0, a pattern for the others.
pub(crate) fn fill(id: &str, phase: Phase, route: usize, routes: usize) -> String {
    let letter = phase.letter();
    match pattern_of(route, routes) {
        0 => format!(r#"class="k {letter}""#),
        pattern => format!(r#"class="k" fill="url(#{id}-{letter}{pattern})""#),
    }
}

fn pattern_of(route: usize, routes: usize) -> usize {
    if routes < 2 { 0 } else { route % routes.min(4) }
}

/// Draws the legend from `(x, y)` on, wrapped at `right`, and returns its height.
pub(crate) fn legend(
    out: &mut String,
    id: &str,
    routes: &[String],
    simulated: bool,
    at: (f64, f64),
    right: f64,
) -> f64 {
    let (left, top) = at;
    let mut items: Vec<(String, String)> =
        Phase::ALL.map(|p| (format!(r#"class="{}""#, p.letter()), format!("{p} ({})", p.letter()))).into();
    if routes.len() > 1 {
        items.extend(routes.iter().enumerate().map(|(r, name)| {
            (fill(id, Phase::Batching, r, routes.len()).replace("class=\"k", "class=\""), format!("route {r}: {name}"))
        }));
    }
    items.push((r#"class="track""#.to_string(), "idle".to_string()));
    let (mut x, mut y) = (left, top);
    let mut place = |width: f64| {
        if x > left && x + width > right {
            (x, y) = (left, y + 18.0);
        }
        let at = (x, y);
        x += width + 18.0;
        at
    };
    for (attributes, label) in items {
        let label = fit(&label, 12.0, right - left - 20.0);
        let (x, y) = place(18.0 + text_width(&label, 12.0));
        put!(
            out,
            r#"<rect {attributes} x="{}" y="{}" width="12" height="12" rx="2"/><text x="{}" y="{}">{}</text>"#,
            px(x),
            px(y),
            px(x + 18.0),
            px(y + 10.0),
            escape(&label)
        );
    }
    if simulated {
        let label = "italic rows: simulated hardware";
        let (x, y) = place(text_width(label, 11.0));
        put!(out, r#"<text class="simulated" x="{}" y="{}">{label}</text>"#, px(x), px(y + 10.0));
    }
    y - top + 18.0
}
