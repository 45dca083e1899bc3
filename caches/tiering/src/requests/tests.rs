use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Byte addresses that each load of the warp touches, lane by lane, as the kernels compute them.
fn loads(pattern: &WarpPattern, address: u64, row_bytes: u64) -> Vec<Vec<u64>> {
    let WarpPattern { access, lanes, unit } = *pattern;
    let mut loads = Vec::new();
    let values = row_bytes / unit;
    // Values by which lanes are shifted.
    let shift = match access {
        WarpAccess::Shifted if row_bytes >= LINE && !row_bytes.is_multiple_of(LINE) => {
            (LINE - address % LINE) % LINE / unit
        }
        _ => 0,
    };
    // Idle lanes before the row.
    let skip = if access == WarpAccess::WholeLines { address % LINE / unit } else { 0 };
    for first in (0..values + skip).step_by(lanes as usize) {
        let active = (first..first + lanes).filter(|&lane| lane >= skip && lane - skip < values);
        let value = |lane: u64| address + (lane - skip + shift) % values * unit;
        loads.push(active.flat_map(|lane| (value(lane)..value(lane) + unit).collect::<Vec<_>>()).collect());
    }
    loads
}

/// Lines and sectors touched, load by load.
fn counted(pattern: &WarpPattern, address: u64, row_bytes: u64) -> Reads {
    let distinct = |load: &[u64], granule: u64| load.iter().map(|a| a / granule).collect::<BTreeSet<_>>().len() as u64;
    let mut reads = Reads::default();
    for load in loads(pattern, address, row_bytes) {
        reads.requests += distinct(&load, LINE);
        reads.sectors += distinct(&load, SECTOR);
    }
    reads
}

fn patterns() -> impl Strategy<Value = WarpPattern> {
    let access = prop::sample::select(vec![WarpAccess::Naive, WarpAccess::Shifted, WarpAccess::WholeLines]);
    (access, 0u32..5, prop::sample::select(vec![8u64, 16, 32])).prop_map(|(access, unit, lanes)| WarpPattern {
        access,
        lanes,
        unit: 1 << unit,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn reads_are_those_counted_lane_by_lane(pattern in patterns(), address in 0u64..600, values in 0u64..600) {
        let (address, row_bytes) = (address * pattern.unit, values * pattern.unit);
        prop_assert_eq!(pattern.reads(address, row_bytes), counted(&pattern, address, row_bytes));
    }

    #[test]
    fn whole_lines_are_never_read_twice(address in 0u64..600, values in 1u64..600) {
        let (address, row_bytes) = (4 * address, 4 * values);
        let lines = (address + row_bytes - 1) / LINE - address / LINE + 1;
        let of = |access| WarpPattern::of_values(access).reads(address, row_bytes).requests;
        prop_assert_eq!(of(WarpAccess::WholeLines), lines);
        prop_assert!(of(WarpAccess::Shifted) >= lines && of(WarpAccess::Naive) >= lines);
        prop_assert!(of(WarpAccess::Shifted) <= of(WarpAccess::Naive));
    }
}

/// The example of PyTorch-Direct (VLDB 2021, Fig. 6): the second of rows of 480 bytes.
#[test]
fn the_second_row_of_480_bytes_takes_8_requests_or_5() {
    let requests = |access| WarpPattern::of_values(access).reads(480, 480).requests;
    assert_eq!(requests(WarpAccess::Naive), 8);
    assert_eq!(requests(WarpAccess::Shifted), 5);
    assert_eq!(requests(WarpAccess::WholeLines), 5);
    assert_eq!(WarpPattern::of_zero_copy(480).reads(480, 480), Reads { requests: 5, sectors: 15 });
}

#[test]
fn rows_of_whole_lines_take_a_request_a_line() {
    for access in [WarpAccess::Naive, WarpAccess::Shifted, WarpAccess::WholeLines] {
        assert_eq!(WarpPattern::of_values(access).mean(1024), (8.0, 32.0));
    }
    assert_eq!(WarpPattern::of_values(WarpAccess::Naive).mean(0), (0.0, 0.0));
}

#[test]
fn the_zero_copy_operator_loads_the_largest_unit() {
    for (row_bytes, lanes, unit) in
        [(480, 32, 16), (256, 16, 16), (200, 16, 8), (100, 32, 4), (1, 32, 1), (1034, 32, 2)]
    {
        let expected = WarpPattern { access: WarpAccess::WholeLines, lanes, unit };
        assert_eq!(WarpPattern::of_zero_copy(row_bytes), expected, "{row_bytes} bytes");
        // The naive gather loads the values of PyTorch-Direct, of four bytes at most.
        let expected = WarpPattern { access: WarpAccess::Naive, lanes: 32, unit: unit.min(4) };
        assert_eq!(WarpPattern::of_naive(row_bytes), expected, "{row_bytes} bytes");
    }
}
