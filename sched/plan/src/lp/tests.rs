use super::{Row, min_makespan};

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
