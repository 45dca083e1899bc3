//! The relational database: its keys and times, and that labels are read from linked rows alone.

use morphgl_generate::{DEFAULT_MEMORY, RelationalConfig, RelationalTask, relational, relational_to_disk};
use morphgl_graph_store::{Dataset, OpenOptions, Types};

const NODE_TYPES: [&str; 4] = ["customer", "product", "order", "review"];

fn config() -> RelationalConfig {
    RelationalConfig { nodes: 20_000, classes: 8, dim: 16, ..RelationalConfig::default() }
}

fn types(dataset: &Dataset) -> &Types {
    dataset.topology.types().expect("the graph is typed")
}

/// Sources of a node's edges of a name.
fn linked<'d>(dataset: &'d Dataset, node: u32, name: &str) -> &'d [u32] {
    let is_named = |&(of, _): &(usize, _)| types(dataset).edge_types()[of].name == name;
    let range = dataset.topology.sub_rows(node).find(is_named).map_or(0..0, |(_, range)| range);
    &dataset.topology.indices()[range]
}

#[test]
fn every_event_points_at_one_customer_and_one_product() {
    let dataset = relational(&config()).unwrap();
    let types = types(&dataset);
    let names: Vec<&str> = types.node_types().iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, NODE_TYPES);
    let keys = [("placed_by", 2, 0), ("contains", 2, 1), ("written_by", 3, 0), ("rates", 3, 1)];
    for (name, event, entity) in keys {
        let mut edges = 0;
        for node in types.range(event) {
            let entities = linked(&dataset, node, &format!("rev_{name}"));
            assert_eq!(entities.len(), 1, "{name} of event {node}");
            assert!(types.range(entity).contains(&entities[0]));
            assert!(linked(&dataset, entities[0], name).binary_search(&node).is_ok(), "{name} of {node}, reversed");
        }
        for node in types.range(entity) {
            let events = linked(&dataset, node, name);
            assert!(events.windows(2).all(|pair| pair[0] < pair[1]));
            edges += events.len();
        }
        assert_eq!(edges, types.range(event).len(), "{name}");
    }
    let events = types.range(2).len() + types.range(3).len();
    let degree = events as f64 / types.range(0).len() as f64;
    assert!((degree / config().degree - 1.0).abs() < 0.02, "{degree} events per customer");
    let most = types.range(0).map(|customer| linked(&dataset, customer, "placed_by").len()).max().unwrap();
    assert!(most > 60, "{most} orders of the best customer, of a power law");
}

#[test]
fn events_have_days_and_the_splits_of_reviews_follow_each_other() {
    let dataset = relational(&config()).unwrap();
    let (types, times) = (types(&dataset), dataset.topology.node_times().unwrap());
    let is_entity = |node: u32| node < types.range(2).start;
    let days = 18_262..18_262 + 1_096;
    assert!((0..).zip(times.iter()).all(|(node, time)| days.contains(time) && (!is_entity(node) || *time == 18_262)));
    let labels = dataset.labels.as_ref().unwrap();
    assert!((0..).zip(labels.iter()).all(|(node, &label)| (label >= 0) == types.range(3).contains(&node)));
    let splits = [&dataset.splits.train, &dataset.splits.valid, &dataset.splits.test];
    assert_eq!(splits.iter().map(|split| split.len()).sum::<usize>(), types.range(3).len());
    for pair in splits.windows(2) {
        let last = pair[0].iter().map(|&review| times[review as usize]).max().unwrap();
        assert!(pair[1].iter().all(|&review| times[review as usize] >= last));
    }
}

#[test]
fn one_configuration_is_one_database() {
    let dir = tempfile::tempdir().unwrap();
    let on = |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let cases = [
        config(),
        RelationalConfig { nodes: 200, classes: 1, dim: 3, degree: 3.0, ..config() },
        RelationalConfig { nodes: 400_000, classes: 3, dim: 1, homophily: 0.0, seed: 4, ..config() },
        RelationalConfig { nodes: 3000, homophily: 1.0, degree: 0.8, ..config() },
        RelationalConfig { task: RelationalTask::NextOrder, ..config() },
        RelationalConfig { task: RelationalTask::NextOrder, nodes: 400_000, dim: 1, train: 0.1, seed: 4, ..config() },
    ];
    for (case, config) in cases.iter().enumerate() {
        let expected = on(1).install(|| relational(config).unwrap());
        assert_eq!(expected.num_nodes() as u64, config.nodes);
        let least = on(2).install(|| config.least_memory().unwrap());
        for (threads, memory) in [(1, DEFAULT_MEMORY), (2, least), (8, DEFAULT_MEMORY / 2)] {
            assert_eq!(on(threads).install(|| relational(config).unwrap()), expected, "{threads} threads");
            let target = dir.path().join(format!("{case}-{threads}"));
            let write = || relational_to_disk(config, &target, memory, false, &|_, _, _| {}).unwrap();
            let mut written = Dataset::open(on(threads).install(write), OpenOptions::default()).unwrap();
            written.path = expected.path.clone();
            assert_eq!(written, expected, "on disk, {threads} threads");
        }
    }
}

#[test]
fn rows_of_the_task_are_customers_on_the_day_before_an_order() {
    let reviews = relational(&config()).unwrap();
    let dataset = relational(&RelationalConfig { task: RelationalTask::NextOrder, ..config() }).unwrap();
    assert_eq!((&dataset.topology, &dataset.features_by_type), (&reviews.topology, &reviews.features_by_type));
    let (types, times) = (types(&dataset), dataset.topology.node_times().unwrap());
    let rows = dataset.task_rows.as_ref().expect("rows of a task");
    assert!(rows.times().windows(2).all(|pair| pair[0] <= pair[1]), "rows are in order of time");
    let mut of_rows: Vec<_> = rows.nodes().iter().zip(rows.times().iter()).map(|(&node, &day)| (node, day)).collect();
    let orders = types.range(2).map(|order| (linked(&dataset, order, "rev_placed_by")[0], times[order as usize] - 1));
    let mut of_orders: Vec<_> = orders.filter(|&(_, day)| day >= 18_262).collect();
    assert!(of_orders.len() < types.range(2).len(), "orders of the first day have no row");
    of_rows.sort_unstable();
    of_orders.sort_unstable();
    assert_eq!(of_rows, of_orders);
    let splits = [&dataset.splits.train, &dataset.splits.valid, &dataset.splits.test];
    let all: Vec<u32> = splits.iter().flat_map(|split| split.iter().copied()).collect();
    assert_eq!(all, (0..rows.len() as u32).collect::<Vec<_>>(), "splits follow each other");
    let labels = dataset.labels.as_ref().unwrap();
    assert!(labels.iter().all(|label| (0..8).contains(label)));
}

/// Test accuracy of the class whose mean is nearest to an example's row, of those over training examples.
fn nearest_class_mean(dataset: &Dataset, dim: usize, row: &dyn Fn(u32) -> Vec<f32>) -> f64 {
    let (classes, labels) = (dataset.num_classes, dataset.labels.as_ref().unwrap());
    let (mut means, mut counts) = (vec![0f32; classes * dim], vec![0f32; classes]);
    for &example in dataset.splits.train.iter() {
        let class = labels[example as usize] as usize;
        counts[class] += 1.0;
        means[class * dim..][..dim].iter_mut().zip(row(example)).for_each(|(mean, x)| *mean += x);
    }
    means.chunks_exact_mut(dim).zip(counts).for_each(|(mean, count)| mean.iter_mut().for_each(|x| *x /= count));
    let right = dataset.splits.test.iter().filter(|&&example| {
        let row = row(example);
        let distance =
            |class: usize| -> f32 { row.iter().zip(&means[class * dim..]).map(|(x, mean)| (x - mean).powi(2)).sum() };
        let best = (0..classes).min_by(|&a, &b| distance(a).total_cmp(&distance(b)));
        best == Some(labels[example as usize] as usize)
    });
    right.count() as f64 / dataset.splits.test.len() as f64
}

/// Features of products, and the products of events.
struct History<'d> {
    dataset: &'d Dataset,
    products: Vec<f32>,
    dim: usize,
}

impl<'d> History<'d> {
    fn new(dataset: &'d Dataset) -> Self {
        let (products, dim) = features(dataset, 1);
        Self { dataset, products, dim }
    }

    /// Features of an event's product, by the name of the edge from it.
    fn product(&self, event: u32, key: &str) -> Vec<f32> {
        let product = linked(self.dataset, event, key)[0] - types(self.dataset).range(1).start;
        self.products[product as usize * self.dim..][..self.dim].to_vec()
    }

    /// Mean features of the products of a customer's events at times that `is_known` accepts, and of `also`.
    fn mean(&self, customer: u32, is_known: impl Fn(i64) -> bool, also: Option<Vec<f32>>) -> Vec<f32> {
        let times = self.dataset.topology.node_times().unwrap();
        let mut rows: Vec<Vec<f32>> = also.into_iter().collect();
        for (key, reverse) in [("placed_by", "rev_contains"), ("written_by", "rev_rates")] {
            let events = linked(self.dataset, customer, key).iter();
            rows.extend(events.filter(|&&event| is_known(times[event as usize])).map(|&e| self.product(e, reverse)));
        }
        (0..self.dim).map(|j| rows.iter().map(|row| row[j]).sum::<f32>() / rows.len().max(1) as f32).collect()
    }
}

/// The features of the nodes of a type, and their width.
fn features(dataset: &Dataset, node_type: usize) -> (Vec<f32>, usize) {
    let matrix = dataset.features_by_type[node_type].as_ref().unwrap();
    let mut rows = vec![0f32; matrix.view().len()];
    matrix.view().to_f32(&mut rows);
    (rows, matrix.dim())
}

/// The accuracies of a review's own features, of its product's, and of the products' of its customer's earlier events.
fn accuracies(dataset: &Dataset) -> [f64; 3] {
    let (types, times, history) = (types(dataset), dataset.topology.node_times().unwrap(), History::new(dataset));
    let (own, own_dim) = features(dataset, 3);
    let product = |review: u32| history.product(review, "rev_rates");
    let earlier = |review: u32| {
        let customer = linked(dataset, review, "rev_written_by")[0];
        history.mean(customer, |time| time < times[review as usize], Some(product(review)))
    };
    let own_row = |review: u32| own[(review - types.range(3).start) as usize * own_dim..][..own_dim].to_vec();
    [
        nearest_class_mean(dataset, own_dim, &own_row),
        nearest_class_mean(dataset, history.dim, &product),
        nearest_class_mean(dataset, history.dim, &earlier),
    ]
}

#[test]
fn the_next_order_is_learned_from_the_customers_history_alone() {
    for seed in [0, 1] {
        let config = RelationalConfig { task: RelationalTask::NextOrder, seed, ..RelationalConfig::default() };
        let dataset = relational(&config).unwrap();
        let (rows, history) = (dataset.task_rows.as_ref().unwrap(), History::new(&dataset));
        let (own, own_dim) = features(&dataset, 0);
        let (node, time) = (|row: u32| rows.nodes()[row as usize], |row: u32| rows.times()[row as usize]);
        let own_row = |row: u32| own[node(row) as usize * own_dim..][..own_dim].to_vec();
        let own = nearest_class_mean(&dataset, own_dim, &own_row);
        let known = |row: u32| history.mean(node(row), |day| day <= time(row), None);
        let known = nearest_class_mean(&dataset, history.dim, &known);
        // A little, since customers of training rows are in test rows, too.
        assert!(own < 0.15, "a customer's own features reach {own} of 16 classes");
        // A share `homophily` of a customer's orders is of the customer's class.
        assert!((0.5..0.68).contains(&known), "the customer's history reaches {known}");
    }
}

#[test]
fn labels_are_learned_from_linked_rows_alone() {
    for seed in [0, 1] {
        let dataset = relational(&RelationalConfig { seed, ..RelationalConfig::default() }).unwrap();
        let [own, product, history] = accuracies(&dataset);
        assert!(own < 0.09, "a review's own features reach {own} of 16 classes");
        assert!((0.3..0.6).contains(&product), "its product's reach {product}");
        assert!(history > product + 0.2, "the customer's history reaches {history}, the product {product}");
    }
}
