//! The tables and figures of five papers beside ours: one table of rows, each with what makes ours and the statements it checks.
//!
//! A paper is a file. What its rows share stands beside them: stand-ins of the datasets, sizes of mini-batches counted on these,
//! the seconds that a described machine takes, and planning problems of one accelerator. `docs/papers.md` is made of the same
//! table ([`document`]).

mod direct;
mod document;
mod ducati;
mod execution;
mod gnnlab;
mod mechanisms;
mod morphgl;
mod neutronorch;
mod page;
mod pair;
mod row;
mod setting;
mod stand_in;
mod tiering;
mod unified;
mod workload;

pub(crate) use document::{document, name_of};
pub(crate) use page::{number, page};
pub(crate) use row::{Figure, How, Record, Recorded, Row, Shown, record};
pub(crate) use setting::Setting;

/// The papers, by the letters of their rows.
pub(crate) const PAPERS: [(&str, &str, &[Row]); 7] = [
    ("M", "MorphGL: Towards Hardware-Adaptive Training for Graph Neural Networks on Giant Graphs", morphgl::ROWS),
    (
        "N",
        "NeutronOrch: Rethinking Sample-based GNN Training under CPU-GPU Heterogeneous Environments",
        neutronorch::ROWS,
    ),
    ("U", "A Unified CPU-GPU Protocol for GNN Training", unified::ROWS),
    ("T", "Graph Neural Network Training with Data Tiering", tiering::ROWS),
    ("P", "PyTorch-Direct, by the survey of mini-batch training systems", direct::ROWS),
    ("G", "GNNLab, by the survey of mini-batch training systems", gnnlab::ROWS),
    ("D", "DUCATI, by the survey of mini-batch training systems", ducati::ROWS),
];

/// Every row.
pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    PAPERS.into_iter().flat_map(|(_, _, rows)| rows)
}

/// The row of this name. A number that is no figure of its paper names the table: `G:6` is `G:VI`, and `U:T3` may be `U:III`.
pub(crate) fn find(id: &str) -> Option<&'static Row> {
    let exact = |id: &str| rows().find(|row| row.id.eq_ignore_ascii_case(id));
    let (paper, number) = id.split_once(':')?;
    let of_table = || {
        let number: usize = number.trim_start_matches(['T', 't']).parse().ok()?;
        exact(&format!("{paper}:T{number}")).or_else(|| exact(&format!("{paper}:{}", roman(number)?)))
    };
    exact(id).or_else(of_table)
}

fn roman(number: usize) -> Option<&'static str> {
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X"].get(number.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests;
