//! Walks by enumeration: visits of a node's neighbours are compared with their exact probabilities.

mod draws;

use std::collections::HashMap;

use morphgl_batching_cpu::CpuWalk;
use morphgl_registry::{HostBatch, SamplerSettings, Sampling, WalkSettings};

/// In-neighbours of each node; 1 twice among those of 0, and 4 has none.
const ROWS: [&[u32]; 5] = [&[1, 1, 2, 3], &[2, 0], &[4], &[1, 4, 0], &[]];

/// Adds the probability of each path of at most `left` further steps from its last node.
fn walks(path: &mut Vec<u32>, left: u32, probability: f64, restart: f64, paths: &mut HashMap<Vec<u32>, f64>) {
    let row = ROWS[*path.last().expect("a walk begins at a node") as usize];
    let ends = if path.len() == 1 { 0.0 } else { restart };
    if left == 0 || row.is_empty() {
        *paths.entry(path.clone()).or_default() += probability;
        return;
    }
    if ends > 0.0 {
        *paths.entry(path.clone()).or_default() += probability * ends;
    }
    for &next in row {
        path.push(next);
        walks(path, left - 1, probability * (1.0 - ends) / row.len() as f64, restart, paths);
        path.pop();
    }
}

/// The neighbours that one walk gives: the other nodes of its path, by visits and then by first visit.
fn neighbors(path: &[u32]) -> Vec<(u32, u32)> {
    let mut visits: Vec<(u32, u32)> = Vec::new();
    for &node in path.iter().filter(|&&node| node != 0) {
        match visits.iter_mut().find(|(visited, _)| *visited == node) {
            Some((_, count)) => *count += 1,
            None => visits.push((node, 1)),
        }
    }
    visits.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    visits
}

#[test]
fn walks_have_their_probability() {
    let walk = WalkSettings { walks: 1, length: 4, restart: 0.3, neighbors: 10, ..WalkSettings::of_layers(1) };
    let mut paths = HashMap::new();
    walks(&mut vec![0], walk.length, 1.0, walk.restart, &mut paths);
    let mut expected: HashMap<Vec<(u32, u32)>, f64> = HashMap::new();
    paths.iter().for_each(|(path, p)| *expected.entry(neighbors(path)).or_default() += p);
    assert!((expected.values().sum::<f64>() - 1.0).abs() < 1e-12, "all walks");
    let outcome = |batch: &HostBatch| -> Vec<(u32, u32)> {
        let block = &batch.blocks[0];
        let visits = block.weights.as_ref().expect("importance").iter().map(|&w| w as u32);
        block.row(0).iter().map(|&local| batch.input_nodes[local as usize]).zip(visits).collect()
    };
    let settings = SamplerSettings { seed: 5, ..Sampling::Walk(walk).into() };
    draws::check(&ROWS, settings, CpuWalk::new, outcome, &expected);
}
