use super::*;

fn most_visited(visits: &[u32], ignored: u32, limit: usize) -> Vec<(u32, f32)> {
    Counter::default().most_visited(visits, [ignored, u32::MAX], limit).collect()
}

#[test]
fn nodes_come_by_visits_then_by_first_visit() {
    let visits = [4, 7, 9, 7, 2, 9, 4, 1];
    assert_eq!(most_visited(&visits, 4, 10), [(7, 2.0), (9, 2.0), (2, 1.0), (1, 1.0)]);
    assert_eq!(most_visited(&visits, 0, 2), [(4, 2.0), (7, 2.0)]);
    assert_eq!(most_visited(&[4, u32::MAX, 4], 4, 2), []);
}

#[test]
fn few_and_many_visits_are_counted_alike() {
    let visits: Vec<u32> = (0..500u32).map(|i| i.wrapping_mul(2_654_435_761) >> 28).collect();
    for len in [0, 1, 63, 64, 65, 500] {
        let (mut few, mut many) = (Counter::default(), Counter::default());
        few.count_few(&visits[..len], [3, 5]);
        many.count_many(&visits[..len], [3, 5]);
        few.counts.sort_unstable();
        assert_eq!(few.counts, many.counts, "{len} visits");
    }
}
