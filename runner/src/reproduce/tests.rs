use std::fs;
use std::path::Path;

use super::*;

#[test]
fn the_document_is_the_program_s() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/papers.md");
    let there = fs::read_to_string(&path).expect("docs/papers.md is there");
    let how = "write it by `morphgl reproduce --document > docs/papers.md`";
    assert!(there == document(&PAPERS), "docs/papers.md is not what the program makes; {how}");
}

#[test]
fn rows_are_named_once_and_are_found_by_their_numbers() {
    let mut ids: Vec<&str> = rows().map(|row| row.id).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    for row in rows() {
        assert_eq!(find(row.id).map(|found| found.id), Some(row.id));
        assert!(PAPERS.iter().any(|(letter, _, _)| *letter == row.paper()), "{}", row.id);
        assert!(row.run.is_some() || row.statements.is_empty(), "{}: nothing checks its statements", row.id);
        assert!(row.run.is_none() || !row.statements.is_empty(), "{}: nothing is checked", row.id);
        assert!(row.run.is_some() || !row.note.is_empty(), "{}: no reason is given", row.id);
    }
    assert_eq!(find("M:20").map(|row| row.id), None);
    // A figure wins over the table of its number; else the number is that of the table.
    let found = ["G:6", "G:16", "M:6", "m:vi", "U:T3", "U:3", "N:T13"].map(|id| find(id).map(|row| row.id));
    let expected = ["G:VI", "G:16", "M:6", "M:VI", "U:T3", "U:3", ""];
    assert_eq!(found.map(|id| id.unwrap_or_default()), expected);
}

/// Verdicts are functions of the code: rows by arithmetic and planning, some of which are executed, and those of PyTorch-Direct, with
/// small graphs, where the recorded run of an optimised build took few seconds. `MORPHGL_TEST_PAPERS=all` checks every row but those
/// that are measured, in some minutes.
#[test]
fn statements_hold_where_the_document_says_so() {
    let setting = Setting::new(crate::RunContext::new().expect("operators"));
    let all = std::env::var("MORPHGL_TEST_PAPERS").is_ok_and(|rows| rows == "all");
    let mut wrong = Vec::new();
    for row in rows() {
        let is_pure = row.how.iter().all(|how| matches!(how, How::Derived | How::Predicted | How::Executed))
            && row.recorded().is_some_and(|took| took.seconds < 5.0);
        // A row that counts, too, has statements about counts alone.
        let is_measured = row.how == [How::Measured];
        let Some(run) = row.run.filter(|_| !is_measured && (all || is_pure || row.paper() == "P")) else { continue };
        let shown = run(&setting).unwrap_or_else(|e| panic!("{}: {e:#}", row.id));
        assert_eq!(shown.verdicts.len(), row.statements.len(), "{}", row.id);
        for (statement, verdict) in row.statements.iter().zip(&shown.verdicts) {
            if verdict.holds != statement.differs.is_none() {
                wrong.push(format!("{}: {}: {}", row.id, statement.says, verdict.ours));
            }
        }
        let numbers = shown.figures.iter().flat_map(|f| [f.paper, f.predicted, f.executed, f.here]).flatten();
        assert!(!shown.figures.is_empty() && numbers.clone().all(f64::is_finite), "{}: {:?}", row.id, shown.figures);
    }
    assert!(wrong.is_empty(), "not as docs/papers.md says: {wrong:#?}");
}

#[test]
fn every_paper_has_its_tables_and_figures() {
    let count = |letters: &[&str]| rows().filter(|row| letters.contains(&row.paper())).count();
    // Tables and figures: MorphGL 10 and 9, NeutronOrch 7 and 17, Unified 4 and 7, Data Tiering 1 and 13; the survey 8 and 19, of
    // which Table VI has three rows and Table V is of GNNLab's systems.
    assert_eq!([count(&["M"]), count(&["N"]), count(&["U"]), count(&["T"])], [19, 24, 11, 14]);
    assert_eq!(count(&["P", "G", "D"]), 8 + 19 + 2);
    assert!(rows().filter(|row| row.run.is_some()).count() >= 50);
}

/// What the recorded run took: no row three minutes, all together less than an hour.
#[test]
fn every_row_that_runs_is_recorded() {
    let runs = rows().filter(|row| row.run.is_some());
    let recorded: Vec<f64> =
        runs.map(|row| row.recorded().unwrap_or_else(|| panic!("{}: no time", row.id)).seconds).collect();
    assert_eq!(recorded.len(), record().rows.len(), "rows that are no more");
    assert!(recorded.iter().all(|seconds| *seconds < 180.0) && recorded.iter().sum::<f64>() < 3600.0, "{recorded:?}");
    assert!(!record().processor.is_empty() && record().cores > 0);
}

#[test]
fn a_page_has_every_figure_and_says_what_does_not_hold() {
    let row = find("M:4").and(find("m:iv")).expect("Table IV");
    let run = row.run.expect("it runs");
    let shown = run(&Setting::new(crate::RunContext::new().expect("operators"))).expect("arithmetic");
    let page = page(&[(row, shown)]);
    assert!(page.contains("PA: features") && page.contains("<td>27.00</td><td>20.68</td>"), "{page}");
    assert!(page.contains("does not hold (PA takes") && page.contains("128 values."), "{page}");
}
