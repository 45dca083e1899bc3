//! The check of a new dataset before it is renamed to its target.

use std::path::Path;

use crate::check::Fault;
use crate::meta::is_edge_features;
use crate::summary::Summary;
use crate::{Dtype, EdgeSplits, Error, Load, Meta, Position, Result, TaskRows, Types, check, check_own, read_npy};

/// Checks a dataset whose arrays are written into `dir`, by what was gathered while they were written: `summary` finds that of a
/// file. Splits and draw keys, in which nodes must not repeat (but for training nodes), are read once more.
///
/// It accepts what opening the dataset accepts, and nothing else.
///
/// # Errors
///
/// The array that is invalid, and why.
pub(crate) fn check_written(dir: &Path, meta: &Meta, summary: impl Fn(&str) -> Option<Summary>) -> Result<()> {
    const CURE: &str = "correct the data and write the dataset again";
    let invalid = |name: &str, at, what: String| Error::invalid(dir.join(&meta.arrays[name].file), at, what, CURE);
    let nodes = meta.num_nodes;
    for (name, array) in &meta.arrays {
        if !dtypes(name).contains(&array.dtype) {
            return Err(invalid(name, Position::File, format!("{name} cannot be {}", array.dtype)));
        }
        // Nodes are at most 2^32 - 1, and classes 2^31 - 1, by the check of shapes.
        let Some(Summary { first, last, ascending, lowest, highest, finite, infinite, .. }) = summary(&array.file)
        else {
            continue;
        };
        let [labels, targets] = of_pairs(name);
        let sound = match name.as_str() {
            _ if labels => lowest >= -1.0 && highest < i64::from(i32::MAX),
            "indptr" => first == 0 && ascending && last == meta.num_edges,
            _ if EdgeSplits::ARRAYS.contains(&name.as_str()) => highest < nodes as i64,
            "indices" => highest < nodes as i64,
            "train" | "valid" | "test" => highest < meta.num_examples() as i64,
            _ if name == TaskRows::ARRAYS[0] => highest < nodes as i64,
            "weights" => finite && lowest >= 0.0,
            "features" => finite,
            _ if name.starts_with("features.") || is_edge_features(name) => finite,
            "targets" => !infinite,
            _ if targets => !infinite,
            "labels" => lowest >= -1.0 && highest < meta.num_classes as i64,
            "edge_ids" if meta.types.is_none() => rows_of_edges(meta)[0].is_none_or(|rows| highest < rows as i64),
            _ => true,
        };
        if !sound {
            let what = match name.as_str() {
                _ if labels => format!("labels from {lowest} to {highest}, below -1 (none) or no classes"),
                "indptr" => format!("the offsets do not ascend from 0 to the {} edges", meta.num_edges),
                "indices" => format!("an edge comes from node {highest}, but there are {nodes} nodes"),
                "weights" => "a weight is not a finite number of at least 0".to_string(),
                _ if name.starts_with("features") || is_edge_features(name) => "a value is NaN or infinite".to_string(),
                _ if targets || name == "targets" => "a target is infinite; NaN stands for an unknown one".to_string(),
                "edge_ids" => format!("row {highest} of the edges' features, which have fewer"),
                "labels" => format!("labels from {lowest} to {highest}, outside -1 (none) and 0..{}", meta.num_classes),
                "train" | "valid" | "test" => {
                    let (of, count) = meta.examples();
                    format!("{of} {highest} does not exist, there are {count}")
                }
                _ => format!("node {highest} does not exist, there are {nodes}"),
            };
            return Err(invalid(name, Position::File, what));
        }
    }
    for name in ["train", "valid", "test", "draw_keys"] {
        let Some(array) = meta.arrays.get(name) else { continue };
        let (ids, _) = read_npy::<u32>(&dir.join(&array.file), Load::Mmap)?;
        let checked = match name {
            "draw_keys" => check::permutation(name, &ids, nodes as usize),
            _ => check::split(name, &ids, meta.examples()),
        };
        checked.map_err(|f| invalid(name, Position::Element(f.element), f.what))?;
    }
    if let Some(types) = meta.types.as_ref().filter(|_| meta.arrays.contains_key("edge_types"))
        && let Some(fault) = fault_of_types(dir, meta, types)?
    {
        return Err(invalid(&fault.array, Position::Element(fault.element), fault.what));
    }
    for (of, name) in EdgeSplits::NEGATIVES {
        if meta.arrays.contains_key(name) && meta.arrays.get(of).is_none_or(|pairs| pairs.shape[0] == 0) {
            return Err(invalid(name, Position::File, "negatives of no pairs".into()));
        }
    }
    let (of, name) = EdgeSplits::NEGATIVES[0];
    if meta.arrays.contains_key(name) {
        let pairs =
            |name: &str| read_npy::<u32>(&dir.join(&meta.arrays[name].file), Load::Mmap).map(|(pairs, _)| pairs);
        let (train, negatives) = (pairs(of)?, pairs(name)?);
        check_own(bytemuck::cast_slice(&train), bytemuck::cast_slice(&negatives))
            .map_err(|(negative, what)| invalid(name, Position::Element(2 * negative as u64), what))?;
    }
    Ok(())
}

/// Edges that are checked before the pages of mapped arrays are given back: pages count as the program's memory once they are read.
const EDGES_AT_ONCE: u64 = 1 << 19;

/// What is wrong with the types of the edges, and with the rows of their features.
fn fault_of_types(dir: &Path, meta: &Meta, types: &Types) -> Result<Option<Fault>> {
    let file = |name: &str| dir.join(&meta.arrays[name].file);
    let (indptr, _) = read_npy::<u64>(&file("indptr"), Load::Mmap)?;
    let (indices, _) = read_npy::<u32>(&file("indices"), Load::Mmap)?;
    let (edge_types, _) = read_npy::<u16>(&file("edge_types"), Load::Mmap)?;
    let ids = meta.arrays.get("edge_ids").map(|_| read_npy::<u32>(&file("edge_ids"), Load::Mmap)).transpose()?;
    let rows = rows_of_edges(meta);
    let mut start = 0;
    while start + 1 < indptr.len() {
        let most = indptr[start] + EDGES_AT_ONCE;
        let ends = &indptr[start + 1..indptr.len().min(start + 1 + EDGES_AT_ONCE as usize)];
        let end = start + ends.partition_point(|&end| end <= most).max(1);
        let checked = check::edge_types_into(start..end, types, &indptr, &indices, &edge_types).and_then(|()| {
            let edges = indptr[start] as usize..indptr[end] as usize;
            ids.as_ref().map_or(Ok(()), |(ids, _)| check::edge_ids_of(edges, ids, Some(&edge_types), &rows))
        });
        if let Err(fault) = checked {
            return Ok(Some(fault));
        }
        indptr.release();
        indices.release();
        edge_types.release();
        if let Some((ids, _)) = &ids {
            ids.release();
        }
        start = end;
    }
    Ok(None)
}

/// Number of rows of the features of each edge type, `None` where it has none; of all edges in a graph without types.
pub(crate) fn rows_of_edges(meta: &Meta) -> Vec<Option<u64>> {
    let rows = |edge_type| meta.arrays.get(&Meta::edge_features_of(edge_type)).map(|array| array.shape[0]);
    match &meta.types {
        None => vec![rows(None)],
        Some(types) => (0..types.edge_types().len()).map(|number| rows(Some(number))).collect(),
    }
}

/// The element types that an array may have.
fn dtypes(name: &str) -> &'static [Dtype] {
    match name {
        "indptr" | "node_ids" | "node_name_ends" => &[Dtype::U64],
        _ if EdgeSplits::ARRAYS.contains(&name) => &[Dtype::U32],
        _ if of_pairs(name)[0] => &[Dtype::I32],
        _ if of_pairs(name)[1] => &[Dtype::F32],
        "indices" | "train" | "valid" | "test" | "draw_keys" | "task_nodes" => &[Dtype::U32],
        "labels" => &[Dtype::I32],
        "weights" | "targets" => &[Dtype::F32],
        "edge_types" => &[Dtype::U16],
        _ if EdgeSplits::TYPE_ARRAYS.contains(&name) => &[Dtype::U16],
        "node_times" | "edge_times" | "task_times" => &[Dtype::I64],
        "edge_ids" => &[Dtype::U32],
        _ if name == "features" || name.starts_with("features.") || is_edge_features(name) => {
            &[Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8]
        }
        "node_names" => &[Dtype::U8],
        _ => Dtype::ALL,
    }
}

/// Whether an array has labels, and whether it has targets, of pairs.
fn of_pairs(name: &str) -> [bool; 2] {
    [0, 1].map(|kind| EdgeSplits::TARGET_ARRAYS.iter().any(|names| names[kind] == name))
}
