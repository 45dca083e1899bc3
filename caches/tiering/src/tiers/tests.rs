use proptest::prelude::*;

use super::*;

/// Any division of up to 300 rows.
fn tiers() -> impl Strategy<Value = Tiers> {
    (0u32..300, 0u32..6, prop::array::uniform3(0u32..120)).prop_map(|(num_rows, devices, [a, b, c])| {
        let [a, b] = if devices == 0 { [0, 0] } else { [a, b] };
        let replicated = a.min(num_rows);
        let interleaved = b.min(num_rows - replicated);
        let host = c.min(num_rows - replicated - interleaved);
        Tiers::new(num_rows, Division { devices, replicated, interleaved, host }).expect("a division")
    })
}

proptest! {
    #[test]
    fn every_row_is_where_the_lists_of_rows_say(tiers in tiers()) {
        let devices = tiers.division().devices;
        let lists: Vec<Vec<u32>> = (0..devices).map(|d| tiers.device_rows(d).collect()).collect();
        for (d, list) in (0..devices).zip(&lists) {
            prop_assert_eq!(list.len() as u32, tiers.num_device_rows(d));
        }
        let (host, disk): (Vec<u32>, Vec<u32>) = (tiers.host_rows().collect(), tiers.disk_rows().collect());
        for by in 0..devices.max(1) {
            for row in 0..tiers.num_rows() {
                let Location { tier, device, offset } = tiers.locate(row, by);
                let list = match (tier, device) {
                    (Tier::Device, Some(device)) => {
                        prop_assert_eq!(device, by);
                        &lists[device as usize]
                    }
                    (Tier::Peer, Some(device)) => {
                        prop_assert_ne!(device, by);
                        prop_assert!(!lists[by as usize].contains(&row), "the own copy comes first");
                        &lists[device as usize]
                    }
                    (Tier::Host, None) => &host,
                    (Tier::Disk, None) => &disk,
                    other => panic!("{other:?}"),
                };
                prop_assert_eq!(list[offset as usize], row);
            }
        }
    }

    #[test]
    fn what_fits_is_within_the_budgets_and_one_more_row_is_not(
        num_rows in 0u32..300, row_bytes in 1u64..9, devices in prop::collection::vec(0u64..900, 0..5),
        replicated in 0u64..400, host in 0u64..900,
    ) {
        let budgets = TierBudgets { devices: &devices, replicated, host };
        let tiers = Tiers::fit(num_rows, row_bytes, &budgets);
        let division = tiers.division();
        prop_assert_eq!(Tiers::new(num_rows, division).ok(), Some(tiers));
        let fits = |tiers: &Tiers| {
            let held = (0u32..).zip(&devices);
            held.into_iter().all(|(d, &budget)| u64::from(tiers.num_device_rows(d)) * row_bytes <= budget)
        };
        prop_assert!(fits(&tiers) && u64::from(division.replicated) * row_bytes <= replicated);
        prop_assert!(u64::from(division.host) * row_bytes <= host);
        if !tiers.host_rows().is_empty() || !tiers.disk_rows().is_empty() {
            let more = Division { interleaved: division.interleaved + 1, host: 0, ..division };
            let more = Tiers { num_rows, division: more };
            prop_assert!(devices.is_empty() || !fits(&more));
        }
        if !tiers.disk_rows().is_empty() {
            prop_assert!(u64::from(division.host + 1) * row_bytes > host);
        }
    }
}

#[test]
fn rows_on_no_device_and_too_many_rows_are_refused() {
    let error = |division| Tiers::new(10, division).expect_err("impossible").to_string();
    let none = error(Division { replicated: 2, ..Division::default() });
    assert_eq!(
        none,
        "division: 2 rows are on devices, and there is none; give the number of devices, or no rows of theirs"
    );
    let many = error(Division { devices: 1, replicated: u32::MAX, interleaved: u32::MAX, host: u32::MAX });
    assert!(many.contains("its tiers hold 12884901885 rows, and there are 10; "), "{many}");
}
