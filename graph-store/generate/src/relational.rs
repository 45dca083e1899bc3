//! A relational database of customers, products, orders and reviews: configuration and entry points.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dataset, DatasetWriter, Dtype};
use serde_json::json;

use crate::Result;
use crate::node_data::NodeConfig;
use crate::schema::Schema;
use crate::typed_output;
use database::{Database, Tables};

mod database;
mod events;

/// Node types, and the share of `dim` that their features have as a shift; all but products' are noise.
const NODE_TYPES: [(&str, u32); 4] = [("customer", 2), ("product", 0), ("order", 2), ("review", 2)];

/// Foreign keys: name, events and entities.
const KEYS: [(&str, usize, usize); 4] =
    [("placed_by", 2, 0), ("contains", 2, 1), ("written_by", 3, 0), ("rates", 3, 1)];

/// Customers per product, and the share of events that are orders; the others are reviews.
const CUSTOMERS_PER_PRODUCT: f64 = 5.0;
const ORDERS: f64 = 2.0 / 3.0;

/// What is to be predicted of a relational database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RelationalTask {
    /// The class of each review's customer: reviews are the examples.
    #[default]
    ReviewClass,
    /// The class of the product that a customer orders next: examples are the rows of a task (a customer, a day, a class), one per
    /// order but those of the first day, in order of time. A row's day is the one before the order.
    NextOrder,
}

impl RelationalTask {
    /// The task's name in provenances and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReviewClass => "review-class",
            Self::NextOrder => "next-order",
        }
    }
}

/// A relational database as a typed graph: customers and products are entities, orders and reviews are events with a time that point
/// at one customer and one product each.
///
/// Edge types are the foreign keys `order-placed_by-customer`, `order-contains-product`, `review-written_by-customer` and
/// `review-rates-product`, and the reverse `rev_…` of each. Customers and products have latent classes, and events mostly are of a
/// customer and a product of the same one. To predict is the class of a review's customer, or of the product that a customer orders
/// next ([`RelationalTask`]). Features of products alone tell something of it: a model reads it from the products of the customer's
/// earlier events. Events have days as times, entities the first of them; the splits of the examples follow each other in time.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationalConfig {
    /// Number of nodes of all types: rows of all tables; default 50,000.
    pub nodes: u64,
    /// Mean number of a customer's orders and reviews; default 12.
    pub degree: f64,
    /// Number of classes, of equal size among customers and among products; default 16.
    pub classes: usize,
    /// Values a product's features have; those of other nodes are a quarter as many, and noise. Default 64.
    pub dim: usize,
    /// Stored type of the features: f32 (default), f16, bf16, or u8, which stores `128 + 24 x` rounded.
    pub dtype: Dtype,
    /// Fraction of the events whose product is drawn from the class of their customer, others from all; default 0.65.
    pub homophily: f64,
    /// Standard deviation of each coordinate of the class means of products; the noise around them has 1. Default 0.27.
    pub signal: f64,
    /// Exponent of the power law of a customer's and a product's events, above 1; default 2.5.
    pub exponent: f64,
    /// What is to be predicted; default the class of reviews.
    pub task: RelationalTask,
    /// Fraction of the reviews, or of the orders of the task, to train on, the earliest; default 0.6. The shares may add up to less than 1.
    pub train: f64,
    /// Fraction to validate on, the next in time; default 0.2.
    pub valid: f64,
    /// Fraction to test on, the next in time; default 0.2.
    pub test: f64,
    /// Seed of everything; default 0.
    pub seed: u64,
}

impl Default for RelationalConfig {
    fn default() -> Self {
        Self {
            nodes: 50_000,
            degree: 12.0,
            classes: 16,
            dim: 64,
            dtype: Dtype::F32,
            homophily: 0.65,
            signal: 0.27,
            exponent: 2.5,
            task: RelationalTask::default(),
            train: 0.6,
            valid: 0.2,
            test: 0.2,
            seed: 0,
        }
    }
}

/// Generates the database in memory, on the threads of the current rayon pool.
///
/// # Errors
///
/// An argument that is impossible by itself or with another.
///
/// # Complexity
///
/// O(nodes · (dim + log nodes)) expected.
pub fn relational(config: &RelationalConfig) -> Result<Dataset> {
    Ok(typed_output::in_memory(&Database::new(config.tables()?), config.name()))
}

/// Generates the same database as [`relational`] into a dataset at `target`, within `memory` bytes besides those of the process
/// before.
///
/// `progress` is called with (stage, nodes done, nodes in all) by one thread at a time; the stages are "edges", "features" and
/// "labels".
///
/// # Errors
///
/// As [`relational`]; `memory` is less than [`RelationalConfig::least_memory`]; `target` exists and `replace` is false; an IO error.
pub fn relational_to_disk(
    config: &RelationalConfig,
    target: &Path,
    memory: u64,
    replace: bool,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Result<PathBuf> {
    let tables = config.tables()?;
    let plan = tables.footprint().plan(memory, rayon::current_num_threads())?;
    let writer = DatasetWriter::create(target, replace)?;
    progress("edges", 0, config.nodes);
    let provenance = [
        ("generator", json!("relational")),
        ("degree", json!(config.degree)),
        ("dim", json!(config.dim)),
        ("signal", json!(config.signal)),
        ("seed", json!(config.seed)),
        ("homophily", json!(config.homophily)),
        ("exponent", json!(config.exponent)),
        ("task", json!(config.task.name())),
    ];
    typed_output::to_disk(&Database::new(tables), writer, &config.name(), &provenance, plan, progress)
}

impl RelationalConfig {
    /// The minimum memory for [`relational_to_disk`] on the threads of the current rayon pool: 8 bytes per customer and product and
    /// two blocks of rows or features, besides the buffers of the writers and the memory of threads.
    ///
    /// # Errors
    ///
    /// As [`relational`].
    pub fn least_memory(&self) -> Result<u64> {
        Ok(self.tables()?.footprint().min_memory(rayon::current_num_threads()))
    }

    fn name(&self) -> String {
        format!("relational-{}", self.nodes)
    }

    /// Numbers of nodes by type. The events of a kind are as many in each class.
    fn counts(&self) -> [u64; 4] {
        let (nodes, classes) = (self.nodes as f64, self.classes as u64);
        let customers = nodes / (1.0 + 1.0 / CUSTOMERS_PER_PRODUCT + self.degree);
        let products = (customers / CUSTOMERS_PER_PRODUCT) as u64;
        let events = |share: f64| (customers * self.degree * share) as u64 / classes * classes;
        let (orders, reviews) = (events(ORDERS), events(1.0 - ORDERS));
        [self.nodes - products - orders - reviews, products, orders, reviews]
    }

    /// Checks the configuration, and derives the types and the data of nodes.
    fn tables(&self) -> Result<Tables> {
        let schema = Schema {
            node_types: NODE_TYPES.map(|(name, _)| name),
            edge_types: KEYS,
            // The products' settings.
            all: &NodeConfig {
                nodes: self.nodes,
                classes: self.classes,
                dim: self.dim,
                dtype: self.dtype,
                signal: self.signal,
                label_noise: 0.0,
                splits: [self.train, self.valid, self.test],
                seed: self.seed,
            },
            degree: self.degree,
            degree_unit: "events per customer among",
            exponent: self.exponent,
            homophily: self.homophily,
        };
        schema.check()?;
        let counts = self.counts();
        schema.check_counts(counts)?;
        let features = |node_type: usize| match NODE_TYPES[node_type] {
            (_, 0) => (self.dim, self.signal),
            (_, shift) => ((self.dim >> shift).max(1), 0.0),
        };
        Ok(Tables {
            types: schema.types(counts),
            data: schema.data(counts, features)?,
            laws: [0, 1].map(|entity| schema.degree_law(counts[entity], 1.0)),
            homophily: self.homophily,
            seed: self.seed,
            task: self.task,
        })
    }
}
