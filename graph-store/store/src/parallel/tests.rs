use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

#[test]
fn results_are_in_order() {
    for indices in [ANY, 1..=1, 7..=usize::MAX] {
        assert_eq!(map(1000, indices.clone(), |i| i * i), (0..1000).map(|i| i * i).collect::<Vec<_>>(), "{indices:?}");
        let mut items: Vec<usize> = (0..1000).collect();
        let before = map_mut(&mut items, indices.clone(), |item| std::mem::replace(item, *item + 1));
        assert_eq!((before, items), ((0..1000).collect(), (1..1001).collect()), "{indices:?}");
    }
    assert!(map(0, ANY, |i| i).is_empty());
}

#[test]
fn both_are_run_and_may_borrow() {
    let (mut first, second) = (vec![1], vec![2]);
    let (a, b) = join(|| first.push(3), || second.len());
    assert_eq!((a, b, first), ((), 1, vec![1, 3]));
}

#[test]
fn a_panic_reaches_the_caller() {
    let fails = |i: usize| assert!(i != 500, "the task's own words");
    let error = catch_unwind(AssertUnwindSafe(|| map(1000, ANY, fails))).expect_err("a task panics");
    assert_eq!(error.downcast_ref::<&str>(), Some(&"the task's own words"));
}
