use morphgl_registry::Fanouts;

use super::*;

fn star() -> Topology {
    // Node 0 has four in-neighbours, the others one each.
    Topology::new(vec![0u64, 4, 5, 6, 7, 8], vec![1u32, 2, 3, 4, 0, 0, 0, 0], None).expect("five nodes")
}

#[track_caller]
fn check(hotness: &[f32], fanouts: &str, budget: u64, expected: Option<&[u32]>) {
    let settings = NeighborSettings::from(fanouts.parse::<Fanouts>().expect("fanouts"));
    let selected = select_rows(&star(), hotness, &settings, budget);
    let nodes = selected.as_ref().map(|s| (0..5).filter(|&v| s.contains(v)).collect::<Vec<u32>>());
    assert_eq!(nodes.as_deref(), expected);
    if let Some(selected) = selected {
        assert!(selected.bytes <= budget, "{} of {budget} bytes", selected.bytes);
        assert_eq!(selected.bytes, 60 + 4 * selected.edges);
    }
}

#[test]
fn the_tables_are_charged_first() {
    check(&[1.0; 5], "1", 59, None);
    check(&[1.0; 5], "1", 63, Some(&[]));
    check(&[0.0, 0.0, 1.0, 0.0, 0.0], "1", 64, Some(&[2]));
}

#[test]
fn rows_are_ranked_by_reads_saved_per_byte() {
    // With fanout 1, a row of four edges saves per byte a quarter of what a row of one edge saves.
    check(&[3.0, 1.0, 1.0, 1.0, 1.0], "1", 76, Some(&[1, 2, 3, 4]));
    check(&[3.0, 1.0, 1.0, 1.0, 1.0], "-1", 76, Some(&[0]));
    check(&[3.0, 1.0, 0.0, 1.0, 1.0], "-1", 1000, Some(&[0, 1, 3, 4]));
}

/// With draw keys the rows of the first nodes are selected where these save as many reads, found by the graph's offsets.
#[test]
fn rows_of_the_first_nodes_are_selected_of_a_reordered_graph() {
    let topology = star().with_draw_keys(vec![1, 0, 2, 4, 3]).expect("a permutation");
    let settings = NeighborSettings::from("-1".parse::<Fanouts>().expect("fanouts"));
    let select = |hotness: &[f32], budget: u64| select_rows(&topology, hotness, &settings, budget);
    // Offsets and draw keys; four bytes per edge.
    let tables = 8 * 6 + 4 * 5;
    assert_eq!(select(&[1.0; 5], tables - 1), None);
    for (budget, rows, edges) in [(0, 0, 0), (15, 0, 0), (16, 1, 4), (23, 2, 5), (31, 4, 7), (32, 5, 8), (99, 5, 8)] {
        let selected = select(&[5.0, 4.0, 3.0, 2.0, 1.0], tables + budget).expect("room");
        let bytes = tables + 4 * edges;
        assert_eq!(selected, SelectedRows { tables: None, rows, edges, bytes }, "{budget} bytes");
    }
    // The first row is cold: with room for tables as well, others save more.
    let cold = [1.0, 40.0, 30.0, 20.0, 10.0];
    let selected = select(&cold, 12 * 5 + 4 * 5 + 16).expect("room");
    assert!(selected.tables.is_some() && (0..5).all(|v| selected.contains(v) == (v > 0)), "{selected:?}");
    // Rows at the end that save nothing are left out.
    assert_eq!(select(&[5.0, 4.0, 0.0, 0.0, 0.0], 1000).expect("room").rows, 2);
}
