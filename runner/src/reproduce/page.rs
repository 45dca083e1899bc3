//! A page of rows that were run: one file that fetches nothing.

use std::fmt::Write;

use morphgl_report::line_chart_svg;

use super::document::name_of;
use super::row::{Row, Shown};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;margin:.5rem 0 1rem}td,th{padding:.15rem .6rem;border-bottom:1px solid #8884;text-align:right}\
td:first-child,th:first-child{text-align:left}.no{color:#b00020;font-weight:600}svg{max-width:100%}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A figure with four digits.
pub(crate) fn number(figure: Option<f64>) -> String {
    let Some(figure) = figure else { return String::new() };
    match figure.abs() {
        size if size >= 1000.0 || figure == 0.0 => format!("{figure:.0}"),
        size if size >= 100.0 => format!("{figure:.1}"),
        size if size >= 0.1 => format!("{figure:.2}"),
        _ => format!("{figure:.4}"),
    }
}

/// The page of these rows.
pub(crate) fn page(shown: &[(&Row, Shown)]) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>The papers beside MorphGL</title>",
    );
    let mut put = |args: std::fmt::Arguments<'_>| out.write_fmt(args).expect("writing to a string does not fail");
    put(format_args!("<style>{STYLE}</style></head><body><h1>The papers beside MorphGL</h1>"));
    for (row, shown) in shown {
        put(format_args!("<h2>{}: {}</h2><p>{}. {}</p>", row.id, escape(&name_of(row)), row.how(), escape(row.note)));
        for chart in &shown.charts {
            put(format_args!("{}", line_chart_svg(chart)));
        }
        put(format_args!(
            "<table><tr><th>figure</th><th>unit</th><th>paper</th><th>predicted</th><th>executed</th><th>here</th></tr>"
        ));
        for figure in &shown.figures {
            let [paper, predicted, executed, here] =
                [figure.paper, figure.predicted, figure.executed, figure.here].map(number);
            put(format_args!(
                "<tr><td>{}</td><td>{}</td><td>{paper}</td><td>{predicted}</td><td>{executed}</td><td>{here}</td></tr>",
                escape(&figure.name),
                figure.unit
            ));
        }
        put(format_args!("</table><ul>"));
        for (statement, verdict) in row.statements.iter().zip(&shown.verdicts) {
            let class = if verdict.holds { "" } else { " class=\"no\"" };
            let holds = if verdict.holds { "holds" } else { "does not hold" };
            let why = statement.differs.filter(|_| !verdict.holds).map(|why| format!(" {why}")).unwrap_or_default();
            let text = format!("{}: {holds} ({}).{why}", statement.says, verdict.ours);
            put(format_args!("<li{class}>{}</li>", escape(&text)));
        }
        put(format_args!("</ul>"));
    }
    put(format_args!("</body></html>\n"));
    out
}
