//! Reverse PageRank against dense matrices.

mod common;

use common::{any_graph, graph, settings};
use morphgl_hotness::{Policy, ReversePageRank, WeightedReversePageRank};
use proptest::prelude::*;

type Matrix = Vec<Vec<f64>>;

/// `matrix[u][v]`: edges from `u` to `v`, divided by the in-degree of `v`; a column of zeros for in-degree 0.
fn transition(num_nodes: usize, edges: &[(u32, u32)]) -> Matrix {
    let mut matrix = vec![vec![0.0; num_nodes]; num_nodes];
    edges.iter().for_each(|&(u, v)| matrix[u as usize][v as usize] += 1.0);
    for v in 0..num_nodes {
        let degree: f64 = matrix.iter().map(|row| row[v]).sum();
        if degree > 0.0 {
            matrix.iter_mut().for_each(|row| row[v] /= degree);
        }
    }
    matrix
}

fn times(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

/// The solution of `a x = b` by elimination.
fn solve(mut a: Matrix, mut b: Vec<f64>) -> Vec<f64> {
    let n = b.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|&i, &j| a[i][column].abs().total_cmp(&a[j][column].abs())).expect("a row");
        a.swap(column, pivot);
        b.swap(column, pivot);
        let row = a[column].clone();
        for i in (0..n).filter(|&i| i != column) {
            let factor = a[i][column] / row[column];
            a[i].iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
            b[i] -= factor * b[column];
        }
    }
    (0..n).map(|i| b[i] / a[i][i]).collect()
}

#[track_caller]
fn assert_close(actual: &[f32], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (v, (&a, &e)) in actual.iter().zip(expected).enumerate() {
        assert!((f64::from(a) - e).abs() <= 1e-6 * e, "node {v}: {a}, not {e}");
    }
}

proptest! {
    #[test]
    fn weighted_equals_algorithm_1_by_matrices(
        (num_nodes, edges) in any_graph(),
        seeds in prop::collection::vec(any::<prop::sample::Index>(), 1..10),
        damping in 0.0f64..1.0,
        iterations in 1u32..8,
    ) {
        let mut seeds: Vec<u32> = seeds.iter().map(|i| i.index(num_nodes) as u32).collect();
        seeds.sort_unstable();
        seeds.dedup();
        let n = num_nodes as f64;
        let mut expected = vec![1.0 / n; num_nodes];
        seeds.iter().for_each(|&v| expected[v as usize] *= n / seeds.len() as f64);
        let matrix = transition(num_nodes, &edges);
        for _ in 0..iterations {
            expected = times(&matrix, &expected).into_iter().map(|sum| (1.0 - damping) / n + damping * sum).collect();
        }
        let policy = WeightedReversePageRank { damping, iterations };
        let actual = policy.score(&graph(num_nodes, &edges), &seeds, &settings("2", 1)).expect("scores");
        assert_close(&actual.features, &expected);
        prop_assert_eq!(actual.features, actual.rows);
    }

    #[test]
    fn plain_equals_the_solution_of_the_linear_system((num_nodes, edges) in any_graph(), damping in 0.0f64..0.85) {
        let n = num_nodes as f64;
        let mut system = transition(num_nodes, &edges);
        for (u, row) in system.iter_mut().enumerate() {
            row.iter_mut().for_each(|x| *x *= -damping);
            row[u] += 1.0;
        }
        let expected = solve(system, vec![(1.0 - damping) / n; num_nodes]);
        let graph = graph(num_nodes, &edges);
        let score = |policy: ReversePageRank| policy.score(&graph, &[0], &settings("2", 1)).expect("scores").features;
        assert_close(&score(ReversePageRank { damping, iterations: 500, tolerance: 1e-12 }), &expected);
        // Where it stops by default, what is left to change is a geometric series.
        let stopped = score(ReversePageRank { damping, ..Default::default() });
        let left: f64 = stopped.iter().zip(&expected).map(|(&a, &e)| (f64::from(a) - e).abs()).sum();
        prop_assert!(left <= 1e-3 * damping / (1.0 - damping) + 1e-6, "{} is left to change", left);
    }
}

#[test]
fn a_node_of_in_degree_0_passes_nothing_on() {
    // 1 and 2 lead to 0, and nothing leads to them.
    let graph = graph(3, &[(1, 0), (2, 0)]);
    let policy = WeightedReversePageRank { damping: 0.5, iterations: 1 };
    let scores = policy.score(&graph, &[0, 1], &settings("2", 1)).expect("scores").features;
    // Seeds begin with 1/2, and teleport adds 1/6; node 1's score goes nowhere.
    assert_close(&scores, &[1.0 / 6.0, 1.0 / 6.0 + 0.125, 1.0 / 6.0 + 0.125]);
    // After the second iteration only 1/6 of node 0 is left to be passed on.
    let policy = WeightedReversePageRank { iterations: 2, ..policy };
    let scores = policy.score(&graph, &[0, 1], &settings("2", 1)).expect("scores").features;
    assert_close(&scores, &[1.0 / 6.0, 1.0 / 6.0 + 1.0 / 24.0, 1.0 / 6.0 + 1.0 / 24.0]);
}

#[test]
fn invalid_parameters_are_refused() {
    let graph = graph(2, &[(0, 1)]);
    let refused = |policy: &dyn Policy, seeds: &[u32], expected: &str| {
        let error = policy.score(&graph, seeds, &settings("2", 1)).expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    };
    let plain = ReversePageRank::default();
    refused(&ReversePageRank { damping: 1.5, ..plain }, &[0], "damping factor 1.5; give");
    refused(&ReversePageRank { damping: f64::NAN, ..plain }, &[0], "damping factor NaN; give");
    refused(&ReversePageRank { iterations: 0, ..plain }, &[0], "give at least 1");
    refused(&ReversePageRank { tolerance: 0.0, ..plain }, &[0], "tolerance 0; give");
    refused(&WeightedReversePageRank { damping: -0.1, iterations: 5 }, &[0], "damping factor -0.1; give");
    refused(&WeightedReversePageRank::default(), &[], "no seeds");
    refused(&WeightedReversePageRank::default(), &[1, 2], "seed 2 does not exist");
}
