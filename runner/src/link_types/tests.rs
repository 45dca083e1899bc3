#![expect(clippy::single_range_in_vec_init, reason = "lists of ranges, here of one")]

use morphgl_graph_store::{EdgeType, NodeType, Topology, Types};

use super::*;

/// Three users and four items, with edges from users to items, and back where `both`.
fn rated(both: bool) -> Dataset {
    let nodes = [("user", 3), ("item", 4)].map(|(name, count)| NodeType { name: name.into(), count });
    let edge =
        |source: &str, target: &str| EdgeType { source: source.into(), name: "to".into(), target: target.into() };
    let edges = if both { vec![edge("user", "item"), edge("item", "user")] } else { vec![edge("user", "item")] };
    let types = Types::new(nodes.into(), edges).expect("types");
    let back: [&[u32]; 3] = if both { [&[3, 4], &[], &[3]] } else { [&[], &[], &[]] };
    let rows: [&[u32]; 7] = [back[0], back[1], back[2], &[0, 2], &[0], &[], &[]];
    let ends = rows.iter().scan(0u64, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    });
    let graph = Topology::new(std::iter::once(0).chain(ends).collect::<Vec<_>>(), rows.concat(), None);
    let of_edges = if both { vec![1u16, 1, 1, 0, 0, 0] } else { vec![0, 0, 0] };
    Dataset::new("rated", graph.and_then(|graph| graph.with_types(types, of_edges)).expect("edges of their types"))
}

#[test]
fn partners_are_of_the_other_type() {
    for both in [false, true] {
        let dataset = rated(both);
        assert_eq!(of_pairs(&dataset), Some([0, 1]));
        assert_eq!(
            (partners(&dataset, Some([0, 1]), 1), partners(&dataset, Some([0, 1]), 6)),
            (vec![3..7], vec![0..3])
        );
        assert_eq!((candidates(&dataset, 4), candidates(&dataset, 2)), (3..7, 0..3));
    }
}

#[test]
fn without_types_all_nodes_are_partners() {
    let typed = rated(true).topology;
    let graph = Topology::new(typed.indptr().to_vec(), typed.indices().to_vec(), None).expect("a graph");
    let dataset = Dataset::new("plain", graph);
    assert_eq!((of_pairs(&dataset), partners(&dataset, None, 1), candidates(&dataset, 4)), (None, vec![0..7], 0..7));
}
