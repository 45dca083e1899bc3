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
