use super::*;

/// A graph whose node `v` has `degrees[v]` in-neighbours.
fn graph(degrees: &[u64]) -> Topology {
    let mut indptr = vec![0u64];
    degrees.iter().for_each(|degree| indptr.push(indptr[indptr.len() - 1] + degree));
    let num_edges = degrees.iter().sum::<u64>() as usize;
    Topology::new(indptr, vec![0; num_edges], None).expect("a graph")
}

#[test]
fn parts_are_the_whole_in_order() {
    let degrees: Vec<u64> = (0..37).map(|v| v * v % 11).collect();
    let topology = graph(&degrees);
    let rows: Vec<u32> = (0..37).rev().collect();
    for num_rows in [0, 1, 2, 5, 37] {
        for size in 1..=9 {
            for width in [1, 256] {
                let parts = divide(&rows[..num_rows], Some(&topology), width, size);
                assert_eq!(parts.len(), size);
                assert!(parts[0].start == 0 && parts[size - 1].end == num_rows, "{parts:?}");
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
            }
        }
    }
}

#[test]
fn parts_have_about_equal_work() {
    // The first node has as many edges as all others together.
    let mut degrees = vec![1; 1001];
    degrees[0] = 1000;
    let (topology, rows) = (graph(&degrees), (0..1001).collect::<Vec<u32>>());
    assert_eq!(divide(&rows, Some(&topology), 1, 2), [0..30, 30..1001], "edges count");
    assert_eq!(divide(&rows, None, 1, 2), [0..500, 500..1001], "a model that reads no graph has rows alone");
    assert_eq!(divide(&rows[..2], None, 8, 4), [0..0, 0..1, 1..1, 1..2], "more processes than rows");
}
