//! The same bits on any number of threads.

mod common;

use common::{batch, context, host, model};
use morphgl_graph_store::Dtype;
use morphgl_registry::{ModelState, Training};
use morphgl_training_cpu_native::CpuNative;
use serde_json::json;

#[test]
fn threads_change_no_bit() {
    for (kind, nodes) in [
        ("sage", &[9_000, 3_000, 800][..]),
        ("gcn", &[9_000, 3_000, 800]),
        ("gat", &[9_000, 3_000, 800]),
        ("mlp", &[800]),
    ] {
        // Narrow GEMMs, and some on tiles if there are any.
        for hidden in [16, 96, 132] {
            let run = |threads| {
                let model = model(
                    kind,
                    100,
                    5,
                    json!({"layers": 2, "hidden": hidden, "attention_dropout": if kind == "gat" { 0.2 } else { 0.0 }}),
                );
                let mut trainer = CpuNative::new(&context(&model, threads)).expect("the operator is built");
                for seed in 0..3 {
                    let batch = host(batch(nodes, (100, 5), Dtype::F32, false, seed));
                    trainer.accumulate(&batch).expect("accumulated");
                    trainer.step().expect("a step");
                }
                trainer.parameters().expect("parameters")
            };
            let one = run(1);
            for threads in [2, 3, 4, 7] {
                assert!(run(threads) == one, "{kind}, width {hidden}: {threads} threads give other bits than one");
            }
        }
    }
}
