//! Splits as arrays: masks or lists of node ids, distinguished by the array's name or, where that does not say, by its values.

use morphgl_graph_store::Result;

use crate::Column;
use crate::elements::Kind;
use crate::files::invalid;
use crate::npy::ArrayReader;

/// The nodes of a split.
pub(crate) enum SplitNodes {
    /// A flag for each node.
    Mask(Vec<bool>),
    Ids(Vec<u64>),
}

/// What an array of a split has to be, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Mask,
    Ids,
    /// What its values say.
    Either,
}

impl Form {
    pub(crate) fn of(name: &str) -> Self {
        match name {
            name if name.ends_with("_mask") => Self::Mask,
            name if name.ends_with("_idx") => Self::Ids,
            _ => Self::Either,
        }
    }
}

/// Whether numbers are a mask by their values: zeros and ones, of which one is repeated, as no id may be.
pub(crate) fn is_mask(values: impl IntoIterator<Item = u64>) -> bool {
    let mut counts = [0; 2];
    let are_flags = values.into_iter().all(|value| counts.get_mut(value as usize).map(|count| *count += 1).is_some());
    are_flags && counts.iter().any(|&count| count > 1)
}

/// Whether numbers may be a mask of all nodes as well as their ids: each of these once.
pub(crate) fn is_either(values: &[u64], num_nodes: u64) -> bool {
    values.len() as u64 == num_nodes && values.iter().all(|&value| value <= 1) && !is_mask(values.iter().copied())
}

/// Reads a split of a graph of `num_nodes` nodes, where that is known; `column` is that of an array `[nodes, masks]`.
pub(crate) fn read(
    array: &mut ArrayReader<'_>,
    column: &Option<Column>,
    form: Form,
    num_nodes: Option<u64>,
) -> Result<SplitNodes> {
    let numbers = matches!(array.ty.kind, Kind::Bool | Kind::Int | Kind::Uint | Kind::Float);
    if array.ty.kind == Kind::Bool || form == Form::Mask && numbers || array.shape.get(1).is_some_and(|&k| k > 1) {
        return mask(array, column).map(SplitNodes::Mask);
    }
    array.expect_vector()?;
    if form == Form::Either && array.ty.kind == Kind::Float {
        return mask(array, column).map(SplitNodes::Mask);
    }
    let ids = array.all_ids()?;
    if form == Form::Ids {
        return Ok(SplitNodes::Ids(ids));
    }
    if num_nodes.is_some_and(|num_nodes| is_either(&ids, num_nodes)) {
        return invalid(&array.path, EITHER, WHICH);
    }
    let is_mask = is_mask(ids.iter().copied());
    Ok(if is_mask { SplitNodes::Mask(ids.iter().map(|&id| id == 1).collect()) } else { SplitNodes::Ids(ids) })
}

/// The fault of zeros and ones that may be ids as well, and its cure.
pub(crate) const EITHER: &str = "zeros and ones, which may be the ids of nodes or a mask";
const WHICH: &str = "name the array train_idx or train_mask (valid_idx, …), or save a mask of booleans";

fn mask(array: &mut ArrayReader<'_>, column: &Option<Column>) -> Result<Vec<bool>> {
    let values = array.mask_of(column)?;
    if let Some(value) = values.iter().find(|value| !matches!(**value, 0.0 | 1.0)) {
        let cure = "save ids as integers, under a name such as train_idx";
        return invalid(&array.path, format!("the value {value} in a mask, which has 0 and 1 alone"), cure);
    }
    Ok(values.into_iter().map(|value| value == 1.0).collect())
}
