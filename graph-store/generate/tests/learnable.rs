//! The embedded default is worth a graph network: features alone say little, neighbourhoods say nearly all.

use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::Dataset;

/// Test accuracy of the nearest class mean, the means taken over the training nodes. With noise of the same deviation
/// in every direction this is Bayes' rule for the features alone.
fn nearest_class_mean(dataset: &Dataset, rows: &[f32]) -> f64 {
    let (dim, classes) = (dataset.feature_dim(), dataset.num_classes);
    let labels = dataset.labels.as_ref().expect("generated datasets have labels");
    let row = |v: u32| &rows[v as usize * dim..][..dim];
    let (mut means, mut counts) = (vec![0f32; classes * dim], vec![0f32; classes]);
    for &v in dataset.splits.train.iter() {
        let class = labels[v as usize] as usize;
        counts[class] += 1.0;
        means[class * dim..][..dim].iter_mut().zip(row(v)).for_each(|(m, x)| *m += x);
    }
    for (class, count) in counts.iter().enumerate() {
        means[class * dim..][..dim].iter_mut().for_each(|m| *m /= count);
    }
    let distance =
        |v: u32, c: usize| -> f32 { row(v).iter().zip(&means[c * dim..]).map(|(x, m)| (x - m).powi(2)).sum() };
    let right = dataset.splits.test.iter().filter(|&&v| {
        let best = (0..classes).min_by(|&a, &b| distance(v, a).total_cmp(&distance(v, b)));
        best == Some(labels[v as usize] as usize)
    });
    right.count() as f64 / dataset.splits.test.len() as f64
}

/// Means over each node and its neighbours.
fn averaged(dataset: &Dataset, rows: &[f32]) -> Vec<f32> {
    let dim = dataset.feature_dim();
    let mut out = rows.to_vec();
    for (v, mean) in out.chunks_exact_mut(dim).enumerate() {
        let neighbors = dataset.topology.neighbors(v as u32);
        for &u in neighbors {
            mean.iter_mut().zip(&rows[u as usize * dim..]).for_each(|(m, x)| *m += x);
        }
        mean.iter_mut().for_each(|m| *m /= (neighbors.len() + 1) as f32);
    }
    out
}

#[test]
fn neighbours_add_what_features_lack() {
    for seed in [0, 1] {
        let dataset = sbm(&SbmConfig { seed, ..SbmConfig::default() }).unwrap();
        let view = dataset.features.as_ref().unwrap().view();
        let mut raw = vec![0f32; view.len()];
        view.to_f32(&mut raw);
        let alone = nearest_class_mean(&dataset, &raw);
        let once = averaged(&dataset, &raw);
        let with_neighbours = nearest_class_mean(&dataset, &once);
        let twice = nearest_class_mean(&dataset, &averaged(&dataset, &once));
        assert!((0.55..0.70).contains(&alone), "features alone reach {alone}");
        assert!((0.90..0.99).contains(&with_neighbours), "features with neighbours reach {with_neighbours}");
        assert!(twice > with_neighbours, "a second average reaches {twice}, the first {with_neighbours}");
    }
}

#[test]
fn label_noise_lowers_the_ceiling_by_its_share() {
    let clean = SbmConfig { nodes: 20_000, ..SbmConfig::default() };
    let noisy = SbmConfig { label_noise: 0.2, ..clean.clone() };
    let (clean, noisy) = (sbm(&clean).unwrap(), sbm(&noisy).unwrap());
    assert_eq!(clean.topology, noisy.topology);
    assert_eq!(clean.features, noisy.features);
    let (a, b) = (clean.labels.unwrap(), noisy.labels.unwrap());
    let changed = a.iter().zip(b.iter()).filter(|(x, y)| x != y).count() as f64 / a.len() as f64;
    // One redrawn label in sixteen equals the old one.
    assert!((changed - 0.2 * 15.0 / 16.0).abs() < 0.01, "changed {changed}");
}
