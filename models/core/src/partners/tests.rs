use super::*;
use crate::KnownPairs;

/// Small whole numbers, whose products and sums are exact: many scores are equal.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64).map(|i| (morphgl_platform::splitmix64(seed << 32 | i) % 5) as f32 - 2.0).collect()
}

fn pairs(count: usize, num_nodes: usize, seed: u64) -> Vec<[u32; 2]> {
    let node = |i: u64| (morphgl_platform::splitmix64(seed << 32 | i) % num_nodes as u64) as u32;
    (0..count as u64).map(|i| [node(2 * i), node(2 * i + 1)]).collect()
}

fn all(num_nodes: usize, known: Option<&KnownPairs>) -> Candidates<'_> {
    Candidates { nodes: 0..num_nodes as u32, known }
}

const DECODERS: [Decoder; 3] = [Decoder::Dot, Decoder::DistMult, Decoder::Mlp];

#[test]
fn best_partners_are_the_first_of_all_sorted_scores() {
    for (num_nodes, width, k) in [(1, 2, 3), (40, 8, 1), (600, 3, 7), (300, 17, 299), (50, 4, 0)] {
        let embeddings = numbers(num_nodes * width, 1);
        let known = KnownPairs::new(num_nodes, &[&pairs(3 * num_nodes, num_nodes, 2)]);
        let sources: Vec<u32> = (0..num_nodes as u32).rev().step_by(3).collect();
        for decoder in DECODERS {
            let parameters = numbers(decoder.num_elements(width, 1), 3);
            for known in [None, Some(&known)] {
                let found =
                    decoder.best_partners((&embeddings, width), &parameters, &sources, k, &all(num_nodes, known));
                assert_eq!(found.len(), sources.len());
                for (&source, found) in sources.iter().zip(found) {
                    let others = (0..num_nodes as u32)
                        .filter(|&v| v != source && known.is_none_or(|known| !known.targets(source).contains(&v)));
                    let of_source: Vec<[u32; 2]> = others.map(|v| [source, v]).collect();
                    let scores = decoder.scores(&embeddings, width, (&of_source, &[]), &parameters);
                    let mut all: Vec<Partner> =
                        of_source.iter().zip(scores).map(|(pair, score)| Partner { node: pair[1], score }).collect();
                    all.sort_by(|a, b| b.score.partial_cmp(&a.score).expect("no NaN").then(a.node.cmp(&b.node)));
                    all.truncate(k);
                    assert_eq!(found, all, "{decoder}, {num_nodes} nodes, source {source}");
                }
            }
        }
    }
}

#[test]
fn partners_are_candidates() {
    let (embeddings, known) = (numbers(800 * 3, 8), KnownPairs::new(800, &[&pairs(900, 800, 9)]));
    let some = Candidates { nodes: 250..777, known: Some(&known) };
    let found = Decoder::Dot.best_partners((&embeddings, 3), &[], &[3, 260], 20, &some);
    let every = Decoder::Dot.best_partners((&embeddings, 3), &[], &[3, 260], 800, &all(800, Some(&known)));
    for (found, every) in found.iter().zip(every) {
        let expected: Vec<Partner> = every.into_iter().filter(|p| (250..777).contains(&p.node)).take(20).collect();
        assert_eq!(*found, expected);
    }
}

#[test]
fn a_score_that_is_nan_is_last() {
    let embeddings = [1.0, f32::NAN, -1.0, 2.0];
    let found = Decoder::Dot.best_partners((&embeddings, 1), &[], &[0], 3, &all(4, None));
    assert_eq!(found[0].iter().map(|partner| partner.node).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn ranks_of_every_decoder_are_those_of_the_definition() {
    let (num_nodes, width) = (70, 5);
    let embeddings = numbers(num_nodes * width, 4);
    let pairs_of = pairs(90, num_nodes, 5);
    let known = KnownPairs::new(num_nodes, &[&pairs_of, &pairs(200, num_nodes, 6)]);
    for decoder in DECODERS {
        let parameters = numbers(decoder.num_elements(width, 1), 7);
        for known in [None, Some(&known)] {
            let found = decoder.ranks((&embeddings, width), &parameters, &pairs_of, &all(num_nodes, known));
            for (&[source, target], found) in pairs_of.iter().zip(found) {
                let score = |v: u32| decoder.scores(&embeddings, width, (&[[source, v]], &[]), &parameters)[0];
                let candidates = (0..num_nodes as u32)
                    .filter(|&v| v != target && known.is_none_or(|known| !known.targets(source).contains(&v)));
                let expected = candidates.fold(TargetRank::default(), |rank, v| TargetRank {
                    above: rank.above + u32::from(score(v) > score(target)),
                    equal: rank.equal + u32::from(score(v) == score(target)),
                });
                assert_eq!(found, expected, "{decoder}, pair {source} {target}");
            }
        }
    }
}
