use proptest::prelude::*;

use super::{Line, lines, min_seconds};

proptest! {
    #[test]
    fn no_run_is_below_a_line(transfer in 0.01f64..10.0, step in 0.01f64..10.0, ready in 1usize..20,
                              transfers in 0usize..200, steps in 0usize..400) {
        let steps = steps.min(ready + transfers);
        let seconds = min_seconds(transfers, steps, (transfer, step), ready);
        for line in lines(transfer, step, ready) {
            let bound = line.transfer * transfers as f64 + line.step * steps as f64;
            prop_assert!(bound <= seconds * (1.0 + 1e-9) + 1e-12, "{line:?}: {bound} above {seconds}");
        }
    }

    #[test]
    fn the_fluid_loads_are_never_above_all_lines(transfer in 0.01f64..10.0, step in 0.01f64..10.0,
                                                 ready in 1usize..20, share in 0.0f64..1.0) {
        // For one mini-batch, `share` of it transferred: the lines are at least the loads of bus and device alone.
        let of = |line: &Line| line.transfer * share + line.step;
        let bound = lines(transfer, step, ready).iter().map(of).fold(0.0, f64::max);
        prop_assert!(bound >= (share * transfer).max(step) * (1.0 - 1e-9));
    }
}

#[test]
fn a_transfer_of_six_and_a_half_steps_is_never_hidden_evenly() {
    // Seven steps beside it leave the bus idle for half a step, six leave the device.
    let lines = lines(6.5, 1.0, 10);
    let at = |steps: f64| lines.iter().map(|l| l.transfer + l.step * steps).fold(0.0, f64::max);
    assert!((at(7.0) - 7.0).abs() < 1e-9 && (at(6.0) - 6.5).abs() < 1e-9, "{lines:?}");
    assert!(at(6.5) > 6.7, "{lines:?}");
}
