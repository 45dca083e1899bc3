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
