//! Structure of the block model's graphs: degrees, homophily, classes, symmetry, order of rows.

use morphgl_generate::{SbmConfig, sbm};
use morphgl_graph_store::{Dataset, Topology};

/// Rows sorted, no duplicates, no self-loops; the reverse of each edge where `symmetric`.
#[track_caller]
fn check_rows(topology: &Topology, symmetric: bool) {
    for v in 0..topology.num_nodes() as u32 {
        let row = topology.neighbors(v);
        assert!(row.windows(2).all(|w| w[0] < w[1]), "row {v} is not strictly increasing");
        assert!(row.binary_search(&v).is_err(), "node {v} has a self-loop");
        for &u in row {
            assert!(!symmetric || topology.neighbors(u).binary_search(&v).is_ok(), "edge {u}-{v} has no reverse");
        }
    }
}

fn mean_degree(dataset: &Dataset) -> f64 {
    dataset.topology.num_edges() as f64 / dataset.num_nodes() as f64
}

fn homophily(dataset: &Dataset) -> f64 {
    let labels = dataset.labels.as_ref().unwrap();
    let inside: usize = (0..dataset.num_nodes())
        .map(|v| dataset.topology.neighbors(v as u32).iter().filter(|&&u| labels[u as usize] == labels[v]).count())
        .sum();
    inside as f64 / dataset.topology.num_edges() as f64
}

#[track_caller]
fn check(config: &SbmConfig) {
    let dataset = sbm(config).unwrap();
    assert_eq!(dataset.num_nodes() as u64, config.nodes);
    check_rows(&dataset.topology, true);
    let (degree, inside) = (mean_degree(&dataset), homophily(&dataset));
    assert!((degree / config.degree - 1.0).abs() < 0.02, "mean degree {degree} for {config:?}");
    assert!((inside - config.homophily).abs() < 0.015, "homophily {inside} for {config:?}");
    let mut sizes = vec![0u64; config.classes];
    dataset.labels.as_ref().unwrap().iter().for_each(|&l| sizes[l as usize] += 1);
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(most - least <= 1, "classes have between {least} and {most} nodes");
}

#[test]
fn the_default_has_its_degree_and_homophily() {
    check(&SbmConfig::default());
}

#[test]
fn dense_sparse_heterophilous_and_single_class_graphs_hold_too() {
    let base = SbmConfig { nodes: 6000, dim: 4, seed: 3, ..SbmConfig::default() };
    for (degree, classes, homophily, exponent) in [
        (10.0, 4, 0.0, 2.5),
        (10.0, 4, 0.25, 2.0),
        (60.0, 6, 0.9, 2.2),
        (400.0, 10, 0.5, 3.0),
        (3.0, 40, 0.8, 2.5),
        (20.0, 1, 1.0, 2.5),
        (20.0, 3, 1.0, 8.0),
    ] {
        check(&SbmConfig { degree, classes, homophily, exponent, ..base.clone() });
    }
}

#[test]
fn degrees_follow_the_power_law() {
    let dataset = sbm(&SbmConfig { nodes: 200_000, classes: 4, dim: 1, ..SbmConfig::default() }).unwrap();
    let degrees: Vec<f64> = (0..200_000).map(|v| dataset.topology.degree(v) as f64).collect();
    let largest = degrees.iter().copied().fold(0.0, f64::max);
    assert!(largest > 30.0 * 15.0, "the largest degree is {largest}");
    // Slope of the density over bins that double, clear of the Poisson smear below and of the cut-off above.
    let bins = [(30.0, 60.0), (60.0, 120.0), (120.0, 240.0), (240.0, 480.0)];
    let density = bins.map(|(a, b)| (degrees.iter().filter(|&&d| d >= a && d < b).count() as f64 / (b - a)).log2());
    for (i, pair) in density.windows(2).enumerate() {
        let slope = pair[1] - pair[0];
        assert!((slope + 2.5).abs() < 0.25, "slope {slope} after bin {i}");
    }
}

#[test]
fn splits_part_the_nodes_at_random() {
    let config =
        SbmConfig { nodes: 1003, train: 0.5, valid: 0.1, test: 0.25, dim: 1, classes: 2, ..Default::default() };
    let splits = sbm(&config).unwrap().splits;
    assert_eq!([splits.train.len(), splits.valid.len(), splits.test.len()], [502, 100, 251]);
    let mut all: Vec<u32> = [&splits.train, &splits.valid, &splits.test].into_iter().flat_map(|s| s.to_vec()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 853, "a node is in two splits");
    let first_half = splits.train.iter().filter(|&&v| v < 501).count();
    assert!((200..300).contains(&first_half), "{first_half} training nodes lie in the first half");
}

#[test]
fn tiny_graphs_are_graphs() {
    for nodes in 4..12 {
        let config = SbmConfig { nodes, degree: 0.5, classes: 2, homophily: 0.5, dim: 1, ..SbmConfig::default() };
        check_rows(&sbm(&config).unwrap().topology, true);
    }
}
