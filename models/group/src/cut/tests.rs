use proptest::prelude::*;

use super::*;

fn longest(sums: &[f64], lines: &[Line], ends: &[usize]) -> f64 {
    let starts = [0].into_iter().chain(ends.iter().copied());
    let seconds = starts.zip(ends).zip(lines).filter(|((start, end), _)| start < end);
    seconds.map(|((start, &end), line)| line.at(sums[end] - sums[start])).fold(0.0, f64::max)
}

/// The least time of all cuts.
fn least(sums: &[f64], lines: &[Line]) -> f64 {
    let num_seeds = sums.len() - 1;
    let mut best = f64::INFINITY;
    for first in 0..=num_seeds {
        for second in first..=num_seeds {
            best = best.min(longest(sums, lines, &[first, second, num_seeds]));
        }
    }
    best
}

proptest! {
    #[test]
    fn no_other_cut_is_faster(
        work in proptest::collection::vec(1.0..100.0f64, 1..12),
        lines in proptest::collection::vec((0.0..100.0f64, 0.01..10.0f64), 3),
    ) {
        let lines: Vec<Line> = lines.into_iter().map(|(fixed, slope)| Line { fixed, slope }).collect();
        let mut sums = vec![0.0];
        work.iter().for_each(|w| sums.push(sums.last().unwrap() + w));
        let ends = cut(&sums, &lines, &[0; 3]);
        prop_assert!(ends.is_sorted());
        prop_assert_eq!(ends[2], work.len());
        let (found, least) = (longest(&sums, &lines, &ends), least(&sums, &lines));
        prop_assert!(found <= least * (1.0 + 1e-9), "{} instead of {}", found, least);
    }

    #[test]
    fn trainers_have_the_seeds_that_they_must_have(seeds in 8usize..40, slopes in proptest::collection::vec(0.01..1e6f64, 4), least in proptest::collection::vec(0usize..3, 4)) {
        let lines: Vec<Line> = slopes.into_iter().map(|slope| Line { fixed: 0.0, slope }).collect();
        let sums: Vec<f64> = (0..=seeds).map(|i| i as f64).collect();
        let ends = cut(&sums, &lines, &least);
        prop_assert_eq!(ends[3], seeds);
        let starts = [0].into_iter().chain(ends.iter().copied());
        prop_assert!(starts.zip(&ends).zip(&least).all(|((start, end), least)| end - start >= *least));
    }
}

#[test]
fn a_trainer_slower_than_useful_has_no_seed() {
    let lines =
        [Line { fixed: 11.0, slope: 0.01 }, Line { fixed: 0.0, slope: 1.0 }, Line { fixed: 0.0, slope: f64::INFINITY }];
    let sums: Vec<f64> = (0..=10).map(f64::from).collect();
    assert_eq!(cut(&sums, &lines, &[0; 3]), [0, 10, 10]);
}
