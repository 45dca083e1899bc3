//! The sections of the page; each is an empty string if the report has no data for it.

use morphgl_plan::{Phase, Time};

use crate::bars::{self, bar, labelled, pairs};
use crate::chart::{LineChart, Scale, Series, coloured, line_chart};
use crate::data::MAX_ACTIVITIES;
use crate::legend::{entries, swatch};
use crate::markup::{escape, put};
use crate::number::{bytes, count, percent, ratio};
use crate::report::{Cache, Epoch, Report};
use crate::rows::TimelineRows;
use crate::svg::{SvgOptions, draw};
use crate::table;
use crate::timeline::Timeline;

/// A section of the page; an empty string without a body.
fn section(class: &str, heading: &str, below: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    let below = if below.is_empty() { String::new() } else { format!(r#"<p class="quiet">{}</p>"#, escape(below)) };
    format!(r#"<section class="card {class}"><h2>{}</h2>{below}{body}</section>"#, escape(heading))
}

pub(crate) fn header(report: &Report, title: &str) -> String {
    let simulated = r#" <span class="badge simulated">simulated hardware</span>"#;
    let mut out = format!("<header><h1>{title}{}</h1>", if report.is_simulated() { simulated } else { "" });
    let mut paragraph = |class: &str, text: &str, [open, close]: [&str; 2]| {
        if !text.is_empty() {
            put!(out, r#"<p class="{class}">{open}{}{close}</p>"#, escape(text));
        }
    };
    paragraph("lead", &report.summary, ["", ""]);
    paragraph("plan", &report.plan, ["", ""]);
    paragraph("command", &report.command, ["<code>", "</code>"]);
    paragraph("quiet", &report.created, ["", ""]);
    out + "</header>"
}

/// The key numbers.
pub(crate) fn tiles(report: &Report) -> String {
    let finite = |value: Option<f64>| value.filter(|v| v.is_finite());
    let (measured, predicted, bound) =
        (report.epoch_seconds(), finite(report.predicted_seconds), finite(report.bound_seconds));
    let mut out = String::new();
    let mut tile = |name: &str, value: &dyn std::fmt::Display, below: &str| {
        let (value, below) = (escape(&value.to_string()), escape(below));
        put!(out, r#"<div class="tile"><dt>{name}</dt><dd>{value}<span class="below">{below}</span></dd></div>"#);
    };
    if let Some(measured) = measured {
        let against = predicted.filter(|p| *p > 0.0).map(|p| {
            let off = measured / p - 1.0;
            format!("{} {} prediction", percent(off.abs(), 1), if off < 0.0 { "under" } else { "over" })
        });
        tile("Epoch, measured", &Time(measured), &against.unwrap_or_default());
    }
    if let Some(predicted) = predicted {
        tile("Epoch, predicted", &Time(predicted), "by the simulator");
    }
    if let Some(bound) = bound {
        tile("Lower bound", &Time(bound), "of every plan, by the predicted durations");
    }
    if let (Some(time), Some(bound)) = (predicted.or(measured), bound.filter(|b| *b > 0.0)) {
        let below = measured.filter(|_| predicted.is_some()).map(|m| format!("measured {}", ratio(m / bound)));
        tile("Ratio to the bound", &ratio(time / bound), &below.unwrap_or_default());
    }
    if let Some(bottleneck) = report.bottleneck.as_ref().filter(|b| !b.is_empty()) {
        let used = report.utilisation.iter().find(|u| u.resource == *bottleneck);
        let busy =
            |how: &str, share: Option<f64>| finite(share).map(|share| format!("{how} {} busy", percent(share, 0)));
        let shares = used.map_or([None, None], |u| [busy("predicted", u.predicted), busy("measured", u.measured)]);
        let shares: Vec<String> = shares.into_iter().flatten().collect();
        let waits = |phase: Phase| format!("the epoch waits for its {}", phase.noun());
        let simulated = report.simulated_resources().contains(&bottleneck.as_str());
        let below = [
            report.bottleneck_phase.map(waits),
            (!shares.is_empty()).then(|| shares.join(", ")),
            simulated.then(|| "simulated".to_string()),
        ];
        tile("Predicted bottleneck", bottleneck, &below.into_iter().flatten().collect::<Vec<_>>().join("; "));
    }
    let in_epoch = report.best_epoch.map_or(String::new(), |epoch| format!(" in epoch {epoch}, the best"));
    let valid = report.valid_accuracy().map(|v| percent(v, 2));
    match (finite(report.test_accuracy), valid) {
        (Some(test), valid) => {
            let below = valid.map(|v| format!("validation {v}{in_epoch}")).unwrap_or_default();
            tile("Test accuracy", &percent(test, 2), &below);
        }
        (None, Some(valid)) => tile("Validation accuracy", &valid, "best of all epochs"),
        (None, None) => {}
    }
    if let Some(score) = &report.score {
        let four = |value: f64| format!("{value:.4}");
        match (finite(report.test_score), finite(report.best_valid_score)) {
            (Some(test), valid) => {
                let below = valid.map(|v| format!("validation {}{in_epoch}", four(v))).unwrap_or_default();
                tile(&format!("Test {score}"), &four(test), &below);
            }
            (None, Some(valid)) => tile(&format!("Validation {score}"), &four(valid), "best of all epochs"),
            (None, None) => {}
        }
    }
    if out.is_empty() { out } else { format!(r#"<dl class="tiles">{out}</dl>"#) }
}

pub(crate) fn timelines(all: &[(&str, &Timeline, TimelineRows)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    // Of equally many routes, those of the first timeline.
    let routes = all.iter().rev().map(|t| &t.1.routes).max_by_key(|routes| routes.len());
    let mut body = String::from(r#"<ul class="keys">"#);
    let kinds = all.iter().map(|t| t.1.kinds()).max_by_key(|kinds| kinds.len()).unwrap_or_default();
    for (class, pattern, label) in entries("page", kinds, routes.map_or(&[], |routes| &routes[..])) {
        let swatch = swatch(&class, pattern.as_deref(), 0.5, 0.5);
        put!(body, r#"<li><svg class="tl" width="13" height="13">{swatch}</svg>{}</li>"#, escape(&label));
    }
    body.push_str("</ul>");
    for (i, (name, timeline, rows)) in all.iter().enumerate() {
        let mut facts =
            vec![Time(rows.seconds).to_string(), format!("{} activities", count(timeline.activities.len() as u64))];
        if timeline.activities.len() > MAX_ACTIVITIES {
            facts.push("the middle as density".to_string());
        }
        if timeline.is_simulated() {
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
    let used = report.utilisation.iter().filter(|u| u.predicted.or(u.measured).is_some());
    let rows = used.map(|u| (labelled(&u.resource, u.simulated), [u.predicted, u.measured]));
    let body = pairs(&rows.collect::<Vec<_>>());
    section("", "Utilisation", "Share of an epoch each resource is busy.", &body)
}

fn line(name: &str, style: &str, epochs: &[Epoch], value: impl Fn(&Epoch) -> Option<f64>) -> Series {
    // An epoch without a value is no gap: accuracy may be known of every other epoch.
    let points = epochs.iter().filter_map(|e| Some((f64::from(e.epoch), value(e)?))).collect();
    Series { name: name.to_string(), style: style.to_string(), points }
}

/// A chart over epochs with their events; seconds are shown from zero.
fn chart(report: &Report, title: &str, scale: Scale, series: Vec<Series>) -> String {
    let eventful = report.epochs.iter().filter(|e| !e.event.is_empty());
    let events = eventful.map(|e| (f64::from(e.epoch), e.event.clone())).collect();
    let (title, x_name) = (title.to_string(), "epoch".to_string());
    line_chart(&LineChart { title, x_name, scale, from_zero: scale == Scale::Seconds, series, events })
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
        let finite =
            all.into_iter().filter_map(|(name, style, value)| Some((name, style, value.filter(|v| v.is_finite())?)));
        let shown: Vec<_> = finite.collect();
        if shown.len() < 2 {
            return String::new();
        }
        let max = shown.iter().map(|t| t.2).fold(f64::MIN_POSITIVE, f64::max);
        let bars = shown
            .into_iter()
            .map(|(name, style, value)| (name.to_string(), bar(style, value / max, &Time(value).to_string())));
        return section("", heading, "Seconds of an epoch.", &bars::rows(bars));
    }
    // A prediction that was corrected by the epochs before it follows what was measured.
    let corrected = |e: &Epoch| e.predicted_seconds.filter(|_| report.predicted_seconds.is_some());
    let is_corrected =
        report.epochs.iter().filter_map(corrected).any(|seconds| Some(seconds) != report.predicted_seconds);
    let plan = |e: &Epoch| report.predicted_seconds.or(e.predicted_seconds);
    let mut series = vec![
        line("lower bound", "bound", &report.epochs, |_| report.bound_seconds),
        line("predicted by the first plan", "predicted", &report.epochs, plan),
    ];
    series.extend(is_corrected.then(|| line("predicted from the epochs before", "second", &report.epochs, corrected)));
    series.push(line("measured", "measured", &report.epochs, |e| e.seconds));
    section("", heading, "", &chart(report, "Seconds of an epoch", Scale::Seconds, series))
}

/// Loss and accuracy, where there are at least two epochs of them.
pub(crate) fn curves(report: &Report) -> String {
    type Value = fn(&Epoch) -> Option<f64>;
    let curve = |heading: &str, title: &str, scale, [training, validation]: [Value; 2]| {
        let training = line("training", "first", &report.epochs, training);
        let series = vec![training, line("validation", "second", &report.epochs, validation)];
        if series.iter().all(|s| s.points.iter().filter(|p| p.1.is_finite()).count() < 2) {
            return String::new();
        }
        section("", heading, "", &chart(report, title, scale, series))
    };
    let loss = if report.loss.is_empty() { "loss" } else { &report.loss };
    curve("Loss", &format!("Mean {loss}"), Scale::Plain, [|e| e.loss, |e| e.valid_loss])
        + &curve("Accuracy", "Share of nodes right", Scale::Percent, [|e| e.train_accuracy, |e| e.valid_accuracy])
        + &report
            .score
            .as_ref()
            .map_or(String::new(), |score| curve("Score", score, Scale::Plain, [|_| None, |e| e.valid_score]))
}

/// The confusion matrix, training operators, plans, what-if results and operators.
pub(crate) fn tables(report: &Report) -> String {
    let simulated = match &report.simulated_resources()[..] {
        [] => String::new(),
        names => format!(" Simulated: {}.", names.join(", ")),
    };
    let plans = "Every plan considered, as the simulator predicts it. The darker part of a bar is the lower bound.";
    let what_if = "The best plan of a machine that differs in one thing or a few.";
    let slowest = report.imbalance_seconds.filter(|seconds| seconds.is_finite());
    let slowest =
        slowest.map_or(String::new(), |s| format!(" The slowest share takes {} longer than the mean.", Time(s)));
    let trainers = format!("They share every step. Seeds and seconds of an epoch.{slowest}");
    let candidates = "Of the operators at a place the fastest trains. A mini-batch is batched, transferred and trained, one \
                      after the other, with all cores.";
    let (of, picture) = report.confusion.as_ref().map(|matrix| (matrix.below(), matrix.picture())).unwrap_or_default();
    [
        section("", "Confusion matrix", &of, &picture),
        section("", "Training operators", candidates, &table::candidates(&report.candidates)),
        section("", "Trainers", &trainers, &table::trainers(&report.trainers)),
        section("", "Plans", &format!("{plans}{simulated}"), &table::baselines(&report.baselines)),
        section("", "What if", &format!("{what_if}{simulated}"), &table::what_if(&report.what_if)),
        section("", "Operators", "Seconds for one mini-batch.", &table::operators(&report.operators)),
    ]
    .concat()
}

/// Memory, caches, hit rates, and what operators counted: bytes over links and from disk, cache requests and hits, counters of
/// their own.
pub(crate) fn resources(report: &Report) -> [String; 6] {
    let places: String = report.memory.iter().map(table::memory).collect();
    [
        section("memory", "Memory", "", &places),
        section("", "Caches", "Share of accesses they catch.", &caches(report)),
        hit_rates(report.hit_rates.as_ref()),
        section(
            "",
            "Staleness",
            "Rows of the first layer that were given, by the steps they were old, and the mini-batches they were given to.",
            &staleness(report),
        ),
        section(
            "",
            "Queue",
            "Mini-batches that were sampled, or of which shares were being sampled, and that not every trainer had begun to gather.",
            &report.queue.as_ref().map(line_chart).unwrap_or_default(),
        ),
        section("", "Counters", "Sums over all mini-batches.", &table::counters(&report.counters)),
    ]
}

/// Where a page has its hit rates, or would have them.
pub(crate) const HIT_RATES: [&str; 2] = ["<!--hit rates-->", "<!--/hit rates-->"];

/// The chart of hit rates, between its comments.
pub(crate) fn hit_rates(chart: Option<&LineChart>) -> String {
    let chart = chart.map(|chart| line_chart(&coloured(chart))).unwrap_or_default();
    let below = "Share of the accesses to feature rows that a static cache would catch, by what it is filled by.";
    HIT_RATES[0].to_string() + &section("", "Hit rates", below, &chart) + HIT_RATES[1]
}

fn caches(report: &Report) -> String {
    let row = |c: &Cache| {
        let simulated = report.memory.iter().any(|m| m.simulated && m.place == c.place);
        let place = match c.place.as_str() {
            "" => String::new(),
            place => format!(" on {}{}", escape(place), if simulated { " (simulated)" } else { "" }),
        };
        let size = c.bytes.map(bytes).unwrap_or_default();
        let name = format!(r#"{}<div class="below">{size}{place}</div>"#, escape(&c.name));
        (name, [c.predicted_hits, c.measured_hits])
    };
    pairs(&report.caches.iter().map(row).collect::<Vec<_>>())
}

/// The histogram of staleness; empty without given rows.
fn staleness(report: &Report) -> String {
    let Some(most) = report.staleness.iter().map(|s| s.rows).max() else { return String::new() };
    bars::rows(report.staleness.iter().map(|s| {
        let text = format!("{} in {}", count(s.rows), count(s.batches));
        (count(s.steps), bar("measured", s.rows as f64 / most.max(1) as f64, &text))
    }))
}

pub(crate) fn notes(report: &Report, timelines: &[(&str, &Timeline, TimelineRows)]) -> String {
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

/// Details, folded: every epoch, the dataset, the machine, the configuration.
pub(crate) fn folded(report: &Report) -> String {
    let settings = |pairs: &[(String, String)]| {
        let items = pairs.iter().map(|(n, v)| format!("<dt>{}</dt><dd>{}</dd>", escape(n), escape(v)));
        format!(r#"<dl class="settings">{}</dl>"#, items.collect::<String>())
    };
    let epochs = format!("Epochs ({})", count(report.epochs.len() as u64));
    let details = [
        (epochs.as_str(), report.epochs.is_empty(), table::epochs(&report.epochs)),
        ("Dataset", report.dataset.is_empty(), settings(&report.dataset)),
        ("Machine", report.machine.is_empty(), settings(&report.machine)),
        ("Configuration", report.configuration.is_empty(), settings(&report.configuration)),
    ];
    let given = details.into_iter().filter(|(_, empty, _)| !empty);
    let fold = |(heading, _, body): (&str, bool, String)| {
        format!(r#"<details class="card"><summary>{heading}</summary>{body}</details>"#)
    };
    given.map(fold).collect()
}
