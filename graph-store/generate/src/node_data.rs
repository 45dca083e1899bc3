//! Data of nodes: class, label, features, split. Each is a function of the node's id and the seed.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use morphgl_graph_store::{Dtype, Element, MAX_NODES};

use crate::memory::{BlockMemory, mapped};
use crate::random::{Key, Permutation, Purpose, index};
use crate::{Error, Result};

/// Values of a block of features, and nodes of a block of labels.
const BLOCK: usize = 1 << 17;
pub(crate) const LABELS: usize = 1 << 16;

/// The part of a configuration that every generator has.
#[derive(Debug, Clone)]
pub(crate) struct NodeConfig {
    pub(crate) nodes: u64,
    pub(crate) classes: usize,
    pub(crate) dim: usize,
    pub(crate) dtype: Dtype,
    pub(crate) signal: f64,
    pub(crate) label_noise: f64,
    pub(crate) splits: [f64; 3],
    pub(crate) seed: u64,
}

/// Computes classes, labels, features and splits.
#[derive(Debug)]
pub(crate) struct NodeData {
    pub(crate) config: NodeConfig,
    /// Ranks of nodes: a node's class is its rank modulo the classes, its expected degree the quantile at its rank.
    rank: Permutation,
    split: Permutation,
    /// Ends of train, valid and test in the permuted order.
    split_ends: [u64; 3],
    /// Mean feature vectors times the signal, one class after the other; empty until they are made.
    means: Vec<f32>,
    label_key: Key,
    feature_key: Key,
}

/// An element type of features.
pub(crate) trait Feature: Element + Default {
    /// Narrows a row.
    fn narrow(from: &[f32], to: &mut [Self]);
}

impl Feature for f32 {
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}

impl Feature for f16 {
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Feature for bf16 {
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Feature for u8 {
    // Casts from float to integer saturate. 24 steps per unit keep five deviations of the noise on either side.
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.iter_mut().zip(from).for_each(|(t, f)| *t = (f * 24.0 + 128.0).round() as u8);
    }
}

impl NodeData {
    pub(crate) fn new(config: NodeConfig) -> Result<Self> {
        config.check()?;
        let NodeConfig { nodes, seed, .. } = config;
        let mut share = 0.0;
        let split_ends = config.splits.map(|s| {
            share += s;
            ((share * nodes as f64).round() as u64).min(nodes)
        });
        Ok(Self {
            rank: Permutation::new(Key::new(seed, Purpose::Rank), nodes),
            split: Permutation::new(Key::new(seed, Purpose::Split), nodes),
            split_ends,
            means: Vec::new(),
            label_key: Key::new(seed, Purpose::LabelNoise),
            feature_key: Key::new(seed, Purpose::FeatureNoise),
            config,
        })
    }

    /// Computes the means of the classes, which features need.
    pub(crate) fn make_means(&mut self) {
        let NodeConfig { classes, dim, signal, seed, .. } = self.config;
        let key = Key::new(seed, Purpose::ClassMean);
        self.means = (0..(classes * dim) as u64).map(|i| key.noise(i) * signal as f32).collect();
    }

    /// Bytes of [`NodeData::make_means`].
    pub(crate) fn means_bytes(&self) -> u64 {
        mapped((self.config.classes as u64).saturating_mul(4 * self.config.dim as u64))
    }

    /// Nodes of a block of features.
    pub(crate) fn block_rows(&self) -> usize {
        (BLOCK / self.config.dim).max(1)
    }

    /// Bytes of a block of features, and of the row that is narrowed.
    pub(crate) fn features_memory(&self) -> BlockMemory {
        let (dim, rows) = (self.config.dim as u64, self.block_rows() as u64);
        BlockMemory { scratch: mapped(4 * dim), block: mapped(rows * dim * self.config.dtype.size() as u64) }
    }

    /// Bytes of a block of labels, and of each split's nodes, which are as many at most.
    pub(crate) fn labels_memory(&self) -> BlockMemory {
        BlockMemory { scratch: 0, block: 4 * mapped(4 * LABELS as u64) }
    }

    pub(crate) fn nodes(&self) -> u64 {
        self.config.nodes
    }

    /// A node's rank in a random order of all nodes.
    pub(crate) fn rank(&self, node: u64) -> u64 {
        self.rank.at(node)
    }

    /// The node of a rank.
    pub(crate) fn of_rank(&self, rank: u64) -> u64 {
        self.rank.inverse(rank)
    }

    /// The class that decides a node's edges and features.
    pub(crate) fn class_of_rank(&self, rank: u64) -> u32 {
        (rank % self.config.classes as u64) as u32
    }

    /// A node's label: another class than its own for a few, by the label noise.
    pub(crate) fn label(&self, node: u64) -> i32 {
        let key = self.label_key.child(node);
        if key.unit(0) < self.config.label_noise {
            index(key.value(1) as u32, self.config.classes) as i32
        } else {
            self.class_of_rank(self.rank(node)) as i32
        }
    }

    /// A node's position in a random order, which the splits part: the order of times, where nodes have any.
    pub(crate) fn position(&self, node: u64) -> u64 {
        self.split.at(node)
    }

    /// The node at a position.
    pub(crate) fn at_position(&self, position: u64) -> u64 {
        self.split.inverse(position)
    }

    /// A node's split: 0 train, 1 valid, 2 test, or 3 for none.
    pub(crate) fn split(&self, node: u64) -> usize {
        let rank = self.position(node);
        self.split_ends.iter().position(|&end| rank < end).unwrap_or(3)
    }

    /// Writes the features of consecutive nodes from `first`, as many as `out` has rows; `row` is a buffer for one.
    pub(crate) fn features<T: Feature>(&self, first: u64, out: &mut [T], row: &mut [f32]) {
        let dim = self.config.dim;
        for (node, out) in (first..).zip(out.chunks_exact_mut(dim)) {
            let mean = &self.means[self.class_of_rank(self.rank(node)) as usize * dim..][..dim];
            let key = self.feature_key.child(node);
            for (j, (value, mean)) in row.iter_mut().zip(mean).enumerate() {
                *value = mean + key.noise(j as u64);
            }
            T::narrow(row, out);
        }
    }
}

impl NodeConfig {
    fn check(&self) -> Result<()> {
        let fault = |name, what: String, cure: &str| Err(Error::argument(name, what, cure));
        if self.nodes == 0 || self.nodes > MAX_NODES {
            return fault("nodes", format!("{} nodes cannot be", self.nodes), "pass between 1 and 4294967295");
        }
        if self.classes == 0 || self.classes as u64 > self.nodes || i32::try_from(self.classes).is_err() {
            let what = format!("{} classes for {} nodes", self.classes, self.nodes);
            return fault("classes", what, "pass at least 1 class and at most one per node");
        }
        if self.dim == 0 || self.dim > 1 << 20 {
            return fault("dim", format!("features of dimension {}", self.dim), "pass between 1 and 1048576");
        }
        if !matches!(self.dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16 | Dtype::U8) {
            return fault("dtype", format!("features cannot be {}", self.dtype), "pass f32, f16, bf16 or u8");
        }
        if !(0.0..=1000.0).contains(&self.signal) {
            return fault("signal", format!("a signal of {}", self.signal), "pass between 0 and 1000");
        }
        share("label_noise", self.label_noise)?;
        for (name, value) in ["train", "valid", "test"].into_iter().zip(self.splits) {
            share(name, value)?;
        }
        let sum: f64 = self.splits.iter().sum();
        if sum > 1.0 + 1e-9 {
            let what = format!("train, valid and test add up to {sum}");
            return fault("train", what, "pass shares whose sum is at most 1");
        }
        Ok(())
    }
}

/// Checks that an argument is a share of something.
pub(crate) fn share(name: &'static str, value: f64) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Error::argument(name, format!("{value} is not a share"), "pass between 0 and 1"))
}
