//! A relational database of customers, products, orders and reviews: configuration and entry points.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dataset, DatasetWriter, Dtype, EdgeType, NodeType, Types};
use serde_json::json;

use crate::degrees::PowerLaw;
use crate::node_data::{NodeConfig, NodeData, share};
use crate::random::{Key, Purpose};
use crate::typed_output;
use crate::{Error, Result};
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

/// A relational database as a typed graph: customers and products are entities, orders and reviews are events with a time that point
/// at one customer and one product each.
///
/// Edge types are the foreign keys `order-placed_by-customer`, `order-contains-product`, `review-written_by-customer` and
/// `review-rates-product`, and the reverse `rev_…` of each. Customers and products have latent classes, and events mostly are of a
/// customer and a product of the same one. To predict is the class of a review's customer, which features of products alone tell
/// something of: a model reads it from the products of the customer's earlier events. Events have days as times, entities the
/// first of them; the splits of reviews follow each other in time.
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
    /// Fraction of the reviews to train on, the earliest; default 0.6. The shares may add up to less than 1.
    pub train: f64,
    /// Fraction of the reviews to validate on, the next in time; default 0.2.
    pub valid: f64,
    /// Fraction of the reviews to test on, the next in time; default 0.2.
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
    fn counts(&self) -> Result<[u64; 4]> {
        let (nodes, classes) = (self.nodes as f64, self.classes as u64);
        let customers = nodes / (1.0 + 1.0 / CUSTOMERS_PER_PRODUCT + self.degree);
        let products = (customers / CUSTOMERS_PER_PRODUCT) as u64;
        let events = |share: f64| (customers * self.degree * share) as u64 / classes * classes;
        let (orders, reviews) = (events(ORDERS), events(1.0 - ORDERS));
        let counts = [self.nodes - products - orders - reviews, products, orders, reviews];
        let few = counts.iter().zip(NODE_TYPES).find(|(count, _)| **count < classes);
        few.map_or(Ok(counts), |(count, (name, _))| {
            let what = format!("{classes} classes for the {count} nodes of type {name}");
            Err(Error::argument("classes", what, "pass fewer classes or more nodes"))
        })
    }

    /// Checks the configuration, and derives the types and the data of nodes.
    fn tables(&self) -> Result<Tables> {
        let Self { nodes, degree, classes, exponent, homophily, .. } = *self;
        let of_type = |node_type: usize, nodes: u64| {
            let (_, shift) = NODE_TYPES[node_type];
            NodeData::new(NodeConfig {
                nodes,
                classes,
                dim: if self.dim == 0 { 0 } else { (self.dim >> shift).max(1) },
                dtype: self.dtype,
                signal: if shift == 0 { self.signal } else { 0.0 },
                label_noise: 0.0,
                splits: [self.train, self.valid, self.test],
                seed: Key::new(self.seed, Purpose::NodeType).value(node_type as u64),
            })
        };
        // The products' settings, of all nodes, whose number is named in the errors.
        of_type(1, nodes)?;
        if !(degree > 0.0 && degree < nodes as f64) {
            let what = format!("{degree} events per customer among {nodes} nodes");
            return Err(Error::argument("degree", what, "pass a number above 0 and below the number of nodes"));
        }
        if !(exponent > 1.0 && exponent <= 20.0) {
            return Err(Error::argument("exponent", format!("a power law of {exponent}"), "pass above 1, at most 20"));
        }
        share("homophily", homophily)?;
        let counts = self.counts()?;
        let node_types =
            NODE_TYPES.iter().zip(counts).map(|((name, _), count)| NodeType { name: name.to_string(), count });
        let edge_type = |source: usize, name: String, target: usize| EdgeType {
            source: NODE_TYPES[source].0.into(),
            name,
            target: NODE_TYPES[target].0.into(),
        };
        let there = KEYS.iter().map(|&(name, event, entity)| edge_type(event, name.into(), entity));
        let back = KEYS.iter().map(|&(name, event, entity)| edge_type(entity, format!("rev_{name}"), event));
        let types =
            Types::new(node_types.collect(), there.chain(back).collect()).expect("distinct names of known types");
        let data = counts.iter().enumerate().map(|(t, &count)| of_type(t, count)).collect::<Result<Vec<_>>>()?;
        let law = |count: u64| {
            let largest = (count as f64 / classes as f64).sqrt().max(1.0);
            PowerLaw::with_mean(1.0, largest, exponent)
        };
        Ok(Tables { types, data, laws: [law(counts[0]), law(counts[1])], homophily, seed: self.seed })
    }
}
