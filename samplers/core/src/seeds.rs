//! Seeds of a mini-batch: nodes, or rows of a task, which are nodes at times.

use morphgl_registry::SeedSet;

/// The seeds of a mini-batch, or of a share of one.
#[derive(Debug, Clone, Copy)]
pub struct Seeds<'a> {
    /// The node of each seed.
    pub nodes: &'a [u32],
    /// Number of each seed among the dataset's examples, which labels and targets are of: its node's, or its row's.
    pub examples: &'a [u32],
    /// Time of each seed, where it is not its node's.
    pub times: Option<&'a [i64]>,
}

impl<'a> Seeds<'a> {
    /// Nodes, at their own times.
    pub fn of_nodes(nodes: &'a [u32]) -> Self {
        Self { nodes, examples: nodes, times: None }
    }
}

/// The seeds of one mini-batch after another, in the same memory: the part of a worker.
#[derive(Debug, Default)]
pub struct SeedBatch {
    rows: Vec<u32>,
    nodes: Vec<u32>,
    times: Vec<i64>,
}

impl SeedBatch {
    /// The seeds that [`Epochs::seeds`](crate::Epochs::seeds) of `all` has `chosen`: nodes, or positions of rows.
    pub fn of<'a>(&'a mut self, all: &SeedSet, chosen: &'a [u32]) -> Seeds<'a> {
        let Some(given) = all.rows() else { return Seeds::of_nodes(chosen) };
        let Self { rows, nodes, times } = self;
        rows.clear();
        rows.extend(chosen.iter().map(|&at| given.rows()[at as usize]));
        nodes.clear();
        nodes.extend(chosen.iter().map(|&at| given.nodes()[at as usize]));
        times.clear();
        times.extend(chosen.iter().map(|&at| given.times()[at as usize]));
        Seeds { nodes, examples: rows, times: Some(times) }
    }
}
