//! The laws of a trace.

use morphgl_report::{Bar, Lane, Mark, Timeline, Trainer, Work, trace, write_trace};
use proptest::prelude::*;
use serde_json::Value;

fn events<'a>(trace: &'a Value, kind: &str) -> Vec<&'a Value> {
    trace["traceEvents"].as_array().expect("a list").iter().filter(|e| e["ph"] == kind).collect()
}

fn timeline() -> Timeline {
    let lane = |name: &str, simulated| Lane { name: name.into(), resource: name.into(), simulated };
    let activity = |work, route, start, end, lanes: &[usize]| Bar {
        work,
        batch: 3,
        epoch: 1,
        route,
        start,
        end,
        lanes: lanes.to_vec(),
    };
    Timeline {
        lanes: vec![lane("CPU \"0\" <&>", false), lane("PCIe", false), lane("SIM", true)],
        routes: vec!["by CPU".into()],
        activities: vec![
            activity(Work::Batching, 0, 0.0, 0.25, &[0]),
            activity(Work::Batching, 1, 0.1, 0.2, &[1, 2, 2]),
            activity(Work::Training, 0, f64::NAN, 1.0, &[2]),
            activity(Work::AllReduce, 0, 0.5, 0.75, &[2]),
        ],
        marks: vec![
            Mark { name: "evaluation".into(), start: 1.0, end: 1.5 },
            Mark { name: "re-planned".into(), start: 1.0, end: 1.0 },
        ],
        seconds: 2.0,
    }
}

#[test]
fn every_activity_is_written_once_a_lane_with_names_and_arguments() {
    let timeline = timeline();
    let trace = trace(&[("predicted", &timeline), ("measured", &timeline)]);
    let complete: Vec<_> = events(&trace, "X").into_iter().filter(|e| e["cat"] != "mark").collect();
    let placed: Vec<_> = complete.iter().map(|e| (e["pid"].as_u64(), e["tid"].as_u64())).collect();
    let expected = [(1, 1), (1, 2), (1, 3), (1, 3), (2, 1), (2, 2), (2, 3), (2, 3)].map(|(p, t)| (Some(p), Some(t)));
    assert_eq!(placed, expected);
    assert_eq!(complete[1]["name"], "Batching 3");
    assert_eq!((&complete[3]["name"], &complete[3]["cat"]), (&"All-reduce 3".into(), &"All-reduce".into()));
    assert_eq!((&complete[1]["ts"], &complete[1]["dur"]), (&Value::from(100_000.0), &Value::from(100_000.0)));
    // A route without a name is its number.
    assert_eq!(complete[0]["args"], serde_json::json!({ "batch": 3, "epoch": 1, "route": "by CPU" }));
    assert_eq!(complete[1]["args"]["route"], 1);
    assert_eq!(trace["otherData"]["leftOut"], 2);
    let names = |what: &str| -> Vec<&str> {
        let meta = events(&trace, "M").into_iter().filter(|e| e["name"] == what);
        meta.map(|e| e["args"]["name"].as_str().expect("a name")).collect()
    };
    assert_eq!(names("process_name"), ["predicted", "measured"]);
    assert_eq!(names("thread_name")[..4], ["CPU \"0\" <&>", "PCIe", "SIM (simulated)", "marks"]);
    assert_eq!(events(&trace, "i").len(), 2);
}

#[test]
fn a_trace_without_timelines_is_valid() {
    assert_eq!(trace(&[])["traceEvents"], serde_json::json!([]));
    assert_eq!(events(&trace(&[("empty", &Timeline::default())]), "M").len(), 2);
}

#[test]
fn a_written_trace_is_the_one_in_memory_and_errors_are_passed_on() {
    let timeline = timeline();
    let written = write_trace(Vec::new(), &[("run", &timeline)]).expect("writing to a Vec does not fail");
    let written: Value = serde_json::from_slice(&written).expect("JSON");
    assert_eq!(written, trace(&[("run", &timeline)]));
    let mut buffer = [0u8; 300];
    let error = write_trace(&mut buffer[..], &[("run", &timeline)]).expect_err("it is too small");
    assert_eq!(error.kind(), std::io::ErrorKind::WriteZero);
}

proptest! {
    #[test]
    fn times_are_never_negative_and_no_activity_is_lost(
        spans in prop::collection::vec((-1.0..50.0, -0.5..9.0, prop::collection::vec(0usize..5, 0..4)), 0..60)
    ) {
        let activities: Vec<Bar> = spans.iter().enumerate().map(|(i, (start, length, lanes))| Bar {
            work: Work::ALL[i % 4], batch: i as u32, epoch: 0, route: 0, start: *start, end: start + length, lanes: lanes.clone(),
        }).collect();
        let timeline = Timeline { lanes: vec![Lane::default(); 3], activities, ..Timeline::default() };
        let trace = trace(&[("any", &timeline)]);
        for event in events(&trace, "X") {
            prop_assert!(event["ts"].as_f64().expect("a number") >= 0.0 && event["dur"].as_f64().expect("a number") >= 0.0);
        }
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for a in timeline.activities.iter().filter(|a| a.end >= a.start && a.end >= 0.0) {
            let lanes: std::collections::BTreeSet<_> = a.lanes.iter().filter(|l| **l < 3).collect();
            expected.extend(lanes.into_iter().map(|l| (u64::from(a.batch), *l as u64 + 1)));
        }
        let id = |e: &&Value| (e["args"]["batch"].as_u64().expect("a number"), e["tid"].as_u64().expect("a number"));
        prop_assert_eq!(events(&trace, "X").iter().map(id).collect::<Vec<_>>(), expected);
        prop_assert_eq!(trace["otherData"]["leftOut"].as_u64(), Some(timeline.left_out() as u64));
    }
}

/// Timelines and reports that say "addition" for an all-reduce.
#[test]
fn earlier_names_of_an_all_reduce_are_read() {
    let work: Work = serde_json::from_str("\"Addition\"").expect("an earlier name");
    assert_eq!(work, Work::AllReduce);
    assert_eq!(serde_json::to_value(work).expect("plain data"), "AllReduce");
    let trainer: Trainer = serde_json::from_str(r#"{"addition": 0.25}"#).expect("an earlier name");
    assert_eq!(trainer.all_reduce, 0.25);
}
