//! Search for features that are finer codes of the labels: of few values, each of which nodes of one class have.

use std::collections::HashMap;

use morphgl_graph_store::{Array, Element};

use super::{AROUND, MAPPED, Rounding};

/// Maximum number of values of a column that is a code.
const MAX_VALUES: usize = 256;
/// Minimum number of labelled nodes per value, on average.
const NODES_PER_VALUE: usize = 4;
/// Minimum number of labelled nodes: features of a few nodes, as of examples, tell them apart anyway.
const MIN_LABELLED: usize = 40;
/// Maximum number of columns that are expected to look like a code by chance.
const BY_CHANCE: f64 = 1e-3;
/// Columns that are searched at a time: their values take 2 MiB at most.
const COLUMNS: usize = 1024;

/// The values of a column, ascending, each with the label of its nodes.
type Values = Vec<(f32, i32)>;

/// Columns of `features` (`[nodes, dim]`) of few values, each of which has nodes of one class alone, where that is no chance: of
/// columns without a relation to the labels, at most `BY_CHANCE` are expected to be so. Nodes without a label do not count.
///
/// Ends at the first rows where, as mostly, no column is left: one with many values is left out at the 257th node, others mostly
/// before.
pub(super) fn columns<T: Element + Into<f32>>(
    features: &Array<T>,
    dim: usize,
    labels: &[i32],
    rounding: &Rounding<'_>,
) -> Vec<usize> {
    let num_labelled = labels.iter().filter(|&&label| label >= 0).count();
    if num_labelled < MIN_LABELLED {
        return Vec::new();
    }
    let share = largest_share(labels, num_labelled);
    let mut found = Vec::new();
    for start in (0..dim).step_by(COLUMNS) {
        let mut block: Vec<Values> = vec![Vec::new(); COLUMNS.min(dim - start)];
        let mut remaining: Vec<usize> = (0..block.len()).collect();
        let (mut mapped, mut last) = (0, 0);
        for (node, &label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
            if remaining.is_empty() {
                break;
            }
            let row = &features[node * dim + start..][..block.len()];
            remaining.retain(|&column| {
                let is_code = add(&mut block[column], rounding.original(row[column], node), label, rounding);
                if !is_code {
                    block[column] = Vec::new();
                }
                is_code
            });
            mapped += size_of_val(row) + if node > last + 1 || row.len() < dim { AROUND } else { 0 };
            last = node;
            if mapped > MAPPED {
                features.release();
                mapped = 0;
            }
        }
        let by_chance = |num_values: usize| share.powi((num_labelled - num_values) as i32) * dim as f64;
        let is_code = |num_values: usize| {
            num_values > 1 && NODES_PER_VALUE * num_values <= num_labelled && by_chance(num_values) < BY_CHANCE
        };
        found.extend(remaining.into_iter().filter(|&column| is_code(block[column].len())).map(|column| start + column));
    }
    found
}

/// Adds a node's value; false where nodes of another class have it, or there are too many.
fn add(values: &mut Values, value: f32, label: i32, rounding: &Rounding<'_>) -> bool {
    let at = values.partition_point(|(known, _)| *known < value && !rounding.is_same(*known, value));
    match values.get(at) {
        Some((known, of)) if rounding.is_same(*known, value) => *of == label,
        _ if values.len() == MAX_VALUES => false,
        _ => {
            values.insert(at, (value, label));
            true
        }
    }
}

/// The share of the labelled nodes that the largest class has.
fn largest_share(labels: &[i32], num_labelled: usize) -> f64 {
    let mut counts = HashMap::<i32, usize>::new();
    labels.iter().filter(|label| **label >= 0).for_each(|label| *counts.entry(*label).or_default() += 1);
    counts.into_values().max().unwrap_or(0) as f64 / num_labelled.max(1) as f64
}
