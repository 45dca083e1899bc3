//! Writes what the nodes of a typed graph have.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use morphgl_graph_store::{Dtype, EdgeType, Error, Load, Meta, NodeType, Result, Types, read_npy};
use serde_json::{Map, Value};

use super::edges::EdgeTypes;
use super::nodes::{FeatureRows, Spool, TypeData};
use super::{Members, Space, TypedGraph, quoted};
use crate::Ingest;
use crate::files::invalid;
use crate::ingest::features::{BATCH_VALUES, push_array_as};
use crate::ingest::nodes::NO_SPLIT;
use crate::npy::{open_array, open_raw};

/// Writes ids or names, features, times, labels and splits of all nodes; returns the types.
pub(super) fn nodes(
    ingest: &mut Ingest<'_>,
    source: &Path,
    graph: &TypedGraph,
    data: Vec<TypeData>,
    spaces: &[Space],
    edge_types: &EdgeTypes,
) -> Result<Types> {
    let names = &graph.node_types;
    let count = |(name, data): (&String, &TypeData)| NodeType { name: name.clone(), count: data.count };
    let node_types: Vec<NodeType> = names.iter().zip(&data).map(count).collect();
    let edge = |[from, relation, to]: [u32; 3]| {
        let [source, target] = [from, to].map(|of| names[of as usize].clone());
        EdgeType { source, name: edge_types.name(relation), target }
    };
    let types = Types::new(node_types, edge_types.list().map(edge).collect());
    let types = types.or_else(|what| invalid(source, what, "correct the description of the graph"))?;
    let num_nodes = types.num_nodes() as u64;
    if num_nodes == 0 {
        return invalid(source, "there is no node", "check that these are the right files");
    }
    ingest.check_size(num_nodes)?;
    ingest.num_nodes = Some(num_nodes);
    ids(ingest, source, &types, spaces)?;
    if data.iter().any(|data| data.times.is_some()) {
        let mut stream = ingest.writer.stream::<i64>("node_times")?;
        for data in &data {
            match &data.times {
                Some(times) => stream.write(times)?,
                // Nodes without a time are there at all times.
                None => (0..data.count).step_by(BATCH_VALUES).try_for_each(|start| {
                    stream.write(&vec![i64::MIN; (data.count - start).min(BATCH_VALUES as u64) as usize])
                })?,
            }
        }
        let meta = stream.finish(None)?;
        ingest.writer.add("node_times", meta);
    }
    let mut names_of_features = Map::new();
    for (of, data) in data.into_iter().enumerate() {
        let start = types.range(of).start;
        if let Some((path, labels)) = &data.labels {
            let mut all = vec![-1; num_nodes as usize];
            all[start as usize..][..labels.len()].copy_from_slice(labels);
            let unlabelled = labels.iter().filter(|&&label| label == -1).count();
            if unlabelled > 0 {
                ingest.note(format!("{unlabelled} of {} nodes of type {:?} have no label", data.count, names[of]));
            }
            ingest.labels(path, &all, None)?;
        }
        if let Some((path, targets)) = data.targets {
            ingest.targets_from(&path, targets, start, num_nodes)?;
        }
        if let Some((path, parts)) = &data.splits {
            let mut splits = [const { Vec::new() }; 3];
            for (node, &part) in (start..).zip(parts).filter(|&(_, &part)| part != NO_SPLIT) {
                splits[usize::from(part)].push(node);
            }
            ingest.splits(path, &splits[0], &splits[1], &splits[2])?;
        }
        if data.count == 0 {
            continue;
        }
        match data.features {
            None => {}
            Some(FeatureRows::Array(path, raw)) => {
                let array = if raw.is_some() { open_raw(&path, raw)? } else { open_array(&path)? };
                push_array_as(ingest, &Meta::features_of(of), array, Dtype::F32)?;
            }
            Some(FeatureRows::Spool(spool)) => {
                if let Some(columns) = &spool.names {
                    names_of_features.insert(names[of].clone(), columns.clone().into());
                }
                spooled(ingest, of, *spool)?;
            }
        }
    }
    if !names_of_features.is_empty() {
        ingest.provenance("feature_names_by_type", Value::Object(names_of_features));
    }
    Ok(types)
}

/// Stores spooled rows as the features of a node type.
fn spooled(ingest: &mut Ingest<'_>, of: usize, spool: Spool) -> Result<()> {
    let Spool { source, path, dim, out, .. } = spool;
    out.finish(Some(dim))?;
    let (values, _) = read_npy::<f32>(&path, Load::Mmap)?;
    let mut sink = ingest.features_as(&Meta::features_of(of), &source, dim, Dtype::F32)?;
    values.chunks((BATCH_VALUES / dim.max(1)).max(1) * dim.max(1)).try_for_each(|rows| sink.push(rows))?;
    sink.finish()?;
    drop(values);
    fs::remove_file(&path).map_err(|e| Error::io(&path, e))
}

/// Numbers of the ids of the nodes of each type, and the set that they are of.
fn numbers(types: &Types, spaces: &[Space]) -> Vec<Vec<(u32, u32)>> {
    let mut numbers: Vec<Vec<(u32, u32)>> = vec![Vec::new(); types.node_types().len()];
    for (at, space) in (0u32..).zip(spaces) {
        if let Members::Mixed(members) = &space.members {
            (0..).zip(members).for_each(|(number, &(of, _))| numbers[of as usize].push((at, number)));
        }
    }
    numbers
}

/// Refuses an id that two nodes of a type have, in different sets of ids: it would name both.
fn refuse_twice(source: &Path, node_type: &str, numbers: &[(u32, u32)], spaces: &[Space]) -> Result<()> {
    if numbers.windows(2).all(|pair| pair[0].0 == pair[1].0) {
        return Ok(());
    }
    let mut ids = HashSet::new();
    for &(space, number) in numbers {
        let mut id = Vec::new();
        spaces[space as usize].ids.write(number, &mut id);
        if let Some(id) = ids.replace(id) {
            let id = String::from_utf8_lossy(&id).into_owned();
            let what =
                format!("two nodes of type {node_type:?} have the id {}, each in an id space of its own", quoted(&id));
            return invalid(source, what, "give the nodes of a type ids that differ, or one id space");
        }
    }
    Ok(())
}

/// Writes the ids of all nodes: numbers, or where those of any type are text, the type and the id of each as its name.
fn ids(ingest: &mut Ingest<'_>, source: &Path, types: &Types, spaces: &[Space]) -> Result<()> {
    let mixed = numbers(types, spaces);
    for (node_type, numbers) in types.node_types().iter().zip(&mixed) {
        refuse_twice(source, &node_type.name, numbers, spaces)?;
    }
    let mut all = Vec::new();
    for (of, mixed) in mixed.iter().enumerate() {
        let own = spaces.iter().position(|space| matches!(space.members, Members::Of(own) if own == of));
        match own {
            Some(space) => all.push((space, None)),
            None => all.push((0, Some(mixed))),
        }
    }
    // Set and number of the id of each node.
    let nodes = || {
        all.iter().enumerate().flat_map(|(of, &(space, mixed))| {
            let count = types.range(of).len() as u32;
            (0..count).map(move |node| match mixed {
                Some(mixed) => (of, &spaces[mixed[node as usize].0 as usize], mixed[node as usize].1),
                None => (of, &spaces[space], node),
            })
        })
    };
    if spaces.iter().any(|space| space.ids.are_text()) {
        let mut names = ingest.writer.stream::<u8>("node_names")?;
        let mut ends = ingest.writer.stream::<u64>("node_name_ends")?;
        let mut name = Vec::new();
        for (of, space, number) in nodes() {
            name.clear();
            name.extend_from_slice(types.node_types()[of].name.as_bytes());
            name.push(b':');
            space.ids.write(number, &mut name);
            names.write(&name)?;
            ends.write(&[names.len()])?;
        }
        let (names, ends) = (names.finish(None)?, ends.finish(None)?);
        ingest.writer.add("node_names", names);
        ingest.writer.add("node_name_ends", ends);
        return Ok(());
    }
    let ids: Vec<u64> = nodes().map(|(_, space, number)| space.ids.id(number)).collect();
    ingest.node_ids(source, &ids)
}
