use super::*;

#[test]
fn bags_of_words_are_sparse_and_embeddings_are_not() {
    let of =
        |dim: usize, nonzeros: usize| -> Vec<f32> { (0..300 * dim).map(|i| f32::from(i % dim < nonzeros)).collect() };
    let rows = of(100, 5);
    assert_eq!((FeatureView::F32(&rows).density(100), FeatureView::F32(&rows).is_sparse(100)), (0.05, true));
    assert!(!FeatureView::F32(&of(100, 50)).is_sparse(100));
    assert!(!FeatureView::F32(&of(16, 0)).is_sparse(16), "narrow rows");
    assert!(FeatureView::F32(&[]).density(0) == 0.0 && !FeatureView::F32(&[]).is_sparse(64), "no rows at all");
}

#[test]
fn nonzeros_of_every_type() {
    let mut bytes = vec![0u8; 100];
    [0, 15, 16, 50, 96, 99].into_iter().for_each(|i| bytes[i] = 3 + i as u8);
    let floats: Vec<f32> = bytes.iter().map(|&b| if b == 0 { -0.0 } else { f32::from(b) }).collect();
    let halves: Vec<f16> = floats.iter().map(|&x| f16::from_f32(x)).collect();
    let brains: Vec<bf16> = floats.iter().map(|&x| bf16::from_f32(x)).collect();
    let expected = [(0, 3.0), (15, 18.0), (16, 19.0), (50, 53.0), (96, 99.0), (99, 102.0)];
    for view in
        [FeatureView::F32(&floats), FeatureView::F16(&halves), FeatureView::Bf16(&brains), FeatureView::U8(&bytes)]
    {
        let mut found = Vec::new();
        view.for_nonzeros(|position, value| found.push((position, value)));
        assert_eq!(found, expected);
        let mut found = Vec::new();
        view.part(50, 47).for_nonzeros(|position, value| found.push((position, value)));
        assert_eq!(found, [(0, 53.0), (46, 99.0)]);
    }
}
