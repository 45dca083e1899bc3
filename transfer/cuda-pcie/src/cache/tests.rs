use super::*;
use crate::ZERO_COPY_KEY;
use crate::replication::RowSeconds;

fn streams(devices: usize) -> Vec<Stream> {
    let device = |i| {
        Device::open(&format!("cuda:{i}").parse().expect("a place"), &ZERO_COPY_KEY).expect("the device is emulated")
    };
    (0..devices).map(|i| Stream::new(&device(i), true).expect("a stream")).collect()
}

#[track_caller]
fn check(hotness: &[f32], budgets: &[u64], expected: &[&[u8]]) {
    check_replicated((hotness, 0), budgets, expected);
}

#[track_caller]
fn check_replicated((hotness, replicated): (&[f32], u32), budgets: &[u64], expected: &[&[u8]]) {
    let matrix = FeatureMatrix::U8 { data: (0..20).collect::<Vec<u8>>().into(), dim: 2 };
    let read = |nodes: &[u32], out: &mut [u8]| {
        matrix.gather_rows(nodes, out);
        Ok(())
    };
    let streams = streams(budgets.len());
    let devices: Vec<_> = streams.iter().zip(budgets.iter().copied()).collect();
    let replication = Replication::Rows(replicated);
    let Some(cache) = Cache::fill(&devices, (&matrix, &read), (hotness, replication)).expect("enough memory") else {
        return assert!(expected.is_empty(), "nothing is cached");
    };
    let down = |(stream, part): (&Stream, &Buffer<u8>)| {
        part.to_vec(stream).expect("done").iter().step_by(2).map(|first| first / 2).collect::<Vec<u8>>()
    };
    let parts: Vec<Vec<u8>> = streams.iter().zip(cache.rows.parts()).map(down).collect();
    assert_eq!(parts, expected, "nodes on each device");
    let copies = cache.pool.replicated as usize * (budgets.len() - 1);
    assert_eq!(cache.map().len(), parts.iter().map(Vec::len).sum::<usize>() - copies);
    assert_eq!(
        cache.rows_by_device().map(|(_, rows)| rows).collect::<Vec<_>>(),
        parts.iter().map(Vec::len).collect::<Vec<_>>()
    );
}

#[test]
fn rows_are_assigned_round_robin_by_rank() {
    let hotness = [5.0, 0.0, 9.0, 1.0, 7.0, 7.0, 0.5, 8.0, 2.0, 3.0];
    // By rank: 2, 7, 4, 5, 0, 9, 8, 3, 6. A word of the map takes 16 bytes, a rank 4, an address 8.
    check(&hotness, &[16 + 8 + 3 * 2], &[&[2, 4, 7]]);
    check(&hotness, &[u64::MAX], &[&[0, 2, 3, 4, 5, 6, 7, 8, 9]]);
    check(&hotness, &[u64::MAX; 2], &[&[2, 4, 0, 8, 6], &[7, 5, 9, 3]]);
    check(&hotness, &[u64::MAX; 3], &[&[2, 5, 8], &[7, 0, 3], &[4, 9, 6]]);
    // The smallest budget applies to every device. It fits two rows of 2 bytes per device, with the ranks of both devices' rows beside
    // the map word and two addresses; one byte less fits one row per device.
    check(&hotness, &[16 + 16 + 2 * (2 + 2 * 4), u64::MAX], &[&[2, 4], &[7, 5]]);
    check(&hotness, &[16 + 16 + 2 * (2 + 2 * 4) - 1, u64::MAX], &[&[2], &[7]]);
    check(&hotness, &[u64::MAX, 2 * 2], &[&[2, 4, 0], &[7, 5]]);
    check(&hotness, &[u64::MAX, u64::MAX, 1], &[&[2], &[7], &[]]);
    check(&hotness, &[16 + 16 - 1, u64::MAX], &[]);
}

#[test]
fn every_device_has_the_replicated_rows() {
    // By rank: 2, 7, 4, 5, 0, 9, 8, 3, 6.
    let hotness = [5.0, 0.0, 9.0, 1.0, 7.0, 7.0, 0.5, 8.0, 2.0, 3.0];
    check_replicated((&hotness, 2), &[u64::MAX], &[&[0, 2, 3, 4, 5, 6, 7, 8, 9]]);
    check_replicated((&hotness, 2), &[u64::MAX; 2], &[&[2, 7, 4, 0, 8, 6], &[2, 7, 5, 9, 3]]);
    check_replicated((&hotness, 100), &[u64::MAX; 2], &[&[2, 7, 4, 5, 0, 9, 8, 3, 6], &[2, 7, 4, 5, 0, 9, 8, 3, 6]]);
    // A replicated row has one rank, and of the first device's own rows each has a second one, of the peer's.
    check_replicated((&hotness, 2), &[16 + 16 + 2 * (2 + 4) + 2 + 8, u64::MAX], &[&[2, 7, 4], &[2, 7, 5]]);
    check_replicated((&hotness, 2), &[16 + 16 + 2 * (2 + 4) + 2 + 7, u64::MAX], &[&[2, 7], &[2, 7]]);
    // Where a device has no room for all copies, there are fewer.
    check_replicated((&hotness, 3), &[u64::MAX, 2 * 2], &[&[2, 7, 4], &[2, 7]]);
    let first = [9.0, 7.0, 7.0, 8.0, 5.0, 3.0, 3.0, 1.0, 0.0, 0.0];
    check_replicated((&first, 1), &[u64::MAX; 3], &[&[0, 1, 4, 7], &[0, 2, 5], &[0, 3, 6]]);
}

/// Where the hottest rows are those of the first nodes, they are cached without tables and ranks: an address takes 8 bytes.
#[test]
fn rows_of_the_first_nodes_need_no_tables() {
    let hotness = [9.0, 7.0, 7.0, 8.0, 5.0, 3.0, 3.0, 1.0, 0.0, 0.0];
    check(&hotness, &[8 + 4 * 2], &[&[0, 1, 2, 3]]);
    check(&hotness, &[8 + 6 * 2 + 1], &[&[0, 1, 2, 3, 4, 5]]);
    check(&hotness, &[u64::MAX], &[&[0, 1, 2, 3, 4, 5, 6, 7]]);
    check(&hotness, &[16 + 2 * 2, u64::MAX], &[&[0, 2], &[1, 3]]);
    check(&hotness, &[u64::MAX; 3], &[&[0, 3, 6], &[1, 4, 7], &[2, 5]]);
    check(&hotness, &[8 + 2 - 1], &[]);
    // Node 3 is hotter than node 1: a bitmap is needed, and has no room.
    check(&hotness, &[8 + 2 * 2], &[]);
    check(&[1.0; 10], &[8 + 10 * 2], &[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]]);
    let lens = [&[0.0, 1.0][..], &[1.0, 0.0, 1.0], &[1.0, 1.0, 2.0], &[2.0, 1.0, 1.0], &[2.0, 1.0, 0.0]];
    assert_eq!(lens.map(|hotness| hottest_are_first(hotness, 2)), [None, None, None, Some(2), Some(2)]);
    assert_eq!(lens.map(|hotness| hottest_are_first(hotness, 3)), [None, None, Some(3), Some(3), Some(2)]);
    assert_eq!(hottest_are_first(&[1.0], 0), None);
}

/// The number of replicated rows is that of the fewest seconds within the budgets, tables and ranks included.
#[test]
fn rows_are_replicated_where_that_is_faster() {
    let matrix = FeatureMatrix::U8 { data: vec![0; 20].into(), dim: 2 };
    // By rank: 2, 7, 4, 5, 0, 9, 8, 3, 6.
    let hotness = [5.0, 0.0, 9.0, 1.0, 7.0, 7.0, 0.5, 8.0, 2.0, 3.0];
    let chosen = |budget: u64, own, peer, host| {
        let seconds = Replication::Fastest(RowSeconds { own, peer, host });
        let (map, replicated) = chosen(&[budget; 2], &matrix, (&hotness, seconds)).expect("rows fit");
        (map.nodes().collect::<Vec<u32>>(), replicated)
    };
    // Two rows on each device and their ranks; a replicated one needs one rank.
    let budget = 16 + 16 + 2 * (2 + 2 * 4);
    assert_eq!(chosen(budget, 1.0, 1.0, 9.0), (vec![2, 4, 5, 7], 0));
    assert_eq!(chosen(budget, 1.0, 9.0, 9.0), (vec![2, 4, 7], 3));
    // Room for all: those that are never read are not cached, and all others are everywhere.
    assert_eq!(chosen(1000, 1.0, 2.0, 9.0), (vec![0, 2, 3, 4, 5, 6, 7, 8, 9], 9));
}
