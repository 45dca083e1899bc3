//! The page's tables.

use morphgl_plan::Time;

use crate::bars::{bar, labelled, width};
use crate::markup::{escape, put};
use crate::number::{bytes, count, percent, plain, ratio};
use crate::report::{Baseline, Counted, Epoch, Memory, OperatorSeconds, WhatIf};
use crate::timeline::letter;

/// A table of cells that are safe to embed; the columns whose heading begins with `#` hold numbers.
pub(crate) fn table(headings: &[String], rows: &[(&str, Vec<String>)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut out = String::from(r#"<div class="scroll"><table><thead><tr>"#);
    let number = |h: &str| match h {
        _ if h.starts_with('#') => r#" class="number""#,
        "Event" => r#" class="words""#,
        _ => "",
    };
    for heading in headings {
        put!(out, r#"<th scope="col"{}>{}</th>"#, number(heading), escape(heading.trim_start_matches('#')));
    }
    out.push_str("</tr></thead><tbody>");
    for (class, cells) in rows {
        put!(out, r#"<tr class="{class}">"#);
        for (heading, cell) in headings.iter().zip(cells) {
            put!(out, "<td{}>{cell}</td>", number(heading));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    out
}

pub(crate) fn headings(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// A name with a subtitle.
pub(crate) fn two_lines(name: &str, below: &str) -> String {
    if below.is_empty() { name.to_string() } else { format!(r#"{name}<div class="below">{}</div>"#, escape(below)) }
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
    let most = ratios().fold(1.0, f64::max).min(4.0 * best);
    let mut names = headings(&["Policy", "#Epoch"]);
    let with_ratio = ratios().next().is_some();
    if with_ratio {
        names.push("Ratio to the bound".into());
    }
    names.push("Bottleneck".into());
    names.extend(resources.iter().map(|r| format!("#{r}")));
    let rows: Vec<(&str, Vec<String>)> = rows
        .iter()
        .map(|b| {
            let badge = if b.chosen { r#" <span class="badge chosen">chosen</span>"# } else { "" };
            let mut cells =
                vec![two_lines(&format!("{}{badge}", escape(&b.policy)), &b.plan), Time(b.seconds).to_string()];
            if with_ratio {
                cells.push(b.ratio.map_or_else(String::new, |r| over_bound(r, most)));
            }
            cells.push(escape(&b.bottleneck));
            for resource in &resources {
                let busy = b.utilisation.iter().find(|u| u.0 == *resource).map(|u| u.1);
                cells.push(busy.map_or_else(|| "–".into(), meter));
            }
            (if b.chosen { "chosen" } else { "" }, cells)
        })
        .collect();
    table(&names, &rows)
}

/// A bar whose parts up to the bound and above it are styled differently.
fn over_bound(value: f64, most: f64) -> String {
    let (all, bound) = (width(value / most), width(1.0 / value.max(1e-9)));
    let clipped = if value > most * 1.001 { " clipped" } else { "" };
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
    let most = rows.iter().map(|w| w.speed_up).filter(|s| s.is_finite()).fold(1.0, f64::max);
    let rows: Vec<(&str, Vec<String>)> = rows
        .iter()
        .map(|w| {
            let speed_up = bar("neutral", w.speed_up / most, &ratio(w.speed_up));
            let change = two_lines(&escape(&w.change), &w.plan);
            ("", vec![change, Time(w.seconds).to_string(), speed_up, escape(&w.bottleneck)])
        })
        .collect();
    table(&headings(&["Change", "#Epoch", "Speed-up", "Bottleneck"]), &rows)
}

/// The table of operators' durations, profiled and measured.
pub(crate) fn operators(rows: &[OperatorSeconds]) -> String {
    let measured = rows.iter().any(|o| o.measured.is_some());
    let mut names = headings(&["Operator", "#Profiled", "#Deviation"]);
    if measured {
        names.extend(headings(&["#Measured", "#Difference"]));
    }
    let rows: Vec<(&str, Vec<String>)> = rows
        .iter()
        .map(|o| {
            let swatch = format!(r#"<span class="swatch {}"></span>"#, letter(o.phase));
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_string(), |s| Time(s).to_string());
            let badge = labelled("", o.simulated);
            let name = format!(r#"<span class="key">{swatch}{}</span>{badge}"#, escape(&o.operator));
            let difference = match (o.profiled, o.measured) {
                (Some(profiled), Some(measured)) if profiled > 0.0 => signed(measured / profiled - 1.0),
                _ => "–".to_string(),
            };
            ("", vec![name, shown(o.profiled), shown(o.deviation), shown(o.measured), difference])
        })
        .collect();
    table(&names, &rows)
}

/// A difference as a percentage with its sign.
pub(crate) fn signed(share: f64) -> String {
    let text = percent(share.abs(), 1);
    match share {
        _ if !share.is_finite() => text,
        _ if text == "0.0%" => "±0.0%".to_string(),
        s if s < 0.0 => format!("−{text}"),
        _ => format!("+{text}"),
    }
}

/// The table of epochs, with the columns that any of them fills.
pub(crate) fn epochs(rows: &[Epoch]) -> String {
    type Column = (&'static str, fn(&Epoch) -> Option<String>);
    const COLUMNS: [Column; 8] = [
        ("#Epoch", |e| Some(e.epoch.to_string())),
        ("#Measured", |e| e.seconds.map(|s| Time(s).to_string())),
        ("#Predicted", |e| e.predicted_seconds.map(|s| Time(s).to_string())),
        ("#Loss", |e| e.loss.map(plain)),
        ("#Validation loss", |e| e.valid_loss.map(plain)),
        ("#Training accuracy", |e| e.train_accuracy.map(|a| percent(a, 2))),
        ("#Validation accuracy", |e| e.valid_accuracy.map(|a| percent(a, 2))),
        ("Event", |e| (!e.event.is_empty()).then(|| escape(&e.event))),
    ];
    let used: Vec<Column> = COLUMNS.into_iter().filter(|c| rows.iter().any(|e| c.1(e).is_some())).collect();
    let names: Vec<String> = used.iter().map(|c| c.0.to_string()).collect();
    let cell = |c: &Column, e: &Epoch| c.1(e).unwrap_or_default();
    let rows: Vec<(&str, Vec<String>)> = rows.iter().map(|e| ("", used.iter().map(|c| cell(c, e)).collect())).collect();
    table(&names, &rows)
}

/// Counters by operator.
pub(crate) fn counters(rows: &[Counted]) -> String {
    let amount = |c: &Counted| if c.counter.ends_with("_bytes") { bytes(c.amount) } else { count(c.amount) };
    let row = |c: &Counted| ("", vec![labelled(&c.operator, c.simulated), escape(&c.counter), amount(c)]);
    table(&["Operator", "Counter", "#Sum"].map(String::from), &rows.iter().map(row).collect::<Vec<_>>())
}

/// A place's memory: uses, peak and budget.
pub(crate) fn memory(place: &Memory) -> String {
    let planned: u64 = place.uses.iter().fold(0, |sum, u| sum.saturating_add(u.bytes));
    let whole = place.budget.unwrap_or(0).max(planned).max(place.peak.unwrap_or(0)).max(1) as f64;
    let mut figures = vec![format!("{} planned", bytes(planned))];
    figures.extend(place.peak.map(|p| format!("{} at its peak", bytes(p))));
    figures.extend(place.budget.map(|b| format!("budget {}", bytes(b))));
    let over = place.budget.is_some_and(|b| planned.max(place.peak.unwrap_or(0)) > b);
    let mut out = format!(
        r#"<div class="place"><h3>{}</h3><p class="quiet{}">{}</p><div class="stack">"#,
        labelled(&place.place, place.simulated),
        if over { " over" } else { "" },
        figures.join(" · ")
    );
    let shade = |i: usize| ["s0", "s1", "s2", "s3", "s4", "s5"][i % 6];
    for (i, used) in place.uses.iter().enumerate().filter(|(_, u)| u.bytes > 0) {
        let title = format!("{}: {}", used.what, bytes(used.bytes));
        let width = width(used.bytes as f64 / whole);
        put!(out, r#"<span class="{}" style="width:{width}" title="{}"></span>"#, shade(i), escape(&title));
    }
    for (class, value) in [("peak", place.peak), ("budget", place.budget)] {
        if let Some(value) = value {
            put!(out, r#"<i class="{class}" style="left:{}" title="{class}"></i>"#, width(value as f64 / whole));
        }
    }
    out.push_str(r#"</div><ul class="uses">"#);
    for (i, used) in place.uses.iter().enumerate() {
        let (what, size) = (escape(&used.what), bytes(used.bytes));
        put!(
            out,
            r#"<li><span class="swatch {}"></span><span>{what}</span><span class="value">{size}</span></li>"#,
            shade(i)
        );
    }
    out.push_str("</ul></div>");
    out
}
