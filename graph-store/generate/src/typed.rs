//! A typed block model of publications: configuration and entry points.

use std::path::{Path, PathBuf};

use morphgl_graph_store::{Dataset, DatasetWriter, Dtype, Types};
use serde_json::json;

use crate::node_data::{NodeConfig, NodeData};
use crate::relations::{End, Relation, Relations};
use crate::schema::Schema;
use crate::typed_output::{self, TypedModel};
use crate::typed_rows::{TypedBuffers, TypedRows};
use crate::{Error, Result};

/// The first year of papers, which is the time of all other nodes as well, and the number of years.
const FIRST_YEAR: i64 = 1990;
const YEARS: u64 = 30;

/// Node types with their shares of the nodes in ogbn-mag.
const NODE_TYPES: [(&str, f64); 4] =
    [("paper", 0.3796), ("author", 0.5850), ("institution", 0.0045), ("field_of_study", 0.0309)];

/// Edge types: name, source, target, and share of the edges in ogbn-mag.
const RELATIONS: [(&str, usize, usize, f64); 4] =
    [("writes", 1, 0, 0.3385), ("affiliated_with", 1, 2, 0.0495), ("cites", 0, 0, 0.2565), ("has_topic", 0, 3, 0.3555)];

/// Mean of the expected degrees that a node is drawn by, in units that rounding to 1/64 leaves alone.
const MEAN: f64 = 16.0;

/// Node types that have features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TypedFeatures {
    /// Papers alone.
    #[default]
    Papers,
    /// All, each type with a width of its own: `dim` of papers, a half, a quarter and an eighth of authors, institutions and fields.
    ByType,
    /// All, in one matrix of `dim` columns.
    All,
}

/// A graph of papers, authors, institutions and fields of study, in the proportions of ogbn-mag.
///
/// Edge types are `author-writes-paper`, `author-affiliated_with-institution`, `paper-cites-paper` and
/// `paper-has_topic-field_of_study`, and the reverse `rev_…` of each. Every node belongs to a block, the class of a paper and
/// latent in the other types; authors, institutions and fields are mostly those of a paper's own block, while a paper mostly cites
/// earlier papers of the next block: what a neighbour says of the class depends on the edge's type. Papers have years as times,
/// all other nodes the first of them; the splits of papers follow each other in time.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedConfig {
    /// Number of nodes of all types; default 50,000.
    pub nodes: u64,
    /// Edges drawn per node, reverses not counted; default 10.9. Duplicates are then dropped, so a graph has fewer.
    pub degree: f64,
    /// Number of classes, which are also the blocks, of equal size in each type; default 16.
    pub classes: usize,
    /// Values a paper's features have; default 64.
    pub dim: usize,
    /// Stored type of the features: f32 (default), f16, bf16, or u8, which stores `128 + 24 x` rounded.
    pub dtype: Dtype,
    /// Node types that have features; default papers.
    pub features: TypedFeatures,
    /// Fraction of the edges of each type that lead to the block of the type's: a node's own, or of cited papers the next; default
    /// 0.65.
    pub homophily: f64,
    /// Standard deviation of each coordinate of the block means; the noise around them has 1. Default 0.27.
    pub signal: f64,
    /// Exponent of the power law of an author's papers, a paper's citations, and the nodes of an institution or field, above 1;
    /// default 2.5.
    pub exponent: f64,
    /// Fraction of the papers to train on, the earliest; default 0.6. The shares may add up to less than 1.
    pub train: f64,
    /// Fraction of the papers to validate on, the next in time; default 0.2.
    pub valid: f64,
    /// Fraction of the papers to test on, the next in time; default 0.2.
    pub test: f64,
    /// Seed of everything; default 0.
    pub seed: u64,
}

impl Default for TypedConfig {
    fn default() -> Self {
        Self {
            nodes: 50_000,
            degree: 10.9,
            classes: 16,
            dim: 64,
            dtype: Dtype::F32,
            features: TypedFeatures::Papers,
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

/// Generates the graph in memory, on the threads of the current rayon pool.
///
/// # Errors
///
/// An argument that is impossible by itself or with another.
///
/// # Complexity
///
/// O(nodes · dim + edges) expected; every edge is drawn twice, once for each direction.
pub fn typed(config: &TypedConfig) -> Result<Dataset> {
    let parts = config.relations()?;
    Ok(typed_output::in_memory(&Publications::new(config, parts, rayon::current_num_threads()), config.name()))
}

/// Generates the same graph as [`typed`] into a dataset at `target`, within `memory` bytes besides those of the process before.
///
/// `progress` is called with (stage, nodes done, nodes in all) by one thread at a time; the stages are "edges", "features" and
/// "labels".
///
/// # Errors
///
/// As [`typed`]; `memory` is less than [`TypedConfig::least_memory`]; `target` exists and `replace` is false; an IO error.
pub fn typed_to_disk(
    config: &TypedConfig,
    target: &Path,
    memory: u64,
    replace: bool,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Result<PathBuf> {
    let relations = config.relations()?;
    let plan = relations.footprint().plan(memory, rayon::current_num_threads())?;
    let writer = DatasetWriter::create(target, replace)?;
    progress("edges", 0, config.nodes);
    let model = Publications::new(config, relations, plan.builders);
    let provenance = [
        ("generator", json!("typed")),
        ("degree", json!(config.degree)),
        ("homophily", json!(config.homophily)),
        ("exponent", json!(config.exponent)),
    ];
    typed_output::to_disk(&model, writer, &config.name(), &provenance, plan, progress)
}

impl TypedConfig {
    /// The minimum memory for [`typed_to_disk`] on the threads of the current rayon pool: 12 bytes per node and two blocks of rows or
    /// features, besides the buffers of the writers and the memory of threads.
    ///
    /// # Errors
    ///
    /// As [`typed`].
    pub fn least_memory(&self) -> Result<u64> {
        Ok(self.relations()?.footprint().min_memory(rayon::current_num_threads()))
    }

    fn name(&self) -> String {
        format!("typed-{}", self.nodes)
    }

    /// Numbers of nodes by type.
    fn counts(&self) -> [u64; 4] {
        let of = |share: f64| (share * self.nodes as f64).round() as u64;
        let others: u64 = NODE_TYPES[1..].iter().map(|&(_, share)| of(share)).sum();
        [self.nodes - others, of(NODE_TYPES[1].1), of(NODE_TYPES[2].1), of(NODE_TYPES[3].1)]
    }

    /// Checks the configuration, and derives the types, the data of nodes and the laws of edges.
    fn relations(&self) -> Result<Relations> {
        let Self { nodes, degree, classes, homophily, .. } = *self;
        let schema = Schema {
            node_types: NODE_TYPES.map(|(name, _)| name),
            edge_types: RELATIONS.map(|(name, source, target, _)| (name, source, target)),
            // The papers' settings.
            all: &NodeConfig {
                nodes,
                classes,
                dim: self.dim,
                dtype: self.dtype,
                signal: self.signal,
                label_noise: 0.0,
                splits: [self.train, self.valid, self.test],
                seed: self.seed,
            },
            degree,
            degree_unit: "edges for each of",
            exponent: self.exponent,
            homophily,
        };
        schema.check()?;
        let counts = self.counts();
        schema.check_counts(counts)?;
        if classes == 1 && homophily != 1.0 {
            let what = format!("a share of {homophily} of the edges inside the only class");
            return Err(Error::argument("homophily", what, "pass 1, or more classes"));
        }
        let relations = RELATIONS.map(|(name, source, target, share)| Relation {
            ends: [source, target],
            edges: share * degree * nodes as f64,
            // Authors by the papers they write; papers, institutions and fields by those that point at them.
            draws: if name == "writes" { [End::Weighted, End::Uniform] } else { [End::Uniform, End::Weighted] },
            shift: usize::from(name == "cites"),
            backward: name == "cites",
        });
        let by_type = self.features == TypedFeatures::ByType;
        let features =
            |node_type: usize| (if by_type { (self.dim >> node_type).max(1) } else { self.dim }, self.signal);
        let laws = counts.map(|count| schema.degree_law(count, MEAN));
        let (types, data) = (schema.types(counts), schema.data(counts, features)?);
        Ok(Relations::new(types, data, laws.to_vec(), relations.to_vec(), homophily, self.seed))
    }
}

/// The model of a configuration.
#[derive(Debug)]
struct Publications {
    relations: Relations,
    features: TypedFeatures,
}

impl Publications {
    fn new(config: &TypedConfig, mut relations: Relations, builders: usize) -> Self {
        relations.make_tables(builders);
        Self { relations, features: config.features }
    }

    fn papers(&self) -> &NodeData {
        &self.relations.data()[0]
    }

    /// The number of a paper, `None` for another node.
    fn paper(&self, node: u64) -> Option<u64> {
        (node < self.papers().nodes()).then_some(node)
    }
}

impl TypedModel for Publications {
    fn types(&self) -> &Types {
        self.relations.types()
    }

    fn num_classes(&self) -> usize {
        self.papers().config.classes
    }

    fn features(&self) -> Vec<(String, Vec<&NodeData>)> {
        let data = self.relations.data();
        let with_features = if self.features == TypedFeatures::Papers { &data[..1] } else { data };
        typed_output::feature_arrays(with_features, self.features == TypedFeatures::All)
    }

    fn label(&self, node: u64) -> i32 {
        self.paper(node).map_or(-1, |paper| self.papers().label(paper))
    }

    fn split(&self, node: u64) -> usize {
        self.paper(node).map_or(3, |paper| self.papers().split(paper))
    }

    fn time(&self, node: u64) -> i64 {
        let papers = self.papers().nodes();
        self.paper(node).map_or(FIRST_YEAR, |paper| {
            let years = u128::from(self.papers().position(paper)) * u128::from(YEARS) / u128::from(papers);
            FIRST_YEAR + years as i64
        })
    }

    fn num_blocks(&self) -> usize {
        self.relations.num_blocks()
    }

    fn buffers(&self) -> TypedBuffers {
        self.relations.buffers()
    }

    fn rows(&self, block: usize, buffers: &TypedBuffers) -> TypedRows {
        self.relations.rows(block, buffers)
    }
}
