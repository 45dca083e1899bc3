//! Linear programs: the minimum makespan over all divisions of the mini-batches by its vertices, and the simplex method.

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

/// The solution of a linear program.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Optimum {
    pub(crate) value: f64,
    pub(crate) x: Vec<f64>,
    /// Gain per unit by which each row's limit is raised: the dual values.
    pub(crate) prices: Vec<f64>,
}

/// The maximum of `objective · x` over all x of at least 0 with `row · x ≤ limit` for each of `rows`, and an x that reaches it; `None`
/// where there is no such x. The maximum is finite.
///
/// The simplex method on a dense table, in two phases where a limit is negative.
///
/// # Complexity
///
/// O(rows · columns) for each pivot; in practice about as many pivots as rows.
pub(crate) fn maximize(objective: &[f64], rows: &[(Vec<f64>, f64)]) -> Option<Optimum> {
    let (m, n) = (rows.len(), objective.len());
    let factor = |row: &[f64]| {
        let most = row.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
        if most > 0.0 { 1.0 / most } else { 1.0 }
    };
    // Coefficients of a row, the largest of them 1; of an auxiliary variable, by which every row can be met; the limit.
    let scaled = |(row, limit): &(Vec<f64>, f64)| -> Vec<f64> {
        let factor = factor(row);
        row.iter().map(|x| factor * x).chain([-1.0, factor * limit]).collect()
    };
    let mut table: Vec<Vec<f64>> = rows.iter().map(scaled).collect();
    table.push(objective.iter().map(|gain| -gain).chain([0.0, 0.0]).collect());
    let mut simplex =
        Simplex { table, rows: m, columns: n + 1, column: (0..=n).collect(), basic: (n + 1..=n + m).collect() };
    let last = |row: &Vec<f64>| row[n + 1];
    let lowest = (0..m).min_by(|&a, &b| last(&simplex.table[a]).total_cmp(&last(&simplex.table[b])));
    if let Some(lowest) = lowest.filter(|&i| last(&simplex.table[i]) < 0.0) {
        // The auxiliary variable is made as small as it can be.
        simplex.table.push((0..n + 2).map(|j| if j == n { 1.0 } else { 0.0 }).collect());
        simplex.exchange(lowest, n);
        simplex.maximize(m + 1);
        if simplex.value(n) > 1e-9 {
            return None;
        }
        simplex.table.pop();
        if let Some(i) = simplex.basic.iter().position(|&variable| variable == n) {
            let largest = (0..=n).max_by(|&a, &b| simplex.table[i][a].abs().total_cmp(&simplex.table[i][b].abs()));
            simplex.exchange(i, largest.expect("there are columns"));
        }
    }
    let auxiliary = simplex.column.iter().position(|&variable| variable == n).expect("it is not basic");
    simplex.table.iter_mut().for_each(|row| row[auxiliary] = 0.0);
    simplex.maximize(m);
    let price = |row: usize| {
        let column = simplex.column.iter().position(|&variable| variable == n + 1 + row);
        factor(&rows[row].0) * column.map_or(0.0, |j| simplex.table[m][j].max(0.0))
    };
    let x = (0..n).map(|variable| simplex.value(variable)).collect();
    Some(Optimum { value: last(&simplex.table[m]), x, prices: (0..m).map(price).collect() })
}

/// A dense simplex table.
struct Simplex {
    /// Coefficients of the variables that are not basic, then the limit, for each row; after these rows the objectives', with
    /// reduced gains, negative.
    table: Vec<Vec<f64>>,
    rows: usize,
    columns: usize,
    /// The variable of each column.
    column: Vec<usize>,
    /// The basic variable of each row.
    basic: Vec<usize>,
}

impl Simplex {
    /// Pivots until the objective in row `objective` is largest. The column of the largest gain enters, and the first one with a gain
    /// (Bland's rule) after pivots without progress, so that it ends.
    fn maximize(&mut self, objective: usize) {
        let n = self.columns;
        let scale = self.table[objective][..n].iter().fold(0.0_f64, |a, b| a.max(b.abs()));
        let mut stalled = 0;
        // A bound on the pivots: rounding may keep the table from an exact end.
        for _ in 0..50 * (self.rows + n) {
            let (table, column, basic) = (&self.table, &self.column, &self.basic);
            let gains = (0..n).filter(|&j| table[objective][j] < -1e-11 * scale);
            let enters = match stalled < n {
                true => gains.min_by(|&a, &b| table[objective][a].total_cmp(&table[objective][b])),
                false => gains.min_by_key(|&j| column[j]),
            };
            let Some(j) = enters else { return };
            let ratio = |i: usize| table[i][n].max(0.0) / table[i][j];
            // Of rows with the same ratio, the largest pivot while there is progress.
            let leaves = (0..self.rows).filter(|&i| table[i][j] > 1e-9).min_by(|&a, &b| {
                let of_ties = if stalled < n { table[b][j].total_cmp(&table[a][j]) } else { basic[a].cmp(&basic[b]) };
                ratio(a).total_cmp(&ratio(b)).then(of_ties)
            });
            let i = leaves.expect("the maximum is finite");
            stalled = if ratio(i) > 0.0 { 0 } else { stalled + 1 };
            self.exchange(i, j);
        }
    }

    /// Exchanges the basic variable of row `i` with that of column `j`.
    fn exchange(&mut self, i: usize, j: usize) {
        let table = &mut self.table;
        let inverse = 1.0 / table[i][j];
        table[i][j] = 1.0;
        table[i].iter_mut().for_each(|x| *x *= inverse);
        let row = table[i].clone();
        for (_, other) in table.iter_mut().enumerate().filter(|(k, _)| *k != i) {
            let factor = other[j];
            if factor != 0.0 {
                other[j] = 0.0;
                other.iter_mut().zip(&row).for_each(|(x, p)| *x -= factor * p);
            }
        }
        std::mem::swap(&mut self.basic[i], &mut self.column[j]);
    }

    /// The value of a variable.
    fn value(&self, variable: usize) -> f64 {
        let row = self.basic.iter().position(|&basic| basic == variable);
        row.map_or(0.0, |i| self.table[i][self.columns].max(0.0))
    }
}

#[cfg(test)]
mod tests;
