use std::time::Duration;

use super::{Every, is_affordable};

#[test]
fn intervals_are_times_or_mini_batches() {
    let seconds = |s| Ok(Every::Time(Duration::from_secs(s)));
    for (text, expected) in [
        ("600s", seconds(600)),
        ("10m", seconds(600)),
        ("1.5h", seconds(5400)),
        ("500b", Ok(Every::Batches(500))),
        ("0s", seconds(0)),
    ] {
        assert_eq!(text.parse(), expected, "{text}");
    }
    for text in ["", "s", "600", "0b", "-1s", "1.5b", "nans", "infs", "1e300h", "ten minutes", "5 batches"] {
        let error = text.parse::<Every>().expect_err(text);
        assert!(error.contains("600s") && error.contains("500b"), "{error}");
    }
}

/// Runs of any length: after short epochs and with durations that vary, checkpoints have taken at most 1% of the time, and are kept
/// as often as that nearly allows.
#[test]
fn checkpoints_take_a_hundredth_of_the_time_at_most() {
    let millis = Duration::from_millis;
    for (epoch, durations) in [(27, [20, 20]), (5, [1, 1]), (3, [7, 2]), (2000, [20, 35]), (60_000, [300, 700])] {
        let (mut elapsed, mut since, mut spent, mut took) =
            (millis(0), millis(0), millis(durations[0]), millis(durations[0]));
        let (mut kept, longest) = (0, millis(durations[0].max(durations[1])));
        for _ in 0..2000 {
            (elapsed, since) = (elapsed + millis(epoch), since + millis(epoch));
            if is_affordable(elapsed, since, spent, took) {
                took = millis(durations[kept % 2]);
                (elapsed, since, spent, kept) = (elapsed + took, millis(0), spent + took, kept + 1);
                // A checkpoint that takes longer than the one before it may exceed that by the difference.
                assert!(100 * spent <= elapsed + 100 * (longest - millis(durations[0].min(durations[1]))), "{kept}");
            }
        }
        let most = elapsed.as_secs_f64() / 100.0 / longest.as_secs_f64();
        assert!(kept as f64 >= (most.min(2000.0) * 0.6).floor() - 1.0, "{kept} of {most}");
    }
}
