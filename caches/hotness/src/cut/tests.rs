use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn caches_the_best_items_that_fit(savings in prop::collection::vec(0u32..1000, 1..300), budget in 0u64..5000) {
        let saving = |v: u32| savings[v as usize] as f32;
        let bytes = |v: u32| u64::from(v % 7 + 1);
        let kinds = [Kind { saving: &saving, bytes: &bytes }];
        let num_nodes = savings.len() as u32;
        let mut cut = Cut::new(num_nodes, &kinds, budget);
        let held: Vec<bool> = (0..num_nodes).map(|v| cut.holds(&kinds[0], v)).collect();
        let all = |held: bool, chosen: &[bool]| -> Vec<u32> {
            (0..num_nodes).filter(|&v| chosen[v as usize] == held && savings[v as usize] > 0).collect()
        };
        let (inside, outside) = (all(true, &held), all(false, &held));
        prop_assert!(inside.iter().map(|&v| bytes(v)).sum::<u64>() <= budget);
        let density = |v: u32| saving(v) / bytes(v) as f32;
        let worst = inside.iter().map(|&v| density(v)).fold(f32::INFINITY, f32::min);
        for v in outside {
            prop_assert!(density(v) <= worst * 1.01, "{} is left out, {} is cached", density(v), worst);
        }
        prop_assert!(held.iter().zip(&savings).all(|(h, s)| !h || *s > 0), "items without benefit are not cached");
    }
}

#[test]
fn all_items_are_cached_within_a_large_budget() {
    let kind = Kind { saving: &|v| v as f32, bytes: &|_| 10 };
    let mut cut = Cut::new(5, std::slice::from_ref(&kind), 1000);
    assert_eq!((0..5).map(|v| cut.holds(&kind, v)).collect::<Vec<_>>(), [false, true, true, true, true]);
}
