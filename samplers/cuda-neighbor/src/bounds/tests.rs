use super::*;

#[test]
fn degrees_are_counted_from_the_largest_on() {
    let degrees = [0u64, 5000, 4095, 4096, 5000, 1, 4095];
    let mut indptr = vec![0u64];
    indptr.extend(degrees.iter().scan(0, |end, degree| {
        *end += degree;
        Some(*end)
    }));
    let edges = degrees.iter().sum::<u64>() as usize;
    let degrees = Degrees::new(&Topology::new(indptr, vec![0u32; edges], None).expect("seven nodes"));
    assert_eq!((degrees.num_nodes(), degrees.counts), (7, vec![(5000, 2), (4096, 1), (4095, 2), (1, 1), (0, 1)]));
}

#[test]
fn the_largest_rows_bound_a_hop() {
    // Degrees 3, 1, 1, 0.
    let topology = Topology::new(vec![0u64, 3, 4, 5, 5], vec![1u32, 2, 3, 0, 0], None).expect("four nodes");
    let degrees = Degrees::new(&topology);
    let hop = |rows, fanout: &str| degrees.first_hop(rows, 0, fanout.parse().expect("a fanout"));
    let distinct = HopBounds::default();
    assert_eq!(hop(1, "-1"), HopBounds { rows: 1, expanded: 1, edges: 3, nodes: 4, ..distinct });
    assert_eq!(hop(1, "2"), HopBounds { rows: 1, expanded: 1, edges: 2, nodes: 3, ..distinct });
    assert_eq!(hop(2, "-1").edges, 4);
    assert_eq!(hop(100, "-1"), HopBounds { rows: 4, expanded: 4, edges: 5, nodes: 4, ..distinct });
    let fanout = "1".parse().expect("a fanout");
    assert_eq!(
        degrees.after(&hop(1, "1"), Expansion::New, fanout),
        HopBounds { rows: 2, expanded: 1, edges: 1, nodes: 3, ..distinct }
    );
    assert_eq!(degrees.after(&hop(1, "1"), Expansion::All, fanout).edges, 2);
    // Five seeds that may all be the node of degree 3; then each of the four nodes, and four again.
    let all = "-1".parse().expect("a fanout");
    let oversampled = degrees.first_hop(5, 10, all);
    assert_eq!(oversampled, HopBounds { rows: 5, expanded: 5, edges: 15, nodes: 8, repeats: 4 });
    let next = degrees.after(&oversampled, Expansion::All, all);
    assert_eq!(next, HopBounds { rows: 8, expanded: 8, edges: 17, nodes: 8, repeats: 4 });
    assert_eq!(degrees.after(&oversampled, Expansion::New, all).edges, 5);
}

#[test]
fn trees_are_copies_of_the_graph() {
    // Degrees 3, 1, 1, 0.
    let topology = Topology::new(vec![0u64, 3, 4, 5, 5], vec![1u32, 2, 3, 0, 0], None).expect("four nodes");
    let [one, three] = [1, 3].map(|copies| Degrees::new(&topology).of_copies(copies));
    let all = "-1".parse().expect("a fanout");
    let hops = |degrees: &Degrees, seeds| {
        let first = degrees.first_hop(seeds, 0, all);
        [first, degrees.after(&first, Expansion::All, all), degrees.after(&first, Expansion::New, all)]
    };
    for (one, three) in hops(&one, 1).into_iter().zip(hops(&three, 3)) {
        let HopBounds { rows, expanded, edges, nodes, .. } = one;
        let times =
            HopBounds { rows: 3 * rows, expanded: 3 * expanded, edges: 3 * edges, nodes: 3 * nodes, repeats: 0 };
        assert_eq!(three, times);
    }
}
