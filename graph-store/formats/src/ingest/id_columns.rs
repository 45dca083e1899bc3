//! Search for features that are the numbers or the ids of their nodes.

use half::{bf16, f16};
use morphgl_graph_store::{Array, Dtype, Element, Load, Result, read_npy};

use super::leaks::MAPPED;
use crate::Ingest;

/// Minimum number of nodes of which a column of features is compared with ids: few numbers rise by chance.
const MIN_NODES: u64 = 4;

impl Ingest<'_> {
    /// Notes features that are the numbers of the nodes, from 0 or from 1, or the ids that they had in the source.
    pub(super) fn note_id_columns(&mut self, num_nodes: u64) -> Result<()> {
        // Rows that were scaled have no ids any more.
        let is_scaled = self.options.normalize_features.is_some();
        let Some(dtype) = self.feature_dtype.filter(|_| num_nodes >= MIN_NODES && !is_scaled) else { return Ok(()) };
        let ids = if self.has("node_ids") { Some(self.array::<u64>("node_ids")?) } else { None };
        let found = match dtype {
            Dtype::F16 => self.id_columns(f16::from_f32, ids.as_deref())?,
            Dtype::Bf16 => self.id_columns(bf16::from_f32, ids.as_deref())?,
            Dtype::U8 => self.id_columns(|value| value as u8, ids.as_deref())?,
            _ => self.id_columns(|value| value, ids.as_deref())?,
        };
        if found.is_empty() {
            return Ok(());
        }
        let (names, of_table) = self.names_of_features(&found);
        let cure = match of_table {
            true => "read it by --id-column, or leave it out by --feature-columns",
            false => "leave it out, in numpy by numpy.delete(x, COLUMN, axis=1)",
        };
        self.note(format!("the feature {names} is the number or id of each node, and tells nodes apart: {cure}"));
        Ok(())
    }

    fn id_columns<T: Element + PartialEq>(&self, stored: impl Fn(f32) -> T, ids: Option<&[u64]>) -> Result<Vec<usize>> {
        let (features, shape) = read_npy::<T>(&self.dir().join("features.npy"), Load::Mmap)?;
        Ok(columns(&features, shape[1] as usize, stored, ids))
    }
}

/// Columns of `features` (`[nodes, dim]`) that are the nodes' numbers, from 0 or 1, or `ids`, as `stored` rounds them.
///
/// Ends at the first rows where, as mostly, no column is left.
fn columns<T: Element + PartialEq>(
    features: &Array<T>,
    dim: usize,
    stored: impl Fn(f32) -> T,
    ids: Option<&[u64]>,
) -> Vec<usize> {
    let id = |kind: usize, node: usize| match kind {
        0 => Some(node as u64),
        1 => Some(node as u64 + 1),
        _ => ids.map(|ids| ids[node]),
    };
    let mut found = Vec::new();
    for kind in 0..3 {
        let (mut candidates, mut mapped): (Vec<usize>, _) = ((0..dim).collect(), 0);
        for (node, row) in features.chunks(dim).enumerate() {
            let Some(id) = id(kind, node).map(|id| stored(id as f32)).filter(|_| !candidates.is_empty()) else {
                candidates.clear();
                break;
            };
            candidates.retain(|&column| row[column] == id);
            mapped += size_of_val(row);
            if mapped > MAPPED {
                features.release();
                mapped = 0;
            }
        }
        found.append(&mut candidates);
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests;
