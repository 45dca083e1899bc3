//! What a model predicts for nodes with targets, and how that compares with them.

use morphgl_registry::Targets;
use serde::{Deserialize, Serialize};

use crate::logistic::sigmoid;

/// Outputs of a model for nodes, and the targets of the nodes: a class each, or several labels or values.
#[derive(Debug, Clone, Copy)]
pub struct Predicted<'a> {
    outputs: &'a [f32],
    targets: Of<'a>,
    width: usize,
}

#[derive(Debug, Clone, Copy)]
enum Of<'a> {
    Classes(&'a [i32]),
    Values(&'a [f32]),
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
        Self { outputs: logits, targets: Of::Classes(labels), width: num_classes }
    }

    /// Of outputs `[nodes, width]` and as many labels (0 or 1) or values, NaN where one is not known.
    ///
    /// # Panics
    ///
    /// When there are not as many outputs as values.
    pub fn of_values(outputs: &'a [f32], values: &'a [f32], width: usize) -> Self {
        assert_eq!(outputs.len(), values.len(), "outputs and values");
        Self { outputs, targets: Of::Values(values), width }
    }

    /// The outputs, `[nodes, num_classes]`.
    pub fn logits(&self) -> &'a [f32] {
        self.outputs
    }

    /// A label per node, -1 for nodes without one; none of labels and values.
    pub fn labels(&self) -> &'a [i32] {
        match self.targets {
            Of::Classes(labels) => labels,
            Of::Values(_) => &[],
        }
    }

    /// What the outputs are compared with.
    pub fn targets(&self) -> Targets<'a> {
        match self.targets {
            Of::Classes(labels) => Targets::Classes(labels),
            Of::Values(values) => Targets::Values(values),
        }
    }

    /// Number of classes, or of labels or values of a node.
    pub fn num_classes(&self) -> usize {
        self.width
    }

    /// Whether no target of any node is known.
    pub fn is_unknown(&self) -> bool {
        match self.targets {
            Of::Classes(labels) => labels.iter().all(|&label| label < 0),
            Of::Values(values) => values.iter().all(|value| value.is_nan()),
        }
    }

    /// Of each node with a label: its logits, and its class.
    pub fn nodes(&self) -> impl Iterator<Item = (&'a [f32], usize)> + use<'a> {
        let rows = self.outputs.chunks_exact(self.width.max(1)).zip(self.labels());
        rows.filter_map(|(row, &label)| Some((row, usize::try_from(label).ok()?)))
    }

    /// Of each node where it is known: the output and the value in this column.
    pub fn column(&self, column: usize) -> impl Iterator<Item = (f32, f32)> + use<'a> {
        let values: &'a [f32] = if let Of::Values(values) = self.targets { values } else { &[] };
        let rows = self.outputs.iter().zip(values).skip(column).step_by(self.width.max(1));
        rows.map(|(&output, &value)| (output, value)).filter(|(_, value)| !value.is_nan())
    }

    /// How many nodes of each class are predicted to be of each class: the one of the highest logit, the first of equal ones.
    pub fn confusion(&self) -> Confusion {
        let mut counts = vec![0; self.width * self.width];
        for (row, class) in self.nodes() {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            if let Some(predicted) = row.iter().position(|&x| x == max) {
                counts[class * self.width + predicted] += 1;
            }
        }
        Confusion { counts, num_classes: self.width }
    }

    /// What each class or label says: those of the confusion matrix; or of each label the nodes that have it, and those predicted to,
    /// by a logit above 0.
    pub fn classes(&self) -> Vec<ClassCounts> {
        let Of::Values(_) = self.targets else { return self.confusion().classes().collect() };
        let of_label = |label| {
            self.column(label).fold(ClassCounts::default(), |counts, (logit, value)| {
                let (has, predicted) = (value > 0.5, logit > 0.0);
                ClassCounts {
                    correct: counts.correct + u64::from(has && predicted),
                    nodes: counts.nodes + u64::from(has),
                    predicted: counts.predicted + u64::from(predicted),
                }
            })
        };
        (0..self.width).map(of_label).collect()
    }

    /// Of each node with a label: the probability of `class` by the softmax of its logits, and whether it is of that class. Of
    /// several labels: that of the label `class` by the sigmoid.
    pub fn probabilities(&self, class: usize) -> Vec<(f64, bool)> {
        let probability = |row: &[f32]| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |x: f32| f64::from(x - max).exp();
            exp(row[class]) / row.iter().map(|&x| exp(x)).sum::<f64>()
        };
        match self.targets {
            Of::Classes(_) => self.nodes().map(|(row, of)| (probability(row), of == class)).collect(),
            Of::Values(_) => self.column(class).map(|(x, value)| (sigmoid(f64::from(x)), value > 0.5)).collect(),
        }
    }
}

/// Numbers of nodes by their class and the one that is predicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    counts: Vec<u64>,
    num_classes: usize,
}

/// What a confusion matrix says about a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
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
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[u64]> {
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
