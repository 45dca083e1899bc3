//! Mini-batches whose edges have importance, as random walks give it.

use morphgl_registry::{Block, HostBatch};

use super::graph::walked;
use super::numbers::{differences, same_score};
use super::{Run, accumulate, close, gradients, layers, refusal, step};

/// GraphSAGE's mean counts an edge of importance n as n edges, with gradients that are differences of the loss; GAT and MLP do not
/// read importance; GCN and GIN, which scale rows to degrees, refuse it.
pub(super) fn check(run: &Run<'_>) {
    for (what, model) in run.models() {
        let kind = model["kind"].as_str().expect("a kind");
        let walked = walked(&run.dataset, &[0, 3, 7, 10, 11, 8], layers(&model), 1);
        let on = |batch: &HostBatch| (run.subject.transfer)(batch.clone());
        let mut trainer = run.build(&model);
        if matches!(kind, "gcn" | "gin") {
            let error = refusal(&mut trainer, &on(&walked), "importance that the model does not read");
            assert!(error.contains(kind) && error.contains("importance"), "{what}: {error}");
            continue;
        }
        let mut plain = run.build(&model);
        for trainer in [&mut trainer, &mut plain] {
            // A step, so that biases are not 0.
            accumulate(trainer, &run.batch(&model, &run.all_nodes(), 0));
            step(trainer);
        }
        let of = if kind == "sage" { repeated } else { without };
        let blocks = walked.blocks.iter().map(of).collect();
        let expected = accumulate(&mut plain, &on(&HostBatch { blocks, ..walked.clone() }));
        same_score(what, &accumulate(&mut trainer, &on(&walked)), &expected);
        close(what, &gradients(&mut trainer).tensors, &gradients(&mut plain).tensors, 1e-5);
        if kind == "sage" {
            step(&mut trainer);
            differences(run, &format!("{what} by importance"), &mut trainer, &on(&walked));
        }
    }
}

/// The block with each edge as often as its importance says.
fn repeated(block: &Block) -> Block {
    let weights = block.weights.as_ref().expect("importance of every edge");
    let mut repeated = Block { indptr: vec![0], indices: Vec::new(), ..without(block) };
    for row in block.indptr.windows(2).map(|ends| ends[0] as usize..ends[1] as usize) {
        let edges = block.indices[row.clone()].iter().zip(&weights[row]);
        repeated.indices.extend(edges.flat_map(|(&source, &weight)| std::iter::repeat_n(source, weight as usize)));
        repeated.indptr.push(repeated.indices.len() as u32);
    }
    repeated
}

/// The block without importance.
fn without(block: &Block) -> Block {
    Block { weights: None, importance: false, ..block.clone() }
}
