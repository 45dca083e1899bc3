//! A disk that fills up during an import: a message of one line, and no files left.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

use morphgl_formats::edge_list::{self, EdgeListOptions};
use morphgl_formats::{Options, Silent};

/// Set in the child, which imports under a limit on the size of files and reports through its exit status.
const CHILD: &str = "MORPHGL_TEST_DISK_FULL";

#[test]
fn a_full_disk_gives_a_message_and_leaves_nothing() {
    if let Some(dir) = std::env::var_os(CHILD) {
        import(Path::new(&dir));
        return;
    }
    // 4 KiB of memory fill the spill file first, 1 GiB the arrays; 60,000 edges make more than 64 KiB either way.
    for memory in ["4096", "1073741824"] {
        let dir = tempfile::tempdir().unwrap();
        let text: String = (0..60_000u32).map(|i| format!("{} {}\n", i % 1009, i % 1013)).collect();
        std::fs::write(dir.path().join("edges.txt"), text).unwrap();
        let test = std::env::current_exe().unwrap();
        let run = |limit: &str| {
            // Without the trap the limit would end the process by a signal; a full disk does not.
            Command::new("sh")
                .args(["-c", "trap '' XFSZ; ulimit -f $1; exec \"$0\" --nocapture"])
                .arg(&test)
                .arg(limit)
                .env(CHILD, dir.path())
                .env("MORPHGL_TEST_MEMORY", memory)
                .output()
                .unwrap()
        };
        // 128 blocks are 64 KiB, 128 KiB in some shells.
        let output = run("128");
        assert!(output.status.success(), "{output:?}");
        let message = std::fs::read_to_string(dir.path().join("message")).unwrap();
        let partial = format!("{}/.dataset.partial-", dir.path().display());
        assert!(message.starts_with(&partial), "{message}");
        assert!(!message.contains('\n'), "{message}");
        assert!(
            message.ends_with(": file too large; raise the file-size limit (ulimit -f) or write to another disk"),
            "{message}"
        );
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["edges.txt", "message"]);
        // The same import succeeds without the limit.
        std::fs::remove_file(dir.path().join("message")).unwrap();
        assert!(run("unlimited").status.success());
        assert!(dir.path().join("dataset/graph.json").exists());
    }
}

fn import(dir: &Path) {
    let memory = std::env::var("MORPHGL_TEST_MEMORY").unwrap().parse().unwrap();
    let options = Options { memory, ..Options::default() };
    let (source, target) = (dir.join("edges.txt"), dir.join("dataset"));
    if let Err(e) = edge_list::import(&source, &target, &EdgeListOptions::default(), &options, &Silent) {
        std::fs::write(dir.join("message"), e.to_string()).unwrap();
    }
}
