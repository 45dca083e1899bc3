//! What a model predicts for nodes with a class each, and how that compares with their labels.

use serde::Serialize;

/// Logits of nodes, and their labels.
#[derive(Debug, Clone, Copy)]
pub struct Predicted<'a> {
    logits: &'a [f32],
    labels: &'a [i32],
    num_classes: usize,
}

impl<'a> Predicted<'a> {
    /// Of logits `[nodes, num_classes]` and a label per node, -1 for nodes without one, which do not count.
    ///
    /// # Panics
    ///
    /// When there are not `num_classes` logits per label, or a label is not below `num_classes`.
    pub fn new(logits: &'a [f32], labels: &'a [i32], num_classes: usize) -> Self {
        assert_eq!(logits.len(), labels.len() * num_classes, "logits and labels x classes");
        assert!(labels.iter().all(|&label| label < num_classes as i32), "labels below {num_classes}");
        Self { logits, labels, num_classes }
    }

    /// The logits, `[nodes, num_classes]`.
    pub fn logits(&self) -> &'a [f32] {
        self.logits
    }

    /// A label per node, -1 for nodes without one.
    pub fn labels(&self) -> &'a [i32] {
        self.labels
    }

    /// Number of classes.
    pub fn num_classes(&self) -> usize {
        self.num_classes
    }

    /// Of each node with a label: its logits, and its class.
    pub fn nodes(&self) -> impl Iterator<Item = (&'a [f32], usize)> + use<'a> {
        let rows = self.logits.chunks_exact(self.num_classes.max(1)).zip(self.labels);
        rows.filter_map(|(row, &label)| Some((row, usize::try_from(label).ok()?)))
    }

    /// How many nodes of each class are predicted to be of each class: the one of the highest logit, the first of equal ones.
    pub fn confusion(&self) -> Confusion {
        let mut counts = vec![0; self.num_classes * self.num_classes];
        for (row, class) in self.nodes() {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if let Some(predicted) = row.iter().position(|&x| x == max) {
                counts[class * self.num_classes + predicted] += 1;
            }
        }
        Confusion { counts, num_classes: self.num_classes }
    }

    /// Of each node with a label: the probability of `class` by the softmax of its logits, and whether it is of that class.
    pub fn probabilities(&self, class: usize) -> Vec<(f64, bool)> {
        let probability = |row: &[f32]| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |x: f32| f64::from(x - max).exp();
            exp(row[class]) / row.iter().map(|&x| exp(x)).sum::<f64>()
        };
        self.nodes().map(|(row, of)| (probability(row), of == class)).collect()
    }
}

/// Numbers of nodes by their class and the one that is predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confusion {
    counts: Vec<u64>,
    num_classes: usize,
}

/// What a confusion matrix says about a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Nodes of the class that are predicted to be of it.
    pub correct: u64,
    /// Nodes of the class.
    pub nodes: u64,
    /// Nodes that are predicted to be of the class.
    pub predicted: u64,
}

impl ClassCounts {
    /// Fraction of the nodes of the class that are predicted to be; `None` without any.
    pub fn recall(&self) -> Option<f64> {
        (self.nodes > 0).then(|| self.correct as f64 / self.nodes as f64)
    }

    /// Fraction of those predicted to be of the class that are; `None` where none is predicted.
    pub fn precision(&self) -> Option<f64> {
        (self.predicted > 0).then(|| self.correct as f64 / self.predicted as f64)
    }

    /// Harmonic mean of precision and recall, 0 where one of them is 0 or undefined; `None` where no node has the class or is predicted
    /// to have it.
    pub fn f1(&self) -> Option<f64> {
        let either = self.nodes + self.predicted;
        (either > 0).then(|| 2.0 * self.correct as f64 / either as f64)
    }
}

impl Confusion {
    /// A row per class that nodes have, a column per class that is predicted.
    pub fn rows(&self) -> impl Iterator<Item = &[u64]> {
        self.counts.chunks_exact(self.num_classes.max(1))
    }

    /// The counts of each class.
    pub fn classes(&self) -> impl Iterator<Item = ClassCounts> {
        (0..self.num_classes).map(|class| ClassCounts {
            correct: self.counts[class * self.num_classes + class],
            nodes: self.rows().nth(class).map_or(0, |row| row.iter().sum()),
            predicted: self.rows().map(|row| row[class]).sum(),
        })
    }
}
