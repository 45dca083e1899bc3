//! Inconsistent mini-batches are refused, by an error or by a panic, and change no state.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

use common::{batch, context, host, model};
use morphgl_graph_store::Dtype;
use morphgl_registry::{HostBatch, ModelState, Training};
use morphgl_training_cpu_native::CpuNative;
use serde_json::json;

type Corrupt = fn(&mut HostBatch);

/// Corruptions, each with the kinds of models that it affects.
const CORRUPTIONS: [(&str, &[&str], Corrupt); 11] = [
    ("a source beyond the first block", &["sage", "gcn", "gat"], |b| {
        b.blocks[0].indices[7] = b.blocks[0].num_src as u32
    }),
    ("a source beyond the last block", &["sage", "gcn", "gat"], |b| b.blocks[1].indices[7] = u32::MAX),
    ("offsets that descend", &["sage", "gcn", "gat"], |b| b.blocks[1].indptr[9] = 0),
    ("offsets beyond the edges", &["sage", "gcn", "gat"], |b| b.blocks[0].indptr[9] = u32::MAX),
    ("offsets that begin late", &["sage", "gcn", "gat"], |b| b.blocks[0].indptr[0] = 1),
    ("edges without a row", &["sage", "gcn", "gat"], |b| b.blocks[0].indices.push(0)),
    ("rows without edges", &["sage", "gcn", "gat"], |b| b.blocks[1].indices.truncate(5)),
    ("weights of some edges", &["gcn"], |b| b.blocks[1].weights = Some(vec![1.0; 5])),
    ("more source nodes than input nodes", &["sage", "gcn", "gat"], |b| b.blocks[0].num_src = 1 << 40),
    ("more seeds than rows", &["sage", "gcn", "gat", "mlp"], |b| {
        b.num_seeds = 1_000;
        b.labels.resize(1_000, 0);
    }),
    ("features of another type", &["sage", "gcn", "gat", "mlp"], |b| {
        b.features.as_mut().expect("gathered").dtype = Dtype::F64;
    }),
];

#[test]
fn inconsistent_mini_batches_are_refused_and_change_nothing() {
    let mut panics = 0;
    for (kind, hidden) in [("sage", 8), ("sage", 100), ("gcn", 8), ("gcn", 100), ("gat", 8), ("mlp", 100)] {
        let nodes = if kind == "mlp" { &[130][..] } else { &[700, 410, 130] };
        let good = |seed| batch(nodes, (100, 5), Dtype::F32, false, seed);
        let model = model(kind, 100, 5, json!({"layers": 2, "hidden": hidden}));
        let built = || CpuNative::new(&context(&model, 3)).expect("the operator is built");
        let (mut fresh, mut used) = (built(), built());
        fresh.accumulate(&host(good(1))).expect("accumulated");
        used.accumulate(&host(good(1))).expect("accumulated");
        for (what, _, corrupt) in CORRUPTIONS.iter().filter(|(_, kinds, _)| kinds.contains(&kind)) {
            let mut bad = good(2);
            corrupt(&mut bad);
            let bad = host(bad);
            for trains in [true, false] {
                let pass = || if trains { used.accumulate(&bad).is_err() } else { used.score(&bad).is_err() };
                // Suppresses the message of an expected panic.
                set_hook(Box::new(|_| ()));
                let outcome = catch_unwind(AssertUnwindSafe(pass));
                drop(take_hook());
                panics += usize::from(outcome.is_err());
                assert!(outcome.unwrap_or(true), "{kind}: {what} is not detected");
            }
            assert!(used.gradients().expect("gradients") == fresh.gradients().expect("gradients"), "{kind}: {what}");
        }
        for trainer in [&mut fresh, &mut used] {
            trainer.accumulate(&host(good(3))).expect("accumulated");
            trainer.step().expect("a step");
        }
        assert!(used.parameters().expect("parameters") == fresh.parameters().expect("parameters"), "{kind}");
    }
    assert!(panics > 0, "some corruptions are detected by the passes");
}
