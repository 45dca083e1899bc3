//! A confusion matrix as a picture: a table whose cells are the darker the more nodes of their row they count.

use serde::{Deserialize, Serialize};

use crate::markup::{escape, put};
use crate::number::{count, percent};

/// Classes that the picture shows at most, the ones with the most nodes.
const SHOWN: usize = 40;
/// Classes up to which cells show their numbers.
const NUMBERED: usize = 16;

/// How many nodes of each class are predicted to be of each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfusionMatrix {
    /// What nodes it counts, such as `test`.
    pub nodes: String,
    /// Names of the classes.
    pub classes: Vec<String>,
    /// For each class that nodes have, a number for each class that is predicted.
    pub rows: Vec<Vec<u64>>,
}

impl ConfusionMatrix {
    /// The line below the heading.
    pub(crate) fn below(&self) -> String {
        let of = if self.nodes.is_empty() { "nodes".to_string() } else { format!("{} nodes", self.nodes) };
        let shown = match self.classes.len() {
            classes if classes > SHOWN => format!("; the {SHOWN} most frequent of {classes} classes"),
            _ => String::new(),
        };
        format!(
            "A row for each class that {of} have, a column for each that is predicted; shades are shares of a row{shown}."
        )
    }

    /// The picture; empty without a class.
    pub(crate) fn picture(&self) -> String {
        let total = |class: usize| self.rows.get(class).map_or(0, |row| row.iter().sum::<u64>());
        let mut shown: Vec<usize> = (0..self.classes.len()).collect();
        shown.sort_by_key(|&class| std::cmp::Reverse(total(class)));
        shown.truncate(SHOWN);
        shown.sort_unstable();
        if shown.is_empty() {
            return String::new();
        }
        let numbered = shown.len() <= NUMBERED;
        let mut out = String::from(r#"<div class="scroll"><table class="confusion"><thead><tr><th></th>"#);
        for &class in &shown {
            put!(out, r#"<th scope="col"><span>{}</span></th>"#, escape(&self.classes[class]));
        }
        put!(out, r#"<th scope="col" class="number">recall</th></tr></thead><tbody>"#);
        for &class in &shown {
            let (name, all) = (escape(&self.classes[class]), total(class));
            put!(out, r#"<tr><th scope="row">{name}</th>"#);
            for &predicted in &shown {
                let nodes = self.rows.get(class).and_then(|row| row.get(predicted)).copied().unwrap_or(0);
                let share = nodes as f64 / all.max(1) as f64;
                let text = if numbered && nodes > 0 { count(nodes) } else { String::new() };
                let dark = if share > 0.5 { " dark" } else { "" };
                put!(
                    out,
                    r#"<td class="cell{dark}" style="--share:{share:.3}" title="{name} as {}: {}">{text}</td>"#,
                    escape(&self.classes[predicted]),
                    count(nodes)
                );
            }
            let correct = self.rows.get(class).and_then(|row| row.get(class)).copied().unwrap_or(0);
            let recall = if all > 0 { percent(correct as f64 / all as f64, 0) } else { String::new() };
            put!(out, r#"<td class="number">{recall}</td></tr>"#);
        }
        out + "</tbody></table></div>"
    }
}
