//! `docs/papers.md`, made of the table of rows.

use std::fmt::Write;

use super::mechanisms::MECHANISMS;
use super::row::{How, Row, record};
use crate::session::systems::SYSTEMS;
use crate::words::plural;

/// The paper's name of a row, with its title.
pub(crate) fn name_of(row: &Row) -> String {
    format!("{}, {}", row.name(), row.title)
}

fn code(files: &[&str]) -> String {
    files.iter().map(|file| format!("[`{file}`](../{file})")).collect::<Vec<_>>().join(", ")
}

/// The document of these papers.
pub(crate) fn document(papers: &[(&str, &str, &[Row])]) -> String {
    let mut text = String::from(
        "# The papers, table by table\n\n\
Made by `morphgl reproduce --document`, of the table that the command runs; a test compares the two.\n\
`morphgl reproduce` lists the rows, `morphgl reproduce M:V` runs one, `--all` all of them, `--out DIR` writes a page.\n\n\
Columns of a row: the paper's figure; predicted on the paper's machine; executed on the simulated accelerator; here, counted or \
measured on this machine. Where our figures come from:\n\n| word | meaning |\n|---|---|\n",
    );
    let mut line = |args: std::fmt::Arguments<'_>| text.write_fmt(args).expect("writing to a string does not fail");
    for (how, meaning) in How::ALL {
        line(format_args!("| {} | {meaning} |\n", how.word()));
    }
    line(format_args!(
        "\nStand-ins have the datasets' sizes divided by a factor, power laws of degrees, communities, and training nodes drawn by \
degree; seeds per mini-batch are divided by the same factor, and counts multiplied by it. The factors stand in \
[`runner/src/reproduce/stand_in.rs`](../runner/src/reproduce/stand_in.rs). No graph of the papers is read.\n\n\
Times and memory are those of one run of all rows on {}, {}, beside other programs, each row with stand-ins of its own: \
[`runner/src/reproduce/record.json`](../runner/src/reproduce/record.json), which `morphgl reproduce --all --out DIR` writes anew as \
`DIR/record.json`. No row needs a device; rows without a figure that is counted or executed need no more than the program.\n\n",
        record().processor,
        plural(record().cores as u64, "core")
    ));
    line(format_args!("## Systems and mechanisms\n\n| mechanism | paper | place | ours |\n|---|---|---|---|\n"));
    for mechanism in MECHANISMS {
        line(format_args!(
            "| {} | {} | {} | {} |\n",
            mechanism.name,
            mechanism.paper,
            code(mechanism.code),
            mechanism.ours
        ));
    }
    line(format_args!(
        "\n## Systems by name\n\n`morphgl plan --as NAME` says what a system would do on this machine, or on a described one, beside our best plan; `morphgl train \
--as NAME` trains so. A name stands for options: who samples, gathers and trains names the operators, and `--cache` is set where an \
operator of the machine has a cache (described machines have none). Options that contradict them are refused. The table is \
[`runner/src/session/systems/table.rs`](../runner/src/session/systems/table.rs).\n\n\
| `--as` | system | paper | what it does | samples, gathers, trains | sets | ours differs |\n|---|---|---|---|---|---|---|\n"
    ));
    for system in SYSTEMS {
        let options: Vec<String> =
            system.options().iter().map(|(option, value)| format!("`{option} {value}`")).collect();
        line(format_args!(
            "| `{}` | {} | {} | {} | {} | {} | {} |\n",
            system.name,
            system.title,
            system.paper,
            system.does,
            system.steps.words().join(", "),
            options.join(" "),
            system.differs
        ));
    }
    for (letter, title, rows) in papers {
        line(format_args!(
            "\n## {letter}: {title}\n\n| row | shows | ours | needs | time | code | note |\n|---|---|---|---|---|---|---|\n"
        ));
        for row in *rows {
            line(format_args!(
                "| `{}` | {} | {} | {} | {} | {} | {} |\n",
                row.id,
                name_of(row),
                row.how(),
                row.needs(),
                row.time(),
                code(row.code),
                row.note
            ));
        }
        line(format_args!("\nStatements that a run checks:\n\n| row | the paper says | ours |\n|---|---|---|\n"));
        for row in rows.iter().filter(|row| row.run.is_some()) {
            for statement in row.statements {
                let ours = statement.differs.map_or("holds".to_string(), |why| format!("does not hold. {why}"));
                line(format_args!("| `{}` | {} | {ours} |\n", row.id, statement.says));
            }
        }
    }
    text
}
