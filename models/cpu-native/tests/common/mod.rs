//! Operators over no graph for the tests.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

pub(crate) mod agreement;
pub(crate) mod typed;

use std::sync::Arc;

pub(crate) use morphgl_conformance::training::random::{Random, batch, block, model};
use morphgl_graph_store::{Dataset, FeatureMatrix, Topology};
use morphgl_registry::{HostBatch, MiniBatch, TrainingContext};
use serde_json::{Value, json};

/// A dataset without nodes, for operators that only see mini-batches.
pub(crate) fn dataset(dim: usize, classes: usize) -> Arc<Dataset> {
    Arc::new(Dataset {
        features: Some(FeatureMatrix::F32 { data: Vec::new().into(), dim }),
        num_classes: classes,
        ..Dataset::new("none", Topology::new(vec![0u64], Vec::new(), None).expect("a graph without nodes"))
    })
}

pub(crate) fn context(model: &Value, threads: usize) -> TrainingContext {
    let size = |name: &str| model[name].as_u64().expect("a size") as usize;
    TrainingContext {
        seed: 3,
        threads,
        ..TrainingContext::new(dataset(size("in_dim"), size("num_classes")), json!({"model": model}))
    }
}

pub(crate) fn host(batch: HostBatch) -> MiniBatch {
    MiniBatch::Host(batch)
}
