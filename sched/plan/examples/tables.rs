//! Prints our predictions for Tables V and X of MorphGL as Markdown, with what they assume.
//!
//! Run: `cargo run --release -p morphgl-plan --example tables`.
#![allow(clippy::print_stdout, reason = "an example prints")]

#[path = "../tests/common/mod.rs"]
mod common;

use common::tables::{TrainingShare, markdown, table_v, table_x};

fn main() {
    println!("Epoch seconds. Simulated columns are the fit; MorphGL's are the paper's measurements.\n");
    println!(
        "## Table V, training's share of DUCATI's time from Table VI\n\n{}",
        markdown(&table_v(TrainingShare::TableVi))
    );
    for share in [0.30, 0.45] {
        println!(
            "## Table V, training {share:.2} of DUCATI's time\n\n{}",
            markdown(&table_v(TrainingShare::Of(share)))
        );
    }
    for dma in [4.0, 8.0, 16.0] {
        println!("## Table X, {dma} epoch-seconds of transfers\n\n{}", markdown(&table_x(dma)));
    }
}
