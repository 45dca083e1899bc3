//! `--as list`: the systems of the papers that plans can be made like.

use super::{Outcome, show};
use crate::session::systems::{SYSTEMS, System, list_json};

/// What each does and sets, and where ours differs from it.
pub(super) fn list() -> Outcome {
    let row = |system: &System| {
        let options: Vec<String> = system.options().iter().map(|(option, value)| format!("{option} {value}")).collect();
        let steps = system.steps.words().map(String::from).to_vec();
        [vec![system.name.to_string()], steps, vec![options.join(" ")]].concat()
    };
    let header = ["--as", "samples", "gathers", "trains", "sets, beside the operators for these steps"];
    let mut text = show::table(&header, &SYSTEMS.iter().map(row).collect::<Vec<_>>(), &[0, 1, 2, 3, 4]);
    for System { name, title, paper, does, differs, .. } in SYSTEMS {
        text += &format!("\n{name}: {title}; {paper}\n  {does}\n  Ours differs: {differs}\n");
    }
    text += "\n--cache is set where an operator of the machine has a cache; described machines have none.\n";
    Outcome::new(text, list_json())
}
