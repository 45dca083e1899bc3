//! No hidden state in the runner: two runs in one process work beside each other.

use std::fs;

use super::modules::tokens;
use super::{root, rust_files};

/// The names of the statics in a source, and of what is kept per thread; those of its test module and global allocators excepted.
fn statics(source: &str) -> Vec<String> {
    let tokens = tokens(source);
    let before = |i: usize, n: usize| i.checked_sub(n).map_or("", |at| tokens[at].as_str());
    let is_static = |&i: &usize| match tokens[i].as_str() {
        // A lifetime begins with an apostrophe, and the allocator of a binary has its attribute.
        "static" => before(i, 1) != "'" && before(i, 2) != "global_allocator",
        "thread_local" => true,
        _ => false,
    };
    let name = |i: usize| tokens[i + 1..].iter().find(|t| !["mut", "!", "{", "ref"].contains(&t.as_str()));
    (0..tokens.len()).filter(is_static).filter_map(|i| name(i).cloned()).collect()
}

#[test]
fn the_runner_has_no_state_but_the_interrupt_flag() {
    let folder = root().join("runner/src");
    let mut found = Vec::new();
    for file in rust_files(&folder) {
        if file.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        let path = file.strip_prefix(&folder).expect("below the folder").display().to_string();
        let source = fs::read_to_string(&file).expect("there");
        found.extend(statics(&source).into_iter().map(|name| format!("{path}: {name}")));
    }
    assert_eq!(found, ["cli/interrupt.rs: INTERRUPT"], "pass it in `RunContext` instead");
}

#[test]
fn statics_are_told_from_lifetimes_comments_and_allocators() {
    let source = "
        #[global_allocator]
        static ALLOCATOR: System = System;
        // static COMMENT: u8 = 0;
        const TEXT: &'static str = \"static TEXT: u8\";
        fn f(x: &'static str) -> u8 { static NEXT: AtomicU8 = AtomicU8::new(0); 0 }
        pub(crate) static mut OTHER: u8 = 0;
        thread_local! { static OWN: u8 = 0; }
        #[cfg(test)]
        mod tests { static RUNNING: u8 = 0; }";
    assert_eq!(statics(source), ["NEXT", "OTHER", "static", "OWN"]);
}
