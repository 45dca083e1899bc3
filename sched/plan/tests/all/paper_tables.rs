//! Tables V and X of morphgl: durations fitted to its baselines, our predicted time beside MorphGL's.
#![allow(clippy::print_stdout, reason = "the tables are worth reading")]

use crate::common::tables::{Cell, TrainingShare, markdown, mean_ratio, table_v, table_x};

#[track_caller]
fn check(cells: &[Cell]) {
    for c in cells {
        assert!((c.pipeline / c.salient - 1.0).abs() < 0.005, "SALIENT is not reproduced: {c:?}");
        assert!((c.device / c.ducati - 1.0).abs() < 0.005, "DUCATI is not reproduced: {c:?}");
        assert!(c.ours <= c.pipeline.min(c.device), "a baseline is better: {c:?}");
        assert!(c.ours <= c.paper, "the paper's algorithm is better: {c:?}");
        assert!(c.ours >= c.bound * (1.0 - 1e-9), "below the bound: {c:?}");
    }
}

#[test]
fn table_x_is_within_a_hundredth_of_the_bound() {
    for dma in [4.0, 8.0, 16.0] {
        let cells = table_x(dma);
        check(&cells);
        println!("Table X with {dma} epoch-seconds of transfers\n\n{}", markdown(&cells));
        for c in &cells {
            assert!(c.ours <= 1.01 * c.bound, "{c:?}");
            assert!(c.ours <= 1.005 * c.morphgl, "MorphGL was better: {c:?}");
        }
    }
}

#[test]
fn table_v_is_predicted_cell_by_cell() {
    let mut means = Vec::new();
    for (what, share) in [
        ("training's share from Table VI", TrainingShare::TableVi),
        ("training 0.30 of DUCATI's time", TrainingShare::Of(0.30)),
        ("training 0.45 of DUCATI's time", TrainingShare::Of(0.45)),
    ] {
        let cells = table_v(share);
        assert_eq!(cells.len(), 27);
        check(&cells);
        println!("Table V, {what}\n\n{}", markdown(&cells));
        means.push(mean_ratio(&cells));
    }
    // The paper's measurements are near the predictions of the fitted durations.
    assert!(means.iter().all(|m| (0.8..=1.1).contains(m)), "{means:?}");
}
