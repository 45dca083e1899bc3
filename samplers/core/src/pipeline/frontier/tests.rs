use super::*;

/// Frontiers with offsets, with degrees alone, and with neither beside the local ids return the same.
#[test]
fn rows_and_degrees_do_not_depend_on_the_table_of_local_ids() {
    let topology = Topology::new(vec![0u64, 2, 2, 5, 6], vec![1u32, 3, 0, 1, 3, 2], None).expect("a graph");
    let mut fit = Frontier::new(&topology, Arc::default());
    let mut halves = Frontier { offsets_fit: false, ..Frontier::new(&topology, Arc::default()) };
    let mut none = Frontier { relabel: Relabel::default(), ..Frontier::new(&topology, Arc::default()) };
    let [fit, halves, none] = [&mut fit, &mut halves, &mut none].map(|frontier| {
        frontier.start(Vec::new(), Vec::new(), &[3, 0, 2], &topology);
        let (relabel, offsets, _) = frontier.parts();
        relabel.locals_of_first(2, &mut [1, 3], offsets);
        frontier.par_locate(&topology, true);
        let rows = frontier.rows().iter().map(|row| (row.start, row.degree, row.key)).collect::<Vec<_>>();
        (rows, frontier.finish())
    });
    assert_eq!(fit.0, [(5, 1, 3), (0, 2, 0), (2, 3, 2), (2, 0, 1)]);
    assert_eq!(fit.1, (vec![3, 0, 2, 1], vec![1.0, 2.0, 3.0, 0.0]));
    assert_eq!((&halves, &none), (&fit, &fit));
}

/// A mini-batch that panics, here over a neighbour beyond the graph, does not affect the next one.
#[test]
fn a_mini_batch_after_a_panic_is_as_any_other() {
    let topology = Topology::new(vec![0u64, 2, 2, 5, 6], vec![1u32, 3, 0, 1, 3, 2], None).expect("a graph");
    let mut frontier = Frontier::new(&topology, Arc::default());
    frontier.start(Vec::new(), Vec::new(), &[3, 0], &topology);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        frontier.relabel(3, &mut [1, 2, 4], &topology, true);
    }));
    assert!(outcome.is_err(), "the graph has no node 4");
    frontier.start(Vec::new(), Vec::new(), &[2, 1], &topology);
    frontier.relabel(2, &mut [3, 2], &topology, true);
    assert_eq!(frontier.rows().iter().map(|row| row.key).collect::<Vec<_>>(), [2, 1, 3]);
    assert_eq!(frontier.finish(), (vec![2, 1, 3], vec![3.0, 0.0, 1.0]));
}
