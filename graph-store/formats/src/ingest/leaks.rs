//! Search for features that give the labels away: columns that have one value per class, or a few values of one class each.

mod finer;

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use half::{bf16, f16};
use morphgl_graph_store::{Array, Dtype, Element, Error, Load, Result, read_npy};

use super::features::SUMS;
use crate::Ingest;
use crate::tabular::lists;

/// Columns that are compared at a time, as bytes: where features are sparse, most of them are equal.
const BLOCK: usize = 64;
/// Mapped bytes that are read before pages are released, and the bytes that are mapped around one that is read.
pub(super) const MAPPED: usize = 8 << 20;
const AROUND: usize = 64 << 10;

impl Ingest<'_> {
    /// Notes features that are copies or codes of the labels, whatever their names.
    pub(super) fn note_leaks(&mut self) -> Result<()> {
        let sums = self.dir().join(SUMS);
        if let Some(dtype) = self.feature_dtype.filter(|_| self.has("labels") && self.task_rows.is_none()) {
            self.note_leaks_of(dtype, &sums)?;
        }
        if sums.exists() { fs::remove_file(&sums).map_err(|e| Error::io(&sums, e)) } else { Ok(()) }
    }

    fn note_leaks_of(&mut self, dtype: Dtype, sums: &Path) -> Result<()> {
        let sums = sums.exists().then(|| read_npy::<f32>(sums, Load::Mmap)).transpose()?.map(|(sums, _)| sums);
        let labels = self.array::<i32>("labels")?;
        let [found, finer] = match dtype {
            Dtype::F16 => self.leaks::<f16>(&labels, sums.as_deref())?,
            Dtype::Bf16 => self.leaks::<bf16>(&labels, sums.as_deref())?,
            Dtype::U8 => self.leaks::<u8>(&labels, sums.as_deref())?,
            _ => self.leaks::<f32>(&labels, sums.as_deref())?,
        };
        let (one, many) =
            ("has one value per class: it is a copy or a code", "have one value per class: they are copies or codes");
        self.note_features(&found, one, many);
        let one = "has a few values, each of nodes of one class alone: it is a finer code";
        let many = "have a few values, each of nodes of one class alone: they are finer codes";
        self.note_features(&finer, one, many);
        Ok(())
    }

    /// Notes features that give the labels away; `one` and `many` say why, of one or of several.
    fn note_features(&mut self, found: &[usize], one: &str, many: &str) {
        if found.is_empty() {
            return;
        }
        let (names, _) = self.names_of_features(found);
        let what = match found.len() {
            1 => format!("the feature {names} {one} of the labels; leave it out"),
            n => format!("{n} features {many} of the labels: {names}; leave them out"),
        };
        self.note(format!("{what} (--feature-columns) unless a model may know the answer"));
    }

    /// Features by the names or numbers of their columns, and whether these are columns of a table.
    pub(super) fn names_of_features(&self, found: &[usize]) -> (String, bool) {
        let names: Vec<String> = match &self.feature_columns {
            Some(columns) => found.iter().map(|&column| columns.names[column].clone()).collect(),
            None => found.iter().map(usize::to_string).collect(),
        };
        let names = lists::list(&names.iter().map(String::as_str).collect::<Vec<_>>());
        match &self.feature_columns {
            Some(columns) if columns.are_named => (names, true),
            Some(_) => (format!("in column {names} of the table"), true),
            None => (format!("{names} (counted from 0)"), false),
        }
    }

    /// Two lists of columns: those with one value per class, and those with a few values, each of nodes of one class alone
    /// (finer codes of the labels).
    fn leaks<T: Element + Into<f32>>(&self, labels: &[i32], sums: Option<&[f32]>) -> Result<[Vec<usize>; 2]> {
        let (features, shape) = read_npy::<T>(&self.dir().join("features.npy"), Load::Mmap)?;
        let (dim, rounding) = (shape[1] as usize, Rounding::of::<T>(sums));
        let found = columns(&features, dim, labels, &rounding);
        let mut finer = finer::columns(&features, dim, labels, &rounding);
        finer.retain(|column| !found.contains(column));
        Ok([found, finer])
    }
}

/// Comparison of stored features as they were in the source.
struct Rounding<'s> {
    /// What the rows of normalised features were divided by: columns are compared as they were before.
    sums: Option<&'s [f32]>,
    /// Relative difference of values that were equal before their rows were divided.
    relative: f32,
}

impl<'s> Rounding<'s> {
    fn of<T: Element>(sums: Option<&'s [f32]>) -> Self {
        let relative = match T::DTYPE {
            Dtype::F16 => 2e-3,
            Dtype::Bf16 => 2e-2,
            _ => 1e-5,
        };
        Self { sums, relative }
    }

    /// What a node's row was divided by.
    fn sum(&self, node: usize) -> f32 {
        self.sums.map_or(1.0, |sums| if sums[node] > 0.0 { sums[node] } else { 1.0 })
    }

    /// A feature before its row was divided.
    fn original<T: Into<f32>>(&self, stored: T, node: usize) -> f32 {
        stored.into() * self.sum(node)
    }

    /// Whether two features were equal before.
    fn is_same(&self, a: f32, b: f32) -> bool {
        a == b || self.sums.is_some() && (a - b).abs() <= self.relative * a.abs().max(b.abs())
    }
}

/// The first node of a class, and the interval between releases of pages in which its row was last read.
struct FirstNode {
    node: usize,
    interval: usize,
}

/// Columns of `features` (`[nodes, dim]`) that have one value per class, but not the same one for all of them. Nodes without a
/// label do not count.
///
/// Ends at the first rows where, as mostly, no column is left. Memory: a byte per column, and some 30 bytes per class.
fn columns<T: Element + Into<f32>>(
    features: &Array<T>,
    dim: usize,
    labels: &[i32],
    rounding: &Rounding<'_>,
) -> Vec<usize> {
    let is_same = |(a, sum_a): (T, f32), (b, sum_b): (T, f32)| rounding.is_same(a.into() * sum_a, b.into() * sum_b);
    let sum = |node: usize| rounding.sum(node);
    let row = |node: usize| &features[node * dim..][..dim];
    let row_bytes = dim * size_of::<T>();
    let mut classes: HashMap<i32, FirstNode> = HashMap::new();
    let mut has_one_value = vec![true; dim];
    let mut blocks: Vec<Range<usize>> = (0..dim).step_by(BLOCK).map(|at| at..dim.min(at + BLOCK)).collect();
    let (mut mapped, mut interval, mut last) = (0, 0, 0);
    for (node, &label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
        if blocks.is_empty() {
            return Vec::new();
        }
        mapped += row_bytes + if node > last + 1 { AROUND } else { 0 };
        last = node;
        let class = classes.entry(label).or_insert(FirstNode { node, interval });
        if class.interval < interval {
            class.interval = interval;
            mapped += row_bytes + AROUND;
        }
        let (own, first) = (row(node), row(class.node));
        let (own_sum, first_sum) = (sum(node), sum(class.node));
        blocks.retain(|block| {
            let (own, first) = (&own[block.clone()], &first[block.clone()]);
            if own_sum == first_sum && bytemuck::cast_slice::<T, u8>(own) == bytemuck::cast_slice::<T, u8>(first) {
                return true;
            }
            let has_one_value = &mut has_one_value[block.clone()];
            let pairs = own.iter().zip(first);
            let compare = |(has, (a, b)): (&mut bool, (&T, &T))| *has &= is_same((*a, own_sum), (*b, first_sum));
            has_one_value.iter_mut().zip(pairs).for_each(compare);
            has_one_value.contains(&true)
        });
        if mapped > MAPPED {
            features.release();
            (mapped, interval) = (0, interval + 1);
        }
    }
    let mut firsts = classes.values().map(|class| (row(class.node), sum(class.node)));
    let Some((one, one_sum)) = firsts.next() else { return Vec::new() };
    let mut candidates: Vec<usize> = blocks.into_iter().flatten().filter(|&column| has_one_value[column]).collect();
    let mut differs = vec![false; dim];
    for (other, sum) in firsts {
        let compare = |&column: &usize| differs[column] |= !is_same((one[column], one_sum), (other[column], sum));
        candidates.iter().for_each(compare);
    }
    candidates.retain(|&column| differs[column]);
    candidates
}

#[cfg(test)]
mod tests;
