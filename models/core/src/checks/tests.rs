use crate::ModelKind;
use morphgl_conformance::training::{batch, tiny};
use morphgl_registry::{Hardware, Phase};

use super::*;

const KEY: Key = Key::new(Phase::Training, Hardware::CPU, "Test");

#[track_caller]
fn check(change: impl FnOnce(&mut HostBatch), expected: &str) {
    let dataset = tiny();
    let model = ModelSpec { layers: 2, ..ModelSpec::new(ModelKind::Sage, dataset.feature_dim(), 2) };
    let mut batch = batch(&dataset, &[3, 5], 2, 0);
    change(&mut batch);
    let dim = batch.features.as_ref().map(|f| f.dim);
    match check_batch(KEY, &model, &batch, dim) {
        Ok((blocks, rows)) => assert_eq!((blocks.len(), rows, ""), (2, batch.blocks[0].num_src, expected)),
        Err(error) => {
            let expected = format!("Training_CPU_Test, {}: {expected}", batch.id);
            assert!(error.to_string().starts_with(&expected), "{error}, expected {expected}");
        }
    }
}

#[test]
fn errors_name_the_fault_of_a_mini_batch() {
    check(|_| (), "");
    check(|b| b.features = None, "it has no features");
    check(|b| b.features.as_mut().expect("gathered").dim += 1, "its features have");
    check(|b| b.blocks.truncate(1), "it has 1 blocks for 2 layers");
    check(|b| b.blocks[0].num_src += 100, "it has features of");
    check(|b| b.labels.clear(), "it has 0 labels for 2 seeds");
    check(|b| b.labels[1] = 2, "it has a seed of class 2");
    check(|b| b.degrees.clear(), "it has degrees of 0 nodes");
    check(|b| b.blocks[1].num_src = b.blocks[0].num_dst + 1, "its blocks do not feed one another");
    check(|b| b.blocks[1].indptr.truncate(2), "its blocks do not feed one another");
}

#[test]
fn a_pool_has_at_least_one_thread() {
    assert!(start_threads(KEY, 0).is_err_and(|e| e.to_string().contains("at least one")));
    assert_eq!(start_threads(KEY, 2).expect("two threads").current_num_threads(), 2);
}

#[test]
fn an_infinite_loss_is_an_error() {
    let score = |loss_sum| Score { loss_sum, ..Score::default() };
    assert!(check_loss(KEY, BatchId::default(), &score(0.5)).is_ok());
    assert!(check_loss(KEY, BatchId::default(), &score(f64::NAN)).is_err());
}
