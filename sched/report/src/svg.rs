//! A timeline as a picture, after MorphGL's Fig. 3.

use morphgl_plan::Time;
use serde::{Deserialize, Serialize};

use crate::legend::{entries, legend, patterns};
use crate::markup::{escape, fit, put, px, text_width};
use crate::panel::{Frame, Panel};
use crate::rows::TimelineRows;
use crate::timeline::Timeline;

const STYLE: &str = include_str!("timeline.css");

/// Options of [`svg()`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SvgOptions {
    /// Width in pixels, 480 to 8192; 1200 by default. The height follows from the rows.
    pub width: u32,
    /// Seconds at which the window begins; by default 0.
    pub from: Option<f64>,
    /// Seconds at which the window ends; by default the timeline's end.
    /// With neither given, a timeline too long to read is drawn three times: whole, its first and its last mini-batches.
    pub to: Option<f64>,
    /// Title above the picture, if not empty.
    pub title: String,
    /// Prefix of the ids inside, for several pictures in one document; letters, digits, `-` and `_` are kept.
    pub id: String,
}

impl Default for SvgOptions {
    fn default() -> Self {
        Self { width: 1200, from: None, to: None, title: String::new(), id: "timeline".to_string() }
    }
}

/// Draws a timeline as a stand-alone SVG document that follows the viewer's light or dark setting.
///
/// # Complexity
/// O(n log n) time and O(n) space for n activities; its size is bounded by its width and its lanes.
pub fn svg(timeline: &Timeline, options: &SvgOptions) -> String {
    draw(timeline, &TimelineRows::new(timeline), options, true)
}

/// Draws the timeline. A stand-alone picture has background, margins, legend, patterns and style; a page has those once.
pub(crate) fn draw(timeline: &Timeline, rows: &TimelineRows, options: &SvgOptions, alone: bool) -> String {
    let width = f64::from(options.width.clamp(480, 8192));
    let margin = if alone { 20.0 } else { 0.0 };
    let id: String = options.id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').collect();
    let names = timeline.lanes.iter().map(|lane| text_width(&lane.name, 12.0));
    let names = names.fold(40.0, f64::max).min(width * 0.22);
    let left = margin + names + 10.0;
    let frame = Frame { names, left, right: width - margin - 50.0, row: row_height(timeline.lanes.len()) };

    let mut body = String::new();
    let mut y = margin;
    if !options.title.is_empty() {
        let title = fit(&options.title, 16.0, width - 2.0 * margin);
        put!(body, r#"<text class="title" x="{margin}" y="{}">{}</text>"#, y + 13.0, escape(&title));
        y += 30.0;
    }
    if alone {
        patterns(&mut body, &id, timeline.routes.len());
        let entries = entries(&id, timeline.kinds(), &timeline.routes);
        y += legend(&mut body, entries, timeline.is_simulated(), (margin, y), width - margin) + 10.0;
    }
    if rows.seconds > 0.0 {
        let caption = format!("All {}", Time(rows.seconds));
        let whole = Panel { timeline, rows, id: &id, caption, from: 0.0, to: rows.seconds, frame };
        for panel in windows(whole, options) {
            y += panel.draw(&mut body, y) + 14.0;
        }
    } else {
        put!(body, r#"<text x="{margin}" y="{}">No activity was recorded.</text>"#, px(y + 14.0));
        y += 24.0;
    }
    let height = (y + margin - 10.0).ceil();
    let label = escape(if options.title.is_empty() { "timeline" } else { &options.title });
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="tl" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">"#
    );
    if alone {
        put!(out, "<style>\n{STYLE}</style>");
        put!(out, r#"<rect class="ground" width="{width}" height="{height}"/>"#);
    }
    out.push_str(&body);
    out.push_str("</svg>");
    out
}

fn row_height(lanes: usize) -> f64 {
    match lanes {
        0..=8 => 26.0,
        9..=16 => 20.0,
        17..=32 => 16.0,
        _ => 13.0,
    }
}

/// The windows to draw: the requested one; else the whole timeline if it is legible; else the whole, its begin and its end.
fn windows<'a>(whole: Panel<'a>, options: &SvgOptions) -> Vec<Panel<'a>> {
    let end = whole.to;
    let part = |caption: String, from: f64, to: f64| Panel { caption, from, to, ..whole.clone() };
    if options.from.is_some() || options.to.is_some() {
        let (from, to) = (options.from.unwrap_or(0.0), options.to.unwrap_or(end));
        if from.is_finite() && to.is_finite() && (to - from) > end.max(from.abs()) * 1e-9 {
            return vec![part(format!("{} to {} of {}", Time(from), Time(to), Time(end)), from, to)];
        }
    }
    let lanes = &whole.rows.lanes;
    let blocks = lanes.iter().max_by_key(|lane| lane.len()).map_or(&[][..], Vec::as_slice);
    let width = whole.frame.right - whole.frame.left;
    // As many mini-batches of the busiest lane as fit with their numbers.
    let legible = (width / 24.0) as usize;
    if (blocks.len() as f64) < width / 9.0 || legible < 1 {
        return vec![whole];
    }
    let last = lanes.iter().flatten().map(|block| block.end).fold(0.0, f64::max);
    let span = blocks[legible - 1].end.max(last - blocks[blocks.len() - legible].start);
    if !(span > 0.0 && span < 0.45 * end) {
        return vec![whole];
    }
    let begin = part(format!("The first {}", Time(span)), 0.0, span);
    let finish = part(format!("The last {}", Time(span)), last - span, last);
    let row = (whole.frame.row * 0.6).max(13.0);
    vec![Panel { frame: Frame { row, ..whole.frame }, ..whole }, begin, finish]
}
