use super::*;

#[test]
fn degrees_are_ranked() {
    let all = [0, 0, 3, 3, 3, 65_535, 65_536, 1 << 40, 1 << 40];
    let mut degrees = Degrees::default();
    all.iter().rev().for_each(|&degree| degrees.add(degree));
    let actual: Vec<u64> = (0..all.len() as u64).map(|rank| degrees.at(rank)).collect();
    assert_eq!(actual, all);
    assert_eq!(degrees.at(9), 0);
}

#[test]
fn links_are_counted() {
    assert_eq!(
        links([None, Some(1200), Some(3), None, None, Some(30)]),
        "train every edge, valid 1,200, test 3 against 30 negatives"
    );
    assert_eq!(links([Some(7), None, None, Some(14), None, None]), "train 7 against 14 negatives, valid 0, test 0");
}
