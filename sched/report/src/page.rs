//! The HTML page: one file that fetches nothing.

use serde_json::Value;

use crate::chart::{COLOURS, LineChart};
use crate::data::{embed, timeline};
use crate::legend::patterns;
use crate::markup::{escape, put};
use crate::report::Report;
use crate::rows::TimelineRows;
use crate::sections;
use crate::timeline::Timeline;

const STYLES: [&str; 3] = [include_str!("timeline.css"), include_str!("style.css"), COLOURS];
const SCRIPTS: [&str; 3] = [include_str!("model.js"), include_str!("timeline.js"), include_str!("charts.js")];

/// Renders a report as one self-contained HTML page, which is well-formed XML, too.
/// It follows the reader's choice of light or dark, fits narrow screens and paper, and shows all but zooming without scripts.
///
/// # Complexity
/// O(n log n) time for n activities; about 20 bytes per activity, up to some tens of thousands of each timeline,
/// of which the middle is then embedded as density.
pub fn html(report: &Report) -> String {
    let title = escape(if report.title.is_empty() { "MorphGL report" } else { &report.title });
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>");
    out.push_str(r#"<meta name="viewport" content="width=device-width, initial-scale=1"/>"#);
    out.push_str(r#"<meta name="color-scheme" content="light dark"/>"#);
    put!(out, "<title>{title}</title>");
    STYLES.iter().for_each(|style| put!(out, "<style>\n{style}</style>"));
    out.push_str("</head><body><main>");

    let timelines: Vec<(&str, &Timeline, TimelineRows)> =
        [("Predicted", &report.predicted), ("Measured", &report.measured)]
            .into_iter()
            .filter_map(|(name, t)| t.as_ref().map(|t| (name, t, TimelineRows::new(t))))
            .collect();
    let routes = timelines.iter().map(|t| t.1.routes.len()).max().unwrap_or(0);
    out.push_str(r#"<svg class="tl defs" width="0" height="0" aria-hidden="true">"#);
    patterns(&mut out, "page", routes);
    out.push_str("</svg>");

    let columns = |sections: &[String]| format!(r#"<div class="columns">{}</div>"#, sections.concat());
    let sections = [
        sections::header(report, &title),
        sections::tiles(report),
        sections::timelines(&timelines),
        columns(&[sections::utilisation(report), sections::epoch_seconds(report), sections::curves(report)]),
        sections::tables(report),
        columns(&sections::resources(report)),
        sections::notes(report, &timelines),
        sections::folded(report),
    ];
    put!(out, "{}</main>", sections.concat());

    let data: Vec<Value> = timelines.iter().map(|(name, t, rows)| timeline(name, t, rows)).collect();
    put!(out, r#"<script type="application/json" id="timelines">{}</script>"#, embed(&Value::Array(data)));
    put!(out, "<script>//<![CDATA[\n{}//]]></script>", SCRIPTS.concat());
    out.push_str("</body></html>\n");
    out
}

/// A page of [`html`] with another [`Report::hit_rates`]; `None` if `page` is none.
pub fn with_hit_rates(page: &str, chart: &LineChart) -> Option<String> {
    // Texts of a report are escaped, so that nothing else in a page is a comment.
    let [begin, end] = sections::HIT_RATES;
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{}{after}", sections::hit_rates(Some(chart))))
}
