use super::*;
use crate::Lane;

fn activity(start: f64, end: f64, lanes: &[usize]) -> Bar {
    Bar { work: Work::Training, batch: 0, epoch: 0, route: 0, start, end, lanes: lanes.to_vec() }
}

#[test]
fn undrawable_activities_are_counted_and_overlapping_time_counts_once() {
    let timeline = Timeline {
        lanes: vec![Lane::default(); 2],
        activities: vec![
            activity(2.0, 3.0, &[0, 1, 1, 7]),
            activity(0.0, 1.0, &[0]),
            activity(0.5, 1.5, &[0]),
            activity(-1.0, 0.5, &[1]),
            activity(f64::NAN, 1.0, &[0]),
            activity(0.0, f64::INFINITY, &[0]),
            activity(2.0, 1.0, &[0]),
            activity(-2.0, -1.0, &[0]),
            activity(0.0, 1.0, &[2]),
            activity(0.0, 1.0, &[]),
        ],
        seconds: 5.0,
        ..Timeline::default()
    };
    let rows = TimelineRows::new(&timeline);
    assert_eq!(rows.left_out, 6);
    assert_eq!(rows.lanes[0].iter().map(|b| b.start).collect::<Vec<_>>(), [0.0, 0.5, 2.0]);
    assert_eq!(rows.lanes[1].iter().map(|b| b.start).collect::<Vec<_>>(), [0.0, 2.0]);
    assert_eq!(timeline.utilisation(), [2.5 / 5.0, 1.5 / 5.0]);
    assert_eq!(rows.utilisation(&rows.lanes[0], 0.5, 2.5), 1.5 / 2.0);
}
