use morphgl_registry::Fanouts;
use proptest::prelude::*;

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
        assert_eq!(
            selected,
            SelectedRows { tables: None, rows, edges, bytes, part_edges: vec![edges] },
            "{budget} bytes"
        );
    }
    // The first row is cold: with room for tables as well, others save more.
    let cold = [1.0, 40.0, 30.0, 20.0, 10.0];
    let selected = select(&cold, 12 * 5 + 4 * 5 + 16).expect("room");
    assert!(selected.tables.is_some() && (0..5).all(|v| selected.contains(v) == (v > 0)), "{selected:?}");
    // Rows at the end that save nothing are left out.
    assert_eq!(select(&[5.0, 4.0, 0.0, 0.0, 0.0], 1000).expect("room").rows, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// Several devices hold disjoint rows, each within the budget, packed in node order; all rows where these fit, and otherwise about as
    /// many bytes on each device.
    #[test]
    fn rows_are_spread_over_devices(
        degrees in prop::collection::vec(0u64..30, 1..60),
        num_devices in 2usize..6,
        room in 0u64..1500,
    ) {
        let num_nodes = degrees.len();
        let indptr: Vec<u64> = std::iter::once(0).chain(degrees.iter().scan(0, |sum, d| { *sum += d; Some(*sum) })).collect();
        let indices: Vec<u32> = (0..degrees.iter().sum::<u64>()).map(|i| (i * 7 % num_nodes as u64) as u32).collect();
        let topology = Topology::new(indptr, indices, None).expect("a graph");
        let hotness: Vec<f32> = (0..num_nodes).map(|v| 1.0 + (v * 37 % 101) as f32).collect();
        let hops = NeighborSettings::from("3".parse::<Fanouts>().expect("fanouts"));
        let rows = CsrRows { topology: &topology, hotness: &hotness, hops: &hops, num_devices, extra: Extra::default() };
        let tables = 12 * num_nodes as u64;
        prop_assert!(select_spread(&rows, tables - 1).is_none());
        let selected = select_spread(&rows, tables + room).expect("the tables fit");
        let largest = *degrees.iter().max().expect("a node");
        let mut edges = vec![0; num_devices];
        let tables_of = selected.tables.as_ref().expect("tables");
        for (v, &degree) in (0u32..).zip(&degrees) {
            match selected.part(v) {
                Some(part) => {
                    prop_assert_eq!(tables_of.starts[v as usize], CACHED | (part as u64) << PART | edges[part]);
                    edges[part] += degree;
                }
                None => prop_assert_eq!(tables_of.starts[v as usize], topology.indptr()[v as usize]),
            }
            prop_assert_eq!(u64::from(tables_of.lens[v as usize]), degree);
        }
        prop_assert_eq!(&edges, &selected.part_edges);
        prop_assert_eq!(selected.edges, edges.iter().sum::<u64>());
        let most = *edges.iter().max().expect("a device");
        prop_assert!(selected.bytes == tables + 4 * most && selected.bytes <= tables + room);
        let all: u64 = degrees.iter().sum();
        if 4 * (all.div_ceil(num_devices as u64) + largest) <= room {
            prop_assert_eq!(selected.edges, all);
        }
        prop_assert!(most - edges.iter().min().expect("a device") <= largest, "{:?}", edges);
    }
}
