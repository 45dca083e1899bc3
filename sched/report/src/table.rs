//! The page's tables.

use morphgl_plan::Time;

use crate::bars::{bar, labelled, width};
use crate::markup::{escape, put};
use crate::number::{bytes, count, percent, plain, ratio, signed};
use crate::report::{Baseline, Counted, Epoch, Memory, OperatorSeconds, Trainer, TrainingCandidate, WhatIf};
use crate::timeline::Work;

/// A row's class, and its cells that are safe to embed.
type Row = (&'static str, Vec<String>);

/// A table; the columns whose heading begins with `#` hold numbers.
fn table(headings: &[impl AsRef<str>], rows: impl Iterator<Item = Row>) -> String {
    let headings: Vec<&str> = headings.iter().map(AsRef::as_ref).collect();
    let number = |h: &str| match h {
        _ if h.starts_with('#') => r#" class="number""#,
        "Event" => r#" class="words""#,
        _ => "",
    };
    let mut body = String::new();
    for (class, cells) in rows {
        put!(body, r#"<tr class="{class}">"#);
        for (heading, cell) in headings.iter().zip(cells) {
            put!(body, "<td{}>{cell}</td>", number(heading));
        }
        body.push_str("</tr>");
    }
    if body.is_empty() {
        return body;
    }
    let mut out = String::from(r#"<div class="scroll"><table><thead><tr>"#);
    for heading in headings {
        put!(out, r#"<th scope="col"{}>{}</th>"#, number(heading), escape(heading.trim_start_matches('#')));
    }
    put!(out, "</tr></thead><tbody>{body}</tbody></table></div>");
    out
}

/// A name with a subtitle.
fn two_lines(name: &str, below: &str) -> String {
    if below.is_empty() { name.to_string() } else { format!(r#"{name}<div class="below">{}</div>"#, escape(below)) }
}

/// A row that begins with a name, labelled if it is the chosen one, and a subtitle.
fn row(chosen: bool, name: &str, below: &str, cells: impl IntoIterator<Item = String>) -> Row {
    let (class, badge) = if chosen { ("chosen", r#" <span class="badge chosen">chosen</span>"#) } else { ("", "") };
    (class, [two_lines(&format!("{}{badge}", escape(name)), below)].into_iter().chain(cells).collect())
}

fn time(seconds: f64) -> String {
    Time(seconds).to_string()
}

/// Trainers that share every step.
pub(crate) fn trainers(trainers: &[Trainer]) -> String {
    let headings =
        ["Trainer", "#seeds", "#batching", "#transferring", "#training", "#all-reduce", "#of it behind backward"];
    let cells = |t: &Trainer| {
        let seeds = count(t.seeds.round().max(0.0) as u64);
        let seconds = [t.batching, t.transferring, t.training, t.all_reduce, t.hidden].map(time);
        let below = if t.simulated { format!("{} (simulated)", t.operator) } else { t.operator.clone() };
        row(false, &t.name, &below, [seeds].into_iter().chain(seconds))
    };
    table(&headings, trainers.iter().map(cells))
}

/// A cell of a value that may be missing.
fn cell<T>(value: Option<T>, print: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".to_string(), print)
}

/// The table of compared training operators; empty if there was no choice.
pub(crate) fn candidates(rows: &[TrainingCandidate]) -> String {
    let rows = rows.iter().map(|c| {
        let range = cell(c.range, |(min, max)| format!("{}, {}", time(min), time(max)));
        row(c.chosen, &c.operator, &c.outcome, [escape(&c.place), cell(c.seconds, time), range, c.steps.to_string()])
    });
    table(&["Operator", "Trained at", "#Mini-batch", "#From, to", "#Steps"], rows)
}

/// The table of plans, with bars of their ratio to the bound.
pub(crate) fn baselines(rows: &[Baseline]) -> String {
    let mut resources: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|b| &b.utilisation) {
        if !resources.contains(&name.as_str()) {
            resources.push(name);
        }
    }
    let ratios = || rows.iter().filter_map(|b| b.ratio).filter(|r| r.is_finite() && *r > 0.0);
    let best = ratios().fold(f64::INFINITY, f64::min);
    // A plan far above the bound does not flatten the bars of the others.
    let max = ratios().fold(1.0, f64::max).min(4.0 * best);
    let with_ratio = ratios().next().is_some();
    let mut names = vec!["Policy".to_string(), "#Epoch".to_string()];
    names.extend(with_ratio.then(|| "Ratio to the bound".to_string()));
    names.push("Bottleneck".to_string());
    names.extend(resources.iter().map(|r| format!("#{r}")));
    let rows = rows.iter().map(|b| {
        let ratio = with_ratio.then(|| b.ratio.map_or_else(String::new, |r| over_bound(r, max)));
        let busy = |resource: &&str| cell(b.utilisation.iter().find(|u| u.0 == *resource), |u| meter(u.1));
        let cells = [time(b.seconds)].into_iter().chain(ratio).chain([escape(&b.bottleneck)]);
        row(b.chosen, &b.policy, &b.plan, cells.chain(resources.iter().map(busy)))
    });
    table(&names, rows)
}

/// A bar whose parts up to the bound and above it are styled differently.
fn over_bound(value: f64, max: f64) -> String {
    let (all, bound) = (width(value / max), width(1.0 / value.max(1e-9)));
    let clipped = if value > max * 1.001 { " clipped" } else { "" };
    format!(
        r#"<div class="bar"><span class="rail bare"><span class="fill excess{clipped}" style="width:{all}"><span class="fill within" style="width:{bound}"></span></span></span><span class="value">{}</span></div>"#,
        ratio(value)
    )
}

/// A percentage over a thin bar.
fn meter(share: f64) -> String {
    format!(
        r#"<div class="meter">{}<span class="rail"><span class="fill neutral" style="width:{}"></span></span></div>"#,
        percent(share, 0),
        width(share)
    )
}

/// The table of what-if results.
pub(crate) fn what_if(rows: &[WhatIf]) -> String {
    let max = rows.iter().map(|w| w.speed_up).filter(|s| s.is_finite()).fold(1.0, f64::max);
    let rows = rows.iter().map(|w| {
        let speed_up = bar("neutral", w.speed_up / max, &ratio(w.speed_up));
        row(false, &w.change, &w.plan, [time(w.seconds), speed_up, escape(&w.bottleneck)])
    });
    table(&["Change", "#Epoch", "Speed-up", "Bottleneck"], rows)
}

/// The table of operators' durations, profiled and measured.
pub(crate) fn operators(rows: &[OperatorSeconds]) -> String {
    let names = ["Operator", "#Profiled", "#Deviation", "#Measured", "#Difference"];
    let names = if rows.iter().any(|o| o.measured.is_some()) { &names[..] } else { &names[..3] };
    let rows = rows.iter().map(|o| {
        let swatch = format!(r#"<span class="swatch {}"></span>"#, Work::from(o.phase).letter());
        let name = format!(r#"<span class="key">{swatch}{}</span>{}"#, escape(&o.operator), labelled("", o.simulated));
        let difference = o.profiled.filter(|p| *p > 0.0).and_then(|p| Some(o.measured? / p - 1.0));
        let [profiled, deviation, measured] = [o.profiled, o.deviation, o.measured].map(|s| cell(s, time));
        ("", vec![name, profiled, deviation, measured, cell(difference, signed)])
    });
    table(names, rows)
}

/// The table of epochs, with the columns that any of them fills.
pub(crate) fn epochs(rows: &[Epoch]) -> String {
    type Column = (&'static str, fn(&Epoch) -> Option<String>);
    const COLUMNS: [Column; 9] = [
        ("#Epoch", |e| Some(e.epoch.to_string())),
        ("#Measured", |e| e.seconds.map(time)),
        ("#Predicted", |e| e.predicted_seconds.map(time)),
        ("#Loss", |e| e.loss.map(plain)),
        ("#Validation loss", |e| e.valid_loss.map(plain)),
        ("#Training accuracy", |e| e.train_accuracy.map(|a| percent(a, 2))),
        ("#Validation accuracy", |e| e.valid_accuracy.map(|a| percent(a, 2))),
        ("#Validation score", |e| e.valid_score.map(|s| format!("{s:.4}"))),
        ("Event", |e| (!e.event.is_empty()).then(|| escape(&e.event))),
    ];
    let (names, cells): (Vec<_>, Vec<_>) =
        COLUMNS.into_iter().filter(|(_, cell)| rows.iter().any(|e| cell(e).is_some())).unzip();
    table(&names, rows.iter().map(|e| ("", cells.iter().map(|cell| cell(e).unwrap_or_default()).collect())))
}

/// Counters by operator.
pub(crate) fn counters(rows: &[Counted]) -> String {
    let amount = |c: &Counted| if c.counter.ends_with("_bytes") { bytes(c.amount) } else { count(c.amount) };
    let row = |c: &Counted| ("", vec![labelled(&c.operator, c.simulated), escape(&c.counter), amount(c)]);
    table(&["Operator", "Counter", "#Sum"], rows.iter().map(row))
}

/// A place's memory: uses, peak and budget.
pub(crate) fn memory(place: &Memory) -> String {
    let planned: u64 = place.uses.iter().fold(0, |sum, u| sum.saturating_add(u.bytes));
    let whole = place.budget.unwrap_or(0).max(planned).max(place.peak.unwrap_or(0)).max(1) as f64;
    let mut figures = vec![format!("{} planned", bytes(planned))];
    figures.extend(place.peak.map(|p| format!("{} at its peak", bytes(p))));
    figures.extend(place.budget.map(|b| format!("budget {}", bytes(b))));
    let over = place.budget.is_some_and(|b| planned.max(place.peak.unwrap_or(0)) > b);
    let (mut stack, mut legend) = (String::new(), String::new());
    for (i, used) in place.uses.iter().enumerate() {
        let (shade, what, size) = (i % 6, escape(&used.what), bytes(used.bytes));
        if used.bytes > 0 {
            let width = width(used.bytes as f64 / whole);
            put!(stack, r#"<span class="s{shade}" style="width:{width}" title="{what}: {size}"></span>"#);
        }
        put!(
            legend,
            r#"<li><span class="swatch s{shade}"></span><span>{what}</span><span class="value">{size}</span></li>"#
        );
    }
    for (class, value) in [("peak", place.peak), ("budget", place.budget)] {
        if let Some(value) = value {
            put!(stack, r#"<i class="{class}" style="left:{}" title="{class}"></i>"#, width(value as f64 / whole));
        }
    }
    format!(
        r#"<div class="place"><h3>{}</h3><p class="quiet{}">{}</p><div class="stack">{stack}</div><ul class="uses">{legend}</ul></div>"#,
        labelled(&place.place, place.simulated),
        if over { " over" } else { "" },
        figures.join(" · ")
    )
}
