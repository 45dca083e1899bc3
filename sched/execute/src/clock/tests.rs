use std::time::{Duration, Instant};

use super::Clock;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn time_in_pieces_counts_and_a_gap_does_not() {
    let start = Instant::now();
    let mut clock = Clock::new(Some(300 * SECOND), start);
    let mut now = start;
    for _ in 0..100 {
        now += SECOND;
        clock.read(now);
    }
    assert_eq!(clock.read(now), 100 * SECOND);
    // Stopped for ten minutes.
    now += 600 * SECOND;
    assert_eq!(clock.read(now), 102 * SECOND);
    assert!(!clock.is_late(Duration::ZERO));
    assert_eq!(clock.sleep(Duration::ZERO), Some(SECOND));
    while clock.read(now) < 300 * SECOND {
        assert!(!clock.is_late(Duration::ZERO));
        now += SECOND;
    }
    assert!(clock.is_late(Duration::ZERO) && !clock.is_late(SECOND));
    assert_eq!(clock.sleep(Duration::ZERO), Some(Duration::ZERO));
    assert_eq!(now, start + 898 * SECOND);
}

#[test]
fn a_gap_takes_a_quarter_of_a_short_limit() {
    let start = Instant::now();
    let mut clock = Clock::new(Some(SECOND), start);
    clock.read(start + 50 * SECOND);
    assert_eq!(clock.ran, SECOND / 4);
    assert_eq!(clock.sleep(Duration::ZERO), Some(SECOND / 8));
    // Nothing is late without a limit, and nothing has to be looked at.
    let mut clock = Clock::new(None, start);
    clock.read(start + 50 * SECOND);
    assert!(!clock.is_late(Duration::ZERO));
    assert_eq!(clock.sleep(Duration::ZERO), None);
}
