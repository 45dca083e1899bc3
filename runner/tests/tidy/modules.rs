//! Circles of modules within a crate, found in `use` trees and paths.
//!
//! A module may use its ancestors and its descendants; two others must not use each other, directly or through a third.
//! Names are followed through re-exports, those by `*` excepted; modules within a file count as the file's own.

#![allow(clippy::print_stdout, reason = "circles that are known are listed")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{crates, root, rust_files};

type Names = Vec<String>;

/// Words, `::` and single other characters of a source without its comments, strings and test modules.
pub(crate) fn tokens(source: &str) -> Names {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\n');
    let find = |from: usize, c: char| (from..chars.len()).find(|&i| chars[i] == c).unwrap_or(chars.len());
    let mut found = Names::new();
    let mut i = 0;
    while i < chars.len() {
        let c = chars[i];
        if c == '/' && at(i + 1) == '/' {
            i = find(i, '\n');
        } else if c == '"' {
            let raw = found.last().is_some_and(|t| t == "r" || t == "br" || t == "#");
            i += 1;
            while i < chars.len() && chars[i] != '"' {
                i += if chars[i] == '\\' && !raw { 2 } else { 1 };
            }
            i += 1;
        } else if c == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            i = find(i + if at(i + 1) == '\\' { 3 } else { 2 }, '\'') + 1;
        } else if c.is_alphanumeric() || c == '_' {
            let end =
                (i..chars.len()).find(|&j| !(chars[j].is_alphanumeric() || chars[j] == '_')).unwrap_or(chars.len());
            found.push(chars[i..end].iter().collect());
            i = end;
        } else if c == ':' && at(i + 1) == ':' {
            found.push("::".to_string());
            i += 2;
        } else {
            found.extend((!c.is_whitespace()).then(|| c.to_string()));
            i += 1;
        }
    }
    // A test module stands last in its file.
    let is_test = |i: usize| match found[i..].iter().position(|t| t == "]") {
        Some(end) if found[i] == "cfg" => {
            let (attribute, rest) = found[i..].split_at(end);
            attribute.iter().any(|t| t == "test")
                && rest.get(1).is_some_and(|t| t == "mod")
                && rest.get(3).is_some_and(|t| t == "{")
        }
        _ => false,
    };
    let end = (0..found.len()).find(|&i| is_test(i));
    found.truncate(end.unwrap_or(found.len()));
    found
}

/// The paths of a `use` tree, each with the name it brings in; reads on from `i`, up to the `;` or the tree's end.
fn tree(tokens: &[String], i: &mut usize, prefix: &Names, found: &mut Vec<(Names, String)>) {
    let mut path = prefix.clone();
    let mut name = None;
    while let Some(token) = tokens.get(*i) {
        match token.as_str() {
            "{" => {
                while tokens.get(*i).is_some_and(|t| t != "}") {
                    *i += 1;
                    tree(tokens, i, &path, found);
                }
                path.clear();
            }
            "as" => {
                *i += 1;
                name = tokens.get(*i).cloned();
            }
            "::" => {}
            "," | ";" | "}" => break,
            "self" if !path.is_empty() => {}
            word => path.push(word.to_string()),
        }
        *i += 1;
    }
    if let Some(last) = path.last().cloned() {
        found.push((path, name.unwrap_or(last)));
    }
}

#[derive(Default)]
struct Module {
    /// Paths it names.
    paths: Vec<Names>,
    /// Names that it re-exports.
    exports: Vec<(Names, String)>,
}

fn module(source: &str) -> Module {
    let tokens = tokens(source);
    let mut module = Module::default();
    let mut i = 0;
    while i < tokens.len() {
        if tokens[i] == "use" {
            let public = i > 0 && (tokens[i - 1] == "pub" || tokens[i - 1] == ")");
            i += 1;
            let mut found = Vec::new();
            tree(&tokens, &mut i, &Names::new(), &mut found);
            module.paths.extend(found.iter().map(|(path, _)| path.clone()));
            module.exports.extend(found.into_iter().filter(|_| public));
        } else if tokens[i] == "crate" || tokens[i] == "super" {
            let mut path = vec![tokens[i].clone()];
            while tokens.get(i + 1).is_some_and(|t| t == "::") && tokens.get(i + 2).is_some_and(|t| t != "{") {
                path.push(tokens[i + 2].clone());
                i += 2;
            }
            module.paths.push(path);
        }
        i += 1;
    }
    module
}

/// A crate's modules by their paths; the crate itself has the empty one.
fn modules(source: &Path) -> BTreeMap<Names, Module> {
    let mut found: BTreeMap<Names, Module> = BTreeMap::new();
    for file in rust_files(source) {
        let relative = file.strip_prefix(source).expect("below the folder").with_extension("");
        let mut path: Names = relative.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        path.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
        if path.last().is_some_and(|last| last == "tests") {
            continue;
        }
        let Module { paths, exports } = module(&fs::read_to_string(&file).expect("there"));
        let of = found.entry(path).or_default();
        of.paths.extend(paths);
        of.exports.extend(exports);
    }
    found
}

/// The path from the crate's root of what `path` says within the module `at`; `None` where it is of another crate.
fn absolute(modules: &BTreeMap<Names, Module>, at: &[String], path: &[String]) -> Option<Names> {
    let up = path.iter().take_while(|p| *p == "super").count();
    let child = || modules.contains_key(&[at, &path[..1]].concat());
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some([&at[..at.len().checked_sub(up)?], &path[up..]].concat()),
        "self" => Some([at, &path[1..]].concat()),
        _ => child().then(|| [at, path].concat()),
    }
}

/// Sets of modules that use each other.
fn circles(source: &Path) -> Vec<BTreeSet<String>> {
    let modules = modules(source);
    let mut exports: BTreeMap<Names, Names> = BTreeMap::new();
    for (at, module) in &modules {
        for (path, name) in &module.exports {
            let to = absolute(&modules, at, path);
            exports.extend(to.map(|to| ([&at[..], std::slice::from_ref(name)].concat(), to)));
        }
    }
    let owner = |mut path: Names| -> Names {
        // As many steps as a chain of re-exports may have.
        for _ in 0..8 {
            let through =
                (1..=path.len()).rev().find(|&n| !modules.contains_key(&path[..n]) && exports.contains_key(&path[..n]));
            let Some(n) = through else { break };
            path = [&exports[&path[..n]][..], &path[n..]].concat();
        }
        let n = (0..=path.len()).rev().find(|&n| modules.contains_key(&path[..n])).unwrap_or(0);
        path.truncate(n);
        path
    };
    let mut uses: BTreeMap<Names, BTreeSet<Names>> = BTreeMap::new();
    for (at, module) in &modules {
        let to = module.paths.iter().filter_map(|p| absolute(&modules, at, p)).map(owner);
        uses.insert(at.clone(), to.filter(|to| !to.starts_with(at) && !at.starts_with(to)).collect());
    }
    let mut reached = uses.clone();
    loop {
        let next: BTreeMap<Names, BTreeSet<Names>> = reached
            .iter()
            .map(|(at, to)| (at.clone(), to.iter().flat_map(|t| reached[t].iter().chain([t])).cloned().collect()))
            .collect();
        if next == reached {
            break;
        }
        reached = next;
    }
    let in_circle = reached.iter().filter(|(at, to)| to.contains(*at));
    let of = |(at, to): (&Names, &BTreeSet<Names>)| {
        to.iter().filter(|t| reached[*t].contains(at)).map(|t| t.join("::")).collect::<BTreeSet<String>>()
    };
    in_circle.map(of).collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn modules_of_a_crate_use_each_other_in_one_direction() {
    let mut with_circles = Vec::new();
    for folder in crates() {
        let name = folder.strip_prefix(root()).expect("a member is in the workspace").display().to_string();
        let circles = circles(&folder.join("src"));
        for circle in &circles {
            println!("{name}: {}", circle.iter().cloned().collect::<Vec<_>>().join(" ↔ "));
        }
        if !circles.is_empty() {
            with_circles.push(name);
        }
    }
    assert!(with_circles.is_empty(), "circles of modules, printed above, in {}", with_circles.join(", "));
}

#[test]
fn a_circle_is_found_through_re_exports_and_groups() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
    write("lib.rs", "mod a; mod b; mod c;\npub use a::{Kept as A, Other};\npub(crate) use self::b::B;");
    write("a.rs", "use std::fmt; use crate::B;\npub struct Kept(B); pub struct Other; // crate::c");
    write("b.rs", "pub struct B;\n#[cfg(all(test, feature = \"x\"))]\nmod tests { use crate::A; }");
    write("c.rs", "use super::{b::B, Other as O};");
    assert_eq!(circles(folder.path()), Vec::<BTreeSet<String>>::new());
    write("b.rs", "pub struct B; const TEXT: &str = \"crate::c\"; fn f() { crate::A::new(); }");
    assert_eq!(circles(folder.path()), [BTreeSet::from(["a".to_string(), "b".to_string()])]);
}
