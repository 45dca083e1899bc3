//! Rows of a task: nodes at times, as examples in place of nodes.

use crate::Array;
use crate::check::{self, Fault, MAX_NODES};

/// The table of a task: each row is a node at a time. Where a dataset has one, its examples are these rows: it has a label, targets and
/// splits of each row, by the row's number, and none of nodes. A node may be in several rows.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRows {
    // Invariant: as many as times, fewer than 2^32, each below the number of nodes that the constructor was given.
    nodes: Array<u32>,
    times: Array<i64>,
}

impl TaskRows {
    /// Names of the arrays of the nodes and of the times.
    pub const ARRAYS: [&str; 2] = ["task_nodes", "task_times"];

    /// Rows of a graph of `num_nodes` nodes: node and time of each.
    ///
    /// # Errors
    ///
    /// A description of the fault: other numbers of nodes than of times, 2^32 rows or more, or a node that does not exist.
    pub fn new(
        nodes: impl Into<Array<u32>>,
        times: impl Into<Array<i64>>,
        num_nodes: usize,
    ) -> std::result::Result<Self, String> {
        Self::check(nodes.into(), times.into(), num_nodes).map_err(Fault::describe)
    }

    pub(crate) fn check(nodes: Array<u32>, times: Array<i64>, num_nodes: usize) -> std::result::Result<Self, Fault> {
        let [of_nodes, of_times] = Self::ARRAYS;
        if nodes.len() as u64 > MAX_NODES {
            let what = format!("{} rows are more than the {MAX_NODES} that numbers of 32 bits allow", nodes.len());
            return Err(Fault::new(of_nodes, 0, what));
        }
        if nodes.len() != times.len() {
            return Err(Fault::new(of_times, 0, format!("{} times of {} rows", times.len(), nodes.len())));
        }
        check::exist(of_nodes, &nodes, num_nodes)?;
        Ok(Self { nodes, times })
    }

    /// The node of each row.
    pub fn nodes(&self) -> &Array<u32> {
        &self.nodes
    }

    /// The time of each row.
    pub fn times(&self) -> &Array<i64> {
        &self.times
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_nodes_of_the_graph_at_times() {
        let rows = TaskRows::new(vec![2, 0, 2], vec![5, -1, 7], 3).expect("three rows");
        assert_eq!((rows.len(), &rows.nodes()[..], &rows.times()[..]), (3, &[2, 0, 2][..], &[5, -1, 7][..]));
        let refused = |nodes, times| TaskRows::new(nodes, times, 3).expect_err("refused");
        assert_eq!(refused(vec![0, 3], vec![1, 2]), "task_nodes, element 1: node 3 does not exist, there are 3");
        assert_eq!(refused(vec![0, 1], vec![1]), "task_times, element 0: 1 times of 2 rows");
    }
}
