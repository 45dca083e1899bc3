//! Pictures and pages: well-formed, escaped, within their plots, whatever the timeline.

use morphgl_report::{
    Bar, Baseline, Cache, ConfusionMatrix, Epoch, Lane, LineChart, Mark, Memory, MemoryUse, OperatorSeconds, Phase,
    Report, Scale, Series, SvgOptions, Timeline, Trainer, TrainingCandidate, Utilisation, WhatIf, Work, html,
    line_chart, line_chart_svg, svg, with_hit_rates,
};
use proptest::prelude::*;
use roxmltree::{Document, Node, ParsingOptions};

#[path = "../examples/synthetic/mod.rs"]
mod synthetic;

const NASTY: &str = "<b>\"R&D\"</b> 'x' ]]> </script> \u{1}";

#[track_caller]
fn parse(text: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The visible text and all attributes, without styles and scripts.
fn shown(document: &Document<'_>) -> String {
    let code = |n: &Node<'_, '_>| n.ancestors().any(|a| matches!(a.tag_name().name(), "script" | "style"));
    let mut out = String::new();
    for node in document.descendants().filter(|n| !code(n)) {
        node.text().filter(|_| node.is_text()).into_iter().for_each(|t| out.push_str(&format!("{t} ")));
        node.attributes().for_each(|a| out.push_str(&format!("{} ", a.value())));
    }
    out
}

#[track_caller]
fn check_numbers(document: &Document<'_>) {
    let shown = shown(document);
    for word in shown.split(|c: char| !c.is_alphanumeric()) {
        assert!(!matches!(word, "NaN" | "nan" | "inf" | "Infinity" | "infinity"), "{word} in {shown}");
    }
}

fn number(node: &Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).and_then(|v| v.parse().ok()).unwrap_or_else(|| panic!("no {name} in {node:?}"))
}

/// Well-formed, no odd number, and every block inside its plot; returns the number of blocks.
#[track_caller]
fn check_picture(text: &str) -> usize {
    let document = parse(text);
    check_numbers(&document);
    let class = |n: &Node<'_, '_>, c: &str| n.attribute("class").is_some_and(|v| v.split(' ').any(|w| w == c));
    let height = number(&document.root_element(), "height");
    let mut blocks = 0;
    for panel in document.descendants().filter(|n| class(n, "panel")) {
        let (left, right) = (number(&panel, "data-left"), number(&panel, "data-right"));
        assert!(left < right && right <= number(&document.root_element(), "width"));
        for block in panel.children().filter(|n| class(n, "k") || class(n, "mark") || class(n, "over")) {
            blocks += usize::from(class(&block, "k"));
            if block.tag_name().name() == "path" {
                let d = block.attribute("d").expect("a path has one");
                for x in d.split(['M', 'H']).skip(1).map(|p| p.split([' ', 'V', 'h']).next().expect("there is one")) {
                    let x: f64 = x.parse().expect("a number");
                    assert!(x >= left - 0.011 && x <= right + 0.011, "{x} outside {left}..{right}");
                }
                continue;
            }
            let (x, y) = (number(&block, "x"), number(&block, "y"));
            assert!(x >= left - 0.011 && x + number(&block, "width") <= right + 0.021, "{block:?}: {left}..{right}");
            assert!(y >= 0.0 && y + number(&block, "height") <= height, "{block:?}");
        }
    }
    blocks
}

fn lane(name: &str) -> Lane {
    Lane { name: name.into(), resource: name.into(), simulated: name.contains("SIM") }
}

#[test]
fn a_short_timeline_is_drawn_block_by_block_with_numbers() {
    let activity = |work, route, start, end, lanes: &[usize]| Bar {
        work,
        batch: 7,
        epoch: 2,
        route,
        start,
        end,
        lanes: lanes.to_vec(),
    };
    let timeline = Timeline {
        lanes: vec![lane("CPU"), lane("PCIe"), lane("SIM")],
        routes: vec!["by CPU".into(), "by SIM".into()],
        activities: vec![
            activity(Work::Batching, 0, 0.0, 1.0, &[0]),
            activity(Work::Transferring, 0, 1.0, 1.4, &[1]),
            activity(Work::Training, 0, 1.5, 2.0, &[2]),
            activity(Work::Batching, 1, 0.0, 0.9, &[1, 2]),
        ],
        marks: vec![Mark { name: "evaluation".into(), start: 2.0, end: 2.5 }],
        seconds: 2.5,
    };
    let text = svg(&timeline, &SvgOptions { title: "four".into(), ..SvgOptions::default() });
    // A phase that occupies two lanes is drawn on both.
    assert_eq!(check_picture(&text), 5);
    for part in [">B7<", ">T7<", ">M7<", ">evaluation<", ">2.5 s<", ">four<", "route 1: by SIM", "simulated hardware"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(text.contains("Batching of mini-batch 7, epoch 2, by SIM: 900 ms from 0 s"), "{text}");
    // Only the second route has a pattern: over its blocks on two lanes, and in the legend.
    assert_eq!(text.matches("fill=\"url(#timeline-1)\"").count(), 3);
    assert!(text.contains("id=\"timeline-1\"") && !text.contains("timeline-0"));
    // All-reduces are named where there are any.
    assert!(!text.contains("All-reduce (A)"), "{text}");
    let mut added = timeline.clone();
    added.activities.push(activity(Work::AllReduce, 0, 1.5, 2.0, &[1]));
    let text = svg(&added, &SvgOptions::default());
    assert_eq!(check_picture(&text), 6);
    for part in [">A7<", "All-reduce (A)", "All-reduce of mini-batch 7, epoch 2, by CPU: 500 ms from "] {
        assert!(text.contains(part), "no {part} in {text}");
    }
}

#[test]
fn trainers_have_a_table() {
    let trainer = |name: &str, simulated| Trainer {
        name: name.into(),
        operator: "Training_CPU_Native".into(),
        simulated,
        seeds: 1234.4,
        all_reduce: 0.25,
        ..Trainer::default()
    };
    let trainers = vec![trainer("host", false), trainer("sim:0", true)];
    let page = html(&Report { trainers, imbalance_seconds: Some(0.125), ..Report::default() });
    for part in [
        "<h2>Trainers</h2>",
        "The slowest share takes 125 ms longer than the mean.",
        ">host<",
        ">1234<",
        "250 ms",
        "(simulated)",
    ] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(!html(&Report::default()).contains("<h2>Trainers</h2>"));
}

#[test]
fn a_window_shows_its_part_of_the_timeline() {
    let timeline = synthetic::two_routes(4, 200, 1, 0.0);
    let options = SvgOptions { from: Some(0.1), to: Some(0.2), width: 700, ..SvgOptions::default() };
    let text = svg(&timeline, &options);
    check_picture(&text);
    assert!(text.contains(">100 ms to 200 ms of ") && text.contains(">120 ms<"), "{text}");
    // An invalid window is ignored.
    let all = svg(&timeline, &SvgOptions { from: Some(2.0), to: Some(1.0), width: 700, ..SvgOptions::default() });
    assert_eq!(all, svg(&timeline, &SvgOptions { width: 700, ..SvgOptions::default() }));
}

#[test]
fn a_long_timeline_stays_legible_and_small() {
    let timeline = synthetic::two_routes(4, 1179, 3, 0.1);
    let text = svg(&timeline, &SvgOptions::default());
    check_picture(&text);
    for caption in [">All ", ">The first ", ">The last "] {
        assert!(text.contains(caption), "no {caption}");
    }
    let longer = svg(&synthetic::two_routes(4, 60_000, 1, 0.1), &SvgOptions::default());
    check_picture(&longer);
    assert!(text.len() < 160_000 && longer.len() < 160_000, "{} and {} bytes", text.len(), longer.len());
}

#[test]
fn an_empty_timeline_says_so() {
    for timeline in [Timeline::default(), Timeline { lanes: vec![lane("CPU")], ..Timeline::default() }] {
        let text = svg(&timeline, &SvgOptions::default());
        assert_eq!(check_picture(&text), 0);
        assert!(text.contains("No activity was recorded."), "{text}");
    }
    let idle = Timeline { lanes: vec![lane("CPU")], seconds: 2.0, ..Timeline::default() };
    assert!(svg(&idle, &SvgOptions::default()).contains(">0%<"));
}

#[test]
fn every_text_is_escaped_everywhere() {
    let nasty = || NASTY.to_string();
    let pairs = || vec![(nasty(), nasty())];
    let timeline = Timeline {
        lanes: vec![Lane { name: nasty(), resource: nasty(), simulated: true }],
        routes: vec![nasty(), nasty()],
        activities: vec![Bar {
            work: Work::Batching,
            batch: 0,
            epoch: 0,
            route: 1,
            start: 0.0,
            end: 1.0,
            lanes: vec![0],
        }],
        marks: vec![Mark { name: nasty(), start: 0.2, end: 0.4 }],
        seconds: 1.0,
    };
    let epoch = |epoch| Epoch {
        epoch,
        seconds: Some(1.0),
        loss: Some(1.0),
        valid_accuracy: Some(0.5),
        valid_score: Some(0.25),
        event: nasty(),
        ..Epoch::default()
    };
    let report = Report {
        title: nasty(),
        summary: nasty(),
        created: nasty(),
        command: nasty(),
        plan: nasty(),
        bottleneck: Some(nasty()),
        utilisation: vec![Utilisation { resource: nasty(), measured: Some(0.5), ..Utilisation::default() }],
        epochs: (0..4).map(epoch).collect(),
        operators: vec![OperatorSeconds {
            phase: Phase::Training,
            operator: nasty(),
            simulated: true,
            profiled: Some(0.0),
            deviation: None,
            measured: Some(1.0),
        }],
        trainers: vec![Trainer { name: nasty(), operator: nasty(), simulated: true, ..Trainer::default() }],
        candidates: vec![TrainingCandidate {
            operator: nasty(),
            place: nasty(),
            outcome: nasty(),
            ..Default::default()
        }],
        baselines: vec![Baseline {
            policy: nasty(),
            plan: nasty(),
            seconds: 1.0,
            ratio: Some(1.0),
            bottleneck: nasty(),
            utilisation: vec![(nasty(), 0.5)],
            chosen: true,
        }],
        what_if: vec![WhatIf { change: nasty(), plan: nasty(), bottleneck: nasty(), seconds: 1.0, speed_up: 2.0 }],
        memory: vec![Memory { place: nasty(), uses: vec![MemoryUse { what: nasty(), bytes: 1 }], ..Memory::default() }],
        caches: vec![Cache { name: nasty(), place: nasty(), measured_hits: Some(0.1), ..Cache::default() }],
        notes: vec![nasty()],
        machine: pairs(),
        configuration: pairs(),
        predicted: Some(timeline.clone()),
        ..Report::default()
    };
    let page = html(&report);
    let document = parse(&page);
    assert!(!document.descendants().any(|n| n.tag_name().name() == "b"), "{page}");
    assert_eq!(page.matches("</script>").count(), 2);
    // Every text is shown; characters that XML forbids are replaced.
    let found = shown(&document).matches("<b>\"R&D\"</b> 'x' ]]> </script> \u{fffd}").count();
    assert!(found >= 30, "{found} times");
    let alone = svg(&timeline, &SvgOptions { title: nasty(), id: nasty(), ..SvgOptions::default() });
    check_picture(&alone);
}

#[test]
fn whole_pages_are_well_formed_and_fetch_nothing() {
    for report in [synthetic::full(1179, 3), synthetic::full(60, 1), synthetic::cpu_only(), Report::default()] {
        let page = html(&report);
        let document = parse(&page);
        check_numbers(&document);
        for node in document.descendants() {
            let fetches = ["src", "href", "srcset", "action"].iter().any(|a| node.has_attribute(*a));
            assert!(!fetches && node.tag_name().name() != "link", "{node:?}");
        }
        assert!(!page.contains("@import") && !page.replace("http://www.w3.org/2000/svg", "").contains("http"));
        let headings = document.descendants().filter(|n| n.tag_name().name() == "h2").count();
        let sections = document.descendants().filter(|n| n.tag_name().name() == "section").count();
        assert_eq!(headings, sections);
        // No section is empty.
        for section in document.descendants().filter(|n| n.tag_name().name() == "section") {
            assert!(section.children().filter(Node::is_element).count() >= 2, "{section:?}");
        }
    }
}

#[test]
fn a_page_shows_its_data_and_labels_simulated_hardware() {
    let page = html(&synthetic::full(60, 1));
    for part in [
        "simulated hardware",
        "Ratio to the bound",
        "1.006×",
        "87.13%",
        "dual-buffer",
        "CPU × 2, SIM × 2",
        "5.051×",
        "features by PreSC",
        "re-planned: batching became slower",
        "Transferring_PCIe_Copy",
        "budget 2.00 GiB",
        "Simulated: PCIe, SIM.",
        "% busy; simulated",
        "on sim:0 (simulated)",
    ] {
        assert!(page.contains(part), "no {part}");
    }
    let bare = html(&Report { predicted_seconds: Some(48.03), ..Report::default() });
    assert!(bare.contains("48.03 s") && !bare.contains("<section") && !bare.contains("<details"), "{bare}");
    assert!(!html(&synthetic::cpu_only()).contains("simulated hardware</span>"));
}

#[test]
fn a_confusion_matrix_is_a_table_of_shaded_cells() {
    let matrix = |classes: usize| ConfusionMatrix {
        nodes: "test".to_string(),
        classes: (0..classes).map(|i| format!("<{i}>")).collect(),
        rows: (0..classes).map(|i| (0..classes).map(|j| if i == j { 3 * i as u64 } else { 1 }).collect()).collect(),
    };
    let page = |classes| html(&Report { confusion: Some(matrix(classes)), ..Report::default() });
    let few = page(3);
    let document = parse(&few);
    let cell = |title: &str| {
        let cell = document.descendants().find(|n| n.attribute("title") == Some(title));
        cell.unwrap_or_else(|| panic!("no cell {title}"))
    };
    assert_eq!(cell("<2> as <2>: 6").attribute("style"), Some("--share:0.750"));
    assert_eq!(cell("<2> as <2>: 6").text(), Some("6"));
    assert_eq!(cell("<0> as <1>: 1").attribute("style"), Some("--share:0.500"));
    assert!(cell("<0> as <0>: 0").text().is_none());
    assert!(few.contains("75%") && few.contains("each class that test nodes have"), "{few}");
    // Of many classes, those with the most nodes; the first ones have the fewest here.
    let many = page(50);
    assert_eq!(parse(&many).descendants().filter(|n| n.has_tag_name("tr")).count(), 41);
    assert!(many.contains("the 40 most frequent of 50 classes") && !many.contains("&lt;9&gt; as"), "{many}");
    assert!(!page(0).contains("Confusion matrix"));
}

#[test]
fn compared_operators_are_shown_with_times_and_reasons() {
    let candidate = |operator: &str, outcome: &str, seconds: Option<f64>| TrainingCandidate {
        operator: operator.to_string(),
        place: "host".to_string(),
        chosen: outcome == "9 steps",
        outcome: outcome.to_string(),
        steps: 9,
        seconds,
        range: seconds.map(|s| (0.9 * s, 1.1 * s)),
    };
    let fast = candidate("Training_CPU_Fast", "9 steps", Some(0.3));
    let none = candidate("Training_CPU_None", "cannot: it does not do gin", None);
    let page = html(&Report { candidates: vec![fast, none], ..Report::default() });
    parse(&page);
    for part in ["Training operators", "Training_CPU_Fast <span class=\"badge chosen\">", "300 ms", "270 ms, 330 ms"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    assert!(page.contains("cannot: it does not do gin"));
}

#[test]
fn the_embedded_data_restores_the_timeline() {
    let report = synthetic::full(300, 2);
    let page = html(&report);
    let document = parse(&page);
    let data = document.descendants().find(|n| n.attribute("id") == Some("timelines")).expect("it is there");
    let data: serde_json::Value = serde_json::from_str(data.text().expect("it has text")).expect("JSON");
    for (embedded, timeline) in data.as_array().expect("a list").iter().zip([&report.predicted, &report.measured]) {
        let mut expected = timeline.clone().expect("both are there").activities;
        expected.sort_by(|a, b| a.start.total_cmp(&b.start));
        let column = |name: &str| -> Vec<i64> {
            embedded[name].as_array().expect("a column").iter().map(|v| v.as_i64().expect("a whole number")).collect()
        };
        let unit = embedded["unit"].as_f64().expect("a number");
        let (kind, epoch, batch, start, length) =
            (column("kind"), column("epoch"), column("batch"), column("start"), column("length"));
        assert_eq!(kind.len(), expected.len());
        let (mut at, mut in_epoch) = (0, 0);
        for (i, activity) in expected.iter().enumerate() {
            at += start[i];
            in_epoch += epoch[i];
            let kind = &embedded["kinds"][kind[i] as usize];
            assert_eq!(kind, &serde_json::json!([activity.work as usize, activity.route, activity.lanes]));
            assert_eq!((in_epoch, batch[i]), (i64::from(activity.epoch), i64::from(activity.batch)));
            assert!((at as f64 * unit - activity.start).abs() <= unit);
            assert!(((at + length[i]) as f64 * unit - activity.end).abs() <= unit);
        }
    }
}

#[test]
fn charts_have_gaps_where_values_are_missing_and_are_empty_without_any() {
    let series = |points: &[(f64, f64)]| Series { name: "a".into(), style: "first".into(), points: points.to_vec() };
    let chart =
        |points: &[(f64, f64)]| LineChart { title: "t".into(), series: vec![series(points)], ..LineChart::default() };
    assert_eq!(line_chart(&chart(&[])), "");
    assert_eq!(line_chart(&chart(&[(0.0, f64::NAN), (f64::NAN, 1.0)])), "");
    let text = line_chart(&chart(&[(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, f64::INFINITY)]));
    let document = parse(&text);
    check_numbers(&document);
    let path = |n: &Node<'_, '_>| {
        n.attribute("d").filter(|d| n.attribute("class") == Some("line first") && d.len() > 8).map(str::to_string)
    };
    let lines: Vec<String> = document.descendants().filter_map(|n| path(&n)).collect();
    assert_eq!(lines.iter().map(|d| d.matches('M').count()).collect::<Vec<_>>(), [2], "{text}");
    // Many points are thinned, and their extremes stay.
    let mut many: Vec<(f64, f64)> = (0..20_000).map(|i| (f64::from(i), f64::from(i % 7))).collect();
    many[11_111].1 = 100.0;
    let text = line_chart(&chart(&many));
    assert!(text.len() < 120_000 && text.contains(">100<"), "{} bytes", text.len());
}

fn any_time() -> impl Strategy<Value = f64> {
    prop_oneof![8 => 0.0..20.0, 2 => -1.0..1e-6, 1 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)]
}

prop_compose! {
    fn any_activity()(
        work in 0usize..4, batch in any::<u32>(), epoch in 0u32..3, route in 0usize..6,
        start in any_time(), length in any_time(), lanes in prop::collection::vec(0usize..7, 0..4),
    ) -> Bar {
        Bar { work: Work::ALL[work], batch, epoch, route, start, end: start + length, lanes }
    }
}

prop_compose! {
    fn any_timeline()(
        lanes in prop::collection::vec("\\PC{0,30}", 0..6), routes in prop::collection::vec(".{0,20}", 0..6),
        activities in prop::collection::vec(any_activity(), 0..200), seconds in any_time(),
        marks in prop::collection::vec((".{0,9}", any_time(), any_time()), 0..9),
    ) -> Timeline {
        Timeline {
            lanes: lanes.iter().map(|name| lane(name)).collect(),
            routes,
            activities,
            marks: marks.into_iter().map(|(name, start, length)| Mark { name, start, end: start + length }).collect(),
            seconds,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_timeline_is_drawn_inside_its_plot(
        timeline in any_timeline(), width in any::<u32>(), from in prop::option::of(any_time()), to in prop::option::of(any_time()),
    ) {
        check_picture(&svg(&timeline, &SvgOptions { width, from, to, title: "any <&>".into(), ..SvgOptions::default() }));
    }

    #[test]
    fn any_report_is_a_page(
        timeline in any_timeline(), values in prop::collection::vec(prop::option::of(any::<f64>()), 24), text in ".{0,40}",
    ) {
        let v = |i: usize| values[i % values.len()];
        let epochs = (0..values.len()).map(|i| Epoch {
            epoch: i as u32, seconds: v(i), predicted_seconds: v(i + 1), loss: v(i + 2), valid_loss: v(i + 3),
            train_accuracy: v(i + 4), valid_accuracy: v(i + 5), valid_score: v(i + 6), event: if i % 5 == 0 { text.clone() } else { String::new() },
        });
        let report = Report {
            title: text.clone(), predicted_seconds: v(0), measured_seconds: v(1), bound_seconds: v(2), test_accuracy: v(3),
            utilisation: vec![Utilisation { resource: text.clone(), simulated: true, predicted: v(4), measured: v(5) }],
            epochs: epochs.collect(),
            operators: vec![OperatorSeconds {
                phase: Phase::Batching, operator: text.clone(), simulated: false, profiled: v(6), deviation: v(7), measured: v(8),
            }],
            baselines: (9..14).map(|i| Baseline {
                seconds: v(i).unwrap_or(f64::NAN), ratio: v(i + 1), utilisation: vec![(text.clone(), v(i).unwrap_or(0.0))], ..Baseline::default()
            }).collect(),
            what_if: vec![WhatIf { seconds: v(14).unwrap_or(1.0), speed_up: v(15).unwrap_or(1.0), ..WhatIf::default() }],
            caches: vec![Cache { predicted_hits: v(16), measured_hits: v(17), ..Cache::default() }],
            measured: Some(timeline.clone()), predicted: Some(timeline),
            ..Report::default()
        };
        let page = html(&report);
        let document = parse(&page);
        prop_assume!(!text.contains("inf") && !text.to_lowercase().contains("nan"));
        check_numbers(&document);
    }

    #[test]
    fn any_line_is_drawn(points in prop::collection::vec((any_time(), any::<f64>()), 0..60), from_zero: bool, scale in 0usize..3) {
        let scale = [Scale::Plain, Scale::Seconds, Scale::Percent][scale];
        let series = vec![Series { name: "<&>".into(), style: "first".into(), points }];
        let text = line_chart(&LineChart { title: "any".into(), scale, from_zero, series, ..LineChart::default() });
        if !text.is_empty() {
            check_numbers(&parse(&text));
        }
    }
}

#[test]
fn hit_rates_are_put_into_a_page_as_if_they_had_been_in_its_report() {
    let line = |name: &str, style: &str, rate: f64| Series {
        name: name.into(),
        style: style.into(),
        points: vec![(0.0, 0.0), (10.0, rate), (100.0, 1.0)],
    };
    let chart = |rate| LineChart {
        title: "products: hit rate of static caches".into(),
        x_name: "cached rows, percent of all".into(),
        scale: Scale::Percent,
        from_zero: true,
        series: vec![line("in-degree", "", rate), line("<hindsight>", "", 0.9), line("this run", "measured", 0.3)],
        ..LineChart::default()
    };
    for report in [synthetic::full(60, 1), Report { title: "<!--hit rates-->".into(), ..Report::default() }] {
        let page = html(&report);
        assert!(!page.contains("Hit rates"));
        let with = |rate| html(&Report { hit_rates: Some(chart(rate)), ..report.clone() });
        let put = with_hit_rates(&page, &chart(0.5)).expect("a page");
        assert!(put == with(0.5) && with_hit_rates(&put, &chart(0.7)) == Some(with(0.7)));
        let document = parse(&put);
        check_numbers(&document);
        for part in ["Hit rates", "&lt;hindsight&gt;", "line c0", "line c1", "line measured", ".plot .line.c0"] {
            assert!(put.contains(part), "no {part}");
        }
    }
    assert_eq!(with_hit_rates("<html></html>", &chart(0.5)), None);
}

/// A bound of predictions is called one, and a prediction that follows measurements is a line of its own.
#[test]
fn the_page_tells_what_was_predicted_from_what_was_measured() {
    let epoch = |epoch: u32, predicted: f64| Epoch {
        epoch,
        seconds: Some(1.0),
        predicted_seconds: Some(predicted),
        ..Epoch::default()
    };
    let cpu =
        Utilisation { resource: "CPU".into(), predicted: Some(0.98), measured: Some(0.5), ..Utilisation::default() };
    let mut report = Report {
        predicted_seconds: Some(2.0),
        bound_seconds: Some(1.9),
        bottleneck: Some("CPU".into()),
        bottleneck_phase: Some(Phase::Training),
        utilisation: vec![cpu],
        best_epoch: Some(3),
        test_accuracy: Some(0.75),
        best_valid_accuracy: Some(0.8),
        dataset: vec![("nodes".into(), "12".into())],
        created: "2026-11-27 04:00 UTC".into(),
        epochs: [2.0, 2.0, 1.1, 1.0].into_iter().zip(0..).map(|(predicted, i)| epoch(i, predicted)).collect(),
        ..Report::default()
    };
    let page = html(&report);
    parse(&page);
    for words in [
        "of every plan, by the predicted durations",
        "Predicted bottleneck",
        "the epoch waits for its training; predicted 98% busy, measured 50% busy",
        "predicted by the first plan",
        "predicted from the epochs before",
        "validation 80.00% in epoch 3, the best",
        "<summary>Dataset</summary>",
        "2026-11-27 04:00 UTC",
    ] {
        assert!(page.contains(words), "{words}");
    }
    report.epochs.iter_mut().for_each(|epoch| epoch.predicted_seconds = Some(2.0));
    assert!(!html(&report).contains("predicted from the epochs before"), "nothing was corrected");
}

/// A plot has its whole title, and as many styles as lines.
#[test]
fn a_plot_of_many_lines_can_be_read() {
    let line = |i: usize| Series {
        name: format!("policy {i}"),
        points: vec![(0.0, 0.1), (1.0, i as f64 / 12.0)],
        ..Series::default()
    };
    let title = "a-dataset-with-a-name: hit rate of static caches, neighbour sampling by fanouts 15,10,5, expansion of all nodes";
    let chart = LineChart {
        title: title.into(),
        scale: Scale::Percent,
        series: (0..12).map(line).collect(),
        ..LineChart::default()
    };
    let text = line_chart_svg(&chart);
    let document = parse(&text);
    let class = |n: &Node<'_, '_>, c: &str| n.attribute("class").is_some_and(|v| v.split(' ').any(|w| w == c));
    let lines: Vec<&str> = document.descendants().filter(|n| class(n, "title")).filter_map(|n| n.text()).collect();
    assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    assert_eq!(lines.join(" "), title);
    let mut styles: Vec<&str> =
        document.descendants().filter(|n| class(n, "line")).filter_map(|n| n.attribute("class")).collect();
    styles.sort_unstable();
    styles.dedup();
    assert_eq!(styles.len(), 12, "{styles:?}");
    // Colours are written out: viewers of pictures do not know variables.
    let colour =
        |style: &&str| text.contains(&format!(".plot .line.{} {{ stroke: #", style.trim_start_matches("line ")));
    assert!(styles.iter().all(colour) && !text.contains("var("), "{styles:?}");
}
