use super::*;

#[test]
fn rows_are_judged_by_the_other_half() {
    // The halves agree on rows 0 and 1; rows 2 and 3 were accessed in one half each.
    let halves = [vec![3, 2, 1, 0, 0], vec![3, 1, 0, 1, 0]];
    // By the even half: 3, 4, 4, 5 hits of 5 in 1, 2, 3, 5 rows; by the odd one: 3, 5, 6 of 6 in 1, 3, 5.
    let expected = [(1, 6.0), (2, 8.0), (3, 9.0), (5, 11.0)].map(|(rows, hits)| (rows, hits / 11.0));
    assert_eq!(hit_shares(&halves), expected);
}

#[test]
fn accesses_by_chance_promise_no_more_than_their_share() {
    // Each row is accessed once, in one half: what a half ranks first, the other never accesses.
    let halves = [vec![1, 0, 1, 0], vec![0, 1, 0, 1]];
    assert_eq!(hit_shares(&halves), [(2, 0.0), (4, 1.0)]);
    // Without accesses there is nothing to save.
    assert_eq!(hit_shares(&[vec![0; 3], vec![0; 3]]), [(3, 0.0)]);
    assert_eq!(hit_shares(&[Vec::new(), Vec::new()]), []);
}

#[test]
fn points_begin_without_a_cache() {
    let savings = Savings { batch_seconds: 2.0, by_rows: vec![(2, 0.5), (9, 0.9), (10, 1.0)] };
    let points = |num_devices| {
        let points = savings.points(num_devices, (40, 8), 0).into_iter();
        points.map(|p| (p.bytes, p.saved_seconds)).collect::<Vec<_>>()
    };
    assert_eq!(points(1), [(0, 0.0), (56, 0.5), (112, 0.9), (120, 1.0)]);
    // Nine rows on two devices take as much of the first as ten.
    assert_eq!(points(2), [(0, 0.0), (48, 0.5), (80, 1.0)]);
}

/// The curve of a pool has, at each of its sizes, what the best number of replicated rows saves.
#[test]
fn points_of_a_pool_are_those_of_the_best_replication() {
    let by_rows = vec![(2, 3.0), (5, 5.0), (11, 6.5), (20, 7.0)];
    let savings = Savings { batch_seconds: 9.0, by_rows: by_rows.clone() };
    for (num_devices, [own, peer, host]) in [
        (2u64, [1.0, 3.0, 10.0]),
        (3, [1.0, 3.0, 10.0]),
        (4, [1.0, 9.0, 10.0]),
        (2, [2.0, 1.0, 4.0]),
        (3, [1.0, 5.0, 3.0]),
    ] {
        let seconds = RowSeconds { own, peer, host };
        let room = |bytes: u64, replicated: u32| {
            let each = bytes.saturating_sub(40) / 8;
            let replicated = each.min(replicated.into());
            Rows { cached: replicated + num_devices * (each - replicated), replicated: replicated as u32 }
        };
        let points = savings.points_of_fastest(num_devices, (40, 8), room, seconds);
        assert_eq!(points[0], CachePoint { bytes: 0, saved_seconds: 0.0 });
        assert_eq!(points.last().map(|p| p.bytes), Some(40 + 20 * 8), "all rows on every device");
        for point in &points[1..] {
            let saved = |replicated| {
                7.0 - seconds.of(room(point.bytes, replicated), num_devices, |rows| at(&by_rows, rows), 7.0) / host
            };
            let best = (0..=20).map(saved).fold(0.0, f64::max);
            assert!(
                (point.saved_seconds - best).abs() < 1e-9,
                "{point:?}, {best} of {num_devices} devices, {seconds:?}"
            );
        }
        assert!(points.windows(2).all(|p| p[0].saved_seconds <= p[1].saved_seconds), "{points:?}");
    }
}
