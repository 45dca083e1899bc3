use super::*;

#[test]
fn a_mini_batch_is_named_once_by_operator_or_executor() {
    let key: Key = "Batching_CPU_Fake".parse().expect("a key");
    let id = BatchId { epoch: 2, index: 7 };
    let text = |context: &str| {
        let source = morphgl_registry::Error::failed(context, "the disk is gone");
        Error::new(Some(&key), Some(id), ErrorKind::Failed(source)).to_string()
    };
    assert_eq!(text("mini-batch 7 of epoch 2"), "Batching_CPU_Fake: mini-batch 7 of epoch 2: the disk is gone");
    assert_eq!(text("disk"), "Batching_CPU_Fake: mini-batch 7 of epoch 2: disk: the disk is gone");
}
