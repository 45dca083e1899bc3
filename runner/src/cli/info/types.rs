//! What `info` says of node types and edge types.

use indicatif::HumanCount;
use morphgl_graph_store::Meta;
use morphgl_platform::excerpt;
use serde_json::{Value, json};

use super::{Parts, for_each, show};

/// Maximum number of types in the text; JSON has all.
const MAX_TYPES: usize = 20;
/// Maximum number of characters of a name.
const MAX_NAME: usize = 60;

/// Tables of the types of a dataset, and the same as JSON; `None` without types.
pub(super) fn describe(parts: &Parts) -> Option<(String, Value)> {
    let meta = &parts.meta;
    let types = meta.types.as_ref()?;
    let num_types = types.node_types().len();
    let mut labelled = vec![0u64; num_types];
    // Of a dataset with a task, labels and splits are of rows: those of nodes of a type are counted.
    let rows = parts.rows.as_ref().map(|(nodes, _)| nodes);
    let type_of = |example: u32| {
        let node = rows.map_or(Some(example), |rows| rows.get(example as usize).copied());
        node.map_or(num_types, |node| types.node_type(node))
    };
    if let Some(labels) = &parts.labels {
        let mut example = 0u32;
        for_each(labels, |label| {
            if label >= 0 {
                labelled[type_of(example)] += 1;
            }
            example += 1;
        });
    }
    let mut splits = [const { Vec::new() }; 3];
    for (split, counts) in parts.splits.iter().zip(&mut splits) {
        *counts = vec![0u64; num_types];
        if let Some(split) = split {
            for_each(split, |example| {
                // A file that was changed meanwhile may name any node.
                if let Some(count) = counts.get_mut(type_of(example)) {
                    *count += 1;
                }
            });
        }
    }
    let mut edges = vec![0u64; types.edge_types().len()];
    if let Some(edge_types) = &parts.edge_types {
        for_each(edge_types, |of| {
            if let Some(count) = edges.get_mut(usize::from(of)) {
                *count += 1;
            }
        });
    }
    let features = |of: usize| {
        let array = meta.arrays.get(&Meta::features_of(of)).or_else(|| meta.arrays.get("features"))?;
        Some((array.shape[1], array.dtype))
    };
    let count = |count: u64| HumanCount(count).to_string();
    let name = |name: &str| excerpt(name, MAX_NAME).into_owned();

    let node_row = |of: usize| {
        let node_type = &types.node_types()[of];
        let features = features(of).map_or("none".to_string(), |(dim, dtype)| format!("{dim} x {dtype}"));
        let [train, valid, test] = splits.each_ref().map(|counts| count(counts[of]));
        vec![name(&node_type.name), count(node_type.count), features, count(labelled[of]), train, valid, test]
    };
    let rows: Vec<Vec<String>> = (0..num_types.min(MAX_TYPES)).map(node_row).collect();
    let header = ["node type", "nodes", "features", "labelled", "train", "valid", "test"];
    let mut text = show::table(&header, &rows, &[0]) + &more(num_types, "node type");
    let mean = |edges: u64, nodes: u64| edges as f64 / nodes.max(1) as f64;
    let means = |of: usize| types.ends(of).map(|end| mean(edges[of], types.node_types()[end].count));
    let edge_row = |of: usize| {
        let [per_source, per_target] = means(of).map(|mean| format!("{mean:.1}"));
        vec![name(&types.edge_types()[of].to_string()), count(edges[of]), per_source, per_target]
    };
    let rows: Vec<Vec<String>> = (0..edges.len().min(MAX_TYPES)).map(edge_row).collect();
    text += &show::table(&["edge type", "edges", "per source", "per target"], &rows, &[0]);
    text += &more(edges.len(), "edge type");

    let node_types = types.node_types().iter().enumerate().map(|(of, node_type)| {
        let [train, valid, test] = splits.each_ref().map(|counts| counts[of]);
        json!({
            "name": node_type.name, "nodes": node_type.count,
            "feature_dim": features(of).map_or(0, |(dim, _)| dim),
            "feature_dtype": features(of).map(|(_, dtype)| dtype),
            "labelled": labelled[of], "splits": { "train": train, "valid": valid, "test": test },
        })
    });
    let edge_types = types.edge_types().iter().enumerate().map(|(of, edge_type)| {
        let [per_source, per_target] = means(of);
        json!({
            "source": edge_type.source, "name": edge_type.name, "target": edge_type.target, "edges": edges[of],
            "mean_out_degree": per_source, "mean_in_degree": per_target,
        })
    });
    let json = json!({ "nodes": node_types.collect::<Vec<_>>(), "edges": edge_types.collect::<Vec<_>>() });
    Some((text, json))
}

/// The line of the types that a table leaves out.
fn more(count: usize, noun: &str) -> String {
    match count.checked_sub(MAX_TYPES) {
        Some(rest @ 1..) => format!("… and {rest} more {noun}s, by --json\n"),
        _ => String::new(),
    }
}
