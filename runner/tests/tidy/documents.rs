//! References in documents and comments: links, paths, sections of the design.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{files, root};

/// A heading's anchor as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The lines outside of fenced blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

fn anchors(text: &str) -> Vec<String> {
    prose(text).filter_map(|l| l.strip_prefix('#')).map(|l| anchor(l.trim_start_matches('#'))).collect()
}

/// The targets of `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// Whether a relative link from `file` resolves, with its anchor if it names one.
fn resolves(file: &Path, text: &str, target: &str) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = file.parent().expect("a file is in a folder").join(path);
    if !path.is_empty() && !to.exists() {
        return false;
    }
    let there = if path.is_empty() { Ok(text.to_string()) } else { fs::read_to_string(&to) };
    anchor.is_empty() || there.is_ok_and(|there| anchors(&there).iter().any(|a| a == anchor))
}

/// Whether a word in backticks is a path that does not exist: one that begins with a folder of the root or, within a crate, with
/// one of its folders. Patterns and placeholders are left out.
fn is_broken_path(file: &Path, word: &str) -> bool {
    let Some((first, _)) = word.split_once('/') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !word.chars().all(plain) || first.is_empty() || first == "target" {
        return false;
    }
    if root().join(first).is_dir() {
        return !root().join(word).exists();
    }
    let folder = file.ancestors().skip(1).find(|f| f.join("Cargo.toml").exists()).filter(|f| *f != root());
    // Every operator crate has a conformance test, and texts speak of it as such.
    let of_crate = ["src", "tests", "benches", "examples"].contains(&first) && word != "tests/conformance.rs";
    of_crate && folder.is_some_and(|f| !f.join(word).exists())
}

#[test]
fn links_and_paths_in_documents_resolve() {
    let mut broken = Vec::new();
    for file in files(&root(), &[".md"]) {
        let text = fs::read_to_string(&file).expect("there");
        for line in prose(&text) {
            let external = |t: &&str| !t.contains("://") && !t.starts_with("mailto:");
            let dead = links(line).filter(external).filter(|t| !resolves(&file, &text, t));
            broken.extend(dead.map(|t| format!("{}: the link ({t})", file.display())));
            let words = line.split('`').skip(1).step_by(2).filter(|w| is_broken_path(&file, w));
            broken.extend(words.map(|w| format!("{}: the path `{w}`", file.display())));
        }
    }
    assert!(broken.is_empty(), "nothing is there for\n{}", broken.join("\n"));
}

#[test]
fn every_operator_has_a_row_in_the_tables() {
    let text = |name: &str| fs::read_to_string(root().join(name)).expect("there");
    let (listed, table, map) =
        (text("runner/tests/operators.rs"), text("docs/operators.md"), text("docs/architecture.md"));
    let phases = ["Batching_", "Transferring_", "Training_"];
    let keys: Vec<&str> = listed.split('"').filter(|word| phases.iter().any(|phase| word.starts_with(phase))).collect();
    assert!(keys.len() > 10, "{keys:?}");
    // The simulated accelerator's have the table of its crate.
    for key in keys.iter().filter(|key| !key.to_lowercase().contains("sim")) {
        assert!(table.contains(&format!("\n| `{key}` |")), "docs/operators.md has no row of {key}");
        assert!(map.contains(&format!("`{key}`")), "docs/architecture.md does not say where {key} is");
    }
}

/// Whether a line of a file leaves the repository: by more `../` than the file, or the crate whose manifest it starts from, is
/// deep, or to a folder of one machine.
fn leaves_the_repository(file: &Path, line: &str) -> bool {
    let folder = match line.contains("CARGO_MANIFEST_DIR") {
        true => file.ancestors().skip(1).find(|f| f.join("Cargo.toml").exists()),
        false => file.parent(),
    };
    let depth = folder.and_then(|f| f.strip_prefix(root()).ok()).expect("within the repository").components().count();
    let steps = |rest: &str| rest.split("../").take_while(|between| between.is_empty()).count();
    let starts = line.match_indices("../").filter(|(at, _)| !line[..*at].ends_with("../"));
    let climbs = starts.map(|(at, found)| steps(&line[at + found.len()..]) + 1).max().unwrap_or(0);
    climbs > depth || ["home", "root", "work"].iter().any(|top| line.contains(&format!("/{top}/")))
}

#[test]
fn no_file_refers_to_anything_outside_the_repository() {
    let leaves = |file: &str, line: &str| leaves_the_repository(&root().join(file), line);
    assert!(leaves("README.md", "in `../data`") && !leaves("docs/design.md", "[README](../README.md)"));
    assert!(leaves("registry/src/lib.rs", r#"concat!(env!("CARGO_MANIFEST_DIR"), "/../../data")"#));
    assert!(!leaves("registry/src/lib.rs", "../../fuzz") && leaves("registry/src/lib.rs", "a ../ ../../../data"));
    let mut found = Vec::new();
    let endings = [".md", ".rs", ".py", ".sh", "Cargo.toml", ".cu", ".h", ".c", "run"];
    for file in [files(&root(), &endings), files(&root().join(".ci"), &endings)].concat() {
        let text = fs::read_to_string(&file).expect("there");
        let lines = text.lines().enumerate().filter(|(_, line)| leaves_the_repository(&file, line));
        found.extend(lines.map(|(i, line)| format!("{}:{}: {line}", file.display(), i + 1)));
    }
    found.retain(|line| !line.contains("assert!(") || !line.contains("leaves(\""));
    assert!(found.is_empty(), "outside of the repository:\n{}", found.join("\n"));
}

/// The numbers of `§N` at the end of a text: of `as in §4 and §5`, 5 and 4.
fn trailing_sections(mut text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some((before, number)) = text.trim_end().rsplit_once('§') {
        let Ok(number) = number.parse() else { break };
        found.push(number);
        let before = before.trim_end();
        text = before.strip_suffix("and").or_else(|| before.strip_suffix(',')).unwrap_or("");
    }
    found
}

/// The number of `§N` at the beginning of a text, behind what may stand between the design's name and it.
fn leading_section(text: &str) -> Option<u32> {
    let between = |c: char| " `()'s.md]".contains(c);
    let text = text.trim_start_matches(between).strip_prefix('§')?;
    text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

/// Sections of the design that a line cites.
fn cited(line: &str) -> Vec<u32> {
    let before = line.match_indices(" of the design").map(|(at, _)| &line[..at]);
    let mut found: Vec<u32> = before.flat_map(trailing_sections).collect();
    found.extend(line.split("design").skip(1).filter_map(leading_section));
    found
}

#[test]
fn cited_sections_of_the_design_exist() {
    assert_eq!(cited("Implements §4 and §5 of the design, not §9 of X."), [5, 4]);
    assert_eq!(cited("([docs/design.md](docs/design.md) §5), the design's §6; `docs/design.md` §7"), [5, 6, 7]);
    assert_eq!(cited("Route 2 of the design (§2): see MorphGL §3"), [2]);
    let design = fs::read_to_string(root().join("docs/design.md")).expect("there");
    let number = |line: &str| line.strip_prefix("## ")?.split_once('.')?.0.parse().ok();
    let sections: BTreeSet<u32> = design.lines().filter_map(number).collect();
    for file in files(&root(), &[".md", ".rs", ".cu", ".h", ".py", ".sh"]) {
        let text = fs::read_to_string(&file).expect("there");
        for line in text.lines().filter(|l| !l.contains("assert_eq!(cited(")) {
            let missing: Vec<u32> = cited(line).into_iter().filter(|s| !sections.contains(s)).collect();
            assert!(missing.is_empty(), "{}: docs/design.md has no section {missing:?}: {line}", file.display());
        }
    }
}
