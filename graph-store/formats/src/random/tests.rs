use super::*;

#[test]
fn normal_values_have_mean_zero_and_variance_one() {
    let n = 200_000;
    let values: Vec<f64> = (0..n).map(|i| f64::from(normal(3, i))).collect();
    let mean = values.iter().sum::<f64>() / n as f64;
    let variance = values.iter().map(|v| v * v).sum::<f64>() / n as f64 - mean * mean;
    assert!(mean.abs() < 0.01, "mean {mean}");
    assert!((variance - 1.0).abs() < 0.01, "variance {variance}");
}

#[test]
fn random_classes_are_uniform() {
    let wanted = RandomLabels { num_classes: 7, seed: 3 };
    let mut times = [0u32; 7];
    (0..70_000).for_each(|node| times[class(&wanted, node) as usize] += 1);
    // 10,000 expected each, standard deviation 93.
    assert!(times.iter().all(|&t| (9_600..10_400).contains(&t)), "{times:?}");
}

#[test]
fn a_split_is_uniform_and_disjoint() {
    let nodes: Vec<u32> = (0..10).collect();
    let mut times = [0u32; 10];
    for seed in 0..4_000 {
        let shares = RandomSplit { train: 0.3, valid: 0.2, test: 0.5, seed };
        let [train, valid, test] = split(nodes.clone(), &shares);
        assert_eq!((train.len(), valid.len(), test.len()), (3, 2, 5));
        let mut all = [train.clone(), valid, test].concat();
        all.sort_unstable();
        assert_eq!(all, nodes);
        train.iter().for_each(|&v| times[v as usize] += 1);
    }
    // 1200 expected each, standard deviation 29.
    assert!(times.iter().all(|&t| (1080..1320).contains(&t)), "{times:?}");
}
