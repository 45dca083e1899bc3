//! Line charts with axes, ticks, legend and, where scripts run, values under the pointer.

use morphgl_plan::Time;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::markup::{escape, put, px, text_width};
use crate::number::{Ticks, percent, percent_ticks, plain, ticks, time_ticks, whole_ticks};

/// The unit of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Scale {
    /// Plain numbers.
    #[default]
    Plain,
    /// Seconds.
    Seconds,
    /// Fractions from 0 to 1, shown as percentages.
    Percent,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its style: a class of the page's style sheet such as `measured`, `predicted`, `bound`, `first`, `second`.
    pub style: String,
    /// Its points by x. The line has a gap where y is not finite or at least 10^15.
    pub points: Vec<(f64, f64)>,
}

/// A chart over whole numbers such as epochs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LineChart {
    /// Its heading.
    pub title: String,
    /// Name of the horizontal axis.
    pub x_name: String,
    /// Unit of the vertical axis.
    pub scale: Scale,
    /// Whether the vertical axis begins at 0.
    pub from_zero: bool,
    /// The lines.
    pub series: Vec<Series>,
    /// Events, by x.
    pub events: Vec<(f64, String)>,
}

/// The style of a stand-alone chart.
const STYLE: &str = include_str!("chart.css");
/// The styles `c0` to `c11` of lines without one of their own.
pub(crate) const COLOURS: &str = include_str!("colours.css");
const NUM_COLOURS: usize = 12;

const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 236.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 40.0;
const RIGHT: f64 = WIDTH - 14.0;
/// Maximum points of a line; longer lines are reduced to the minimum and maximum of each stretch.
const POINTS: usize = 800;

/// Draws the chart as an HTML figure; an empty string if no line has a point.
pub fn line_chart(chart: &LineChart) -> String {
    let series: Vec<Series> = chart.series.iter().filter_map(thin).collect();
    let Some(Plot { svg, hover, has_events }) = plot(chart, &series) else { return String::new() };
    let title = escape(&chart.title);
    let keys = keys(&series, has_events);
    format!(
        r#"<figure class="chart"><figcaption><h3>{title}</h3>{keys}</figcaption><svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}" data-hover="{}" data-top="{TOP}" data-bottom="{BOTTOM}">{svg}</svg></figure>"#,
        escape(&hover)
    )
}

/// Draws the chart as a stand-alone SVG document with a legend, that follows the viewer's light or dark setting; an empty string
/// if no line has a point. Each line gets a colour of its own, up to twelve; the styles of the series are not read.
pub fn line_chart_svg(chart: &LineChart) -> String {
    let unstyled = chart.series.iter().filter_map(thin).map(|line| Series { style: String::new(), ..line }).collect();
    let LineChart { series, .. } = coloured(&LineChart { series: unstyled, ..chart.clone() });
    let Some(Plot { svg, .. }) = plot(chart, &series) else { return String::new() };
    let heading = wrapped(&chart.title, 13.5, WIDTH - 28.0);
    let (title, top) = (escape(&chart.title), 18.0 + 16.0 * heading.len() as f64);
    let legend = top + HEIGHT + 16.0;
    let (column, mut keys) = (WIDTH / 2.0, String::new());
    for (i, line) in series.iter().enumerate() {
        let (x, y) = (14.0 + column * (i % 2) as f64, legend + 18.0 * (i / 2) as f64);
        let (style, name) = (&line.style, escape(&line.name));
        put!(
            keys,
            r#"<path class="line {style}" d="M{} {}h22"/><text x="{}" y="{}">{name}</text>"#,
            px(x),
            px(y - 4.0),
            px(x + 30.0),
            px(y)
        );
    }
    let lines = (0..)
        .zip(&heading)
        .map(|(i, text)| format!(r#"<text class="title" x="14" y="{}">{}</text>"#, 22 + 16 * i, escape(text)));
    let lines: String = lines.collect();
    let height = legend + 18.0 * series.len().div_ceil(2) as f64;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" class="plot" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}"><style>
{STYLE}{COLOURS}</style><rect class="ground" width="{WIDTH}" height="{height}"/>{lines}<g transform="translate(0 {top})">{svg}</g>{keys}</svg>
"#
    )
}

/// A text in lines of at most `width` at a font size, divided at blanks.
fn wrapped(text: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} {word}"), size) <= width => *line += &format!(" {word}"),
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

/// The chart with a colour of its own for each line without a style, up to twelve.
pub(crate) fn coloured(chart: &LineChart) -> LineChart {
    let coloured = |(i, line): (usize, &Series)| {
        let style = if line.style.is_empty() { format!("c{}", i % NUM_COLOURS) } else { line.style.clone() };
        Series { style, ..line.clone() }
    };
    LineChart { series: chart.series.iter().enumerate().map(coloured).collect(), ..chart.clone() }
}

/// A drawn chart, without legend.
struct Plot {
    svg: String,
    /// Data for the script's tooltip.
    hover: String,
    has_events: bool,
}

/// Draws axes and lines; `None` without a line.
fn plot(chart: &LineChart, series: &[Series]) -> Option<Plot> {
    if series.is_empty() {
        return None;
    }
    let finite = || series.iter().flat_map(|s| &s.points).filter(|p| p.1.is_finite());
    let (x0, x1) = range(finite().map(|p| p.0));
    let (mut y0, mut y1) = range(finite().map(|p| p.1).chain(chart.from_zero.then_some(0.0)));
    // A flat line gets a margin.
    if y1 - y0 <= y1.abs().max(y0.abs()) * 1e-9 {
        let margin = if y1 == 0.0 { 1.0 } else { y1.abs() * 0.1 };
        (y0, y1) = (if chart.from_zero { y0 } else { y0 - margin }, y1 + margin);
    }
    let ticks = match chart.scale {
        Scale::Plain => ticks,
        Scale::Seconds => time_ticks,
        Scale::Percent => percent_ticks,
    };
    // A wider range may have wider steps; a few rounds reach a fixed point.
    for _ in 0..4 {
        (y0, y1) = widen(&ticks(y0, y1, 5), y0, y1, chart.scale);
    }
    let y_ticks = ticks(y0, y1, 5);
    let left = 14.0 + y_ticks.iter().map(|t| text_width(&t.1, 12.0)).fold(16.0, f64::max);
    let x_at = |x: f64| if x1 > x0 { left + (x - x0) / (x1 - x0) * (RIGHT - left) } else { (left + RIGHT) / 2.0 };
    let y_at = |y: f64| BOTTOM - (y - y0) / (y1 - y0) * (BOTTOM - TOP);

    let mut svg = String::new();
    for (value, label) in &y_ticks {
        let y = px(y_at(*value));
        put!(svg, r#"<path class="grid" d="M{} {y}H{}"/>"#, px(left), px(RIGHT));
        put!(svg, r#"<text class="end" x="{}" y="{}">{label}</text>"#, px(left - 7.0), px(y + 4.0));
    }
    for (value, label) in whole_ticks(x0, x1, 8) {
        put!(svg, r#"<text class="mid" x="{}" y="{}">{label}</text>"#, px(x_at(value)), px(BOTTOM + 18.0));
    }
    put!(svg, r#"<path class="base" d="M{} {}H{}"/>"#, px(left), px(BOTTOM), px(RIGHT));
    let middle = px((left + RIGHT) / 2.0);
    put!(svg, r#"<text class="mid quiet" x="{middle}" y="{}">{}</text>"#, px(HEIGHT - 5.0), escape(&chart.x_name));
    let events: Vec<_> = chart.events.iter().filter(|e| e.0 >= x0 && e.0 <= x1).collect();
    for (x, label) in &events {
        let at = px(x_at(*x));
        put!(svg, r#"<path class="event" d="M{at} {TOP}V{BOTTOM}"><title>{}</title></path>"#, escape(label));
    }
    for line in series {
        draw(&mut svg, line, x_at, y_at);
    }
    let hover = hover(chart, series, x_at, y_at).to_string();
    Some(Plot { svg, hover, has_events: !events.is_empty() })
}

fn keys(series: &[Series], events: bool) -> String {
    let mut out = String::from(r#"<ul class="keys">"#);
    for line in series {
        let (style, name) = (escape(&line.style), escape(&line.name));
        put!(
            out,
            r#"<li><svg class="plot" width="22" height="10"><path class="line {style}" d="M1 5H21"/></svg>{name}</li>"#
        );
    }
    if events {
        out.push_str(
            r#"<li><svg class="plot" width="10" height="12"><path class="event" d="M5 0V12"/></svg>event</li>"#,
        );
    }
    out.push_str("</ul>");
    out
}

fn draw(svg: &mut String, line: &Series, x_at: impl Fn(f64) -> f64, y_at: impl Fn(f64) -> f64) {
    let style = escape(&line.style);
    let mut path = String::new();
    let mut gap = true;
    for (x, y) in &line.points {
        if y.is_finite() {
            put!(path, "{}{} {}", if gap { 'M' } else { 'L' }, px(x_at(*x)), px(y_at(*y)));
        }
        gap = !y.is_finite();
    }
    put!(svg, r#"<path class="line {style}" d="{path}"/>"#);
    // Isolated points, or all points of a short line.
    let few = line.points.len() <= 40;
    let has_point = |i: usize| line.points.get(i).is_some_and(|p| p.1.is_finite());
    let is_alone = |i: usize| !has_point(i.wrapping_sub(1)) && !has_point(i + 1);
    for (_, (x, y)) in line.points.iter().enumerate().filter(|(i, _)| has_point(*i) && (few || is_alone(*i))) {
        put!(svg, r#"<circle class="point {style}" cx="{}" cy="{}" r="2.6"/>"#, px(x_at(*x)), px(y_at(*y)));
    }
}

/// Data for the script's tooltip: every x with its position and name, and each line's position and value.
fn hover(
    chart: &LineChart,
    series: &[Series],
    x_at: impl Fn(f64) -> f64,
    y_at: impl Fn(f64) -> f64,
) -> serde_json::Value {
    let value = |y: f64| match chart.scale {
        Scale::Plain => plain(y),
        Scale::Seconds => Time(y).to_string(),
        Scale::Percent => percent(y, 2),
    };
    let lines = series.iter().map(|line| {
        let points = line.points.iter().filter(|p| p.1.is_finite());
        let points: Vec<_> = points.map(|p| json!([p.0, px(x_at(p.0)), px(y_at(p.1)), value(p.1)])).collect();
        json!({ "name": line.name, "style": line.style, "points": points })
    });
    json!({ "x": chart.x_name, "lines": lines.collect::<Vec<_>>(), "events": chart.events.iter().filter(|e| e.0.is_finite()).collect::<Vec<_>>() })
}

/// The line reduced to at most [`POINTS`] drawable points; `None` if there is none.
fn thin(series: &Series) -> Option<Series> {
    // Values too large for an axis count as missing.
    let drawable = |v: f64| v.is_finite() && v.abs() < 1e15;
    let points = series.points.iter().filter(|p| drawable(p.0));
    let points: Vec<(f64, f64)> = points.map(|p| (p.0, if drawable(p.1) { p.1 } else { f64::NAN })).collect();
    if !points.iter().any(|p| p.1.is_finite()) {
        return None;
    }
    if points.len() <= POINTS {
        return Some(Series { points, ..series.clone() });
    }
    let stretch = points.len().div_ceil(POINTS / 2);
    let extremes = |part: &[(f64, f64)]| {
        let finite = || part.iter().enumerate().filter(|(_, p)| p.1.is_finite());
        let min = finite().min_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let max = finite().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let mut both: Vec<_> = min.into_iter().chain(max).collect();
        both.sort_by_key(|(i, _)| *i);
        both.dedup_by_key(|(i, _)| *i);
        both.into_iter().map(|(_, p)| *p).collect::<Vec<_>>()
    };
    Some(Series { points: points.chunks(stretch).flat_map(extremes).collect(), ..series.clone() })
}

/// Minimum and maximum.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// The range extended to the next ticks; shares stay within 0 and 1.
fn widen(ticks: &Ticks, low: f64, high: f64, scale: Scale) -> (f64, f64) {
    let [first, second, ..] = &ticks[..] else { return (low, high) };
    let step = second.0 - first.0;
    let (mut from, mut to) = ((low / step + 1e-6).floor() * step, (high / step - 1e-6).ceil() * step);
    if scale == Scale::Percent && low >= 0.0 && high <= 1.0 {
        (from, to) = (from.max(0.0), to.min(1.0));
    }
    if from < to { (from, to) } else { (low, high) }
}
