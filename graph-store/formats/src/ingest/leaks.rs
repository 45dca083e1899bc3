//! Search for features that give the labels away: columns that have one value per class.

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
/// Mapped bytes that are read before pages are given back, and the bytes that are mapped around one that is read.
const MAPPED: usize = 8 << 20;
const AROUND: usize = 64 << 10;

impl Ingest<'_> {
    /// Notes features that are copies or codes of the labels, whatever their names.
    pub(super) fn note_leaks(&mut self) -> Result<()> {
        let sums = self.dir().join(SUMS);
        if let Some(dtype) = self.feature_dtype.filter(|_| self.has("labels")) {
            self.note_leaks_of(dtype, &sums)?;
        }
        if sums.exists() { fs::remove_file(&sums).map_err(|e| Error::io(&sums, e)) } else { Ok(()) }
    }

    fn note_leaks_of(&mut self, dtype: Dtype, sums: &Path) -> Result<()> {
        let sums = sums.exists().then(|| read_npy::<f32>(sums, Load::Mmap)).transpose()?.map(|(sums, _)| sums);
        let labels = self.array::<i32>("labels")?;
        let found = match dtype {
            Dtype::F16 => self.leaks::<f16>(&labels, sums.as_deref())?,
            Dtype::Bf16 => self.leaks::<bf16>(&labels, sums.as_deref())?,
            Dtype::U8 => self.leaks::<u8>(&labels, sums.as_deref())?,
            _ => self.leaks::<f32>(&labels, sums.as_deref())?,
        };
        if found.is_empty() {
            return Ok(());
        }
        let names = match &self.feature_columns {
            Some(columns) => found.iter().map(|&column| columns.names[column].clone()).collect(),
            None => found.iter().map(usize::to_string).collect::<Vec<_>>(),
        };
        let names = lists::list(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let names = match &self.feature_columns {
            Some(columns) if columns.are_named => names,
            Some(_) => format!("in column {names} of the table"),
            None => format!("{names} (counted from 0)"),
        };
        let what = match found.len() {
            1 => format!(
                "the feature {names} has one value per class: it is a copy or a code of the labels; leave it out"
            ),
            n => format!(
                "{n} features have one value per class: they are copies or codes of the labels: {names}; leave them out"
            ),
        };
        self.note(format!("{what} (--feature-columns) unless a model may know the answer"));
        Ok(())
    }

    fn leaks<T: Element + Into<f32>>(&self, labels: &[i32], sums: Option<&[f32]>) -> Result<Vec<usize>> {
        let (features, shape) = read_npy::<T>(&self.dir().join("features.npy"), Load::Mmap)?;
        Ok(columns(&features, shape[1] as usize, labels, sums))
    }
}

/// The first node of a class, and the interval between releases of pages in which its row was last read.
struct FirstNode {
    node: usize,
    interval: usize,
}

/// Columns of `features` (`[nodes, dim]`) that have one value per class, but not the same one for all of them. Nodes without a
/// label do not count. `sums` are those that the rows of normalised features were divided by: the columns are compared as they
/// were before.
///
/// Ends at the first rows where, as mostly, no column is left. Memory: a byte a column, and some 30 bytes a class.
fn columns<T: Element + Into<f32>>(
    features: &Array<T>,
    dim: usize,
    labels: &[i32],
    sums: Option<&[f32]>,
) -> Vec<usize> {
    let rounding = match T::DTYPE {
        Dtype::F16 => 2e-3,
        Dtype::Bf16 => 2e-2,
        _ => 1e-5,
    };
    let sum = |node: usize| sums.map_or(1.0, |sums| if sums[node] > 0.0 { sums[node] } else { 1.0 });
    let is_same = |(a, sum_a): (T, f32), (b, sum_b): (T, f32)| {
        let (a, b): (f32, f32) = (a.into() * sum_a, b.into() * sum_b);
        a == b || sums.is_some() && (a - b).abs() <= rounding * a.abs().max(b.abs())
    };
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
