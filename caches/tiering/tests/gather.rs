//! The tiered view gives the right bytes, and its counters add up.

use morphgl_tiering::{Division, Tier, TierCounts, TieredRows, Tiers};
use proptest::prelude::*;

/// Any division of some rows, their length, and requests of device `by`.
fn cases() -> impl Strategy<Value = (Tiers, usize, u32, Vec<u32>)> {
    let division = (1u32..400, 0u32..7, prop::array::uniform3(0u32..200));
    division.prop_flat_map(|(num_rows, devices, [a, b, c])| {
        let [a, b] = if devices == 0 { [0, 0] } else { [a, b] };
        let replicated = a.min(num_rows);
        let interleaved = b.min(num_rows - replicated);
        let host = c.min(num_rows - replicated - interleaved);
        let tiers = Tiers::new(num_rows, Division { devices, replicated, interleaved, host }).expect("a division");
        let rows = prop::collection::vec(0..num_rows, 0..300);
        (Just(tiers), 1usize..70, 0..devices.max(1), rows)
    })
}

proptest! {
    #[test]
    fn gathers_are_right_for_any_division_number_of_peers_and_order(
        (tiers, row_bytes, by, rows) in cases()
    ) {
        let byte = |row: u32, i: usize| (row.wrapping_mul(2_654_435_761) >> 8) as u8 ^ i as u8;
        let fill = |rows: &mut dyn Iterator<Item = u32>| -> Vec<u8> {
            rows.flat_map(|row| (0..row_bytes).map(move |i| byte(row, i))).collect()
        };
        let devices: Vec<Vec<u8>> =
            (0..tiers.division().devices).map(|d| fill(&mut tiers.device_rows(d))).collect();
        let (host, disk) = (fill(&mut tiers.host_rows()), fill(&mut tiers.disk_rows()));
        let held = devices.iter().map(Vec::as_slice).collect();
        let view = TieredRows::new(tiers, row_bytes, held, &host, &disk).expect("the rows of the tiers");

        let mut out = vec![0; rows.len() * row_bytes];
        let counts = view.gather(&rows, by, &mut out);
        prop_assert_eq!(&out, &fill(&mut rows.iter().copied()));
        prop_assert_eq!(counts.requests(), rows.len() as u64);
        let of = |tier| rows.iter().filter(|&&row| tiers.locate(row, by).tier == tier).count() as u64;
        let expected = TierCounts {
            device: of(Tier::Device), peer: of(Tier::Peer), host: of(Tier::Host), disk: of(Tier::Disk),
        };
        prop_assert_eq!(counts, expected);
        let mut twice = counts;
        twice += counts;
        prop_assert_eq!(twice.requests(), 2 * rows.len() as u64);
        // A single tier of everything is a plain array.
        if tiers.division() == Division::default() {
            prop_assert_eq!(counts.disk, rows.len() as u64);
        }
    }
}

#[test]
fn memory_of_another_length_is_refused() {
    let division = Division { devices: 2, replicated: 1, interleaved: 3, host: 2 };
    let tiers = Tiers::new(8, division).expect("a division");
    let rows = |n: usize| vec![0u8; 4 * n];
    let view = |a: usize, b: usize, host: usize, disk: usize| {
        let (a, b, host, disk) = (rows(a), rows(b), rows(host), rows(disk));
        TieredRows::new(tiers, 4, vec![&a, &b], &host, &disk).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(view(3, 2, 2, 2), Ok(()));
    let cure = "give the rows that the tiers place there";
    assert_eq!(view(2, 3, 2, 2), Err(format!("devices: 8 bytes, and its 3 rows take 12; {cure}")));
    assert_eq!(view(3, 2, 1, 2), Err(format!("host: 4 bytes, and its 2 rows take 8; {cure}")));
    assert_eq!(view(3, 2, 2, 3), Err(format!("disk: 12 bytes, and its 2 rows take 8; {cure}")));
    let error = TieredRows::new(tiers, 4, vec![], &[], &[]).expect_err("no device").to_string();
    assert_eq!(error, "devices: memory of 0, and the tiers have 2; give the memory of each device");
}
