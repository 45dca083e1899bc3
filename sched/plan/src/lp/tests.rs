use super::{Optimum, Row, maximize, min_makespan};

fn row(load: &[f64], constant: f64) -> Row {
    Row { load: load.to_vec(), constant }
}

#[test]
fn one_route_is_its_busiest_row() {
    assert_eq!(min_makespan(&[row(&[2.0], 1.0), row(&[1.0], 5.0)], 10.0), (21.0, vec![10.0]));
}

#[test]
fn two_routes_balance() {
    // n0 · 3 = n1 · 1, of 8.
    let (time, split) = min_makespan(&[row(&[3.0, 0.0], 0.0), row(&[0.0, 1.0], 0.0)], 8.0);
    assert!((time - 6.0).abs() < 1e-9 && (split[0] - 2.0).abs() < 1e-9, "{time} {split:?}");
    // The second route is of no use.
    let (time, split) = min_makespan(&[row(&[1.0, 9.0], 0.0), row(&[0.5, 5.0], 0.0)], 4.0);
    assert_eq!((time, split), (4.0, vec![4.0, 0.0]));
}

#[test]
fn agrees_with_trying_many_divisions() {
    let rows = [row(&[3.0, 0.5, 1.0], 0.2), row(&[0.1, 4.0, 1.0], 0.0), row(&[1.0, 1.0, 2.0], 1.0)];
    let (time, _) = min_makespan(&rows, 30.0);
    let mut tried = f64::INFINITY;
    for i in 0..=300 {
        for j in 0..=300 - i {
            let split = [i as f64 / 10.0, j as f64 / 10.0, (300 - i - j) as f64 / 10.0];
            let of = |r: &Row| r.load.iter().zip(split).map(|(a, x)| a * x).sum::<f64>() + r.constant;
            tried = tried.min(rows.iter().map(of).fold(0.0, f64::max));
        }
    }
    assert!(time <= tried + 1e-9 && time >= tried * 0.98, "{time} {tried}");
}

#[test]
fn the_simplex_method_finds_the_maximum() {
    // Dantzig's classic: 3 x + 5 y with x ≤ 4, 2 y ≤ 12, 3 x + 2 y ≤ 18.
    let rows = [(vec![1.0, 0.0], 4.0), (vec![0.0, 2.0], 12.0), (vec![3.0, 2.0], 18.0)];
    let Optimum { value, x, prices } = maximize(&[3.0, 5.0], &rows).expect("x = 0");
    // The dual of the classic: 12 · 1.5 + 18 · 1 is the maximum, too.
    let expected = [0.0, 1.5, 1.0];
    assert!(prices.iter().zip(expected).all(|(price, expected)| (price - expected).abs() < 1e-9), "{prices:?}");
    assert!((value - 36.0).abs() < 1e-9 && (x[0] - 2.0).abs() < 1e-9 && (x[1] - 6.0).abs() < 1e-9, "{value} {x:?}");
    // With x + y of at least 7.5: 3 x + 2 y of at most 18 leaves x = 3, y = 4.5, and what is between that and the maximum.
    let at_least = [&rows[..], &[(vec![-1.0, -1.0], -7.5)]].concat();
    let Optimum { value, .. } = maximize(&[-3.0, -5.0], &at_least).expect("x = 2, y = 6");
    assert!((value + 31.5).abs() < 1e-9, "{value}");
    let too_much = [&rows[..], &[(vec![-1.0, -1.0], -9.0)]].concat();
    assert_eq!(maximize(&[1.0, 1.0], &too_much), None);
}

/// Two methods, one problem: the least makespan is the one at which as many mini-batches as there are fit.
#[test]
fn both_methods_agree() {
    let rows = [row(&[3.0, 0.5, 1.0], 0.2), row(&[0.1, 4.0, 1.0], 0.0), row(&[1.0, 1.0, 2.0], 1.0)];
    let (time, _) = min_makespan(&rows, 30.0);
    let at = |time: f64| rows.iter().map(|row| (row.load.clone(), time - row.constant)).collect::<Vec<_>>();
    let most = maximize(&[1.0; 3], &at(time)).expect("it is possible").value;
    assert!((most - 30.0).abs() < 1e-6, "{most}");
}
