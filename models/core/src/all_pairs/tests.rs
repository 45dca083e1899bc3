use super::*;

/// Small whole numbers, whose products and sums are exact: many scores are equal.
fn numbers(count: usize, seed: u64, range: u64) -> Vec<f32> {
    let number = |i: u64| (morphgl_platform::splitmix64(seed.wrapping_mul(1 << 32).wrapping_add(i)) % range) as f32;
    (0..count as u64).map(|i| number(i) - (range / 2) as f32).collect()
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
                        let found = rank_at(level, &rows, dim, &pairs, score, known, memory);
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
            let ranks = rank_at(level, &rows, dim, &[[source, 5], [source, 199]], PairScore::Dot, None, 1 << 16);
            assert_eq!((ranks[0], ranks[0].equal), (ranks[1], 3), "{level}, source {source}");
        }
    }
}

#[test]
fn a_target_without_a_number_is_last() {
    let rows = [1.0, f32::NAN, 2.0, 3.0];
    let known = KnownPairs::new(4, &[&[[0, 2], [0, 1]]]);
    for level in SimdLevel::available() {
        let rank = |pair, known| rank_at(level, &rows, 1, &[pair], PairScore::Dot, known, 64)[0];
        assert_eq!(rank([0, 1], None), TargetRank { above: 3, equal: 0 });
        assert_eq!(rank([0, 1], Some(&known)), TargetRank { above: 2, equal: 0 });
        assert_eq!(rank([0, 2], None), TargetRank { above: 1, equal: 0 });
        assert_eq!(rank([0, 3], None).rank(), 1.0);
    }
}

#[test]
fn no_pairs_and_no_nodes() {
    assert_eq!(rank_of_targets(&[1.0], 1, &[], PairScore::Dot, None, 1 << 20), []);
    assert_eq!(rank_of_targets(&[], 4, &[], PairScore::Dot, None, 1 << 20), []);
}
