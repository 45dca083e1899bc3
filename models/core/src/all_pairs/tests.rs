use super::*;

/// Small whole numbers, whose products and sums are exact: many scores are equal.
fn numbers(count: usize, seed: u64, range: u64) -> Vec<f32> {
    let number = |i: u64| (morphgl_platform::splitmix64(seed.wrapping_mul(1 << 32).wrapping_add(i)) % range) as f32;
    (0..count as u64).map(|i| number(i) - (range / 2) as f32).collect()
}

/// All nodes but known ones.
fn all(num_nodes: usize, known: Option<&KnownPairs>) -> Candidates<'_> {
    Candidates { nodes: 0..num_nodes as u32, known }
}

/// The definition: every candidate is scored and compared.
fn expected(
    rows: &[f32],
    dim: usize,
    pairs: &[[u32; 2]],
    score: PairScore<'_>,
    known: Option<&KnownPairs>,
) -> Vec<TargetRank> {
    let row = |v: u32| &rows[v as usize * dim..][..dim];
    let of = |u: u32, v: u32| -> f64 {
        let weight = |k: usize| if let PairScore::DistMult(relation) = score { f64::from(relation[k]) } else { 1.0 };
        (0..dim).map(|k| f64::from(row(u)[k]) * weight(k) * f64::from(row(v)[k])).sum()
    };
    let rank = |&[u, v]: &[u32; 2]| {
        let candidates = (0..(rows.len() / dim) as u32)
            .filter(|&w| w != v && known.is_none_or(|known| !known.targets(u).contains(&w)));
        let (own, mut rank) = (of(u, v), TargetRank::default());
        for w in candidates {
            rank.above += u32::from(of(u, w) > own);
            rank.equal += u32::from(of(u, w) == own);
        }
        rank
    };
    pairs.iter().map(rank).collect()
}

#[test]
fn ranks_are_those_of_the_definition_at_every_level() {
    for (nodes, dim, num_pairs, seed) in
        [(1, 1, 3, 1), (31, 3, 40, 2), (33, 17, 1, 3), (300, 8, 500, 4), (97, 64, 129, 5)]
    {
        let rows = numbers(nodes * dim, seed, 5);
        let node = |i: usize| (morphgl_platform::splitmix64(i as u64 + 77 * seed) % nodes as u64) as u32;
        let pairs: Vec<[u32; 2]> = (0..num_pairs).map(|i| [node(2 * i), node(2 * i + 1)]).collect();
        let others: Vec<[u32; 2]> = (0..3 * nodes).map(|i| [node(5000 + 2 * i), node(5001 + 2 * i)]).collect();
        let known = KnownPairs::new(nodes, &[&others, &pairs, &others]);
        let relation = numbers(dim, seed + 100, 3);
        for score in [PairScore::Dot, PairScore::DistMult(&relation)] {
            for known in [None, Some(&known)] {
                let expected = expected(&rows, dim, &pairs, score, known);
                for level in SimdLevel::available() {
                    for memory in [0, 64 * 4 * dim, 1 << 20] {
                        let found =
                            rank_at(level, bounded::choose, &rows, dim, &pairs, score, &all(nodes, known), memory);
                        assert_eq!(found, expected, "{nodes} nodes of {dim}, {level}, {memory} bytes");
                    }
                }
            }
        }
    }
}

#[test]
fn the_own_score_is_equal_wherever_it_is_computed() {
    // Fractions that round: nodes with the same row tie with the target, wherever they stand.
    let (nodes, dim) = (200usize, 37usize);
    let mut rows: Vec<f32> = numbers(nodes * dim, 9, 1 << 20).iter().map(|x| x / 65_537.0).collect();
    let row = rows[5 * dim..6 * dim].to_vec();
    for twin in [40, 77, 199] {
        rows[twin * dim..][..dim].copy_from_slice(&row);
    }
    for level in SimdLevel::available() {
        for source in 0..nodes as u32 {
            let ranks = rank_at(
                level,
                bounded::choose,
                &rows,
                dim,
                &[[source, 5], [source, 199]],
                PairScore::Dot,
                &all(nodes, None),
                1 << 16,
            );
            assert_eq!((ranks[0], ranks[0].equal), (ranks[1], 3), "{level}, source {source}");
        }
    }
}

#[test]
fn a_target_without_a_number_is_last() {
    let rows = [1.0, f32::NAN, 2.0, 3.0];
    let known = KnownPairs::new(4, &[&[[0, 2], [0, 1]]]);
    for level in SimdLevel::available() {
        let rank =
            |pair, known| rank_at(level, bounded::choose, &rows, 1, &[pair], PairScore::Dot, &all(4, known), 64)[0];
        assert_eq!(rank([0, 1], None), TargetRank { above: 3, equal: 0 });
        assert_eq!(rank([0, 1], Some(&known)), TargetRank { above: 2, equal: 0 });
        assert_eq!(rank([0, 2], None), TargetRank { above: 1, equal: 0 });
        assert_eq!(rank([0, 3], None).rank(), 1.0);
    }
}

#[test]
fn no_pairs_and_no_nodes() {
    assert_eq!(rank_of_targets(&[1.0], 1, &[], PairScore::Dot, &all(1, None), 1 << 20), []);
    assert_eq!(rank_of_targets(&[], 4, &[], PairScore::Dot, &all(0, None), 1 << 20), []);
}

/// Among the candidates of a range, a rank is that among nodes which are no others.
#[test]
fn ranks_among_some_nodes_leave_out_the_others() {
    let (nodes, dim, candidates) = (130usize, 9usize, 31u32..97);
    let rows = numbers(nodes * dim, 3, 5);
    let node = |i: u64, below: u64| (morphgl_platform::splitmix64(i + 7) % below) as u32;
    let pairs: Vec<[u32; 2]> = (0..150).map(|i| [node(2 * i, nodes as u64), 31 + node(2 * i + 1, 66)]).collect();
    let others: Vec<[u32; 2]> = (0..400).map(|i| [node(1000 + 2 * i, 130), node(1001 + 2 * i, 130)]).collect();
    let known = KnownPairs::new(nodes, &[&others]);
    // With all other nodes known, nobody else is a candidate.
    let outside = (0..nodes as u32).flat_map(|u| (0..31).chain(97..130).map(move |v| [u, v]));
    let more = KnownPairs::new(nodes, &[&others, &outside.collect::<Vec<_>>()]);
    let expected = expected(&rows, dim, &pairs, PairScore::Dot, Some(&more));
    for level in SimdLevel::available() {
        let some = Candidates { nodes: candidates.clone(), known: Some(&known) };
        assert_eq!(
            rank_at(level, bounded::choose, &rows, dim, &pairs, PairScore::Dot, &some, 1 << 12),
            expected,
            "{level}"
        );
    }
}

#[test]
fn known_pairs_are_each_counted_once() {
    let lists: [&[[u32; 2]]; 3] = [&[[2, 1], [0, 3], [2, 0]], &[], &[[2, 1], [0, 3], [2, 3]]];
    let known = KnownPairs::new(4, &lists);
    let rows: Vec<&[u32]> = (0..4).map(|v| known.targets(v)).collect();
    assert_eq!(rows, [&[3][..], &[], &[0, 1, 3], &[]]);
    assert_eq!(KnownPairs::new(0, &[]).indptr, [0]);
    let many = ROWS_OF_TASK as u32 + 5;
    let pairs: Vec<[u32; 2]> = (0..3 * many).map(|i| [i % many, i / many]).collect();
    let known = KnownPairs::new(many as usize, &[&pairs, &pairs]);
    assert!((0..many).all(|v| known.targets(v) == [0, 1, 2]));
}
