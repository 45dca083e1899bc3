//! The linear program of the bound: the minimum makespan over all divisions of the mini-batches.

/// `Σ load[r] · n[r] + constant ≤ makespan`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) load: Vec<f64>,
    pub(crate) constant: f64,
}

/// The minimum makespan of `n` mini-batches divided among the routes, and a division that reaches it.
///
/// Enumerates all vertices. At a vertex as many constraints (rows, or routes without mini-batches) bind as there are routes.
///
/// # Complexity
///
/// O((rows + routes)^routes · routes³).
pub(crate) fn min_makespan(rows: &[Row], n: f64) -> (f64, Vec<f64>) {
    let routes = rows[0].load.len();
    let makespan = |split: &[f64]| {
        let seconds = |row: &Row| row.load.iter().zip(split).map(|(a, x)| a * x).sum::<f64>() + row.constant;
        rows.iter().map(seconds).fold(0.0, f64::max)
    };
    let mut best = (f64::INFINITY, vec![0.0; routes]);
    let mut chosen: Vec<usize> = (0..routes).collect();
    let total = rows.len() + routes;
    loop {
        if let Some(split) = vertex(rows, &chosen, n)
            && makespan(&split) < best.0
        {
            best = (makespan(&split), split);
        }
        // The next combination.
        let Some(i) = (0..routes).rev().find(|&i| chosen[i] < total - routes + i) else { return best };
        chosen[i] += 1;
        for j in i + 1..routes {
            chosen[j] = chosen[j - 1] + 1;
        }
    }
}

/// The point where the chosen constraints bind: rows first, then `n[r] = 0`. `None` where there is none or it is infeasible.
fn vertex(rows: &[Row], chosen: &[usize], n: f64) -> Option<Vec<f64>> {
    let routes = rows[0].load.len();
    // Unknowns: the routes' mini-batches and the makespan.
    let size = routes + 1;
    let constraint = |&c: &usize| match rows.get(c) {
        Some(row) => [&row.load[..], &[-1.0, -row.constant]].concat(),
        None => (0..size + 1).map(|i| if i == c - rows.len() { 1.0 } else { 0.0 }).collect(),
    };
    let sum = [vec![1.0; routes], vec![0.0, n]].concat();
    let mut a: Vec<Vec<f64>> = [sum].into_iter().chain(chosen.iter().map(constraint)).collect();
    for column in 0..size {
        let pivot = (column..size).max_by(|&i, &j| a[i][column].abs().total_cmp(&a[j][column].abs()))?;
        let scale = a[pivot].iter().take(size).map(|x| x.abs()).fold(0.0, f64::max);
        if a[pivot][column].abs() <= 1e-12 * scale || scale == 0.0 {
            return None;
        }
        a.swap(column, pivot);
        for i in (0..size).filter(|&i| i != column) {
            let factor = a[i][column] / a[column][column];
            if factor != 0.0 {
                let pivot = a[column].clone();
                a[i].iter_mut().zip(&pivot).skip(column).for_each(|(x, p)| *x -= factor * p);
            }
        }
    }
    let split: Vec<f64> = (0..routes).map(|i| a[i][size] / a[i][i]).collect();
    if split.iter().any(|&x| x < -1e-9 * n || !x.is_finite()) {
        return None;
    }
    // The division sums to `n` despite rounding.
    let split: Vec<f64> = split.into_iter().map(|x| x.max(0.0)).collect();
    let sum: f64 = split.iter().sum();
    (sum > 0.0).then(|| split.iter().map(|x| x * n / sum).collect())
}

#[cfg(test)]
mod tests;
