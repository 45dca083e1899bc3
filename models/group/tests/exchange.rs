//! Laws of exchanges and divisions.

use std::thread;
use std::time::Duration;

use morphgl_group::{Division, Exchange, GroupError, HostExchange, Weights};
use morphgl_registry::BatchId;
use proptest::collection::vec;
use proptest::prelude::*;

/// What each trainer of a group returns, by rank.
fn together<T: Send>(ends: Vec<HostExchange>, each: impl Fn(&mut HostExchange) -> T + Sync) -> Vec<T> {
    let each = &each;
    thread::scope(|scope| {
        let running: Vec<_> = ends.into_iter().map(|mut end| scope.spawn(move || each(&mut end))).collect();
        running.into_iter().map(|t| t.join().expect("the trainer ends well")).collect()
    })
}

fn group(size: usize) -> Vec<HostExchange> {
    HostExchange::group(size, Duration::from_secs(60))
}

/// Values of all magnitudes, whose sums depend on the order in which they are added.
fn value(rank: usize, round: usize, i: usize) -> f32 {
    let x = ((rank * 7919 + round * 104_729 + i * 31) % 1009) as f32 - 504.0;
    x * 10f32.powi((i % 13) as i32 - 6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sums_are_added_in_the_order_of_ranks(size in 1usize..=8, lengths in vec(0usize..40, 1..4)) {
        let sums = together(group(size), |end| {
            let mut sums = Vec::new();
            for (round, &len) in lengths.iter().enumerate() {
                let mut values: Vec<f32> = (0..len).map(|i| value(end.rank(), round, i)).collect();
                end.all_reduce(&mut values).unwrap();
                sums.push(values);
            }
            sums
        });
        for (round, &len) in lengths.iter().enumerate() {
            let expected: Vec<f32> = (0..len)
                .map(|i| (1..size).fold(value(0, round, i), |sum, rank| sum + value(rank, round, i)))
                .collect();
            for of_rank in &sums {
                prop_assert_eq!(&of_rank[round], &expected);
            }
        }
    }

    #[test]
    fn everybody_gathers_everything(size in 1usize..=8, rounds in 1usize..5) {
        let bytes = |rank: usize, round: usize| vec![rank as u8; rank * 3 + round];
        let gathered = together(group(size), |end| {
            (0..rounds).map(|round| end.all_gather(&bytes(end.rank(), round)).unwrap()).collect::<Vec<_>>()
        });
        for of_rank in gathered {
            for (round, all) in of_rank.iter().enumerate() {
                prop_assert_eq!(all, &(0..size).map(|rank| bytes(rank, round)).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn shares_are_the_whole(weights in vec(0u32..100, 1..9), num_seeds in 0usize..2000) {
        let weights: Vec<f64> = weights.into_iter().map(f64::from).collect();
        let total: f64 = weights.iter().sum();
        let Some(division) = Weights::new(&weights) else {
            prop_assert_eq!(total, 0.0);
            return Ok(());
        };
        let mut end = 0;
        for (rank, weight) in weights.iter().enumerate() {
            let share = division.share(BatchId::default(), num_seeds, rank).unwrap();
            prop_assert_eq!(share.start, end);
            end = share.end;
            let exact = weight / total * num_seeds as f64;
            prop_assert!((share.len() as f64 - exact).abs() <= 1.0, "{} seeds instead of {exact}", share.len());
        }
        prop_assert_eq!(end, num_seeds);
    }
}

#[test]
fn weights_that_divide_nothing_are_none() {
    for weights in [&[][..], &[0.0, 0.0], &[1.0, -1.0], &[f64::NAN, 1.0], &[f64::INFINITY, 1.0]] {
        assert_eq!(Weights::new(weights), None, "{weights:?}");
    }
}

#[test]
fn who_leaves_is_named_with_the_reason() {
    let errors = together(group(3), |end| {
        end.all_reduce(&mut [1.0]).unwrap();
        if end.rank() == 1 {
            end.leave("its disk is full");
        }
        let first = end.all_gather(&[]).unwrap_err();
        assert_eq!(end.all_reduce(&mut [1.0]).unwrap_err(), first, "every further call fails alike");
        first.to_string()
    });
    assert!(errors.iter().all(|e| e == "trainer 1 has left the group: its disk is full"), "{errors:?}");
}

#[test]
fn who_ends_has_left() {
    let errors = together(group(2), |end| (end.rank() == 0).then(|| end.all_reduce(&mut [1.0]).unwrap_err()));
    assert_eq!(errors[0], Some(GroupError::Left { rank: 1, why: "it has ended".to_string() }));
}

#[test]
fn who_does_not_come_is_named() {
    let limit = Duration::from_secs(2);
    let mut ends = HostExchange::group(3, limit);
    let _absent = ends.pop();
    let errors = together(ends, |end| end.all_gather(&[]).unwrap_err());
    assert_eq!(errors, vec![GroupError::Late { ranks: vec![2], limit }; 2]);
}

#[test]
fn models_of_other_sizes_are_named() {
    let errors = together(group(2), |end| end.all_reduce(&mut vec![0.0; 3 + end.rank()]).unwrap_err().to_string());
    let expected = "trainer 1 is not where trainer 0 is: it adds 4 values, trainer 0 3; give all the same model";
    assert_eq!(errors, [expected, expected]);
}
