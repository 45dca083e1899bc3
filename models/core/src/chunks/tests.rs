use morphgl_conformance::training::tiny;

use super::*;

#[test]
fn a_chunk_stays_within_limits() {
    let dataset = tiny();
    let topology = &dataset.topology;
    let mut chunker = Chunker::new(topology, true);
    let rows: Vec<u32> = (0..12).collect();
    let mut start = 0;
    while start < rows.len() {
        let Chunk { nodes, degrees, block } = chunker
            .next(&rows[start..], 6, Limits { edges: 7, rows: 4, ..Limits::default() })
            .expect("neighbours that exist");
        assert!(block.num_src <= 6 && block.num_edges() <= 7 && (1..=4).contains(&block.num_dst), "{block:?}");
        assert_eq!(nodes[..block.num_dst], rows[start..start + block.num_dst]);
        for row in 0..block.num_dst {
            let sources: Vec<u32> = block.row(row).iter().map(|&u| nodes[u as usize]).collect();
            assert_eq!(sources, topology.neighbors(rows[start + row]));
        }
        assert_eq!(degrees.len(), nodes.len());
        if topology.weights().is_none() {
            assert!(nodes.iter().zip(degrees).all(|(&v, &d)| d == topology.degree(v) as f32), "{degrees:?}");
        }
        start += block.num_dst;
    }
}

#[test]
fn without_neighbours_a_chunk_is_its_rows() {
    let dataset = tiny();
    let mut chunker = Chunker::new(&dataset.topology, false);
    let chunk = chunker.next(&[3, 1, 4], usize::MAX, Limits::default()).expect("rows");
    assert_eq!((&chunk.nodes[..], chunk.block.num_edges()), (&[3, 1, 4][..], 0));
}
