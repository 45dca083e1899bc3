use morphgl_conformance::batching::graphs;
use proptest::prelude::*;
use rayon::ThreadPoolBuilder;

use super::*;

/// A graph whose rows are scanned in pieces of up to three in-neighbours, as from a disk.
struct Pieces(Topology);

impl Graph for Pieces {
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    fn degree(&self, node: u32) -> Result<u64> {
        Ok(self.0.degree(node))
    }

    fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
        self.0.scan(&mut |v, neighbors| neighbors.chunks(3).for_each(|piece| row(v, piece)))
    }
}

proptest! {
    #[test]
    fn sums_are_the_same_bits_on_any_number_of_threads(
        rows in prop::collection::vec(prop::collection::vec(0u32..2000, 0..12), 1..700),
        part in 1u64..300,
    ) {
        let num_nodes = rows.len() as u32;
        let mut indptr = vec![0u64];
        indptr.extend(rows.iter().scan(0, |end, row| { *end += row.len() as u64; Some(*end) }));
        let indices: Vec<u32> = rows.iter().flatten().map(|u| u % num_nodes).collect();
        let topology = Topology::new(indptr, indices, None).expect("a graph");
        // Some rows have no term.
        let term = |v: u32, degree: u64| if v % 5 == 3 { 0.0 } else { 1.0 / (v as f32 + 0.7) + degree as f32 };
        let mut expected = vec![0f32; num_nodes as usize];
        for v in 0..num_nodes {
            topology.neighbors(v).iter().for_each(|&u| expected[u as usize] += term(v, topology.degree(v)));
        }
        let bits = |sums: &[f32]| sums.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            let mut sums = vec![0f32; num_nodes as usize];
            pool.install(|| blocked(&topology, &mut sums, part, &|start, end, row| {
                for_rows(&topology, start, end, |v, edges, degree| row(term(v, degree), edges));
            })).expect("neighbours that exist");
            prop_assert_eq!(bits(&sums), bits(&expected), "{} threads", threads);
        }
        let mut sums = vec![0f32; num_nodes as usize];
        scatter(&Pieces(topology), &mut sums, term).expect("scanned");
        prop_assert_eq!(bits(&sums), bits(&expected));
    }
}

#[test]
fn a_failure_of_the_graph_is_returned() {
    struct Broken;
    impl Graph for Broken {
        fn num_nodes(&self) -> usize {
            2
        }
        fn degree(&self, node: u32) -> Result<u64> {
            match node {
                0 => Ok(1),
                _ => Err(morphgl_registry::Error::setting("degrees", "the disk fails")),
            }
        }
        fn scan(&self, row: &mut dyn FnMut(u32, &[u32])) -> Result<()> {
            row(0, &[1]);
            row(1, &[0]);
            row(1, &[1]);
            Ok(())
        }
    }
    let mut sums = [0f32; 2];
    let error = scatter(&Broken, &mut sums, |_, _| 1.0).expect_err("refused");
    assert!(error.to_string().contains("the disk fails"), "{error}");
    assert_eq!(sums, [0.0, 1.0], "nothing is added for a row whose degree is unknown");
}

/// A file that is changed while it is mapped is named, by the scan and by propagation blocking.
#[test]
fn ids_that_change_in_a_mapped_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let dataset = graphs::mapped(&graphs::random(300, 4, false), &dir.path().join("set"));
    let (topology, indices) = (&dataset.topology, dataset.topology.indices());
    for node in [300, 1 << 20, u32::MAX] {
        let mut changed = indices.to_vec();
        *changed.last_mut().expect("edges") = node;
        graphs::overwrite(indices, &changed);
        let term = |_, _| 1.0;
        let errors = [
            scatter(topology, &mut [0f32; 300], term),
            blocked(topology, &mut [0f32; 300], 100, &|start, end, row| {
                for_rows(topology, start, end, |v, edges, degree| row(term(v, degree), edges));
            }),
            scatter(&Pieces(topology.clone()), &mut [0f32; 300], term),
        ];
        for (way, error) in
            errors.map(|sums| sums.expect_err("a neighbour does not exist").to_string()).iter().enumerate()
        {
            let has_file = error.contains(&indices.file().expect("mapped").display().to_string());
            assert_eq!(has_file, way < 2, "{error}");
            assert!(error.contains(&format!("from node {node}, but there are 300")), "{error}");
        }
    }
}

proptest! {
    /// A typed graph by type: the same sums by one scan and by threads in parts, and those of a loop over the sub-rows.
    #[test]
    fn sums_by_type_are_the_same_bits(num_nodes in 4usize..300, degree in 0usize..9, part in 1u64..300) {
        let topology = graphs::typed(num_nodes, degree, false).topology;
        let term = |v: u32, edge_type: u16, degree: u64| match (v + u32::from(edge_type)) % 5 {
            3 => 0.0,
            at => 1.0 / (v as f32 + 0.7) + degree as f32 * at as f32,
        };
        let mut expected = vec![0f32; num_nodes];
        for v in 0..num_nodes as u32 {
            for (edge_type, edges) in topology.sub_rows(v) {
                let value = term(v, edge_type as u16, edges.len() as u64);
                topology.indices()[edges].iter().for_each(|&u| expected[u as usize] += value);
            }
        }
        let bits = |sums: &[f32]| sums.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
        let mut sums = vec![0f32; num_nodes];
        let terms = |start, end, row: &mut dyn FnMut(f32, Range<usize>)| {
            for_sub_rows(&topology, start, end, |v, edge_type, edges, degree| row(term(v, edge_type, degree), edges));
        };
        blocked(&topology, &mut sums, part, &terms).expect("neighbours that exist");
        prop_assert_eq!(bits(&sums), bits(&expected));
        let mut sums = vec![0f32; num_nodes];
        scatter_by_type(&topology, &mut sums, term).expect("scanned");
        prop_assert_eq!(bits(&sums), bits(&expected));
    }
}
