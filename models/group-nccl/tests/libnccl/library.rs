//! Builds the libnccl of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles the libnccl of the tests into `folder`, and returns its path.
///
/// # Panics
///
/// When there is no C++ compiler.
pub(crate) fn build(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|at| at.join(SOURCE)).find(|at| at.exists());
    let (source, library) = (source.expect("the workspace has it"), folder.join("libnccl.so.2"));
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden", "-o"]);
    // A sanitizer of the tests is none of the compiler's.
    let output =
        compiler.arg(&library).arg(&source).env_remove("LD_PRELOAD").output().expect("there is a C++ compiler");
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    library
}

const SOURCE: &str = "models/group-nccl/tests/libnccl/nccl.cpp";
