//! The sections of the page; each is an empty string if the report has no data for it.

use morphgl_plan::Time;

use crate::bars::{bar, labelled, pair_keys, pairs};
use crate::chart::{LineChart, Scale, Series, line_chart};
use crate::data::MOST;
use crate::legend::{pattern, swatch};
use crate::markup::{escape, put};
use crate::number::{bytes, count, percent, ratio};
use crate::report::{Epoch, Report};
use crate::rows::Rows;
use crate::svg::{SvgOptions, draw};
use crate::table;
use crate::timeline::{Timeline, letter};
use morphgl_plan::Phase;

/// A section of the page; an empty string without a body.
pub(crate) fn section(class: &str, heading: &str, below: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    let below = if below.is_empty() { String::new() } else { format!(r#"<p class="quiet">{}</p>"#, escape(below)) };
    format!(r#"<section class="card {class}"><h2>{}</h2>{below}{body}</section>"#, escape(heading))
}

pub(crate) fn header(report: &Report, title: &str) -> String {
    let mut out = format!("<header><h1>{title}");
    if report.is_simulated() {
        out.push_str(r#" <span class="badge simulated">simulated hardware</span>"#);
    }
    out.push_str("</h1>");
    for (class, text) in [("lead", &report.summary), ("plan", &report.plan)] {
        if !text.is_empty() {
            put!(out, r#"<p class="{class}">{}</p>"#, escape(text));
        }
    }
    if !report.command.is_empty() {
        put!(out, r#"<p class="command"><code>{}</code></p>"#, escape(&report.command));
    }
    if !report.created.is_empty() {
        put!(out, r#"<p class="quiet">{}</p>"#, escape(&report.created));
    }
    out + "</header>"
}

/// The key numbers.
pub(crate) fn tiles(report: &Report) -> String {
    let finite = |value: Option<f64>| value.filter(|v| v.is_finite());
    let (measured, predicted, bound) =
        (report.epoch_seconds(), finite(report.predicted_seconds), finite(report.bound_seconds));
    let mut out = String::new();
    let mut tile = |name: &str, value: String, below: String| {
        let (value, below) = (escape(&value), escape(&below));
        put!(out, r#"<div class="tile"><dt>{name}</dt><dd>{value}<span class="below">{below}</span></dd></div>"#);
    };
    if let Some(measured) = measured {
        let against = predicted.filter(|p| *p > 0.0).map(|p| {
            let off = measured / p - 1.0;
            format!("{} {} prediction", percent(off.abs(), 1), if off < 0.0 { "under" } else { "over" })
        });
        tile("Epoch, measured", Time(measured).to_string(), against.unwrap_or_default());
    }
    if let Some(predicted) = predicted {
        tile("Epoch, predicted", Time(predicted).to_string(), "by the simulator".into());
    }
    if let Some(bound) = bound {
        tile("Lower bound", Time(bound).to_string(), "no plan is faster".into());
    }
    if let (Some(time), Some(bound)) = (predicted.or(measured), bound.filter(|b| *b > 0.0)) {
        let also = measured.filter(|_| predicted.is_some()).map(|m| format!("measured {}", ratio(m / bound)));
        tile("Ratio to the bound", ratio(time / bound), also.unwrap_or_default());
    }
    if let Some(bottleneck) = report.bottleneck.as_ref().filter(|b| !b.is_empty()) {
        let busy = report.utilisation.iter().find(|u| u.resource == *bottleneck);
        let busy = busy.and_then(|u| finite(u.measured).or(finite(u.predicted)));
        let mut below: Vec<String> = busy.map(|b| format!("{} busy", percent(b, 0))).into_iter().collect();
        below.extend(report.simulated_resources().contains(&bottleneck.as_str()).then(|| "simulated".to_string()));
        tile("Bottleneck", bottleneck.clone(), below.join(", "));
    }
    let valid = report.valid_accuracy();
    if let Some(test) = finite(report.test_accuracy) {
        tile(
            "Test accuracy",
            percent(test, 2),
            valid.map(|v| format!("validation {}", percent(v, 2))).unwrap_or_default(),
        );
    } else if let Some(valid) = valid {
        tile("Validation accuracy", percent(valid, 2), "best of all epochs".into());
    }
    if out.is_empty() { out } else { format!(r#"<dl class="tiles">{out}</dl>"#) }
}

pub(crate) fn timelines(all: &[(&str, &Timeline, Rows)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut routes: &[String] = &[];
    for (_, timeline, _) in all {
        if timeline.routes.len() > routes.len() {
            routes = &timeline.routes;
        }
    }
    let mut body = String::from(r#"<ul class="keys">"#);
    let mut key = |class: &str, pattern: Option<String>, name: &str| {
        let swatch = swatch(class, pattern.as_deref(), 0.5, 0.5);
        put!(body, r#"<li><svg class="tl" width="13" height="13">{swatch}</svg>{}</li>"#, escape(name));
    };
    for phase in Phase::ALL {
        key(&letter(phase).to_string(), None, &format!("{phase} ({})", letter(phase)));
    }
    if routes.len() > 1 {
        for (i, route) in routes.iter().enumerate() {
            key("N", pattern("page", i, routes.len()), &format!("route {i}: {route}"));
        }
    }
    key("track idle", None, "idle");
    body.push_str("</ul>");
    for (i, (name, timeline, rows)) in all.iter().enumerate() {
        let simulated = timeline.lanes.iter().any(|l| l.simulated);
        let mut facts =
            vec![Time(rows.seconds).to_string(), format!("{} activities", count(timeline.activities.len() as u64))];
        if timeline.activities.len() > MOST {
            facts.push("the middle as density".to_string());
        }
        if simulated {
            facts.push("rows in italics are simulated hardware".to_string());
        }
        let options = SvgOptions { width: 1100, id: "page".to_string(), ..SvgOptions::default() };
        put!(
            body,
            r#"<figure class="timeline" data-index="{i}"><figcaption><h3>{name}</h3><span class="quiet">{}</span></figcaption><div class="still scroll">{}</div></figure>"#,
            facts.join(" · "),
            draw(timeline, rows, &options, false)
        );
    }
    section("timelines", "Timeline", "", &body)
}

pub(crate) fn utilisation(report: &Report) -> String {
    let rows: Vec<_> = report
        .utilisation
        .iter()
        .map(|u| (labelled(&u.resource, u.simulated), u.predicted, u.measured))
        .filter(|u| u.1.or(u.2).is_some())
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let keys = pair_keys(rows.iter().any(|r| r.1.is_some()), rows.iter().any(|r| r.2.is_some()));
    section("", "Utilisation", "Share of an epoch each resource is busy.", &(keys + &pairs(&rows)))
}

fn line(name: &str, style: &str, epochs: &[Epoch], value: impl Fn(&Epoch) -> Option<f64>) -> Series {
    // An epoch without a value is no gap: accuracy may be known of every other epoch.
    let points = epochs.iter().filter_map(|e| Some((f64::from(e.epoch), value(e)?))).collect();
    Series { name: name.to_string(), style: style.to_string(), points }
}

fn events(epochs: &[Epoch]) -> Vec<(f64, String)> {
    let happened = epochs.iter().filter(|e| !e.event.is_empty());
    happened.map(|e| (f64::from(e.epoch), e.event.clone())).collect()
}

/// Predicted against measured: a chart of three epochs or more, bars of fewer.
pub(crate) fn epoch_seconds(report: &Report) -> String {
    let heading = "Predicted and measured epochs";
    let timed = report.epochs.iter().filter(|e| e.seconds.is_some_and(f64::is_finite)).count();
    if timed < 3 {
        let all = [
            ("Measured", "measured", report.epoch_seconds()),
            ("Predicted", "predicted", report.predicted_seconds),
            ("Lower bound", "bound", report.bound_seconds),
        ];
        let there: Vec<_> =
            all.into_iter().filter_map(|(n, s, v)| Some((n, s, v.filter(|v| v.is_finite())?))).collect();
        if there.len() < 2 {
            return String::new();
        }
        let most = there.iter().map(|t| t.2).fold(f64::MIN_POSITIVE, f64::max);
        let mut body = String::from(r#"<div class="pairs">"#);
        for (name, style, value) in there {
            put!(
                body,
                r#"<div class="name">{name}</div><div class="both">{}</div>"#,
                bar(style, value / most, &Time(value).to_string())
            );
        }
        return section("", heading, "Seconds of an epoch.", &(body + "</div>"));
    }
    let predicted = |e: &Epoch| e.predicted_seconds.or(report.predicted_seconds);
    let mut series = vec![
        line("predicted", "predicted", &report.epochs, predicted),
        line("measured", "measured", &report.epochs, |e| e.seconds),
    ];
    if report.bound_seconds.is_some() {
        series.insert(0, line("lower bound", "bound", &report.epochs, |_| report.bound_seconds));
    }
    let chart = LineChart {
        title: "Seconds of an epoch".into(),
        x_name: "epoch".into(),
        scale: Scale::Seconds,
        from_zero: true,
        series,
        events: events(&report.epochs),
    };
    section("", heading, "", &line_chart(&chart))
}

/// Loss and accuracy, where there are at least two epochs of them.
pub(crate) fn curves(report: &Report) -> String {
    let epochs = &report.epochs;
    let chart = |title: &str, scale, series: [Series; 2]| {
        let longest = series.iter().map(|s| s.points.iter().filter(|p| p.1.is_finite()).count()).max();
        if longest < Some(2) {
            return String::new();
        }
        let (title, x_name) = (title.to_string(), "epoch".to_string());
        let chart = LineChart { title, x_name, scale, from_zero: false, series: series.into(), events: events(epochs) };
        line_chart(&chart)
    };
    let loss = [line("training", "first", epochs, |e| e.loss), line("validation", "second", epochs, |e| e.valid_loss)];
    let accuracy = [
        line("training", "first", epochs, |e| e.train_accuracy),
        line("validation", "second", epochs, |e| e.valid_accuracy),
    ];
    let mut out = String::new();
    let charts = [
        ("Loss", "Mean cross-entropy", Scale::Plain, loss),
        ("Accuracy", "Share of nodes right", Scale::Percent, accuracy),
    ];
    for (heading, title, scale, series) in charts {
        out.push_str(&section("", heading, "", &chart(title, scale, series)));
    }
    out
}

pub(crate) fn baselines(report: &Report) -> String {
    let below = "Every plan considered, as the simulator predicts it. The darker part of a bar is the lower bound.";
    section("", "Plans", &(below.to_string() + &simulated(report)), &table::baselines(&report.baselines))
}

pub(crate) fn what_if(report: &Report) -> String {
    let below = "The best plan of a machine that differs in one thing or a few.".to_string() + &simulated(report);
    section("", "What if", &below, &table::what_if(&report.what_if))
}

/// A sentence that names the simulated resources, if there are any.
fn simulated(report: &Report) -> String {
    let names = report.simulated_resources();
    if names.is_empty() { String::new() } else { format!(" Simulated: {}.", names.join(", ")) }
}

pub(crate) fn operators(report: &Report) -> String {
    section("", "Operators", "Seconds for one mini-batch.", &table::operators(&report.operators))
}

pub(crate) fn memory(report: &Report) -> String {
    let places: String = report.memory.iter().map(table::memory).collect();
    section("memory", "Memory", "", &places)
}

pub(crate) fn caches(report: &Report) -> String {
    if report.caches.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = report
        .caches
        .iter()
        .map(|c| {
            let simulated = report.memory.iter().any(|m| m.simulated && m.place == c.place);
            let place = match c.place.as_str() {
                "" => String::new(),
                place => format!(" on {}{}", escape(place), if simulated { " (simulated)" } else { "" }),
            };
            let size = c.bytes.map(bytes).unwrap_or_default();
            let name = format!(r#"{}<div class="below">{size}{place}</div>"#, escape(&c.name));
            (name, c.predicted_hits, c.measured_hits)
        })
        .collect();
    let keys = pair_keys(rows.iter().any(|r| r.1.is_some()), rows.iter().any(|r| r.2.is_some()));
    section("", "Caches", "Share of accesses they catch.", &(keys + &pairs(&rows)))
}

/// What operators counted: bytes over links and from disk, cache requests and hits, and counters of operators' own.
pub(crate) fn counters(report: &Report) -> String {
    if report.counters.is_empty() {
        return String::new();
    }
    section("", "Counters", "Sums over all mini-batches.", &table::counters(&report.counters))
}

pub(crate) fn notes(report: &Report, timelines: &[(&str, &Timeline, Rows)]) -> String {
    let mut notes = report.notes.clone();
    for (name, _, rows) in timelines.iter().filter(|t| t.2.left_out > 0) {
        let (name, left_out) = (name.to_lowercase(), count(rows.left_out as u64));
        notes.push(format!("The {name} timeline lacks {left_out} activities whose times or lanes make no sense."));
    }
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|n| format!("<li>{}</li>", escape(n))).collect();
    section("", "Notes", "", &format!(r#"<ul class="notes">{items}</ul>"#))
}

/// What only some readers want: every epoch, the machine, the configuration.
pub(crate) fn folded(report: &Report) -> String {
    let pairs = |pairs: &[(String, String)]| {
        let items = pairs.iter().map(|(n, v)| format!("<dt>{}</dt><dd>{}</dd>", escape(n), escape(v)));
        format!(r#"<dl class="settings">{}</dl>"#, items.collect::<String>())
    };
    let mut out = String::new();
    let mut fold =
        |heading: &str, body: String| put!(out, "<details class=\"card\"><summary>{heading}</summary>{body}</details>");
    if !report.epochs.is_empty() {
        fold(&format!("Epochs ({})", count(report.epochs.len() as u64)), table::epochs(&report.epochs));
    }
    if !report.machine.is_empty() {
        fold("Machine", pairs(&report.machine));
    }
    if !report.configuration.is_empty() {
        fold("Configuration", pairs(&report.configuration));
    }
    out
}
