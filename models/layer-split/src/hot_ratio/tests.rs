use std::time::{Duration, Instant};

use super::{Follow, HotRatio};
use crate::SuperBatches;

/// Ten super-batches of four mini-batches per epoch.
const SUPER_BATCHES: SuperBatches = SuperBatches { batches: 40, len: 4 };

/// Half a step towards the ratio at which both take as long.
fn next(ratio: f64, busy: f64, seconds: f64) -> f64 {
    (ratio * (0.5 + 0.5 * seconds / busy)).min(1.0)
}

/// Hot ratios chosen while `count` super-batches train. Each trains for one second and waits `wait` seconds for given rows; computing
/// the rows takes `cost` seconds per unit of the ratio.
fn ratios(mut ratio: HotRatio, count: u64, (cost, wait): (f64, f64)) -> Vec<f64> {
    let (mut at, mut waited) = (Instant::now(), 0.0);
    let mut chosen = vec![ratio.get()];
    for super_batch in 0..count {
        ratio.begins(super_batch, at, waited);
        let computed = *chosen.last().expect("one was chosen");
        chosen.push(ratio.get());
        ratio.computed(computed, cost * computed);
        at += Duration::from_secs_f64(1.0 + wait);
        waited += wait;
    }
    chosen
}

#[test]
fn a_fixed_ratio_stays() {
    let ratio = HotRatio::new(0.3, None, SUPER_BATCHES);
    assert_eq!(ratios(ratio, 8, (100.0, 0.5)), vec![0.3; 9]);
}

#[test]
fn the_ratio_follows_to_where_rows_take_as_long_as_training() {
    for (cost, wait) in [(2.0, 0.0), (2.0, 0.7), (5.0, 0.0)] {
        let follow = Follow { most: 1.0, next };
        let found = ratios(HotRatio::new(0.1, Some(follow), SUPER_BATCHES), 9, (cost, wait));
        assert_eq!(found[..2], [0.1, 0.1], "nothing is measured before the second super-batch ends");
        let last = found.last().expect("ratios");
        assert!((last - 1.0 / cost).abs() < 0.1 / cost, "{cost} seconds at ratio 1, waits of {wait}: {found:?}");
    }
}

#[test]
fn the_ratio_stays_below_its_limit() {
    let follow = Follow { most: 0.25, next };
    let found = ratios(HotRatio::new(0.1, Some(follow), SUPER_BATCHES), 9, (2.0, 0.0));
    assert!(found.iter().all(|&ratio| ratio <= 0.25) && found.last() == Some(&0.25), "{found:?}");
}

#[test]
fn what_follows_an_epoch_is_not_measured() {
    let follow = Follow { most: 1.0, next };
    let mut ratio = HotRatio::new(0.1, Some(follow), SUPER_BATCHES);
    let start = Instant::now();
    for super_batch in [9, 10] {
        ratio.begins(super_batch, start + Duration::from_secs(100 * super_batch), 0.0);
        ratio.computed(0.1, 0.2);
    }
    assert_eq!(ratio.get(), 0.1);
    // Nor is anything measured across super-batches that were skipped.
    ratio.begins(13, start + Duration::from_secs(2000), 0.0);
    assert_eq!(ratio.get(), 0.1);
}
