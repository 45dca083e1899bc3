//! Legends: the colours and patterns of a timeline.

use crate::markup::{escape, fit, put, px, text_width};
use crate::timeline::Work;

/// The patterns of the routes after the first, drawn over the phases' colours. Ids begin with `id`.
pub(crate) fn patterns(out: &mut String, id: &str, routes: usize) {
    const DRAWINGS: [&str; 3] = [
        r#"<path class="hatch" d="M-2 2L2 -2M0 8L8 0M6 10L10 6"/>"#,
        r#"<circle class="dot" cx="2" cy="2" r="1.1"/><circle class="dot" cx="6" cy="6" r="1.1"/>"#,
        r#"<path class="hatch" d="M2 0V8M6 0V8"/>"#,
    ];
    if routes < 2 {
        return;
    }
    out.push_str("<defs>");
    for (route, drawing) in (1..routes).zip(DRAWINGS) {
        put!(
            out,
            r#"<pattern id="{id}-{route}" width="8" height="8" patternUnits="userSpaceOnUse">{drawing}</pattern>"#
        );
    }
    out.push_str("</defs>");
}

/// The fill attribute of a route's pattern; none for route 0.
pub(crate) fn pattern(id: &str, route: usize, routes: usize) -> Option<String> {
    let pattern = pattern_of(route, routes);
    (pattern > 0).then(|| format!(r#"fill="url(#{id}-{pattern})""#))
}

/// A legend's swatch of a class, and of a route's pattern over it.
pub(crate) fn swatch(class: &str, pattern: Option<&str>, x: f64, y: f64) -> String {
    let (x, y) = (px(x), px(y));
    let place = format!(r#"x="{x}" y="{y}" width="12" height="12" rx="2"/>"#);
    let mut out = format!(r#"<rect class="{class}" {place}"#);
    if let Some(fill) = pattern {
        put!(out, "<rect {fill} {place}");
    }
    out
}

/// The pattern of a route; patterns repeat from the fifth route on.
pub(crate) fn pattern_of(route: usize, routes: usize) -> usize {
    if routes < 2 { 0 } else { route % routes.min(4) }
}

/// An entry of a legend: the class and the pattern of its swatch, and its label.
pub(crate) type Entry = (String, Option<String>, String);

/// The legend of a timeline: kinds of work, routes where there are several, idle time.
pub(crate) fn entries(id: &str, kinds: &[Work], routes: &[String]) -> Vec<Entry> {
    let kind = |work: &Work| (work.letter().to_string(), None, format!("{work} ({})", work.letter()));
    let route = |(r, name): (usize, &String)| ("N".into(), pattern(id, r, routes.len()), format!("route {r}: {name}"));
    let named = if routes.len() > 1 { routes } else { &[] };
    let idle = ("track idle".into(), None, "idle".into());
    kinds.iter().map(kind).chain(named.iter().enumerate().map(route)).chain([idle]).collect()
}

/// Draws the legend from `(x, y)` on, wrapped at `right`, and returns its height.
pub(crate) fn legend(
    out: &mut String,
    entries: Vec<Entry>,
    simulated: bool,
    (left, top): (f64, f64),
    right: f64,
) -> f64 {
    let (mut x, mut y) = (left, top);
    let mut place = |width: f64| {
        if x > left && x + width > right {
            (x, y) = (left, y + 18.0);
        }
        let at = (x, y);
        x += width + 18.0;
        at
    };
    for (class, pattern, label) in entries {
        let label = fit(&label, 12.0, right - left - 20.0);
        let (x, y) = place(18.0 + text_width(&label, 12.0));
        out.push_str(&swatch(&class, pattern.as_deref(), x, y));
        put!(out, r#"<text x="{}" y="{}">{}</text>"#, px(x + 18.0), px(y + 10.0), escape(&label));
    }
    if simulated {
        let label = "italic rows: simulated hardware";
        let (x, y) = place(text_width(label, 11.0));
        put!(out, r#"<text class="simulated" x="{}" y="{}">{label}</text>"#, px(x), px(y + 10.0));
    }
    y - top + 18.0
}
