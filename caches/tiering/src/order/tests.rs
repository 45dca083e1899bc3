use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn the_hottest_come_first_and_ties_keep_their_order(hotness in prop::collection::vec(0u8..6, 0..200)) {
        let hotness: Vec<f32> = hotness.into_iter().map(|h| f32::from(h) - 2.0).collect();
        let order = Order::by_hotness(&hotness).expect("numbers");
        let mut expected: Vec<u32> = (0..hotness.len() as u32).collect();
        expected.sort_by(|&a, &b| hotness[b as usize].total_cmp(&hotness[a as usize]));
        prop_assert_eq!(order.old_of_new(), &expected[..]);
        for (new, &old) in expected.iter().enumerate() {
            prop_assert_eq!(order.new_of_old()[old as usize], new as u32);
        }
    }

    #[test]
    fn what_is_no_permutation_is_refused(mut nodes in prop::collection::vec(0u32..50, 0..50)) {
        let mut sorted = nodes.clone();
        sorted.sort_unstable();
        let sound = sorted.iter().copied().eq(0..nodes.len() as u32);
        prop_assert_eq!(Order::new(nodes.clone()).is_ok(), sound);
        nodes = sorted;
        nodes.dedup();
        let rank = |v: &u32| nodes.iter().position(|n| n == v).expect("there") as u32;
        prop_assert!(Order::new(nodes.iter().rev().map(rank).collect()).is_ok());
    }
}

#[test]
fn zeros_are_equal_and_infinities_are_ordered() {
    let order = Order::by_hotness(&[-0.0, 0.0, f32::INFINITY, -1.0, f32::NEG_INFINITY, 1e-40]).expect("numbers");
    assert_eq!(order.old_of_new(), [2, 5, 0, 1, 3, 4]);
    let error = Order::by_hotness(&[1.0, f32::NAN]).expect_err("not a number").to_string();
    assert_eq!(error, "hotness: that of node 1 is not a number; give numbers");
}

#[test]
fn faults_name_the_position() {
    let error = |nodes: &[u32]| Order::new(nodes.to_vec()).expect_err("no order").to_string();
    let cure = "list every node once, the hottest first";
    assert_eq!(error(&[1, 2]), format!("order: position 1 has node 2, and there are 2 nodes; {cure}"));
    assert_eq!(error(&[1, 0, 1]), format!("order: position 2 has node 1 for the second time; {cure}"));
}
