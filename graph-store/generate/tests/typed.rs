//! The typed block model: its types, what its edges are like, and that the class is learned from edges by type.

use morphgl_generate::{DEFAULT_MEMORY, TypedConfig, TypedFeatures, typed, typed_to_disk};
use morphgl_graph_store::{Dataset, OpenOptions, Types};

const CITES: usize = 2;

fn config(nodes: u64) -> TypedConfig {
    TypedConfig { nodes, classes: 8, dim: 16, ..TypedConfig::default() }
}

fn types(dataset: &Dataset) -> &Types {
    dataset.topology.types().expect("the graph is typed")
}

/// Sub-row of an edge type.
fn row(dataset: &Dataset, node: u32, edge_type: usize) -> &[u32] {
    let range = dataset.topology.sub_rows(node).find(|(of, _)| *of == edge_type).map_or(0..0, |(_, range)| range);
    &dataset.topology.indices()[range]
}

#[test]
fn nodes_and_edges_are_in_the_proportions_of_ogbn_mag() {
    let config = config(50_000);
    let dataset = typed(&config).unwrap();
    let types = types(&dataset);
    let counts: Vec<_> = types.node_types().iter().map(|of| (of.name.as_str(), of.count)).collect();
    assert_eq!(counts, [("paper", 18_980), ("author", 29_250), ("institution", 225), ("field_of_study", 1_545)]);
    let names: Vec<String> = types.edge_types().iter().map(ToString::to_string).collect();
    assert_eq!(names[..3], ["author-writes-paper", "author-affiliated_with-institution", "paper-cites-paper"]);
    assert_eq!(names[4..6], ["paper-rev_writes-author", "institution-rev_affiliated_with-author"]);
    let mut edges = [0u64; 8];
    dataset.topology.edge_types().unwrap().iter().for_each(|&of| edges[usize::from(of)] += 1);
    for (relation, share) in [0.3385, 0.0495, 0.2565, 0.3555].into_iter().enumerate() {
        let drawn = share * config.degree * config.nodes as f64;
        let kept = edges[relation] as f64 / drawn;
        assert!((0.85..1.03).contains(&kept), "{}: {} of {drawn} drawn", names[relation], edges[relation]);
        assert_eq!(edges[relation], edges[relation + 4], "{} and its reverse", names[relation]);
    }
}

#[test]
fn rows_ascend_and_every_edge_has_its_reverse() {
    let dataset = typed(&config(4000)).unwrap();
    for node in 0..dataset.num_nodes() as u32 {
        for (edge_type, range) in dataset.topology.sub_rows(node) {
            let sources = &dataset.topology.indices()[range];
            assert!(sources.windows(2).all(|pair| pair[0] < pair[1]), "row {node} of type {edge_type}: {sources:?}");
            for &source in sources {
                let back = row(&dataset, source, (edge_type + 4) % 8);
                assert!(back.binary_search(&node).is_ok(), "{source} to {node} of type {edge_type} has no reverse");
                assert_ne!(source, node);
            }
        }
    }
}

#[test]
fn papers_cite_no_later_ones_and_the_splits_follow_each_other() {
    let dataset = typed(&config(4000)).unwrap();
    let times = dataset.topology.node_times().unwrap();
    let papers = types(&dataset).range(0);
    for paper in papers.clone() {
        assert!(row(&dataset, paper, CITES).iter().all(|&citing| times[citing as usize] >= times[paper as usize]));
    }
    assert!(papers.clone().all(|paper| (1990..2020).contains(&times[paper as usize])));
    assert!(times[papers.end as usize..].iter().all(|&time| time == 1990));
    let labels = dataset.labels.as_ref().unwrap();
    assert!(labels.iter().enumerate().all(|(node, &label)| (label >= 0) == papers.contains(&(node as u32))));
    let splits = [&dataset.splits.train, &dataset.splits.valid, &dataset.splits.test];
    assert_eq!(splits.map(|split| split.len()).iter().sum::<usize>(), papers.len());
    for pair in splits.windows(2) {
        let last = pair[0].iter().map(|&paper| times[paper as usize]).max().unwrap();
        let first = pair[1].iter().map(|&paper| times[paper as usize]).min().unwrap();
        assert!(last <= first, "{last} and {first}");
    }
}

#[test]
fn features_are_of_papers_of_types_or_of_all() {
    let base = TypedConfig { nodes: 3000, dim: 12, classes: 4, ..TypedConfig::default() };
    let dims = |features: TypedFeatures| {
        let dataset = typed(&TypedConfig { features, ..base.clone() }).unwrap();
        let of_types = dataset.features_by_type.iter();
        let of_types = of_types.map(|matrix| matrix.as_ref().map(|m| (m.num_rows(), m.dim()))).collect::<Vec<_>>();
        (dataset.features.map(|m| (m.num_rows(), m.dim())), of_types)
    };
    let papers = Some((1139, 12));
    assert_eq!(dims(TypedFeatures::Papers), (None, vec![papers, None, None, None]));
    assert_eq!(dims(TypedFeatures::ByType), (None, vec![papers, Some((1755, 6)), Some((13, 3)), Some((93, 1))]));
    assert_eq!(dims(TypedFeatures::All), (Some((3000, 12)), vec![]));
}

#[test]
fn one_configuration_is_one_graph() {
    let dir = tempfile::tempdir().unwrap();
    let (mut cases, on) =
        (Vec::new(), |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap());
    for features in [TypedFeatures::Papers, TypedFeatures::ByType, TypedFeatures::All] {
        cases.push(TypedConfig { nodes: 30_000, dim: 9, features, ..TypedConfig::default() });
    }
    cases.push(TypedConfig { nodes: 900, classes: 1, homophily: 1.0, seed: 5, ..TypedConfig::default() });
    cases.push(TypedConfig {
        nodes: 60_000,
        classes: 2,
        homophily: 0.0,
        degree: 0.5,
        seed: 9,
        ..TypedConfig::default()
    });
    for (case, config) in cases.iter().enumerate() {
        let expected = on(1).install(|| typed(config).unwrap());
        let least = on(2).install(|| config.least_memory().unwrap());
        for (threads, memory) in [(1, DEFAULT_MEMORY), (2, least), (8, DEFAULT_MEMORY / 2)] {
            assert_eq!(on(threads).install(|| typed(config).unwrap()), expected, "{threads} threads");
            let target = dir.path().join(format!("{case}-{threads}"));
            let write = || typed_to_disk(config, &target, memory, false, &|_, _, _| {}).unwrap();
            let mut written = Dataset::open(on(threads).install(write), OpenOptions::default()).unwrap();
            written.path = expected.path.clone();
            assert_eq!(written, expected, "on disk, {threads} threads");
        }
    }
}

/// Accuracy of naive Bayes on test papers, from the labels of training papers that lie at the end of a path: cited and citing ones,
/// and those that share an author. With `by_path` each kind of path has a table of its own.
fn naive_bayes(dataset: &Dataset, by_path: bool) -> f64 {
    let (classes, labels) = (dataset.num_classes, dataset.labels.as_ref().unwrap());
    let mut is_train = vec![false; dataset.num_nodes()];
    dataset.splits.train.iter().for_each(|&paper| is_train[paper as usize] = true);
    let votes = |paper: u32| -> Vec<(usize, usize)> {
        let of_authors = row(dataset, paper, 0).iter().flat_map(|&author| row(dataset, author, 4));
        let paths = row(dataset, paper, CITES).iter().map(|&u| (0, u));
        let paths = paths.chain(row(dataset, paper, CITES + 4).iter().map(|&u| (1, u)));
        let paths = paths.chain(of_authors.map(|&u| (2, u)));
        let known = paths.filter(|&(_, u)| is_train[u as usize] && u != paper);
        known.map(|(path, u)| (if by_path { path } else { 0 }, labels[u as usize] as usize)).collect()
    };
    let mut counts = vec![1f64; 3 * classes * classes];
    for &paper in dataset.splits.train.iter() {
        let of = labels[paper as usize] as usize;
        votes(paper).into_iter().for_each(|(path, vote)| counts[(path * classes + of) * classes + vote] += 1.0);
    }
    let log: Vec<f64> = counts
        .chunks_exact(classes)
        .flat_map(|row| row.iter().map(|count| (count / row.iter().sum::<f64>()).ln()))
        .collect();
    let right = dataset.splits.test.iter().filter(|&&paper| {
        let votes = votes(paper);
        let score =
            |of: usize| votes.iter().map(|&(path, vote)| log[(path * classes + of) * classes + vote]).sum::<f64>();
        let best = (0..classes).max_by(|&a, &b| score(a).total_cmp(&score(b)));
        best == Some(labels[paper as usize] as usize)
    });
    right.count() as f64 / dataset.splits.test.len() as f64
}

/// Test accuracy of the nearest class mean of a paper's features, means over the training papers.
fn features_alone(dataset: &Dataset) -> f64 {
    let (classes, labels) = (dataset.num_classes, dataset.labels.as_ref().unwrap());
    let matrix = dataset.features_by_type[0].as_ref().unwrap();
    let (dim, mut rows) = (matrix.dim(), vec![0f32; matrix.view().len()]);
    matrix.view().to_f32(&mut rows);
    let (mut means, mut counts) = (vec![0f32; classes * dim], vec![0f32; classes]);
    for &paper in dataset.splits.train.iter() {
        let class = labels[paper as usize] as usize;
        counts[class] += 1.0;
        means[class * dim..][..dim].iter_mut().zip(&rows[paper as usize * dim..]).for_each(|(mean, x)| *mean += x);
    }
    means.chunks_exact_mut(dim).zip(counts).for_each(|(mean, count)| mean.iter_mut().for_each(|x| *x /= count));
    let distance = |paper: u32, class: usize| -> f32 {
        let row = &rows[paper as usize * dim..][..dim];
        row.iter().zip(&means[class * dim..]).map(|(x, mean)| (x - mean).powi(2)).sum()
    };
    let right = dataset.splits.test.iter().filter(|&&paper| {
        let best = (0..classes).min_by(|&a, &b| distance(paper, a).total_cmp(&distance(paper, b)));
        best == Some(labels[paper as usize] as usize)
    });
    right.count() as f64 / dataset.splits.test.len() as f64
}

#[test]
fn edges_tell_the_class_and_their_types_more_of_it() {
    for seed in [0, 1] {
        let dataset = typed(&TypedConfig { seed, ..TypedConfig::default() }).unwrap();
        let (features, mixed, by_path) =
            (features_alone(&dataset), naive_bayes(&dataset, false), naive_bayes(&dataset, true));
        assert!((0.55..0.7).contains(&features), "features alone reach {features}");
        assert!(by_path > features + 0.2, "edges by type reach {by_path}, features {features}");
        assert!(by_path > mixed + 0.02, "edges by type reach {by_path}, as one {mixed}");
    }
}
