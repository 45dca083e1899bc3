use morphgl_graph_store::{EdgeType, NodeType};

use super::*;

#[test]
fn rows_are_grouped_by_edge_type_and_own_part() {
    let node = |name: &str, count| NodeType { name: name.to_string(), count };
    let edge = |ends: [&str; 3]| {
        let [source, name, target] = ends.map(str::to_string);
        EdgeType { source, name, target }
    };
    let types = Types::new(
        vec![node("a", 3), node("b", 2)],
        vec![edge(["b", "of", "a"]), edge(["a", "to", "a"]), edge(["a", "in", "b"])],
    )
    .expect("types");
    // Destinations 0, 4 and 1 of types a, b and a; the sources are these and 3.
    let block = Block {
        num_dst: 3,
        num_src: 4,
        indptr: vec![0, 3, 4, 4],
        indices: vec![1, 3, 2, 0],
        edge_types: Some(vec![0, 0, 1, 2]),
        ..Block::default()
    };
    let mut groups = Groups::default();
    groups.prepare((&types, 2), &block, &[0, 4, 1, 3]);
    let found: Vec<_> = groups.list.iter().map(|group| (group.weight, group.rows.clone())).collect();
    assert_eq!(found, [(0, 0..1), (1, 1..2), (2, 2..3), (3, 3..5), (4, 5..6)]);
    let entries: Vec<Vec<_>> = (0..6).map(|row| groups.csr(None).entries(row).collect()).collect();
    assert_eq!(
        entries,
        [vec![(0.5, 1), (0.5, 3)], vec![(1.0, 2)], vec![(1.0, 0)], vec![(1.0, 0)], vec![(1.0, 2)], vec![(1.0, 1)]]
    );
    let sums: Vec<Vec<_>> = (0..3).map(|row| groups.sum().entries(row).map(|(_, row)| row).collect()).collect();
    assert_eq!(sums, [vec![0, 1, 3], vec![2, 5], vec![4]]);
    groups.transpose();
    let (transposed, num_src) = groups.transposed();
    let of_sources: Vec<Vec<_>> = (0..num_src).map(|source| transposed.entries(source).collect()).collect();
    assert_eq!(
        of_sources,
        [vec![(1.0, 2), (1.0, 3)], vec![(0.5, 0), (1.0, 5)], vec![(1.0, 1), (1.0, 4)], vec![(0.5, 0)]]
    );
    groups.prepare((&types, 0), &block, &[0, 4, 1, 3]);
    assert_eq!(groups.num_rows(), 3);
}
