use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn reads_cover_all_fetches_within_the_limits(
        mut elements in prop::collection::vec(0u64..2000, 1..200), unit in 1usize..600, base in 0u64..1000,
        gap in 0u64..3000, sort: bool,
    ) {
        if sort {
            elements.sort_unstable();
        }
        let layout = Layout { base, unit, block: 512, gap, most: 4096 };
        let fetches: Vec<Fetch> = elements.into_iter().zip(0..).map(|(element, to)| Fetch { element, to }).collect();
        let mut next = 0;
        while next < fetches.len() {
            let request = layout.request(&fetches, next);
            prop_assert_eq!(request.fetches.start, next);
            prop_assert!(request.fetches.end > next);
            prop_assert!(request.len as u64 <= 4096 && request.offset.is_multiple_of(512) && request.len.is_multiple_of(512));
            for &fetch in &fetches[request.fetches.clone()] {
                let start = layout.start(fetch);
                prop_assert!(start >= request.offset);
                prop_assert!(start + unit as u64 <= request.offset + request.len as u64);
            }
            next = request.fetches.end;
        }
    }
}

#[test]
fn close_elements_share_a_read_and_distant_ones_do_not() {
    let layout = Layout { base: 128, unit: 256, block: 4096, gap: 0, most: 8192 };
    let fetches = [0u64, 1, 15, 16, 17, 100].map(|element| Fetch { element, to: 0 });
    // Row 15 crosses into the second page, row 31 would cross into the third.
    assert_eq!(layout.request(&fetches, 0), Request { offset: 0, len: 8192, fetches: 0..5 });
    assert_eq!(layout.request(&fetches, 5), Request { offset: 24576, len: 4096, fetches: 5..6 });
}
